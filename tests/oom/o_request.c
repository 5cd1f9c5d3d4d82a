/* SPDX-License-Identifier: MIT */
/* A whole request while allocations fail, on every backend of this build: engine, request, all its
 * events, close. A request that gets through has the answer of an undisturbed one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "fixtures/backends.h"
#include "gemmule.h"
#include "oom/failalloc.h"

#define ANSWER 6

static gm_model *model;
static const char *backend;
static int32_t expected[ANSWER];
static uint32_t n_expected; /* 0 until the first answer */

static gm_status events_read(gm_request *r, gm_err *err)
{
    int32_t got[ANSWER] = {0};
    uint32_t n = 0;
    gm_event ev = {0};
    gm_status status;
    while ((status = gm_request_next(r, &ev, err)) == GM_OK && ev.kind == GM_EVENT_TOKEN) {
        assert_true(n < ANSWER && ev.n_top == 3);
        got[n++] = ev.id;
    }
    if (status != GM_OK) return status;
    if (n_expected == 0) {
        memcpy(expected, got, sizeof got);
        n_expected = n;
    }
    assert_true(n > 0 && n == n_expected);
    assert_memory_equal(got, expected, sizeof got);
    return GM_OK;
}

static gm_status answered(gm_err *err)
{
    static const int32_t PROMPT[] = {2, 10, 11, 12};
    static const char *const STOPS[] = {"never said", "\n\n\n"};
    static const gm_bias BIAS[] = {{1, -100}};
    const gm_engine_opts eo = {.size = sizeof eo, .n_ctx = 32, .n_slots = 2, .backend = backend};
    gm_engine *e = NULL;
    gm_request *r = NULL;
    gm_status status = gm_engine_open(&e, model, &eo, err);
    if (status == GM_OK) {
        gm_request_opts o = gm_request_opts_default(model);
        o.ids = PROMPT;
        o.n_ids = sizeof PROMPT / sizeof PROMPT[0];
        o.max_tokens = ANSWER;
        o.n_top = 3;
        o.flags = GM_REQUEST_HASH;
        o.stop = STOPS;
        o.n_stop = 2;
        o.sampling.bias = BIAS;
        o.sampling.n_bias = 1;
        status = gm_request_open(&r, e, &o, err);
    }
    if (status == GM_OK) status = events_read(r, err);
    gm_request_close(r);
    gm_engine_close(e);
    return status;
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

static void request(void **state)
{
    (void)state;
    for (size_t i = 0; (backend = backend_next(&i, NULL));) {
        n_expected = 0;
        oom_sweep(backend, answered);
    }
}

int main(void)
{
    const struct CMUnitTest o_request[] = {cmocka_unit_test(request)};
    return cmocka_run_group_tests(o_request, model_open, model_close);
}
