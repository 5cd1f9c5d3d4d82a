/* SPDX-License-Identifier: MIT */
#include "quant/dot.h"

#include <math.h>

void gm_act8_quantise(const float *x, size_t n, const gm_act8 *out)
{
    for (size_t b = 0; b * GM_ACT_BLOCK < n; b++) {
        float max = 0;
        const size_t first = b * GM_ACT_BLOCK;
        const size_t len = n - first < GM_ACT_BLOCK ? n - first : GM_ACT_BLOCK;
        bool finite = true;
        for (size_t i = 0; i < len; i++) {
            finite = finite && isfinite(x[first + i]);
            max = fmaxf(max, fabsf(x[first + i]));
        }
        const float up = finite && max > 0 ? 127.0f / max : 0;
        out->scale[b] = finite ? max / 127.0f : NAN;
        for (size_t i = 0; i < GM_ACT_BLOCK; i++) {
            /* 127 / max overflows for denormal maxima: such a block rounds to nothing. */
            const float q = i < len && isfinite(up) ? rintf(x[first + i] * up) : 0;
            out->q[first + i] = (int8_t)q;
        }
    }
}

void gm_act8_rest(const float *x, size_t n, const gm_act8 *x8, float *rest)
{
    for (size_t i = 0; i < n; i++)
        rest[i] = x[i] - x8->scale[i / GM_ACT_BLOCK] * (float)x8->q[i];
}

gm_blocksum gm_qints_sum(const gm_qints *b, uint32_t part, const int8_t *x8)
{
    gm_blocksum sum = {0, 0};
    for (uint32_t half = 0; half < GM_ACT_BLOCK / GM_QGROUP; half++) {
        const uint32_t g = part * (GM_ACT_BLOCK / GM_QGROUP) + half;
        int32_t qx = 0, x = 0;
        for (uint32_t i = 0; i < GM_QGROUP; i++) {
            const int32_t xi = x8[half * GM_QGROUP + i];
            qx += b->q[g * GM_QGROUP + i] * xi;
            x += xi;
        }
        sum.s += b->sc[g] * qx;
        sum.m += b->m[g] * x;
    }
    return sum;
}

float gm_dot_int8(const gm_qtype_info *t, const uint8_t *row, const gm_act8 *x, size_t n)
{
    gm_qints ints;
    float acc = 0;
    for (size_t i = 0; i < n; i += t->block_len) {
        t->unpack(row + i / t->block_len * t->block_size, &ints);
        for (uint32_t part = 0; part < t->block_len / GM_ACT_BLOCK; part++) {
            const size_t b = i / GM_ACT_BLOCK + part;
            const gm_blocksum sum = gm_qints_sum(&ints, part, x->q + b * GM_ACT_BLOCK);
            acc += x->scale[b] * (ints.d * (float)sum.s - ints.dmin * (float)sum.m);
        }
    }
    return acc;
}

float gm_dot_exact(const float *w, const float *x, size_t n)
{
    double acc = 0;
    for (size_t i = 0; i < n; i++)
        acc += (double)w[i] * (double)x[i];
    return (float)acc;
}

float gm_dot_f32(const float *w, const float *x, size_t n)
{
    float acc[16] = {0};
    for (size_t i = 0; i < n; i++)
        acc[i % 16] += w[i] * x[i];
    for (size_t half = 8; half; half /= 2) {
        for (size_t i = 0; i < half; i++)
            acc[i] += acc[i + half];
    }
    return acc[0];
}
