/* SPDX-License-Identifier: MIT */
#ifndef GM_TOOLBOX_COMPARE_H
#define GM_TOOLBOX_COMPARE_H

/* Two models side by side; gm_compare_run is public.
 *
 *     compare.c          what both make of a text
 *     compare_weights.c  how far their tensors are apart
 *     compare_text.c     the text where nobody gives one */

#include "base/workers.h"
#include "gemmule_tools.h"
#include "model/model.h"

typedef struct gm_compare {
    const gm_model *model[2];
    gm_compare_opts opts;
    gm_workers *workers;
    uint64_t done, total; /* bytes of weights gone through, and to go through */
    gm_compare_result *result;
} gm_compare;

/* Counts bytes as gone through; GM_E_CANCEL where the caller has had enough. */
gm_status gm_compare_tell(gm_compare *c, uint64_t bytes, gm_err *err);

/* Goes through every tensor of both and names the worst. */
gm_status gm_compare_weights(gm_compare *c, gm_err *err);

extern const char gm_compare_text[];

#endif
