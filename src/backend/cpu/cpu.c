/* SPDX-License-Identifier: MIT */
/* The CPU backend's entries. run keeps
 * the step; wait computes it with the calling thread as worker 0. */

#include "backend/cpu/cpu.h"

#include <inttypes.h>

#include "backend/backends.h"
#include "base/mem.h"

static void cpu_close(gm_backend *be)
{
    if (!be) return;
    gm_workers_close(be->workers);
    gm_mem_free_huge(be->roof, be->roof_size);
    gm_mem_free(be);
}

static gm_status cpu_open(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    *out = NULL;
    gm_backend *be = NULL;
    uint32_t isa = GM_ISA_ALL;
    GM_TRY(gm_backend_no_device(cfg, "cpu", err));
    GM_TRY(gm_isa_read(cfg->isa, &isa, err));
    GM_TRY(gm_mem_alloc(&be, 1, sizeof *be, "the cpu backend", err));
    be->abandon = cfg->abandon;
    be->isa = gm_isa_detect() & isa;
    gm_kernels_init(&be->k, be->isa);
    const gm_status status = gm_workers_open(&be->workers, cfg->n_threads, err);
    if (status == GM_OK)
        *out = be;
    else
        cpu_close(be);
    return status;
}

static void cpu_describe(const gm_backend *be, gm_backend_facts *out)
{
    *out = (gm_backend_facts){.n_threads = gm_workers_n(be->workers), .isa = gm_isa_name(be->isa)};
}

/* Bytes that an op reads a row at ten bytes a nanosecond: placement compares, nothing more. */
static gm_status cpu_cost(const gm_backend *be, const gm_plan *p, const gm_op *op, uint32_t rows,
                          double *us, gm_err *err)
{
    (void)be, (void)err;
    double bytes = op->out ? 4.0 * p->vals[op->out].cols * rows : 0;
    for (uint32_t i = 0; i < gm_op_products(op); i++)
        bytes += (double)p->weights.at[op->weight[i]].size * (1 + rows / 16.0);
    *us = bytes * 1e-4;
    return GM_OK;
}

static gm_status cpu_lower(gm_backend *be, gm_wset *w, gm_kvmem *kv, const gm_plan *p,
                           gm_bucket bucket, gm_exec **out, gm_err *err)
{
    *out = NULL;
    GM_TRY(gm_slots_check_plan(kv ? &kv->slots : NULL, p, err));
    gm_exec *ex = NULL;
    GM_TRY(gm_mem_alloc(&ex, 1, sizeof *ex, "an exec", err));
    ex->be = be;
    ex->w = w;
    ex->kv = kv;
    ex->plan = p;
    ex->bucket = bucket;
    const gm_status status = gm_cpu_lower(ex, err);
    if (status == GM_OK)
        *out = ex;
    else
        gm_cpu_drop(ex);
    return status;
}

static gm_status cpu_run(gm_exec *ex, const gm_step *s, gm_ticket *t, gm_err *err)
{
    GM_TRY(gm_step_check(s, ex->bucket.rows, ex->bucket.outs, err));
    return gm_tickets_put(&ex->be->tickets, ex, s, t, err);
}

static bool is_abandoned(const gm_exec *ex)
{
    return ex->be->abandon && atomic_load(ex->be->abandon);
}

static void do_phase(gm_exec *ex, size_t i, uint32_t worker)
{
    const gm_phase *const ph = &ex->phases[i];
    switch (ph->kind) {
    case GM_PHASE_ROWS: gm_cpu_rows(ex, ph, &ex->tasks[i], worker); break;
    case GM_PHASE_PRODUCTS: gm_cpu_products(ex, ph, &ex->tasks[i], worker); break;
    case GM_PHASE_ATTEND: gm_cpu_attend(ex, ph, &ex->tasks[i], worker); break;
    }
}

/* Whether workers meet after phase i: where either side of it is shared. Worker 0 by itself meets
 * nobody, and may stop anywhere. After the last phase the crew parts in any case, and tokens are
 * drawn: it is too late to abandon the step. */
static bool is_border(const gm_exec *ex, size_t i)
{
    return i + 1 < ex->n_phases && !(ex->shared && ex->alone[i] && ex->alone[i + 1]);
}

/* One worker's way through the step. Every worker must see the same answer to is_abandoned, so
 * worker 0 looks, at borders, and the others hear of it when they meet. */
static void work(void *arg, uint32_t worker)
{
    gm_exec *const ex = arg;
    for (size_t i = 0; i < ex->n_phases; i++) {
        if (worker == 0 || !ex->alone[i]) do_phase(ex, i, worker);
        if (!is_border(ex, i)) continue;
        if (worker == 0 && is_abandoned(ex)) atomic_store(&ex->stop_after, (unsigned)i + 1);
        if (ex->shared) gm_workers_meet(ex->be->workers);
        if (atomic_load(&ex->stop_after) == i + 1) return;
    }
}

/* Every row's token or given row must be there. */
static gm_status check_inputs(const gm_exec *ex, gm_err *err)
{
    const gm_step *const s = ex->step;
    const gm_op *const op = &ex->plan->ops[0];
    const bool by_id = op->kind == GM_OP_INPUT_ROWS;
    const uint64_t n_ids = by_id ? gm_tensor_rows(&ex->w->tensors.at[op->weight[0]]) : 0;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(s)[i];
        if (r->kind == GM_ROW_GIVEN) {
            if (r->src >= s->n_given || s->limits.given_cols != ex->plan->vals[op->out].cols)
                return gm_fail(err, GM_E_ARG, 0, "step: row %" PRIu32 " is given but not there", i);
            continue;
        }
        const int64_t id = gm_slots_token(ex->kv ? &ex->kv->slots : NULL, r);
        if (id < 0 || (uint64_t)id >= n_ids) {
            return gm_fail(err, GM_E_ARG, 0,
                           "step: row %" PRIu32 " has token %" PRId64 ", which has no embedding", i,
                           id);
        }
    }
    return GM_OK;
}

static gm_status compute(gm_exec *ex, const gm_step *s, gm_err *err)
{
    ex->step = s;
    atomic_store(&ex->stop_after, 0);
    if (ex->kv) GM_TRY(gm_cpu_kv_apply(ex->kv, s, err));
    GM_TRY(check_inputs(ex, err));
    for (uint32_t i = 0; i < s->n_outs; i++)
        ex->out[i] = (gm_result_out){.token = -1};
    gm_cpu_settle(ex->be, ex->w);
    for (size_t i = 0; i < ex->n_phases; i++)
        atomic_store_explicit(&ex->tasks[i].next, 0, memory_order_relaxed);
    gm_cpu_share(ex);
    if (ex->shared)
        gm_workers_run(ex->be->workers, work, ex);
    else
        work(ex, 0);
    if (atomic_load(&ex->stop_after)) return gm_fail(err, GM_E_CANCEL, 0, "the step was abandoned");
    return GM_OK;
}

static gm_status cpu_wait(gm_backend *be, gm_ticket t, gm_result *r, gm_err *err)
{
    gm_exec *ex = NULL;
    const gm_step *s = NULL;
    *r = (gm_result){0};
    GM_TRY(gm_tickets_take(&be->tickets, t, &ex, &s, err));
    GM_TRY(compute(ex, s, err));
    *r = (gm_result){s->n_outs, ex->out, ex->values.taps};
    return GM_OK;
}

const gm_backend_ops gm_backend_cpu = {
    .name = "cpu",
    .about = "all cores, with the best vector instructions they have",
    .any_rows = true,
    .kv_type = GM_QTYPE_F16,
    .open = cpu_open,
    .close = cpu_close,
    .device_at = gm_backend_no_device_at,
    .describe = cpu_describe,
    .kernels = gm_backend_no_kernels,
    .cost = cpu_cost,
    .roof = gm_cpu_roof,
    .size_of = gm_cpu_size_of,
    .load = gm_cpu_load,
    .unload = gm_cpu_unload,
    .kv_size_of = gm_cpu_kv_size_of,
    .kv_open = gm_cpu_kv_open,
    .kv_close = gm_cpu_kv_close,
    .kv_page_size = gm_cpu_kv_page_size,
    .kv_copy = gm_cpu_kv_copy,
    .tune = gm_backend_no_tune,
    .profile = gm_backend_no_profile,
    .exec_size_of = gm_backend_no_exec_size,
    .lower = cpu_lower,
    .drop = gm_cpu_drop,
    .run = cpu_run,
    .wait = cpu_wait,
};
