/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_DOT_H
#define GM_QUANT_DOT_H

/* The arithmetics of a dot product between a row of weights and a row of
 * activations. This is the law; ref computes by it and every kernel of every
 * backend is compared with it.
 *
 * exact: weights expanded to float32, activations float32, products summed in
 *        float64. The oracle of fidelity.
 *
 * int8:  activations are cut into blocks of 32, each with one float32 scale
 *
 *            dx = max|x| / 127         x8 = x * (127 / max|x|), to nearest, ties to even
 *
 *        (dx = 0 and x8 = 0 for a block of zeros). A block of 32 weights then gives
 *        two integers, exact in any order,
 *
 *            S = sum over its 16-groups of sc * sum(q * x8)
 *            M = sum over its 16-groups of m  * sum(x8)
 *
 *        and the row's result is the sum, block after block in float32, of
 *
 *            dx * (d * S - dmin * M)
 *
 *        |S| < 2^24 for every format, so S and M are exact as float32 too.
 *
 * twice: what int8 leaves of the activations, x - dx * x8 in float32, is rounded to
 *        int8 in the same way, with scales of its own. The two rows of int8 are
 *        multiplied as above, each by itself, and the second result is added to the
 *        first: 15 bits of an activation for two products of 8. A kernel sees nothing
 *        but twice as many rows.
 *
 *        One rounding leaves 0.5 % of an activation that is spread like a bell, the
 *        second 0.002 %.
 *
 * Where the weights are plain floats the activations stay float32: product i goes to
 * running sum i % 16, and the sixteen are then folded in halves (0 + 8, 1 + 9, ..),
 * which is what vector registers do. */

#include "quant/tensor.h"

#define GM_ACT_BLOCK 32

/* A row of activations as int8: n values, n rounded up to whole blocks and padded with zeros. */
typedef struct gm_act8 {
    int8_t *q;    /* [n]      */
    float *scale; /* [n / 32] */
} gm_act8;

/* Quantises n floats. Infinities and NaNs make the block's scale NaN, so they are seen. */
void gm_act8_quantise(const float *x, size_t n, const gm_act8 *out);

/* What quantising n floats left of them: x - dx * x8; rest may be x. */
void gm_act8_rest(const float *x, size_t n, const gm_act8 *x8, float *rest);

/* S and M of 32-block `part` of a block that was taken apart. */
typedef struct gm_blocksum {
    int32_t s, m;
} gm_blocksum;
gm_blocksum gm_qints_sum(const gm_qints *b, uint32_t part, const int8_t *x8);

/* Row of n weights, expanded to float32, times a row of activations. */
float gm_dot_exact(const float *w, const float *x, size_t n);
float gm_dot_f32(const float *w, const float *x, size_t n);

/* Row of n quantised weights times a row of int8 activations. */
float gm_dot_int8(const gm_qtype_info *t, const uint8_t *row, const gm_act8 *x, size_t n);

#endif
