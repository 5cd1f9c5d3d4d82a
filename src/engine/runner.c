/* SPDX-License-Identifier: MIT */
#include "engine/runner.h"

#include <stdio.h>

/* A GPU has nothing to do from the end of a step until the host has read it and handed over the next,
 * some 60 us. What is handed over ahead spares that, and may be computed for nobody. */
#define AHEAD_US 20000.0

static gm_status find_backend(gm_runner *r, const char *name, gm_err *err)
{
    r->ops = gm_backend_find(name ? name : "auto");
    if (r->ops) return GM_OK;
    char known[128] = "auto";
    size_t len = strlen(known);
    for (size_t i = 0; gm_backend_at(i) && len < sizeof known; i++)
        len += (size_t)snprintf(known + len, sizeof known - len, ", %s", gm_backend_at(i)->name);
    return gm_fail(err, GM_E_ARG, 0, "backend: there is no %s, expected one of %s", name, known);
}

gm_status gm_runner_open(gm_runner *r, const gm_runner_cfg *cfg, gm_err *err)
{
    GM_TRY(find_backend(r, cfg->backend, err));
    r->ahead_us = r->ops->overlaps ? AHEAD_US : 0;
    return r->ops->open(&r->be, &cfg->be, err);
}

/* Lowering may have kernels to compile, which takes a moment the first time. */
static gm_status check_wanted(const gm_model *m, const gm_progress *progress, gm_err *err)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < m->plan.weights.n; i++)
        size += m->plan.weights.at[i].size;
    if (!progress->tell || progress->tell(progress->ctx, size, size)) return GM_OK;
    return gm_fail(err, GM_E_CANCEL, 0, "setting the model up was cancelled");
}

gm_status gm_runner_load(gm_runner *r, const gm_model *m, const gm_runner_cfg *cfg, gm_err *err)
{
    r->model = m;
    GM_TRY(r->ops->load(r->be, &m->plan.weights, &cfg->progress, &r->weights, err));
    GM_TRY(r->ops->kv_open(r->be, &cfg->kv, &r->kv, err));
    const gm_tune_model loaded = {r->weights, r->kv, cfg->plan, cfg->most};
    GM_TRY(r->ops->tune(r->be, &loaded, &cfg->tune, err));
    for (uint32_t i = GM_RUNNER_BUCKETS; i-- > 0;) {
        const uint32_t rows = 1u << i;
        const gm_bucket bucket = {rows, rows < cfg->most.outs ? rows : cfg->most.outs};
        if (rows > cfg->most.rows || (r->ops->any_rows && rows < cfg->most.rows)) continue;
        GM_TRY(check_wanted(m, &cfg->progress, err));
        GM_TRY(r->ops->lower(r->be, r->weights, r->kv, cfg->plan, bucket, &r->exec[i], err));
    }
    return GM_OK;
}

/* All but what the runner is of: others may be reading that. */
static void release(gm_runner *r)
{
    for (uint32_t i = 0; i < GM_RUNNER_BUCKETS; i++) {
        r->ops->drop(r->exec[i]);
        r->exec[i] = NULL;
    }
    r->ops->kv_close(r->kv);
    r->kv = NULL;
    r->ops->unload(r->weights);
    r->weights = NULL;
    r->ops->close(r->be);
    r->be = NULL;
}

void gm_runner_deinit(gm_runner *r)
{
    if (!r->ops) return;
    release(r);
    *r = (gm_runner){0};
}

gm_status gm_runner_reopen(gm_runner *r, const gm_runner_cfg *cfg, gm_err *err)
{
    release(r);
    GM_TRY(r->ops->open(&r->be, &cfg->be, err));
    return gm_runner_load(r, r->model, cfg, err);
}

/* The smallest that has room. */
static gm_exec *exec_for(const gm_runner *r, const gm_step *s)
{
    uint32_t bucket = 0;
    while (bucket + 1 < GM_RUNNER_BUCKETS && (!r->exec[bucket] || s->n_rows > 1u << bucket))
        bucket++;
    return r->exec[bucket];
}

gm_status gm_runner_submit(gm_runner *r, const gm_step *s, gm_ticket *t, gm_err *err)
{
    return r->ops->run(exec_for(r, s), s, t, err);
}

gm_status gm_runner_collect(gm_runner *r, gm_ticket t, gm_result *out, gm_err *err)
{
    return r->ops->wait(r->be, t, out, err);
}

gm_status gm_runner_profile(gm_runner *r, const gm_step *s, gm_kernel_row *rows, uint32_t cap,
                            uint32_t *n, gm_err *err)
{
    return r->ops->profile(exec_for(r, s), s, rows, cap, n, err);
}
