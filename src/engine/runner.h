/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_RUNNER_H
#define GM_ENGINE_RUNNER_H

/* One model on one backend: weights in place, KV memory, and the plan lowered for
 * each size of step. All set-up happens in gm_runner_load; after it, steps only
 * run. Engine thread only. */

#include "backend/backend.h"
#include "model/model.h"

#define GM_RUNNER_BUCKETS 10 /* steps of 1, 2, 4 .. 512 rows */
#define GM_RUNNER_ROWS    (1u << (GM_RUNNER_BUCKETS - 1))
#define GM_RUNNER_OUTS    16 /* outputs of a step beyond one a sequence: tokens of prompts */

typedef struct gm_runner {
    const gm_model *model;
    const gm_backend_ops *ops;
    gm_backend *be;
    gm_wset *weights;
    gm_kvmem *kv;
    gm_exec *exec[GM_RUNNER_BUCKETS];
    double ahead_us; /* a step of answers that takes less is handed over before the one before it is
                        read; 0: none is */
} gm_runner;

typedef struct gm_runner_cfg {
    const char *backend;
    const gm_plan *plan; /* the model's, or another of its weights; must outlive the runner */
    gm_bucket most;      /* that a step may hold; rows are a power of two                   */
    gm_kv_desc kv;
    gm_backend_cfg be;
    gm_progress progress; /* of the load */
    gm_tune_how tune;     /* before anything is lowered */
} gm_runner_cfg;

/* Finds the backend and opens it; then brings the model there. A runner may be deinitialised after
 * either, also where it failed. */
gm_status gm_runner_open(gm_runner *r, const gm_runner_cfg *cfg, gm_err *err);
gm_status gm_runner_load(gm_runner *r, const gm_model *m, const gm_runner_cfg *cfg, gm_err *err);
void gm_runner_deinit(gm_runner *r);

/* Closes all that was opened and loaded, and does both again. Where that fails, it may be tried once
 * more. */
gm_status gm_runner_reopen(gm_runner *r, const gm_runner_cfg *cfg, gm_err *err);

/* Hands a step over; then waits for it. */
gm_status gm_runner_submit(gm_runner *r, const gm_step *s, gm_ticket *t, gm_err *err);
gm_status gm_runner_collect(gm_runner *r, gm_ticket t, gm_result *out, gm_err *err);
/* Or runs it to time its kernels (gm_backend_ops.profile). */
gm_status gm_runner_profile(gm_runner *r, const gm_step *s, gm_kernel_row *rows, uint32_t cap,
                            uint32_t *n, gm_err *err);

#endif
