/* SPDX-License-Identifier: MIT */
/* Sampling options into the draw's parameters, and what is refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sample/sampler.h"

enum { VOCAB = 100 };

static const gm_sampling PLAIN = {.temperature = 1, .top_p = 1, .repeat_penalty = 1};

static gm_draw read_ok(const gm_sampling *s)
{
    gm_err err = {0};
    gm_draw d = {0};
    if (gm_sampler_read(s, VOCAB, &d, &err) != GM_OK) fail_msg("%s", err.msg);
    return d;
}

static void test_off_is_off(void **state)
{
    (void)state;
    const gm_draw d = read_ok(&PLAIN);
    assert_true(d.inv_temp == 1);
    assert_true(d.log_min_p == -INFINITY);
    assert_true(d.repeat == 1 && d.inv_repeat == 1);
    assert_true(d.frequency == 0 && d.presence == 0);
    assert_int_equal(d.top_k, 0);
    assert_true(d.top_p >= GM_DRAW_TOP_P_OFF);
}

static void test_every_option_arrives(void **state)
{
    (void)state;
    const gm_draw d = read_ok(&(gm_sampling){.temperature = 0.5f,
                                             .top_p = 0.75f,
                                             .min_p = 0.25f,
                                             .repeat_penalty = 4,
                                             .frequency_penalty = -0.5f,
                                             .presence_penalty = 1.5f,
                                             .top_k = 7,
                                             .seed = UINT64_C(0x123456789ABCDEF0)});
    assert_true(d.inv_temp == 2);
    assert_true(d.log_min_p == logf(0.25f));
    assert_true(d.repeat == 4 && d.inv_repeat == 0.25f);
    assert_true(d.frequency == -0.5f && d.presence == 1.5f);
    assert_int_equal(d.top_k, 7);
    assert_int_equal(d.top_p, GM_DRAW_TOP_P_OFF / 4 * 3);
    assert_int_equal(d.seed_lo, 0x9ABCDEF0);
    assert_int_equal(d.seed_hi, 0x12345678);
}

static void test_cold_is_greedy(void **state)
{
    (void)state;
    static const float temperatures[] = {0, -0.0f, 1e-30f, 1e-6f};
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        gm_sampling s = PLAIN;
        s.temperature = temperatures[i];
        assert_true(read_ok(&s).inv_temp == 0);
    }
    gm_sampling s = PLAIN;
    s.temperature = 1e-4f;
    assert_true(isfinite(read_ok(&s).inv_temp) && read_ok(&s).inv_temp > 0);
}

/* The borders themselves are fine. */
static void test_borders_are_taken(void **state)
{
    (void)state;
    static const gm_bias ends[] = {{0, -1000}, {VOCAB - 1, 1000}};
    read_ok(&(gm_sampling){.temperature = 100, .top_p = 0, .min_p = 1, .repeat_penalty = 100});
    read_ok(&(gm_sampling){.top_p = 1,
                           .repeat_penalty = 0.01f,
                           .frequency_penalty = 100,
                           .presence_penalty = -100,
                           .top_k = UINT32_MAX,
                           .n_bias = 2,
                           .bias = ends});
}

static void test_out_of_range_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t off;
        float x;
        const char *expectation;
    } rows[] = {
        {"temperature", offsetof(gm_sampling, temperature), -1, "expected 0 to 100"},
        {"temperature", offsetof(gm_sampling, temperature), 101, "expected 0 to 100"},
        {"temperature", offsetof(gm_sampling, temperature), NAN, "expected 0 to 100"},
        {"temperature", offsetof(gm_sampling, temperature), INFINITY, "expected 0 to 100"},
        {"top_p", offsetof(gm_sampling, top_p), -0.1f, "expected 0 to 1"},
        {"top_p", offsetof(gm_sampling, top_p), 1.1f, "expected 0 to 1"},
        {"top_p", offsetof(gm_sampling, top_p), NAN, "expected 0 to 1"},
        {"min_p", offsetof(gm_sampling, min_p), -1, "expected 0 to 1"},
        {"min_p", offsetof(gm_sampling, min_p), 2, "expected 0 to 1"},
        {"repeat_penalty", offsetof(gm_sampling, repeat_penalty), 0, "expected 0.01 to 100"},
        {"repeat_penalty", offsetof(gm_sampling, repeat_penalty), NAN, "expected 0.01 to 100"},
        {"frequency_penalty", offsetof(gm_sampling, frequency_penalty), 101, "-100 to 100"},
        {"presence_penalty", offsetof(gm_sampling, presence_penalty), -INFINITY, "-100 to 100"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gm_sampling s = PLAIN;
        gm_err err = {0};
        gm_draw d = {0};
        memcpy((char *)&s + rows[i].off, &rows[i].x, sizeof rows[i].x);
        assert_int_equal(gm_sampler_read(&s, VOCAB, &d, &err), GM_E_ARG);
        if (!strstr(err.msg, rows[i].name) || !strstr(err.msg, rows[i].expectation))
            fail_msg("row %zu: %s", i, err.msg);
    }
}

static void test_bad_biases_are_refused(void **state)
{
    (void)state;
    static const struct {
        gm_bias bias;
        const char *thing, *expectation;
    } rows[] = {
        {{-1, 0}, "token -1", "expected 0 to 99"},
        {{VOCAB, 0}, "token 100", "expected 0 to 99"},
        {{INT32_MIN, 0}, "token -2147483648", "expected 0 to 99"},
        {{5, 1001}, "logit bias is 1001", "expected -1000 to 1000"},
        {{5, NAN}, "logit bias is", "expected -1000 to 1000"},
    };
    gm_draw d;
    gm_err err = {0};
    gm_sampling s = PLAIN;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const gm_bias list[2] = {{3, 1}, rows[i].bias};
        s.bias = list;
        s.n_bias = 2;
        assert_int_equal(gm_sampler_read(&s, VOCAB, &d, &err), GM_E_ARG);
        if (!strstr(err.msg, rows[i].thing) || !strstr(err.msg, rows[i].expectation))
            fail_msg("row %zu: %s", i, err.msg);
    }
    static const gm_bias many[GM_SAMPLER_MAX_BIAS + 1];
    s.bias = many;
    s.n_bias = GM_SAMPLER_MAX_BIAS;
    assert_int_equal(gm_sampler_read(&s, VOCAB, &d, &err), GM_OK);
    s.n_bias = GM_SAMPLER_MAX_BIAS + 1;
    assert_int_equal(gm_sampler_read(&s, VOCAB, &d, &err), GM_E_ARG);
    assert_non_null(strstr(err.msg, "1025 logit biases, expected at most 1024"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_is_off),
        cmocka_unit_test(test_every_option_arrives),
        cmocka_unit_test(test_cold_is_greedy),
        cmocka_unit_test(test_borders_are_taken),
        cmocka_unit_test(test_out_of_range_is_refused),
        cmocka_unit_test(test_bad_biases_are_refused),
    };
    return cmocka_run_group_tests_name("t_sampler", tests, NULL, NULL);
}
