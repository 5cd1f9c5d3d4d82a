/* SPDX-License-Identifier: MIT */
/* An engine that keeps a cache: what is taken over after a request is closed, from where, what goes
 * first when pages run out; and that every answer is to the bit what it is without a cache. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "fixtures/tinymodel.h"

enum { CTX = 600, WINDOW = 40, TURN = 106, VOCAB = 500 };

static gm_model *model;
static gm_engine *plain; /* one request at a time and no cache: the answers as they are */
static gm_err err;

#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

static gm_engine *engine_of(uint32_t n_slots, uint32_t cache)
{
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = n_slots;
    o.n_threads = 1;
    o.n_ctx = CTX;
    o.cache = cache;
    OK(gm_engine_open(&e, model, &o, &err));
    return e;
}

static int setup(void **state)
{
    static const tiny_shape shape = {.n_layer = 6, .n_ctx = CTX, .head_dim = 32, .n_kv_head = 1};
    tiny t;
    if (tiny_setup(state) != 0) return -1;
    tiny_init(&t, &shape);
    tiny_u32(&t, "gemma3.attention.sliding_window", WINDOW);
    model = tiny_open(&t, "cache.gguf");
    tiny_deinit(&t);
    plain = engine_of(1, 0);
    return 0;
}

static int teardown(void **state)
{
    gm_engine_close(plain);
    gm_model_close(model);
    return tiny_teardown(state);
}

/* ---- prompts ----------------------------------------------------------------------------- */

typedef struct talk {
    int32_t ids[CTX];
    uint32_t n;
} talk;

/* n more tokens, none of which ends a turn. */
static void say(talk *t, uint64_t seed, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        t->ids[t->n++] = (int32_t)(110 + tiny_random(seed, i) % (VOCAB - 110));
}

static void end_turn(talk *t)
{
    t->ids[t->n++] = TURN;
}

static gm_request_opts opts_of(const talk *t, uint32_t max_tokens)
{
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = t->ids;
    o.n_ids = t->n;
    o.max_tokens = max_tokens;
    o.flags = GM_REQUEST_HASH | GM_REQUEST_IGNORE_END;
    o.sampling.seed = t->n;
    return o;
}

/* Asks both engines; the answers are the same. Answers how many tokens were taken over. */
static uint32_t ask(gm_engine *e, const talk *t, uint32_t max_tokens, tiny_answer *out)
{
    static tiny_answer want, got;
    const gm_request_opts o = opts_of(t, max_tokens);
    gm_request *r = NULL;
    gm_event ev;
    tiny_run(plain, &o, &want);
    OK(gm_request_open(&r, e, &o, &err));
    got = (tiny_answer){0};
    tiny_collect(r, &got);
    OK(gm_request_next(r, &ev, &err));
    gm_request_close(r);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.id, want.id, want.n * sizeof *want.id);
    assert_memory_equal(got.hash, want.hash, want.n * sizeof *want.hash);
    if (out) *out = got;
    return ev.n_cached;
}

/* Whether about n tokens were taken over: at most n, and no more than a page less. */
static void assert_about(uint32_t got, uint32_t n)
{
    if (got > n || got + GM_PAGE_LEN <= n) fail_msg("%u tokens taken over, expected %u", got, n);
}

/* ---- what is taken over ------------------------------------------------------------------ */

/* The same prompt again, after answers shorter and longer than the window. */
static void test_the_same_again(void **state)
{
    (void)state;
    static const uint32_t answers[] = {1, 20, 100, 300};
    for (size_t i = 0; i < 4; i++) {
        gm_engine *const e = engine_of(1, 1);
        talk t = {0};
        say(&t, i, 150);
        assert_int_equal(ask(e, &t, answers[i], NULL), 0);
        assert_about(ask(e, &t, answers[i], NULL), t.n - 1);
        assert_about(ask(e, &t, 5, NULL), t.n - 1);
        gm_engine_close(e);
    }
}

/* A talk of several turns: each takes over all that was said before; and one can go back to any of
 * them. */
static void test_turns(void **state)
{
    (void)state;
    static tiny_answer a;
    gm_engine *const e = engine_of(2, 1);
    talk t = {0}, at[4];
    for (uint64_t i = 0; i < 4; i++) {
        const uint32_t before = t.n;
        say(&t, 10 + i, 30);
        at[i] = t;
        assert_about(ask(e, &t, 60, &a), i ? before - 1 : 0);
        memcpy(t.ids + t.n, a.id, a.n * sizeof *a.id);
        t.n += a.n;
        end_turn(&t);
    }
    for (uint64_t i = 4; i-- > 0;) { /* another question in place of the one that was asked then */
        talk other = at[i];
        other.n -= 30;
        say(&other, 50 + i, 30);
        assert_about(ask(e, &other, 10, NULL), i ? other.n - 30 : 0);
    }
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_int_equal(s.n_hits + 2, s.n_lookups);
    gm_engine_close(e);
}

/* Where two prompts part, without a turn that ends there, the third goes on. */
static void test_where_prompts_part(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(1, 1);
    for (uint64_t i = 0; i < 4; i++) {
        talk t = {0};
        say(&t, 1, 200);
        say(&t, 20 + i, 130);
        const uint32_t n = ask(e, &t, 8, NULL);
        if (i >= 2) assert_about(n, 200);
    }
    gm_engine_close(e);
}

/* Requests that come together and begin alike compute it once. */
static void test_together(void **state)
{
    (void)state;
    enum { N = 6 };
    gm_engine *const e = engine_of(N, 1);
    static tiny_answer got[2];
    gm_request *r[N];
    talk t = {0};
    say(&t, 3, 400);
    const gm_request_opts o = opts_of(&t, 30);
    for (int i = 0; i < N; i++)
        OK(gm_request_open(&r[i], e, &o, &err));
    for (int i = 0; i < N; i++) {
        got[i > 0] = (tiny_answer){0};
        tiny_collect(r[i], &got[i > 0]);
        if (i) assert_memory_equal(got[0].hash, got[1].hash, 30 * sizeof *got[0].hash);
        gm_request_close(r[i]);
    }
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_int_equal(s.n_hits, N - 1);
    assert_true(s.n_prompt <= 400 + (N - 1) * GM_PAGE_LEN);
    gm_engine_close(e);
}

/* ---- what goes --------------------------------------------------------------------------- */

/* One slot has pages for one context: a third talk drives out the one that was unused longest. */
static void test_least_recently_used_goes(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(1, 1);
    talk t[3] = {{.n = 0}};
    for (uint64_t i = 0; i < 3; i++)
        say(&t[i], 30 + i, 200);
    ask(e, &t[0], 10, NULL);
    ask(e, &t[1], 10, NULL);
    assert_about(ask(e, &t[0], 10, NULL), 199); /* used again: the other is older now */
    ask(e, &t[2], 200, NULL);
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_true(s.n_evicted > 0);
    assert_int_equal(ask(e, &t[1], 10, NULL), 0);
    gm_engine_stat(e, &s);
    assert_int_equal(s.n_running, 0);
    assert_true(s.n_kept > 0);
    gm_engine_close(e);
}

/* The whole context with a mark at every turn: marks give way to what runs. */
static void test_marks_give_way(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(2, 1);
    for (uint64_t k = 0; k < 4; k++) {
        talk t = {0};
        while (t.n + 12 < CTX - 20) {
            say(&t, 100 * k + t.n, 10);
            end_turn(&t);
        }
        ask(e, &t, 0, NULL);
    }
    gm_engine_close(e);
}

/* ---- everything at once ------------------------------------------------------------------ */

static void test_soak(void **state)
{
    (void)state;
    enum { N = 4, ROUNDS = 60 };
    static tiny_answer want[N], got;
    gm_engine *const e = engine_of(3, 1);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        gm_request *r[N];
        talk t[N] = {{.n = 0}};
        gm_request_opts o[N];
        for (uint64_t i = 0; i < N; i++) {
            const uint64_t x = tiny_random(77, N * round + i);
            for (uint32_t turn = 0; turn <= x % 3; turn++) {
                say(&t[i], (x >> 8) % 4 + 10 * turn, 20 + (uint32_t)((x >> 16) % 2) * 75);
                end_turn(&t[i]);
            }
            say(&t[i], x >> 20 & 7, 1 + (uint32_t)(x >> 24) % 40);
            o[i] = opts_of(&t[i], 1 + (uint32_t)(x >> 32) % 90);
            tiny_run(plain, &o[i], &want[i]);
            OK(gm_request_open(&r[i], e, &o[i], &err));
        }
        for (uint64_t i = 0; i < N; i++) {
            got = (tiny_answer){0};
            if (round % 5 == i) { /* closed in the middle */
                gm_request_close(r[i]);
                continue;
            }
            tiny_collect(r[i], &got);
            gm_request_close(r[i]);
            assert_int_equal(got.n, want[i].n);
            assert_memory_equal(got.hash, want[i].hash, got.n * sizeof *got.hash);
        }
    }
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_true(s.n_hits > ROUNDS);
    assert_int_equal(s.n_running + s.n_queued, 0);
    gm_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_again),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_where_prompts_part),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_least_recently_used_goes),
        cmocka_unit_test(test_marks_give_way),
        cmocka_unit_test(test_soak),
    };
    return cmocka_run_group_tests_name("t_cache", tests, setup, teardown);
}
