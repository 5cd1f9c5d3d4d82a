/* SPDX-License-Identifier: MIT */
/* Requests that begin alike: how many tokens they take over from each other, and that the answer is
 * to the bit what it is without, whoever of them runs, ends, fails or is closed meanwhile. Each test
 * runs on two backends with each type of KV cache: the first time with every case, then with some. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "fixtures/backends.h"
#include "fixtures/tinymodel.h"

enum { VOCAB = 500, CTX = 400, LEAST = 16 };

static const char *backend, *kv_type;
static size_t stride; /* between the cases that are run */
static bool ahead;    /* as backend_go_ahead has it     */
static gm_err err;
static const gm_bias NO_END[] = {{1, -1000}, {106, -1000}};

#define LEN(a) (sizeof(a) / sizeof *(a))
#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

/* ---- a model, and an engine on which nothing is shared ----------------------------------- */

typedef struct place {
    gm_model *model;
    gm_engine *plain; /* one request at a time, closed before the next: the answers as they are */
    uint32_t window;
} place;

static gm_engine *engine_of(const gm_model *m, uint32_t n_slots)
{
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = n_slots;
    o.n_threads = 1;
    o.backend = backend;
    o.kv_type = kv_type;
    OK(gm_engine_open(&e, m, &o, &err));
    backend_go_ahead(e, ahead);
    return e;
}

/* Five local layers and a global one. */
static place place_of(uint32_t window)
{
    static const tiny_shape shape = {
        .n_layer = 6, .n_ffn = 32, .n_head = 2, .n_kv_head = 1, .head_dim = 32, .n_ctx = CTX};
    tiny t;
    place p = {.window = window};
    tiny_init(&t, &shape);
    tiny_u32(&t, "gemma3.attention.sliding_window", window);
    p.model = tiny_open(&t, "prefix.gguf");
    tiny_deinit(&t);
    p.plain = engine_of(p.model, 1);
    return p;
}

static void place_drop(place *p)
{
    gm_engine_close(p->plain);
    gm_model_close(p->model);
}

/* ---- prompts ------------------------------------------------------------------------------ */

/* n tokens of which the first `common` are those of every prompt of the family. */
typedef struct prompt {
    int32_t ids[CTX];
    uint32_t n;
} prompt;

static prompt prompt_of(uint64_t family, uint32_t common, uint32_t n, uint64_t salt)
{
    prompt p = {.n = n};
    for (uint32_t i = 0; i < n; i++)
        p.ids[i] = (int32_t)(tiny_random(i < common ? family : 1000 + salt, i) % VOCAB);
    /* Where they part is known. */
    if (common < n) p.ids[common] = (int32_t)(200 + salt);
    return p;
}

static gm_request_opts opts_of(const place *w, const prompt *p, uint32_t max_tokens)
{
    gm_request_opts o = gm_request_opts_default(w->model);
    o.ids = p->ids;
    o.n_ids = p->n;
    o.max_tokens = max_tokens;
    o.flags = GM_REQUEST_HASH;
    o.sampling.temperature = 1.1f;
    o.sampling.seed = p->n;
    o.sampling.n_bias = LEN(NO_END);
    o.sampling.bias = NO_END;
    return o;
}

/* ---- answers ------------------------------------------------------------------------------ */

static void assert_same_answer(const tiny_answer *a, const tiny_answer *b)
{
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->reason, b->reason);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, a->n * sizeof *a->id);
    assert_memory_equal(a->hash, b->hash, a->n * sizeof *a->hash);
    assert_memory_equal(a->logprob, b->logprob, a->n * sizeof *a->logprob);
    assert_string_equal(a->text, b->text);
}

/* Reads a request to its end: the answer is that of the engine which shares nothing. Answers how
 * many tokens were taken over. */
static uint32_t finish(const place *w, gm_request *r, const gm_request_opts *o, tiny_answer *out)
{
    static tiny_answer plain, got;
    gm_event ev;
    tiny_run(w->plain, o, &plain);
    got = (tiny_answer){0};
    tiny_collect(r, &got);
    assert_same_answer(&got, &plain);
    OK(gm_request_next(r, &ev, &err));
    assert_int_equal(ev.kind, GM_EVENT_END);
    assert_int_equal(ev.n_prompt, o->n_ids);
    if (out) *out = got;
    return ev.n_cached;
}

static gm_request *start(gm_engine *e, const gm_request_opts *o)
{
    gm_request *r = NULL;
    OK(gm_request_open(&r, e, o, &err));
    return r;
}

/* A request that runs to its end and stays open. */
static gm_request *keep(const place *w, gm_engine *e, const gm_request_opts *o, uint32_t n_cached)
{
    gm_request *const r = start(e, o);
    const uint32_t n = finish(w, r, o, NULL);
    if (n != n_cached)
        fail_msg("%u of %zu tokens taken over, expected %u; window %u", n, o->n_ids, n_cached,
                 w->window);
    return r;
}

/* Waits until the ring is full and the sequence parked. */
static void park(gm_request *r)
{
    for (;;) {
        pthread_mutex_lock(&r->engine->lock);
        const bool parked = r->n_put - r->n_taken == r->n_ring;
        pthread_mutex_unlock(&r->engine->lock);
        if (parked) return;
        usleep(100);
    }
}

static void close_idle(gm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (int c = 0; c < GM_CLASSES; c++)
        assert_int_equal(e->place.pool.n_free[c], e->place.pool.n_pages[c]);
    assert_null(e->kept);
    assert_null(e->queue);
    assert_int_equal(e->n_active, 0);
    pthread_mutex_unlock(&e->lock);
    gm_engine_close(e);
}

/* The page in which the window of a position begins. */
static uint32_t seen_page(uint32_t window, uint32_t pos)
{
    return window == 0 || pos + 1 < window ? 0 : (pos + 1 - window) / GM_PAGE_LEN;
}

/* Tokens that a prompt of n takes over from a request that has them in common, and has answered. */
static uint32_t expected(const place *w, const prompt *donor, uint32_t n_answer, uint32_t common,
                         uint32_t n)
{
    const uint32_t done = donor->n + n_answer - 1;
    const uint32_t last = n_answer > 1 ? done - 1 : 0; /* where the donor's last step began */
    uint32_t most = common < done ? common : done;
    if (most > n - 1) most = n - 1;
    if (most < LEAST || seen_page(w->window, last) > seen_page(w->window, most)) return 0;
    return most;
}

/* ---- beginnings ---------------------------------------------------------------------------- */

static const uint32_t windows[] = {0, 8, 33, 64, 1000};
static const uint32_t lengths[] = {1, 15, 16, 17, 31, 32, 33, 39, 40, 41, 63, 64, 65, 96, 97};

/* The answers of engines on which nothing else has ever run. */
static void test_plain_answers_are_fresh_answers(void **state)
{
    (void)state;
    place w = place_of(40);
    for (uint64_t i = 0; i < 3; i++) {
        static tiny_answer fresh, plain;
        const prompt p = prompt_of(i, 40, 50, i);
        const gm_request_opts o = opts_of(&w, &p, 60);
        gm_engine *const e = engine_of(w.model, 1);
        tiny_run(e, &o, &fresh);
        tiny_run(w.plain, &o, &plain);
        tiny_run(w.plain, &o, &plain);
        assert_same_answer(&plain, &fresh);
        gm_engine_close(e);
    }
    place_drop(&w);
}

static void test_identical_prompts(void **state)
{
    (void)state;
    place w = place_of(40);
    for (size_t i = 0; i < LEN(lengths); i += stride) {
        const prompt p = prompt_of(1, lengths[i], lengths[i], 0);
        const gm_request_opts o = opts_of(&w, &p, 5);
        gm_engine *const e = engine_of(w.model, 1);
        gm_request *r[3];
        r[0] = keep(&w, e, &o, 0);
        for (int k = 1; k < 3; k++)
            r[k] = keep(&w, e, &o, expected(&w, &p, 5, p.n, p.n));
        for (int k = 0; k < 3; k++)
            gm_request_close(r[k]);
        gm_request_close(keep(&w, e, &o, 0)); /* of what is closed nothing is left */
        close_idle(e);
    }
    place_drop(&w);
}

static void test_common_beginnings(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(windows); i++) {
        place w = place_of(windows[i]);
        gm_engine *const e = engine_of(w.model, 2);
        for (size_t k = i % stride; k < LEN(lengths); k += stride) {
            const uint32_t n = lengths[k], n_answer = 1 + (uint32_t)(k % 3) * 20;
            const prompt first = prompt_of(k, n, n + 20, 1), second = prompt_of(k, n, n + 7, 2);
            const gm_request_opts a = opts_of(&w, &first, n_answer), b = opts_of(&w, &second, 9);
            gm_request *const donor = keep(&w, e, &a, 0);
            gm_request_close(keep(&w, e, &b, expected(&w, &first, n_answer, n, second.n)));
            gm_request_close(donor);
        }
        close_idle(e);
        place_drop(&w);
    }
}

/* A shorter prompt than the donor's, and one that the donor's is the beginning of. */
static void test_beginnings_of_each_other(void **state)
{
    (void)state;
    place w = place_of(64);
    const prompt whole = prompt_of(1, 90, 90, 0), part = prompt_of(1, 70, 70, 0);
    const gm_request_opts a = opts_of(&w, &whole, 3), b = opts_of(&w, &part, 3);
    for (int order = 0; order < 2; order++) {
        gm_engine *const e = engine_of(w.model, 1);
        gm_request *const donor = keep(&w, e, order ? &b : &a, 0);
        gm_request_close(keep(&w, e, order ? &a : &b, order ? 70 : 69));
        gm_request_close(donor);
        close_idle(e);
    }
    place_drop(&w);
}

/* ---- chats ----------------------------------------------------------------------------------- */

/* Each turn's prompt is all that was said and something more. All but the token drawn last is
 * there. Answering a turn again builds on the turn before it, where its own has gone too far. */
static void test_turns_of_a_chat(void **state)
{
    (void)state;
    static const uint32_t chat_windows[] = {0, 8, 40};
    for (size_t i = stride > 1; i < LEN(chat_windows); i += stride) {
        enum { TURNS = 4 };
        static tiny_answer a;
        place w = place_of(chat_windows[i]);
        gm_engine *const e = engine_of(w.model, 1);
        gm_request *turn[TURNS], *again = NULL;
        prompt p = prompt_of(7, 20, 20, 0);
        uint32_t n_there = 0;
        for (uint64_t t = 0; t < TURNS; t++) {
            const gm_request_opts o = opts_of(&w, &p, 45);
            turn[t] = start(e, &o);
            assert_int_equal(finish(&w, turn[t], &o, &a), n_there);
            again = start(e, &o);
            const uint32_t n = finish(&w, again, &o, NULL);
            gm_request_close(again);
            assert_true(n >= n_there && (n == p.n - 1 || n == n_there));
            n_there = p.n + a.n - 1;
            memcpy(p.ids + p.n, a.id, a.n * sizeof *p.ids);
            p.n += a.n;
            const prompt more = prompt_of(8 + t, 12, 12, 0);
            memcpy(p.ids + p.n, more.ids, more.n * sizeof *p.ids);
            p.n += more.n;
        }
        for (int t = 0; t < TURNS; t++)
            gm_request_close(turn[t]);
        close_idle(e);
        place_drop(&w);
    }
}

/* ---- donors that run --------------------------------------------------------------------------- */

enum { FIRST_DONOR, FIRST_SHARER, DONOR_CLOSED, SHARER_CLOSED, N_ORDERS };

/* Both are parked in the middle of their answers, with pages in common. */
static void share_with_a_running_donor(const place *w, uint32_t n, int order)
{
    gm_engine *const e = engine_of(w->model, 2);
    const prompt p = prompt_of(3, n, n, 0), q = prompt_of(3, n, n + 3, 9);
    const gm_request_opts a = opts_of(w, &p, 90), b = opts_of(w, &q, 80);
    gm_request *const donor = start(e, &a);
    park(donor);
    gm_request *const sharer = start(e, &b);
    park(sharer);
    const uint32_t n_cached = expected(w, &p, GM_SEQ_RING, n, q.n);
    if (order == DONOR_CLOSED) gm_request_close(donor);
    if (order == SHARER_CLOSED) gm_request_close(sharer);
    if (order == FIRST_DONOR || order == SHARER_CLOSED)
        assert_int_equal(finish(w, donor, &a, NULL), 0);
    if (order != SHARER_CLOSED) assert_int_equal(finish(w, sharer, &b, NULL), n_cached);
    if (order == FIRST_SHARER) assert_int_equal(finish(w, donor, &a, NULL), 0);
    if (order != DONOR_CLOSED) gm_request_close(donor);
    if (order != SHARER_CLOSED) gm_request_close(sharer);
    close_idle(e);
}

static void test_running_donor(void **state)
{
    (void)state;
    static const uint32_t running_windows[] = {8, 40, 200}, prompts[] = {33, 40, 64, 90};
    for (size_t i = 0; i < LEN(running_windows); i++) {
        place w = place_of(running_windows[i]);
        for (size_t k = i % stride; k < LEN(prompts) * N_ORDERS; k += stride)
            share_with_a_running_donor(&w, prompts[k / N_ORDERS], (int)(k % N_ORDERS));
        place_drop(&w);
    }
}

/* Far past the window nothing is left to share on local layers, and all is computed anew; another
 * one that has as much in common and is not so far still serves. */
static void test_donor_past_the_window(void **state)
{
    (void)state;
    place w = place_of(8);
    gm_engine *const e = engine_of(w.model, 1);
    const prompt p = prompt_of(5, 50, 50, 0);
    const gm_request_opts far = opts_of(&w, &p, 150), near = opts_of(&w, &p, 2);
    gm_request *r[4];
    r[0] = keep(&w, e, &far, 0);
    r[1] = keep(&w, e, &near, 0);
    r[2] = keep(&w, e, &near, 49);
    gm_request_close(r[1]);
    r[3] = keep(&w, e, &far, 49); /* a sharer serves as well */
    gm_request_close(r[0]);
    gm_request_close(r[2]);
    gm_request_close(r[3]);
    close_idle(e);
    place_drop(&w);
}

/* ---- donors that come to nothing ---------------------------------------------------------------- */

static void test_cancelled_donor(void **state)
{
    (void)state;
    static tiny_answer a;
    place w = place_of(200);
    for (uint64_t i = 0; i < 8; i++) {
        gm_engine *const e = engine_of(w.model, 1);
        const prompt p = prompt_of(i, 70, 70, 0), q = prompt_of(i, 70, 80, 1);
        const gm_request_opts o = opts_of(&w, &p, 0), b = opts_of(&w, &q, 20);
        gm_request *const donor = start(e, &o);
        if (i == 0)
            park(donor);
        else
            usleep((useconds_t)(i * 300)); /* in the queue, in the prompt, in the answer */
        gm_request_cancel(donor);
        a = (tiny_answer){0};
        tiny_collect(donor, &a);
        assert_int_equal(a.reason, GM_END_CANCEL);
        gm_request *const sharer = start(e, &b);
        const uint32_t n = finish(&w, sharer, &b, NULL);
        assert_true(n == 0 || n == 70);
        if (i == 0) assert_int_equal(n, 70);
        gm_request_close(sharer);
        gm_request_close(donor);
        close_idle(e);
    }
    place_drop(&w);
}

/* A backend whose steps fail, or wait, when told to. */
static const gm_backend_ops *real;
static gm_backend_ops shaky;
static atomic_int n_failing;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static gm_status shaky_wait(gm_backend *be, gm_ticket t, gm_result *r, gm_err *e)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    const gm_status status = real->wait(be, t, r, e);
    if (atomic_load(&n_failing) == 0) return status;
    atomic_fetch_sub(&n_failing, 1);
    *r = (gm_result){0};
    return gm_fail(e, GM_E_DEVMEM, 0, "there is no memory");
}

static gm_engine *shaky_engine_of(const gm_model *m, uint32_t n_slots)
{
    gm_engine *const e = engine_of(m, n_slots);
    pthread_mutex_lock(&e->lock);
    real = e->place.runner.ops;
    shaky = *real;
    shaky.wait = shaky_wait;
    e->place.runner.ops = &shaky;
    pthread_mutex_unlock(&e->lock);
    return e;
}

/* Of a failed request nothing is taken over; one that took over before the failure goes on. */
static void test_failing_donor(void **state)
{
    (void)state;
    static tiny_answer a;
    place w = place_of(200);
    gm_engine *const e = shaky_engine_of(w.model, 2);
    const prompt p = prompt_of(1, 70, 70, 0);
    const gm_request_opts o = opts_of(&w, &p, 80), b = opts_of(&w, &p, 60);
    gm_request *const donor = start(e, &o);
    park(donor);
    gm_request *const sharer = start(e, &b);
    park(sharer);
    atomic_store(&n_failing, 1);
    a = (tiny_answer){0};
    tiny_collect(donor, &a);
    assert_int_equal(a.status, GM_E_DEVMEM);
    assert_int_equal(finish(&w, sharer, &b, NULL), 69);
    gm_request_close(sharer);
    gm_request_close(keep(&w, e, &b, 0)); /* the failed one is still open */
    gm_request_close(donor);

    atomic_store(&n_failing, 1); /* in the prompt */
    gm_request *const early = start(e, &o);
    a = (tiny_answer){0};
    tiny_collect(early, &a);
    assert_int_equal(a.status, GM_E_DEVMEM);
    gm_request_close(keep(&w, e, &b, 0));
    gm_request_close(early);
    close_idle(e);
    place_drop(&w);
}

/* ---- penalties ------------------------------------------------------------------------------------ */

static gm_request_opts penalised_of(const place *w, const prompt *p, uint32_t max_tokens)
{
    gm_request_opts o = opts_of(w, p, max_tokens);
    o.sampling.repeat_penalty = 1.8f;
    o.sampling.frequency_penalty = 0.3f;
    o.sampling.presence_penalty = 0.2f;
    return o;
}

/* Tokens that were taken over count as those that were computed. */
static void test_penalties(void **state)
{
    (void)state;
    place w = place_of(64);
    gm_engine *const e = engine_of(w.model, 1);
    for (uint64_t i = 0; i < 4; i++) {
        const prompt p = prompt_of(i, 60, 70, 1), q = prompt_of(i, 60, 75, 2);
        gm_request_opts a = i % 2 ? penalised_of(&w, &p, 3) : opts_of(&w, &p, 3);
        gm_request_opts b = penalised_of(&w, &q, 50);
        a.sampling.temperature = b.sampling.temperature = i < 2 ? 0 : 1.1f;
        gm_request *const donor = keep(&w, e, &a, 0);
        gm_request_close(keep(&w, e, &b, 60));
        gm_request_close(donor);
    }
    close_idle(e);
    place_drop(&w);
}

/* Long prompts that begin in one step, since only their ends are computed: the step has no room for
 * the counts of all of them, and still each gets its own. */
static void test_penalties_of_many_at_once(void **state)
{
    (void)state;
    enum { MANY = 4 };
    place w = place_of(64);
    gm_engine *const e = shaky_engine_of(w.model, MANY + 1);
    const prompt p = prompt_of(1, 390, 390, 0), other = prompt_of(2, 5, 5, 0);
    const gm_request_opts o = penalised_of(&w, &p, 8), small = opts_of(&w, &other, 40);
    gm_request *const donor = keep(&w, e, &o, 0);
    pthread_mutex_lock(&gate);
    gm_request *const busy = start(e, &small);
    usleep(2000);
    gm_request *r[MANY];
    for (int i = 0; i < MANY; i++)
        r[i] = start(e, &o);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(finish(&w, r[i], &o, NULL), 389);
    assert_int_equal(finish(&w, busy, &small, NULL), 0);
    for (int i = 0; i < MANY; i++)
        gm_request_close(r[i]);
    gm_request_close(busy);
    gm_request_close(donor);
    close_idle(e);
    place_drop(&w);
}

/* ---- many ------------------------------------------------------------------------------------------- */

/* More finished requests than the pool has pages for: the oldest lose theirs first. */
static void test_eviction(void **state)
{
    (void)state;
    enum { KEPT = 9 };
    place w = place_of(40);
    gm_engine *const e = engine_of(w.model, 1);
    gm_request *r[2 * KEPT];
    for (uint64_t i = 0; i < KEPT; i++) {
        const prompt p = prompt_of(i, 100, 110, 1);
        const gm_request_opts o = opts_of(&w, &p, 1);
        r[i] = keep(&w, e, &o, 0);
    }
    /* 13 pages: the last three, with four each, are there. */
    for (uint64_t i = 0; i < KEPT; i++) {
        const uint64_t family = KEPT - 1 - i;
        const prompt p = prompt_of(family, 100, 105, 2);
        const gm_request_opts o = opts_of(&w, &p, 1);
        r[KEPT + i] = start(e, &o);
        const uint32_t n = finish(&w, r[KEPT + i], &o, NULL);
        if (i == 0) assert_int_equal(n, 100);
        if (family == 0) assert_int_equal(n, 0);
        assert_true(n == 0 || n == 100);
    }
    const prompt full = prompt_of(99, 390, 390, 0); /* needs every page */
    const gm_request_opts o = opts_of(&w, &full, 0);
    gm_request *const last = keep(&w, e, &o, 0);
    for (uint32_t i = 0; i < 2 * KEPT; i++)
        gm_request_close(r[i]);
    gm_request_close(last);
    close_idle(e);
    place_drop(&w);
}

static void test_families(void **state)
{
    (void)state;
    enum { MANY = 20, FAMILIES = 4 };
    static prompt p[MANY];
    place w = place_of(40);
    gm_engine *const e = engine_of(w.model, 3);
    gm_request_opts o[MANY];
    gm_request *r[MANY];
    uint32_t n_cached = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        const uint32_t common = 20 + 25 * (uint32_t)(i % FAMILIES);
        p[i] = prompt_of(i % FAMILIES, common, common + 1 + (uint32_t)(i * 7 % 40), i);
        o[i] = i % 3 ? opts_of(&w, &p[i], 5 + (uint32_t)(i * 11 % 50))
                     : penalised_of(&w, &p[i], 5 + (uint32_t)(i * 13 % 50));
        r[i] = start(e, &o[i]);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        n_cached += finish(&w, r[i], &o[i], NULL);
        if (i % 5 == 4) { /* others stay until the end */
            gm_request_close(r[i - 2]);
            r[i - 2] = NULL;
        }
    }
    assert_true(n_cached > 0);
    for (uint32_t i = 0; i < MANY; i++)
        gm_request_close(r[i * 7 % MANY]);
    close_idle(e);
    place_drop(&w);
}

/* Short requests, each closed a few later: pages do not leak, and the rest is as it was. */
static void test_soak(void **state)
{
    (void)state;
    enum { MANY = 300, OPEN = 5 };
    place w = place_of(33);
    gm_engine *const e = engine_of(w.model, 2);
    gm_request *r[OPEN] = {NULL};
    static tiny_answer a;
    for (uint64_t i = 0; i < MANY / stride; i++) {
        const prompt p = prompt_of(i % 3, 34, 36 + (uint32_t)(i % 30), i % 7);
        const gm_request_opts o = opts_of(&w, &p, 1 + (uint32_t)(i % 4));
        gm_request_close(r[i % OPEN]);
        r[i % OPEN] = start(e, &o);
        if (i % 9 == 0) continue; /* closed unread, perhaps not even begun */
        a = (tiny_answer){0};
        tiny_collect(r[i % OPEN], &a);
        assert_int_equal(a.n, 1 + i % 4);
    }
    for (int i = 0; i < OPEN; i++)
        gm_request_close(r[i]);
    close_idle(e);
    place_drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_answers_are_fresh_answers),
        cmocka_unit_test(test_identical_prompts),
        cmocka_unit_test(test_common_beginnings),
        cmocka_unit_test(test_beginnings_of_each_other),
        cmocka_unit_test(test_turns_of_a_chat),
        cmocka_unit_test(test_running_donor),
        cmocka_unit_test(test_donor_past_the_window),
        cmocka_unit_test(test_cancelled_donor),
        cmocka_unit_test(test_failing_donor),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_penalties_of_many_at_once),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_soak),
    };
    static const char *const backends[] = {"cpu", "ref"}, *const types[] = {"f32", "f16", "q8_0"};
    int failed = 0;
    for (size_t i = 0; i < LEN(backends); i++) {
        for (size_t k = 0; k < LEN(types); k++) {
            backend = backends[i];
            kv_type = types[k];
            stride = i == 0 && k == 0 ? 1 : 7;
            ahead = k == 1;
            print_message("backend %s, KV cache of %s%s\n", backend, kv_type,
                          ahead ? ", a step ahead" : "");
            failed += cmocka_run_group_tests_name("t_prefix", tests, tiny_setup, tiny_teardown);
        }
    }
    return failed;
}
