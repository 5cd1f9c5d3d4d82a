/* SPDX-License-Identifier: MIT */
/* 512-bit registers with VNNI: a register of codes is used for eight columns at once, whose
 * sums keep the multiplier busy (VPDPBUSD answers after four cycles and starts every cycle
 * on Zen 4). A block of a column takes eight of them and two multiplications of floats on
 * the same ports, so four fifths of the multiplier's roof is the most there can be. */

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels.h"

typedef __m512i V;
typedef __m512 F;
#define LANES   16
#define COLUMNS 8
/* clang-format off */
#define FOR_COLUMNS(X, name, type)                                      \
    X(name, type, 1) X(name, type, 2) X(name, type, 3) X(name, type, 4) \
    X(name, type, 5) X(name, type, 6) X(name, type, 7) X(name, type, 8)
/* clang-format on */
#define V_WIDE_IS_SIGNED false
#define NAME(x)          x##_avx512

static inline V v_and(V a, V b)
{
    return _mm512_and_si512(a, b);
}

static inline V v_or(V a, V b)
{
    return _mm512_or_si512(a, b);
}

static inline V v_xor(V a, V b)
{
    return _mm512_xor_si512(a, b);
}

static inline V v_srl(V a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}

static inline V v_sll(V a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}

static inline V v_sra(V a, int n)
{
    return _mm512_srai_epi32(a, (unsigned)n);
}

static inline V v_sub32(V a, V b)
{
    return _mm512_sub_epi32(a, b);
}

static inline V v_mul32(V a, V b)
{
    return _mm512_mullo_epi32(a, b);
}

static inline V v_set8(uint8_t x)
{
    return _mm512_set1_epi8((char)x);
}

static inline V v_set32(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static inline V v_set_table(const uint8_t *table)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
}

static inline V v_shuffle8(V table, V index)
{
    return _mm512_shuffle_epi8(table, index);
}

static inline V v_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void v_store(void *p, V v)
{
    _mm512_store_si512(p, v);
}

static inline void v_half(float *p, V v)
{
    _mm512_store_ps(p, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)));
}

static inline void v_halves(float *p, const uint8_t *halves)
{
    _mm512_store_ps(p, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)halves)));
}

static inline V v_add32(V a, V b)
{
    return _mm512_add_epi32(a, b);
}

static inline V v_dot4(V p, V w, V x, bool wide)
{
    (void)wide;
    return _mm512_dpbusd_epi32(p, w, x);
}

static inline F f_load(const float *p)
{
    return _mm512_load_ps(p);
}

static inline F f_loadu(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void f_storeu(float *p, F v)
{
    _mm512_storeu_ps(p, v);
}

static inline F f_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline F f_add(F a, F b)
{
    return _mm512_add_ps(a, b);
}

static inline F f_sub(F a, F b)
{
    return _mm512_sub_ps(a, b);
}

static inline F f_mul(F a, F b)
{
    return _mm512_mul_ps(a, b);
}

static inline F f_of(V v)
{
    return _mm512_cvtepi32_ps(v);
}

/* Twelve sums of products in registers, with nothing to load or store. */
static double spin(uint64_t n)
{
    __m512i p[12];
    const __m512i a = _mm512_set1_epi32(0x01020304), b = _mm512_set1_epi32(0x04030201);
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) {
        p[i] = _mm512_setzero_si512();
        __asm__("" : "+v"(p[i])); /* twelve different sums, as far as the compiler knows */
    }
    for (uint64_t r = 0; r < n; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            p[i] = _mm512_dpbusd_epi32(p[i], a, b);
    }
#pragma GCC unroll 12
    for (int i = 1; i < 12; i++)
        p[0] = _mm512_add_epi32(p[0], p[i]);
    volatile int32_t keep = _mm_cvtsi128_si32(_mm512_castsi512_si128(p[0]));
    (void)keep;
    return (double)n * 12 * 128;
}

#include "backend/cpu/x86/product_tmpl.h"
