/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_FIT_H
#define GM_QUANT_FIT_H

/* What a quantiser must know of a format, and the two ways to find a block's
 * numbers. Every format is value = (d * sc) * q - dmin * m (qtype.h); a form says
 * what q, sc and m may be. quantise.c has the table of forms; fit_tmpl.h the
 * search, compiled for each rung of instructions, with the same results on each. */

#include "quant/qtype.h"

typedef struct gm_form {
    gm_qtype type;
    uint8_t group_len;      /* values that share sc and m: 16 or 32                          */
    int16_t q_min, q_max;   /* codes                                                         */
    int16_t sc_min, sc_max; /* 1, 1: no integer scales, the block is one group               */
    int16_t m_min, m_max;   /* 0, 0: no minima; 1, 1: one float minimum, of either sign      */
    bool curved;            /* a code is one of gm_iq4_values, not any from q_min to q_max   */
    float first, last;      /* steps that are tried. Without minima: inverse scales, in units
                             * of the plain one's; with: how far a range goes beyond each end
                             * of the values, in units of the plain range                    */
    uint8_t n_steps;        /* how many, a multiple of 4: of each sign, or at each end       */
    uint8_t n_turns;        /* times that integers and then floats are chosen anew           */
} gm_form;

/* Finds the numbers of one block of block_len values x; w are their weights, or NULL. d and dmin
 * are values that an f16 has. */
typedef void gm_fit_fn(const gm_form *f, uint32_t block_len, const float *x, const float *w,
                       gm_qints *out);

/* Plain rounding: the largest value of a group gets the largest code, the largest scale of a block
 * the largest integer scale, and everything else is rounded to what is nearest. */
gm_fit_fn gm_nearest_c, gm_nearest_avx2, gm_nearest_avx512;

/* The least sum of w * error^2 that the search finds; never more than that of plain rounding. */
gm_fit_fn gm_fit_c, gm_fit_avx2, gm_fit_avx512;

#endif
