// What lies between the matrix products of a layer, each in one pass over memory.
//
// Random bytes: row r of a [rows × width] matrix belongs to example r / length, whose sequence `keys[r / length]` it
// reads from byte (r % length) · width. `kept` of 256 byte values keep an element; 256 is no dropout.
#pragma once

#include <cmath>
#include <vector>

#include "vectors.h"

namespace electra {

struct Dropout {
    const uint64_t* keys;
    int64_t length;
    int kept;

    bool drops() const { return kept < 256; }
    float scale() const { return 256.0f / kept; }
    void bytes(int64_t row, int64_t width, uint8_t* to) const {
        random_bytes(keys[row / length], row % length * width, width, to);
    }
};

static inline int64_t share(int64_t count, int64_t part, int64_t parts) { return part * count / parts; }

template <class T>
static void dropout(const T* x, const Dropout& drop, T* y, int64_t rows, int64_t width, int threads) {
#pragma omp parallel num_threads(threads)
    {
        std::vector<uint8_t> bytes(width + 32);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            drop.bytes(r, width, bytes.data());
            for (int64_t j = 0; j < width; j += kWidth)
                store(y + r * width + j, load(x + r * width + j) * keep(&bytes[j], drop.kept, drop.scale()));
        }
    }
}

// x ← residual + dropout(x + bias); y ← LayerNorm(x). means and scales (1 / σ) are kept for the backward pass.
template <class T>
static void add_layer_norm_forward(T* x, const float* bias, const T* residual, const float* gamma, const float* beta,
                                   const Dropout& drop, T* y, float* means, float* scales, int64_t rows, int64_t width,
                                   float epsilon, int threads) {
#pragma omp parallel num_threads(threads)
    {
        std::vector<uint8_t> bytes(width + 32);
        std::vector<float> added(width);
        float* v = added.data();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            T* from = x + r * width;
            if (drop.drops()) drop.bytes(r, width, bytes.data());
            Floats total{};
            for (int64_t j = 0; j < width; j += kWidth) {
                Floats value = load(from + j) + load(bias + j);
                if (drop.drops()) value *= keep(&bytes[j], drop.kept, drop.scale());
                value += load(residual + r * width + j);
                store(from + j, value);
                store(v + j, value);
                total += value;
            }
            const float mean = sum(total) / width;
            Floats squares{};
            for (int64_t j = 0; j < width; j += kWidth) {
                Floats off = load(v + j) - mean;
                squares += off * off;
            }
            const float scale = 1.0f / std::sqrt(sum(squares) / width + epsilon);
            means[r] = mean;
            scales[r] = scale;
            for (int64_t j = 0; j < width; j += kWidth)
                store(y + r * width + j, (load(v + j) - mean) * scale * load(gamma + j) + load(beta + j));
        }
    }
}

// From the gradient of y: that of the sum (`residual_gradient`, which the residual gets), that of x before dropout
// (`x_gradient`; not written without dropout, where it is the same), and per thread [γ, β, bias] in sums[threads × 3W].
template <class T>
static void add_layer_norm_backward(const T* y_gradient, const T* x, const float* gamma, const Dropout& drop,
                                    const float* means, const float* scales, T* residual_gradient, T* x_gradient,
                                    float* sums, int64_t rows, int64_t width, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t thread = 0; thread < threads; thread++) {
        std::vector<uint8_t> bytes(width + 32);
        std::vector<float> normalised_row(width), slope_row(width);
        float *hat = normalised_row.data(), *slope = slope_row.data();
        float *gamma_sum = sums + thread * 3 * width, *beta_sum = gamma_sum + width, *bias_sum = beta_sum + width;
        for (int64_t r = share(rows, thread, threads); r < share(rows, thread + 1, threads); r++) {
            const float mean = means[r], scale = scales[r];
            if (drop.drops()) drop.bytes(r, width, bytes.data());
            Floats total{}, inner{};
            for (int64_t j = 0; j < width; j += kWidth) {
                Floats g = load(y_gradient + r * width + j), h = (load(x + r * width + j) - mean) * scale;
                store(beta_sum + j, load(beta_sum + j) + g);
                store(gamma_sum + j, load(gamma_sum + j) + g * h);
                g *= load(gamma + j);
                total += g;
                inner += g * h;
                store(hat + j, h);
                store(slope + j, g);
            }
            const float mean_slope = sum(total) / width, mean_inner = sum(inner) / width;
            for (int64_t j = 0; j < width; j += kWidth) {
                Floats g = (load(slope + j) - mean_slope - load(hat + j) * mean_inner) * scale;
                store(residual_gradient + r * width + j, g);
                if (drop.drops()) {
                    g *= keep(&bytes[j], drop.kept, drop.scale());
                    store(x_gradient + r * width + j, g);
                }
                store(bias_sum + j, load(bias_sum + j) + g);
            }
        }
    }
}

// y ← GELU(x + bias), with the normal distribution itself (erf), not tanh.
template <class T>
static void gelu_forward(const T* x, const float* bias, T* y, int64_t rows, int64_t width, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j += kWidth) {
            Floats v = load(x + r * width + j) + load(bias + j), density, below;
            normal(v, &density, &below);
            store(y + r * width + j, v * below);
        }
}

// gradient ← gradient · GELU'(x + bias), and its column sums per thread in sums[threads × width].
template <class T>
static void gelu_backward(const T* x, const float* bias, T* gradient, float* sums, int64_t rows, int64_t width,
                          int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t thread = 0; thread < threads; thread++) {
        float* bias_sum = sums + thread * width;
        for (int64_t r = share(rows, thread, threads); r < share(rows, thread + 1, threads); r++)
            for (int64_t j = 0; j < width; j += kWidth) {
                Floats v = load(x + r * width + j) + load(bias + j), density, below;
                normal(v, &density, &below);
                Floats g = load(gradient + r * width + j) * (below + v * density);
                store(gradient + r * width + j, g);
                store(bias_sum + j, load(bias_sum + j) + g);
            }
    }
}

}  // namespace electra
