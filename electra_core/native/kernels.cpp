// What Python calls (electra_core/native/library.py): every kernel twice, for float32 and for bfloat16 storage, and the
// exchange between worker processes.
#include "attention.h"
#include "cross_entropy.h"
#include "elementwise.h"
#include "shared_memory.h"

using namespace electra;

#define EXPORTS(NAME, T)                                                                                               \
    extern "C" void dropout_##NAME(const T* x, const uint64_t* keys, int64_t length, int kept, T* y, int64_t rows,     \
                                   int64_t width, int threads) {                                                       \
        dropout(x, Dropout{keys, length, kept}, y, rows, width, threads);                                              \
    }                                                                                                                  \
    extern "C" void add_layer_norm_forward_##NAME(                                                                     \
        T* x, const float* bias, const T* residual, const float* gamma, const float* beta, const uint64_t* keys,       \
        int64_t length, int kept, T* y, float* means, float* scales, int64_t rows, int64_t width, float epsilon,       \
        int threads) {                                                                                                 \
        add_layer_norm_forward(x, bias, residual, gamma, beta, Dropout{keys, length, kept}, y, means, scales, rows,    \
                               width, epsilon, threads);                                                               \
    }                                                                                                                  \
    extern "C" void add_layer_norm_backward_##NAME(                                                                    \
        const T* y_gradient, const T* x, const float* gamma, const uint64_t* keys, int64_t length, int kept,           \
        const float* means, const float* scales, T* residual_gradient, T* x_gradient, float* sums, int64_t rows,       \
        int64_t width, int threads) {                                                                                  \
        add_layer_norm_backward(y_gradient, x, gamma, Dropout{keys, length, kept}, means, scales, residual_gradient,   \
                                x_gradient, sums, rows, width, threads);                                               \
    }                                                                                                                  \
    extern "C" void gelu_forward_##NAME(const T* x, const float* bias, T* y, int64_t rows, int64_t width,              \
                                        int threads) {                                                                 \
        gelu_forward(x, bias, y, rows, width, threads);                                                                \
    }                                                                                                                  \
    extern "C" void gelu_backward_##NAME(const T* x, const float* bias, T* gradient, float* sums, int64_t rows,        \
                                         int64_t width, int threads) {                                                 \
        gelu_backward(x, bias, gradient, sums, rows, width, threads);                                                  \
    }                                                                                                                  \
    extern "C" void attention_forward_##NAME(const T* qkv, const float* bias, const float* key_bias,                   \
                                             const uint64_t* keys, int kept, T* context, float* normalisers,           \
                                             int64_t rows, int64_t length, int64_t heads, int64_t head_width,          \
                                             int threads) {                                                            \
        attention_forward(AttentionShape{rows, length, heads, head_width, kept}, qkv, bias, key_bias, keys, context,   \
                          normalisers, threads);                                                                       \
    }                                                                                                                  \
    extern "C" void attention_backward_##NAME(                                                                         \
        const T* gradient, const T* qkv, const float* bias, const float* key_bias, const uint64_t* keys, int kept,     \
        const float* normalisers, T* qkv_gradient, float* bias_gradients, int64_t rows, int64_t length, int64_t heads, \
        int64_t head_width, int threads) {                                                                             \
        attention_backward(AttentionShape{rows, length, heads, head_width, kept}, gradient, qkv, bias, key_bias, keys, \
                           normalisers, qkv_gradient, bias_gradients, threads);                                        \
    }                                                                                                                  \
    extern "C" void cross_entropy_##NAME(T* logits, const float* bias, const int64_t* targets, const float* weights,   \
                                         const float* uniforms, const int64_t* disallowed, float temperature,          \
                                         float* losses, float* correct, int64_t* samples, float* bias_sums,            \
                                         int64_t rows, int64_t vocab, int64_t padded, int threads) {                   \
        cross_entropy(logits, bias, targets, weights, uniforms, disallowed, temperature, losses, correct, samples,     \
                      bias_sums, rows, vocab, padded, threads);                                                        \
    }

EXPORTS(f32, float)
EXPORTS(bf16, BFloat16)

extern "C" int64_t shared_memory_bytes(int64_t workers) { return region_bytes(workers); }
extern "C" int64_t shared_memory_enter(void* memory, int64_t rank) {
    return static_cast<Arrival*>(memory)[rank].pid = int64_t(getpid());
}
extern "C" int64_t shared_memory_sum(void* memory, int64_t rank, int64_t workers, double timeout,
                                     float* const* tensors, const int64_t* counts, int64_t total) {
    return shared_sum(Region{memory, rank, workers, timeout}, tensors, counts, total);
}
extern "C" int64_t shared_memory_gather(void* memory, int64_t rank, int64_t workers, double timeout,
                                        const float* values, int64_t count, float* gathered) {
    return shared_gather(Region{memory, rank, workers, timeout}, values, count, gathered);
}
