// The generator's output in one visit per masked position: loss, hit or miss, a sample, and the loss's gradient.
#pragma once

#include <cmath>
#include <vector>

#include "vectors.h"

namespace electra {

constexpr int64_t kSampleBlock = 64;  // ids per block of the two-level search, as in electra_core/sampling.py

// Weights of all ids in blocks → the id at which the running sum passes `uniform` of the whole.
static inline int64_t pick(const float* weights, const float* blocks, int64_t num_blocks, float uniform) {
    float whole = 0;
    for (int64_t i = 0; i < num_blocks; i++) whole += blocks[i];
    const float target = uniform * whole;
    float before = 0, running = 0;
    int64_t block = -1;
    for (int64_t i = 0; i < num_blocks; i++) {
        running += blocks[i];
        if (running > target) {
            block = i;
            break;
        }
        before = running;
    }
    if (block < 0 || !(blocks[block] > 0)) {  // rounding has left the target past the last weight
        block = 0;
        for (int64_t i = 1; i < num_blocks; i++)
            if (blocks[i] > blocks[block]) block = i;
        before = target - blocks[block] * 0.5f;
    }
    const float* inside = weights + block * kSampleBlock;
    running = 0;
    int64_t heaviest = 0;
    for (int64_t i = 0; i < kSampleBlock; i++) {
        running += inside[i];
        if (running > target - before && inside[i] > 0) return block * kSampleBlock + i;
        if (inside[i] > inside[heaviest]) heaviest = i;
    }
    return block * kSampleBlock + heaviest;
}

// logits T[rows × padded] without bias; columns from `vocab` on are impossible. Where `bias_sums` (float[threads ×
// padded], zero at the start) is given, logits become the gradient of Σ weight · loss with respect to themselves.
template <class T>
static void cross_entropy(T* logits, const float* bias, const int64_t* targets, const float* weights,
                          const float* uniforms, const int64_t* disallowed, float temperature, float* losses,
                          float* correct, int64_t* samples, float* bias_sums, int64_t rows, int64_t vocab,
                          int64_t padded, int threads) {
    const int64_t num_blocks = padded / kSampleBlock;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t thread = 0; thread < threads; thread++) {
        std::vector<float> row(padded), blocks(num_blocks), tempered;
        float* e = row.data();
        for (int64_t r = thread * rows / threads; r < (thread + 1) * rows / threads; r++) {
            T* from = logits + r * padded;
            const int64_t target = targets[r];
            Floats tops = all(-1e30f);
            for (int64_t j = 0; j < padded; j += kWidth) {
                Floats v = load(from + j) + load(bias + j);
                store(e + j, v);
                tops = larger(tops, v);
            }
            if (padded > vocab) {
                for (int64_t j = vocab; j < padded; j++) e[j] = -1e30f;
                tops = all(-1e30f);
                for (int64_t j = 0; j < padded; j += kWidth) tops = larger(tops, load(e + j));
            }
            const float top = largest(tops), target_logit = e[target];
            bool is_first = target_logit >= top;  // of several ids on top, the first is the answer
            for (int64_t j = 0; is_first && j < target; j++) is_first = e[j] < top;
            correct[r] = is_first ? 1.0f : 0.0f;
            if (temperature != 1.0f || disallowed) {
                tempered.resize(padded);
                for (int64_t j = 0; j < padded; j += kWidth)
                    store(&tempered[j], exp((load(e + j) - top) * (1.0f / temperature)));
                if (disallowed) {
                    // The rest may be far below the top: start from its own top, or it could all vanish.
                    const float forbidden = e[disallowed[r]];
                    e[disallowed[r]] = -1e30f;
                    Floats others = all(-1e30f);
                    for (int64_t j = 0; j < padded; j += kWidth) others = larger(others, load(e + j));
                    const float other_top = largest(others);
                    for (int64_t j = 0; j < padded; j += kWidth)
                        store(&tempered[j], exp((load(e + j) - other_top) * (1.0f / temperature)));
                    e[disallowed[r]] = forbidden;
                }
                for (int64_t block = 0; block < num_blocks; block++) {
                    Floats part{};
                    for (int64_t j = block * kSampleBlock; j < (block + 1) * kSampleBlock; j += kWidth)
                        part += load(&tempered[j]);
                    blocks[block] = sum(part);
                }
                samples[r] = pick(tempered.data(), blocks.data(), num_blocks, uniforms[r]);
            }
            for (int64_t block = 0; block < num_blocks; block++) {
                Floats part{};
                for (int64_t j = block * kSampleBlock; j < (block + 1) * kSampleBlock; j += kWidth) {
                    Floats v = exp(load(e + j) - top);
                    store(e + j, v);
                    part += v;
                }
                blocks[block] = sum(part);
            }
            double normaliser = 0;
            for (int64_t block = 0; block < num_blocks; block++) normaliser += blocks[block];
            if (temperature == 1.0f && !disallowed)
                samples[r] = pick(e, blocks.data(), num_blocks, uniforms[r]);
            losses[r] = static_cast<float>(std::log(normaliser)) + top - target_logit;
            if (!bias_sums) continue;
            const float scale = static_cast<float>(weights[r] / normaliser);
            e[target] -= static_cast<float>(normaliser);
            float* column = bias_sums + thread * padded;
            for (int64_t j = 0; j < padded; j += kWidth) {
                Floats g = load(e + j) * scale;
                store(from + j, g);
                store(column + j, load(column + j) + g);
            }
        }
    }
}

}  // namespace electra
