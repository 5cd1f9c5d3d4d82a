/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VALUES_H
#define GM_BACKEND_VALUES_H

/* Buffers in host memory for the values of a plan. A value's buffer is free again
 * after the last op that reads it, so a plan of 62 layers needs about as much as
 * one of a single layer. Outputs keep theirs. */

#include "backend/backend.h"

typedef struct gm_valuebuf {
    float *data;
    uint32_t rows, cols; /* as in gm_valinfo: values share only with their like, so that a row of
                            one lies where the same row of the other did */
    bool busy;           /* while placing: a value that is still read lies in it */
} gm_valuebuf;

typedef struct gm_values {
    float **at; /* [n_vals]: [rows, cols]; values that never meet share one buffer */
    gm_valuebuf *bufs;
    size_t n_bufs, cap_bufs;
    const float **taps; /* [n_taps] */
} gm_values;

/* Places every value of the plan for steps of that size. */
gm_status gm_values_init(gm_values *v, const gm_plan *p, gm_bucket bucket, gm_err *err);
void gm_values_deinit(gm_values *v);

#endif
