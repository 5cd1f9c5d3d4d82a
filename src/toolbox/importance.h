/* SPDX-License-Identifier: MIT */
#ifndef GM_TOOLBOX_IMPORTANCE_H
#define GM_TOOLBOX_IMPORTANCE_H

/* How much each column of each matrix matters: the mean of the squared
 * activations that it is multiplied with, each token's brought to one size. An
 * error e in column c of a row then adds about e^2 times importance[c] to the
 * squared error of the product, as a share of it, which is what quantisers make
 * small.
 *
 * Calibration fills one, conversion reads it; a tensor that has no entry counts
 * as having equal columns. Names are those of the model file
 * ("blk.3.ffn_down.weight"). The type is opaque to programs (gemmule_tools.h). */

#include "base/arena.h"
#include "gemmule_tools.h"

typedef struct gm_importance_entry {
    const char *name;
    uint32_t n_cols;
    float *values; /* [n_cols], finite and not negative */
} gm_importance_entry;

struct gm_importance {
    uint32_t count, cap;
    gm_importance_entry *at; /* [count], in the order they were added */
    gm_arena arena;          /* names and values                      */
};

/* An empty one with room for cap entries; gm_importance_free, which is public, frees it. */
gm_status gm_importance_make(gm_importance **out, uint32_t cap, gm_err *err);

/* Adds a tensor; the name is copied. *values, n_cols zeros, is the caller's to fill. */
gm_status gm_importance_add(gm_importance *imp, const char *name, uint32_t n_cols, float **values,
                            gm_err *err);

/* The values of a tensor of n_cols columns; NULL where there is no entry, or imp is NULL, or the
 * entry has another number of columns. */
const float *gm_importance_find(const gm_importance *imp, const char *name, uint64_t n_cols);

#endif
