/* SPDX-License-Identifier: MIT */
/* Everything but the products in float32, one operation at a time in the order that
 * the kernels of the CPU backend have, so that its whole models can be compared with
 * ref-int8 to the last bit: a value that is 1e-7 beside it can round to the next int8,
 * and a deep model makes 0.1 of a log-probability out of that.
 *
 * Sums are those of gm_dot_f32: sixteen running ones, folded in halves. Attention goes
 * page by page with a running maximum, sum and mix of values; keys are cut at
 * multiples of the op's key_split, and the pieces are joined in order. */

#include <math.h>

#include "backend/ref/ref.h"
#include "base/fp16.h"

/* exp, to about 1e-7 relative; x is held within [-87, 88]. n = x / ln 2 rounded by adding and
 * taking away 1.5 * 2^23, the rest in a polynomial, and 2^n put into the exponent's bits. */
static float exp_f32(float x)
{
    if (isnan(x)) return x;
    x = fminf(fmaxf(x, -87.0f), 88.0f);
    const float n = (x * 1.44269502f + 12582912.0f) - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.98756915e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return gm_f32_from_bits(gm_f32_bits(p) + ((uint32_t)(int32_t)n << 23));
}

void gm_ref_norm_f32(const float *x, const float *w, const gm_norm *norm, size_t n, float *y)
{
    const float up = 1.0f / sqrtf(gm_dot_f32(x, x, n) / (float)n + norm->eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * up * (w[i] + norm->offset);
}

void gm_ref_rotate_f32(float c, float s, float *a, float *b)
{
    const float x = *a, y = *b;
    *a = x * c - y * s;
    *b = y * c + x * s;
}

/* gelu_tanh(z) = z / (1 + exp(-2 u)), u = sqrt(2 / pi) (z + 0.044715 z^3) */
float gm_ref_gelu_f32(float z)
{
    return z / (1.0f + exp_f32(-((z + z * z * z * 0.044715f) * 1.59576912f)));
}

/* tanh(y) = 1 - 2 / (exp(2 y) + 1) */
float gm_ref_softcap_f32(float x, float cap)
{
    const float y = x / cap;
    return (1.0f - 2.0f / (exp_f32(y + y) + 1.0f)) * cap;
}

/* ---- attention ------------------------------------------------------------------------- */

/* One query head over a run of positions. */
typedef struct piece {
    float max, sum;
    float *mix; /* [head_dim] */
} piece;

/* x = exp(x - max), and their sum: whole sixteens in running sums, then what is left in order. */
static float exp_sum(float *x, uint32_t n, float max)
{
    static const float ones[GM_PAGE_LEN] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint32_t whole = n / 16 * 16;
    float rest = 0;
    for (uint32_t i = 0; i < n; i++) {
        x[i] = exp_f32(x[i] - max);
        if (i >= whole) rest += x[i];
    }
    return gm_dot_f32(x, ones, whole) + rest;
}

static void take_page(gm_exec *ex, const gm_refhead *h, uint32_t pos, uint32_t n, piece *p)
{
    float s[GM_PAGE_LEN], max = p->max;
    for (uint32_t c = 0; c < n; c++) {
        s[c] = h->op->attn.scale * gm_dot_f32(gm_ref_head_cell(ex, h, pos + c, 0), h->q, h->dim);
        max = s[c] > max ? s[c] : max;
    }
    const float keep = exp_f32(p->max - max);
    p->sum = p->sum * keep + exp_sum(s, n, max);
    p->max = max;
    for (uint32_t j = 0; j < h->dim; j++)
        p->mix[j] *= keep;
    for (uint32_t c = 0; c < n; c++) {
        const float *const v = gm_ref_head_cell(ex, h, pos + c, 1);
        for (uint32_t j = 0; j < h->dim; j++)
            p->mix[j] += v[j] * s[c];
    }
}

static void take_run(gm_exec *ex, const gm_refhead *h, uint32_t first, uint32_t last, piece *p)
{
    p->max = -INFINITY;
    p->sum = 0;
    memset(p->mix, 0, h->dim * sizeof *p->mix);
    for (uint32_t pos = first, n; pos <= last; pos += n) {
        n = GM_PAGE_LEN - pos % GM_PAGE_LEN;
        if (n > last - pos + 1) n = last - pos + 1;
        take_page(ex, h, pos, n, p);
    }
}

/* Takes piece b into piece a. */
static void join(const gm_refhead *h, piece *a, const piece *b)
{
    const float max = a->max > b->max ? a->max : b->max;
    const float of_a = exp_f32(a->max - max), of_b = exp_f32(b->max - max);
    a->max = max;
    a->sum = a->sum * of_a + b->sum * of_b;
    for (uint32_t j = 0; j < h->dim; j++)
        a->mix[j] = a->mix[j] * of_a + b->mix[j] * of_b;
}

void gm_ref_attend_f32(gm_exec *ex, const gm_refhead *h, float *out)
{
    const uint32_t split = h->op->num.key_split;
    piece whole = {.mix = ex->mix}, next = {.mix = ex->mix + h->dim};
    for (uint32_t pos = h->first; pos <= h->last; pos = (pos / split + 1) * split) {
        const uint32_t end = (pos / split + 1) * split - 1;
        take_run(ex, h, pos, end < h->last ? end : h->last, pos == h->first ? &whole : &next);
        if (pos != h->first) join(h, &whole, &next);
    }
    for (uint32_t j = 0; j < h->dim; j++)
        out[j] = whole.mix[j] / whole.sum;
}
