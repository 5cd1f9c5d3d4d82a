/* SPDX-License-Identifier: MIT */
#include <immintrin.h>

#include "backend/cpu/kernels.h"
#include "base/fp16.h"

typedef __m256i V;
#define LANES   8
#define NAME(x) x##_avx2

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
    return _mm256_load_si256((const __m256i *)p);
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

static inline __m128i load_row(const uint8_t *row, size_t off)
{
    return _mm_loadu_si128((const __m128i *)(row + off));
}

/* As on the 512-bit rung, with two halves in place of four quarters. */
static inline void v_load16(const uint8_t *const *row, size_t off, V t[4])
{
    V y[4];
    for (int i = 0; i < 4; i++)
        y[i] = _mm256_set_m128i(load_row(row[4 + i], off), load_row(row[i], off));
    const V a = _mm256_unpacklo_epi32(y[0], y[1]), b = _mm256_unpackhi_epi32(y[0], y[1]);
    const V c = _mm256_unpacklo_epi32(y[2], y[3]), d = _mm256_unpackhi_epi32(y[2], y[3]);
    t[0] = _mm256_unpacklo_epi64(a, c);
    t[1] = _mm256_unpackhi_epi64(a, c);
    t[2] = _mm256_unpacklo_epi64(b, d);
    t[3] = _mm256_unpackhi_epi64(b, d);
}

static inline bool v_halves8(const uint8_t *const *row, size_t off, uint32_t size,
                             float (*out)[GM_PANEL_ROWS])
{
    (void)row, (void)off, (void)size, (void)out;
    return false;
}

#include "backend/cpu/x86/unpack_tmpl.h"

void gm_kernels_unpack_avx2(gm_kernels *k)
{
    k->unpack[GM_QTYPE_Q4_0] = q4_0_avx2;
    k->unpack[GM_QTYPE_Q4_1] = q4_1_avx2;
    k->unpack[GM_QTYPE_Q5_0] = q5_0_avx2;
    k->unpack[GM_QTYPE_Q5_1] = q5_1_avx2;
    k->unpack[GM_QTYPE_Q8_0] = q8_0_avx2;
    k->unpack[GM_QTYPE_Q2_K] = q2_k_avx2;
    k->unpack[GM_QTYPE_Q3_K] = q3_k_avx2;
    k->unpack[GM_QTYPE_Q4_K] = q4_k_avx2;
    k->unpack[GM_QTYPE_Q5_K] = q5_k_avx2;
    k->unpack[GM_QTYPE_Q6_K] = q6_k_avx2;
    k->unpack[GM_QTYPE_IQ4_NL] = iq4_nl_avx2;
    k->unpack[GM_QTYPE_IQ4_XS] = iq4_xs_avx2;
}
