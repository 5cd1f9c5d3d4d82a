/* SPDX-License-Identifier: MIT */
/* The draw on the device against the draw on the host: the same token from the same row, seed and
 * parameters, over random rows with ties, infinities, NaNs and flat stretches, short and long, and
 * rows that are strange in one of the parts that workgroups look at.
 *
 * t_vk_draw --rows N draws that many (100000 is the long tier's). */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/vk/vk_params.h"
#include "base/mem.h"
#include "fixtures/chance.h"

#define SLOTS    16u
#define MAX_BIAS 6u
#define PART     ((uint32_t)GM_VK_DRAW_PART)

static uint32_t n_rows = 1600;
static gm_err err;

#define OK(call)                                      \
    do {                                              \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

/* A vocabulary of n tokens on the device: rows come with the step and are drawn from. */
typedef struct scene {
    uint32_t n;
    gm_plan plan;
    gm_backend *be;
    gm_wset *w;
    gm_kvmem *kv;
    gm_exec *ex;
    gm_step *step;
    float *logits; /* [SLOTS, n]               */
    uint32_t *mask;
    gm_draw_count *counts; /* [SLOTS, n] of the host   */
    gm_draw draw[SLOTS];
    gm_bias bias[SLOTS][MAX_BIAS];
    uint32_t n_bias[SLOTS];
    gm_draw_scratch scratch;
} scene;

static void scene_open(scene *s, uint32_t n)
{
    const gm_backend_ops *const ops = &gm_backend_vulkan;
    *s = (scene){.n = n};
    const gm_val y = gm_op_pick_rows(&s->plan, gm_op_input_given(&s->plan, n));
    gm_op_output(&s->plan, GM_OUT_DRAW, gm_op_draw(&s->plan, y));
    OK(gm_plan_finish(&s->plan, &err));
    const uint8_t class = 0;
    const gm_kv_desc desc = {.type = GM_QTYPE_F16,
                             .layer_class = &class,
                             .n_kv_head = 1,
                             .head_dim = 8,
                             .n_vocab = n,
                             .n_slots = SLOTS,
                             .table_len = 1 + n / 8,
                             .max_bias = MAX_BIAS};
    const gm_step_limits limits = {.rows = SLOTS,
                                   .outs = SLOTS,
                                   .sets = SLOTS,
                                   .biases = SLOTS * MAX_BIAS,
                                   .counts = 20 * SLOTS,
                                   .masks = SLOTS,
                                   .mask_words = (n + 31) / 32,
                                   .given = SLOTS,
                                   .given_cols = n};
    OK(ops->open(&s->be, &(gm_backend_cfg){0}, &err));
    OK(ops->load(s->be, &s->plan.weights, NULL, &s->w, &err));
    OK(ops->kv_open(s->be, &desc, &s->kv, &err));
    OK(ops->lower(s->be, s->w, s->kv, &s->plan, (gm_bucket){SLOTS, SLOTS}, &s->ex, &err));
    OK(gm_step_alloc(&s->step, &limits, &err));
    OK(gm_mem_alloc(&s->logits, SLOTS * n, sizeof *s->logits, "logits", &err));
    OK(gm_mem_alloc(&s->mask, (n + 31) / 32, sizeof *s->mask, "a mask", &err));
    OK(gm_mem_alloc(&s->counts, SLOTS * n, sizeof *s->counts, "counts", &err));
    OK(gm_mem_alloc(&s->scratch.adjusted, n, sizeof *s->scratch.adjusted, "scratch", &err));
    OK(gm_mem_alloc(&s->scratch.order, n, sizeof *s->scratch.order, "scratch", &err));
}

static void scene_close(scene *s)
{
    const gm_backend_ops *const ops = &gm_backend_vulkan;
    ops->drop(s->ex);
    ops->kv_close(s->kv);
    ops->unload(s->w);
    ops->close(s->be);
    gm_plan_deinit(&s->plan);
    gm_step_free(s->step);
    gm_mem_free(s->logits);
    gm_mem_free(s->mask);
    gm_mem_free(s->counts);
    gm_mem_free(s->scratch.adjusted);
    gm_mem_free(s->scratch.order);
}

static bool maybe(chance *c)
{
    return chance_below(c, 3) == 0;
}

/* Bell-shaped, in few levels, flat, or almost everywhere -inf; sometimes with strange numbers. */
static void make_logits(chance *c, float *l, uint32_t n)
{
    const uint32_t shape = chance_below(c, 5);
    const bool strange = maybe(c);
    for (uint32_t i = 0; i < n; i++) {
        const float x = 4 * chance_normal(c);
        l[i] = shape == 0 ? rintf(x) : shape == 1 ? 1.5f : x;
        if (shape == 2 && chance_below(c, 50)) l[i] = -INFINITY;
        if (strange && chance_below(c, 40) == 0) l[i] = maybe(c) ? NAN : maybe(c) ? -0.0f : 0.0f;
    }
}

static void make_draw(chance *c, gm_draw *d)
{
    *d = (gm_draw){.seed_lo = chance_u32(c),
                   .seed_hi = chance_u32(c),
                   .inv_temp = maybe(c)   ? 0
                               : maybe(c) ? 1
                                          : 0.05f + 3 * chance_unit(c),
                   .log_min_p = maybe(c) ? -9 * chance_unit(c) : -INFINITY,
                   .repeat = 1,
                   .inv_repeat = 1,
                   .top_p = maybe(c) ? GM_DRAW_TOP_P_OFF : chance_below(c, GM_DRAW_TOP_P_OFF)};
    if (maybe(c)) d->top_k = 1 + chance_below(c, maybe(c) ? 3000 : 70);
    if (maybe(c)) {
        d->repeat = 0.5f + chance_unit(c);
        d->inv_repeat = 1 / d->repeat;
    }
    if (maybe(c)) d->frequency = chance_normal(c);
    if (maybe(c)) d->presence = chance_normal(c);
}

/* A new sequence in slot i, as the scene has it. */
static void put_set(scene *s, uint32_t i)
{
    assert_true(gm_step_put_set(s->step, i, &s->draw[i], s->bias[i], s->n_bias[i]));
    memset(s->counts + (size_t)i * s->n, 0, s->n * sizeof *s->counts);
}

/* One row of it, which draws. */
static void put_row(scene *s, uint32_t i, uint32_t pos, bool masked)
{
    gm_step_row row = {.kind = GM_ROW_GIVEN, .slot = i, .pos = pos};
    gm_step_out out = {.row = s->step->n_rows, .want = GM_WANT_DRAW, .mask = GM_NO_MASK};
    assert_true(gm_step_put_given(s->step, s->logits + (size_t)i * s->n, &row.src));
    assert_true(gm_step_put_row(s->step, &row));
    if (masked) assert_true(gm_step_put_mask(s->step, s->mask, &out.mask));
    assert_true(gm_step_put_out(s->step, &out));
}

static void put_slot(chance *c, scene *s, uint32_t i)
{
    float *const l = s->logits + (size_t)i * s->n;
    gm_draw_count *const counts = s->counts + (size_t)i * s->n;
    make_logits(c, l, s->n);
    make_draw(c, &s->draw[i]);
    s->n_bias[i] = maybe(c) ? chance_below(c, MAX_BIAS + 1) : 0;
    for (uint32_t b = 0; b < s->n_bias[i]; b++)
        s->bias[i][b] = (gm_bias){(int32_t)chance_below(c, s->n), 5 * chance_normal(c)};
    put_set(s, i);
    for (uint32_t k = 0; k < 20; k++) {
        const gm_count_edit e = {i, (int32_t)chance_below(c, s->n), (int32_t)(k % 2),
                                 (int32_t)(k % 3)};
        assert_true(gm_step_put_count(s->step, &e));
        counts[e.id].prompt = (uint16_t)(counts[e.id].prompt + e.prompt);
        counts[e.id].answer = (uint16_t)(counts[e.id].answer + e.answer);
    }
    const uint32_t pos = chance_below(c, 4000);
    for (uint32_t w = 0; w < (s->n + 31) / 32; w++)
        s->mask[w] = maybe(c) ? 0 : chance_u32(c);
    put_row(s, i, pos, maybe(c));
}

/* What the step's row `at` drew, which is slot i's. */
static void check_slot(const scene *s, const gm_result_out *drawn, uint32_t at, uint32_t i)
{
    const gm_step_out *const o = &gm_step_outs(s->step)[at];
    const gm_draw *const d = &s->draw[i];
    const bool penalised = d->repeat != 1 || d->frequency != 0 || d->presence != 0;
    const gm_draw_row row = {
        .draw = d,
        .counts = penalised ? s->counts + (size_t)i * s->n : NULL,
        .bias = s->bias[i],
        .n_bias = s->n_bias[i],
        .mask = o->mask == GM_NO_MASK ? NULL : gm_step_mask_at(s->step, o->mask),
        .pos = gm_step_rows(s->step)[at].pos + 1,
    };
    const float *const l = s->logits + (size_t)i * s->n;
    const uint32_t want = gm_draw_token(l, s->n, &row, &s->scratch);
    if (drawn->token != (int32_t)want) {
        fail_msg(
            "%u tokens, inv_temp %g, top_k %u, top_p %u, log_min_p %g, %u biases, %s mask: drew "
            "%d, expected %u; adjusted %.9g and %.9g",
            s->n, (double)d->inv_temp, d->top_k, d->top_p, (double)d->log_min_p, s->n_bias[i],
            row.mask ? "a" : "no", drawn->token, want, (double)s->scratch.adjusted[drawn->token],
            (double)s->scratch.adjusted[want]);
    }
}

static void run_step(const scene *s, gm_result *r)
{
    gm_ticket t = 0;
    OK(gm_backend_vulkan.run(s->ex, s->step, &t, &err));
    OK(gm_backend_vulkan.wait(s->be, t, r, &err));
}

static void check_vocabulary(uint32_t n, uint32_t rows)
{
    scene s;
    chance c = {n};
    scene_open(&s, n);
    for (uint32_t done = 0; done < rows; done += SLOTS) {
        gm_result r;
        gm_step_clear(s.step);
        for (uint32_t i = 0; i < SLOTS; i++)
            put_slot(&c, &s, i);
        run_step(&s, &r);
        for (uint32_t i = 0; i < SLOTS; i++)
            check_slot(&s, &r.out[i], i, i);
    }
    scene_close(&s);
}

static void test_draws(void **state)
{
    (void)state;
    check_vocabulary(1, SLOTS);
    check_vocabulary(37, n_rows / 4);
    check_vocabulary(1000, n_rows / 2);
    check_vocabulary(4099, n_rows / 4);
    check_vocabulary(2 * PART, n_rows / 16);
    check_vocabulary(3 * PART - 3, n_rows / 16);
}

/* ---- rows that several workgroups look at ---------------------------------------------------- */

typedef enum strange {
    BEST_IS_LAST, /* the row's last token                           */
    TIES,         /* each part has the best logit twice             */
    MASKED,       /* the mask leaves nothing of a part              */
    MINUS_INF,    /* a part has no other logit, and stretches of all */
    BIASED,       /* on both sides of where a part ends             */
    NANS,         /* a part has no other logit                      */
    ONE_ALLOWED,  /* of a row of -inf, in the last part             */
    NO_NUMBERS,
    STRANGE
} strange;

static void make_strange(chance *c, scene *s, uint32_t i, strange what)
{
    float *const l = s->logits + (size_t)i * s->n;
    s->n_bias[i] = 0;
    memset(s->mask, what == ONE_ALLOWED ? 0 : 0xff, (s->n + 31) / 32 * sizeof *s->mask);
    if (what == MASKED) memset(s->mask + PART / 32, 0, PART / 32 * sizeof *s->mask);
    if (what == ONE_ALLOWED) s->mask[(s->n - 2) / 32] = 1u << (s->n - 2) % 32;
    for (uint32_t t = 0; t < s->n; t++) {
        const bool second = t / PART == 1;
        l[t] = 2 * chance_normal(c);
        if (what == TIES && t % PART > PART / 2 && t % PART < PART / 2 + 3) l[t] = 30;
        const bool none = second || t % (PART / 2) < PART / 8;
        if (what == ONE_ALLOWED || (what == MINUS_INF && none)) l[t] = -INFINITY;
        if (what == NO_NUMBERS || (what == NANS && second)) l[t] = NAN;
    }
    if (what == BEST_IS_LAST) l[s->n - 1] = 30;
    for (uint32_t b = 0; what == BIASED && b < MAX_BIAS; b++)
        s->bias[i][s->n_bias[i]++] = (gm_bias){(int32_t)(PART + b % 3 - 1), 10.1f + (float)b / 7};
}

static void check_logprob(const scene *s, const gm_result_out *drawn, uint32_t i, strange what)
{
    if (what >= NANS) return; /* there is no sum */
    const float *const l = s->logits + (size_t)i * s->n;
    const double want = (double)l[drawn->token] - gm_draw_logsum(l, s->n);
    if (!(fabs((double)drawn->logprob - want) < 1e-4))
        fail_msg("log-probability %g, expected %g", (double)drawn->logprob, want);
}

/* All together, and then each alone in a step: the same bits. */
static void check_strange(scene *s, chance *c, const gm_draw *draw)
{
    gm_result r;
    gm_result_out together[STRANGE];
    const chance start = *c;
    gm_step_clear(s->step);
    for (uint32_t i = 0; i < STRANGE; i++) {
        s->draw[i] = *draw;
        make_strange(c, s, i, (strange)i);
        put_set(s, i);
        put_row(s, i, 7 + i, i == MASKED || i == ONE_ALLOWED);
    }
    run_step(s, &r);
    memcpy(together, r.out, sizeof together);
    for (uint32_t i = 0; i < STRANGE; i++) {
        check_slot(s, &together[i], i, i);
        check_logprob(s, &together[i], i, (strange)i);
    }
    *c = start;
    for (uint32_t i = 0; i < STRANGE; i++) {
        gm_step_clear(s->step);
        make_strange(c, s, i, (strange)i);
        put_set(s, i);
        put_row(s, i, 7 + i, i == MASKED || i == ONE_ALLOWED);
        run_step(s, &r);
        check_slot(s, r.out, 0, i);
        if (i < NANS) assert_memory_equal(&r.out[0].logprob, &together[i].logprob, sizeof(float));
    }
}

static void test_parts(void **state)
{
    (void)state;
    static const gm_draw draws[] = {{.inv_temp = 0},
                                    {.inv_temp = 1},
                                    {.inv_temp = 1, .top_k = 40},
                                    {.inv_temp = 0.5f, .log_min_p = -3},
                                    {.inv_temp = 1, .repeat = 1.5f, .frequency = 0.5f}};
    scene s;
    chance c = {5};
    scene_open(&s, 3 * PART + 5);
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        gm_draw d = draws[i];
        d.seed_lo = (uint32_t)i;
        d.top_p = GM_DRAW_TOP_P_OFF;
        d.log_min_p = d.log_min_p < 0 ? d.log_min_p : -INFINITY;
        d.repeat = d.repeat > 0 ? d.repeat : 1;
        d.inv_repeat = 1 / d.repeat;
        check_strange(&s, &c, &d);
    }
    scene_close(&s);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--rows") == 0) n_rows = (uint32_t)strtoul(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_draws), cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests_name("t_vk_draw", tests, NULL, NULL);
}
