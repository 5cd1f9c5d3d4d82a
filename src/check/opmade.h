/* SPDX-License-Identifier: MIT */
#ifndef GM_CHECK_OPMADE_H
#define GM_CHECK_OPMADE_H

/* A case of the op table made real: weights and inputs from a seed, and a plan. For opcheck.c, which
 * runs it. */

#include "check/opcheck.h"

#define GM_OPMADE_WEIGHTS   13 /* at most: those of a layer      */
#define GM_OPMADE_DRAW_COLS 2  /* a token, its log-probability    */

/* All-zero is an empty one. */
typedef struct gm_opmade {
    gm_opcase c;
    uint64_t seed;
    gm_plan plan;
    gm_tensor tensors[GM_OPMADE_WEIGHTS];
    uint8_t *bytes[GM_OPMADE_WEIGHTS];
    uint32_t n_weights;
    uint32_t cols; /* of the output */
    float *x;      /* [rows, n_in]  */
    float *spoilt; /* [n_in] NaNs   */
} gm_opmade;

/* A failed one is deinitialised like a whole one. */
gm_status gm_opmade_init(gm_opmade *m, const gm_opcase *c, uint64_t seed, gm_err *err);
void gm_opmade_deinit(gm_opmade *m);

/* The attention of a case that has one. */
gm_attn gm_opmade_attn(const gm_opcase *c);

#endif
