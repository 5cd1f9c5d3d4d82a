/* SPDX-License-Identifier: MIT */
/* What a server needs of the engine: events without waiting, a call when there are
 * some, a queue with an end, counts, and answers that do not end by themselves. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"

enum { CTX = 300 };

static gm_model *model;
static gm_err err;
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
        ids[i] = (int32_t)(tiny_random(3, i) % 500);
    return 0;
}

static int teardown(void **state)
{
    gm_model_close(model);
    return tiny_teardown(state);
}

static gm_engine *engine_of(uint32_t n_slots, uint32_t max_queue)
{
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = n_slots;
    o.max_queue = max_queue;
    o.kv_type = "f32"; /* what forward_logprobs keeps */
    OK(gm_engine_open(&e, model, &o, &err));
    return e;
}

static gm_request_opts request_of(uint32_t n_ids, uint32_t max_tokens)
{
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = ids;
    o.n_ids = n_ids;
    o.max_tokens = max_tokens;
    o.flags = GM_REQUEST_IGNORE_END;
    o.sampling.seed = 7;
    return o;
}

/* ---- events without waiting -------------------------------------------------------------- */

static void count_wake(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void test_poll_gives_what_next_gives(void **state)
{
    (void)state;
    static tiny_answer waited;
    gm_engine *const e = engine_of(1, 0);
    gm_request_opts o = request_of(40, 90);
    tiny_run(e, &o, &waited);

    atomic_int wakes = 0;
    o.wake = count_wake;
    o.wake_ctx = &wakes;
    gm_request *r = NULL;
    OK(gm_request_open(&r, e, &o, &err));
    uint32_t n = 0;
    int seen = 0;
    gm_event ev = {0};
    while (ev.kind != GM_EVENT_END) {
        OK(gm_request_poll(r, &ev, &err));
        if (ev.kind == GM_EVENT_TOKEN) {
            assert_int_equal(ev.id, waited.id[n]);
            n++;
        } else if (ev.kind == GM_EVENT_NONE) {
            while (atomic_load(&wakes) == seen) /* a missed wake-up would wait here for ever */
                usleep(50);
            seen = atomic_load(&wakes);
        }
    }
    assert_int_equal(n, waited.n);
    assert_true(atomic_load(&wakes) >= 90 / GM_SEQ_RING);
    assert_true(ev.queue_s >= 0);
    gm_request_close(r);
    gm_engine_close(e);
}

/* ---- the queue --------------------------------------------------------------------------- */

static void test_queue_has_an_end(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(1, 2);
    gm_request_opts o = request_of(9, 200);
    gm_request *r[3] = {NULL}, *no = NULL;
    for (int i = 0; i < 3; i++) /* one runs until its ring is full, two wait */
        OK(gm_request_open(&r[i], e, &o, &err));
    assert_int_equal(gm_request_open(&no, e, &o, &err), GM_E_BUSY);
    assert_null(no);
    assert_non_null(strstr(err.msg, "at most 1 at once and 2 waiting"));
    o.flags |= GM_REQUEST_ALONG;
    OK(gm_request_open(&no, e, &o, &err)); /* it goes with one of the others */
    gm_request_close(no);
    o.flags &= ~(uint32_t)GM_REQUEST_ALONG;

    gm_engine_stats s = {.size = sizeof s};
    do {
        usleep(1000);
        gm_engine_stat(e, &s);
    } while (s.n_parked == 0);
    assert_int_equal(s.n_slots, 1);
    assert_int_equal(s.n_running, 1);
    assert_int_equal(s.n_queued, 2);
    assert_int_equal(s.n_answer, GM_SEQ_RING);
    assert_int_equal(s.n_prompt, 9);
    assert_int_equal(s.n_steps, s.batch[0]);
    assert_true(s.pages_used[0] > 0 && s.pages_used[0] <= s.pages[0]);

    gm_request_close(r[1]); /* a place in the queue is free again */
    OK(gm_request_open(&no, e, &o, &err));
    gm_request_close(no);
    gm_request_close(r[2]);
    gm_request_close(r[0]);
    gm_engine_stat(e, &s);
    assert_int_equal(s.n_running + s.n_queued, 0);
    gm_engine_close(e);
}

/* Answers that belong together are one to the queue, wherever they are. */
static void test_groups_count_once(void **state)
{
    (void)state;
    enum { ALONG = 6 };
    gm_engine *const e = engine_of(2, 1);
    gm_request_opts o = request_of(9, 200);
    gm_request *r[ALONG + 2] = {NULL}, *no = NULL;
    o.group = &o;
    for (int i = 0; i < ALONG; i++, o.flags |= GM_REQUEST_ALONG)
        OK(gm_request_open(&r[i], e, &o, &err));
    o.flags &= ~(uint32_t)GM_REQUEST_ALONG;
    o.group = NULL;
    for (int i = ALONG; i < ALONG + 2; i++)
        OK(gm_request_open(&r[i], e, &o, &err));
    assert_int_equal(gm_request_open(&no, e, &o, &err), GM_E_BUSY);
    for (int i = 0; i < ALONG; i++)
        gm_request_close(r[i]);
    OK(gm_request_open(&no, e, &o, &err));
    gm_request_close(no);
    for (int i = ALONG; i < ALONG + 2; i++)
        gm_request_close(r[i]);
    gm_engine_close(e);
}

static void set_patience(gm_engine *e, double seconds)
{
    pthread_mutex_lock(&e->lock);
    e->patience_s = seconds;
    pthread_mutex_unlock(&e->lock);
}

/* Takes what comes until the end, for a minute at most; answers how many tokens that were. */
static uint32_t take_all(gm_request *r)
{
    gm_event ev = {0};
    for (int i = 0; ev.kind != GM_EVENT_END && i < 60000; i += ev.kind == GM_EVENT_NONE) {
        OK(gm_request_poll(r, &ev, &err));
        if (ev.kind == GM_EVENT_NONE) usleep(1000);
    }
    assert_int_equal(ev.kind, GM_EVENT_END);
    return ev.n_answer;
}

/* Answers that belong together leave a slot to others, however many they are and whoever came first;
 * among themselves those that are read go on, whichever they are. */
static void test_groups_leave_a_slot(void **state)
{
    (void)state;
    enum { N = 6, SLOTS = 3 };
    gm_engine *const e = engine_of(SLOTS, 0);
    gm_request_opts o = request_of(9, 200);
    gm_request *r[N] = {NULL}, *other = NULL;
    gm_event ev;
    set_patience(e, 3600);
    o.group = &o;
    for (int i = 0; i < N; i++)
        OK(gm_request_open(&r[i], e, &o, &err));
    o.group = NULL;
    OK(gm_request_open(&other, e, &o, &err));
    assert_int_equal(take_all(other), 200);
    for (int i = SLOTS - 1; i < N; i++) { /* nobody has read anything, so they still wait */
        OK(gm_request_poll(r[i], &ev, &err));
        assert_int_equal(ev.kind, GM_EVENT_NONE);
        assert_int_equal(ev.n_prompt, 9);
        assert_true(ev.queue_s > 0 && ev.prefill_s == 0);
    }
    gm_request_close(other);
    set_patience(e, 0);
    for (int i = N - 1; i >= 0; i--)
        assert_int_equal(take_all(r[i]), 200);
    for (int i = 0; i < N; i++)
        gm_request_close(r[i]);
    gm_engine_close(e);
}

/* Waits until so many hold slots and nobody of them goes on, since nobody reads. */
static void await_parked(gm_engine *e, uint32_t n)
{
    gm_engine_stats s = {.size = sizeof s};
    for (int i = 0; s.n_parked != n && i < 60000; i++) {
        usleep(1000);
        gm_engine_stat(e, &s);
    }
    assert_int_equal(s.n_parked, n);
    assert_int_equal(s.n_running, n);
}

/* How many of n have an event for whoever would read. */
static uint32_t begun(gm_request *const *r, int n)
{
    uint32_t sum = 0;
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&r[i]->engine->lock);
        sum += r[i]->n_put > 0;
        pthread_mutex_unlock(&r[i]->engine->lock);
    }
    return sum;
}

/* However many ask for however many answers: each of them has half of the slots at most, and together
 * they leave one. */
static void test_groups_share(void **state)
{
    (void)state;
    enum { GROUPS = 3, N = 6, ALL = GROUPS * N };
    static const uint32_t cases[][1 + GROUPS] = {
        /* slots, and how many each group gets of them */
        {1, 1, 0, 0}, {2, 1, 0, 0}, {3, 2, 0, 0}, {4, 2, 1, 0}, {8, 4, 3, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        gm_engine *const e = engine_of(cases[k][0], 0);
        gm_request_opts o = request_of(9, 200);
        gm_request *r[ALL] = {NULL}, *other = NULL;
        set_patience(e, 3600);
        for (uint32_t i = 0, sum = 0; i < ALL; i++) {
            o.group = &r[i / N];
            OK(gm_request_open(&r[i], e, &o, &err));
            if (i % N == N - 1) await_parked(e, sum += cases[k][1 + i / N]);
        }
        o.group = NULL;
        OK(gm_request_open(&other, e, &o, &err));
        if (cases[k][0] > 1) assert_int_equal(take_all(other), 200);
        for (int g = 0; g < GROUPS; g++)
            assert_int_equal(begun(r + g * N, N), cases[k][1 + g]);
        gm_request_close(other);
        set_patience(e, 0);
        for (int i = ALL - 1; i >= 0; i--)
            assert_int_equal(take_all(r[i]), 200);
        for (int i = 0; i < ALL; i++)
            gm_request_close(r[i]);
        gm_engine_close(e);
    }
}

/* A place that gets free is for who has none, though another's next answer waited before. */
static void test_next_answers_let_pass(void **state)
{
    (void)state;
    enum { SLOTS = 4 };
    gm_engine *const e = engine_of(SLOTS, 0);
    gm_request_opts o = request_of(9, 200);
    gm_request *many[2] = {NULL}, *one[SLOTS] = {NULL};
    set_patience(e, 3600);
    o.group = &o;
    OK(gm_request_open(&many[0], e, &o, &err));
    o.group = NULL;
    for (int i = 0; i < SLOTS - 1; i++)
        OK(gm_request_open(&one[i], e, &o, &err));
    await_parked(e, SLOTS);
    o.group = &o;
    OK(gm_request_open(&many[1], e, &o, &err));
    o.group = NULL;
    OK(gm_request_open(&one[SLOTS - 1], e, &o, &err));
    gm_request_close(one[0]);
    await_parked(e, SLOTS);
    assert_int_equal(begun(&one[SLOTS - 1], 1), 1);
    assert_int_equal(begun(many, 2), 1);
    gm_request_close(one[1]);
    await_parked(e, SLOTS);
    assert_int_equal(begun(many, 2), 2);
    for (int i = 0; i < 2; i++)
        gm_request_close(many[i]);
    for (int i = 2; i < SLOTS; i++)
        gm_request_close(one[i]);
    gm_engine_close(e);
}

/* A check says what opening would, and opens nothing. */
static void test_check_refuses_the_same(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(1, 1);
    gm_request *r = NULL;
    gm_err other = {0};
    const gm_request_opts good = request_of(9, 5);
    gm_request_opts cases[4] = {good, good, good, good};
    cases[0].n_ids = 0;
    cases[1].n_ids = CTX;
    cases[2].sampling.temperature = -1;
    cases[3].flags = 2 * GM_REQUEST_ALONG;
    for (int i = 0; i < 4; i++) {
        const gm_status status = gm_request_open(&r, e, &cases[i], &err);
        assert_int_not_equal(status, GM_OK);
        assert_int_equal(gm_request_check(e, &cases[i], &other), status);
        assert_string_equal(other.msg, err.msg);
    }
    for (int i = 0; i < 3; i++)
        OK(gm_request_check(e, &good, &err));
    OK(gm_request_open(&r, e, &good, &err));
    gm_request_close(r);
    gm_engine_close(e);
}

static void test_unknown_options_are_refused(void **state)
{
    (void)state;
    gm_engine *e = NULL;
    gm_engine_opts eo = gm_engine_opts_default();
    eo.n_threads = 1025;
    assert_int_equal(gm_engine_open(&e, model, &eo, &err), GM_E_ARG);
    e = engine_of(1, 0);
    gm_request_opts o = request_of(9, 5);
    gm_request *no = NULL;
    o.flags |= 2 * GM_REQUEST_ALONG;
    assert_int_equal(gm_request_open(&no, e, &o, &err), GM_E_ARG);
    gm_engine_close(e);
}

/* ---- the end ----------------------------------------------------------------------------- */

/* With a bias that makes <eos> certain, the answer ends at once; or, asked not to, never. */
static void test_ignore_end(void **state)
{
    (void)state;
    static const gm_bias END[] = {{1, 1000}};
    static tiny_answer a;
    gm_engine *const e = engine_of(1, 0);
    gm_request_opts o = request_of(5, 50);
    o.sampling.bias = END;
    o.sampling.n_bias = 1;
    tiny_run(e, &o, &a);
    assert_int_equal(a.n, 50);
    assert_int_equal(a.reason, GM_END_LENGTH);
    for (uint32_t i = 0; i < a.n; i++)
        assert_true(a.id[i] != 1 && a.id[i] != 106);
    o.flags = 0;
    tiny_run(e, &o, &a);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.reason, GM_END_STOP);
    gm_engine_close(e);
}

/* ---- the prompt's own log-probabilities -------------------------------------------------- */

/* Prompts shorter and longer than a step tells and than a ring holds, with and without an answer:
 * every token's log-probability is that of the whole sequence in one step. */
static void test_prompt_is_told(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 2, 17, 33, 100};
    gm_engine *const e = engine_of(2, 0);
    float *const lp = forward_logprobs(model, ids, 100, &(forward_opts){"cpu", 0});
    for (size_t k = 0; k < 2 * sizeof lengths / sizeof *lengths; k++) {
        const uint32_t n = lengths[k / 2], n_answer = k % 2 ? 3 : 0;
        gm_request_opts o = request_of(n, n_answer);
        o.n_top = 2;
        o.flags |= GM_REQUEST_PROMPT | (n_answer ? 0 : GM_REQUEST_NO_ANSWER);
        gm_request *r = NULL;
        gm_event ev = {0};
        OK(gm_request_open(&r, e, &o, &err));
        for (uint32_t i = 1; i < n; i++) {
            OK(gm_request_next(r, &ev, &err));
            const float whole = lp[(i - 1) * 500 + (uint32_t)ids[i]];
            assert_int_equal(ev.kind, GM_EVENT_PROMPT);
            assert_int_equal(ev.id, ids[i]);
            assert_true(fabsf(ev.logprob - whole) <= 1e-5f * (1 + fabsf(whole)));
            assert_int_equal(ev.n_top, 2);
            assert_true(ev.top[0].logprob >= ev.top[1].logprob);
            assert_int_equal(ev.len, 0);
        }
        for (uint32_t i = 0; i < n_answer; i++) {
            OK(gm_request_next(r, &ev, &err));
            assert_int_equal(ev.kind, GM_EVENT_TOKEN);
        }
        OK(gm_request_next(r, &ev, &err));
        assert_int_equal(ev.kind, GM_EVENT_END);
        assert_int_equal(ev.reason, GM_END_LENGTH);
        assert_int_equal(ev.n_prompt, n);
        assert_int_equal(ev.n_answer, n_answer);
        gm_request_close(r);
    }
    free(lp);
    gm_engine_close(e);
}

/* ---- text -------------------------------------------------------------------------------- */

static void test_detokenize(void **state)
{
    (void)state;
    static const int32_t some[] = {2, 7, 238 + 0xC3, 106, 238 + 0xC3, 238 + 0xA9};
    gm_text t = {0};
    OK(gm_model_detokenize(model, some, 6, 0, &t, &err));
    assert_string_equal(t.p, "p7\xEF\xBF\xBD\xC3\xA9"); /* one byte of a character, then a whole */
    t.len = 0;
    OK(gm_model_detokenize(model, some, 6, GM_DETOKENIZE_SPECIAL, &t, &err));
    assert_string_equal(t.p, "<bos>p7\xEF\xBF\xBD<end_of_turn>\xC3\xA9");
    t.len = 0;
    OK(gm_model_detokenize(model, some, 3, GM_DETOKENIZE_BYTES, &t, &err));
    assert_string_equal(t.p, "p7\xC3");
    t.len = 0;
    assert_int_equal(gm_model_detokenize(model, (const int32_t[]){5, 500}, 2, 0, &t, &err),
                     GM_E_ARG);
    assert_non_null(strstr(err.msg, "token 1 is 500, expected 0 to 499"));
    assert_int_equal(t.len, 0);
    gm_text_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poll_gives_what_next_gives),
        cmocka_unit_test(test_queue_has_an_end),
        cmocka_unit_test(test_groups_count_once),
        cmocka_unit_test(test_groups_leave_a_slot),
        cmocka_unit_test(test_groups_share),
        cmocka_unit_test(test_next_answers_let_pass),
        cmocka_unit_test(test_check_refuses_the_same),
        cmocka_unit_test(test_unknown_options_are_refused),
        cmocka_unit_test(test_ignore_end),
        cmocka_unit_test(test_prompt_is_told),
        cmocka_unit_test(test_detokenize),
    };
    return cmocka_run_group_tests_name("t_clients", tests, setup, teardown);
}
