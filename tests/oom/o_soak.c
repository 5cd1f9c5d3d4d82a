/* SPDX-License-Identifier: MIT */
/* Many short requests that share their beginnings, some cancelled and some never read: once they
 * are closed, as many blocks are in use after 300 of them as after the first few. And from a
 * request's first token to its end nobody allocates anything, neither we nor a library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fixtures/backends.h"
#include "gemmule.h"
#include "oom/failalloc.h"

enum { FIRST = 30, MANY = 300, OPEN = 4, PROMPT = 40 };

static gm_model *model;

static gm_request *request_open(gm_engine *e, uint32_t i)
{
    int32_t ids[PROMPT];
    const uint32_t n = 18 + i % (PROMPT - 18);
    for (uint32_t k = 0; k < n; k++)
        ids[k] = (int32_t)(2 + (k < 17 ? k : k * i) % 11);
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = ids;
    o.n_ids = n;
    o.max_tokens = 1 + i % 5;
    o.n_top = i % 3;
    o.flags = GM_REQUEST_HASH;
    gm_request *r = NULL;
    assert_int_equal(gm_request_open(&r, e, &o, NULL), GM_OK);
    return r;
}

/* Runs requests, each closed a few later; answers the tokens that were shared. */
static uint32_t requests_run(gm_engine *e, uint32_t n)
{
    gm_request *open[OPEN] = {NULL};
    uint32_t n_cached = 0;
    for (uint32_t i = 0; i < n; i++) {
        gm_request **const r = &open[i % OPEN];
        gm_event ev = {0};
        gm_request_close(*r);
        *r = request_open(e, i);
        if (i % 7 == 0) continue;
        if (i % 11 == 0) gm_request_cancel(*r);
        while (ev.kind != GM_EVENT_END)
            assert_int_equal(gm_request_next(*r, &ev, NULL), GM_OK);
        n_cached += ev.n_cached;
    }
    for (uint32_t i = 0; i < OPEN; i++)
        gm_request_close(open[i]);
    return n_cached;
}

static void soak(void **state)
{
    (void)state;
    const char *backend = NULL;
    for (size_t i = 0; (backend = backend_next(&i, NULL));) {
        const gm_engine_opts o = {.size = sizeof o, .n_ctx = 64, .n_slots = 2, .backend = backend};
        gm_engine *e = NULL;
        assert_int_equal(gm_engine_open(&e, model, &o, NULL), GM_OK);
        assert_true(requests_run(e, FIRST) > 0);
        const long long before = oom_live();
        requests_run(e, MANY);
        assert_int_equal(oom_live(), before);
        gm_engine_close(e);
    }
}

/* A request whose answer goes through everything that an answer can need. */
static gm_request *rich_request_open(gm_engine *e, uint32_t i)
{
    static const char *const stops[] = {"never said", "\n\n\n\n"};
    static const gm_bias no_end[] = {{1, -1000}, {106, -1000}};
    int32_t ids[PROMPT];
    for (uint32_t k = 0; k < PROMPT; k++)
        ids[k] = (int32_t)(2 + (k < 20 ? k : k * i) % 11);
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = ids;
    o.n_ids = PROMPT;
    o.n_top = i % 2 ? 3 : 100;
    o.flags = GM_REQUEST_HASH;
    o.stop = stops;
    o.n_stop = 2;
    o.sampling.repeat_penalty = 1.1f;
    o.sampling.bias = no_end;
    o.sampling.n_bias = 2;
    gm_request *r = NULL;
    assert_int_equal(gm_request_open(&r, e, &o, NULL), GM_OK);
    return r;
}

static void token_loop_allocates_nothing(void **state)
{
    (void)state;
    const char *backend = NULL;
    for (size_t i = 0; (backend = backend_next(&i, NULL));) {
        const gm_engine_opts o = {.size = sizeof o, .n_ctx = 128, .n_slots = 2, .backend = backend};
        gm_engine *e = NULL;
        gm_request *open[OPEN] = {NULL};
        assert_int_equal(gm_engine_open(&e, model, &o, NULL), GM_OK);
        for (uint32_t k = 0; k < OPEN; k++)
            open[k] = rich_request_open(e, k);
        gm_event ev = {0};
        assert_int_equal(gm_request_next(open[0], &ev, NULL), GM_OK); /* all threads have begun */
        const long long before = oom_ever();
        for (uint32_t k = 0; k < OPEN; k++) {
            ev = (gm_event){0};
            while (ev.kind != GM_EVENT_END)
                assert_int_equal(gm_request_next(open[k], &ev, NULL), GM_OK);
            assert_int_equal(ev.n_answer, 128 - PROMPT);
        }
        assert_int_equal(oom_ever(), before);
        for (uint32_t k = 0; k < OPEN; k++)
            gm_request_close(open[k]);
        gm_engine_close(e);
    }
}

static int model_open(void **state)
{
    (void)state;
    return (int)gm_model_open(&model, "tests/golden/one_layer", NULL);
}

static int model_close(void **state)
{
    (void)state;
    gm_model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest o_soak[] = {
        cmocka_unit_test(soak),
        cmocka_unit_test(token_loop_allocates_nothing),
    };
    return cmocka_run_group_tests(o_soak, model_open, model_close);
}
