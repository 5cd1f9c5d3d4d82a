/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "base/fp16.h"
#include "fixtures/chance.h"
#include "fixtures/slowdot.h"
#include "quant/dot.h"

#define MAX_COLS 1280

static int8_t codes[MAX_COLS + 32];
static float scales[MAX_COLS / GM_ACT_BLOCK + 1];
static const gm_act8 act8 = {codes, scales};

/* A block by dot.h's sentences, with the tie rule spelled out instead of asked from libm. */
static int nearest_even(double x)
{
    const double low = floor(x);
    if (x - low != 0.5) return (int)floor(x + 0.5);
    return (int)low % 2 == 0 ? (int)low : (int)low + 1;
}

static void check_quantised(const float *x, size_t n)
{
    memset(codes, 99, sizeof codes);
    gm_act8_quantise(x, n, &act8);
    for (size_t b = 0; b * GM_ACT_BLOCK < n; b++) {
        float max = 0;
        for (size_t i = b * GM_ACT_BLOCK; i < n && i < (b + 1) * GM_ACT_BLOCK; i++)
            max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
        assert_int_equal(gm_f32_bits(scales[b]), gm_f32_bits(max / 127.0f));
        const float up = max > 0 ? 127.0f / max : 0;
        for (size_t i = b * GM_ACT_BLOCK; i < (b + 1) * GM_ACT_BLOCK; i++) {
            const float scaled = i < n ? x[i] * up : 0;
            assert_int_equal(codes[i], nearest_even((double)scaled));
            assert_true(codes[i] >= -127);
            if (i < n)
                assert_true(fabs((double)x[i] - (double)codes[i] * (double)scales[b]) <=
                            0.5001 * (double)scales[b]);
        }
    }
    const size_t padded = (n + GM_ACT_BLOCK - 1) / GM_ACT_BLOCK * GM_ACT_BLOCK;
    assert_int_equal(codes[padded], 99); /* nothing is written past the last block */
}

static void test_quantise_random(void **state)
{
    (void)state;
    chance c = {7};
    float x[MAX_COLS];
    for (int round = 0; round < 300; round++) {
        const size_t n = 1 + chance_below(&c, 300);
        const float size = ldexpf(1, (int)chance_below(&c, 200) - 100);
        for (size_t i = 0; i < n; i++)
            x[i] = chance_normal(&c) * size;
        if (round % 3 == 0) x[chance_below(&c, (uint32_t)n)] = 1e6f * size;
        check_quantised(x, n);
    }
}

static void test_quantise_special(void **state)
{
    (void)state;
    float x[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i - 32) + 0.5f; /* every one a tie where the largest is 127 */
    x[5] = -127;
    x[40] = 127;
    check_quantised(x, 64);
    assert_int_equal(codes[30], -2);
    assert_int_equal(codes[31], 0);
    assert_int_equal(codes[32], 0);
    assert_int_equal(codes[33], 2);
    memset(x, 0, sizeof x);
    x[3] = -0.0f;
    check_quantised(x, 33);
    assert_true(scales[0] == 0 && !signbit(scales[0]) && scales[1] == 0);
    x[7] = FLT_MAX;
    x[8] = -FLT_MAX;
    check_quantised(x, 32);
    assert_int_equal(codes[7], 127);
    assert_int_equal(codes[8], -127);
}

/* So small that 127 / max is infinite: the block counts as nothing, and never as NaN. */
static void test_quantise_denormal(void **state)
{
    (void)state;
    static const float tiny[] = {1e-45f, 1e-40f, FLT_MIN / 2, 3e-37f, FLT_MIN};
    for (size_t k = 0; k < sizeof tiny / sizeof *tiny; k++) {
        float x[32] = {0};
        x[0] = tiny[k];
        x[31] = -tiny[k];
        gm_act8_quantise(x, 32, &act8);
        assert_true(isfinite(scales[0]) && scales[0] >= 0 && scales[0] <= FLT_MIN);
        assert_int_equal(codes[0], -codes[31]);
        for (int i = 1; i < 31; i++)
            assert_int_equal(codes[i], 0);
    }
}

static void test_quantise_sees_nan(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 4; k++) {
        float x[96];
        for (int i = 0; i < 96; i++)
            x[i] = 1;
        x[32 + 7 * k] = bad[k];
        gm_act8_quantise(x, 96, &act8);
        assert_true(scales[0] == 1 / 127.0f && isnan(scales[1]) && scales[2] == 1 / 127.0f);
    }
}

/* Random rows: sums exact, the row's bits as the law says, and the error that of the activations'
 * rounding: half a step for each, times the weight. */
static void test_int8_rows(void **state)
{
    (void)state;
    chance c = {8};
    uint8_t row[MAX_COLS * 34 / 32];
    float x[MAX_COLS], w[MAX_COLS];
    for (size_t k = 0; gm_qtype_at(k); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k);
        for (uint32_t round = 0; t->unpack && round < 200; round++) {
            const size_t n = (1 + round % (MAX_COLS / t->block_len)) * t->block_len;
            chance_row(&c, t, n, row);
            chance_normals(&c, x, n);
            if (round % 5 == 0) x[chance_below(&c, (uint32_t)n)] = 300;
            gm_act8_quantise(x, n, &act8);
            const float got = gm_dot_int8(t, row, &act8, n);
            assert_int_equal(gm_f32_bits(got), gm_f32_bits(slowdot_int8(t, row, &act8, n)));
            gm_qtype_expand(t, row, n, w);
            double bound = 0, size = 0;
            for (size_t i = 0; i < n; i++) {
                bound += 0.5001 * fabs((double)w[i]) * (double)scales[i / GM_ACT_BLOCK];
                size += fabs((double)w[i] * (double)x[i]);
            }
            const double exact = (double)gm_dot_exact(w, x, n);
            if (!(fabs((double)got - exact) <= bound + 1e-4 * size))
                fail_msg("%s: %g, exactly %g, bound %g", t->name, (double)got, exact, bound);
        }
    }
}

/* The largest sums that each format can make stay below 2^24: slowdot_sum asserts it. */
static void test_sums_at_extremes(void **state)
{
    (void)state;
    chance c = {9};
    for (size_t k = 0; gm_qtype_at(k); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k);
        for (uint32_t round = 0; t->unpack && round < 260; round++) {
            uint8_t block[210];
            memset(block, (int)round, sizeof block);
            for (size_t i = 0; round >= 256 && i < sizeof block; i++)
                block[i] = chance_u32(&c) & 1 ? 0xFF : 0;
            /* Q6_K's largest scales stand behind its codes. */
            if (t->id == GM_QTYPE_Q6_K) memset(block + 192, 0x80, 16);
            gm_qints b;
            t->unpack(block, &b);
            for (uint32_t part = 0; part < t->block_len / GM_ACT_BLOCK; part++) {
                for (int mode = 0; mode < 3; mode++) {
                    int8_t x8[GM_ACT_BLOCK];
                    for (uint32_t i = 0; i < GM_ACT_BLOCK; i++) {
                        const int sign = b.q[part * GM_ACT_BLOCK + i] < 0 ? -127 : 127;
                        x8[i] = (int8_t)(mode == 0 ? 127 : mode == 1 ? -127 : sign);
                    }
                    const gm_blocksum got = gm_qints_sum(&b, part, x8);
                    const gm_blocksum want = slowdot_sum(&b, part, x8);
                    assert_int_equal(got.s, want.s);
                    assert_int_equal(got.m, want.m);
                }
            }
        }
    }
}

static void test_float_dots(void **state)
{
    (void)state;
    chance c = {10};
    float w[333], x[333];
    for (size_t n = 0; n <= 333; n++) {
        chance_normals(&c, w, n);
        chance_normals(&c, x, n);
        long double exact = 0;
        double size = 0;
        for (size_t i = 0; i < n; i++) {
            exact += (long double)w[i] * (long double)x[i];
            size += fabs((double)w[i] * (double)x[i]);
        }
        assert_true(fabs((double)gm_dot_exact(w, x, n) - (double)exact) <= 1e-7 * size);
        assert_int_equal(gm_f32_bits(gm_dot_f32(w, x, n)), gm_f32_bits(slowdot_f32(w, x, n)));
    }
    /* What cancels in float64 would not in float32. */
    const float big[] = {1e8f, 1, -1e8f}, one[] = {1, 1, 1};
    assert_true(gm_dot_exact(big, one, 3) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise_random),   cmocka_unit_test(test_quantise_special),
        cmocka_unit_test(test_quantise_denormal), cmocka_unit_test(test_quantise_sees_nan),
        cmocka_unit_test(test_int8_rows),         cmocka_unit_test(test_sums_at_extremes),
        cmocka_unit_test(test_float_dots),
    };
    return cmocka_run_group_tests_name("t_dot", tests, NULL, NULL);
}
