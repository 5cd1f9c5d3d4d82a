/* SPDX-License-Identifier: MIT */
#include "engine/place.h"

#include <inttypes.h>

#include "sample/sampler.h"

/* A request's context where nobody says: enough for a chat, small enough for any machine. */
#define DEFAULT_CTX 4096u
#define MAX_SLOTS   1024u

/* What the options come to for this model. */
typedef struct wish {
    gm_runner_cfg cfg;
    uint32_t n_ctx, n_slots;
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
    *w = (wish){.cfg = {.backend = o->backend,
                        .be = {.n_threads = o->n_threads, .isa = o->isa, .device = o->device},
                        .kv = {.n_layer = c->n_layer,
                               .layer_class = c->layer_class,
                               .n_kv_head = c->n_kv_head,
                               .head_dim = c->head_dim,
                               .n_vocab = gm_vocab_len(m->vocab),
                               .max_bias = GM_SAMPLER_MAX_BIAS}}};
    const gm_qtype_info *type = NULL;
    GM_TRY(read_sizes(w, m, o, err));
    GM_TRY(gm_place_kv_type(o, &type, err));
    w->cfg.kv.type = type->id;
    return GM_OK;
}

/* The pool that the wish comes to, and its numbers in the KV memory's description. */
static void plan_pool(gm_kvpool *pool, wish *w, const gm_model *m)
{
    gm_kvpool_plan(pool, w->n_slots, w->n_ctx, m->config.window, GM_RUNNER_ROWS);
    w->cfg.kv.n_slots = w->n_slots;
    w->cfg.kv.table_len = pool->table_len;
    for (int c = 0; c < GM_CLASSES; c++)
        w->cfg.kv.n_pages[c] = pool->n_pages[c];
}

gm_status gm_place_init(gm_place *p, const gm_model *m, const gm_engine_opts *opts,
                        const atomic_int *abandon, gm_err *err)
{
    wish w;
    GM_TRY(read_wish(&w, m, opts, err));
    p->model = m;
    p->n_ctx = w.n_ctx;
    p->n_slots = w.n_slots;
    plan_pool(&p->pool, &w, m);
    GM_TRY(gm_kvpool_init(&p->pool, &p->arena, err));
    w.cfg.be.abandon = abandon;
    return gm_runner_init(&p->runner, m, &w.cfg, err);
}

void gm_place_deinit(gm_place *p)
{
    gm_runner_deinit(&p->runner);
    gm_arena_deinit(&p->arena);
    *p = (gm_place){0};
}

gm_status gm_place_step(const gm_place *p, gm_step **out, gm_err *err)
{
    const uint32_t pages = GM_RUNNER_ROWS / GM_PAGE_LEN + 2 * p->n_slots;
    const gm_step_limits limits = {
        .rows = GM_RUNNER_ROWS,
        .segs = p->n_slots,
        .outs = p->n_slots,
        /* pages taken and given back, and whole tables that are shared */
        .edits = (pages * 2 + p->n_slots * p->pool.table_len) * GM_CLASSES,
        .copies = p->n_slots * GM_CLASSES,
        .sets = p->n_slots,
        .biases = p->n_slots * GM_SAMPLER_MAX_BIAS,
        .counts = GM_RUNNER_ROWS + p->n_ctx,
    };
    return gm_step_alloc(out, &limits, err);
}

gm_status gm_place_kv_size(const gm_model *m, const gm_engine_opts *opts, uint64_t *bytes,
                           gm_err *err)
{
    wish w;
    gm_kvpool pool = {0};
    *bytes = 0;
    GM_TRY(read_wish(&w, m, opts, err));
    plan_pool(&pool, &w, m);
    const gm_backend_ops *const ops = gm_backend_find(opts->backend ? opts->backend : "auto");
    if (!ops) return gm_fail(err, GM_E_ARG, 0, "backend: there is no %s", opts->backend);
    return ops->kv_size_of(&w.cfg.kv, bytes, err);
}
