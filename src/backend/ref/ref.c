/* SPDX-License-Identifier: MIT */
/* The oracle as a backend. Weights stay where the file's map has them; run keeps
 * the step and wait computes it, op after op. */

#include "backend/ref/ref.h"

#include <inttypes.h>

#include "backend/backends.h"
#include "base/clock.h"
#include "base/mem.h"

static gm_status backend_open(gm_backend **out, const gm_backend_cfg *cfg, bool int8, gm_err *err)
{
    GM_TRY(gm_backend_no_device(cfg, int8 ? "ref-int8" : "ref", err));
    GM_TRY(gm_mem_alloc(out, 1, sizeof **out, "the ref backend", err));
    (*out)->int8 = int8;
    (*out)->abandon = cfg->abandon;
    return GM_OK;
}

static gm_status ref_open(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    return backend_open(out, cfg, false, err);
}

static gm_status ref_int8_open(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    return backend_open(out, cfg, true, err);
}

static void ref_close(gm_backend *be)
{
    gm_mem_free(be);
}

static void ref_describe(const gm_backend *be, gm_backend_facts *out)
{
    (void)be;
    *out = (gm_backend_facts){.n_threads = 1, .isa = "c"};
}

/* About a nanosecond a multiplication: placement only ever compares it with much faster ones. */
static gm_status ref_cost(const gm_backend *be, const gm_plan *p, const gm_op *op, uint32_t rows,
                          double *us, gm_err *err)
{
    (void)be, (void)err;
    double products = op->out ? p->vals[op->out].cols : 0;
    if (gm_op_products(op)) products *= p->vals[op->in[0]].cols;
    *us = products * rows * 1e-3;
    return GM_OK;
}

/* One core reading a buffer that no cache holds: ref is no measure of speed, but has its roof. */
static gm_status ref_roof(gm_backend *be, uint64_t size, gm_roof *out, gm_err *err)
{
    (void)be, (void)size;
    const size_t n = (size_t)1 << 23;
    uint64_t *words = NULL;
    *out = (gm_roof){0};
    GM_TRY(gm_mem_alloc(&words, n, sizeof *words, "the roof", err));
    memset(words, 1, n * sizeof *words);
    const double start = gm_clock_s();
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += words[i];
    out->read_bytes_s = (double)(n * sizeof *words) / (gm_clock_s() - start);
    words[0] = sum; /* so that the loop is not left out */
    gm_mem_free(words);
    return GM_OK;
}

static gm_status alloc_scratch(gm_exec *ex, gm_err *err)
{
    const gm_plan *const p = ex->plan;
    const gm_kv_desc *const kv = ex->kv ? &ex->kv->slots.desc : NULL;
    uint64_t rows = ex->bucket.rows > ex->bucket.outs ? ex->bucket.rows : ex->bucket.outs;
    uint64_t widest = GM_ACT_BLOCK, ffn = 1, vocab = 1;
    for (gm_val v = 1; v < p->n_vals; v++) {
        const uint64_t cols = p->vals[v].cols;
        const gm_opkind maker = p->ops[p->vals[v].op].kind;
        if (cols > widest) widest = cols;
        if (maker == GM_OP_GATE_UP_GELU && cols > ffn) ffn = cols;
        if (maker == GM_OP_DRAW) vocab = p->vals[p->ops[p->vals[v].op].in[0]].cols;
    }
    const uint64_t positions = kv ? (uint64_t)kv->table_len * GM_PAGE_LEN : 1;
    GM_TRY(gm_mem_alloc(&ex->expanded, widest, sizeof *ex->expanded, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->wide, rows * ffn, sizeof *ex->wide, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->acc, widest, sizeof *ex->acc, "scratch", err));
    const uint64_t rows8 = rows * GM_ACT_INT8_TWICE;
    GM_TRY(gm_mem_alloc(&ex->act8.q, rows8 * widest, 1, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->act8.scale, rows8 * (widest / GM_ACT_BLOCK + 1),
                        sizeof *ex->act8.scale, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->rest, widest, sizeof *ex->rest, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->scores, positions, sizeof *ex->scores, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->mix, 2 * widest, sizeof *ex->mix, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->draw.adjusted, vocab, sizeof *ex->draw.adjusted, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->draw.order, vocab, sizeof *ex->draw.order, "scratch", err));
    GM_TRY(gm_mem_alloc(&ex->out, ex->bucket.outs, sizeof *ex->out, "results", err));
    return gm_mem_alloc(&ex->top, (size_t)ex->bucket.outs * GM_TOP_MAX, sizeof *ex->top, "results",
                        err);
}

static void ref_drop(gm_exec *ex)
{
    if (!ex) return;
    gm_values_deinit(&ex->values);
    gm_mem_free(ex->expanded);
    gm_mem_free(ex->wide);
    gm_mem_free(ex->acc);
    gm_mem_free(ex->act8.q);
    gm_mem_free(ex->act8.scale);
    gm_mem_free(ex->rest);
    gm_mem_free(ex->scores);
    gm_mem_free(ex->mix);
    gm_mem_free(ex->draw.adjusted);
    gm_mem_free(ex->draw.order);
    gm_mem_free(ex->out);
    gm_mem_free(ex->top);
    gm_mem_free(ex);
}

static gm_status ref_lower(gm_backend *be, gm_wset *w, gm_kvmem *kv, const gm_plan *p,
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
    gm_status status = gm_values_init(&ex->values, p, bucket, err);
    if (status == GM_OK) status = alloc_scratch(ex, err);
    if (status == GM_OK)
        *out = ex;
    else
        ref_drop(ex);
    return status;
}

static gm_status ref_run(gm_exec *ex, const gm_step *s, gm_ticket *t, gm_err *err)
{
    GM_TRY(gm_step_check(s, ex->bucket.rows, ex->bucket.outs, err));
    return gm_tickets_put(&ex->be->tickets, ex, s, t, err);
}

/* One step, top to bottom. */
static gm_status compute(gm_exec *ex, const gm_step *s, gm_err *err)
{
    ex->step = s;
    if (ex->kv) GM_TRY(gm_ref_kv_apply(ex->kv, s, err));
    for (uint32_t i = 0; i < s->n_outs; i++)
        ex->out[i] = (gm_result_out){.token = -1};
    for (size_t i = 0; i < ex->plan->n_ops; i++) {
        /* Outputs come after the draw, which a slot remembers: then the step is as good as done. */
        const bool done = ex->plan->ops[i].kind == GM_OP_OUTPUT;
        if (!done && ex->be->abandon && atomic_load(ex->be->abandon))
            return gm_fail(err, GM_E_CANCEL, 0, "the step was abandoned");
        GM_TRY(gm_ref_op(ex, &ex->plan->ops[i], err));
    }
    return GM_OK;
}

static gm_status ref_wait(gm_backend *be, gm_ticket t, gm_result *r, gm_err *err)
{
    gm_exec *ex = NULL;
    const gm_step *s = NULL;
    *r = (gm_result){0};
    GM_TRY(gm_tickets_take(&be->tickets, t, &ex, &s, err));
    GM_TRY(compute(ex, s, err));
    *r = (gm_result){s->n_outs, ex->out, ex->values.taps};
    return GM_OK;
}

#define REF_ENTRIES                                                                                \
    .device_at = gm_backend_no_device_at, .close = ref_close, .describe = ref_describe,            \
    .kernels = gm_backend_no_kernels, .cost = ref_cost, .roof = ref_roof,                          \
    .size_of = gm_mapped_size_of, .load = gm_mapped_load, .unload = gm_mapped_unload,              \
    .kv_size_of = gm_ref_kv_size_of, .kv_open = gm_ref_kv_open, .kv_close = gm_ref_kv_close,       \
    .kv_page_size = gm_ref_kv_page_size, .kv_copy = gm_ref_kv_copy, .tune = gm_backend_no_tune,    \
    .profile = gm_backend_no_profile, .exec_size_of = gm_backend_no_exec_size, .lower = ref_lower, \
    .drop = ref_drop, .run = ref_run, .wait = ref_wait

const gm_backend_ops gm_backend_ref = {
    .name = "ref",
    .about = "scalar C, exact: the oracle",
    .open = ref_open,
    REF_ENTRIES,
};

const gm_backend_ops gm_backend_ref_int8 = {
    .name = "ref-int8",
    .about = "scalar C with int8 activations: what fast kernels must equal",
    .open = ref_int8_open,
    REF_ENTRIES,
};
