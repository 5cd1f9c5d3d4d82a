/* SPDX-License-Identifier: MIT */
/* Two models beside each other, and beside the same numbers made from their log-probabilities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"
#include "gemmule_tools.h"

#define TEXT "Perplexity is how many tokens a model hesitates between."

static gm_err err;
static gm_model *plain, *other; /* f32, with different weights */

static int models_open(void **state)
{
    if (tiny_setup(state) != 0) return 1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.seed = 3});
    plain = tiny_open(&t, "plain.gguf");
    tiny_deinit(&t);
    tiny_init(&t, &(tiny_shape){.seed = 4});
    other = tiny_open(&t, "other.gguf");
    tiny_deinit(&t);
    return 0;
}

static int models_close(void **state)
{
    gm_model_close(plain);
    gm_model_close(other);
    return tiny_teardown(state);
}

static gm_compare_opts opts_of(const char *backend, uint32_t window)
{
    gm_compare_opts o = gm_compare_opts_default();
    o.text = TEXT;
    o.len = sizeof TEXT - 1;
    o.engine.backend = backend;
    o.engine.n_ctx = window;
    return o;
}

static gm_compare_result compared(const gm_model *a, const gm_model *b, const gm_compare_opts *o)
{
    gm_compare_result r = {.size = sizeof r};
    if (gm_compare_run(a, b, o, &r, &err) != GM_OK) fail_msg("%s", err.msg);
    return r;
}

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-5 * (1 + fabs(b))) fail_msg("%.9g, expected %.9g", a, b);
}

/* ---- the same numbers by hand ------------------------------------------------------------ */

static uint32_t top_of(const float *x, uint32_t n)
{
    uint32_t top = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (x[i] > x[top]) top = i;
    }
    return top;
}

/* Adds what a window of n ids gives to the result's sums. */
static void add_window(const int32_t *ids, uint32_t n, gm_compare_result *r)
{
    const forward_opts ref = {"ref", 0};
    const uint32_t n_vocab = 500;
    float *const a = forward_logprobs(plain, ids, n, &ref);
    float *const b = forward_logprobs(other, ids, n, &ref);
    for (uint32_t i = 0; i + 1 < n; i++, r->n_tokens++) {
        const float *const x = a + (size_t)i * n_vocab, *const y = b + (size_t)i * n_vocab;
        double kl = 0;
        for (uint32_t v = 0; v < n_vocab; v++)
            kl += exp((double)x[v]) * ((double)x[v] - (double)y[v]);
        const double la = (double)x[ids[i + 1]], lb = (double)y[ids[i + 1]];
        r->kl_mean += kl;
        r->ppl_error += (la - lb) * (la - lb);
        r->kl_worst = fmax(r->kl_worst, kl);
        r->same_top += top_of(x, n_vocab) == top_of(y, n_vocab);
        r->logprob_diff += fabs(la - lb);
        r->side[0].perplexity -= la;
        r->side[1].perplexity -= lb;
    }
    free(a);
    free(b);
}

static void equals_sums_by_hand(void **state)
{
    (void)state;
    static const uint32_t windows[] = {512, 9, 2};
    for (int w = 0; w < 3; w++) {
        gm_ids ids = {0};
        gm_compare_result hand = {0};
        assert_int_equal(gm_model_tokenize(plain, TEXT, sizeof TEXT - 1, 0, &ids, &err), GM_OK);
        for (size_t i = 0; i < ids.n;) {
            int32_t window[512] = {2};
            uint32_t n = 1;
            while (n < windows[w] && i < ids.n)
                window[n++] = ids.at[i++];
            add_window(window, n, &hand);
        }
        const double n = hand.n_tokens;
        assert_int_equal(hand.n_tokens, ids.n);
        const gm_compare_opts o = opts_of("ref", windows[w]);
        const gm_compare_result r = compared(plain, other, &o);
        assert_int_equal(r.n_tokens, hand.n_tokens);
        near(r.kl_mean, hand.kl_mean / n);
        const double change = (hand.side[1].perplexity - hand.side[0].perplexity) / n;
        near(r.ppl_ratio, exp(change));
        near(r.ppl_error, exp(change) * sqrt(hand.ppl_error / n - change * change) / sqrt(n));
        near(r.kl_worst, hand.kl_worst);
        near(r.kl_p99, hand.kl_worst); /* of less than 100 tokens it is the last */
        near(r.same_top, hand.same_top / n);
        near(r.logprob_diff, hand.logprob_diff / n);
        for (int s = 0; s < 2; s++)
            near(log(r.side[s].perplexity), hand.side[s].perplexity / n);
        gm_ids_deinit(&ids);
    }
}

/* ---- tests ------------------------------------------------------------------------------- */

static void itself(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "ref-int8", "cpu"};
    for (int b = 0; b < 3; b++) {
        gm_compare_opts o = opts_of(backends[b], 0);
        o.text = NULL;
        const gm_compare_result r = compared(plain, plain, &o);
        assert_true(r.n_tokens > 1000);
        assert_true(r.kl_mean == 0 && r.kl_p99 == 0 && r.kl_worst == 0);
        assert_true(r.logprob_diff == 0);
        near(r.same_top, 1);
        assert_true(r.side[0].perplexity == r.side[1].perplexity && r.side[0].perplexity > 1);
        assert_int_equal(r.n_worst, 0);
        assert_true(r.side[0].bits == 32);
    }
}

static gm_model *converted(const char *source, const char *type)
{
    gm_convert_opts o = gm_convert_opts_default();
    gm_convert *c = NULL;
    gm_model *m = NULL;
    char path[256];
    snprintf(path, sizeof path, "%s", tiny_path("converted.gguf"));
    o.type = type;
    o.head_type = type;
    o.force = 1;
    if (gm_convert_open(&c, source, path, &o, &err) || gm_convert_run(c, &err) ||
        gm_model_open(&m, path, &err))
        fail_msg("%s", err.msg);
    gm_convert_close(c);
    return m;
}

static void fewer_bits_are_further_away(void **state)
{
    (void)state;
    static const char *const types[] = {"bf16", "q8_0", "q5_0", "q4_0"};
    double before = 0, bits = 32;
    for (int i = 0; i < 4; i++) {
        gm_model *const m = converted(plain->file->path, types[i]);
        const gm_compare_opts o = opts_of("cpu", 0);
        const gm_compare_result r = compared(plain, m, &o);
        assert_true(r.kl_mean > before);
        assert_true(r.kl_mean <= r.kl_p99 && r.kl_p99 <= r.kl_worst);
        assert_true(r.kl_error > 0 && r.kl_error <= r.kl_worst / sqrt(r.n_tokens));
        assert_true(r.side[1].bits < bits);
        assert_true(r.side[1].bytes < r.side[0].bytes);
        assert_int_equal(r.n_worst, 10);
        for (uint32_t w = 0; w < r.n_worst; w++) {
            assert_string_equal(r.worst[w].type[0], "f32");
            assert_string_equal(r.worst[w].type[1], types[i]);
            assert_true(w == 0 || r.worst[w].error <= r.worst[w - 1].error);
        }
        before = r.kl_mean;
        bits = r.side[1].bits;
        gm_model_close(m);
    }
}

static void scale_tensor(tiny *t, const char *name, float by)
{
    const gm_tensor *const w = tiny_tensor(t, name);
    float *const x = (float *)(uintptr_t)w->data;
    for (size_t i = 0; i < w->size / sizeof *x; i++)
        x[i] *= by;
}

static void worst_tensors(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.seed = 3});
    scale_tensor(&t, "blk.1.ffn_up.weight", 3);
    scale_tensor(&t, "blk.2.attn_norm.weight", 0.75f);
    scale_tensor(&t, "token_embd.weight", 1.5f);
    gm_model *const m = tiny_open(&t, "scaled.gguf");
    gm_compare_opts o = opts_of("cpu", 0);
    gm_compare_result r = compared(plain, m, &o);
    assert_int_equal(r.n_worst, 3);
    assert_string_equal(r.worst[0].name, "blk.1.ffn_up.weight");
    near(r.worst[0].error, 2);
    assert_string_equal(r.worst[1].name, "token_embd.weight");
    near(r.worst[1].error, 0.5);
    assert_string_equal(r.worst[2].name, "blk.2.attn_norm.weight");
    near(r.worst[2].error, 0.25);
    o.n_worst = 2;
    r = compared(plain, m, &o);
    assert_int_equal(r.n_worst, 2);
    gm_model_close(m);
    tiny_deinit(&t);
}

/* A folder and its file say the same in different words: norms, the attention scale, padding. */
static void dialects_are_no_difference(void **state)
{
    (void)state;
    static const char *const folders[] = {"tests/golden/gqa4", "tests/golden/scale_27b",
                                          "tests/golden/untied"};
    for (int i = 0; i < 3; i++) {
        gm_model *a = NULL, *const b = converted(folders[i], "f32");
        assert_int_equal(gm_model_open(&a, folders[i], &err), GM_OK);
        const gm_compare_opts o = opts_of("ref", 0);
        const gm_compare_result r = compared(a, b, &o);
        assert_true(r.kl_worst < 1e-6);
        assert_true(r.n_worst == 0 || r.worst[0].error < 1e-6);
        gm_model_close(a);
        gm_model_close(b);
    }
}

typedef struct told {
    uint64_t done, total, stop_at;
} told;

static int tell(void *ctx, uint64_t done, uint64_t total)
{
    told *const t = ctx;
    assert_true(done >= t->done && done <= total && (t->total == 0 || t->total == total));
    t->done = done;
    t->total = total;
    return done >= t->stop_at;
}

static void refused(const gm_model *b, const gm_compare_opts *o, gm_status code, const char *words)
{
    gm_compare_result r = {.size = sizeof r, .n_tokens = 42};
    assert_int_equal(gm_compare_run(plain, b, o, &r, &err), code);
    assert_int_equal(r.n_tokens, 42);
    if (!strstr(err.msg, words)) fail_msg("\"%s\" is not in: %s", words, err.msg);
}

static void progress_and_cancel(void **state)
{
    (void)state;
    told t = {.stop_at = UINT64_MAX};
    gm_compare_opts o = opts_of("cpu", 9);
    o.progress = tell;
    o.progress_ctx = &t;
    compared(plain, other, &o);
    assert_int_equal(t.done, t.total);
    const uint64_t total = t.total;
    t = (told){.stop_at = 1};
    refused(other, &o, GM_E_CANCEL, "cancelled");
    t = (told){.stop_at = total / 2};
    refused(other, &o, GM_E_CANCEL, "cancelled");
}

static void open_and_refuse(const tiny_shape *shape, gm_status code, const char *words)
{
    tiny t;
    tiny_init(&t, shape);
    gm_model *const m = tiny_open(&t, "refused.gguf");
    const gm_compare_opts o = opts_of("cpu", 0);
    refused(m, &o, code, words);
    assert_non_null(strstr(err.msg, "plain.gguf"));
    assert_non_null(strstr(err.msg, "refused.gguf"));
    gm_model_close(m);
    tiny_deinit(&t);
}

static void refusals(void **state)
{
    (void)state;
    open_and_refuse(&(tiny_shape){.n_layer = 2}, GM_E_ARG, "has 3 layers of 32 x 64 with 4 + 2");
    open_and_refuse(&(tiny_shape){.n_ffn = 96}, GM_E_ARG, "has 3 layers of 32 x 96");
    open_and_refuse(&(tiny_shape){.n_vocab = 510}, GM_E_ARG,
                    "has a vocabulary of 500 pieces, and ");
    gm_compare_opts o = opts_of("cpu", 513);
    refused(other, &o, GM_E_ARG, "windows of 513 tokens, expected 2 to 512");
    o = opts_of("cpu", 1);
    refused(other, &o, GM_E_ARG, "windows of 1 tokens");
    o = opts_of("abacus", 0);
    refused(other, &o, GM_E_ARG, "abacus");
    o = opts_of("cpu", 0);
    o.len = 0;
    refused(other, &o, GM_E_FORMAT, "it has 0 tokens");
    o = opts_of("cpu", 0);
    o.n_worst = 11;
    refused(other, &o, GM_E_ARG, "11 tensors to name, expected at most 10");
    tiny t;
    tiny_init(&t, &(tiny_shape){.seed = 4});
    scale_tensor(&t, "output_norm.weight", NAN);
    gm_model *const m = tiny_open(&t, "nan.gguf");
    o = opts_of("cpu", 0);
    refused(m, &o, GM_E_FORMAT, "nan.gguf: after token 1 of the text its logits are not numbers");
    gm_model_close(m);
    tiny_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(itself),
        cmocka_unit_test(equals_sums_by_hand),
        cmocka_unit_test(fewer_bits_are_further_away),
        cmocka_unit_test(worst_tensors),
        cmocka_unit_test(dialects_are_no_difference),
        cmocka_unit_test(progress_and_cancel),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("t_compare", tests, models_open, models_close);
}
