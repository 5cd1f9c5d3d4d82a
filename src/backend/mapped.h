/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_MAPPED_H
#define GM_BACKEND_MAPPED_H

/* Weights used where the file's map has them: three entries of the contract for the
 * backends that need no layout of their own. */

#include "backend/backend.h"

struct gm_wset {
    gm_tensors tensors;
};

gm_status gm_mapped_size_of(const gm_backend *be, const gm_tensors *t, uint64_t *bytes,
                            gm_err *err);
gm_status gm_mapped_load(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                         gm_wset **out, gm_err *err);
void gm_mapped_unload(gm_wset *w);

#endif
