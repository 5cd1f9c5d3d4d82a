/* SPDX-License-Identifier: MIT */
/* Quantisers against the formats' own expansion: what is written is read back, and
 * the error is that of the values, in double. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp16.h"
#include "fixtures/chance.h"
#include "quant/fit.h"
#include "quant/quantise.h"

enum { ROWS = 3, COLS = 768, N = ROWS * COLS };

static float rows[N], weights[COLS], back[N];
static uint8_t bytes[N * 4], other[N * 4];

static size_t size_of(const gm_qtype_info *t, size_t n)
{
    return n / t->block_len * t->block_size;
}

/* The weighted squared error of one way, over all rows. */
static double error_of(const gm_qtype_info *t, gm_quantiser how, const float *w)
{
    double sum = 0;
    memset(bytes, 0xA5, sizeof bytes);
    gm_quantise_rows(t, how, rows, ROWS, COLS, w, bytes);
    for (size_t r = 0; r < ROWS; r++)
        gm_qtype_expand(t, bytes + r * size_of(t, COLS), COLS, back + r * COLS);
    for (size_t i = 0; i < N; i++) {
        const double e = (double)back[i] - (double)rows[i];
        assert_true(isfinite(back[i]));
        sum += e * e * (double)(w ? w[i % COLS] : 1);
    }
    return sum;
}

/* ---- rows to try ----------------------------------------------------------------------- */

static void fill_normal(chance *c)
{
    chance_normals(c, rows, N);
}

/* The quotient of two bell-shaped numbers, cut: a few values are far from the others. */
static void fill_heavy(chance *c)
{
    for (size_t i = 0; i < N; i++) {
        const float x = chance_normal(c) / (fabsf(chance_normal(c)) + 0.05f);
        rows[i] = x;
    }
}

static void fill_outlier(chance *c)
{
    fill_normal(c);
    for (size_t i = 5; i < N; i += 256)
        rows[i] = i % 512 == 5 ? 500.0f : -500.0f;
}

static void fill_positive(chance *c)
{
    for (size_t i = 0; i < N; i++)
        rows[i] = 3 + chance_unit(c);
}

static void fill_negative(chance *c)
{
    for (size_t i = 0; i < N; i++)
        rows[i] = -1 - 5 * chance_unit(c);
}

static void fill_equal(chance *c)
{
    (void)c;
    for (size_t i = 0; i < N; i++)
        rows[i] = -0.37f;
}

static void fill_tiny(chance *c)
{
    for (size_t i = 0; i < N; i++)
        rows[i] = chance_normal(c) * (i % 512 < 256 ? 1e-7f : 1e-40f);
}

static void fill_huge(chance *c)
{
    for (size_t i = 0; i < N; i++)
        rows[i] = (2 * chance_unit(c) - 1) * 65504;
}

static void fill_sparse(chance *c)
{
    for (size_t i = 0; i < N; i++)
        rows[i] = chance_below(c, 40) == 0 ? chance_normal(c) : 0;
}

typedef void fill_fn(chance *c);
static const struct {
    const char *name;
    fill_fn *fill;
} fills[] = {
    {"normal", fill_normal}, {"heavy", fill_heavy},       {"outlier", fill_outlier},
    {"equal", fill_equal},   {"positive", fill_positive}, {"negative", fill_negative},
    {"tiny", fill_tiny},     {"huge", fill_huge},         {"sparse", fill_sparse},
};

static void fill_weights(chance *c)
{
    for (size_t i = 0; i < COLS; i++) {
        const float x = chance_normal(c);
        weights[i] = i % 7 == 0 ? 0 : x * x;
    }
}

/* ---- tests ------------------------------------------------------------------------------ */

static void packs_what_was_unpacked(void **state)
{
    (void)state;
    chance c = {.state = 1};
    for (size_t k = 0; gm_qtype_at(k); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k);
        if (!t->unpack) continue;
        for (int i = 0; i < 200; i++) {
            gm_qints ints;
            chance_row(&c, t, t->block_len, bytes);
            t->unpack(bytes, &ints);
            t->pack(&ints, other);
            assert_memory_equal(bytes, other, t->block_size);
        }
    }
}

static void fit_is_never_worse_than_rounding(void **state)
{
    (void)state;
    chance c = {.state = 2};
    for (size_t k = 0; gm_qtype_at(k); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k);
        for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
            fills[i].fill(&c);
            fill_weights(&c);
            for (int weighted = 0; weighted < 2; weighted++) {
                const float *const w = weighted ? weights : NULL;
                const double plain = error_of(t, GM_QUANTISE_NEAREST, w);
                const double fit = error_of(t, GM_QUANTISE_FIT, w);
                if (fit > plain * (1 + 1e-5) + 1e-80)
                    fail_msg("%s, %s: %g is more than %g", t->name, fills[i].name, fit, plain);
            }
        }
    }
}

/* What docs/QUANT.md says, with a little room: the search's share of plain rounding's error. */
static void fit_gains_what_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double most;
    } rows_of[] = {
        {"q8_0", 0.83}, {"q4_0", 0.92}, {"q4_1", 0.80},   {"q5_0", 0.91},
        {"q5_1", 0.80}, {"q2_k", 0.66}, {"q3_k", 0.89},   {"q4_k", 0.81},
        {"q5_k", 0.84}, {"q6_k", 0.80}, {"iq4_nl", 0.88}, {"iq4_xs", 0.88},
    };
    chance c = {.state = 3};
    for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) {
        const gm_qtype_info *const t = gm_qtype_find_name(gm_str_c(rows_of[i].name));
        double plain = 0, fit = 0;
        for (int turn = 0; turn < 10; turn++) {
            fill_normal(&c);
            plain += error_of(t, GM_QUANTISE_NEAREST, NULL);
            fit += error_of(t, GM_QUANTISE_FIT, NULL);
        }
        if (fit > rows_of[i].most * plain)
            fail_msg("%s: %.3f of plain rounding's error", t->name, fit / plain);
    }
}

static void importance_moves_the_error(void **state)
{
    (void)state;
    chance c = {.state = 4};
    for (size_t k = 3; gm_qtype_at(k); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k);
        double with = 0, without = 0;
        for (int turn = 0; turn < 10; turn++) {
            fill_normal(&c);
            fill_weights(&c);
            with += error_of(t, GM_QUANTISE_FIT, weights);
            gm_quantise_rows(t, GM_QUANTISE_FIT, rows, ROWS, COLS, NULL, bytes);
            for (size_t i = 0; i < N; i++) {
                if (i % COLS == 0) gm_qtype_expand(t, bytes + size_of(t, i), COLS, back + i);
                const double e = (double)back[i] - (double)rows[i];
                without += e * e * (double)weights[i % COLS];
            }
        }
        assert_true(with < 0.98 * without);
    }
}

/* Blocks that use all of a format's range: every group has its lowest and its highest code, some
 * group the largest scale and minimum. */
static void representable(chance *c, const gm_qtype_info *t, uint8_t *block)
{
    gm_qints ints;
    chance_row(c, t, t->block_len, block);
    t->unpack(block, &ints);
    int low = 0, high = 0, sc = 1, m = 0;
    for (int i = 0; i < 2000; i++) { /* the extremes of the format, as blocks show them */
        uint8_t any[256];
        gm_qints seen;
        chance_row(c, t, t->block_len, any);
        t->unpack(any, &seen);
        for (uint32_t j = 0; j < t->block_len; j++) {
            low = seen.q[j] < low ? seen.q[j] : low;
            high = seen.q[j] > high ? seen.q[j] : high;
            sc = abs(seen.sc[j / 16]) > abs(sc) ? seen.sc[j / 16] : sc;
            m = seen.m[j / 16] > m ? seen.m[j / 16] : m;
        }
    }
    if (t->id == GM_QTYPE_Q8_0) low = -127;
    for (uint32_t j = 0; j < t->block_len; j++)
        ints.q[j] = (int8_t)(ints.q[j] < low ? low : ints.q[j]);
    for (uint32_t g = 0; g < t->block_len / 16; g += 2) {
        ints.q[16 * g] = ints.q[16 * g + 16] = (int8_t)low;
        ints.q[16 * g + 3] = ints.q[16 * g + 21] = (int8_t)high;
    }
    ints.sc[0] = ints.sc[1] = (int16_t)sc;
    ints.m[0] = ints.m[1] = (int16_t)m;
    if (m > 0) ints.d = fabsf(ints.d); /* the lowest code is the lowest value */
    if (m > 1) ints.dmin = fabsf(ints.dmin);
    t->pack(&ints, block);
}

static void representable_rows_come_back(void **state)
{
    (void)state;
    chance c = {.state = 5};
    for (size_t k = 3; gm_qtype_at(k); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k);
        for (size_t i = 0; i < N; i += t->block_len)
            representable(&c, t, other + size_of(t, i));
        gm_qtype_expand(t, other, N, rows);
        if (error_of(t, GM_QUANTISE_FIT, NULL) > 0) fail_msg("%s is not exact", t->name);
        if (error_of(t, GM_QUANTISE_NEAREST, NULL) > 0) fail_msg("%s is not exact", t->name);
    }
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    memset(rows, 0, sizeof rows);
    for (size_t k = 0; gm_qtype_at(k); k++) {
        assert_true(error_of(gm_qtype_at(k), GM_QUANTISE_FIT, NULL) == 0);
        assert_true(error_of(gm_qtype_at(k), GM_QUANTISE_NEAREST, NULL) == 0);
    }
}

static void rows_do_not_touch_each_other(void **state)
{
    (void)state;
    chance c = {.state = 6};
    fill_heavy(&c);
    fill_weights(&c);
    for (size_t k = 0; gm_qtype_at(k); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k);
        gm_quantise_rows(t, GM_QUANTISE_FIT, rows, ROWS, COLS, weights, bytes);
        for (size_t r = 0; r < ROWS; r++)
            gm_quantise_rows(t, GM_QUANTISE_FIT, rows + r * COLS, 1, COLS, weights,
                             other + r * size_of(t, COLS));
        assert_memory_equal(bytes, other, size_of(t, N));
    }
}

static void every_rung_gives_the_same_bits(void **state)
{
    (void)state;
    static const gm_form forms[] = {
        {GM_QTYPE_Q4_0, 32, -8, 7, 1, 1, 0, 0, false, 0.8f, 1.1f, 4, 2},
        {GM_QTYPE_Q4_1, 32, 0, 15, 1, 1, 1, 1, false, -0.1f, 0.1f, 4, 2},
        {GM_QTYPE_IQ4_NL, 32, -127, 113, 1, 1, 0, 0, true, 0.8f, 1.1f, 4, 2},
        {GM_QTYPE_Q2_K, 16, 0, 3, 0, 15, 0, 15, false, -0.1f, 0.1f, 4, 2},
        {GM_QTYPE_Q4_K, 32, 0, 15, 0, 63, 0, 63, false, -0.1f, 0.1f, 4, 2},
        {GM_QTYPE_Q6_K, 16, -32, 31, -128, 127, 0, 0, false, 0.8f, 1.1f, 4, 2},
    };
    const bool avx2 = __builtin_cpu_supports("avx2") != 0;
    const bool avx512 = __builtin_cpu_supports("avx512vnni") != 0;
    gm_fit_fn *const ways[][3] = {
        {gm_fit_c, avx2 ? gm_fit_avx2 : NULL, avx512 ? gm_fit_avx512 : NULL},
        {gm_nearest_c, avx2 ? gm_nearest_avx2 : NULL, avx512 ? gm_nearest_avx512 : NULL},
    };
    if (!avx2 || !avx512) print_message("skip: this CPU has not every rung\n");
    chance c = {.state = 7};
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        fills[i].fill(&c);
        fill_weights(&c);
        for (size_t k = 0; k < 2 * sizeof forms / sizeof *forms; k++) {
            const gm_form *const f = &forms[k / 2];
            const uint32_t len = gm_qtype_find((uint32_t)f->type)->block_len;
            gm_qints first = {0}, ints;
            ways[k % 2][0](f, len, rows, weights, &first);
            for (int rung = 1; rung < 3; rung++) {
                if (!ways[k % 2][rung]) continue;
                memset(&ints, 0, sizeof ints);
                ways[k % 2][rung](f, len, rows, weights, &ints);
                assert_memory_equal(&first, &ints, sizeof ints);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_what_was_unpacked),
        cmocka_unit_test(fit_is_never_worse_than_rounding),
        cmocka_unit_test(fit_gains_what_is_said),
        cmocka_unit_test(importance_moves_the_error),
        cmocka_unit_test(representable_rows_come_back),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(rows_do_not_touch_each_other),
        cmocka_unit_test(every_rung_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
