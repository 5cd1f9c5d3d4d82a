/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_PLACE_H
#define GM_ENGINE_PLACE_H

/* What goes where: a model on a backend, with KV pages for so many sequences of so
 * many positions, from the options that users give. */

#include "engine/kv.h"
#include "engine/runner.h"

typedef struct gm_place {
    const gm_model *model;
    uint32_t n_ctx, n_slots;
    gm_qtype kv_type;
    gm_arena arena;
    gm_kvpool pool;
    gm_runner runner;
} gm_place;

/* Checks the options and sets everything up. abandon may be NULL (gm_backend_cfg). A failed or
 * all-zero place is deinitialised like a whole one. */
gm_status gm_place_init(gm_place *p, const gm_model *m, const gm_engine_opts *opts,
                        const atomic_int *abandon, gm_err *err);
void gm_place_deinit(gm_place *p);

/* A step with room for everything that one turn may bring. */
gm_status gm_place_step(const gm_place *p, gm_step **out, gm_err *err);

/* The type that the KV cache has with these options. */
gm_status gm_place_kv_type(const gm_engine_opts *opts, const gm_qtype_info **type, gm_err *err);

/* Bytes of KV cache that these options take. */
gm_status gm_place_kv_size(const gm_model *m, const gm_engine_opts *opts, uint64_t *bytes,
                           gm_err *err);

#endif
