/* SPDX-License-Identifier: MIT */
/* Steps of answers that are handed over before the one before them is read: when that is done, what
 * is computed for nobody, and what becomes of them where the one before fails. The backend is a real
 * one; between it and the engine calls are counted, and fail when told to. That answers are the same is
 * shown by t_engine, t_prefix, t_loss. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "engine/engine.h"
#include "fixtures/backends.h"
#include "fixtures/tinymodel.h"

enum { VOCAB = 500, CTX = 200 };

static gm_model *model;
static gm_err err;
static int32_t ids[CTX];

#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

/* ---- between engine and backend ------------------------------------------------------------- */

static const gm_backend_ops *real;
static struct {
    gm_backend_ops ops;
    int n_run, n_waited, n_last; /* n_last: steps with rows of tokens nobody knows yet */
    int most_under_way;
    int fail_run, fail_wait; /* which of them fails, counted from 1 */
} seen;

static gm_status count_run(gm_exec *ex, const gm_step *s, gm_ticket *t, gm_err *e)
{
    bool last = false;
    if (++seen.n_run == seen.fail_run) return gm_fail(e, GM_E_IO, 0, "run fails");
    for (uint32_t i = 0; i < s->n_rows; i++)
        last = last || gm_step_rows(s)[i].kind == GM_ROW_LAST;
    seen.n_last += last;
    if (seen.n_run - seen.n_waited > seen.most_under_way)
        seen.most_under_way = seen.n_run - seen.n_waited;
    return real->run(ex, s, t, e);
}

static gm_status count_wait(gm_backend *be, gm_ticket t, gm_result *r, gm_err *e)
{
    const gm_status status = real->wait(be, t, r, e);
    if (++seen.n_waited != seen.fail_wait) return status;
    *r = (gm_result){0};
    return gm_fail(e, GM_E_IO, 0, "wait fails");
}

static gm_engine *engine_of(uint32_t n_slots, bool ahead)
{
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = n_slots;
    o.n_threads = 1;
    o.backend = "cpu";
    OK(gm_engine_open(&e, model, &o, &err));
    backend_go_ahead(e, ahead);
    pthread_mutex_lock(&e->lock);
    memset(&seen, 0, sizeof seen);
    real = e->place.runner.ops;
    seen.ops = *real;
    seen.ops.run = count_run;
    seen.ops.wait = count_wait;
    e->place.runner.ops = &seen.ops;
    pthread_mutex_unlock(&e->lock);
    return e;
}

/* The engine is asked something first, so that it knows how long a step takes. */
static void warm(gm_engine *e)
{
    static tiny_answer a;
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = ids;
    o.n_ids = 1;
    o.max_tokens = 2;
    o.flags = GM_REQUEST_IGNORE_END;
    tiny_run(e, &o, &a);
    pthread_mutex_lock(&e->lock); /* nothing is under way when the last event has been put */
    seen.n_run = seen.n_waited = seen.n_last = seen.most_under_way = 0;
    pthread_mutex_unlock(&e->lock);
}

static gm_request_opts request_of(uint64_t seed, uint32_t max_tokens)
{
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = ids;
    o.n_ids = 20;
    o.max_tokens = max_tokens;
    o.flags = GM_REQUEST_IGNORE_END;
    o.sampling.temperature = 1.2f;
    o.sampling.seed = seed;
    return o;
}

static void assert_idle(gm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (int c = 0; c < GM_CLASSES; c++)
        assert_int_equal(e->place.pool.n_free[c], e->place.pool.n_pages[c]);
    assert_int_equal(e->n_active, 0);
    pthread_mutex_unlock(&e->lock);
}

static int setup(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_ctx = CTX});
    model = tiny_open(&t, "model.gguf");
    tiny_deinit(&t);
    for (uint32_t i = 0; i < CTX; i++)
        ids[i] = (int32_t)(110 + tiny_random(1, i) % (VOCAB - 110));
    return 0;
}

static int teardown(void **state)
{
    gm_model_close(model);
    return tiny_teardown(state);
}

/* ---- how many steps ------------------------------------------------------------------------- */

/* An answer that ends where it was known to end has no step too many. */
static void test_known_ends_waste_nothing(void **state)
{
    (void)state;
    static tiny_answer a;
    for (int ahead = 0; ahead < 2; ahead++) {
        gm_engine *const e = engine_of(2, ahead);
        warm(e);
        const gm_request_opts o = request_of(3, 12);
        tiny_run(e, &o, &a);
        assert_int_equal(a.n, 12);
        assert_int_equal(a.reason, GM_END_LENGTH);
        assert_int_equal(seen.n_run, 12); /* one for the prompt, which gives the first */
        assert_int_equal(seen.most_under_way, 1 + ahead);
        /* The first answer's row is known: nothing follows a prompt before it is read. */
        assert_int_equal(seen.n_last, ahead ? 10 : 0);
        assert_idle(e);
        gm_engine_close(e);
    }
}

/* One that a stop string ends has one, and what comes next is none the worse for it. */
static void test_a_stop_wastes_one(void **state)
{
    (void)state;
    static tiny_answer plain, stopped, again;
    for (int ahead = 0; ahead < 2; ahead++) {
        gm_engine *const e = engine_of(1, ahead);
        warm(e);
        gm_request_opts o = request_of(3, 30);
        tiny_run(e, &o, &plain);
        gm_str piece = gm_vocab_piece(model->vocab, plain.id[9]);
        char stop[64] = {0};
        assert_true(piece.len > 0 && piece.len < sizeof stop);
        memcpy(stop, piece.p, piece.len);
        const char *const stops[] = {stop};
        o.stop = stops;
        o.n_stop = 1;
        warm(e);
        tiny_run(e, &o, &stopped);
        assert_int_equal(stopped.reason, GM_END_STOP);
        assert_true(stopped.n <= 10);
        o.n_stop = 0;
        tiny_run(e, &o, &again); /* the step for nobody has been read by now */
        assert_int_equal(seen.n_run, (int)(stopped.n + 30) + ahead);
        assert_int_equal(again.n, plain.n);
        assert_memory_equal(again.id, plain.id, plain.n * sizeof *plain.id);
        assert_memory_equal(again.logprob, plain.logprob, plain.n * sizeof *plain.logprob);
        assert_idle(e);
        gm_engine_close(e);
    }
}

/* Who has no row in the step under way is not passed by those who have. */
static void test_nobody_is_passed(void **state)
{
    (void)state;
    static tiny_answer alone[2], got[2];
    gm_engine *const e = engine_of(2, true);
    gm_request *r[2];
    warm(e);
    for (uint64_t i = 0; i < 2; i++) {
        const gm_request_opts o = request_of(5 + i, 40);
        tiny_run(e, &o, &alone[i]);
    }
    gm_request_opts o = request_of(5, 40);
    OK(gm_request_open(&r[0], e, &o, &err));
    o = request_of(6, 40);
    OK(gm_request_open(&r[1], e, &o, &err));
    for (int i = 1; i >= 0; i--) { /* nobody reads the first one meanwhile */
        tiny_collect(r[i], &got[i]);
        assert_int_equal(got[i].n, 40);
        assert_memory_equal(got[i].id, alone[i].id, 40 * sizeof *got[i].id);
        gm_request_close(r[i]);
    }
    assert_idle(e);
    gm_engine_close(e);
}

/* ---- what fails ----------------------------------------------------------------------------- */

/* Whichever call fails, the request is told once, with what came before it; what was built on the
 * failed step is never seen, and the next request is none the worse. */
static void test_every_call_may_fail(void **state)
{
    (void)state;
    static tiny_answer plain, a;
    gm_engine *const e = engine_of(1, true);
    warm(e);
    const gm_request_opts o = request_of(9, 8);
    tiny_run(e, &o, &plain);
    for (int i = 1; i <= 16; i++) {
        gm_request *r = NULL;
        gm_event ev;
        uint32_t n = 0;
        gm_status status;
        warm(e);
        pthread_mutex_lock(&e->lock);
        seen.fail_run = i <= 8 ? i : 0;
        seen.fail_wait = i <= 8 ? 0 : i - 8;
        pthread_mutex_unlock(&e->lock);
        OK(gm_request_open(&r, e, &o, &err));
        while ((status = gm_request_next(r, &ev, &err)) == GM_OK && ev.kind == GM_EVENT_TOKEN)
            assert_int_equal(ev.id, plain.id[n++]);
        assert_int_equal(status, GM_E_IO);
        assert_int_equal(n, (i - 1) % 8);
        assert_string_equal(err.msg, i <= 8 ? "run fails" : "wait fails");
        gm_request_close(r);
        pthread_mutex_lock(&e->lock);
        seen.fail_run = seen.fail_wait = 0;
        pthread_mutex_unlock(&e->lock);
        tiny_run(e, &o, &a);
        assert_int_equal(a.n, plain.n);
        assert_memory_equal(a.id, plain.id, plain.n * sizeof *plain.id);
        assert_idle(e);
    }
    gm_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_ends_waste_nothing),
        cmocka_unit_test(test_a_stop_wastes_one),
        cmocka_unit_test(test_nobody_is_passed),
        cmocka_unit_test(test_every_call_may_fail),
    };
    return cmocka_run_group_tests_name("t_ahead", tests, setup, teardown);
}
