/* SPDX-License-Identifier: MIT */
#include "quant/quantise.h"

#include <float.h>
#include <string.h>

#include "base/fp16.h"
#include "quant/fit.h"

/* Steps were chosen by their error on bell-shaped values. The finer the codes, the nearer to the
 * plain scale is the best one. */
static const gm_form forms[] = {
    /*  type          group  codes     scales    minima  curved first last  steps turns */
    {GM_QTYPE_Q4_0, 32, -8, 7, 1, 1, 0, 0, false, 0.86f, 1.10f, 4, 1},
    {GM_QTYPE_Q5_0, 32, -16, 15, 1, 1, 0, 0, false, 0.85f, 1.05f, 8, 2},
    {GM_QTYPE_Q8_0, 32, -127, 127, 1, 1, 0, 0, false, 0.95f, 1.01f, 8, 1},
    {GM_QTYPE_Q4_1, 32, 0, 15, 1, 1, 1, 1, false, -0.04f, 0.06f, 4, 4},
    {GM_QTYPE_Q5_1, 32, 0, 31, 1, 1, 1, 1, false, -0.03f, 0.03f, 4, 4},
    {GM_QTYPE_IQ4_NL, 32, -127, 113, 1, 1, 0, 0, true, 0.82f, 1.12f, 8, 2},
    {GM_QTYPE_Q2_K, 16, 0, 3, 0, 15, 0, 15, false, -0.20f, 0.10f, 4, 4},
    {GM_QTYPE_Q3_K, 16, -4, 3, -32, 31, 0, 0, false, 0.80f, 1.20f, 8, 4},
    {GM_QTYPE_Q4_K, 32, 0, 15, 0, 63, 0, 63, false, -0.04f, 0.06f, 4, 4},
    {GM_QTYPE_Q5_K, 32, 0, 31, 0, 63, 0, 63, false, -0.03f, 0.03f, 4, 4},
    {GM_QTYPE_Q6_K, 16, -32, 31, -128, 127, 0, 0, false, 0.82f, 1.02f, 12, 4},
    {GM_QTYPE_IQ4_XS, 32, -127, 113, -32, 31, 0, 0, true, 0.82f, 1.12f, 8, 4},
};

static const gm_form *form_find(gm_qtype type)
{
    const gm_form *f = forms;
    while (f->type != type)
        f++;
    return f;
}

static gm_fit_fn *fit_find(gm_quantiser how)
{
    const bool fit = how == GM_QUANTISE_FIT;
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl"))
        return fit ? gm_fit_avx512 : gm_nearest_avx512;
    /* Every CPU with AVX2 has F16C, for which clang has no word here. */
    if (__builtin_cpu_supports("avx2")) return fit ? gm_fit_avx2 : gm_nearest_avx2;
    return fit ? gm_fit_c : gm_nearest_c;
}

static void write_16(uint16_t (*narrow)(float), const float *x, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = narrow(x[i]);
        memcpy(out + 2 * i, &h, sizeof h);
    }
}

void gm_quantise_rows(const gm_qtype_info *t, gm_quantiser how, const float *rows, size_t n_rows,
                      size_t n_cols, const float *importance, uint8_t *out)
{
    const size_t n = n_rows * n_cols;
    switch (t->id) {
    case GM_QTYPE_F32: memcpy(out, rows, n * sizeof *rows); return;
    case GM_QTYPE_F16: write_16(gm_f32_to_f16, rows, n, out); return;
    case GM_QTYPE_BF16: write_16(gm_f32_to_bf16, rows, n, out); return;
    default: break;
    }
    const gm_form *const f = form_find(t->id);
    gm_fit_fn *const fit = fit_find(how);
    gm_qints ints;
    for (size_t i = 0; i < n; i += t->block_len) {
        const float *const w = importance ? importance + i % n_cols : NULL;
        fit(f, t->block_len, rows + i, w, &ints);
        t->pack(&ints, out + i / t->block_len * t->block_size);
    }
}

float gm_quantise_limit(const gm_qtype_info *t)
{
    switch (t->id) {
    case GM_QTYPE_F32: return FLT_MAX;
    case GM_QTYPE_BF16: return gm_bf16_to_f32(0x7F7F);
    default: return 65504; /* an f16, and so the scale of any block */
    }
}
