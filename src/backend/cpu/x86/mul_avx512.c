/* SPDX-License-Identifier: MIT */
/* Chunk times columns on 512-bit registers with VNNI: a register of codes is used
 * for four columns at once, so that its load is shared and four chains of sums keep
 * the multiplier busy (VPDPBUSD answers after four cycles and starts every cycle on
 * Zen 4). The float part repeats quant/dot.c one operation at a time. */

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct column {
    const int8_t *q;
    const float *scale;
    const int32_t *sum;
} column;

INLINE __m512i four_of(const int8_t *q)
{
    int32_t word;
    memcpy(&word, q, sizeof word);
    return _mm512_set1_epi32(word);
}

INLINE __m512i ints(const int32_t *p)
{
    return _mm512_load_si512(p);
}

/* d * S - dmin * M of one block and column. p[half] are the sums of codes times activations, less
 * zero times the activations. */
INLINE __m512 block_value(const gm_panel *w, uint32_t b, gm_panelkind kind, const __m512i p[2],
                          const int32_t *sum)
{
    const bool by16 = kind == GM_PANEL_SC16 || kind == GM_PANEL_SC16_MIN;
    const bool scaled = kind >= GM_PANEL_SC32;
    const uint32_t at = scaled ? 0 : b;
    __m512i s = _mm512_add_epi32(p[0], p[1]);
    if (by16) {
        s = _mm512_add_epi32(_mm512_mullo_epi32(p[0], ints(w->sc[b][0])),
                             _mm512_mullo_epi32(p[1], ints(w->sc[b][1])));
    } else if (scaled) {
        s = _mm512_mullo_epi32(s, ints(w->sc[b][0]));
    }
    const __m512 ds = _mm512_mul_ps(_mm512_load_ps(w->d[at]), _mm512_cvtepi32_ps(s));
    if (kind == GM_PANEL_FLAT || kind == GM_PANEL_SC32 || kind == GM_PANEL_SC16) return ds;

    __m512i m = _mm512_set1_epi32(sum[0] + sum[1]);
    if (by16) {
        m = _mm512_add_epi32(_mm512_mullo_epi32(_mm512_set1_epi32(sum[0]), ints(w->m[b][0])),
                             _mm512_mullo_epi32(_mm512_set1_epi32(sum[1]), ints(w->m[b][1])));
    } else if (scaled) {
        m = _mm512_mullo_epi32(m, ints(w->m[b][0]));
    }
    return _mm512_sub_ps(ds, _mm512_mul_ps(_mm512_load_ps(w->dmin[at]), _mm512_cvtepi32_ps(m)));
}

/* The whole chunk for n columns, n known to the compiler. */
INLINE void mul_columns(const gm_panelmul *a, uint32_t first, int n, gm_panelkind kind)
{
    column x[4];
    __m512 acc[4];
    for (int c = 0; c < n; c++) {
        const size_t at = (a->col_first + first + (size_t)c) * a->x->k + a->k0;
        x[c] = (column){a->x->q + at, a->x->scale + at / GM_ACT_BLOCK, a->x->sum + at / GM_QGROUP};
        acc[c] = _mm512_loadu_ps(a->acc + (first + (size_t)c) * GM_PANEL_ROWS);
    }
    for (uint32_t b = 0; b < a->n_blocks; b++) {
        __m512i p[4][2];
        for (int c = 0; c < n; c++) {
            p[c][0] = _mm512_set1_epi32(-a->zero * x[c].sum[2 * b]);
            p[c][1] = _mm512_set1_epi32(-a->zero * x[c].sum[2 * b + 1]);
        }
        for (int j = 0; j < 8; j++) {
            const __m512i w = _mm512_load_si512(a->panel->code[b][j]);
            for (int c = 0; c < n; c++)
                p[c][j / 4] = _mm512_dpbusd_epi32(p[c][j / 4], w, four_of(x[c].q + 32 * b + 4 * j));
        }
        for (int c = 0; c < n; c++) {
            const __m512 v = block_value(a->panel, b, kind, p[c], x[c].sum + 2 * b);
            acc[c] = _mm512_add_ps(acc[c], _mm512_mul_ps(_mm512_set1_ps(x[c].scale[b]), v));
        }
    }
    for (int c = 0; c < n; c++)
        _mm512_storeu_ps(a->acc + (first + (size_t)c) * GM_PANEL_ROWS, acc[c]);
}

INLINE void mul(const gm_panelmul *a, gm_panelkind kind)
{
    uint32_t c = 0;
    for (; c + 4 <= a->n_cols; c += 4)
        mul_columns(a, c, 4, kind);
    if (a->n_cols - c == 3) mul_columns(a, c, 3, kind);
    if (a->n_cols - c == 2) mul_columns(a, c, 2, kind);
    if (a->n_cols - c == 1) mul_columns(a, c, 1, kind);
}

static void mul_flat(const gm_panelmul *a)
{
    mul(a, GM_PANEL_FLAT);
}

static void mul_flat_min(const gm_panelmul *a)
{
    mul(a, GM_PANEL_FLAT_MIN);
}

static void mul_sc32(const gm_panelmul *a)
{
    mul(a, GM_PANEL_SC32);
}

static void mul_sc32_min(const gm_panelmul *a)
{
    mul(a, GM_PANEL_SC32_MIN);
}

static void mul_sc16(const gm_panelmul *a)
{
    mul(a, GM_PANEL_SC16);
}

static void mul_sc16_min(const gm_panelmul *a)
{
    mul(a, GM_PANEL_SC16_MIN);
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

void gm_kernels_mul_avx512(gm_kernels *k)
{
    k->spin = spin;
    k->mul[GM_PANEL_FLAT] = mul_flat;
    k->mul[GM_PANEL_FLAT_MIN] = mul_flat_min;
    k->mul[GM_PANEL_SC32] = mul_sc32;
    k->mul[GM_PANEL_SC32_MIN] = mul_sc32_min;
    k->mul[GM_PANEL_SC16] = mul_sc16;
    k->mul[GM_PANEL_SC16_MIN] = mul_sc16_min;
}
