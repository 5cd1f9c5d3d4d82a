/* SPDX-License-Identifier: MIT */
/* Chunk times columns on 256-bit registers, eight rows at a time.
 *
 * VPMADDUBSW adds two products in 16 bits and saturates: safe for codes up to 63
 * (63 * 127 * 2 < 2^15), which is every format but those with zero = 128. Their
 * codes are made signed again and multiplied as |q| * (x with q's sign), which is
 * at most 128 * 127 * 2 < 2^15. */

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  8
#define WIDE   128 /* zero of the formats whose codes use all eight bits */

typedef struct column {
    const int8_t *q;
    const float *scale;
    const int32_t *sum;
} column;

INLINE __m256i four_of(const int8_t *q)
{
    int32_t word;
    memcpy(&word, q, sizeof word);
    return _mm256_set1_epi32(word);
}

INLINE __m256i ints(const int32_t *p)
{
    return _mm256_load_si256((const __m256i *)p);
}

/* p + the products of four codes and four activations a lane. */
INLINE __m256i dot4(__m256i p, __m256i w, __m256i x, bool wide)
{
    if (wide) {
        const __m256i q = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
        w = _mm256_abs_epi8(q);
        x = _mm256_sign_epi8(x, q);
    }
    const __m256i pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(p, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* d * S - dmin * M of one block and column, for rows h .. h + 7. */
INLINE __m256 block_value(const gm_panel *w, uint32_t b, uint32_t h, gm_panelkind kind,
                          const __m256i p[2], const int32_t *sum)
{
    const bool by16 = kind == GM_PANEL_SC16 || kind == GM_PANEL_SC16_MIN;
    const bool scaled = kind >= GM_PANEL_SC32;
    const uint32_t at = scaled ? 0 : b;
    __m256i s = _mm256_add_epi32(p[0], p[1]);
    if (by16) {
        s = _mm256_add_epi32(_mm256_mullo_epi32(p[0], ints(w->sc[b][0] + h)),
                             _mm256_mullo_epi32(p[1], ints(w->sc[b][1] + h)));
    } else if (scaled) {
        s = _mm256_mullo_epi32(s, ints(w->sc[b][0] + h));
    }
    const __m256 ds = _mm256_mul_ps(_mm256_load_ps(w->d[at] + h), _mm256_cvtepi32_ps(s));
    if (kind == GM_PANEL_FLAT || kind == GM_PANEL_SC32 || kind == GM_PANEL_SC16) return ds;

    __m256i m = _mm256_set1_epi32(sum[0] + sum[1]);
    if (by16) {
        m = _mm256_add_epi32(_mm256_mullo_epi32(_mm256_set1_epi32(sum[0]), ints(w->m[b][0] + h)),
                             _mm256_mullo_epi32(_mm256_set1_epi32(sum[1]), ints(w->m[b][1] + h)));
    } else if (scaled) {
        m = _mm256_mullo_epi32(m, ints(w->m[b][0] + h));
    }
    const __m256 dm = _mm256_mul_ps(_mm256_load_ps(w->dmin[at] + h), _mm256_cvtepi32_ps(m));
    return _mm256_sub_ps(ds, dm);
}

/* The whole chunk for n columns and rows h .. h + 7, n and h known to the compiler. */
INLINE void mul_columns(const gm_panelmul *a, uint32_t first, int n, uint32_t h, gm_panelkind kind,
                        bool wide)
{
    column x[3];
    __m256 acc[3];
    for (int c = 0; c < n; c++) {
        const size_t at = (a->col_first + first + (size_t)c) * a->x->k + a->k0;
        x[c] = (column){a->x->q + at, a->x->scale + at / GM_ACT_BLOCK, a->x->sum + at / GM_QGROUP};
        acc[c] = _mm256_loadu_ps(a->acc + (first + (size_t)c) * GM_PANEL_ROWS + h);
    }
    const int32_t zero = wide ? 0 : a->zero;
    for (uint32_t b = 0; b < a->n_blocks; b++) {
        __m256i p[3][2];
        for (int c = 0; c < n; c++) {
            p[c][0] = _mm256_set1_epi32(-zero * x[c].sum[2 * b]);
            p[c][1] = _mm256_set1_epi32(-zero * x[c].sum[2 * b + 1]);
        }
        for (int j = 0; j < 8; j++) {
            const __m256i w = _mm256_load_si256((const __m256i *)a->panel->code[b][j][h]);
            for (int c = 0; c < n; c++)
                p[c][j / 4] = dot4(p[c][j / 4], w, four_of(x[c].q + 32 * b + 4 * j), wide);
        }
        for (int c = 0; c < n; c++) {
            const __m256 v = block_value(a->panel, b, h, kind, p[c], x[c].sum + 2 * b);
            acc[c] = _mm256_add_ps(acc[c], _mm256_mul_ps(_mm256_set1_ps(x[c].scale[b]), v));
        }
    }
    for (int c = 0; c < n; c++)
        _mm256_storeu_ps(a->acc + (first + (size_t)c) * GM_PANEL_ROWS + h, acc[c]);
}

INLINE void mul_wide(const gm_panelmul *a, gm_panelkind kind, bool wide)
{
    for (uint32_t h = 0; h < GM_PANEL_ROWS; h += LANES) {
        uint32_t c = 0;
        for (; c + 3 <= a->n_cols; c += 3)
            mul_columns(a, c, 3, h, kind, wide);
        if (a->n_cols - c == 2) mul_columns(a, c, 2, h, kind, wide);
        if (a->n_cols - c == 1) mul_columns(a, c, 1, h, kind, wide);
    }
}

INLINE void mul(const gm_panelmul *a, gm_panelkind kind)
{
    if (a->zero == WIDE)
        mul_wide(a, kind, true);
    else
        mul_wide(a, kind, false);
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
            p[i] = dot4(p[i], a, b, false);
    }
#pragma GCC unroll 8
    for (int i = 1; i < 8; i++)
        p[0] = _mm256_add_epi32(p[0], p[i]);
    volatile int32_t keep = _mm_cvtsi128_si32(_mm256_castsi256_si128(p[0]));
    (void)keep;
    return (double)n * 8 * 64;
}

void gm_kernels_mul_avx2(gm_kernels *k)
{
    k->spin = spin;
    k->mul[GM_PANEL_FLAT] = mul_flat;
    k->mul[GM_PANEL_FLAT_MIN] = mul_flat_min;
    k->mul[GM_PANEL_SC32] = mul_sc32;
    k->mul[GM_PANEL_SC32_MIN] = mul_sc32_min;
    k->mul[GM_PANEL_SC16] = mul_sc16;
    k->mul[GM_PANEL_SC16_MIN] = mul_sc16_min;
}
