/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_QUANTISE_H
#define GM_QUANT_QUANTISE_H

/* Floats to the formats of model files. docs/QUANT.md explains the search and
 * has the errors of both methods. */

#include "quant/qtype.h"

typedef enum gm_quantiser {
    GM_QUANTISE_FIT,     /* searches for the numbers with the least squared error       */
    GM_QUANTISE_NEAREST, /* plain rounding, to compare with and for speed               */
} gm_quantiser;

/* Writes n_rows rows of n_cols values, a multiple of the type's block, row after row. Importance,
 * where not NULL, has a weight for each column, finite and not negative: what is made small is
 * the sum of importance * error^2 over the block; columns of weight 0 still count a little. Plain
 * floats are rounded to nearest either way. Values must be finite, and are held within what the
 * format reaches (gm_quantise_limit). The same input gives the same bytes on every machine. Any
 * thread; nothing is allocated. */
void gm_quantise_rows(const gm_qtype_info *t, gm_quantiser how, const float *rows, size_t n_rows,
                      size_t n_cols, const float *importance, uint8_t *out);

/* The largest magnitude that the type holds for sure. */
float gm_quantise_limit(const gm_qtype_info *t);

#endif
