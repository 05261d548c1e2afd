// Attention of all heads, with dropout on its probabilities, forward and backward. Scores and probabilities never leave
// the caches: the backward pass computes them again from the saved logarithm of each row's normaliser.
#pragma once

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

   private:
    float *data_, *next_;
};

// One part (query, key or value) of one head from the rows [L, 3, A, D] of the fused product, bias added, scaled.
template <class T>
static inline void gather_head(const T* from, const float* bias, float scale, int64_t row, int64_t count, int64_t width,
                               float* to) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t d = 0; d < width; d += kWidth)
            store(to + i * width + d, (load(from + i * row + d) + load(bias + d)) * scale);
}

// to[D × padded] = from[L × D] transposed, zeros past L.
static inline void transpose(const float* from, int64_t length, int64_t width, int64_t padded, float* to) {
    for (int64_t i = 0; i < length; i++)
        for (int64_t d = 0; d < width; d++) to[d * padded + i] = from[i * width + d];
    for (int64_t d = 0; d < width; d++)
        for (int64_t i = length; i < padded; i++) to[d * padded + i] = 0;
}

template <class T>
static void attention_forward(const AttentionShape& shape, const T* qkv, const float* bias, const float* key_bias,
                              const uint64_t* keys, T* context, float* normalisers, int threads) {
    const int64_t L = shape.length, D = shape.head_width, H = shape.hidden(), P = shape.padded();
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(D));
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(3 * P * D + 2 * kBlock * (P + D) + P + 256);
        float *k = scratch.take(P * D), *kt = scratch.take(P * D), *v = scratch.take(P * D);
        float *q = scratch.take(kBlock * D), *out = scratch.take(kBlock * D), *p = scratch.take(kBlock * P);
        uint8_t* bytes = reinterpret_cast<uint8_t*>(scratch.take(P + 16));
#pragma omp for schedule(static)
        for (int64_t job = 0; job < shape.rows * shape.heads; job++) {
            const int64_t b = job / shape.heads, a = job % shape.heads;
            const T* base = qkv + b * L * 3 * H + a * D;
            gather_head(base + H, bias + H + a * D, 1.0f, 3 * H, L, D, k);
            gather_head(base + 2 * H, bias + 2 * H + a * D, 1.0f, 3 * H, L, D, v);
            transpose(k, L, D, P, kt);
            for (int64_t start = 0; start < L; start += kBlock) {
                const int64_t count = L - start < kBlock ? L - start : kBlock;
                gather_head(base + start * 3 * H, bias + a * D, query_scale, 3 * H, count, D, q);
                product(q, D, 1, kt, P, p, P, count, P, D);
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
                    normalisers[job * L + start + i] = top + std::log(normaliser);
                    if (shape.kept < 256) {
                        random_bytes(keys[b], (a * L + start + i) * L, L, bytes);
                        for (int64_t j = 0; j < P; j += kWidth)
                            store(row + j, load(row + j) * keep(bytes + j, shape.kept, share * shape.scale()));
                    } else {
                        for (int64_t j = 0; j < P; j += kWidth) store(row + j, load(row + j) * share);
                    }
                }
                product(p, P, 1, v, D, out, D, count, D, L);
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
    const int64_t L = shape.length, D = shape.head_width, H = shape.hidden(), P = shape.padded();
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(D));
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(7 * P * D + kBlock * (4 * D + 3 * P) + P + 512);
        float *k = scratch.take(P * D), *kt = scratch.take(P * D), *v = scratch.take(P * D), *vt = scratch.take(P * D);
        float *dk = scratch.take(P * D), *dv = scratch.take(P * D);
        float *q = scratch.take(kBlock * D), *dout = scratch.take(kBlock * D), *dq = scratch.take(kBlock * D);
        float *p = scratch.take(kBlock * P), *ds = scratch.take(kBlock * P), *dropped = scratch.take(kBlock * P);
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
                transpose(k, L, D, P, kt);
                transpose(v, L, D, P, vt);
                std::memset(dk, 0, L * D * sizeof(float));
                std::memset(dv, 0, L * D * sizeof(float));
                for (int64_t start = 0; start < L; start += kBlock) {
                    const int64_t count = L - start < kBlock ? L - start : kBlock;
                    gather_head(base + start * 3 * H, bias + a * D, query_scale, 3 * H, count, D, q);
                    for (int64_t i = 0; i < count; i++)
                        for (int64_t d = 0; d < D; d += kWidth)
                            store(dout + i * D + d, load(gradient + (b * L + start + i) * H + a * D + d));
                    product(q, D, 1, kt, P, p, P, count, P, D);
                    product(dout, D, 1, vt, P, ds, P, count, P, D);
                    for (int64_t i = 0; i < count; i++) {
                        float *row = p + i * P, *slope = ds + i * P, *kept_row = dropped + i * P;
                        if (key_bias)
                            for (int64_t j = 0; j < L; j++) row[j] += key_bias[b * L + j];
                        for (int64_t j = L; j < P; j++) row[j] = -1e30f;
                        const float normaliser = normalisers[job * L + start + i];
                        const bool drops = shape.kept < 256;
                        if (drops) random_bytes(keys[b], (a * L + start + i) * L, L, bytes);
                        Floats inner{};
                        for (int64_t j = 0; j < P; j += kWidth) {
                            Floats probability = exp(load(row + j) - normaliser), slopes = load(slope + j);
                            Floats factor = drops ? keep(bytes + j, shape.kept, shape.scale()) : all(1.0f);
                            store(kept_row + j, probability * factor);
                            slopes *= factor;
                            inner += probability * slopes;
                            store(row + j, probability);
                            store(slope + j, slopes);
                        }
                        const float mean = sum(inner);
                        for (int64_t j = 0; j < P; j += kWidth)
                            store(slope + j, load(row + j) * (load(slope + j) - mean));
                    }
                    product(ds, P, 1, k, D, dq, D, count, D, L);
                    product(ds, 1, P, q, D, dk, D, L, D, count, true);
                    product(dropped, 1, P, dout, D, dv, D, L, D, count, true);
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
