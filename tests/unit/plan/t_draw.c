/* SPDX-License-Identifier: MIT */
/* The draw against the nine steps of draw.h, walked slowly: the whole row is sorted,
 * and each step is a loop of its own. Only the functions of draw_law.h are shared,
 * and those are compared with libm. */

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
#include "plan/draw.h"

#define GM_LAW           static inline
#define GM_LAW_F32       float
#define GM_LAW_ARG       float
#define GM_LAW_U32       uint32_t
#define GM_LAW_BITS(f)   gm_f32_bits(f)
#define GM_LAW_FLOAT(u)  gm_f32_from_bits(u)
#define GM_LAW_TO_F32(x) ((float)(x))
#define GM_LAW_TO_U32(x) ((uint32_t)(x))
#define GM_LAW_TO_I32(x) ((int32_t)(x))
#define GM_LAW_FLOOR(f)  floorf(f)
#include "plan/draw_law.h"

#define MAX_N  301
#define LONG_N 20001 /* long enough for the short way to the first k */

typedef struct token {
    float l;
    uint32_t id;
} token;

static float adjusted[LONG_N];
static uint32_t order[LONG_N];
static const gm_draw_scratch scratch = {adjusted, order};
static const gm_draw plain = {.inv_temp = 1,
                              .log_min_p = -INFINITY,
                              .repeat = 1,
                              .inv_repeat = 1,
                              .top_p = GM_DRAW_TOP_P_OFF};

static float noise(const gm_draw *d, uint32_t pos, uint32_t id)
{
    const uint32_t key0 = gm_law_scatter(d->seed_lo + gm_law_scatter(pos));
    const uint32_t key1 = gm_law_scatter(d->seed_hi ^ gm_law_scatter(pos + 0x9e3779b9u));
    return gm_law_noise(key0, key1, id);
}

static int by_logit(const void *a, const void *b)
{
    const token *const x = a, *const y = b;
    if (x->l != y->l) return x->l > y->l ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Steps 1 to 3; what is out, or not a number, has -inf. */
static void slow_adjust(const float *logits, uint32_t n, const gm_draw_row *row, token *t)
{
    const gm_draw *const d = row->draw;
    for (uint32_t i = 0; i < n; i++) {
        const gm_draw_count c = row->counts ? row->counts[i] : (gm_draw_count){0};
        float l = logits[i];
        if (c.prompt + c.answer > 0) l = l > 0 ? l * d->inv_repeat : l * d->repeat;
        l = l - d->frequency * (float)c.answer;
        if (c.answer > 0) l = l - d->presence;
        for (uint32_t b = 0; b < row->n_bias; b++)
            l += (uint32_t)row->bias[b].id == i ? row->bias[b].bias : 0;
        const bool out = row->mask && !(row->mask[i / 32] & 1u << i % 32);
        t[i] = (token){out || isnan(l) ? -INFINITY : l, i};
    }
}

/* Steps 6 to 8 on tokens in order: how many stay. */
static uint32_t slow_cut(const token *t, uint32_t n, const gm_draw *d)
{
    uint32_t kept = n;
    if (d->top_k > 0 && d->top_k < kept) kept = d->top_k;
    if (d->top_p < GM_DRAW_TOP_P_OFF) {
        uint64_t total = 0, sum = 0;
        for (uint32_t i = 0; i < kept; i++)
            total += gm_law_weight((t[i].l - t[0].l) * d->inv_temp);
        uint32_t i = 0;
        do {
            sum += gm_law_weight((t[i].l - t[0].l) * d->inv_temp);
            i++;
        } while (i < kept && sum * GM_DRAW_TOP_P_OFF < total * d->top_p);
        kept = i;
    }
    uint32_t left = 0;
    while (left < kept && (t[left].l - t[0].l) * d->inv_temp >= d->log_min_p)
        left++;
    return left ? left : 1;
}

static uint32_t slow_draw(const float *logits, uint32_t n, const gm_draw_row *row)
{
    static token t[LONG_N];
    slow_adjust(logits, n, row, t);
    qsort(t, n, sizeof *t, by_logit);
    for (uint32_t i = 0; t[0].l == -INFINITY && row->mask && i < n; i++) {
        if (row->mask[i / 32] & 1u << i % 32) return i;
    }
    if (row->draw->inv_temp == 0) return t[0].id;
    const uint32_t kept = slow_cut(t, n, row->draw);
    uint32_t best = t[0].id;
    float most = -INFINITY;
    for (uint32_t i = 0; i < kept; i++) {
        const float s = t[i].l * row->draw->inv_temp + noise(row->draw, row->pos, t[i].id);
        if (s > most || (s == most && t[i].id < best)) most = s, best = t[i].id;
    }
    return best;
}

/* One random row with some of the parameters on. */
typedef struct scene {
    float logits[MAX_N];
    gm_draw_count counts[MAX_N];
    gm_bias bias[5];
    uint32_t mask[(MAX_N + 31) / 32];
    gm_draw draw;
    gm_draw_row row;
    uint32_t n;
} scene;

static void make_logits(chance *c, scene *s)
{
    const uint32_t shape = chance_below(c, 8);
    const float size = shape == 0 ? 0 : shape < 3 ? 20 : 4;
    for (uint32_t i = 0; i < s->n; i++) {
        s->logits[i] = size * chance_normal(c);
        if (shape == 4) s->logits[i] = floorf(s->logits[i] / 4); /* many ties */
        const uint32_t dice = chance_below(c, 40);
        if (shape == 5 && dice < 10) s->logits[i] = -INFINITY;
        if (shape == 6 && dice < 10) s->logits[i] = dice & 1 ? NAN : -NAN;
        if (shape == 7 && dice == 0) s->logits[i] = INFINITY;
    }
}

static bool maybe(chance *c)
{
    return chance_below(c, 3) == 0;
}

static void make_scene(chance *c, scene *s, bool greedy)
{
    s->n = maybe(c) ? 1 + chance_below(c, 5) : 1 + chance_below(c, MAX_N);
    make_logits(c, s);
    s->draw = plain;
    s->draw.seed_lo = chance_u32(c);
    s->draw.seed_hi = chance_u32(c);
    s->draw.inv_temp = greedy ? 0 : maybe(c) ? 1 : 0.05f + 3 * chance_unit(c);
    if (maybe(c)) s->draw.top_k = 1 + chance_below(c, maybe(c) ? 2 * MAX_N : 40);
    if (maybe(c)) s->draw.top_p = chance_below(c, 2 * GM_DRAW_TOP_P_OFF + 1) / 2;
    if (maybe(c)) s->draw.log_min_p = maybe(c) ? 0 : -9 * chance_unit(c);
    s->row = (gm_draw_row){.draw = &s->draw, .pos = chance_below(c, 4096)};
    if (maybe(c)) {
        s->draw.repeat = 0.5f + chance_unit(c);
        s->draw.inv_repeat = 1 / s->draw.repeat;
    }
    if (maybe(c)) s->draw.frequency = chance_normal(c);
    if (maybe(c)) s->draw.presence = chance_normal(c);
    for (uint32_t i = 0; i < s->n; i++)
        s->counts[i] = (gm_draw_count){(uint16_t)(chance_u32(c) & 1), maybe(c) ? 3 : 0};
    if (maybe(c)) s->row.counts = s->counts;
    for (uint32_t i = 0; i < 5; i++)
        s->bias[i] = (gm_bias){(int32_t)chance_below(c, s->n), 5 * chance_normal(c)};
    s->bias[4].bias = -INFINITY;
    s->bias[3].bias = maybe(c) ? INFINITY : 1;
    s->row.bias = s->bias;
    s->row.n_bias = maybe(c) ? chance_below(c, 6) : 0;
    for (uint32_t i = 0; i < (MAX_N + 31) / 32; i++)
        s->mask[i] = maybe(c) ? 0 : chance_u32(c);
    if (maybe(c)) s->row.mask = s->mask;
}

static void check_scenes(uint64_t seed, uint32_t n, bool greedy)
{
    chance c = {seed};
    for (uint32_t i = 0; i < n; i++) {
        scene s;
        make_scene(&c, &s, greedy);
        const uint32_t got = gm_draw_token(s.logits, s.n, &s.row, &scratch);
        const uint32_t want = slow_draw(s.logits, s.n, &s.row);
        if (got != want) {
            fail_msg("row %u of seed %u: %u, expected %u (n %u, top_k %u, top_p %u, log_min_p %g)",
                     i, (unsigned)seed, got, want, s.n, s.draw.top_k, s.draw.top_p,
                     (double)s.draw.log_min_p);
        }
    }
}

static void test_rows(void **state)
{
    (void)state;
    check_scenes(11, 24000, false);
    check_scenes(12, 4000, true);
}

/* Penalties round as the law is written: l, less frequency times count, less presence. */
/* Rows in which the first k are found by a bar: random, with ties, flat, and with few candidates. */
static void test_long_rows(void **state)
{
    (void)state;
    static float logits[LONG_N];
    chance c = {77};
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t n = 8000 + chance_below(&c, LONG_N - 8000);
        const uint32_t levels = i % 4 == 0 ? 1 : i % 4 == 1 ? 3 : 1000000;
        for (uint32_t j = 0; j < n; j++)
            logits[j] =
                i % 5 == 4 && chance_below(&c, 1000) ? -INFINITY : (float)chance_below(&c, levels);
        gm_draw d = plain;
        d.inv_temp = i % 3 ? 1e-5f : 1e-3f;
        d.top_k = 1 + chance_below(&c, 300);
        d.top_p = i % 2 ? GM_DRAW_TOP_P_OFF : 900000;
        d.seed_lo = i;
        const gm_draw_row row = {.draw = &d, .pos = i};
        assert_int_equal(gm_draw_token(logits, n, &row, &scratch), slow_draw(logits, n, &row));
    }
}

static void test_penalties(void **state)
{
    (void)state;
    const float logits[4] = {2, -2, 2, 2};
    const gm_draw_count counts[4] = {{1, 0}, {0, 1}, {0, 2}, {0, 0}};
    gm_draw d = plain;
    d.inv_temp = 0;
    d.repeat = 2;
    d.inv_repeat = 0.5f;
    gm_draw_row row = {.draw = &d, .counts = counts};
    assert_int_equal(gm_draw_token(logits, 4, &row, &scratch), 3);
    assert_true(adjusted[0] == 1 && adjusted[1] == -4 && adjusted[2] == 1 && adjusted[3] == 2);
    d = plain;
    d.inv_temp = 0;
    d.frequency = 0.25f;
    d.presence = 0.5f;
    gm_draw_token(logits, 4, &row, &scratch);
    assert_true(adjusted[0] == 2 && adjusted[1] == -2.75f && adjusted[2] == 1 && adjusted[3] == 2);
    d.frequency = 1;
    d.presence = 0x1p-23f;
    const float large[2] = {0x1p24f + 4, 0};
    const gm_draw_count one[2] = {{0, 1}, {0, 0}};
    row.counts = one;
    gm_draw_token(large, 2, &row, &scratch);
    const float first = large[0] - 1.0f, second = first - 0x1p-23f;
    assert_true(adjusted[0] == second);
}

/* A row whose tokens are all out, or not numbers, gives the lowest token that the mask allows. */
static void test_nothing_left(void **state)
{
    (void)state;
    chance c = {13};
    for (uint32_t i = 0; i < 300; i++) {
        scene s;
        make_scene(&c, &s, i % 2 == 0);
        for (uint32_t j = 0; j < s.n; j++)
            s.logits[j] = i % 3 ? -INFINITY : NAN;
        s.row.n_bias = 0;
        s.row.mask = NULL;
        assert_int_equal(gm_draw_token(s.logits, s.n, &s.row, &scratch), 0);
        const uint32_t lowest = chance_below(&c, s.n);
        memset(s.mask, 0, sizeof s.mask);
        s.row.mask = s.mask;
        assert_int_equal(gm_draw_token(s.logits, s.n, &s.row, &scratch), 0);
        for (uint32_t j = lowest; j < s.n; j += 3)
            s.mask[j / 32] |= 1u << j % 32;
        assert_int_equal(gm_draw_token(s.logits, s.n, &s.row, &scratch), lowest);
    }
}

/* Infinities that meet in a bias make no token win: NaN never does. */
static void test_bias_meets_infinity(void **state)
{
    (void)state;
    const float logits[5] = {1, INFINITY, 2, -INFINITY, 0};
    const gm_bias bias[3] = {{1, -INFINITY}, {3, INFINITY}, {0, 0.5f}};
    for (int greedy = 0; greedy < 2; greedy++) {
        for (uint32_t k = 0; k < 4; k++) {
            gm_draw d = plain;
            d.inv_temp = greedy ? 0 : 50;
            d.top_k = k;
            const gm_draw_row row = {.draw = &d, .bias = bias, .n_bias = 3, .pos = k};
            assert_int_equal(gm_draw_token(logits, 5, &row, &scratch), 2);
        }
    }
}

/* Half of the weight of four equal tokens is just two of them, and a hair more is three. */
static void test_top_p_border(void **state)
{
    (void)state;
    const float flat[4] = {0};
    for (uint32_t more = 0; more < 2; more++) {
        gm_draw d = plain;
        d.top_p = GM_DRAW_TOP_P_OFF / 2 + more;
        uint32_t seen[4] = {0};
        for (uint32_t i = 0; i < 500; i++) {
            const gm_draw_row row = {.draw = &d, .pos = i};
            seen[gm_draw_token(flat, 4, &row, &scratch)]++;
        }
        assert_true(seen[0] > 100 && seen[1] > 100 && seen[3] == 0);
        assert_int_equal(seen[2] > 100, more);
    }
}

/* Pearson's sum of n draws against probabilities p[10]; for 9 degrees of freedom 33.7 is passed by
 * one in 10000, and the seeds are fixed. */
static double chi_square(const float *logits, const gm_draw *d, const double *p, uint32_t n)
{
    uint32_t seen[10] = {0};
    for (uint32_t i = 0; i < n; i++) {
        const gm_draw_row row = {.draw = d, .pos = i};
        seen[gm_draw_token(logits, 10, &row, &scratch)]++;
    }
    double sum = 0;
    for (int i = 0; i < 10; i++) {
        if (p[i] == 0) assert_int_equal(seen[i], 0);
        if (p[i] > 0) sum += pow((double)seen[i] - n * p[i], 2) / (n * p[i]);
    }
    return sum;
}

static const float ten[10] = {1.5f, -0.5f, 0, 2.25f, 0.75f, -1.5f, 0.5f, 1, -0.75f, 0.25f};

/* The softmax of the tokens that `keep` has bits for. */
static void softmax(double inv_temp, uint32_t keep, double *p)
{
    double sum = 0;
    for (int i = 0; i < 10; i++) {
        p[i] = keep >> i & 1 ? exp((double)ten[i] * inv_temp) : 0;
        sum += p[i];
    }
    for (int i = 0; i < 10; i++)
        p[i] /= sum;
}

static void test_distribution(void **state)
{
    (void)state;
    /* In order: 3 0 7 4 6 9 2 1 8 5. Weights relative to the first at temperature 1:
     * 1 .472 .287 .223 .174 .135 .105 .064 .050 .024, together 2.534. */
    static const struct {
        float inv_temp;
        uint32_t top_k;
        double top_p, min_p;
        uint32_t keep;
    } cases[] = {
        {1, 0, 1, 0, 0x3FF},
        {0.5f, 0, 1, 0, 0x3FF},
        {2, 0, 1, 0, 0x3FF},
        {1, 4, 1, 0, 1 << 3 | 1 << 0 | 1 << 7 | 1 << 4},
        {1, 0, 0.6, 0, 1 << 3 | 1 << 0 | 1 << 7},
        {1, 0, 1, 0.15, 1 << 3 | 1 << 0 | 1 << 7 | 1 << 4 | 1 << 6},
        {1, 4, 0.9, 0, 1 << 3 | 1 << 0 | 1 << 7 | 1 << 4},
        {1, 3, 0.8, 0.2, 1 << 3 | 1 << 0},
        {1, 4, 0.9, 0.25, 1 << 3 | 1 << 0 | 1 << 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gm_draw d = plain;
        double p[10];
        d.seed_lo = 5 + (uint32_t)i;
        d.inv_temp = cases[i].inv_temp;
        d.top_k = cases[i].top_k;
        d.top_p = (uint32_t)lrint(cases[i].top_p * GM_DRAW_TOP_P_OFF);
        d.log_min_p = cases[i].min_p > 0 ? (float)log(cases[i].min_p) : -INFINITY;
        softmax((double)cases[i].inv_temp, cases[i].keep, p);
        const double sum = chi_square(ten, &d, p, i == 0 ? 200000 : 40000);
        if (sum > 33.7) fail_msg("case %zu: chi-square %g", i, sum);
    }
}

/* Each seed and each position draws anew: pairs of draws are independent of one another. */
static void check_independent(uint32_t step_lo, uint32_t step_hi, uint32_t step_pos)
{
    const float flat[4] = {0};
    uint32_t seen[16] = {0};
    const uint32_t n = 40000;
    for (uint32_t i = 0; i < n; i++) {
        gm_draw a = plain, b = plain;
        a.seed_lo = b.seed_lo = 77 * i;
        b.seed_lo += step_lo;
        b.seed_hi += step_hi;
        const gm_draw_row at = {.draw = &a, .pos = i}, bt = {.draw = &b, .pos = i + step_pos};
        seen[4 * gm_draw_token(flat, 4, &at, &scratch) + gm_draw_token(flat, 4, &bt, &scratch)]++;
    }
    double sum = 0;
    for (int i = 0; i < 16; i++)
        sum += pow((double)seen[i] - n / 16.0, 2) / (n / 16.0);
    if (sum > 44.3) /* 15 degrees of freedom, one in 10000 */
        fail_msg("seed + %u, + %u << 32, position + %u: chi-square %g", step_lo, step_hi, step_pos,
                 sum);
}

static void test_independence(void **state)
{
    (void)state;
    check_independent(0, 0, 1);
    check_independent(1, 0, 0);
    check_independent(0, 1, 0);
    check_independent(0, 0x80000000u, 0);
    check_independent(0xFFFFFFFFu, 0, 1);
    check_independent(0, 0, 0x9e3779b9u);
}

static void test_noise(void **state)
{
    (void)state;
    const uint32_t n = 1000000;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double x = (double)gm_law_noise(123456789, 987654321, i);
        assert_true(isfinite(x) && x > -3.5 && x < 25);
        sum += x;
        squares += x * x;
    }
    const double mean = sum / n, variance = squares / n - mean * mean;
    /* The mean's standard deviation is 1.28 / 1000, the variance's about 3.4 / 1000. */
    assert_true(fabs(mean - 0.5772156649) < 0.006);
    assert_true(fabs(variance - acos(-1) * acos(-1) / 6) < 0.015);
}

/* The number that an odd one is to be multiplied with to give 1, by Newton's iteration. */
static uint32_t inverse(uint32_t odd)
{
    uint32_t x = odd;
    for (int i = 0; i < 5; i++)
        x *= 2 - odd * x;
    return x;
}

static uint32_t unscatter(uint32_t x)
{
    x = (x ^ x >> 16) * inverse(0x846ca68bu);
    x = (x ^ x >> 15 ^ x >> 30) * inverse(0x7feb352du);
    return x ^ x >> 16;
}

/* The scatter has an inverse, so no two ids share a noise. */
static void test_scatter(void **state)
{
    (void)state;
    chance c = {16};
    for (uint32_t i = 0; i < 300000; i++) {
        const uint32_t x = i < 100000 ? i : chance_u32(&c);
        assert_int_equal(unscatter(gm_law_scatter(x)), x);
    }
}

/* Against libm for chosen k, found back through the scatter: all over, and around the border of
 * the series and both ends. */
static void test_noise_accuracy(void **state)
{
    (void)state;
    chance c = {17};
    double worst = 0;
    for (uint32_t i = 0; i < 400000; i++) {
        const uint32_t near[4] = {i, 0x01000000u - 50000 + i, UINT32_MAX - i, chance_u32(&c)};
        const uint32_t k = near[i < 300000 ? i % 3 : 3];
        const double u = ((double)k + 0.5) * 0x1p-32, want = -log(-log1p(-u));
        const float got = gm_law_noise(0, 0, unscatter(unscatter(k)));
        worst = fmax(worst, fabs((double)got - want) / fmax(1, fabs(want)));
    }
    if (worst > 1e-5) fail_msg("noise is off by %g", worst);
}

static void test_log_and_weight(void **state)
{
    (void)state;
    chance c = {14};
    double worst = 0;
    for (int i = 0; i < 300000; i++) {
        const uint32_t bits = 0x00800000u + chance_below(&c, 0x7F000000u);
        const float x = gm_f32_from_bits(i < 100000 ? 0x3F000000u + (bits & 0xFFFFFF) : bits);
        const double want = log((double)x);
        const double scale = fmax(1, fabs(want));
        worst = fmax(worst, fabs((double)gm_law_log(x) - want) / scale);
    }
    if (worst > 2.5e-7) fail_msg("log is off by %g", worst);
    assert_true(gm_law_log(1) == 0);
    worst = 0;
    for (int i = 0; i < 300000; i++) {
        const float x = -20 * chance_unit(&c) * chance_unit(&c);
        const double want = exp((double)x) * 16777216;
        worst = fmax(worst, fabs((double)gm_law_weight(x) - want) / fmax(want, 1));
        assert_true(fabs((double)gm_law_weight(x) - want) <= 1 + 3e-6 * want);
    }
    assert_int_equal(gm_law_weight(0), 16777216);
    assert_int_equal(gm_law_weight(-0.0f), 16777216);
    assert_int_equal(gm_law_weight(-17.5f), 0);
    assert_int_equal(gm_law_weight(-1e30f), 0);
    assert_int_equal(gm_law_weight(-INFINITY), 0);
    assert_int_equal(gm_law_weight(NAN), 0);
}

static void test_top(void **state)
{
    (void)state;
    chance c = {15};
    for (uint32_t round = 0; round < 2000; round++) {
        scene s;
        s.n = 1 + chance_below(&c, MAX_N);
        make_logits(&c, &s);
        static token t[LONG_N];
        double sum = 0;
        for (uint32_t i = 0; i < s.n; i++) {
            if (!(s.logits[i] < INFINITY)) s.logits[i] = 1;
            t[i] = (token){s.logits[i], i};
            sum += exp((double)s.logits[i]);
        }
        if (sum == 0) continue;
        assert_true(fabs(gm_draw_logsum(s.logits, s.n) - log(sum)) <
                    1e-12 * fmax(1, fabs(log(sum))));
        qsort(t, s.n, sizeof *t, by_logit);
        const uint32_t k = chance_below(&c, s.n + 1);
        gm_candidate top[MAX_N];
        gm_draw_top(s.logits, s.n, gm_draw_logsum(s.logits, s.n), k, order, top);
        for (uint32_t i = 0; i < k; i++) {
            assert_int_equal(top[i].id, t[i].id);
            const float want = (float)((double)t[i].l - log(sum));
            assert_true(top[i].logprob == want || fabsf(top[i].logprob - want) < 1e-5f);
        }
    }
    const float large[2] = {3e38f, 3e38f}, mixed[3] = {-INFINITY, -2000, -2000};
    assert_true(gm_draw_logsum(large, 2) == (double)3e38f + log(2));
    assert_true(fabs(gm_draw_logsum(mixed, 3) - (log(2) - 2000)) < 1e-9);
}

/* What is not a number comes last, by id, in short rows and in long ones. */
static void test_top_of_nan_rows(void **state)
{
    (void)state;
    static float logits[LONG_N];
    static gm_candidate top[LONG_N];
    static const uint32_t lengths[] = {1, 7, 300, LONG_N};
    for (uint32_t round = 0; round < 32; round++) {
        const uint32_t n = lengths[round % 4], every = 1 + round / 4, k = n < 200 ? n : 200;
        uint32_t n_numbers = 0;
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = every > 1 && i % (every * 50) == 3 ? (float)(i % 11) : NAN;
            n_numbers += isnan(logits[i]) ? 0 : 1;
        }
        gm_draw_top(logits, n, gm_draw_logsum(logits, n), k, order, top);
        for (uint32_t i = 1; i < k; i++) {
            const float a = logits[top[i - 1].id], b = logits[top[i].id];
            assert_true(i < n_numbers ? a >= b : isnan(b));
            if (a == b || i > n_numbers) assert_true(top[i - 1].id < top[i].id);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_bias_meets_infinity),
        cmocka_unit_test(test_top_p_border),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_independence),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_noise_accuracy),
        cmocka_unit_test(test_log_and_weight),
        cmocka_unit_test(test_top),
        cmocka_unit_test(test_top_of_nan_rows),
    };
    return cmocka_run_group_tests_name("t_draw", tests, NULL, NULL);
}
