// Small matrix products in float, for the attention of one head: everything lies in the caches of one core.
#pragma once

#include "vectors.h"

namespace electra {

// C[R × 16·N] (+)= A[R × depth] · B[depth × 16·N]. A is read one number at a time with any strides, B and C row by row.
template <int R, int N>
static inline void product_tile(const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row, float* c,
                                int64_t c_row, int64_t depth, bool adds) {
    Floats sums[R][N];
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) sums[i][j] = adds ? load(c + i * c_row + j * kWidth) : Floats{};
    for (int64_t k = 0; k < depth; k++) {
        Floats row[N];
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) row[j] = load(b + k * b_row + j * kWidth);
#pragma GCC unroll 8
        for (int i = 0; i < R; i++) {
            const float factor = a[i * a_row + k * a_col];
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) sums[i][j] += factor * row[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) store(c + i * c_row + j * kWidth, sums[i][j]);
}

template <int N>
static void product_panel(const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row, float* c,
                          int64_t c_row, int64_t rows, int64_t depth, bool adds) {
    int64_t i = 0;
    for (; i + 6 <= rows; i += 6)
        product_tile<6, N>(a + i * a_row, a_row, a_col, b, b_row, c + i * c_row, c_row, depth, adds);
    for (; i + 2 <= rows; i += 2)
        product_tile<2, N>(a + i * a_row, a_row, a_col, b, b_row, c + i * c_row, c_row, depth, adds);
    for (; i < rows; i++)
        product_tile<1, N>(a + i * a_row, a_row, a_col, b, b_row, c + i * c_row, c_row, depth, adds);
}

// C[rows × columns] (+)= A · B; `columns` is a multiple of 16.
static inline void product(const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t b_row, float* c,
                           int64_t c_row, int64_t rows, int64_t columns, int64_t depth, bool adds = false) {
    int64_t j = 0;
    for (; j + 64 <= columns; j += 64) product_panel<4>(a, a_row, a_col, b + j, b_row, c + j, c_row, rows, depth, adds);
    for (; j + 32 <= columns; j += 32) product_panel<2>(a, a_row, a_col, b + j, b_row, c + j, c_row, rows, depth, adds);
    for (; j < columns; j += 16) product_panel<1>(a, a_row, a_col, b + j, b_row, c + j, c_row, rows, depth, adds);
}

}  // namespace electra
