// Attention of all heads, with dropout on its probabilities, forward and backward. Scores and probabilities never leave
// the caches: the backward pass computes them again from the saved logarithm of each row's normaliser.
//
// What products are made of is kept as `Operand<T>::Stored`, the rest as float: in bf16 that is bfloat16 where the
// processor multiplies pairs of them, as torch's own attention has it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "products.h"

namespace electra {

struct AttentionShape {
    int64_t rows, length, heads, head_width;
    int kept;  // of 256 byte values, how many keep a probability; 256 is no dropout

    int64_t hidden() const { return heads * head_width; }
    int64_t padded() const { return (length + kWidth - 1) / kWidth * kWidth; }
    float scale() const { return 256.0f / kept; }
};

constexpr int64_t kBlock = 48;  // queries at a time

// A query that may see no key sees all of them alike: beside a bias of -1e9 scores within ±32 are lost in rounding, and
// so would be the logarithm of the normaliser, which is why such a query is marked instead.
constexpr float kBlindScore = -5e8f, kBlind = 1e30f;

// Aligned floats that one thread works in.
class Scratch {
   public:
    explicit Scratch(int64_t count) {
        data_ = static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
        next_ = data_;
    }
    ~Scratch() { std::free(data_); }
    float* take(int64_t count) {
        float* taken = next_;
        next_ += (count + kWidth - 1) / kWidth * kWidth;
        return taken;
    }
    template <class Stored>
    Stored* take_as(int64_t count) {
        return reinterpret_cast<Stored*>(take(count));
    }

   private:
    float *data_, *next_;
};

// One part (query, key or value) of one head from the rows [L, 3, A, D] of the fused product, bias added, scaled.
template <class T, class Stored>
static inline void gather_head(const T* from, const float* bias, float scale, int64_t row, int64_t count, int64_t width,
                               Stored* to) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < width; d += kWidth)
            store(to + i * width + d, (load(from + i * row + d) + load(bias + d)) * scale);
}

template <class T>
static void attention_forward(const AttentionShape& shape, const T* qkv, const float* bias, const float* key_bias,
                              const uint64_t* keys, T* context, float* normalisers, int threads) {
    using O = Operand<T>;
    using Stored = typename O::Stored;
    const int64_t L = shape.length, D = shape.head_width, H = shape.hidden(), P = shape.padded(), E = O::depth;
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(D));
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(4 * P * D + 2 * kBlock * (P + D) + P + 512);
        Stored *k = scratch.template take_as<Stored>(P * D), *v = scratch.template take_as<Stored>(P * D);
        Stored *q = scratch.template take_as<Stored>(kBlock * D), *shares = scratch.template take_as<Stored>(kBlock * P);
        float *kt_words = scratch.take(P * D), *v_words = scratch.take(P * D);
        float *out = scratch.take(kBlock * D), *p = scratch.take(kBlock * P);
        uint8_t* bytes = reinterpret_cast<uint8_t*>(scratch.take(P + 16));
#pragma omp for schedule(static)
        for (int64_t job = 0; job < shape.rows * shape.heads; job++) {
            const int64_t b = job / shape.heads, a = job % shape.heads;
            const T* base = qkv + b * L * 3 * H + a * D;
            gather_head(base + H, bias + H + a * D, 1.0f, 3 * H, L, D, k);
            gather_head(base + 2 * H, bias + 2 * H + a * D, 1.0f, 3 * H, L, D, v);
            const auto* kt = transposed<O>(k, L, D, P, kt_words);
            const auto* v_across = across_rows<O>(v, L, D, v_words);
            for (int64_t start = 0; start < L; start += kBlock) {
                const int64_t count = L - start < kBlock ? L - start : kBlock;
                gather_head(base + start * 3 * H, bias + a * D, query_scale, 3 * H, count, D, q);
                product<O>(along_rows<O>(q), D / E, 1, kt, P, p, P, count, P, D / E);
                for (int64_t i = 0; i < count; i++) {
                    float* row = p + i * P;
                    if (key_bias)
                        for (int64_t j = 0; j < L; j++) row[j] += key_bias[b * L + j];
                    for (int64_t j = L; j < P; j++) row[j] = -1e30f;
                    Floats best = load(row);
                    for (int64_t j = kWidth; j < P; j += kWidth) best = larger(best, load(row + j));
                    const float top = largest(best);
                    Floats total{};
                    for (int64_t j = 0; j < P; j += kWidth) {
                        Floats e = exp(load(row + j) - top);
                        store(row + j, e);
                        total += e;
                    }
                    const float normaliser = sum(total), share = 1.0f / normaliser;
                    normalisers[job * L + start + i] = top < kBlindScore ? kBlind : top + std::log(normaliser);
                    if (shape.kept < 256) {
                        random_bytes(keys[b], (a * L + start + i) * L, L, bytes);
                        for (int64_t j = 0; j < P; j += kWidth)
                            store(shares + i * P + j,
                                  load(row + j) * keep(bytes + j, shape.kept, share * shape.scale()));
                    } else {
                        for (int64_t j = 0; j < P; j += kWidth) store(shares + i * P + j, load(row + j) * share);
                    }
                }
                product<O>(along_rows<O>(shares), P / E, 1, v_across, D, out, D, count, D, (L + E - 1) / E);
                for (int64_t i = 0; i < count; i++)
                    for (int64_t d = 0; d < D; d += kWidth)
                        store(context + (b * L + start + i) * H + a * D + d, load(out + i * D + d));
            }
        }
    }
}

// Gradients of the fused product, and of its bias: bias_gradients is [threads × 3H], zero at the start.
template <class T>
static void attention_backward(const AttentionShape& shape, const T* gradient, const T* qkv, const float* bias,
                               const float* key_bias, const uint64_t* keys, const float* normalisers, T* qkv_gradient,
                               float* bias_gradients, int threads) {
    using O = Operand<T>;
    using Stored = typename O::Stored;
    const int64_t L = shape.length, D = shape.head_width, H = shape.hidden(), P = shape.padded(), E = O::depth;
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(D));
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(7 * P * D + kBlock * (5 * D + 6 * P) + P + 1024);
        Stored *k = scratch.template take_as<Stored>(P * D), *v = scratch.template take_as<Stored>(P * D);
        Stored *q = scratch.template take_as<Stored>(kBlock * D), *dout = scratch.template take_as<Stored>(kBlock * D);
        Stored *slopes = scratch.template take_as<Stored>(kBlock * P), *dropped = scratch.template take_as<Stored>(kBlock * P);
        float *kt_words = scratch.take(P * D), *vt_words = scratch.take(P * D), *k_words = scratch.take(P * D);
        float *rows_words = scratch.take(kBlock * D), *columns_words = scratch.take(kBlock * P);
        float *dk = scratch.take(P * D), *dv = scratch.take(P * D), *dq = scratch.take(kBlock * D);
        float *p = scratch.take(kBlock * P), *ds = scratch.take(kBlock * P);
        uint8_t* bytes = reinterpret_cast<uint8_t*>(scratch.take(P + 16));
#pragma omp for schedule(static)
        for (int64_t thread = 0; thread < threads; thread++) {
            float* own_bias = bias_gradients + thread * 3 * H;
            const int64_t jobs = shape.rows * shape.heads;
            for (int64_t job = thread * jobs / threads; job < (thread + 1) * jobs / threads; job++) {
                const int64_t b = job / shape.heads, a = job % shape.heads;
                const T* base = qkv + b * L * 3 * H + a * D;
                T* base_gradient = qkv_gradient + b * L * 3 * H + a * D;
                gather_head(base + H, bias + H + a * D, 1.0f, 3 * H, L, D, k);
                gather_head(base + 2 * H, bias + 2 * H + a * D, 1.0f, 3 * H, L, D, v);
                const auto *kt = transposed<O>(k, L, D, P, kt_words), *vt = transposed<O>(v, L, D, P, vt_words);
                const auto* k_across = across_rows<O>(k, L, D, k_words);
                std::memset(dk, 0, L * D * sizeof(float));
                std::memset(dv, 0, L * D * sizeof(float));
                for (int64_t start = 0; start < L; start += kBlock) {
                    const int64_t count = L - start < kBlock ? L - start : kBlock;
                    gather_head(base + start * 3 * H, bias + a * D, query_scale, 3 * H, count, D, q);
                    for (int64_t i = 0; i < count; i++)
                        for (int64_t d = 0; d < D; d += kWidth)
                            store(dout + i * D + d, load(gradient + (b * L + start + i) * H + a * D + d));
                    product<O>(along_rows<O>(q), D / E, 1, kt, P, p, P, count, P, D / E);
                    product<O>(along_rows<O>(dout), D / E, 1, vt, P, ds, P, count, P, D / E);
                    for (int64_t i = 0; i < count; i++) {
                        float *row = p + i * P, *slope = ds + i * P;
                        Stored* kept_row = dropped + i * P;
                        if (key_bias)
                            for (int64_t j = 0; j < L; j++) row[j] += key_bias[b * L + j];
                        float normaliser = normalisers[job * L + start + i];
                        if (normaliser == kBlind) {
                            std::fill(row, row + L, 0.0f);
                            normaliser = std::log(static_cast<float>(L));
                        }
                        for (int64_t j = L; j < P; j++) row[j] = -1e30f;
                        const bool drops = shape.kept < 256;
                        if (drops) random_bytes(keys[b], (a * L + start + i) * L, L, bytes);
                        Floats inner{};
                        for (int64_t j = 0; j < P; j += kWidth) {
                            Floats probability = exp(load(row + j) - normaliser), slope_j = load(slope + j);
                            Floats factor = drops ? keep(bytes + j, shape.kept, shape.scale()) : all(1.0f);
                            store(kept_row + j, probability * factor);
                            slope_j *= factor;
                            inner += probability * slope_j;
                            store(row + j, probability);
                            store(slope + j, slope_j);
                        }
                        const float mean = sum(inner);
                        for (int64_t j = 0; j < P; j += kWidth)
                            store(slopes + i * P + j, load(row + j) * (load(slope + j) - mean));
                    }
                    const int64_t across = (count + E - 1) / E;
                    product<O>(along_rows<O>(slopes), P / E, 1, k_across, D, dq, D, count, D, (L + E - 1) / E);
                    product<O>(across_rows<O>(slopes, count, P, columns_words), 1, P,
                               across_rows<O>(q, count, D, rows_words), D, dk, D, L, D, across, true);
                    product<O>(across_rows<O>(dropped, count, P, columns_words), 1, P,
                               across_rows<O>(dout, count, D, rows_words), D, dv, D, L, D, across, true);
                    for (int64_t d = 0; d < D; d += kWidth) {
                        Floats column{};
                        for (int64_t i = 0; i < count; i++) {
                            Floats g = load(dq + i * D + d) * query_scale;
                            column += g;
                            store(base_gradient + (start + i) * 3 * H + d, g);
                        }
                        store(own_bias + a * D + d, load(own_bias + a * D + d) + column);
                    }
                }
                for (int64_t d = 0; d < D; d += kWidth) {
                    Floats key_column{}, value_column{};
                    for (int64_t i = 0; i < L; i++) {
                        Floats key_slope = load(dk + i * D + d), value_slope = load(dv + i * D + d);
                        key_column += key_slope;
                        value_column += value_slope;
                        store(base_gradient + i * 3 * H + H + d, key_slope);
                        store(base_gradient + i * 3 * H + 2 * H + d, value_slope);
                    }
                    float* own = own_bias + a * D + d;
                    store(own + H, load(own + H) + key_column);
                    store(own + 2 * H, load(own + 2 * H) + value_column);
                }
            }
        }
    }
}

}  // namespace electra
