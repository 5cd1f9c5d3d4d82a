/* SPDX-License-Identifier: MIT */
#include "engine/engine.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/guard.h"
#include "base/mem.h"
#include "engine/prefix.h"

#define PATIENCE_S 1.0 /* a reader may be behind while others wait for its slot */

/* ---- one turn -------------------------------------------------------------------------- */

/* What the step under way computes for it, if it does, is nobody's then. */
static void leave_slot(gm_engine *e, const gm_request *r)
{
    e->slot[r->slot] = NULL;
    for (int i = 0; i < GM_TICKETS; i++)
        e->turns[i].part[r->slot] = (gm_part){0};
    e->n_active--;
    for (uint32_t c = 0; c < GM_CLASSES; c++)
        e->reserved[c] -= r->need[c];
}

/* The client sees the end or the failure that was put before. What the sequence has in the cache
 * may still serve others. */
static void let_go(gm_engine *e, gm_request *r)
{
    if (e->slot[r->slot] == r) leave_slot(e, r);
    gm_prefix_keep(e, r);
    r->let_go = true;
    pthread_cond_signal(&r->news);
}

/* Whether every page that the request may come to need is there for it. Beginnings that are kept
 * give way, so they do not count. */
static bool has_pages(const gm_engine *e, const gm_request *r)
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        if (e->reserved[c] + r->need[c] > e->place.pool.n_pages[c]) return false;
    }
    return true;
}

/* Whose answers a bound on slots counts, seen from one of them. */
enum scope {
    OF_REQUEST, /* those of the same request                */
    OF_SEVERAL, /* those of all requests for several answers */
    OF_ALL,
};

static bool is_within(const gm_request *s, const gm_request *r, enum scope scope)
{
    return scope == OF_ALL || (scope == OF_REQUEST ? s->group == r->group : s->group != s);
}

static uint32_t slots_within(const gm_engine *e, const gm_request *r, enum scope scope)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->place.n_slots; i++)
        n += e->slot[i] && is_within(e->slot[i], r, scope);
    return n;
}

/* Whoever has a slot, and a reader who has not taken anything for too long, gives it up to r, which
 * waits. Its pages stay until somebody needs them, and it goes on when its reader does. */
static bool set_one_aside(gm_engine *e, const gm_request *r, enum scope scope)
{
    const double since_s = gm_clock_s() - e->patience_s;
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        gm_request *const s = e->slot[i];
        if (!s || gm_seq_has_room(s) || s->put_s > since_s) continue;
        if (!is_within(s, r, scope)) continue;
        leave_slot(e, s);
        s->begun = false;
        s->aside = true;
        gm_queue_put(&e->queue, s);
        return true;
    }
    return false;
}

static bool take_slot(gm_engine *e, gm_request *r)
{
    uint32_t slot = 0;
    while (slot < e->place.n_slots && e->slot[slot])
        slot++;
    if (slot == e->place.n_slots || !has_pages(e, r)) return false;
    for (uint32_t c = 0; c < GM_CLASSES; c++)
        e->reserved[c] += r->need[c];
    r->slot = slot;
    if (!r->aside) r->start_s = gm_clock_s(); /* waiting in the queue is no work */
    e->slot[slot] = r;
    e->n_active++;
    return true;
}

/* Whether r, of a request for several answers, may have one more slot: a request has half of them at
 * most, and all such requests together leave one. */
static bool has_a_share(gm_engine *e, const gm_request *r)
{
    const uint32_t n = e->place.n_slots;
    const uint32_t most[] = {[OF_REQUEST] = (n + 1) / 2, [OF_SEVERAL] = n > 1 ? n - 1 : 1};
    for (enum scope scope = OF_REQUEST; scope <= OF_SEVERAL; scope++) {
        while (slots_within(e, r, scope) >= most[scope]) {
            if (!set_one_aside(e, r, scope)) return false;
        }
    }
    return true;
}

/* Gives r a slot, be it that of a reader who is behind. *full is set where nobody else gets one. */
static bool seat(gm_engine *e, gm_request *r, bool *full)
{
    if (*full || (r->group != r && !has_a_share(e, r))) return false;
    while (!*full && !take_slot(e, r))
        *full = !set_one_aside(e, r, OF_ALL);
    return !*full;
}

/* Requests that were cancelled leave the queue; others take free slots in order: nobody is passed by
 * one that needs fewer pages, but those whose share is used up let others pass. Those that were set
 * aside do not count until somebody reads them. This is for those of whose request nothing runs, or,
 * where `more` is true, for the others. Answers whether one of them still waits. */
static bool admit(gm_engine *e, bool more)
{
    bool full = false, waits = false;
    for (gm_request **at = &e->queue; *at;) {
        gm_request *const r = *at;
        const bool cancelled = atomic_load(&r->cancelled), reads = gm_seq_has_room(r);
        const bool over = cancelled || gm_seq_is_read(r);
        const bool turn = reads && more == (r->group != r && slots_within(e, r, OF_REQUEST) > 0);
        if (!over && !(turn && seat(e, r, &full))) {
            waits = waits || turn;
            at = &r->next;
            continue;
        }
        *at = r->next;
        e->n_queued -= !r->aside;
        r->aside = false;
        if (!over) continue;
        gm_seq_end(r, cancelled ? GM_END_CANCEL : GM_END_LENGTH);
        let_go(e, r);
    }
    return waits;
}

/* Clients -> sequences. */
static void take_requests(gm_engine *e)
{
    atomic_store(&e->abandon, 0);
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        gm_request *const r = e->slot[i];
        if (!r || !atomic_load(&r->cancelled)) continue;
        gm_seq_end(r, GM_END_CANCEL);
        let_go(e, r);
    }
    if (!admit(e, false)) admit(e, true);
}

/* Nothing can go on: waits for news. A cancel may come from a signal handler, which cannot wake
 * anybody, so sequences parked here are looked at again now and then. */
static void sleep_for_news(gm_engine *e)
{
    if (e->stopping) return;
    if (e->n_active == 0 && !e->queue) {
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
static void set_sole(gm_engine *e, const gm_turn *t)
{
    gm_request *const r = t->step->n_segs == 1 ? t->part[gm_step_segs(t->step)->slot].seq : NULL;
    atomic_store(&e->sole, r);
    if (r && atomic_load(&r->cancelled)) atomic_store(&e->abandon, 1);
}

/* The step that was filled is under way from here on. The lock is given up meanwhile. */
static void hand_over(gm_engine *e)
{
    gm_turn *const t = e->turn;
    pthread_mutex_unlock(&e->lock);
    t->start_s = gm_clock_s();
    t->err = (gm_err){0};
    t->status = gm_runner_submit(&e->place.runner, t->step, &t->ticket, &t->err);
    pthread_mutex_lock(&e->lock);
    e->under_way = t;
    e->turn = &e->turns[t == e->turns];
}

/* Waits for the oldest step. The lock is given up meanwhile. */
static gm_status wait_for(gm_engine *e, gm_turn *t, gm_result *result)
{
    set_sole(e, t);
    pthread_mutex_unlock(&e->lock);
    gm_status status = t->status;
    if (status == GM_OK) status = gm_runner_collect(&e->place.runner, t->ticket, result, &t->err);
    const double now = gm_clock_s();
    pthread_mutex_lock(&e->lock);
    atomic_store(&e->sole, NULL);
    const double start_s = t->start_s > e->answered_s ? t->start_s : e->answered_s;
    e->answered_s = now;
    if (status == GM_OK) gm_sched_learn(e, t, 1e6 * (now - start_s));
    if (status == GM_E_LOST && !e->lost.code) e->lost = t->err;
    return status;
}

static void end(gm_engine *e, gm_request *r, int32_t reason)
{
    gm_seq_end(r, reason);
    let_go(e, r);
}

/* Nobody may build on what a failed step left. */
static void fail(gm_engine *e, gm_request *r, const gm_err *err)
{
    gm_seq_fail(r, err);
    r->n_done = 0;
    let_go(e, r);
}

/* One output -> one event: of a token that the prompt has, or of one that was drawn. */
static void deliver_out(gm_engine *e, const gm_turn *t, uint32_t i, const gm_result_out *o)
{
    const gm_outof *const of = &t->out_of[i];
    gm_request *const r = t->part[of->slot].seq;
    gm_seq_news news = {o->token, o->logprob, o->n_top, o->top, o->logits};
    if (!r) return; /* an output before this one was its last */
    r->lost = false;
    if (of->pos < r->n_prompt) {
        const uint32_t n_vocab = gm_vocab_len(e->model->vocab);
        news.token = r->ids[of->pos];
        news.logprob = (float)((double)o->logits[news.token] - gm_draw_logsum(o->logits, n_vocab));
    }
    if (isnan(news.logprob)) {
        gm_err bad = {0};
        gm_fail(&bad, GM_E_FORMAT, 0,
                "model: the logits after token %u are not numbers: its weights are not finite "
                "or too large",
                (unsigned)of->pos);
        fail(e, r, &bad);
    } else if (of->pos < r->n_prompt) {
        gm_seq_prompt(r, e->model->vocab, &news);
    } else {
        e->stats.n_answer++;
        const int32_t reason = gm_seq_token(r, e->model->vocab, &news);
        if (reason) end(e, r, reason);
    }
}

/* Whether the sequence may go on though its step failed. An abandoned step is made again for whoever
 * was not cancelled, and a lost one once: where the same happens again, it may be what it asks for. */
static bool survives(gm_request *r, gm_status status)
{
    if (status != GM_E_LOST) return status == GM_E_CANCEL;
    const bool again = r->lost;
    r->lost = true;
    return !again;
}

/* Results -> events, or a failure for the sequences that were in the step. */
static void deliver(gm_engine *e, const gm_turn *t, gm_status status, const gm_result *result)
{
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        gm_request *const r = t->part[i].seq;
        if (!r) continue;
        if (status == GM_OK) {
            if (r->n_done < r->n_prompt) e->stats.n_prompt += t->part[i].n;
            r->n_done += t->part[i].n;
            r->begin->n = r->n_done;
        } else if (!survives(r, status)) {
            fail(e, r, &t->err);
        }
    }
    for (uint32_t i = 0; i < result->n_out; i++)
        deliver_out(e, t, i, &result->out[i]);
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        gm_request *const r = t->part[i].seq;
        if (r && gm_seq_is_read(r)) end(e, r, GM_END_LENGTH);
    }
}

/* What was built on a step that failed is of no use. */
static void drop_under_way(gm_engine *e)
{
    gm_turn *const t = e->under_way;
    gm_result result = {0};
    if (!t) return;
    e->under_way = NULL;
    memset(t->part, 0, e->place.n_slots * sizeof *t->part);
    wait_for(e, t, &result);
}

/* Steps by how many sequences they served: batch[i] has those of more than 2^(i-1), up to 2^i. */
static void count_step(gm_engine *e, const gm_step *s)
{
    uint32_t size = 0;
    while (size + 1 < GM_BATCH_SIZES && s->n_segs > 1u << size)
        size++;
    e->stats.batch[size]++;
    e->stats.n_steps++;
    e->stats.n_sequences += s->n_segs;
}

/* Some of the cache goes to disk. Nobody else touches what is kept of closed requests, so the lock
 * is not needed for it. */
static bool save_some(gm_engine *e)
{
    if (!e->store.dir || e->lost.code) return false;
    pthread_mutex_unlock(&e->lock);
    const bool did = gm_store_feed(&e->store, &e->place, e->kept);
    pthread_mutex_lock(&e->lock);
    return did;
}

/* A device that was lost is opened again for those who wait; where it cannot be, they are told. */
static bool recover(gm_engine *e)
{
    gm_err err = {0};
    if (!e->lost.code || e->n_active == 0) return true;
    const gm_status status = gm_recover(e, &err);
    if (status == GM_OK || status == GM_E_CANCEL) return status == GM_OK;
    err.code = GM_E_LOST; /* whatever it is that refuses: nobody asked for anything wrong */
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        if (e->slot[i]) fail(e, e->slot[i], &err);
    }
    return false;
}

/* One turn of the engine thread. Read this first: it is the program in order. The lock is held
 * except while a step is handed over and waited for, so clients wait for a copy of an event at most. */
static void engine_turn(gm_engine *e)
{
    gm_result result = {0};
    take_requests(e); /* clients -> sequences   */
    if (!recover(e)) return;
    if (!e->under_way) {
        if (!gm_sched_fill(e)) { /* sequences -> step      */
            if (!save_some(e)) sleep_for_news(e);
            return;
        }
        hand_over(e);
    }
    gm_turn *const t = e->under_way;
    e->under_way = NULL;
    if (t->status == GM_OK && gm_sched_fill_ahead(e, t))
        hand_over(e);                                 /* ... and the one behind it */
    const gm_status status = wait_for(e, t, &result); /* step -> tokens */
    if (status != GM_OK) drop_under_way(e);
    count_step(e, t->step);
    deliver(e, t, status, &result); /* tokens -> text -> events */
    save_some(e);
}

static void *engine_main(void *arg)
{
    gm_engine *const e = arg;
    gm_guard_set(true); /* everything that a turn needs is there */
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

/* A copy, because a device that was lost is opened again while others may read its name. */
static gm_status keep_device(gm_engine *e, gm_err *err)
{
    gm_place *const p = &e->place;
    gm_backend_facts facts;
    p->runner.ops->describe(p->runner.be, &facts);
    return gm_arena_copy(&p->arena, gm_str_c(facts.device ? facts.device : ""), &e->device, err);
}

static gm_status turn_init(gm_turn *t, gm_place *p, gm_err *err)
{
    GM_TRY(gm_place_step(p, &t->step, err));
    GM_TRY(gm_arena_alloc(&p->arena, &t->part, p->n_slots, sizeof *t->part, "slots", err));
    return gm_arena_alloc(&p->arena, &t->out_of, t->step->limits.outs, sizeof *t->out_of, "slots",
                          err);
}

static gm_status engine_init(gm_engine *e, const gm_engine_opts *o, gm_err *err)
{
    gm_place *const p = &e->place;
    GM_TRY(gm_store_make_folder(e->opts.cache_dir, err)); /* before it takes time */
    GM_TRY(gm_place_init(p, e->model, o, &(gm_place_cfg){.abandon = &e->abandon}, err));
    GM_TRY(keep_device(e, err));
    GM_TRY(gm_arena_alloc(&p->arena, &e->slot, p->n_slots, sizeof *e->slot, "slots", err));
    for (int i = 0; i < GM_TICKETS; i++)
        GM_TRY(turn_init(&e->turns[i], p, err));
    e->turn = e->turns;
    GM_TRY(gm_store_open(&e->store, p, &e->opts, err));
    gm_prefix_load(e);
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
    e->opts = (gm_engine_opts){.cache_dir = o.cache_dir, .note = o.note, .note_ctx = o.note_ctx};
    e->max_queue = o.max_queue;
    e->cache = o.cache || o.cache_dir;
    e->longest = gm_seq_longest(m->vocab);
    e->patience_s = PATIENCE_S;
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
    if (e->has_thread && !e->lost.code) gm_store_finish(&e->store, &e->place, e->kept);
    gm_store_close(&e->store);
    gm_prefix_clear(e);
    for (int i = 0; i < GM_TICKETS; i++)
        gm_step_free(e->turns[i].step);
    gm_place_deinit(&e->place);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    gm_mem_free(e);
}

const char *gm_engine_backend(const gm_engine *e)
{
    return e->place.runner.ops->name;
}

const char *gm_engine_device(const gm_engine *e)
{
    return e->device;
}

const char *gm_engine_why(const gm_engine *e)
{
    return e->place.why;
}

uint32_t gm_engine_ctx(const gm_engine *e)
{
    return e->place.n_ctx;
}

void gm_engine_stat(gm_engine *e, gm_engine_stats *out)
{
    pthread_mutex_lock(&e->lock);
    gm_engine_stats full = e->stats;
    full.size = out->size;
    full.n_slots = e->place.n_slots;
    full.kv_size = e->place.kv_size;
    full.n_running = e->n_active;
    full.n_queued = e->n_queued;
    for (const gm_beginning *k = e->kept; k; k = k->next)
        full.n_kept++;
    for (uint32_t i = 0; i < e->place.n_slots; i++)
        full.n_parked += e->slot[i] && !gm_seq_has_room(e->slot[i]);
    for (const gm_request *r = e->queue; r; r = r->next) {
        if (r->aside) (*(gm_seq_has_room(r) ? &full.n_queued : &full.n_parked))++;
    }
    static const uint32_t classes[] = {GM_CLASS_GLOBAL, GM_CLASS_LOCAL};
    for (int i = 0; i < 2; i++) {
        full.pages[i] = e->place.pool.n_pages[classes[i]];
        full.pages_used[i] = full.pages[i] - e->place.pool.n_free[classes[i]];
    }
    pthread_mutex_unlock(&e->lock);
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
}
