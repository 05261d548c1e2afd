// Sixteen floats at a time: loads, stores, exp, and the normal distribution. Nothing here allocates.
#pragma once

#include <cstdint>
#include <cstring>

namespace electra {

constexpr int kWidth = 16;

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef uint8_t Bytes __attribute__((vector_size(16)));

template <class To, class From>
static inline To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits() changes the type, never the size");
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

static inline Floats all(float x) { return Floats{} + x; }

// bfloat16 is the upper half of a float; it is only ever stored, all arithmetic is float.
struct BFloat16 {
    uint16_t value;
};

static inline Floats load(const float* from) {
    Floats v;
    std::memcpy(&v, from, sizeof(v));
    return v;
}

static inline Floats load(const BFloat16* from) {
    Halves half;
    std::memcpy(&half, from, sizeof(half));
    return bits<Floats>(__builtin_convertvector(half, Words) << 16);
}

// Sixteen bfloat16 as the lower halves of words.
static inline Words halves(const BFloat16* from) {
    Halves half;
    std::memcpy(&half, from, sizeof(half));
    return __builtin_convertvector(half, Words);
}

// Lanes of a (counted from 0) and b (from 16), by number.
static inline Words shuffle(Words a, Words b, Words lanes) {
#if defined(__clang__)
    Words chosen;
    for (int i = 0; i < kWidth; i++) chosen[i] = lanes[i] < 16 ? a[lanes[i]] : b[lanes[i] - 16];
    return chosen;
#else
    return __builtin_shuffle(a, b, lanes);
#endif
}

static inline void store(float* to, Floats v) { std::memcpy(to, &v, sizeof(v)); }

static inline void store(BFloat16* to, Floats v) {
    Words word = bits<Words>(v);
    word += 0x7fff + ((word >> 16) & 1);  // to the nearest, ties to even
    Halves half = __builtin_convertvector(word >> 16, Halves);
    std::memcpy(to, &half, sizeof(half));
}

static inline Floats select(Ints where, Floats yes, Floats no) {
    return bits<Floats>((bits<Ints>(yes) & where) | (bits<Ints>(no) & ~where));
}

static inline Floats larger(Floats a, Floats b) { return select(a > b, a, b); }

static inline float sum(Floats v) {
    float total = 0;
    for (int i = 0; i < kWidth; i++) total += v[i];
    return total;
}

static inline float largest(Floats v) {
    float best = v[0];
    for (int i = 1; i < kWidth; i++) best = v[i] > best ? v[i] : best;
    return best;
}

// e^x to 2 units in the last place: 2^n times a polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2], fitted at Chebyshev
// nodes (relative error 2.5e-9 before rounding). 0 below -87, where float has no normal numbers left.
static inline Floats exp(Floats x) {
    const float shift = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
    Ints tiny = x < all(-87.0f);
    x = select(x > all(88.0f), all(88.0f), x);
    Floats shifted = x * 1.44269504f + shift;
    Floats n = shifted - shift;
    Floats r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    Floats p = all(1.394111879e-03f);
    p = p * r + 8.375134775e-03f;
    p = p * r + 4.166635277e-02f;
    p = p * r + 1.666641541e-01f;
    p = p * r + 5.000000047e-01f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    Ints exponent = bits<Ints>(shifted) - bits<Ints>(all(shift));
    Floats result = p * bits<Floats>((exponent + 127) << 23);
    return select(tiny, all(0.0f), result);
}

// The normal distribution at x: its density and the probability below x. The tail is the density times Mills' ratio,
// a polynomial of degree 8 in 1 / (1 + 0.3 |x|) fitted to a relative error of 1.5e-7; one exp serves both.
static inline void normal(Floats x, Floats* density, Floats* below) {
    Floats size = bits<Floats>(bits<Words>(x) & 0x7fffffffu);
    Floats t = 1.0f / (size * 0.3f + 1.0f);
    Floats ratio = all(8.942339576e-02f);
    ratio = ratio * t - 3.940496854e-01f;
    ratio = ratio * t + 5.172515235e-01f;
    ratio = ratio * t - 1.345649325e-01f;
    ratio = ratio * t + 3.222562047e-01f;
    ratio = ratio * t + 2.504459852e-01f;
    ratio = ratio * t + 3.026852803e-01f;
    ratio = ratio * t + 2.998661829e-01f;
    Floats phi = exp(x * x * -0.5f) * 0.3989422804f;
    Floats tail = phi * ratio * t;
    *density = phi;
    *below = select(x < all(0.0f), tail, 1.0f - tail);
}

// Counter-based random bytes: SplitMix64 in the column, as electra_core/randomness.py has it.
static inline uint64_t mix(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

// Bytes [start, start + count) of the sequence that starts at `key`. `to` has room for count + 16.
static inline void random_bytes(uint64_t key, int64_t start, int64_t count, uint8_t* to) {
    const uint64_t golden = 0x9E3779B97F4A7C15ull;
    const int64_t first = start / 8, skip = start % 8, words = (skip + count + 7) / 8;
    for (int64_t i = 0; i < words; i++) {
        uint64_t word = mix(key + static_cast<uint64_t>(first + i) * golden);
        std::memcpy(to + 8 * i, &word, 8);
    }
    if (skip) std::memmove(to, to + skip, count);
}

// `scale` where the byte is below `kept`, else 0.
static inline Floats keep(const uint8_t* bytes, int kept, float scale) {
    Bytes byte;
    std::memcpy(&byte, bytes, sizeof(byte));
    Ints wide = __builtin_convertvector(byte, Ints);
    return bits<Floats>(bits<Ints>(all(scale)) & (wide < (Ints{} + kept)));
}

}  // namespace electra
