/* SPDX-License-Identifier: MIT */
/* Whole models on the Vulkan backend: every type beside ref-int8, the same bits however a prompt is
 * cut into steps, every type of cache; a step that allocates and records nothing; and barriers, or
 * kernels that wait for each other, each of which is needed. Compiling kernels takes most of the
 * time, so some types are left to t_vk_model --all. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "base/mem.h"
#include "fixtures/chance.h"
#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"
#include "fixtures/vk/products.h"
#include "gemmule_tools.h"

#define N     37   /* tokens: past a page, and past the window of 32           */
#define LONG  141  /* tokens: past the first split of attention               */
#define SAME  1e-4 /* of a log-probability, where no activation went elsewhere */
#define NOISE 0.4  /* where one did (tests/ops/t_model.c)                      */

#define SLOTS 3

static bool all_types;

typedef struct scene {
    gm_model *model;
    uint32_t n_vocab;
    int32_t ids[LONG];
} scene;

static void scene_open(scene *s, const char *type)
{
    gm_err err = {0};
    gm_synth_opts opts = gm_synth_opts_default();
    const char *const path = tiny_path(type);
    opts.shape = "tiny";
    opts.type = type;
    opts.force = 1;
    if (gm_synth_write(path, &opts, &err) != GM_OK) fail_msg("%s", err.msg);
    if (gm_model_open(&s->model, path, &err) != GM_OK) fail_msg("%s", err.msg);
    chance c = {17};
    s->n_vocab = gm_vocab_len(s->model->vocab);
    for (int i = 0; i < LONG; i++)
        s->ids[i] = (int32_t)chance_below(&c, s->n_vocab);
}

static float *run(const scene *s, const char *backend, uint32_t chunk, gm_qtype kv_type)
{
    const forward_setup setup = {.kv_type = kv_type};
    return forward_logprobs_on(s->model, s->ids, N, &(forward_opts){backend, chunk}, &setup);
}

static void check_chunks(const scene *s, const float *want)
{
    static const uint32_t chunks[] = {1, 7, 16};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *const got = run(s, "vulkan", chunks[i], GM_QTYPE_F32);
        if (memcmp(got, want, (size_t)N * s->n_vocab * sizeof *got) != 0) {
            fail_msg("%u rows a step: other bits, worst difference %g", chunks[i],
                     worst_difference(got, want, (size_t)N * s->n_vocab));
        }
        free(got);
    }
}

/* Plain floats, and a quantised type of each block length. */
static bool is_among_few(gm_qtype type)
{
    return type == GM_QTYPE_F16 || type == GM_QTYPE_Q4_0 || type == GM_QTYPE_Q4_K;
}

static void test_types(void **state)
{
    (void)state;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        scene s;
        const gm_qtype_info *const type = gm_qtype_at(i);
        if (!all_types && !is_among_few(type->id)) continue;
        scene_open(&s, type->name);
        float *const got = run(&s, "vulkan", 0, GM_QTYPE_F32);
        float *const want = run(&s, "ref-int8", 0, GM_QTYPE_F32);
        const double worst = worst_difference(got, want, (size_t)N * s.n_vocab);
        print_message("%-7s worst difference from ref-int8 %.2g\n", type->name, worst);
        assert_true(worst <= (type->unpack ? NOISE : SAME));
        if (type->id == GM_QTYPE_Q4_0) check_chunks(&s, got);
        free(got);
        free(want);
        gm_model_close(s.model);
    }
}

/* One row turns and stores its own heads, eight have a workgroup a split, more walk their splits. */
static void test_splits(void **state)
{
    (void)state;
    static const gm_qtype types[] = {GM_QTYPE_F16, GM_QTYPE_Q8_0};
    scene s;
    scene_open(&s, "q4_0");
    for (size_t i = 0; i < 2; i++) {
        const forward_setup setup = {.kv_type = types[i]};
        const size_t n = (size_t)LONG * s.n_vocab;
        float *const want =
            forward_logprobs_on(s.model, s.ids, LONG, &(forward_opts){"vulkan", 64}, &setup);
        for (uint32_t rows = 1; rows <= 8; rows += 7) {
            const forward_opts opts = {"vulkan", rows};
            float *const got = forward_logprobs_on(s.model, s.ids, LONG, &opts, &setup);
            assert_memory_equal(got, want, n * sizeof *got);
            free(got);
        }
        free(want);
    }
    gm_model_close(s.model);
}

static void test_caches(void **state)
{
    (void)state;
    static const gm_qtype types[] = {GM_QTYPE_F16, GM_QTYPE_Q8_0};
    scene s;
    scene_open(&s, "f32");
    for (size_t i = 0; i < 2; i++) {
        float *const got = run(&s, "vulkan", 5, types[i]), *const want =
                                                               run(&s, "ref", 0, types[i]);
        const double worst = worst_difference(got, want, (size_t)N * s.n_vocab);
        print_message("KV %-5s worst difference from ref %.2g\n", gm_qtype_name(types[i]), worst);
        assert_true(worst <= NOISE);
        free(got);
        free(want);
    }
    gm_model_close(s.model);
}

/* A device that is to be exact has no use for kernels that change bits, and refuses them. Where one
 * has them, t_vk_shape shows what is chosen instead; here is none. */
static void test_exact(void **state)
{
    (void)state;
    const gm_backend_ops *const ops = &gm_backend_vulkan;
    const uint32_t spec[GM_VK_SPECS] = {256, 32, 0, 1};
    gm_backend *be = NULL;
    gm_err err = {0};
    uint32_t pipe = 0;
    for (int exact = 0; exact < 2; exact++) {
        if (ops->open(&be, &(gm_backend_cfg){.exact = exact}, &err) != GM_OK)
            fail_msg("%s", err.msg);
        const gm_status half =
            gm_vk_pipes_want(&be->pipes, "matmul_half", GM_QTYPE_Q4_0, spec, &pipe, &err);
        assert_int_equal(half, exact ? GM_E_UNSUP : GM_OK);
        if (exact) assert_int_equal(be->tuning.half_from, UINT32_MAX);
        ops->close(be);
    }
    assert_string_equal(err.msg, "vulkan: matmul_half.q4_0 changes bits, expected an exact kernel");
}

/* ---- what a step costs, and what orders it --------------------------------------------------- */

static bool fragments; /* as a device with such matrices has them, by hand here */
static bool flows;     /* kernels of one row wait for each other                */
static uint32_t n_slots = SLOTS;
static gm_qtype kv_type = GM_QTYPE_F16;
static uint32_t table_len = 4;

typedef struct device {
    gm_backend *be;
    gm_wset *w;
    gm_kvmem *kv;
    gm_exec *ex;
} device;

static void choose_flow(gm_backend *be)
{
    const gm_vk_choice on = {.what = GM_VK_FLOW, .way = GM_VK_FLOW_ON};
    assert_int_equal(gm_vk_choices_put(&be->choices, &on, NULL), GM_OK);
}

static void device_open(device *d, const scene *s, uint32_t rows)
{
    const gm_backend_ops *const ops = &gm_backend_vulkan;
    const gm_config *const c = &s->model->config;
    gm_err err = {0};
    const gm_kv_desc desc = {.type = kv_type,
                             .n_layer = c->n_layer,
                             .layer_class = c->layer_class,
                             .n_kv_head = c->n_kv_head,
                             .head_dim = c->head_dim,
                             .n_vocab = s->n_vocab,
                             .n_slots = n_slots,
                             .n_pages = {table_len * SLOTS, table_len * SLOTS},
                             .table_len = table_len};
    *d = (device){0};
    if (ops->open(&d->be, &(gm_backend_cfg){0}, &err) != GM_OK) fail_msg("%s", err.msg);
    d->be->tuning.fragments = fragments;
    if (flows) choose_flow(d->be);
    if (ops->load(d->be, &s->model->plan.weights, NULL, &d->w, &err) != GM_OK ||
        ops->kv_open(d->be, &desc, &d->kv, &err) != GM_OK ||
        ops->lower(d->be, d->w, d->kv, &s->model->plan, (gm_bucket){rows, rows}, &d->ex, &err) !=
            GM_OK ||
        gm_vk_fill_now(&d->be->dev, &d->ex->scratch, UINT32_MAX, &err) != GM_OK) /* not numbers */
        fail_msg("%s", err.msg);
}

static void device_close(device *d)
{
    const gm_backend_ops *const ops = &gm_backend_vulkan;
    ops->drop(d->ex);
    ops->kv_close(d->kv);
    ops->unload(d->w);
    ops->close(d->be);
}

static void put_token(gm_step *step, uint32_t pos)
{
    const gm_draw greedy = {.repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
    gm_step_clear(step);
    if (pos == 0) gm_step_put_set(step, 0, &greedy, NULL, 0);
    for (uint32_t i = 0; pos == 0 && i < 4; i++) {
        gm_step_put_edit(step, &(gm_page_edit){0, 0, i, i});
        gm_step_put_edit(step, &(gm_page_edit){0, 1, i, i});
    }
    const gm_step_row row = {
        .kind = pos ? GM_ROW_LAST : GM_ROW_ID, .src = 5, .pos = pos, .last = {pos, pos}};
    gm_step_put_row(step, &row);
    gm_step_put_out(step, &(gm_step_out){.want = GM_WANT_DRAW, .mask = GM_NO_MASK});
}

/* Two steps under way at once, the second of which begins with the token that the first draws. */
static void check_cost(void)
{
    scene s;
    device d;
    gm_err err = {0};
    gm_step *step[2] = {NULL, NULL};
    const gm_step_limits limits = {.rows = 1, .outs = 1, .edits = 8, .sets = 1};
    scene_open(&s, "q4_0");
    device_open(&d, &s, 1);
    assert_int_equal(d.ex->flows, flows);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gm_step_alloc(&step[i], &limits, &err), GM_OK);
    const gm_device_counts before = d.be->dev.count;
    gm_ticket t[20];
    gm_result r;
    for (uint32_t i = 0; i < 20; i++) {
        put_token(step[i % 2], i);
        if (gm_backend_vulkan.run(d.ex, step[i % 2], &t[i], &err) != GM_OK) fail_msg("%s", err.msg);
        if (i == 0) continue;
        assert_int_equal(gm_backend_vulkan.wait(d.be, t[i - 1], &r, &err), GM_OK);
        assert_true(r.out[0].token >= 0 && (uint32_t)r.out[0].token < s.n_vocab);
    }
    assert_int_equal(gm_backend_vulkan.wait(d.be, t[19], &r, &err), GM_OK);
    const gm_device_counts after = d.be->dev.count;
    assert_int_equal(after.allocs, before.allocs);
    assert_int_equal(after.pipelines, before.pipelines);
    assert_int_equal(after.recordings, before.recordings);
    assert_int_equal(after.submits, before.submits + 20);
    assert_int_equal(after.dispatches,
                     before.dispatches + 20 * d.ex->slice[0].script[GM_VK_APART].n_dispatches);
    assert_int_equal(after.barriers,
                     before.barriers + 20 * d.ex->slice[0].script[GM_VK_APART].n_barriers);
    assert_memory_equal(after.held, before.held, sizeof after.held);
    assert_int_equal(after.bytes_down, before.bytes_down + 20 * sizeof(struct gm_vk_answer));
    assert_true(after.bytes_up > before.bytes_up && after.bytes_up < before.bytes_up + 20 * 2048);
    for (int i = 0; i < 2; i++)
        gm_step_free(step[i]);
    device_close(&d);
    gm_model_close(s.model);
}

static void test_steps_cost_nothing(void **state)
{
    (void)state;
    check_cost();
    flows = true;
    check_cost();
    flows = false;
}

/* A prompt of n rows for a slot, each of which sees a little in one class and all in the other. */
static void put_prompt(gm_step *step, const scene *s, uint32_t slot, uint32_t n)
{
    const gm_draw greedy = {.repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
    const uint32_t row_first = step->n_rows;
    gm_step_put_set(step, slot, &greedy, NULL, 0);
    gm_step_put_edit(step, &(gm_page_edit){slot, 0, 0, slot});
    gm_step_put_edit(step, &(gm_page_edit){slot, 1, 0, slot});
    for (uint32_t i = 0; i < n; i++) {
        const gm_step_row row = {.kind = GM_ROW_ID,
                                 .src = (uint32_t)s->ids[slot * 31 + i],
                                 .slot = slot,
                                 .pos = i,
                                 .first = {i > 2 ? i - 2 : 0, 0},
                                 .last = {i, i}};
        const gm_step_out out = {row_first + i, GM_WANT_DRAW, 0, GM_NO_MASK};
        gm_step_put_row(step, &row);
        gm_step_put_out(step, &out);
    }
}

/* Runs the step and keeps what it draws, [rows]. */
static void draw_all(const device *d, const gm_step *step, gm_result_out *to)
{
    gm_err err = {0};
    gm_ticket t;
    gm_result r;
    if (gm_backend_vulkan.run(d->ex, step, &t, &err) != GM_OK) fail_msg("%s", err.msg);
    if (gm_backend_vulkan.wait(d->be, t, &r, &err) != GM_OK) fail_msg("%s", err.msg);
    memcpy(to, r.out, r.n_out * sizeof *to);
}

/* Workgroups of attention that have rows of several slots: each slot alone has the same bits. */
static void test_slots(void **state)
{
    (void)state;
    enum { ROWS = 16 };
    static const uint32_t n[SLOTS] = {5, 3, 7};
    scene s;
    device d;
    gm_err err = {0};
    gm_step *step = NULL;
    gm_result_out all[ROWS], alone[ROWS];
    const gm_step_limits limits = {.rows = ROWS, .outs = ROWS, .edits = 8, .sets = SLOTS};
    scene_open(&s, "q4_0");
    device_open(&d, &s, ROWS);
    assert_int_equal(gm_step_alloc(&step, &limits, &err), GM_OK);
    gm_step_clear(step);
    for (uint32_t i = 0; i < SLOTS; i++)
        put_prompt(step, &s, i, n[i]);
    draw_all(&d, step, all);
    for (uint32_t i = 0, first = 0; i < SLOTS; first += n[i++]) {
        gm_step_clear(step);
        put_prompt(step, &s, i, n[i]);
        draw_all(&d, step, alone);
        for (uint32_t k = 0; k < n[i]; k++) {
            assert_int_equal(alone[k].token, all[first + k].token);
            assert_memory_equal(&alone[k].logprob, &all[first + k].logprob, sizeof(float));
        }
    }
    gm_step_free(step);
    device_close(&d);
    gm_model_close(s.model);
}

static void lower_more(device *d, const scene *s, uint32_t rows, gm_exec **out)
{
    gm_err err = {0};
    if (gm_backend_vulkan.lower(d->be, d->w, d->kv, &s->model->plan, (gm_bucket){rows, rows}, out,
                                &err) != GM_OK)
        fail_msg("%s", err.msg);
}

/* A slot's row at pos, which draws. */
static void put_row(gm_step *step, const scene *s, uint32_t slot, uint32_t pos)
{
    const gm_step_row row = {.kind = GM_ROW_ID,
                             .src = (uint32_t)s->ids[(slot * 31 + pos) % LONG],
                             .slot = slot,
                             .pos = pos,
                             .first = {pos > 200 ? pos - 200 : 0, 0},
                             .last = {pos, pos}};
    gm_step_put_out(step, &(gm_step_out){step->n_rows, GM_WANT_DRAW, 0, GM_NO_MASK});
    gm_step_put_row(step, &row);
}

/* The slot's first n tokens. */
static void fill_slot(const device *d, gm_step *step, const scene *s, uint32_t slot, uint32_t n)
{
    const gm_draw greedy = {.repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
    gm_result_out drawn[64];
    for (uint32_t pos = 0; pos < n;) {
        gm_step_clear(step);
        if (pos == 0) gm_step_put_set(step, slot, &greedy, NULL, 0);
        for (uint32_t i = 0; pos == 0 && i < 2 * table_len; i++) {
            const uint32_t page = i / 2;
            gm_step_put_edit(step, &(gm_page_edit){slot, i % 2, page, slot * table_len + page});
        }
        for (uint32_t i = 0; i < 64 && pos < n; i++)
            put_row(step, s, slot, pos++);
        draw_all(d, step, drawn);
    }
}

/* Rows of one, three and five splits: each of a slot of its own, with another row of its slot, and
 * alone, where attention turns and stores heads by itself. All have the same bits. */
static void check_apart(const scene *s)
{
    static const uint32_t n[SLOTS] = {100, 300, 600};
    device d, many, one;
    gm_err err = {0};
    gm_step *step = NULL;
    gm_result_out apart[4], other[4];
    const gm_step_limits limits = {.rows = 64, .outs = 64, .edits = 2 * table_len, .sets = 1};
    assert_int_equal(gm_step_alloc(&step, &limits, &err), GM_OK);
    device_open(&d, s, 4);
    many = one = d;
    lower_more(&d, s, 64, &many.ex);
    lower_more(&d, s, 1, &one.ex);
    for (uint32_t i = 0; i < SLOTS; i++)
        fill_slot(&many, step, s, i, n[i]);
    gm_step_clear(step);
    for (uint32_t i = 0; i < SLOTS; i++)
        put_row(step, s, i, n[i]);
    draw_all(&d, step, apart);
    for (uint32_t i = 0; i < 2 * SLOTS; i++) {
        gm_step_clear(step);
        put_row(step, s, i / 2, n[i / 2]);
        if (i % 2) put_row(step, s, i / 2, n[i / 2] + 1);
        draw_all(i % 2 ? &d : &one, step, other);
        assert_int_equal(other[0].token, apart[i / 2].token);
        assert_memory_equal(&other[0].logprob, &apart[i / 2].logprob, sizeof(float));
    }
    gm_backend_vulkan.drop(many.ex);
    gm_backend_vulkan.drop(one.ex);
    gm_step_free(step);
    device_close(&d);
}

static void test_apart(void **state)
{
    (void)state;
    static const gm_qtype types[] = {GM_QTYPE_F16, GM_QTYPE_Q8_0};
    scene s;
    scene_open(&s, "q4_0");
    table_len = 20;
    for (size_t i = 0; i < 2; i++) {
        kv_type = types[i];
        check_apart(&s);
    }
    kv_type = GM_QTYPE_F16;
    table_len = 4;
    gm_model_close(s.model);
}

static gm_vk_buf words; /* of norms in front of products */
static uint32_t n_fronts;

static void wait_for_nobody(struct gm_vk_matmul *push)
{
    if (push->norms.x == 0) return;
    push->flow.patience = 0;
    push->arrived = words.addr + (uint64_t)GM_VK_FRONT_SIZE * n_fronts++;
}

/* The same step by both. */
static void check_same(const device *d, const device *other, gm_step *step, uint32_t n)
{
    gm_result_out want[16], got[16];
    draw_all(d, step, want);
    draw_all(other, step, got);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(got[i].token, want[i].token);
        assert_memory_equal(&got[i].logprob, &want[i].logprob, sizeof(float));
    }
}

/* How many words of rows before the n-th are not 0; those of others are. */
static uint32_t count_words(uint32_t n)
{
    const uint32_t *const word = (const uint32_t *)(const void *)words.map;
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < words.size / 4; i++) {
        if (i % GM_VK_FRONT_ROWS >= n) assert_int_equal(word[i], 0);
        n_done += word[i] != 0;
    }
    return n_done;
}

/* A product whose workgroups do not wait does all norms in front of it in each of them, with the same
 * bits, for rows of one slot and for rows of several; and rows that are not the step's are left alone. */
static void test_fronts(void **state)
{
    (void)state;
    enum { ROWS = 11 };
    scene s;
    device d, other;
    gm_err err = {0};
    gm_step *step = NULL;
    const gm_step_limits limits = {.rows = 64, .outs = 64, .edits = 2 * table_len, .sets = 1};
    scene_open(&s, "q4_0");
    device_open(&d, &s, 16);
    d.be->tuning.one_front = false;
    /* Each step under way has a recording for rows that are apart, and one for others. */
    const uint32_t each = 2 * s.model->config.n_layer - 1, n = GM_TICKETS * GM_VK_KINDS * each;
    assert_int_equal(gm_step_alloc(&step, &limits, &err), GM_OK);
    assert_int_equal(gm_vk_buf_alloc(&d.be->dev, &words, (uint64_t)n * GM_VK_FRONT_SIZE,
                                     GM_VK_RESULT, "words", &err),
                     GM_OK);
    memset(words.map, 0, words.size);
    other = d;
    n_fronts = 0;
    products_watch(d.be, wait_for_nobody);
    lower_more(&d, &s, 16, &other.ex);
    products_leave(d.be);
    assert_int_equal(n_fronts, n);
    put_prompt(step, &s, 0, ROWS);
    check_same(&d, &other, step, ROWS);
    assert_int_equal(count_words(ROWS), each * ROWS);
    for (uint32_t i = 0; i < SLOTS; i++)
        fill_slot(&d, step, &s, i, 5 + i);
    memset(words.map, 0, words.size);
    gm_step_clear(step);
    for (uint32_t i = 0; i < SLOTS; i++)
        put_row(step, &s, i, 5 + i);
    check_same(&d, &other, step, SLOTS);
    assert_int_equal(count_words(SLOTS), each * SLOTS);
    gm_backend_vulkan.drop(other.ex);
    gm_vk_buf_free(&d.be->dev, &words);
    gm_step_free(step);
    device_close(&d);
    gm_model_close(s.model);
}

/* ---- steps in pieces ------------------------------------------------------------------------- */

enum { PIECE_ROWS = 16 };

/* The device's exec once more, in as many pieces as it has products. */
static void lower_in_pieces(device *d, const scene *s)
{
    gm_backend_vulkan.drop(d->ex);
    d->be->piece_work = 1;
    lower_more(d, s, PIECE_ROWS, &d->ex);
    assert_true(d->ex->slice[0].script[GM_VK_MIXED].n_pieces >= 4 * s->model->config.n_layer);
}

/* A prompt of which the last row draws; then the token after that one. */
static void put_turn(gm_step *prompt, gm_step *token, const scene *s)
{
    gm_step_clear(prompt);
    put_prompt(prompt, s, 0, 13);
    prompt->n_outs = prompt->n_draw = 0;
    gm_step_put_out(prompt, &(gm_step_out){12, GM_WANT_DRAW, 0, GM_NO_MASK});
    gm_step_clear(token);
    gm_step_put_seg(token, &(gm_step_seg){0, 0, 1});
    gm_step_put_row(token, &(gm_step_row){.kind = GM_ROW_LAST, .pos = 13, .last = {13, 13}});
    gm_step_put_out(token, &(gm_step_out){.want = GM_WANT_DRAW, .mask = GM_NO_MASK});
}

/* Both steps, one after the other or both under way at once, the second on an exec of its own where one
 * is given; answers how many submits they were. */
static uint64_t turn(const device *d, gm_exec *second, gm_step *const step[2], bool at_once,
                     gm_result_out out[2])
{
    gm_exec *const ex[2] = {d->ex, second ? second : d->ex};
    gm_err err = {0};
    gm_ticket t[2];
    gm_result r;
    const uint64_t before = d->be->dev.count.submits;
    for (int i = 0; i < 2; i++) {
        if (gm_backend_vulkan.run(ex[i], step[i], &t[i], &err) != GM_OK) fail_msg("%s", err.msg);
        if (at_once && i == 0) continue;
        for (int k = at_once ? 0 : i; k <= i; k++) {
            if (gm_backend_vulkan.wait(d->be, t[k], &r, &err) != GM_OK) fail_msg("%s", err.msg);
            out[k] = r.out[0];
        }
    }
    return d->be->dev.count.submits - before;
}

static void assert_same_turn(const gm_result_out got[2], const gm_result_out want[2])
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(got[i].token, want[i].token);
        assert_memory_equal(&got[i].logprob, &want[i].logprob, sizeof(float));
    }
}

/* However a step is handed over, its bits are the same; and it is as many submits as its time says. */
static void test_pieces(void **state)
{
    (void)state;
    scene s;
    device d;
    gm_err err = {0};
    atomic_int abandon = 0;
    gm_step *step[2] = {NULL, NULL};
    gm_result_out want[2], got[2];
    gm_ticket t;
    gm_result r;
    const gm_step_limits limits = {
        .rows = PIECE_ROWS, .segs = 1, .outs = PIECE_ROWS, .edits = 8, .sets = 1};
    scene_open(&s, "q4_0");
    device_open(&d, &s, PIECE_ROWS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gm_step_alloc(&step[i], &limits, &err), GM_OK);
    put_turn(step[0], step[1], &s);
    assert_int_equal(turn(&d, NULL, step, false, want), 2);
    lower_in_pieces(&d, &s);
    const uint32_t n = d.ex->slice[0].script[GM_VK_MIXED].n_pieces,
                   third = (n + n / 3 - 1) / (n / 3);
    const struct {
        double row_us;
        uint64_t submits;
    } cases[] = {{0, n}, {1e-3, 1}, {3 * GM_VK_PART_US / 13, third}, {1e30, n}};
    for (uint32_t i = 0; i < 8; i++) {
        const gm_device_counts before = d.be->dev.count;
        print_message("%u pieces in %u submits\n", n, (uint32_t)cases[i % 4].submits);
        d.ex->row_us = cases[i % 4].row_us;
        assert_int_equal(turn(&d, NULL, step, i < 4, got), cases[i % 4].submits + 1);
        const gm_vk_script *const script = d.ex->slice[0].script;
        assert_int_equal(d.be->dev.count.dispatches, before.dispatches +
                                                         script[GM_VK_MIXED].n_dispatches +
                                                         script[GM_VK_APART].n_dispatches);
        assert_int_equal(d.be->dev.count.recordings, before.recordings);
        assert_same_turn(got, want);
    }
    /* Abandoned: what was not sent yet is not. */
    d.be->abandon = &abandon;
    abandon = 1;
    d.ex->row_us = 0;
    const uint64_t submits = d.be->dev.count.submits;
    assert_int_equal(gm_backend_vulkan.run(d.ex, step[0], &t, &err), GM_OK);
    assert_int_equal(gm_backend_vulkan.wait(d.be, t, &r, &err), GM_E_CANCEL);
    assert_int_equal(d.be->dev.count.submits, submits + 2);
    abandon = 0;
    turn(&d, NULL, step, true, got);
    assert_int_equal(got[1].token, want[1].token);
    for (int i = 0; i < 2; i++)
        gm_step_free(step[i]);
    device_close(&d);
    gm_model_close(s.model);
}

static uint64_t held(const device *d)
{
    uint64_t sum = 0;
    for (int i = 0; i < GM_DEVICE_HEAPS; i++)
        sum += d->be->dev.count.held[i];
    return sum;
}

/* A smaller exec uses the memory of a larger one, also after that is gone; steps of both may be under
 * way at once. */
static void test_execs_share(void **state)
{
    (void)state;
    scene s;
    device d;
    gm_err err = {0};
    gm_exec *small = NULL, *large = NULL;
    gm_step *step[2] = {NULL, NULL};
    gm_result_out want[2], got[2];
    const gm_step_limits limits = {
        .rows = PIECE_ROWS, .segs = 1, .outs = PIECE_ROWS, .edits = 8, .sets = 1};
    scene_open(&s, "q4_0");
    device_open(&d, &s, PIECE_ROWS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(gm_step_alloc(&step[i], &limits, &err), GM_OK);
    put_turn(step[0], step[1], &s);
    turn(&d, NULL, step, false, want);

    const uint64_t alone = held(&d);
    lower_more(&d, &s, 1, &small);
    const uint64_t own = held(&d) - alone;
    assert_int_equal(own, small->turns.size + small->counters.size);
    for (int i = 0; i < 4; i++) {
        turn(&d, small, step, i % 2, got);
        assert_same_turn(got, want);
    }

    /* What does not fit has its own, and gives it back. */
    lower_more(&d, &s, 2 * PIECE_ROWS, &large);
    assert_true(held(&d) > alone + own + 4ull * s.n_vocab * PIECE_ROWS);
    turn(&d, large, step, true, got);
    assert_same_turn(got, want);
    gm_backend_vulkan.drop(d.ex);
    d.ex = large;
    turn(&d, small, step, true, got);
    assert_same_turn(got, want);
    gm_backend_vulkan.drop(small);
    lower_more(&d, &s, 1, &small);
    turn(&d, small, step, true, got);
    assert_same_turn(got, want);
    gm_backend_vulkan.drop(small);
    for (int i = 0; i < 2; i++)
        gm_step_free(step[i]);
    device_close(&d);
    gm_model_close(s.model);
}

static bool one_front; /* as on a card */

/* What a dispatch writes is not what it reads, or all of it: norms in front of a product may be done once
 * more while others are at the product already. */
static void check_ranges(const gm_vk_dispatch *d)
{
    for (uint32_t i = 0; i < d->n_ranges; i++) {
        for (uint32_t j = 0; j < d->n_ranges; j++) {
            const gm_vk_range *const a = &d->ranges[i], *const b = &d->ranges[j];
            const bool same = a->addr == b->addr && a->size == b->size;
            if (!a->write || same) continue;
            assert_true(a->addr + a->size <= b->addr || b->addr + b->size <= a->addr);
        }
    }
}

/* Every barrier of a step of so many rows is needed, and a layer has no more dispatches than said. */
static void check_list(const scene *s, uint32_t rows, gm_vk_kind kind, uint32_t n_a_layer)
{
    device d;
    gm_err err = {0};
    gm_vk_list list = {0};
    device_open(&d, s, rows);
    d.be->tuning.one_front = one_front;
    assert_int_equal(gm_vk_list_plan(d.ex, 0, kind, &list, &err), GM_OK);
    assert_int_equal(gm_vk_list_find_hazard(&list), list.n);
    uint32_t n_barriers = 0;
    for (size_t i = 0; i < list.n; i++) {
        if (list.at[i].norms) check_ranges(&list.at[i]);
        if (!list.at[i].barrier) continue;
        list.at[i].barrier = false;
        assert_true(gm_vk_list_find_hazard(&list) < list.n);
        list.at[i].barrier = true;
        n_barriers++;
    }
    const uint32_t n_layer = s->model->config.n_layer, outside = 9;
    print_message("%u rows: %zu dispatches and %u barriers for %u layers\n", rows, list.n,
                  n_barriers, n_layer);
    assert_true(list.n <= n_a_layer * n_layer + outside);
    assert_true(n_barriers <= n_a_layer * n_layer + outside);
    gm_vk_list_deinit(&list);
    device_close(&d);
}

static struct gm_vk_flow flow_of(const gm_vk_dispatch *d)
{
    struct gm_vk_flow f;
    memcpy(&f, d->push + d->flow, sizeof f);
    return f;
}

/* Who waits does so for the one before, and lets attention go first that is at most two before it. */
static void check_words(const gm_vk_list *list, size_t i)
{
    const gm_vk_dispatch *const d = &list->at[i];
    const struct gm_vk_flow f = flow_of(d);
    assert_int_equal(f.before != 0, d->waits);
    assert_int_equal(f.done != 0, d->n_done > 0);
    if (d->waits) {
        assert_int_equal(f.before, flow_of(&list->at[i - 1]).done);
        assert_int_equal(f.n_before, list->at[i - 1].n_done);
    }
    if (!f.hold) return;
    const size_t back = list->at[i - 1].n_held ? 1 : 2;
    const gm_vk_dispatch *const attention = &list->at[i - back];
    assert_true(d->waits && attention->n_held);
    assert_int_equal(f.hold, flow_of(attention).done + GM_VK_FLOW_INNER);
    assert_int_equal(f.n_hold, attention->n_held);
}

/* Whatever orders a list whose kernels wait for each other is needed: barriers, who waits, and that who
 * is waited for counts itself. */
static void check_order(const gm_vk_list *list)
{
    assert_int_equal(gm_vk_list_find_hazard(list), list->n);
    for (size_t i = 0; i < list->n; i++) {
        gm_vk_dispatch *const d = &list->at[i];
        const gm_vk_dispatch had = *d;
        assert_false(d->barrier && d->waits);
        if (d->flow) check_words(list, i);
        if (!d->barrier && !d->waits) continue;
        d->barrier = d->waits = false;
        assert_true(gm_vk_list_find_hazard(list) < list->n);
        *d = had;
        if (!d->waits) continue;
        gm_vk_dispatch *const before = &list->at[i - 1];
        const uint32_t n_done = before->n_done;
        before->n_done = 0;
        assert_true(gm_vk_list_find_hazard(list) < list->n);
        before->n_done = n_done;
    }
}

/* Of one row, by kernels that wait: from the first layer's first to the last one's last there is no
 * barrier, and there are six of them a layer. */
static void check_flow_list(const scene *s)
{
    device d;
    gm_err err = {0};
    gm_vk_list list = {0};
    flows = true;
    device_open(&d, s, 1);
    flows = false;
    assert_int_equal(gm_vk_list_plan(d.ex, 0, GM_VK_APART, &list, &err), GM_OK);
    check_order(&list);
    size_t first = 0, end = list.n;
    while (first < list.n && !list.at[first].flow)
        first++;
    while (end > first && !list.at[end - 1].flow)
        end--;
    assert_int_equal(end - first, 6 * s->model->config.n_layer);
    assert_true(list.n - (end - first) <= 8);
    for (size_t i = first; i < end; i++) {
        assert_int_equal(list.at[i].waits, i > first);
        assert_int_equal(list.at[i].barrier, i == first);
    }
    gm_vk_list_deinit(&list);
    device_close(&d);
}

static void test_barriers(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, "q4_0");
    check_list(&s, 1, GM_VK_APART, 5);
    check_flow_list(&s);
    static const uint32_t rows[] = {2, 16, 64};
    for (size_t i = 0; i < 3; i++) {
        check_list(&s, rows[i], GM_VK_APART, 5);
        check_list(&s, rows[i], GM_VK_MIXED, 6);
        one_front = true;
        check_list(&s, rows[i], GM_VK_APART, 6);
        one_front = false;
    }
    gm_model_close(s.model);
}

/* Each recording has grids of its own: attention that turns heads has workgroups up to a number, that of
 * mixed rows as many as there are splits. */
static void test_grids(void **state)
{
    (void)state;
    scene s;
    device d;
    scene_open(&s, "q4_0");
    device_open(&d, &s, 16);
    for (gm_vk_kind kind = 0; kind < GM_VK_KINDS; kind++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < d.ex->n_grids[kind]; i++) {
            const gm_vk_grid *const g = &d.ex->grids[kind][i];
            if (g->kind != GM_VK_DYN_ATTEND) continue;
            assert_int_equal(g->most > 0, kind == GM_VK_APART);
            n++;
        }
        assert_int_equal(n, GM_CLASSES);
    }
    device_close(&d);
    gm_model_close(s.model);
}

static size_t count_fragments(const scene *s, uint32_t rows)
{
    device d;
    gm_err err = {0};
    gm_vk_list list = {0};
    size_t n = 0;
    device_open(&d, s, rows);
    assert_int_equal(gm_vk_list_plan(d.ex, 0, GM_VK_APART, &list, &err), GM_OK);
    for (size_t i = 0; i < list.n; i++)
        n += strcmp(d.be->pipes.at[list.at[i].pipe].shader->pipeline, "matmul_fragment") == 0;
    gm_vk_list_deinit(&list);
    device_close(&d);
    return n;
}

/* Several sequences have products by fragments, a single one has not, but for prompts. */
static void test_fragments(void **state)
{
    scene s;
    scene_open(&s, "q4_0");
    fragments = true;
    check_list(&s, 1, GM_VK_APART, 5);
    for (uint32_t rows = 16; rows <= 64; rows *= 4) {
        check_list(&s, rows, GM_VK_APART, 5);
        check_list(&s, rows, GM_VK_MIXED, 6);
        one_front = true;
        check_list(&s, rows, GM_VK_APART, 6);
        one_front = false;
    }
    test_slots(state);
    const uint32_t n_products = 4 * s.model->config.n_layer + 1;
    assert_int_equal(count_fragments(&s, 1), n_products);
    n_slots = 1;
    assert_int_equal(count_fragments(&s, 1), 0);
    n_slots = SLOTS;
    fragments = false;
    assert_int_equal(count_fragments(&s, 1), 0);
    gm_model_close(s.model);
}

/* ---- what is taken ----------------------------------------------------------------------------- */

static uint64_t size_of(device *d, const scene *s, gm_bucket most)
{
    gm_err err = {0};
    uint64_t bytes = 0;
    if (gm_backend_vulkan.exec_size_of(d->be, &s->model->plan, &d->kv->slots.desc, most, &bytes,
                                       &err) != GM_OK)
        fail_msg("%s", err.msg);
    return bytes;
}

/* Values of all sizes of steps to 512 rows, whose kernels may be none of this device's. */
static uint64_t place_values(device *d, const scene *s, gm_bucket most)
{
    enum { SIZES = 10 };
    gm_exec ex[SIZES] = {0};
    gm_err err = {0};
    const uint64_t before = held(d);
    for (uint32_t i = SIZES; i-- > 0;) {
        const uint32_t rows = 1u << i, outs = rows < most.outs ? rows : most.outs;
        ex[i] =
            (gm_exec){.be = d->be, .kv = d->kv, .plan = &s->model->plan, .bucket = {rows, outs}};
        if (gm_vk_values_place(&ex[i], &err) != GM_OK) fail_msg("%s", err.msg);
    }
    const uint64_t taken = held(d) - before;
    for (uint32_t i = 0; i < SIZES; i++) {
        gm_vk_share_release(d->be, &ex[i].scratch);
        gm_vk_buf_free(&d->be->dev, &ex[i].counters);
        gm_mem_free(ex[i].values);
    }
    return taken;
}

/* What all sizes of steps take, one beside the other. */
static uint64_t lower_all(device *d, const scene *s, gm_bucket most)
{
    gm_exec *ex[5] = {0};
    gm_err err = {0};
    const uint64_t before = held(d);
    for (uint32_t i = 5; i-- > 0;) {
        const uint32_t rows = 1u << i;
        const gm_bucket bucket = {rows, rows < most.outs ? rows : most.outs};
        if (gm_backend_vulkan.lower(d->be, d->w, d->kv, &s->model->plan, bucket, &ex[i], &err) !=
            GM_OK)
            fail_msg("%s", err.msg);
    }
    const uint64_t taken = held(d) - before;
    for (uint32_t i = 0; i < 5; i++)
        gm_backend_vulkan.drop(ex[i]);
    return taken;
}

/* What is asked for beforehand is what is taken: here, and with the parts of a prompt's sums that a
 * card with matrices of float16 has. Counters of kernels that wait are asked for in any case, for as
 * many as there could be. */
static void test_sizes(void **state)
{
    (void)state;
    const gm_bucket few = {16, 5}, many = {512, 17};
    scene s;
    device d;
    scene_open(&s, "q4_0");
    device_open(&d, &s, 1);
    gm_backend_vulkan.drop(d.ex);
    d.ex = NULL;
    const uint64_t counters = GM_TICKETS * GM_VK_FLOW_SIZE * (s.model->plan.n_ops + 1ull);
    const uint64_t taken = lower_all(&d, &s, few), asked = size_of(&d, &s, few);
    assert_int_equal(taken + counters, asked);
    choose_flow(d.be);
    const uint64_t flowing = lower_all(&d, &s, few);
    assert_true(flowing > taken && flowing <= asked);
    assert_int_equal(size_of(&d, &s, few), asked);

    d.be->tuning.half_from = 65;
    const uint64_t whole = size_of(&d, &s, many);
    assert_true(place_values(&d, &s, many) <= whole);
    d.be->tuning.half_tiles = 256;
    const uint64_t in_parts = size_of(&d, &s, many);
    assert_true(in_parts >= whole + 2 * 256 * GM_VK_HALF_PART);
    assert_true(place_values(&d, &s, many) <= in_parts);
    assert_true(place_values(&d, &s, many) > whole);
    device_close(&d);
    gm_model_close(s.model);
}

int main(int argc, char **argv)
{
    all_types = argc == 2 && strcmp(argv[1], "--all") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_steps_cost_nothing),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_execs_share),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_fronts),
    };
    return cmocka_run_group_tests_name("t_vk_model", tests, tiny_setup, tiny_teardown);
}
