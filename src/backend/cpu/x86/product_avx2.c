/* SPDX-License-Identifier: MIT */
/* 256-bit registers, eight rows at a time.
 *
 * VPMADDUBSW adds two products in 16 bits and saturates: safe for codes up to 63
 * (63 * 127 * 2 < 2^15), which is every format but those with zero = 128. Their
 * codes are made signed again and multiplied as |q| * (x with q's sign), which is
 * at most 128 * 127 * 2 < 2^15. */

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels.h"

typedef __m256i V;
typedef __m256 F;
#define LANES                      8
#define COLUMNS                    3
#define FOR_COLUMNS(X, name, type) X(name, type, 1) X(name, type, 2) X(name, type, 3)
#define V_WIDE_IS_SIGNED           true
#define NAME(x)                    x##_avx2

static inline V v_and(V a, V b)
{
    return _mm256_and_si256(a, b);
}

static inline V v_or(V a, V b)
{
    return _mm256_or_si256(a, b);
}

static inline V v_xor(V a, V b)
{
    return _mm256_xor_si256(a, b);
}

static inline V v_srl(V a, int n)
{
    return _mm256_srli_epi32(a, n);
}

static inline V v_sll(V a, int n)
{
    return _mm256_slli_epi32(a, n);
}

static inline V v_sra(V a, int n)
{
    return _mm256_srai_epi32(a, n);
}

static inline V v_sub32(V a, V b)
{
    return _mm256_sub_epi32(a, b);
}

static inline V v_mul32(V a, V b)
{
    return _mm256_mullo_epi32(a, b);
}

static inline V v_set8(uint8_t x)
{
    return _mm256_set1_epi8((char)x);
}

static inline V v_set32(int32_t x)
{
    return _mm256_set1_epi32(x);
}

static inline V v_set_table(const uint8_t *table)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
}

static inline V v_shuffle8(V table, V index)
{
    return _mm256_shuffle_epi8(table, index);
}

static inline V v_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline void v_store(void *p, V v)
{
    _mm256_store_si256((__m256i *)p, v);
}

static inline void v_half(float *p, V v)
{
    const V low = _mm256_and_si256(v, _mm256_set1_epi32(0xFFFF));
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm256_store_ps(p, _mm256_cvtph_ps(halves));
}

static inline void v_halves(float *p, const uint8_t *halves)
{
    _mm256_store_ps(p, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)halves)));
}

static inline V v_add32(V a, V b)
{
    return _mm256_add_epi32(a, b);
}

static inline V v_dot4(V p, V w, V x, bool wide)
{
    if (wide) {
        const V q = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
        w = _mm256_abs_epi8(q);
        x = _mm256_sign_epi8(x, q);
    }
    const V pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(p, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline F f_load(const float *p)
{
    return _mm256_load_ps(p);
}

static inline F f_loadu(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void f_storeu(float *p, F v)
{
    _mm256_storeu_ps(p, v);
}

static inline F f_set(float x)
{
    return _mm256_set1_ps(x);
}

static inline F f_add(F a, F b)
{
    return _mm256_add_ps(a, b);
}

static inline F f_sub(F a, F b)
{
    return _mm256_sub_ps(a, b);
}

static inline F f_mul(F a, F b)
{
    return _mm256_mul_ps(a, b);
}

static inline F f_of(V v)
{
    return _mm256_cvtepi32_ps(v);
}

/* Eight sums of products in registers, with nothing to load or store. */
static double spin(uint64_t n)
{
    __m256i p[8];
    const __m256i a = _mm256_set1_epi32(0x01020304), b = _mm256_set1_epi32(0x04030201);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        p[i] = _mm256_setzero_si256();
        __asm__("" : "+x"(p[i])); /* eight different sums, as far as the compiler knows */
    }
    for (uint64_t r = 0; r < n; r++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            p[i] = v_dot4(p[i], a, b, false);
    }
#pragma GCC unroll 8
    for (int i = 1; i < 8; i++)
        p[0] = _mm256_add_epi32(p[0], p[i]);
    volatile int32_t keep = _mm_cvtsi128_si32(_mm256_castsi256_si128(p[0]));
    (void)keep;
    return (double)n * 8 * 64;
}

#include "backend/cpu/x86/product_tmpl.h"
