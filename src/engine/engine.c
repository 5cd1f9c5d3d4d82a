/* SPDX-License-Identifier: MIT */
#include "engine/engine.h"

#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sample/sampler.h"

/* ---- one turn -------------------------------------------------------------------------- */

/* Frees the sequence's place; the client sees the end or the failure that was put before. */
static void let_go(gm_engine *e, gm_request *r)
{
    gm_kvpool_release(&e->pool, &r->table);
    e->slot[r->slot] = NULL;
    e->n_active--;
    r->let_go = true;
    pthread_cond_signal(&r->news);
}

/* Requests that were cancelled leave the queue; others take free slots in order. */
static void admit(gm_engine *e)
{
    for (gm_request **at = &e->queue; *at;) {
        gm_request *const r = *at;
        uint32_t slot = 0;
        while (slot < e->n_slots && e->slot[slot])
            slot++;
        if (atomic_load(&r->cancelled)) {
            gm_seq_end(r, GM_END_CANCEL);
            r->let_go = true;
        } else if (slot < e->n_slots) {
            r->slot = slot;
            r->start_s = gm_clock_s(); /* waiting in the queue is no work */
            e->slot[slot] = r;
            e->n_active++;
        } else {
            at = &r->next;
            continue;
        }
        *at = r->next;
    }
}

/* Clients -> sequences. */
static void take_requests(gm_engine *e)
{
    atomic_store(&e->abandon, 0);
    for (uint32_t i = 0; i < e->n_slots; i++) {
        gm_request *const r = e->slot[i];
        if (!r || !atomic_load(&r->cancelled)) continue;
        gm_seq_end(r, GM_END_CANCEL);
        let_go(e, r);
    }
    admit(e);
}

/* Nothing can go on: waits for news. A cancel may come from a signal handler, which cannot wake
 * anybody, so sequences parked here are looked at again now and then. */
static void sleep_for_news(gm_engine *e)
{
    if (e->stopping) return;
    if (e->n_active == 0) {
        pthread_cond_wait(&e->wake, &e->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20 * 1000 * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&e->wake, &e->lock, &until);
}

/* Whose step it is: only a cancel of that request may end it early. One that came too early to see
 * this is seen here. */
static void set_sole(gm_engine *e)
{
    gm_request *const r = e->step->n_segs == 1 ? e->slot[gm_step_segs(e->step)->slot] : NULL;
    atomic_store(&e->sole, r);
    if (r && atomic_load(&r->cancelled)) atomic_store(&e->abandon, 1);
}

static gm_status run_step(gm_engine *e, gm_result *result, gm_err *err)
{
    gm_ticket ticket = 0;
    GM_TRY(gm_runner_submit(&e->runner, e->step, &ticket, err));
    return gm_runner_collect(&e->runner, ticket, result, err);
}

/* Results -> events. An abandoned step is made again for whoever was not cancelled; any other
 * failure ends the sequences that were in the step. */
static void deliver(gm_engine *e, gm_status status, const gm_result *result, const gm_err *err)
{
    for (uint32_t i = 0; i < e->n_slots; i++) {
        gm_request *const r = e->slot[i];
        if (!r || r->n_now == 0) continue;
        if (status == GM_OK) {
            r->n_done += r->n_now;
        } else if (status != GM_E_CANCEL) {
            gm_seq_fail(r, err);
            let_go(e, r);
        }
    }
    for (uint32_t i = 0; i < result->n_out; i++) {
        gm_request *const r = e->out_seq[i];
        const gm_result_out *const o = &result->out[i];
        const gm_seq_news news = {o->token, o->logprob, o->n_top, o->top, o->logits};
        const int32_t reason = gm_seq_token(r, e->model->vocab, &news);
        if (!reason) continue;
        gm_seq_end(r, reason);
        let_go(e, r);
    }
}

/* One turn of the engine thread. Read this first: it is the program in order. The lock is held
 * except while a step runs, so clients wait for a copy of an event at most. */
static void engine_turn(gm_engine *e)
{
    take_requests(e);        /* clients -> sequences   */
    if (!gm_sched_fill(e)) { /* sequences -> step      */
        sleep_for_news(e);
        return;
    }
    gm_result result = {0};
    gm_err err = {0};
    set_sole(e);
    pthread_mutex_unlock(&e->lock);
    const gm_status status = run_step(e, &result, &err); /* step -> tokens */
    pthread_mutex_lock(&e->lock);
    atomic_store(&e->sole, NULL);
    deliver(e, status, &result, &err); /* tokens -> text -> events */
}

static void *engine_main(void *arg)
{
    gm_engine *const e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->stopping)
        engine_turn(e);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------- */

gm_engine_opts gm_engine_opts_default(void)
{
    return (gm_engine_opts){.size = sizeof(gm_engine_opts)};
}

/* A request's context where nobody says: enough for a chat, small enough for any machine. */
#define DEFAULT_CTX 4096u
#define MAX_SLOTS   1024u

static gm_status read_opts(gm_engine *e, const gm_engine_opts *o, gm_err *err)
{
    const uint32_t n_ctx = e->model->config.n_ctx;
    e->n_ctx = o->n_ctx ? o->n_ctx : n_ctx < DEFAULT_CTX ? n_ctx : DEFAULT_CTX;
    e->n_slots = o->n_slots ? o->n_slots : 1;
    if (e->n_ctx > n_ctx || e->n_ctx < 2) {
        return gm_fail(err, GM_E_ARG, 0, "context: %u positions, expected 2 to the model's %u",
                       (unsigned)e->n_ctx, (unsigned)n_ctx);
    }
    if (e->n_slots > MAX_SLOTS) {
        return gm_fail(err, GM_E_ARG, 0, "engine: %u requests at once, expected at most %u",
                       (unsigned)e->n_slots, MAX_SLOTS);
    }
    return GM_OK;
}

static gm_status make_step(gm_engine *e, gm_err *err)
{
    const uint32_t pages = GM_RUNNER_ROWS / GM_PAGE_LEN + 2;
    const gm_step_limits limits = {
        .rows = GM_RUNNER_ROWS,
        .segs = e->n_slots,
        .outs = e->n_slots,
        .edits = e->n_slots * pages * 2 * GM_CLASSES, /* taken and given back */
        .sets = e->n_slots,
        .biases = e->n_slots * GM_SAMPLER_MAX_BIAS,
        .counts = GM_RUNNER_ROWS,
    };
    return gm_step_alloc(&e->step, &limits, err);
}

static gm_status make_runner(gm_engine *e, const char *backend, gm_err *err)
{
    const gm_config *const c = &e->model->config;
    gm_kvpool_plan(&e->pool, e->n_slots, e->n_ctx, c->window, GM_RUNNER_ROWS);
    GM_TRY(gm_kvpool_init(&e->pool, &e->arena, err));
    const gm_runner_cfg cfg = {
        .backend = backend,
        .be.abandon = &e->abandon,
        .kv = {.type = GM_QTYPE_F32,
               .n_layer = c->n_layer,
               .layer_class = c->layer_class,
               .n_kv_head = c->n_kv_head,
               .head_dim = c->head_dim,
               .n_vocab = gm_vocab_len(e->model->vocab),
               .n_slots = e->n_slots,
               .n_pages = {e->pool.n_pages[0], e->pool.n_pages[1]},
               .table_len = e->pool.table_len,
               .max_bias = GM_SAMPLER_MAX_BIAS},
    };
    return gm_runner_init(&e->runner, e->model, &cfg, err);
}

static gm_status engine_init(gm_engine *e, const gm_engine_opts *o, gm_err *err)
{
    GM_TRY(read_opts(e, o, err));
    GM_TRY(gm_arena_alloc(&e->arena, &e->slot, e->n_slots, sizeof *e->slot, "slots", err));
    GM_TRY(gm_arena_alloc(&e->arena, &e->out_seq, e->n_slots, sizeof *e->out_seq, "slots", err));
    GM_TRY(make_step(e, err));
    GM_TRY(make_runner(e, o->backend, err));
    const int os = pthread_create(&e->thread, NULL, engine_main, e);
    if (os) return gm_fail(err, GM_E_IO, os, "engine: a thread cannot be started");
    e->has_thread = true;
    return GM_OK;
}

gm_status gm_engine_open(gm_engine **out, const gm_model *m, const gm_engine_opts *opts,
                         gm_err *err)
{
    *out = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    gm_engine *e = NULL;
    GM_TRY(gm_mem_alloc(&e, 1, sizeof *e, "an engine", err));
    e->model = m;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    const gm_status status = engine_init(e, &o, err);
    if (status == GM_OK)
        *out = e;
    else
        gm_engine_close(e);
    return status;
}

void gm_engine_close(gm_engine *e)
{
    if (!e) return;
    if (e->has_thread) {
        pthread_mutex_lock(&e->lock);
        e->stopping = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    gm_runner_deinit(&e->runner);
    gm_step_free(e->step);
    gm_arena_deinit(&e->arena);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    gm_mem_free(e);
}

const char *gm_engine_backend(const gm_engine *e)
{
    return e->runner.ops->name;
}

uint32_t gm_engine_ctx(const gm_engine *e)
{
    return e->n_ctx;
}
