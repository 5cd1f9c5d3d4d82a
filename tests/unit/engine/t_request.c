/* SPDX-License-Identifier: MIT */
/* One answer at a time, on every backend: its tokens, its text, its end, and what
 * is refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "fixtures/backends.h"
#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"
#include "sample/sampler.h"

enum { VOCAB = 500, CTX = 300 };

static gm_model *model;
static gm_engine *engine;
static const char *backend;
static gm_err err;

/* An answer never ends by itself: the tokens that end it are out of reach. */
static const gm_bias NO_END[] = {{1, -1000}, {106, -1000}};

static const int32_t PROMPT[] = {2, 105, 44, 107, 61, 200, 19, 60, 33, 44, 106, 107, 90, 5};
enum { N_PROMPT = sizeof PROMPT / sizeof *PROMPT };

static int setup(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_ctx = CTX});
    model = tiny_open(&t, "model.gguf");
    tiny_deinit(&t);
    gm_engine_opts o = gm_engine_opts_default();
    o.backend = backend;
    o.kv_type = "f32"; /* what forward_logprobs keeps */
    return gm_engine_open(&engine, model, &o, &err) == GM_OK ? 0 : -1;
}

static int teardown(void **state)
{
    gm_engine_close(engine);
    gm_model_close(model);
    return tiny_teardown(state);
}

static gm_request_opts greedy(uint32_t max_tokens)
{
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = PROMPT;
    o.n_ids = N_PROMPT;
    o.max_tokens = max_tokens;
    o.sampling = (gm_sampling){.top_p = 1, .repeat_penalty = 1, .n_bias = 2, .bias = NO_END};
    return o;
}

static gm_request_opts sampled(uint32_t max_tokens, uint64_t seed)
{
    gm_request_opts o = greedy(max_tokens);
    o.sampling.temperature = 1.25f;
    o.sampling.seed = seed;
    return o;
}

/* Backends may sum a row's weights in their own way: a log-probability is the same to a few of its
 * last bits. That the logits are the same is for their hashes to say (t_engine.c). */
static bool is_near(float a, float b)
{
    return fabsf(a - b) <= 1e-6f * (1 + fabsf(b));
}

/* Log-probabilities at every position of prompt and answer. */
static float *forward_answer(const gm_request_opts *o, const tiny_answer *a)
{
    int32_t *const ids = malloc((o->n_ids + a->n) * sizeof *ids);
    assert_non_null(ids);
    memcpy(ids, o->ids, o->n_ids * sizeof *ids);
    memcpy(ids + o->n_ids, a->id, a->n * sizeof *ids);
    float *const lp =
        forward_logprobs(model, ids, (uint32_t)o->n_ids + a->n, &(forward_opts){backend, 0});
    free(ids);
    return lp;
}

/* Each token of the answer by the law of draw.h, from the log-probabilities of the row before. The
 * law sees logits; but for the repeat penalty it is the same a constant away from them. */
static void assert_follows_the_law(const gm_request_opts *o, const tiny_answer *a)
{
    float *const lp = forward_answer(o, a);
    gm_draw d;
    gm_draw_count counts[VOCAB] = {{0, 0}};
    float adjusted[VOCAB];
    uint32_t order[VOCAB];
    assert_int_equal(gm_sampler_read(&o->sampling, VOCAB, &d, &err), GM_OK);
    for (uint32_t i = 0; i < a->n; i++) {
        const float *const row = lp + (o->n_ids - 1 + i) * VOCAB;
        const gm_draw_row r = {.draw = &d,
                               .counts = counts,
                               .bias = o->sampling.bias,
                               .n_bias = o->sampling.n_bias,
                               .pos = (uint32_t)o->n_ids + i};
        const uint32_t id = gm_draw_token(row, VOCAB, &r, &(gm_draw_scratch){adjusted, order});
        if ((int32_t)id != a->id[i]) fail_msg("token %u is %d, expected %u", i, a->id[i], id);
        if (!is_near(a->logprob[i], row[id]))
            fail_msg("token %u: %.9g and %.9g", i, (double)a->logprob[i], (double)row[id]);
        counts[id].answer++;
    }
    free(lp);
}

/* ---- tokens ---------------------------------------------------------------------------- */

static void test_greedy_is_the_likeliest(void **state)
{
    (void)state;
    tiny_answer a;
    const gm_request_opts o = greedy(40);
    tiny_run(engine, &o, &a);
    assert_int_equal(a.n, 40);
    assert_int_equal(a.reason, GM_END_LENGTH);
    assert_follows_the_law(&o, &a);
}

static void test_sampling_follows_the_law(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        gm_request_opts o = sampled(25, seed * UINT64_C(0x100000001));
        o.sampling.top_k = seed % 3 == 1 ? 5 : 0;
        o.sampling.top_p = seed % 3 == 2 ? 0.5f : 1;
        o.sampling.min_p = seed % 4 == 3 ? 0.2f : 0;
        o.sampling.frequency_penalty = seed % 2 ? 0.75f : 0;
        o.sampling.presence_penalty = seed % 5 == 4 ? 1.5f : 0;
        tiny_answer a;
        tiny_run(engine, &o, &a);
        assert_int_equal(a.n, 25);
        assert_follows_the_law(&o, &a);
    }
}

static void test_seeds(void **state)
{
    (void)state;
    tiny_answer a, b, c, d;
    const gm_request_opts one = sampled(30, 7), low = sampled(30, 8),
                          high = sampled(30, 7 | UINT64_C(1) << 32);
    tiny_run(engine, &one, &a);
    tiny_run(engine, &one, &b);
    tiny_run(engine, &low, &c);
    tiny_run(engine, &high, &d);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    assert_string_equal(a.text, b.text);
    assert_memory_not_equal(a.id, c.id, sizeof a.id);
    assert_memory_not_equal(a.id, d.id, sizeof a.id);
}

/* A longer limit only adds to the answer. */
static void test_max_tokens(void **state)
{
    (void)state;
    tiny_answer whole, a;
    const gm_request_opts o = sampled(60, 3);
    tiny_run(engine, &o, &whole);
    static const uint32_t limits[] = {1, 2, 31, 32, 33, 59};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const gm_request_opts less = sampled(limits[i], 3);
        tiny_run(engine, &less, &a);
        assert_int_equal(a.n, limits[i]);
        assert_int_equal(a.reason, GM_END_LENGTH);
        assert_memory_equal(a.id, whole.id, limits[i] * sizeof *a.id);
        assert_memory_equal(a.logprob, whole.logprob, limits[i] * sizeof *a.logprob);
    }
}

static void test_context_filled_exactly(void **state)
{
    (void)state;
    tiny_answer a;
    gm_request_opts o = sampled(0, 5);
    tiny_run(engine, &o, &a);
    assert_int_equal(a.n, CTX - N_PROMPT);
    assert_int_equal(a.reason, GM_END_LENGTH);
    assert_follows_the_law(&o, &a);
    o.max_tokens = CTX; /* more than there is room for */
    tiny_run(engine, &o, &a);
    assert_int_equal(a.n, CTX - N_PROMPT);

    int32_t ids[CTX];
    for (uint32_t i = 0; i < CTX; i++)
        ids[i] = (int32_t)(7 + i % 90);
    o = greedy(0);
    o.ids = ids;
    o.n_ids = CTX - 1;
    tiny_run(engine, &o, &a);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.reason, GM_END_LENGTH);
    assert_follows_the_law(&o, &a);
}

static void test_one_token_of_prompt(void **state)
{
    (void)state;
    tiny_answer a;
    gm_request_opts o = sampled(20, 1);
    o.n_ids = 1;
    tiny_run(engine, &o, &a);
    assert_int_equal(a.n, 20);
    assert_follows_the_law(&o, &a);
}

/* Prompts over several chunks and many pages, with a window far behind. */
static void test_long_prompts(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {31, 32, 33, 63, 64, 65, 128, 129, 200};
    int32_t ids[256];
    for (uint32_t i = 0; i < 256; i++)
        ids[i] = (int32_t)(tiny_random(9, i) % VOCAB);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        tiny_answer a;
        gm_request_opts o = sampled(40, i);
        o.ids = ids;
        o.n_ids = lengths[i];
        tiny_run(engine, &o, &a);
        assert_int_equal(a.n, 40);
        assert_follows_the_law(&o, &a);
    }
}

/* ---- the end --------------------------------------------------------------------------- */

static void test_both_end_tokens_end(void **state)
{
    (void)state;
    static const int32_t ends[] = {1, 106};
    for (size_t i = 0; i < 2; i++) {
        const gm_bias sure = {ends[i], 1000};
        gm_request_opts o = greedy(10);
        o.sampling.bias = &sure;
        o.sampling.n_bias = 1;
        tiny_answer a;
        tiny_run(engine, &o, &a);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.id[0], ends[i]);
        assert_int_equal(a.reason, GM_END_STOP);
        assert_string_equal(a.text, "");
    }
}

/* After the end, and however often it is asked for, the end. */
static void test_the_end_comes_again(void **state)
{
    (void)state;
    gm_request *r = NULL;
    gm_event ev;
    tiny_answer a = {0};
    const gm_request_opts o = greedy(3);
    assert_int_equal(gm_request_open(&r, engine, &o, &err), GM_OK);
    tiny_collect(r, &a);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gm_request_next(r, &ev, NULL), GM_OK);
        assert_int_equal(ev.kind, GM_EVENT_END);
        assert_int_equal(ev.reason, GM_END_LENGTH);
        assert_int_equal(ev.n_answer, 3);
        assert_int_equal(ev.n_prompt, N_PROMPT);
        assert_true(ev.prefill_s >= 0 && ev.decode_s >= 0);
    }
    gm_request_close(r);
}

/* ---- text ------------------------------------------------------------------------------ */

/* The text of the answer's ids in one go. */
static gm_strbuf text_of(const tiny_answer *a)
{
    gm_strbuf text = {0};
    gm_detok d = {0};
    for (uint32_t i = 0; i < a->n; i++)
        gm_detok_put(&d, model->vocab, a->id[i], &text);
    gm_detok_end(&d, &text);
    return text;
}

static void test_text_is_that_of_the_tokens(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        tiny_answer a;
        const gm_request_opts o = sampled(60, seed);
        tiny_run(engine, &o, &a);
        gm_strbuf text = text_of(&a);
        assert_string_equal(a.text, gm_strbuf_str(&text).p);
        gm_strbuf_deinit(&text);
    }
}

/* Bytes of a character in four tokens: the text comes with the last. */
static void test_characters_come_whole(void **state)
{
    (void)state;
    static const uint8_t smile[] = {0xF0, 0x9F, 0x98, 0x80};
    const gm_bias first = {238 + smile[0], 1000};
    gm_request_opts o = greedy(1);
    o.sampling.bias = &first;
    o.sampling.n_bias = 1;
    tiny_answer a;
    tiny_run(engine, &o, &a);
    assert_int_equal(a.id[0], 238 + smile[0]);
    assert_string_equal(a.text, "\xEF\xBF\xBD"); /* nothing more came: it is no character */
}

/* Every piece of a long answer's text as stop string: the answer ends before its first place. */
static void test_stop_strings_anywhere(void **state)
{
    (void)state;
    tiny_answer whole, a;
    const gm_request_opts plain = sampled(60, 11);
    tiny_run(engine, &plain, &whole);
    assert_true(whole.len > 60);
    for (size_t at = 0; at + 1 < whole.len; at += 3) {
        const size_t len = 1 + at % 9;
        char stop[16] = "";
        memcpy(stop, whole.text + at, at + len <= whole.len ? len : whole.len - at);
        const char *const stops[] = {"never to be seen", stop};
        gm_request_opts o = plain;
        o.stop = stops;
        o.n_stop = 2;
        tiny_run(engine, &o, &a);
        const size_t cut = (size_t)(strstr(whole.text, stop) - whole.text);
        if (a.len != cut || memcmp(a.text, whole.text, cut) != 0)
            fail_msg("stop \"%s\": \"%s\", expected the first %zu bytes", stop, a.text, cut);
        assert_int_equal(a.reason, GM_END_STOP);
        assert_memory_equal(a.id, whole.id, a.n * sizeof *a.id);
    }
}

/* The end of the answer is the beginning of a stop string, or all of one. */
static void test_stop_strings_at_the_very_end(void **state)
{
    (void)state;
    tiny_answer whole, a;
    gm_request_opts o = sampled(30, 2);
    tiny_run(engine, &o, &whole);
    char stop[32];
    snprintf(stop, sizeof stop, "%s", whole.text + whole.len - 5);
    const char *const stops[] = {stop};
    o.stop = stops;
    o.n_stop = 1;
    if (strstr(whole.text, stop) == whole.text + whole.len - 5) {
        tiny_run(engine, &o, &a);
        assert_int_equal(a.reason, GM_END_STOP);
        assert_int_equal(a.len, whole.len - 5);
        assert_int_equal(a.n, whole.n);
    }
    snprintf(stop, sizeof stop, "%s...", whole.text + whole.len - 5);
    tiny_run(engine, &o, &a);
    assert_int_equal(a.reason, GM_END_LENGTH);
    assert_string_equal(a.text, whole.text);
}

/* ---- candidates and hashes ------------------------------------------------------------- */

static void check_candidates(const gm_event *ev, const float *row, uint32_t n_top)
{
    assert_int_equal(ev->n_top, n_top);
    for (uint32_t i = 0; i < n_top; i++) {
        const gm_candidate *const c = &ev->top[i];
        assert_true(is_near(c->logprob, row[c->id]));
        if (c->id == ev->id) assert_true(c->logprob == ev->logprob);
        if (i == 0) continue;
        const gm_candidate *const b = c - 1;
        assert_true(b->id != c->id && row[b->id] >= row[c->id]);
    }
    uint32_t likelier = 0;
    for (uint32_t i = 0; n_top && i < VOCAB; i++)
        likelier += row[i] > row[ev->top[n_top - 1].id];
    assert_true(n_top == 0 || likelier <= n_top - 1);
}

static void test_candidates(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0, 1, 5, 63, 64, 65, VOCAB - 1, VOCAB};
    tiny_answer a;
    const gm_request_opts plain = sampled(6, 4);
    tiny_run(engine, &plain, &a);
    float *const lp = forward_answer(&plain, &a);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        gm_request_opts o = plain;
        gm_request *r = NULL;
        gm_event ev;
        o.n_top = counts[i];
        o.flags = i % 2 ? GM_REQUEST_HASH : 0;
        assert_int_equal(gm_request_open(&r, engine, &o, &err), GM_OK);
        for (uint32_t k = 0; k < a.n; k++) {
            assert_int_equal(gm_request_next(r, &ev, &err), GM_OK);
            assert_int_equal(ev.id, a.id[k]);
            check_candidates(&ev, lp + (N_PROMPT - 1 + k) * VOCAB, counts[i]);
        }
        gm_request_close(r);
    }
    free(lp);
}

static void test_hashes(void **state)
{
    (void)state;
    tiny_answer a, b, c;
    gm_request_opts o = sampled(20, 6);
    tiny_run(engine, &o, &a);
    for (uint32_t i = 0; i < a.n; i++)
        assert_int_equal(a.hash[i], 0);
    o.flags = GM_REQUEST_HASH;
    tiny_run(engine, &o, &b);
    tiny_run(engine, &o, &c);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    assert_memory_equal(b.hash, c.hash, sizeof b.hash);
    for (uint32_t i = 1; i < b.n; i++)
        assert_true(b.hash[i] != b.hash[i - 1] && b.hash[i] != 0);
    o.ids = PROMPT + 1;
    o.n_ids = N_PROMPT - 1;
    tiny_run(engine, &o, &c);
    assert_true(c.hash[0] != b.hash[0]);
}

/* ---- penalties and biases -------------------------------------------------------------- */

static bool has(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

/* A strong penalty lets nothing of prompt or answer come again; none lets it. */
static void test_repeat_penalty(void **state)
{
    (void)state;
    tiny_answer a;
    gm_request_opts o = greedy(40);
    o.sampling.repeat_penalty = 100;
    tiny_run(engine, &o, &a);
    for (uint32_t i = 0; i < a.n; i++) {
        assert_false(has(a.id, i, a.id[i]));
        assert_false(has(PROMPT, N_PROMPT, a.id[i]));
    }
    /* The next request of the slot begins anew. */
    tiny_answer again;
    tiny_run(engine, &o, &again);
    assert_memory_equal(a.id, again.id, sizeof a.id);
}

static void test_frequency_and_presence(void **state)
{
    (void)state;
    tiny_answer a;
    gm_request_opts o = greedy(40);
    o.sampling.presence_penalty = 100;
    tiny_run(engine, &o, &a);
    for (uint32_t i = 0; i < a.n; i++)
        assert_false(has(a.id, i, a.id[i]));
    assert_follows_the_law(&o, &a);
    o.sampling.presence_penalty = 0;
    o.sampling.frequency_penalty = 0.5f;
    tiny_run(engine, &o, &a);
    assert_follows_the_law(&o, &a);
    o.sampling.frequency_penalty = -5; /* what came comes again */
    tiny_run(engine, &o, &a);
    assert_follows_the_law(&o, &a);
}

static void test_bias(void **state)
{
    (void)state;
    const gm_bias forced = {77, 1000};
    gm_request_opts o = greedy(5);
    o.sampling.bias = &forced;
    o.sampling.n_bias = 1;
    tiny_answer a;
    tiny_run(engine, &o, &a);
    for (uint32_t i = 0; i < a.n; i++)
        assert_int_equal(a.id[i], 77);
    assert_follows_the_law(&o, &a); /* log-probabilities are those before the bias */
    /* It is gone with its request. */
    tiny_answer b;
    const gm_request_opts plain = greedy(5);
    tiny_run(engine, &plain, &b);
    assert_follows_the_law(&plain, &b);
}

/* ---- options --------------------------------------------------------------------------- */

static void refuse(const gm_request_opts *o, gm_status status, const char *thing,
                   const char *expectation)
{
    gm_request *r = (gm_request *)&err;
    err = (gm_err){0};
    assert_int_equal(gm_request_open(&r, engine, o, &err), status);
    assert_null(r);
    if (!strstr(err.msg, thing) || !strstr(err.msg, expectation))
        fail_msg("\"%s\": expected \"%s\", \"%s\"", err.msg, thing, expectation);
    assert_int_equal(err.code, status);
    assert_int_equal(gm_request_open(&r, engine, o, NULL), status);
}

static void test_bad_options_are_refused(void **state)
{
    (void)state;
    gm_request_opts o = greedy(1);
    o.n_ids = 0;
    refuse(&o, GM_E_ARG, "prompt", "no tokens");

    int32_t ids[CTX + 5];
    for (uint32_t i = 0; i < CTX + 5; i++)
        ids[i] = 9;
    o.ids = ids;
    o.n_ids = CTX;
    refuse(&o, GM_E_TOOBIG, "300 tokens", "299");
    o.n_ids = CTX + 5;
    refuse(&o, GM_E_TOOBIG, "305 tokens", "299");

    o.n_ids = 8;
    ids[7] = VOCAB;
    refuse(&o, GM_E_ARG, "token 7 is 500", "expected 0 to 499");
    ids[7] = -1;
    refuse(&o, GM_E_ARG, "token 7 is -1", "expected 0 to 499");
    ids[7] = INT32_MIN;
    refuse(&o, GM_E_ARG, "token 7 is -2147483648", "expected 0 to 499");

    o = greedy(1);
    o.n_top = VOCAB + 1;
    refuse(&o, GM_E_ARG, "501 candidates", "at most 500");
    o = greedy(1);
    o.n_stop = 1;
    o.stop = (const char *const[]){""};
    refuse(&o, GM_E_ARG, "stop", "empty");
    o = greedy(1);
    o.sampling.temperature = NAN;
    refuse(&o, GM_E_ARG, "temperature", "expected 0 to 100");
    o = greedy(1);
    o.sampling.bias = &(gm_bias){VOCAB, 1};
    o.sampling.n_bias = 1;
    refuse(&o, GM_E_ARG, "token 500", "expected 0 to 499");
}

/* A program built against a shorter struct gets the defaults for what it does not know. */
static void test_older_option_structs(void **state)
{
    (void)state;
    gm_request_opts o = greedy(4);
    tiny_answer a, b;
    tiny_run(engine, &o, &a);
    o.size = offsetof(gm_request_opts, flags);
    o.flags = 0xFFFFFFFF;
    o.n_top = 0xFFFFFFFF;
    o.n_stop = 0xFFFFFFFF;
    tiny_run(engine, &o, &b);
    assert_memory_equal(a.id, b.id, sizeof a.id);
    assert_int_equal(b.hash[0], 0);
}

/* The options are copied: what the caller does with them afterwards does not show. */
static void test_options_are_copied(void **state)
{
    (void)state;
    tiny_answer a, b = {0};
    gm_request *r = NULL;
    const gm_request_opts o = sampled(200, 9);
    tiny_run(engine, &o, &a);
    gm_bias bias[2] = {NO_END[0], NO_END[1]};
    int32_t ids[N_PROMPT];
    char stop[] = "never to be seen";
    const char *stops[] = {stop};
    memcpy(ids, PROMPT, sizeof ids);
    gm_request_opts mine = o;
    mine.sampling.bias = bias;
    mine.ids = ids;
    mine.stop = stops;
    mine.n_stop = 1;
    assert_int_equal(gm_request_open(&r, engine, &mine, &err), GM_OK);
    memset(bias, 0xFF, sizeof bias);
    memset(ids, 0xFF, sizeof ids);
    memset(stop, 'p', sizeof stop - 1);
    stops[0] = NULL;
    memset(&mine, 0xFF, sizeof mine);
    tiny_collect(r, &b);
    gm_request_close(r);
    assert_memory_equal(a.id, b.id, sizeof a.id);
}

static void test_default_options(void **state)
{
    (void)state;
    gm_request_opts o = gm_request_opts_default(model);
    assert_int_equal(o.size, sizeof o);
    assert_true(o.sampling.temperature == 1 && o.sampling.top_p == 0.95f && o.sampling.min_p == 0);
    assert_int_equal(o.sampling.top_k, 64);
    assert_true(o.sampling.repeat_penalty == 1 && o.sampling.frequency_penalty == 0);
    assert_int_equal(o.sampling.seed, 0);
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    tiny_f32(&t, "general.sampling.temp", 0.5);
    tiny_u32(&t, "general.sampling.top_k", 12);
    tiny_f32(&t, "general.sampling.top_p", 0.75);
    gm_model *const m = tiny_open(&t, "sampling.gguf");
    o = gm_request_opts_default(m);
    assert_true(o.sampling.temperature == 0.5f && o.sampling.top_p == 0.75f);
    assert_int_equal(o.sampling.top_k, 12);
    gm_model_close(m);
    tiny_deinit(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_is_the_likeliest),
        cmocka_unit_test(test_sampling_follows_the_law),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_max_tokens),
        cmocka_unit_test(test_context_filled_exactly),
        cmocka_unit_test(test_one_token_of_prompt),
        cmocka_unit_test(test_long_prompts),
        cmocka_unit_test(test_both_end_tokens_end),
        cmocka_unit_test(test_the_end_comes_again),
        cmocka_unit_test(test_text_is_that_of_the_tokens),
        cmocka_unit_test(test_characters_come_whole),
        cmocka_unit_test(test_stop_strings_anywhere),
        cmocka_unit_test(test_stop_strings_at_the_very_end),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_repeat_penalty),
        cmocka_unit_test(test_frequency_and_presence),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_bad_options_are_refused),
        cmocka_unit_test(test_older_option_structs),
        cmocka_unit_test(test_options_are_copied),
        cmocka_unit_test(test_default_options),
    };
    int failed = 0;
    for (size_t i = 0; (backend = backend_next(&i, argc == 2 ? argv[1] : NULL));) {
        print_message("backend %s\n", backend);
        failed += cmocka_run_group_tests_name("t_request", tests, setup, teardown);
    }
    return failed;
}
