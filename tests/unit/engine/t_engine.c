/* SPDX-License-Identifier: MIT */
/* Many requests on one engine, on every backend: the same answers as alone,
 * whatever the others do; cancelling; parked readers; pages that all come back. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "fixtures/backends.h"
#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"

enum { VOCAB = 500, CTX = 300 };

static gm_model *model;
static const char *backend;
static bool ahead; /* steps of answers are handed over before the one before them is read */
static gm_err err;
static const gm_bias NO_END[] = {{1, -1000}, {106, -1000}};
static int32_t ids[CTX];

#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

static int setup(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_ctx = CTX});
    model = tiny_open(&t, "model.gguf");
    tiny_deinit(&t);
    for (uint32_t i = 0; i < CTX; i++)
        ids[i] = (int32_t)(tiny_random(1, i) % VOCAB);
    return 0;
}

static int teardown(void **state)
{
    gm_model_close(model);
    return tiny_teardown(state);
}

static gm_engine *engine_of(const gm_model *m, uint32_t n_slots)
{
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = n_slots;
    o.backend = backend;
    o.kv_type = "f32"; /* what forward_logprobs keeps */
    OK(gm_engine_open(&e, m, &o, &err));
    backend_go_ahead(e, ahead);
    return e;
}

/* The i-th of many different requests, of prompts from one token to several chunks. */
static gm_request_opts request_of(const gm_model *m, uint64_t i, uint32_t max_tokens)
{
    static const uint32_t lengths[] = {1, 33, 70, 130, 5, 64, 65, 8};
    gm_request_opts o = gm_request_opts_default(m);
    o.ids = ids + i % 16;
    o.n_ids = lengths[i % 8];
    o.max_tokens = max_tokens;
    o.flags = GM_REQUEST_HASH;
    o.sampling.temperature = i % 5 ? 1.1f : 0;
    o.sampling.seed = i;
    o.sampling.repeat_penalty = i % 3 ? 1 : 1.3f;
    o.sampling.frequency_penalty = i % 4 == 1 ? 0.3f : 0;
    o.sampling.n_bias = 2;
    o.sampling.bias = NO_END;
    return o;
}

static void assert_same_answer(const tiny_answer *a, const tiny_answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, a->n * sizeof *a->id);
    assert_memory_equal(a->hash, b->hash, a->n * sizeof *a->hash);
    assert_memory_equal(a->logprob, b->logprob, a->n * sizeof *a->logprob);
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->reason, b->reason);
}

/* All pages in the pool, no sequence anywhere. */
static void assert_idle(gm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (int c = 0; c < GM_CLASSES; c++)
        assert_int_equal(e->place.pool.n_free[c], e->place.pool.n_pages[c]);
    for (uint32_t i = 0; i < e->place.n_slots; i++)
        assert_null(e->slot[i]);
    assert_int_equal(e->n_active, 0);
    assert_null(atomic_load(&e->sole));
    assert_null(e->queue);
    pthread_mutex_unlock(&e->lock);
}

/* Waits until the sequence has put n events into its ring. */
static void wait_for_events(gm_request *r, uint32_t n)
{
    for (;;) {
        pthread_mutex_lock(&r->engine->lock);
        const uint32_t put = r->n_put;
        pthread_mutex_unlock(&r->engine->lock);
        if (put >= n) return;
        usleep(100);
    }
}

/* ---- alone and in a crowd -------------------------------------------------------------- */

enum { CROWD = 8 };

static void test_same_answers_in_any_company(void **state)
{
    (void)state;
    static tiny_answer alone[CROWD], together;
    gm_engine *e = engine_of(model, 1);
    for (uint64_t i = 0; i < CROWD; i++) {
        const gm_request_opts o = request_of(model, i, 30 + (uint32_t)i);
        tiny_run(e, &o, &alone[i]);
        assert_int_equal(alone[i].n, 30 + i);
    }
    assert_idle(e);
    gm_engine_close(e);
    for (uint32_t n = 2; n <= CROWD; n += 2) {
        gm_request *r[CROWD];
        e = engine_of(model, n < 4 ? n : 4); /* some wait in the queue */
        for (uint64_t i = 0; i < n; i++) {
            const gm_request_opts o = request_of(model, i, 30 + (uint32_t)i);
            OK(gm_request_open(&r[i], e, &o, &err));
        }
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t i = n > 4 ? k : n - 1 - k; /* an unread answer keeps its slot */
            together = (tiny_answer){0};
            tiny_collect(r[i], &together);
            assert_same_answer(&together, &alone[i]);
            gm_request_close(r[i]);
        }
        assert_idle(e);
        gm_engine_close(e);
    }
}

typedef struct client {
    gm_engine *e;
    uint64_t first;
    tiny_answer *alone; /* [CROWD] */
    uint32_t wrong;
} client;

static void *client_main(void *arg)
{
    client *const c = arg;
    tiny_answer *const a = calloc(1, sizeof *a);
    for (uint64_t k = 0; a && k < 6; k++) {
        const uint64_t i = (c->first + k) % CROWD;
        const gm_request_opts o = request_of(model, i, 30 + (uint32_t)i);
        tiny_run(c->e, &o, a);
        c->wrong += a->n != c->alone[i].n ||
                    memcmp(a->id, c->alone[i].id, a->n * sizeof *a->id) != 0 ||
                    memcmp(a->hash, c->alone[i].hash, a->n * sizeof *a->hash) != 0 ||
                    strcmp(a->text, c->alone[i].text) != 0;
    }
    free(a);
    return NULL;
}

/* Four clients, each in its own thread. */
static void test_clients_in_threads(void **state)
{
    (void)state;
    static tiny_answer alone[CROWD];
    gm_engine *const e = engine_of(model, 3);
    for (uint64_t i = 0; i < CROWD; i++) {
        const gm_request_opts o = request_of(model, i, 30 + (uint32_t)i);
        tiny_run(e, &o, &alone[i]);
    }
    pthread_t threads[4];
    client clients[4];
    for (uint64_t i = 0; i < 4; i++) {
        clients[i] = (client){e, 2 * i, alone, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, &clients[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(clients[i].wrong, 0);
    }
    assert_idle(e);
    gm_engine_close(e);
}

/* More answers at once than a step has rows: all of them end. */
static void test_more_sequences_than_rows(void **state)
{
    (void)state;
    enum { MANY = GM_RUNNER_ROWS + 9 };
    static gm_request *r[MANY];
    static tiny_answer a[2];
    gm_engine *const e = engine_of(model, MANY);
    gm_request_opts o = request_of(model, 4, 6);
    tiny_run(e, &o, &a[0]);
    for (int i = 0; i < MANY; i++)
        OK(gm_request_open(&r[i], e, &o, &err));
    for (int i = MANY; i-- > 0;) {
        a[1] = (tiny_answer){0};
        tiny_collect(r[i], &a[1]);
        assert_same_answer(&a[0], &a[1]);
        gm_request_close(r[i]);
    }
    assert_idle(e);
    gm_engine_close(e);
}

static void test_many_short_requests(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(model, 2);
    tiny_answer a;
    for (uint64_t i = 0; i < 150; i++) {
        const gm_request_opts o = request_of(model, i, 1 + (uint32_t)(i % 4));
        tiny_run(e, &o, &a);
        assert_int_equal(a.n, 1 + i % 4);
        assert_idle(e);
    }
    gm_engine_close(e);
}

/* Two engines of one model, and two models, side by side. */
static void test_two_engines(void **state)
{
    (void)state;
    static tiny_answer a, b;
    gm_request *r[2] = {NULL};
    gm_engine *const e[2] = {engine_of(model, 1), engine_of(model, 1)};
    const gm_request_opts o = request_of(model, 3, 40);
    OK(gm_request_open(&r[0], e[0], &o, &err));
    OK(gm_request_open(&r[1], e[1], &o, &err));
    a = b = (tiny_answer){0};
    tiny_collect(r[0], &a);
    tiny_collect(r[1], &b);
    assert_same_answer(&a, &b);
    for (int i = 0; i < 2; i++) {
        gm_request_close(r[i]);
        gm_engine_close(e[i]);
    }
}

/* ---- windows and pages ----------------------------------------------------------------- */

/* Answers over the whole context for windows of any size, none included: their log-probabilities
 * are those of the whole sequence in one step. */
static void test_windows(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 31, 32, 33, 70, 1000};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        static tiny_answer a;
        int32_t all[CTX];
        tiny t;
        tiny_init(&t, &(tiny_shape){.n_layer = 7, .n_ctx = CTX});
        tiny_u32(&t, "gemma3.attention.sliding_window", windows[i]);
        gm_model *const m = tiny_open(&t, "window.gguf");
        gm_engine *const e = engine_of(m, 2);
        const gm_request_opts o = request_of(m, 3, 0);
        tiny_run(e, &o, &a);
        assert_int_equal(o.n_ids + a.n, CTX);
        assert_idle(e);
        memcpy(all, o.ids, o.n_ids * sizeof *all);
        memcpy(all + o.n_ids, a.id, a.n * sizeof *all);
        float *const lp = forward_logprobs(m, all, CTX, &(forward_opts){backend, 0});
        for (uint32_t k = 0; k < a.n; k++) {
            const float whole = lp[(o.n_ids - 1 + k) * VOCAB + (uint32_t)a.id[k]];
            assert_true(fabsf(a.logprob[k] - whole) <= 1e-6f * (1 + fabsf(whole)));
        }
        free(lp);
        gm_engine_close(e);
        gm_model_close(m);
        tiny_deinit(&t);
    }
}

/* ---- slow readers ---------------------------------------------------------------------- */

static void test_slow_reader_is_parked(void **state)
{
    (void)state;
    static tiny_answer alone, slow, quick;
    gm_engine *const e = engine_of(model, 2);
    const gm_request_opts long_one = request_of(model, 1, 120);
    tiny_run(e, &long_one, &alone);
    gm_request *r = NULL;
    OK(gm_request_open(&r, e, &long_one, &err));
    wait_for_events(r, GM_SEQ_RING);
    for (uint64_t i = 2; i < 5; i++) { /* others go on, and many of them */
        const gm_request_opts o = request_of(model, i, 100);
        tiny_run(e, &o, &quick);
        assert_int_equal(quick.n, 100);
    }
    pthread_mutex_lock(&e->lock);
    assert_int_equal(r->n_put, GM_SEQ_RING);
    pthread_mutex_unlock(&e->lock);
    slow = (tiny_answer){0};
    tiny_collect(r, &slow);
    assert_same_answer(&slow, &alone);
    gm_request_close(r);
    assert_idle(e);

    /* An event being read is not overwritten. */
    gm_event ev;
    OK(gm_request_open(&r, e, &long_one, &err));
    OK(gm_request_next(r, &ev, &err));
    wait_for_events(r, GM_SEQ_RING);
    usleep(30000);
    assert_int_equal(ev.id, alone.id[0]);
    assert_memory_equal(ev.text, alone.text, ev.len);
    OK(gm_request_next(r, &ev, &err));
    assert_int_equal(ev.id, alone.id[1]);
    gm_request_close(r);
    assert_idle(e);
    gm_engine_close(e);
}

/* Reads the prompt's tokens, each once, and the answer. */
static void collect_told(gm_request *r, const gm_request_opts *o, float *told, tiny_answer *a)
{
    gm_event ev;
    for (size_t i = 1; o->flags & GM_REQUEST_PROMPT && i < o->n_ids; i++) {
        OK(gm_request_next(r, &ev, &err));
        assert_int_equal(ev.kind, GM_EVENT_PROMPT);
        assert_int_equal(ev.id, o->ids[i]);
        told[i] = ev.logprob;
    }
    *a = (tiny_answer){0};
    tiny_collect(r, a);
    gm_request_close(r);
}

/* Somebody who has the only slot and does not read gives it to who waits, and goes on later: with the
 * pages it had, or without where the other one needed them. The prompt's tokens are told once. */
static void test_stalled_reader_steps_aside(void **state)
{
    (void)state;
    static tiny_answer alone, slow, quick;
    static float told[2][CTX];
    gm_engine *const e = engine_of(model, 1);
    e->patience_s = 0.02;
    for (uint64_t i = 1; i < 7; i++) { /* all kinds of penalties */
        gm_request_opts stalled = request_of(model, i, 120), other = request_of(model, 3, 20);
        if (i % 2) stalled.flags |= GM_REQUEST_PROMPT;
        const bool evicts = i % 3 == 0;
        if (evicts) other.max_tokens = 170;
        gm_request *r = NULL;
        OK(gm_request_open(&r, e, &stalled, &err));
        collect_told(r, &stalled, told[0], &alone);
        OK(gm_request_open(&r, e, &stalled, &err));
        wait_for_events(r, GM_SEQ_RING);
        tiny_run(e, &other, &quick);
        assert_int_equal(quick.n, other.max_tokens);
        gm_engine_stats s = {.size = sizeof s};
        gm_engine_stat(e, &s);
        assert_int_equal(s.n_running, 0);
        assert_int_equal(s.n_queued, 0);
        assert_int_equal(s.n_parked, 1);
        pthread_mutex_lock(&e->lock);
        assert_int_equal(r->n_done == 0, evicts);
        pthread_mutex_unlock(&e->lock);
        collect_told(r, &stalled, told[1], &slow);
        assert_same_answer(&slow, &alone);
        assert_memory_equal(told[0], told[1], sizeof told[0]);

        OK(gm_request_open(&r, e, &stalled, &err)); /* closed while it is set aside */
        wait_for_events(r, GM_SEQ_RING);
        tiny_run(e, &other, &quick);
        gm_request_close(r);
        assert_idle(e);
    }
    gm_engine_close(e);
}

/* ---- cancelling ------------------------------------------------------------------------ */

/* The rest of an answer of which n_read tokens were read ends soon. */
static void assert_cancelled(gm_request *r, uint32_t n_read, uint32_t n_max)
{
    static tiny_answer a;
    a = (tiny_answer){.n = n_read};
    tiny_collect(r, &a);
    assert_int_equal(a.status, GM_OK);
    assert_int_equal(a.reason, GM_END_CANCEL);
    assert_true(a.n <= n_max);
}

static void test_cancel_in_the_queue(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(model, 1);
    gm_request *first = NULL, *second = NULL, *third = NULL;
    const gm_request_opts o = request_of(model, 1, 200);
    OK(gm_request_open(&first, e, &o, &err));
    wait_for_events(first, GM_SEQ_RING); /* parked: the slot stays taken */
    OK(gm_request_open(&second, e, &o, &err));
    OK(gm_request_open(&third, e, &o, &err));
    gm_request_cancel(second);
    assert_cancelled(second, 0, 0);
    gm_request_close(second);
    gm_request_close(third); /* closing is cancelling */
    tiny_answer a = {0};
    tiny_collect(first, &a);
    assert_int_equal(a.n, 200);
    gm_request_close(first);
    assert_idle(e);
    gm_engine_close(e);
}

/* The time that an answer takes begins when it leaves the queue. */
static void test_waiting_is_no_work(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(model, 1);
    gm_request *first = NULL, *second = NULL;
    const gm_request_opts o = request_of(model, 1, 60);
    gm_event ev;
    OK(gm_request_open(&first, e, &o, &err));
    wait_for_events(first, GM_SEQ_RING);
    OK(gm_request_open(&second, e, &o, &err));
    const double waited_until = gm_clock_s();
    gm_request_close(first);
    OK(gm_request_next(second, &ev, &err));
    assert_true(second->start_s >= waited_until);
    assert_true(ev.prefill_s >= 0 && ev.prefill_s <= gm_clock_s() - waited_until);
    gm_request_close(second);
    gm_engine_close(e);
}

static void test_cancel_in_the_answer(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(model, 2);
    gm_request *r = NULL, *other = NULL;
    static tiny_answer alone, a;
    const gm_request_opts o = request_of(model, 1, 200), o2 = request_of(model, 5, 150);
    tiny_run(e, &o2, &alone);
    gm_event ev;
    OK(gm_request_open(&r, e, &o, &err));
    OK(gm_request_open(&other, e, &o2, &err));
    for (int i = 0; i < 10; i++)
        OK(gm_request_next(r, &ev, &err));
    gm_request_cancel(r);
    assert_cancelled(r, 10, 199);
    gm_request_cancel(r); /* again: nothing */
    assert_int_equal(gm_request_next(r, &ev, &err), GM_OK);
    assert_int_equal(ev.reason, GM_END_CANCEL);
    gm_request_close(r);
    a = (tiny_answer){0};
    tiny_collect(other, &a);
    assert_same_answer(&a, &alone);
    gm_request_close(other);
    assert_idle(e);

    OK(gm_request_open(&r, e, &o, &err)); /* closed without reading */
    gm_request_close(r);
    OK(gm_request_open(&r, e, &o, &err)); /* closed while parked */
    wait_for_events(r, GM_SEQ_RING);
    gm_request_close(r);
    assert_idle(e);
    gm_request_close(NULL);
    gm_engine_close(e);
}

static void *cancel_main(void *arg)
{
    usleep(2000);
    gm_request_cancel(arg);
    return NULL;
}

static void test_cancel_from_another_thread(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(model, 1);
    for (uint64_t i = 0; i < 20; i++) {
        gm_request *r = NULL;
        pthread_t thread;
        const gm_request_opts o = request_of(model, i, 0);
        OK(gm_request_open(&r, e, &o, &err));
        assert_int_equal(pthread_create(&thread, NULL, cancel_main, r), 0);
        static tiny_answer a;
        a = (tiny_answer){0};
        tiny_collect(r, &a);
        assert_true(a.reason == GM_END_CANCEL || a.reason == GM_END_LENGTH);
        pthread_join(thread, NULL);
        gm_request_close(r);
    }
    assert_idle(e);
    gm_engine_close(e);
}

static gm_request *signalled;

static void on_signal(int number)
{
    (void)number;
    gm_request_cancel(signalled);
}

/* As Ctrl-C does it, while the reader waits and while it does not read at all. */
static void test_cancel_from_a_signal_handler(void **state)
{
    (void)state;
    struct sigaction act = {.sa_handler = on_signal}, before;
    gm_engine *const e = engine_of(model, 1);
    const gm_request_opts o = request_of(model, 1, 0);
    sigaction(SIGUSR1, &act, &before);
    OK(gm_request_open(&signalled, e, &o, &err));
    wait_for_events(signalled, GM_SEQ_RING);
    raise(SIGUSR1);
    assert_cancelled(signalled, 0, GM_SEQ_RING);
    gm_request_close(signalled);
    sigaction(SIGUSR1, &before, NULL);
    assert_idle(e);
    gm_engine_close(e);
}

/* Cancelling, or closing what is over, takes nothing from a request that runs on: steps that are
 * abandoned for it are made again, with the same tokens. */
static void test_others_do_not_notice(void **state)
{
    (void)state;
    static tiny_answer alone, a;
    gm_engine *const e = engine_of(model, 1);
    gm_request_opts o = request_of(model, 1, 150);
    o.sampling.frequency_penalty = 0.4f;
    o.sampling.repeat_penalty = 1.2f;
    tiny_run(e, &o, &alone);
    for (int round = 0; round < 10; round++) {
        gm_request *r = NULL, *done = NULL, *queued = NULL;
        const gm_request_opts one = request_of(model, 2, 1);
        gm_event ev;
        OK(gm_request_open(&done, e, &one, &err));
        a = (tiny_answer){0};
        tiny_collect(done, &a);
        OK(gm_request_open(&r, e, &o, &err));
        OK(gm_request_open(&queued, e, &o, &err));
        for (int i = 0; i < 20; i++) {
            OK(gm_request_next(r, &ev, &err));
            assert_int_equal(ev.id, alone.id[i]);
            gm_request_cancel(done);
            gm_request_cancel(queued);
        }
        gm_request_close(done);
        for (int i = 20; i < 150; i++) {
            OK(gm_request_next(r, &ev, &err));
            assert_int_equal(ev.id, alone.id[i]);
            gm_request_cancel(queued);
        }
        gm_request_close(queued);
        gm_request_close(r);
    }
    assert_idle(e);
    gm_engine_close(e);
}

/* ---- options --------------------------------------------------------------------------- */

static void refuse(const gm_engine_opts *o, const char *thing, const char *expectation)
{
    gm_engine *e = (gm_engine *)&err;
    err = (gm_err){0};
    assert_int_equal(gm_engine_open(&e, model, o, &err), GM_E_ARG);
    assert_null(e);
    if (!strstr(err.msg, thing) || !strstr(err.msg, expectation))
        fail_msg("\"%s\": expected \"%s\", \"%s\"", err.msg, thing, expectation);
    assert_int_equal(gm_engine_open(&e, model, o, NULL), GM_E_ARG);
}

static void test_bad_options_are_refused(void **state)
{
    (void)state;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_ctx = CTX + 1;
    refuse(&o, "301 positions", "expected 2 to the model's 300");
    o.n_ctx = 1;
    refuse(&o, "1 positions", "expected 2 to");
    o.n_ctx = UINT32_MAX;
    refuse(&o, "4294967295 positions", "expected 2 to");
    o = gm_engine_opts_default();
    o.n_slots = 1025;
    refuse(&o, "1025 requests", "at most 1024");
    o = gm_engine_opts_default();
    o.backend = "abacus";
    refuse(&o, "no abacus", "expected one of auto, ");
}

static void test_options(void **state)
{
    (void)state;
    gm_engine *e = NULL;
    OK(gm_engine_open(&e, model, NULL, &err));
    assert_int_equal(gm_engine_ctx(e), CTX);
    assert_string_equal(gm_engine_backend(e), gm_backend_find("auto")->name);
    gm_engine_close(e);
    gm_engine_opts o = gm_engine_opts_default();
    o.n_ctx = 2;
    o.backend = "ref-int8";
    OK(gm_engine_open(&e, model, &o, &err));
    assert_int_equal(gm_engine_ctx(e), 2);
    assert_string_equal(gm_engine_backend(e), "ref-int8");
    assert_string_equal(gm_engine_device(e), "");
    gm_request_opts r = request_of(model, 0, 0);
    tiny_answer a;
    tiny_run(e, &r, &a);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.reason, GM_END_LENGTH);
    gm_engine_close(e);
    gm_engine_close(NULL);
    for (size_t i = 0; gm_backend_name(i, NULL); i++) {
        const char *about = NULL;
        assert_non_null(gm_backend_name(i, &about));
        assert_non_null(about);
    }
}

/* Where nobody says, the context is the model's, at most 4096. */
typedef struct listener {
    uint64_t calls, done, total;
    int answer;
} listener;

static int listen(void *ctx, uint64_t done, uint64_t total)
{
    listener *const l = ctx;
    assert_true(done >= l->done && done <= total);
    l->calls++;
    l->done = done;
    l->total = total;
    return l->answer;
}

/* Whoever listens hears of the end of the load, and may refuse to go on. */
static void test_load_reports_and_cancels(void **state)
{
    (void)state;
    listener l = {0};
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.backend = backend;
    o.progress = listen;
    o.progress_ctx = &l;
    OK(gm_engine_open(&e, model, &o, &err));
    assert_true(l.calls >= 1 && l.done == l.total);
    gm_engine_close(e);
    l = (listener){.answer = 1};
    assert_int_equal(gm_engine_open(&e, model, &o, &err), GM_E_CANCEL);
    assert_null(e);
    assert_int_equal(l.calls, 1);
}

static void test_default_context(void **state)
{
    (void)state;
    static const uint32_t contexts[][2] = {{100, 100}, {4096, 4096}, {131072, 4096}};
    for (size_t i = 0; i < 3; i++) {
        tiny t;
        gm_engine *e = NULL;
        tiny_init(&t, &(tiny_shape){.n_ctx = contexts[i][0]});
        gm_model *const m = tiny_open(&t, "context.gguf");
        OK(gm_engine_open(&e, m, NULL, &err));
        assert_int_equal(gm_engine_ctx(e), contexts[i][1]);
        gm_engine_close(e);
        gm_model_close(m);
        tiny_deinit(&t);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers_in_any_company),
        cmocka_unit_test(test_clients_in_threads),
        cmocka_unit_test(test_more_sequences_than_rows),
        cmocka_unit_test(test_many_short_requests),
        cmocka_unit_test(test_two_engines),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_slow_reader_is_parked),
        cmocka_unit_test(test_stalled_reader_steps_aside),
        cmocka_unit_test(test_cancel_in_the_queue),
        cmocka_unit_test(test_waiting_is_no_work),
        cmocka_unit_test(test_cancel_in_the_answer),
        cmocka_unit_test(test_cancel_from_another_thread),
        cmocka_unit_test(test_cancel_from_a_signal_handler),
        cmocka_unit_test(test_others_do_not_notice),
        cmocka_unit_test(test_bad_options_are_refused),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_default_context),
        cmocka_unit_test(test_load_reports_and_cancels),
    };
    int failed = 0;
    for (size_t i = 0; (backend = backend_next(&i, argc == 2 ? argv[1] : NULL));) {
        for (int mode = 0; mode < 2; mode++) {
            ahead = mode == 1;
            print_message("backend %s%s\n", backend, ahead ? ", a step ahead" : "");
            failed += cmocka_run_group_tests_name("t_engine", tests, setup, teardown);
        }
    }
    return failed;
}
