/* SPDX-License-Identifier: MIT */
#include "engine/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check/selftest.h"
#include "sample/sampler.h"

/* A request's context where nobody says: enough for a chat, small enough for any machine. */
#define DEFAULT_CTX 4096u
#define MAX_SLOTS   1024u
#define MAX_THREADS 1024u
#define MAX_SEQS    65536u /* contexts that a pool may have pages for */
#define TRIAL_S     3.0    /* what is begun by then is finished       */
#define TRIAL_WAYS  8u

/* What the options come to for this model. */
typedef struct wish {
    gm_runner_cfg cfg;
    uint32_t n_ctx, n_slots;
    bool trusted; /* the device's kernels were tried already */
    gm_note note; /* of what everybody is told, and not -v alone */
} wish;

static gm_status read_sizes(wish *w, const gm_model *m, const gm_engine_opts *o, gm_err *err)
{
    const uint32_t n_ctx = m->config.n_ctx;
    w->n_ctx = o->n_ctx ? o->n_ctx : n_ctx < DEFAULT_CTX ? n_ctx : DEFAULT_CTX;
    w->n_slots = o->n_slots ? o->n_slots : 1;
    if (w->n_ctx > n_ctx || w->n_ctx < 2) {
        return gm_fail(err, GM_E_ARG, 0,
                       "context: %" PRIu32 " positions, expected 2 to the model's %" PRIu32,
                       w->n_ctx, n_ctx);
    }
    if (w->n_slots > MAX_SLOTS) {
        return gm_fail(err, GM_E_ARG, 0,
                       "engine: %" PRIu32 " requests at once, expected at most %" PRIu32,
                       w->n_slots, MAX_SLOTS);
    }
    if (o->n_threads > MAX_THREADS) {
        return gm_fail(err, GM_E_ARG, 0, "engine: %" PRIu32 " threads, expected at most %" PRIu32,
                       o->n_threads, MAX_THREADS);
    }
    return GM_OK;
}

gm_status gm_place_kv_type(const gm_engine_opts *opts, const gm_qtype_info **type, gm_err *err)
{
    const gm_backend_ops *const ops = gm_backend_find(opts->backend ? opts->backend : "auto");
    const char *const name =
        opts->kv_type ? opts->kv_type : gm_qtype_name(ops ? ops->kv_type : GM_QTYPE_F16);
    const gm_qtype_info *const t = gm_qtype_find_name(gm_str_c(name));
    if (!t || (t->id != GM_QTYPE_F32 && t->id != GM_QTYPE_F16 && t->id != GM_QTYPE_Q8_0)) {
        return gm_fail(err, GM_E_ARG, 0, "engine: a KV cache of %.40s, expected f32, f16 or q8_0",
                       name);
    }
    *type = t;
    return GM_OK;
}

static gm_status read_wish(wish *w, const gm_model *m, const gm_engine_opts *o, gm_err *err)
{
    const gm_config *const c = &m->config;
    *w = (wish){.note = {o->note, o->note_ctx},
                .cfg = {.backend = o->backend,
                        .plan = &m->plan,
                        .be = {.n_threads = o->n_threads,
                               .isa = o->isa,
                               .device = o->device,
                               .dir = o->device_dir,
                               .exact = o->exact,
                               .untuned = o->untuned,
                               .choices = o->choices,
                               .note = {o->verbose ? o->note : NULL, o->note_ctx}},
                        .kv = {.n_layer = c->n_layer,
                               .layer_class = c->layer_class,
                               .n_kv_head = c->n_kv_head,
                               .head_dim = c->head_dim,
                               .n_vocab = gm_vocab_len(m->vocab),
                               .max_bias = GM_SAMPLER_SLOT_BIAS}}};
    const gm_qtype_info *type = NULL;
    GM_TRY(read_sizes(w, m, o, err));
    GM_TRY(gm_place_kv_type(o, &type, err));
    w->cfg.kv.type = type->id;
    w->cfg.most = (gm_bucket){GM_RUNNER_ROWS, w->n_slots + GM_RUNNER_OUTS};
    return GM_OK;
}

/* A pool for so many sequences of a whole context, and its numbers in the KV memory's description. */
static void plan_pool(gm_kvpool *pool, wish *w, const gm_model *m, uint32_t n_seqs)
{
    gm_kvpool_plan(pool, n_seqs, w->n_ctx, m->config.window, w->cfg.most.rows);
    w->cfg.kv.n_slots = w->n_slots;
    w->cfg.kv.table_len = pool->table_len;
    for (int c = 0; c < GM_CLASSES; c++)
        w->cfg.kv.n_pages[c] = pool->n_pages[c];
}

/* From the user's words to the contract's. */
static bool tell(void *ctx, uint64_t done, uint64_t total)
{
    const gm_engine_opts *const o = ctx;
    return !o->progress || o->progress(o->progress_ctx, done, total) == 0;
}

typedef struct checking {
    gm_engine_opts *opts;
    uint64_t size; /* of the weights */
} checking;

/* Who does not ask for it hears that nothing of the weights is there yet. */
static bool tell_checking(void *ctx, uint64_t done, uint64_t total)
{
    const checking *const c = ctx;
    const gm_engine_opts *const o = c->opts;
    if (!o->checking) return tell(c->opts, 0, c->size);
    return o->checking(o->progress_ctx, done, total) == 0;
}

static bool tell_trying(void *ctx, uint64_t done, uint64_t total)
{
    const gm_engine_opts *const o = ctx;
    return !o->trying || o->trying(o->progress_ctx, done, total) == 0;
}

/* What a step's values take at most: a plan's values that are alive together are at most a few of
 * each shape. */
static uint64_t scratch_size(const gm_plan *p, gm_bucket most)
{
    uint64_t size = 0;
    for (size_t i = 1; i < p->n_vals; i++) {
        uint32_t alike = 0;
        for (size_t k = 1; k < i && alike < 3; k++)
            alike += p->vals[k].rows == p->vals[i].rows && p->vals[k].cols == p->vals[i].cols;
        const uint32_t rows = p->vals[i].rows == GM_ROWS_ALL ? most.rows : most.outs;
        if (alike < 3) size += (uint64_t)rows * p->vals[i].cols * sizeof(float);
    }
    return size;
}

/* Penalty counts, a row of the vocabulary for each slot: with 262144 tokens a megabyte. */
static uint64_t counts_size(const wish *w)
{
    return (uint64_t)w->n_slots * w->cfg.kv.n_vocab * sizeof(gm_draw_count);
}

/* The pool that the wish comes to: for as many sequences as run at once, or as large as the memory
 * allows, which may be more (for the cache) or fewer (some then wait), but one at least. */
static gm_status size_pool(gm_kvpool *pool, wish *w, const gm_model *m, const gm_engine_opts *o,
                           gm_err *err)
{
    const gm_backend_ops *const ops = gm_backend_find(o->backend ? o->backend : "auto");
    plan_pool(pool, w, m, w->n_slots);
    if (!o->memory || !ops) return GM_OK;
    uint64_t fixed = scratch_size(&m->plan, (gm_bucket){GM_RUNNER_ROWS, w->cfg.most.outs}), kv = 0;
    fixed += counts_size(w);
    for (uint32_t i = 0; i < m->plan.weights.n; i++)
        fixed += m->plan.weights.at[i].size;
    uint32_t low = 0, high = MAX_SEQS; /* low fits, high does not */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        plan_pool(pool, w, m, middle);
        const bool fits = ops->kv_size_of(&w->cfg.kv, &kv, NULL) == GM_OK && fixed < o->memory &&
                          kv <= o->memory - fixed;
        *(fits ? &low : &high) = middle;
    }
    plan_pool(pool, w, m, low ? low : 1);
    if (low) return GM_OK;
    GM_TRY(ops->kv_size_of(&w->cfg.kv, &kv, err));
    return gm_fail(err, GM_E_TOOBIG, 0,
                   "memory: %" PRIu64 " MB are allowed, and weights and scratch take %" PRIu64
                   ", the KV cache of one request of %" PRIu32 " tokens %" PRIu64,
                   o->memory / 1000000, fixed / 1000000, w->n_ctx, kv / 1000000);
}

/* ---- memory of a device ---------------------------------------------------------------- */

/* What a model needs on a device of its own. */
typedef struct need {
    uint64_t weights, scratch, kv;
} need;

static gm_status find_need(const gm_runner *r, const gm_model *m, const wish *w, need *n,
                           gm_err *err)
{
    GM_TRY(r->ops->size_of(r->be, &m->plan.weights, &n->weights, err));
    GM_TRY(r->ops->kv_size_of(&w->cfg.kv, &n->kv, err));
    n->kv += counts_size(w);
    return r->ops->exec_size_of(r->be, w->cfg.plan, &w->cfg.kv, w->cfg.most, &n->scratch, err);
}

/* The longest context, in powers of two, with which one request would have room; 0: none. */
static uint32_t largest_ctx(const gm_runner *r, const gm_model *m, wish w, uint64_t room)
{
    gm_kvpool pool = {0};
    need n = {0};
    w.n_slots = 1;
    for (w.n_ctx = 1u << 20; w.n_ctx >= 256; w.n_ctx /= 2) {
        if (w.n_ctx > m->config.n_ctx) continue;
        plan_pool(&pool, &w, m, 1);
        if (find_need(r, m, &w, &n, NULL) == GM_OK && n.weights + n.scratch + n.kv <= room)
            return w.n_ctx;
    }
    return 0;
}

/* Whether all of it has room on the device that is open, before anything is taken there. */
static gm_status check_room(const gm_runner *r, const gm_model *m, const wish *w, gm_err *err)
{
    gm_backend_facts facts;
    need n = {0};
    r->ops->describe(r->be, &facts);
    if (facts.room == 0) return GM_OK;
    GM_TRY(find_need(r, m, w, &n, err));
    if (n.weights + n.scratch + n.kv <= facts.room) return GM_OK;
    const uint32_t ctx = largest_ctx(r, m, *w, facts.room);
    char fits[64] = "not even a short context would fit";
    if (ctx) snprintf(fits, sizeof fits, "one request of %" PRIu32 " tokens would fit", ctx);
    return gm_fail(err, GM_E_DEVMEM, 0,
                   "memory: %.60s has %" PRIu64 " MB free, and the weights take %" PRIu64
                   ", scratch %" PRIu64 ", the KV cache of %" PRIu32 " requests of %" PRIu32
                   " tokens %" PRIu64 "; %s",
                   facts.device, facts.room / 1000000, n.weights / 1000000, n.scratch / 1000000,
                   w->n_slots, w->n_ctx, n.kv / 1000000, fits);
}

/* Whether the device that is open computes what it should. */
static gm_status check_kernels(const gm_runner *r, const gm_model *m, const wish *w, gm_err *err)
{
    const gm_progress *const to = &w->cfg.progress;
    checking c = {.opts = to->ctx};
    if (w->trusted) return GM_OK;
    for (uint32_t i = 0; i < m->plan.weights.n; i++)
        c.size += m->plan.weights.at[i].size;
    const gm_selftest_wish asked = {.weights = &m->plan.weights,
                                    .kv_type = w->cfg.kv.type,
                                    .dir = w->cfg.be.dir,
                                    .note = w->cfg.be.note,
                                    .begins = w->note,
                                    .progress = {to->tell ? tell_checking : NULL, &c}};
    return gm_selftest_trust(r->ops, r->be, &asked, err);
}

/* Trying what is fastest: for a moment, and only where it can be kept and a GPU gains from it. */
static gm_tune_how first_trial(const gm_runner *r, const gm_engine_opts *o)
{
    gm_backend_facts facts;
    r->ops->describe(r->be, &facts);
    if (!facts.is_gpu || !o->device_dir || o->untuned || o->choices) return (gm_tune_how){0};
    return (gm_tune_how){
        .seconds = TRIAL_S, .max_ways = TRIAL_WAYS, .note = {o->note, o->note_ctx}};
}

/* ---- auto ------------------------------------------------------------------------------ */

static bool is_auto(const gm_engine_opts *o)
{
    return !o->backend || strcmp(o->backend, "auto") == 0;
}

/* Whether vulkan is what to take: the best device is a GPU, and all of it has room there. */
static gm_status try_gpu(gm_runner *r, const gm_model *m, const wish *w, const char **device,
                         gm_err *err)
{
    gm_runner_cfg cfg = w->cfg;
    gm_backend_facts facts;
    cfg.backend = "vulkan";
    cfg.be.choices = NULL; /* a file that is wrong is no reason to take the processor */
    if (cfg.be.isa)
        return gm_fail(err, GM_E_UNSUP, 0, "the instructions asked for are the processor's");
    if (cfg.plan->n_taps)
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: it gives no values from within the model");
    GM_TRY(gm_runner_open(r, &cfg, err));
    r->ops->describe(r->be, &facts);
    *device = facts.device;
    if (!facts.is_gpu) {
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %.100s is the processor, not a GPU",
                       facts.device);
    }
    GM_TRY(check_room(r, m, w, err));
    return check_kernels(r, m, w, err);
}

/* Makes "auto" a name; a device that is asked for is vulkan's, whatever it is. Nothing but being
 * cancelled fails. */
static gm_status choose_backend(wish *w, const gm_model *m, char why[GM_WHY_LEN], gm_err *err)
{
    gm_runner r = {0};
    gm_err no = {0};
    const char *device = "the device asked for";
    const bool gpu = w->cfg.be.device || try_gpu(&r, m, w, &device, &no) == GM_OK;
    w->trusted = gpu && !w->cfg.be.device;
    w->cfg.backend = gpu ? "vulkan" : "cpu";
    snprintf(why, GM_WHY_LEN, gpu ? "on %s" : "%s", gpu ? device : no.msg);
    gm_runner_deinit(&r);
    return no.code == GM_E_CANCEL ? gm_fail(err, no.code, 0, "%s", no.msg) : GM_OK;
}

const char *gm_backend_choose(const gm_model *m, const gm_engine_opts *opts, char why[GM_WHY_LEN])
{
    gm_engine_opts o = gm_engine_opts_default();
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    wish w;
    gm_kvpool pool;
    why[0] = '\0';
    if (!is_auto(&o)) return o.backend;
    if (read_wish(&w, m, &o, NULL) != GM_OK || size_pool(&pool, &w, m, &o, NULL) != GM_OK)
        return "cpu";
    choose_backend(&w, m, why, NULL); /* nobody is asked whether to go on */
    return w.cfg.backend;
}

/* ---- setting up ------------------------------------------------------------------------ */

/* The configuration as it can be kept. The device is the one that is open: what was the best of all
 * may be another one by the time it has to be opened again. */
static gm_status keep_cfg(gm_place *p, const gm_runner_cfg *cfg, gm_err *err)
{
    gm_backend_facts facts;
    p->runner.ops->describe(p->runner.be, &facts);
    p->cfg = *cfg;
    p->cfg.backend = p->runner.ops->name;
    p->cfg.progress = (gm_progress){0};
    const struct {
        const char *from, **to;
    } texts[] = {
        {cfg->be.isa, &p->cfg.be.isa},
        {cfg->be.device ? cfg->be.device : facts.device, &p->cfg.be.device},
        {cfg->be.choices, &p->cfg.be.choices},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].from)
            GM_TRY(gm_arena_copy(&p->arena, gm_str_c(texts[i].from), texts[i].to, err));
    }
    return GM_OK;
}

gm_status gm_place_init(gm_place *p, const gm_model *m, const gm_engine_opts *opts,
                        const gm_place_cfg *cfg, gm_err *err)
{
    wish w;
    GM_TRY(read_wish(&w, m, opts, err));
    if (cfg->plan) w.cfg.plan = cfg->plan;
    if (cfg->rows) w.cfg.most.rows = cfg->rows;
    if (cfg->outs) w.cfg.most.outs = cfg->outs;
    w.cfg.be.abandon = cfg->abandon;
    p->model = m;
    p->n_ctx = w.n_ctx;
    p->n_slots = w.n_slots;
    p->most = w.cfg.most;
    p->kv_type = w.cfg.kv.type;
    GM_TRY(size_pool(&p->pool, &w, m, opts, err));
    GM_TRY(gm_kvpool_init(&p->pool, &p->arena, err));
    gm_engine_opts listener = *opts;
    w.cfg.progress = (gm_progress){tell, &listener};
    if (is_auto(opts)) GM_TRY(choose_backend(&w, m, p->why, err));
    GM_TRY(gm_runner_open(&p->runner, &w.cfg, err));
    GM_TRY(keep_cfg(p, &w.cfg, err));
    GM_TRY(check_room(&p->runner, m, &w, err));
    GM_TRY(p->runner.ops->kv_size_of(&w.cfg.kv, &p->kv_size, err));
    GM_TRY(check_kernels(&p->runner, m, &w, err));
    w.cfg.tune = cfg->tune ? *cfg->tune : first_trial(&p->runner, opts);
    w.cfg.tune.progress = (gm_progress){tell_trying, &listener};
    if (opts->choices) w.cfg.tune.note = w.note;
    if (opts->choices && p->runner.ops->tune == gm_backend_no_tune)
        gm_note_tell(&w.note, "%.200s is not used: the %s backend has no kernels to choose from",
                     opts->choices, p->runner.ops->name);
    return gm_runner_load(&p->runner, m, &w.cfg, err);
}

gm_status gm_place_reopen(gm_place *p, const gm_progress *progress, gm_err *err)
{
    gm_runner_cfg cfg = p->cfg;
    cfg.progress = *progress;
    return gm_runner_reopen(&p->runner, &cfg, err);
}

void gm_place_deinit(gm_place *p)
{
    gm_runner_deinit(&p->runner);
    gm_arena_deinit(&p->arena);
    *p = (gm_place){0};
}

gm_status gm_place_step(const gm_place *p, gm_step **out, gm_err *err)
{
    const uint32_t pages = p->most.rows / GM_PAGE_LEN + 2 * p->n_slots;
    const gm_step_limits limits = {
        .rows = p->most.rows,
        .segs = p->n_slots,
        .outs = p->most.outs,
        /* pages taken and given back, and whole tables that are shared */
        .edits = (pages * 2 + p->n_slots * p->pool.table_len) * GM_CLASSES,
        .copies = p->n_slots * GM_CLASSES,
        .sets = p->n_slots,
        .biases = p->n_slots * GM_SAMPLER_SLOT_BIAS,
        .counts = p->most.rows + p->n_ctx,
    };
    return gm_step_alloc(out, &limits, err);
}

bool gm_place_put_rows(const gm_place *p, gm_step *s, uint32_t slot, const int32_t *ids,
                       uint32_t pos, uint32_t n)
{
    if (!gm_step_put_seg(s, &(gm_step_seg){slot, s->n_rows, n})) return false;
    for (uint32_t i = 0; i < n; i++) {
        gm_step_row row = {.kind = ids ? GM_ROW_ID : GM_ROW_LAST, .slot = slot, .pos = pos + i};
        if (ids) row.src = (uint32_t)ids[i];
        gm_kvpool_visible(&p->pool, &row);
        if (!gm_step_put_row(s, &row)) return false;
    }
    return true;
}

gm_status gm_place_kv_size(const gm_model *m, const gm_engine_opts *opts, uint64_t *bytes,
                           gm_err *err)
{
    wish w;
    gm_kvpool pool = {0};
    *bytes = 0;
    GM_TRY(read_wish(&w, m, opts, err));
    GM_TRY(size_pool(&pool, &w, m, opts, err));
    const gm_backend_ops *const ops = gm_backend_find(opts->backend ? opts->backend : "auto");
    if (!ops) return gm_fail(err, GM_E_ARG, 0, "backend: there is no %s", opts->backend);
    return ops->kv_size_of(&w.cfg.kv, bytes, err);
}
