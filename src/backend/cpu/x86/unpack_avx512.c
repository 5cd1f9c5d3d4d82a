/* SPDX-License-Identifier: MIT */
#include <immintrin.h>

#include "backend/cpu/kernels.h"
#include "base/fp16.h"

typedef __m512i V;
#define LANES   16
#define NAME(x) x##_avx512

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
    return _mm512_load_si512(p);
}

static inline void v_store(void *p, V v)
{
    _mm512_store_si512(p, v);
}

static inline void v_half(float *p, V v)
{
    _mm512_store_ps(p, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)));
}

static inline __m128i load_row(const uint8_t *row, size_t off)
{
    return _mm_loadu_si128((const __m128i *)(row + off));
}

/* Rows i, 4 + i, 8 + i and 12 + i lie in the four quarters of register i; a 4 x 4 transposition of
 * words within quarters then leaves row 4 q + r in word r of quarter q. */
static inline void v_load16(const uint8_t *const *row, size_t off, V t[4])
{
    V z[4];
    for (int i = 0; i < 4; i++) {
        z[i] = _mm512_castsi128_si512(load_row(row[i], off));
        z[i] = _mm512_inserti32x4(z[i], load_row(row[4 + i], off), 1);
        z[i] = _mm512_inserti32x4(z[i], load_row(row[8 + i], off), 2);
        z[i] = _mm512_inserti32x4(z[i], load_row(row[12 + i], off), 3);
    }
    const V a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
    const V c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    t[0] = _mm512_unpacklo_epi64(a, c);
    t[1] = _mm512_unpackhi_epi64(a, c);
    t[2] = _mm512_unpacklo_epi64(b, d);
    t[3] = _mm512_unpackhi_epi64(b, d);
}

/* The first f16 of four blocks of `size` bytes, side by side. Blocks of 18 and 20 bytes have theirs
 * in the first 64 bytes; those of 34 need 128. No byte behind the fourth block is read. */
static inline __m128i first_halves(const uint8_t *p, uint32_t size)
{
    const int s = (int)size / 2;
    const V at = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                  0, 0, 0, 0, 0, 0, (short)(3 * s), (short)(2 * s), (short)s, 0);
    const V a = _mm512_loadu_si512(p);
    if (size < 22) return _mm512_castsi512_si128(_mm512_permutexvar_epi16(at, a));
    return _mm512_castsi512_si128(_mm512_permutex2var_epi16(a, at, _mm512_loadu_si512(p + 64)));
}

/* Scales of a row's eight blocks are gathered by a shuffle, and the sixteen rows transposed by
 * v_load16 like everything else: a third of the work of sixteen times eight scalar loads. */
static inline bool v_halves8(const uint8_t *const *row, size_t off, uint32_t size,
                             float (*out)[GM_PANEL_ROWS])
{
    if (size != 18 && size != 20 && size != 34) return false;
    __m128i halves[GM_PANEL_ROWS];
    const uint8_t *at[GM_PANEL_ROWS];
    for (int r = 0; r < GM_PANEL_ROWS; r++) {
        const uint8_t *const p = row[r] + off;
        halves[r] = _mm_unpacklo_epi64(first_halves(p, size), first_halves(p + 4 * size, size));
        at[r] = (const uint8_t *)&halves[r];
    }
    V t[4];
    v_load16(at, 0, t);
    for (int j = 0; j < 4; j++) {
        v_half(out[2 * j], t[j]);
        v_half(out[2 * j + 1], v_srl(t[j], 16));
    }
    return true;
}

#include "backend/cpu/x86/unpack_tmpl.h"

void gm_kernels_unpack_avx512(gm_kernels *k)
{
    k->unpack[GM_QTYPE_Q4_0] = q4_0_avx512;
    k->unpack[GM_QTYPE_Q4_1] = q4_1_avx512;
    k->unpack[GM_QTYPE_Q5_0] = q5_0_avx512;
    k->unpack[GM_QTYPE_Q5_1] = q5_1_avx512;
    k->unpack[GM_QTYPE_Q8_0] = q8_0_avx512;
    k->unpack[GM_QTYPE_Q2_K] = q2_k_avx512;
    k->unpack[GM_QTYPE_Q3_K] = q3_k_avx512;
    k->unpack[GM_QTYPE_Q4_K] = q4_k_avx512;
    k->unpack[GM_QTYPE_Q5_K] = q5_k_avx512;
    k->unpack[GM_QTYPE_Q6_K] = q6_k_avx512;
    k->unpack[GM_QTYPE_IQ4_NL] = iq4_nl_avx512;
    k->unpack[GM_QTYPE_IQ4_XS] = iq4_xs_avx512;
}
