/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_PLACE_H
#define GM_ENGINE_PLACE_H

/* What goes where: a model on a backend, with KV pages for so many sequences of so
 * many positions, from the options that users give. */

#include "engine/kv.h"
#include "engine/runner.h"

/* What others than the engine want differently; all-zero: nothing. */
typedef struct gm_place_cfg {
    const atomic_int *abandon; /* as in gm_backend_cfg                                         */
    const gm_plan *plan;       /* of the same weights; NULL: the model's                       */
    uint32_t rows;             /* most of a step: a power of two, 0 means GM_RUNNER_ROWS       */
    uint32_t outs;             /* most outputs of a step; 0: what requests want                 */
    const gm_tune_how *tune;   /* NULL: a GPU's kernels are tried for a moment, the first time  */
} gm_place_cfg;

typedef struct gm_place {
    const gm_model *model;
    uint32_t n_ctx, n_slots;
    gm_bucket most; /* that a step may hold */
    gm_qtype kv_type;
    uint64_t kv_size;     /* bytes of the KV cache */
    char why[GM_WHY_LEN]; /* this backend, where "auto" chose it; else "" */
    gm_arena arena;
    gm_kvpool pool;
    gm_runner runner;
    gm_runner_cfg
        cfg; /* of the runner, with strings of the arena's and nobody to tell of progress */
} gm_place;

/* Checks the options and sets everything up. A failed or all-zero place is deinitialised like a
 * whole one. */
gm_status gm_place_init(gm_place *p, const gm_model *m, const gm_engine_opts *opts,
                        const gm_place_cfg *cfg, gm_err *err);
void gm_place_deinit(gm_place *p);

/* Sets up anew what a lost device took along: the weights come from their file again, and the KV
 * cache is empty. Where that fails, it may be tried once more. */
gm_status gm_place_reopen(gm_place *p, const gm_progress *progress, gm_err *err);

/* A step with room for everything that one turn may bring. */
gm_status gm_place_step(const gm_place *p, gm_step **out, gm_err *err);

/* Puts n tokens of a slot, the first at pos, into the step as one segment; their pages must be there
 * (gm_kvpool_extend). Without ids it is one, which the slot draws last before. Answers false where the
 * step has no room. */
bool gm_place_put_rows(const gm_place *p, gm_step *s, uint32_t slot, const int32_t *ids,
                       uint32_t pos, uint32_t n);

/* The type that the KV cache has with these options. */
gm_status gm_place_kv_type(const gm_engine_opts *opts, const gm_qtype_info **type, gm_err *err);

/* Bytes of KV cache that these options take. */
gm_status gm_place_kv_size(const gm_model *m, const gm_engine_opts *opts, uint64_t *bytes,
                           gm_err *err);

#endif
