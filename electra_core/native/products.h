// Small matrix products, for the attention of one head: everything lies in the caches of one core.
//
// An operand is made of elements along its depth, the dimension that is summed over. An element is one float, or where
// the processor multiplies them two at a time, a pair of bfloat16 whose products are summed in float.
#pragma once

#include <type_traits>

#include "vectors.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace electra {

// A tile of sums has to stay in registers: its vectors are as wide as the machine's, and there are as many of them as
// leave room for what is multiplied. Sums that are written to memory and read again at each step take three times as long.
#if defined(__AVX512F__)  // 32 registers of 16 floats
constexpr int kTileRows = 6, kTileVectors = 4, kTileLanes = 16;
#elif defined(__AVX__)  // 16 registers of 8
constexpr int kTileRows = 6, kTileVectors = 2, kTileLanes = 8;
#elif defined(__aarch64__)  // 32 registers of 4
constexpr int kTileRows = 6, kTileVectors = 4, kTileLanes = 4;
#else  // 16 registers of 4
constexpr int kTileRows = 2, kTileVectors = 4, kTileLanes = 4;
#endif
typedef float TileFloats __attribute__((vector_size(4 * kTileLanes)));

static inline TileFloats load_tile(const float* from) {
    TileFloats v;
    std::memcpy(&v, from, sizeof(v));
    return v;
}

static inline void store_tile(float* to, TileFloats v) { std::memcpy(to, &v, sizeof(v)); }

struct Singles {
    using Stored = float;
    using Element = float;
    static constexpr int64_t depth = 1;  // numbers in an element

    static inline TileFloats multiply_add(TileFloats total, Element a, const Element* b) {
        return total + a * load_tile(b);
    }
};

#if defined(__AVX512BF16__)
constexpr bool kHasPairs = true;

struct Pairs {
    using Stored = BFloat16;
    using Element = uint32_t;  // the first number in the lower half
    static constexpr int64_t depth = 2;

    static inline TileFloats multiply_add(TileFloats total, Element a, const Element* b) {
        const __m512bh left = bits<__m512bh>(_mm512_set1_epi32(static_cast<int>(a)));
        const __m512bh right = bits<__m512bh>(_mm512_loadu_si512(b));
        return bits<TileFloats>(_mm512_dpbf16_ps(bits<__m512>(total), left, right));
    }
};
#else
constexpr bool kHasPairs = false;

struct Pairs : Singles {};
#endif

// What products over tensors stored as T are made of.
template <class T>
using Operand = std::conditional_t<std::is_same<T, BFloat16>::value && kHasPairs, Pairs, Singles>;

// C[R × kTileLanes·N] (+)= A[R × depth] · B[depth × kTileLanes·N], depth in elements. A is read one element at a time
// with any strides, B and C row by row.
template <class O, int R, int N>
static inline void product_tile(const typename O::Element* a, int64_t a_row, int64_t a_col,
                                const typename O::Element* b, int64_t b_row, float* c, int64_t c_row, int64_t depth,
                                bool adds) {
    TileFloats sums[R][N];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) sums[i][j] = adds ? load_tile(c + i * c_row + j * kTileLanes) : TileFloats{};
    for (int64_t k = 0; k < depth; k++) {
#pragma GCC unroll 8
        for (int i = 0; i < R; i++) {
            const typename O::Element factor = a[i * a_row + k * a_col];
#pragma GCC unroll 4
            for (int j = 0; j < N; j++)
                sums[i][j] = O::multiply_add(sums[i][j], factor, b + k * b_row + j * kTileLanes);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) store_tile(c + i * c_row + j * kTileLanes, sums[i][j]);
}

template <class O, int N>
static void product_panel(const typename O::Element* a, int64_t a_row, int64_t a_col, const typename O::Element* b,
                          int64_t b_row, float* c, int64_t c_row, int64_t rows, int64_t depth, bool adds) {
    int64_t i = 0;
    for (; i + kTileRows <= rows; i += kTileRows)
        product_tile<O, kTileRows, N>(a + i * a_row, a_row, a_col, b, b_row, c + i * c_row, c_row, depth, adds);
    for (; i + 2 <= rows; i += 2)
        product_tile<O, 2, N>(a + i * a_row, a_row, a_col, b, b_row, c + i * c_row, c_row, depth, adds);
    for (; i < rows; i++)
        product_tile<O, 1, N>(a + i * a_row, a_row, a_col, b, b_row, c + i * c_row, c_row, depth, adds);
}

// C[rows × columns] (+)= A · B; `columns` is a multiple of 16.
template <class O>
static inline void product(const typename O::Element* a, int64_t a_row, int64_t a_col, const typename O::Element* b,
                           int64_t b_row, float* c, int64_t c_row, int64_t rows, int64_t columns, int64_t depth,
                           bool adds = false) {
    constexpr int64_t widest = kTileVectors * kTileLanes;
    static_assert(widest == 16 || widest == 64, "what is left over is taken by 32 and by 16");
    int64_t j = 0;
    for (; j + widest <= columns; j += widest)
        product_panel<O, kTileVectors>(a, a_row, a_col, b + j, b_row, c + j, c_row, rows, depth, adds);
    if constexpr (widest == 64) {
        for (; j + 32 <= columns; j += 32)
            product_panel<O, 32 / kTileLanes>(a, a_row, a_col, b + j, b_row, c + j, c_row, rows, depth, adds);
        for (; j < columns; j += 16)
            product_panel<O, 16 / kTileLanes>(a, a_row, a_col, b + j, b_row, c + j, c_row, rows, depth, adds);
    }
}

// Rows of numbers as rows of elements: their depth is along the row.
template <class O>
static inline const typename O::Element* along_rows(const typename O::Stored* x) {
    return reinterpret_cast<const typename O::Element*>(x);
}

// Numbers [rows × width] as elements [rows / depth × width]: their depth is across the rows. Pairs are made in `scratch`,
// an odd last row paired with zeros.
template <class O>
static inline const typename O::Element* across_rows(const typename O::Stored* x, int64_t rows, int64_t width,
                                                     float* scratch) {
    if constexpr (O::depth == 1) {
        return x;
    } else {
        uint32_t* to = reinterpret_cast<uint32_t*>(scratch);
        for (int64_t i = 0; i < rows; i += 2)
            for (int64_t j = 0; j < width; j += kWidth) {
                Words pair = halves(x + i * width + j);
                if (i + 1 < rows) pair |= halves(x + (i + 1) * width + j) << 16;
                std::memcpy(to + i / 2 * width + j, &pair, sizeof(pair));
            }
        return to;
    }
}

// Sixteen rows of sixteen words to sixteen columns: blocks of 8, 4, 2 and 1 change places across the diagonal.
static inline void transpose_block(Words (&rows)[16]) {
    const Words lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma GCC unroll 4
    for (uint32_t step = 8; step; step /= 2) {
        // Lanes of the first vector count from 0, of the second from 16.
        const Words is_far = bits<Words>((lane & step) != 0);
        const Words upper = (lane & ~is_far) | ((lane - step + 16) & is_far);
        const Words lower = ((lane + step) & ~is_far) | ((lane + 16) & is_far);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < 16; i++) {
            if (i & step) continue;
            const Words a = rows[i], b = rows[i + step];
            rows[i] = shuffle(a, b, upper);
            rows[i + step] = shuffle(a, b, lower);
        }
    }
}

// The elements of [rows × width] numbers, depth along the row, to [width / depth × padded]: zeros past the last row.
template <class O>
static inline const typename O::Element* transposed(const typename O::Stored* x, int64_t rows, int64_t width,
                                                    int64_t padded, float* to) {
    const int64_t columns = width / O::depth;
    const uint32_t* from = reinterpret_cast<const uint32_t*>(x);
    uint32_t* words = reinterpret_cast<uint32_t*>(to);
    for (int64_t i = 0; i < padded; i += 16)
        for (int64_t j = 0; j < columns; j += 16) {
            const int64_t there = columns - j < 16 ? columns - j : 16;
            Words block[16];
            for (int64_t k = 0; k < 16; k++) {
                block[k] = Words{};
                if (i + k < rows) std::memcpy(&block[k], from + (i + k) * columns + j, there * sizeof(uint32_t));
            }
            transpose_block(block);
            for (int64_t k = 0; k < there; k++) std::memcpy(words + (j + k) * padded + i, &block[k], sizeof(Words));
        }
    return reinterpret_cast<const typename O::Element*>(words);
}

}  // namespace electra
