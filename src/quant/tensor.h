/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_TENSOR_H
#define GM_QUANT_TENSOR_H

/* A tensor is a view: a name, a shape, a type, and bytes that somebody else
 * owns (the map of a model file). It stays valid as long as that owner. */

#include <stdint.h>

#include "quant/qtype.h"

#define GM_TENSOR_DIMS 4

typedef struct gm_tensor {
    const char *name;               /* NUL-terminated                                       */
    const gm_qtype_info *type;      /* never NULL                                           */
    uint32_t n_dims;                /* 1 to 4                                               */
    uint64_t shape[GM_TENSOR_DIMS]; /* [.., rows, cols], rightmost contiguous; the first n_dims */
    const uint8_t *data;            /* row after row; any alignment                         */
    uint64_t size;                  /* bytes                                                */
} gm_tensor;

/* A list of tensors; a weight is named by its index in it. */
typedef struct gm_tensors {
    const gm_tensor *at;
    uint32_t n;
    bool mapped; /* all data lie in maps of files, so gm_mapfile_forget may be called on them */
} gm_tensors;

/* Length of a row, and the number of rows (1 for a vector). */
static inline uint64_t gm_tensor_cols(const gm_tensor *t)
{
    return t->shape[t->n_dims - 1];
}

static inline uint64_t gm_tensor_rows(const gm_tensor *t)
{
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < t->n_dims; i++)
        rows *= t->shape[i];
    return rows;
}

/* Bytes of one row. */
static inline uint64_t gm_tensor_row_size(const gm_tensor *t)
{
    return gm_tensor_cols(t) / t->type->block_len * t->type->block_size;
}

#endif
