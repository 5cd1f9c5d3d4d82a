/* SPDX-License-Identifier: MIT */
/* The client's side of a request: the queue in, the ring out, both under the
 * engine's lock. Only gm_request_cancel stays clear of the lock, so that a signal
 * handler may call it. */

#include <inttypes.h>

#include "engine/prefix.h"

gm_request_opts gm_request_opts_default(const gm_model *m)
{
    return (gm_request_opts){
        .size = sizeof(gm_request_opts),
        .sampling = {.temperature = m->config.sampling.temperature,
                     .top_p = m->config.sampling.top_p,
                     .min_p = m->config.sampling.min_p,
                     .top_k = m->config.sampling.top_k,
                     .repeat_penalty = 1},
    };
}

/* The caller's options may be those of an older header, and shorter. */
static gm_request_opts read_opts(const gm_engine *e, const gm_request_opts *opts)
{
    gm_request_opts o = gm_request_opts_default(e->model);
    memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    return o;
}

gm_status gm_request_check(const gm_engine *e, const gm_request_opts *opts, gm_err *err)
{
    gm_draw draw;
    const gm_request_opts o = read_opts(e, opts);
    return gm_seq_check(e, &o, &draw, err);
}

/* Whether r is the first of its group, in slots and then in the queue. */
static bool is_first(const gm_engine *e, const gm_request *r)
{
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        const gm_request *const s = e->slot[i];
        if (s && s->group == r->group) return s == r;
    }
    for (const gm_request *q = e->queue; q && q != r; q = q->next) {
        if (!q->aside && q->group == r->group) return false;
    }
    return true;
}

/* Whether as many run and wait as may. However many answers are asked for together, they are one
 * among the others. Those that were set aside do not count. */
static bool is_full(const gm_engine *e)
{
    const uint64_t most = (uint64_t)e->place.n_slots + e->max_queue;
    if (e->max_queue == 0 || e->n_queued + e->n_active < most) return false;
    uint64_t n = 0;
    for (uint32_t i = 0; i < e->place.n_slots; i++)
        n += e->slot[i] && is_first(e, e->slot[i]);
    for (const gm_request *q = e->queue; q; q = q->next)
        n += !q->aside && is_first(e, q);
    return n >= most;
}

gm_status gm_request_open(gm_request **out, gm_engine *e, const gm_request_opts *opts, gm_err *err)
{
    *out = NULL;
    const gm_request_opts o = read_opts(e, opts);
    gm_request *r = NULL;
    GM_TRY(gm_seq_open(&r, e, &o, err));
    pthread_mutex_lock(&e->lock);
    const bool full = !(o.flags & GM_REQUEST_ALONG) && is_full(e);
    if (!full) {
        gm_queue_put(&e->queue, r);
        e->n_queued++;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    if (full) {
        gm_seq_free(r);
        return gm_fail(err, GM_E_BUSY, 0,
                       "the queue is full: at most %" PRIu32 " at once and %" PRIu32 " waiting",
                       e->place.n_slots, e->max_queue);
    }
    *out = r;
    return GM_OK;
}

/* The event that was handed out last is read: its place in the ring is free again. */
static void finish_reading(gm_request *r)
{
    if (!r->reading) return;
    r->reading = false;
    r->n_taken++;
    pthread_cond_signal(&r->engine->wake);
}

/* What is next, GM_EVENT_NONE where that is nothing. Under the lock. */
static gm_status take_event(gm_request *r, gm_event *ev, gm_err *err)
{
    if (r->n_put != r->n_taken) {
        *ev = r->ring[r->n_taken % r->n_ring].ev;
        r->reading = true;
    } else if (r->end.kind) {
        *ev = r->end;
    } else if (r->failed.code != GM_OK && err) {
        *err = r->failed;
    }
    return ev->kind ? GM_OK : r->failed.code;
}

gm_status gm_request_poll(gm_request *r, gm_event *ev, gm_err *err)
{
    *ev = (gm_event){0};
    pthread_mutex_lock(&r->engine->lock);
    finish_reading(r);
    const gm_status status = take_event(r, ev, err);
    if (ev->kind == GM_EVENT_NONE) gm_seq_count(r, ev);
    pthread_mutex_unlock(&r->engine->lock);
    return status;
}

gm_status gm_request_next(gm_request *r, gm_event *ev, gm_err *err)
{
    *ev = (gm_event){0};
    pthread_mutex_lock(&r->engine->lock);
    finish_reading(r);
    while (r->n_put == r->n_taken && !r->end.kind && r->failed.code == GM_OK)
        pthread_cond_wait(&r->news, &r->engine->lock);
    const gm_status status = take_event(r, ev, err);
    pthread_mutex_unlock(&r->engine->lock);
    return status;
}

void gm_request_cancel(gm_request *r)
{
    atomic_store(&r->cancelled, 1);
    /* A step that serves others too is let finish: it is one token. */
    if (atomic_load(&r->engine->sole) == r) atomic_store(&r->engine->abandon, 1);
}

void gm_request_close(gm_request *r)
{
    if (!r) return;
    gm_engine *const e = r->engine;
    gm_request_cancel(r);
    pthread_mutex_lock(&e->lock);
    pthread_cond_signal(&e->wake);
    while (!r->let_go)
        pthread_cond_wait(&r->news, &e->lock);
    gm_prefix_forget(e, r);
    pthread_mutex_unlock(&e->lock);
    gm_seq_free(r);
}
