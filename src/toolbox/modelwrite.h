/* SPDX-License-Identifier: MIT */
#ifndef GM_TOOLBOX_MODELWRITE_H
#define GM_TOOLBOX_MODELWRITE_H

/* Writes a GGUF file whose tensors are made while it is written: by several
 * workers, a slice at a time, so that memory does not grow with the model. The
 * file appears under its name only when it is whole, and a failure or a cancel
 * leaves nothing behind. */

#include "file/gguf.h"
#include "gemmule_tools.h"

/* A run of bytes of one tensor that is wanted. */
typedef struct gm_slice {
    uint32_t tensor;
    uint64_t off;  /* of the tensor's bytes: a multiple of its unit */
    size_t size;   /* a multiple of its unit, or up to its end      */
    uint8_t *out;  /* [size]                                        */
    void *scratch; /* [scratch_size] of this worker, aligned to 64  */
} gm_slice;

typedef struct gm_modelwrite {
    const char *path;
    const gm_meta *meta;
    const gm_tensor *tensors; /* [n] in file order; no data                              */
    const uint64_t *units;    /* [n] bytes of a tensor that can only be made together    */
    uint32_t n;
    uint32_t n_threads; /* 0: one a physical core */
    bool force;         /* replace a file that is there */
    size_t scratch_size;
    /* Makes the bytes of a slice; any worker, slices in rising order. */
    gm_status (*fill)(void *ctx, const gm_slice *slice, gm_err *err);
    void *ctx;
    gm_progress_fn progress; /* may be NULL; called by the caller's thread only */
    void *progress_ctx;
} gm_modelwrite;

/* Bytes of the whole file. */
uint64_t gm_modelwrite_size(const gm_modelwrite *job);

/* Refuses a name that is taken (GM_E_IO with EEXIST), or that no file may take. */
gm_status gm_modelwrite_check(const char *path, bool force, gm_err *err);

gm_status gm_modelwrite_run(const gm_modelwrite *job, gm_err *err);

#endif
