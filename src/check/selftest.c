/* SPDX-License-Identifier: MIT */
/* A driver's compiler may be wrong where ours and the hardware are right, and only on that machine.
 * So every kernel can be tried there: each main case of the op table is computed by the reference
 * once and by the device in steps of each size, because sizes have kernels of their own.
 *
 * Before an engine uses a device the same is done for the types of its model, with two sizes and the
 * ops that stand for the others: a layer has all kernels of a layer. What was right is remembered as
 * two sets of types, and only what is not in them is tried; what was wrong is tried again each time,
 * since nothing is lost by it. */

#include "check/selftest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/keptfile.h"
#include "check/opcheck.h"

#define SEED       20260711u
#define ROWS       128u /* of cases whose rows are nobody's business but ours    */
#define FEW_ROWS   8u
#define EXACT_ROWS 64u  /* a step of more need not have the bits of one of few    */
#define HALF_BOUND 4e-3 /* of products of float16; gate and up are two          */
#define FAR_STEPS  64u  /* cases of many rows are not cut into steps of few        */

/* Types of weights, and of KV caches: a bit each. */
typedef struct types {
    uint64_t weights, caches;
} types;

typedef struct walk {
    const gm_backend_ops *ops;
    gm_backend *be;
    types types;
    bool few; /* what stands for the rest */
    int (*row)(void *ctx, const gm_selftest_row *row);
    void *ctx;
    gm_progress_fn progress;
    void *progress_ctx;
} walk;

static uint64_t bit(gm_qtype type)
{
    return UINT64_C(1) << (uint32_t)type;
}

/* Whether the op's numbers are those of a KV cache. */
static bool is_cache(const gm_opcase *c)
{
    return c->kind == GM_OP_ATTEND && !c->layer;
}

/* Rows that look back past a split of attention, which need to be many. */
static bool is_far(const gm_opcase *c)
{
    return c->rows > ROWS;
}

static bool is_few(const gm_opcase *c)
{
    return c->layer || c->kind == GM_OP_INPUT_ROWS || c->kind == GM_OP_MATMUL ||
           c->kind == GM_OP_DRAW || (is_cache(c) && !is_far(c));
}

/* Layers with heads of 256 are there for attention, whatever their weights are. */
static bool is_wanted(const walk *w, const gm_opcase *c)
{
    const bool typed = (c->layer && c->head_dim < 256) || c->kind == GM_OP_INPUT_ROWS ||
                       c->kind == GM_OP_MATMUL || c->kind == GM_OP_GATE_UP_GELU;
    if (w->few && !is_few(c)) return false;
    if (is_cache(c)) return w->types.caches & bit(c->type);
    return !typed || w->types.weights & bit(c->type);
}

/* A GPU adds in another order than ref-int8 (t_vk_ops says how), and the products and attention of
 * many rows may be of float16 (docs/VULKAN.md, "Numerics"). */
static double bound_of(const gm_opcase *c, uint32_t rows)
{
    const bool product = c->kind == GM_OP_MATMUL || c->kind == GM_OP_GATE_UP_GELU;
    const bool halves = product || c->layer || c->kind == GM_OP_ATTEND;
    if (rows > EXACT_ROWS && halves) return fmax(c->bound, HALF_BOUND);
    return product ? fmax(c->bound, 2e-6) : c->bound;
}

/* Products of float16 activations are nearer to ref than to what int8 gives; a layer's bound, which is
 * for values that int8 rounds the other way, holds for both. */
static void judge_halves(const walk *w, gm_opcase *c)
{
    const bool product = c->kind == GM_OP_MATMUL || c->kind == GM_OP_GATE_UP_GELU;
    gm_backend_facts facts;
    w->ops->describe(w->be, &facts);
    if (!product || !gm_qtype_find((uint32_t)c->type)->unpack) return;
    if (!facts.half_cols || c->n_in % facts.half_cols) return;
    c->reference = "ref";
    c->bound = c->kind == GM_OP_GATE_UP_GELU ? 2 * HALF_BOUND : HALF_BOUND;
}

static bool is_fatal(gm_status status)
{
    return status == GM_E_LOST || status == GM_E_NOMEM;
}

/* One op in steps of so many rows. That it is wrong, or cannot be run, is for the row to say. */
static gm_status try_step(const walk *w, gm_opcheck *o, const gm_opcase *c, uint32_t rows,
                          gm_err *err)
{
    gm_err why = {0};
    gm_strbuf kernels = {0};
    gm_opcheck_result r = {0};
    const gm_opcheck_target target = {.ops = w->ops, .be = w->be, .chunk = rows};
    const gm_status status = gm_opcheck_run(o, &target, &r, &why);
    if (is_fatal(status)) return gm_fail(err, status, why.os, "%s", why.msg);
    w->ops->kernels(w->be, &kernels);
    const gm_selftest_row row = {
        .op = gm_opcase_name(c),
        .type = gm_qtype_name((uint32_t)c->type),
        .rows = rows,
        .kernels = kernels.p ? kernels.p : "",
        .worst = status == GM_OK ? r.worst : INFINITY,
        .bound = bound_of(c, rows),
        .ok = status == GM_OK && (r.passed || r.worst <= bound_of(c, rows)),
        .why = why.msg,
    };
    const bool stop = w->row(w->ctx, &row) != 0;
    gm_strbuf_deinit(&kernels);
    return stop ? gm_fail(err, GM_E_CANCEL, 0, "selftest: cancelled") : GM_OK;
}

static gm_status try_case(const walk *w, gm_opcase c, gm_err *err)
{
    const bool far = is_far(&c);
    gm_opcheck *o = NULL;
    gm_status status = GM_OK;
    if (!far) c.rows = w->few ? FEW_ROWS : ROWS;
    judge_halves(w, &c);
    GM_TRY(gm_opcheck_open(&o, &c, SEED, err));
    for (uint32_t rows = far ? FAR_STEPS : 1; rows <= c.rows && rows <= ROWS && status == GM_OK;
         rows *= w->few ? FEW_ROWS : 2)
        status = try_step(w, o, &c, rows, err);
    gm_opcheck_close(o);
    return status;
}

static gm_status walk_table(const walk *w, gm_err *err)
{
    gm_opcase c;
    uint64_t done = 0, total = 0;
    for (size_t i = 0; gm_opcase_main(i, &c); i++)
        total += is_wanted(w, &c);
    for (size_t i = 0; gm_opcase_main(i, &c); i++) {
        if (!is_wanted(w, &c)) continue;
        if (w->progress && w->progress(w->progress_ctx, done++, total) != 0)
            return gm_fail(err, GM_E_CANCEL, 0, "selftest: cancelled");
        GM_TRY(try_case(w, c, err));
    }
    return GM_OK;
}

/* ---- what an engine wants to know ---------------------------------------------------------- */

typedef struct verdict {
    gm_err wrong; /* the first row that is; cancelled, too */
    const gm_progress *progress;
    uint64_t done, total; /* ops */
} verdict;

static int tell_ops(void *ctx, uint64_t done, uint64_t total)
{
    verdict *const v = ctx;
    const gm_progress *const to = v->progress;
    v->done = done;
    v->total = total;
    if (!to->tell || to->tell(to->ctx, done, total)) return 0;
    gm_fail(&v->wrong, GM_E_CANCEL, 0, "selftest: cancelled");
    return 1;
}

/* Ends at the first row that is wrong. */
static int judge(void *ctx, const gm_selftest_row *row)
{
    verdict *const v = ctx;
    gm_err *const err = &v->wrong;
    if (row->ok) return tell_ops(v, v->done, v->total);
    if (row->why[0])
        gm_fail(err, GM_E_UNSUP, 0, "selftest: %s of %s cannot be run: %s", row->op, row->type,
                row->why);
    else
        gm_fail(err, GM_E_UNSUP, 0,
                "selftest: %s of %s in steps of %" PRIu32
                " rows is wrong with this driver: it differs by %.2g from the reference, expected "
                "at most %.2g (gemmule selftest shows all)",
                row->op, row->type, row->rows, row->worst, row->bound);
    return 1;
}

static types types_of(const gm_selftest_wish *wish)
{
    types t = {.caches = bit(wish->kv_type)};
    for (uint32_t i = 0; i < wish->weights->n; i++) {
        const gm_tensor *const w = &wish->weights->at[i];
        if (w->n_dims > 1) t.weights |= bit(w->type->id);
    }
    return t;
}

static types read_trusted(const char *path, uint64_t key, const gm_note *note)
{
    types t = {0};
    gm_keptfile file = {0};
    const char *const wrong = gm_keptfile_open(&file, path, key);
    if (wrong)
        gm_note_tell(note, "%.300s %s: %s", path, unlink(path) == 0 ? "was dropped" : "is not used",
                     wrong);
    if (file.size == sizeof t) memcpy(&t, file.data, sizeof t);
    gm_keptfile_close(&file);
    return t;
}

static gm_status trust(const gm_backend_ops *ops, gm_backend *be, const gm_selftest_wish *wish,
                       const char *path, uint64_t key, gm_err *err)
{
    verdict v = {.progress = &wish->progress};
    gm_backend_facts facts;
    const types all = types_of(wish);
    types had = {0};
    if (path) had = read_trusted(path, key, &wish->note);
    const types left = {all.weights & ~had.weights, all.caches & ~had.caches};
    if (!left.weights && !left.caches) return GM_OK;
    ops->describe(be, &facts);
    if (path) mkdir(wish->dir, 0700); /* a failure shows when the file is written */
    gm_note_tell(&wish->begins, "%s: kernels are compiled and checked%s",
                 facts.device ? facts.device : facts.id,
                 path && access(wish->dir, W_OK) == 0 ? ", this once" : "");
    const walk w = {.ops = ops,
                    .be = be,
                    .types = left,
                    .few = true,
                    .row = judge,
                    .ctx = &v,
                    .progress = tell_ops,
                    .progress_ctx = &v};
    const gm_status status = walk_table(&w, err);
    if (status == GM_E_CANCEL) return gm_fail(err, v.wrong.code, 0, "%s", v.wrong.msg);
    GM_TRY(status);
    const types now = {all.weights | had.weights, all.caches | had.caches};
    if (!path) return GM_OK;
    const int os = gm_keptfile_write(path, key, &now, sizeof now);
    if (os) gm_note_tell(&wish->note, "%.300s was not written: %s", path, strerror(os));
    return GM_OK;
}

gm_status gm_selftest_trust(const gm_backend_ops *ops, gm_backend *be, const gm_selftest_wish *wish,
                            gm_err *err)
{
    gm_backend_facts facts;
    gm_strbuf path = {0};
    ops->describe(be, &facts);
    if (!facts.id) return GM_OK;
    gm_strbuf_printf(&path, "%s/%s.selftest", wish->dir ? wish->dir : "", facts.id);
    gm_status status = gm_strbuf_status(&path, err);
    if (status == GM_OK) status = trust(ops, be, wish, wish->dir ? path.p : NULL, facts.key, err);
    gm_strbuf_deinit(&path);
    return status;
}

/* ---- what a user wants to see -------------------------------------------------------------- */

gm_selftest_opts gm_selftest_opts_default(void)
{
    return (gm_selftest_opts){.size = sizeof(gm_selftest_opts)};
}

typedef struct report {
    const gm_selftest_opts *opts;
    gm_selftest_result *result;
} report;

static int count_row(void *ctx, const gm_selftest_row *row)
{
    const report *const r = ctx;
    r->result->n++;
    r->result->n_failed += !row->ok;
    return r->opts->row ? r->opts->row(r->opts->row_ctx, row) : 0;
}

static gm_status read_type(const char *name, types *out, gm_err *err)
{
    *out = (types){UINT64_MAX, UINT64_MAX};
    if (!name) return GM_OK;
    const gm_qtype_info *const t = gm_qtype_find_name(gm_str_c(name));
    if (!t) return gm_fail(err, GM_E_ARG, 0, "selftest: there is no type %.40s", name);
    *out = (types){bit(t->id), bit(t->id)};
    return GM_OK;
}

gm_status gm_selftest_run(const gm_selftest_opts *opts, gm_selftest_result *out, gm_err *err)
{
    gm_selftest_opts o = gm_selftest_opts_default();
    memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    const gm_engine_opts *const e = &o.engine;
    const bool automatic = !e->backend || strcmp(e->backend, "auto") == 0;
    const gm_backend_cfg cfg = {.n_threads = e->n_threads,
                                .isa = e->isa,
                                .device = e->device,
                                .dir = e->device_dir,
                                .exact = e->exact,
                                .untuned = e->untuned,
                                .note = {e->verbose ? e->note : NULL, e->note_ctx}};
    gm_selftest_result full = {.size = out->size};
    report r = {&o, &full};
    walk w = {.ops = gm_backend_find(automatic ? "vulkan" : e->backend),
              .row = count_row,
              .ctx = &r,
              .progress = e->progress,
              .progress_ctx = e->progress_ctx};
    if (!w.ops) return gm_fail(err, GM_E_ARG, 0, "backend: there is no %.40s", e->backend);
    GM_TRY(read_type(o.type, &w.types, err));
    GM_TRY(w.ops->open(&w.be, &cfg, err));
    gm_backend_facts facts;
    w.ops->describe(w.be, &facts);
    snprintf(full.device, sizeof full.device, "%s", facts.device ? facts.device : "");
    const gm_status status = walk_table(&w, err);
    w.ops->close(w.be);
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return status;
}
