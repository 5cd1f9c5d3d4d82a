/* SPDX-License-Identifier: MIT */
/* What a step may ask of the oracle, and what it must refuse: a small model with one
 * layer of attention, a head and a draw. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/fp16.h"
#include "fixtures/rig.h"

#define N_VOCAB    37
#define COLS       32
#define N_SLOTS    2
#define N_PAGES    5
#define TABLE_LEN  2
#define MAX_BIAS   4
#define MASK_WORDS 2

static const uint8_t layer_class[] = {GM_CLASS_GLOBAL};
static const gm_draw greedy = {
    .log_min_p = -INFINITY, .repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
static const gm_kv_desc desc = {.type = GM_QTYPE_F32,
                                .n_layer = 1,
                                .layer_class = layer_class,
                                .n_kv_head = 2,
                                .head_dim = 16,
                                .n_vocab = N_VOCAB,
                                .n_slots = N_SLOTS,
                                .n_pages = {1, N_PAGES},
                                .table_len = TABLE_LEN,
                                .max_bias = MAX_BIAS};
/* Room for more than the exec is lowered for, so that too much can be asked. */
static const gm_step_limits limits = {.rows = 4,
                                      .segs = 4,
                                      .outs = 4,
                                      .edits = 8,
                                      .copies = 2,
                                      .sets = 2,
                                      .biases = 8,
                                      .counts = 4,
                                      .masks = 2,
                                      .given = 2,
                                      .given_cols = COLS,
                                      .mask_words = MASK_WORDS};

static void build(rig *r, const gm_attn *attn)
{
    chance c = {81};
    gm_plan *const p = &r->plan;
    const gm_wid embed = rig_weight(r, &c, GM_QTYPE_F32, N_VOCAB, COLS);
    const gm_wid head = rig_weight(r, &c, GM_QTYPE_F32, N_VOCAB, COLS);
    const gm_norm norm = {.weight = rig_weight(r, &c, GM_QTYPE_F32, 1, COLS), .eps = 1e-6f};
    const gm_val x = gm_op_input_rows(p, embed, 1);
    const gm_val a = gm_op_attend(p, x, gm_op_cache(p, 0, x, x, attn), attn);
    const gm_val y = gm_op_norm(p, gm_op_pick_rows(p, gm_op_norm_add(p, x, a, &norm)), &norm);
    const gm_val logits = gm_op_matmul(p, y, head);
    gm_op_output(p, GM_OUT_DRAW, gm_op_draw(p, logits));
    gm_op_output(p, GM_OUT_LOGITS, logits);
    gm_op_output(p, GM_OUT_HIDDEN, y);
}

static const gm_attn attention = {GM_CLASS_GLOBAL, 2, 2, 16, 0.1f};

/* Opens the model with both slots set greedy and pages for every position. */
static void open_model(rig *r)
{
    *r = (rig){0};
    build(r, &attention);
    rig_open(r, "ref", &desc, &limits);
    for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
        assert_true(gm_step_put_set(r->step, slot, &greedy, NULL, 0));
        for (uint32_t i = 0; i < TABLE_LEN; i++) {
            const gm_page_edit edit = {slot, GM_CLASS_GLOBAL, i, 3 - 2 * slot - i};
            assert_true(gm_step_put_edit(r->step, &edit));
        }
    }
    rig_run(r);
}

static gm_step_row row_at(uint32_t kind, uint32_t src, uint32_t slot, uint32_t pos)
{
    return (gm_step_row){.kind = kind, .src = src, .slot = slot, .pos = pos, .last = {0, pos}};
}

static void put(rig *r, gm_step_row row, uint32_t want)
{
    const gm_step_out out = {
        .row = r->step->n_rows, .want = want, .n_top = N_VOCAB, .mask = GM_NO_MASK};
    assert_true(gm_step_put_row(r->step, &row));
    assert_true(gm_step_put_out(r->step, &out));
}

/* One row that all is well with; and its logits, to see that nothing has changed. */
static void check_still_works(rig *r)
{
    static float logits[N_VOCAB];
    static bool known;
    put(r, row_at(GM_ROW_ID, 7, 0, 0), GM_WANT_LOGITS);
    const gm_result out = rig_run(r);
    if (known) assert_memory_equal(out.out[0].logits, logits, sizeof logits);
    memcpy(logits, out.out[0].logits, sizeof logits);
    known = true;
}

static void test_last_token(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    put(&r, row_at(GM_ROW_LAST, 0, 0, 0), GM_WANT_DRAW);
    rig_refused(&r, GM_E_ARG, "token -1");
    put(&r, row_at(GM_ROW_ID, 5, 0, 0), GM_WANT_DRAW);
    gm_result out = rig_run(&r);
    const int32_t first = out.out[0].token;
    assert_in_range(first, 0, N_VOCAB - 1);
    put(&r, row_at(GM_ROW_LAST, 99999, 0, 1), GM_WANT_LOGITS);
    out = rig_run(&r);
    float logits[N_VOCAB];
    memcpy(logits, out.out[0].logits, sizeof logits);
    put(&r, row_at(GM_ROW_ID, 5, 1, 0), 0);
    put(&r, row_at(GM_ROW_ID, (uint32_t)first, 1, 1), GM_WANT_LOGITS);
    out = rig_run(&r);
    assert_memory_equal(out.out[1].logits, logits, sizeof logits);
    assert_true(gm_step_put_set(r.step, 0, &greedy, NULL, 0));
    put(&r, row_at(GM_ROW_LAST, 0, 0, 0), GM_WANT_DRAW);
    rig_refused(&r, GM_E_ARG, "token -1");
    rig_close(&r);
}

static void test_wants(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    float logits[N_VOCAB];
    put(&r, row_at(GM_ROW_ID, 11, 0, 0), GM_WANT_LOGITS);
    memcpy(logits, rig_run(&r).out[0].logits, sizeof logits);
    gm_candidate top[N_VOCAB];
    uint32_t order[N_VOCAB];
    gm_draw_top(logits, N_VOCAB, gm_draw_logsum(logits, N_VOCAB), N_VOCAB, order, top);
    const uint32_t all = GM_WANT_DRAW | GM_WANT_LOGITS | GM_WANT_HIDDEN | GM_WANT_TOP;
    for (uint32_t want = 0; want <= all; want++) {
        put(&r, row_at(GM_ROW_ID, 11, 0, 0), want);
        const gm_result result = rig_run(&r);
        const gm_result_out *const out = &result.out[0];
        assert_int_equal(out->token, want & GM_WANT_DRAW ? top[0].id : -1);
        if (want & GM_WANT_DRAW) assert_true(out->logprob == top[0].logprob);
        assert_int_equal(out->logits != NULL, (want & GM_WANT_LOGITS) != 0);
        assert_int_equal(out->hidden != NULL, (want & GM_WANT_HIDDEN) != 0);
        assert_int_equal(out->n_top, want & GM_WANT_TOP ? N_VOCAB : 0);
        for (uint32_t i = 0; i < out->n_top; i++) {
            assert_int_equal(out->top[i].id, top[i].id);
            assert_true(out->top[i].logprob == top[i].logprob);
        }
        if (out->logits) assert_memory_equal(out->logits, logits, sizeof logits);
    }
    rig_close(&r);
}

/* What the test remembers of a slot, to draw by itself. */
typedef struct memory {
    gm_draw draw;
    gm_draw_count counts[N_VOCAB];
    gm_bias bias[MAX_BIAS];
    uint32_t n_bias;
} memory;

static void begin_slot(chance *c, rig *r, memory *m, uint32_t slot)
{
    *m = (memory){.draw = greedy, .n_bias = chance_below(c, MAX_BIAS + 1)};
    m->draw.inv_temp = 0.2f + chance_unit(c);
    m->draw.seed_lo = chance_u32(c);
    m->draw.frequency = chance_unit(c);
    m->draw.presence = chance_unit(c);
    m->draw.repeat = 1 + chance_unit(c);
    m->draw.inv_repeat = 1 / m->draw.repeat;
    for (uint32_t i = 0; i < m->n_bias; i++)
        m->bias[i] = (gm_bias){(int32_t)chance_below(c, N_VOCAB), 3 * chance_normal(c)};
    assert_true(gm_step_put_set(r->step, slot, &m->draw, m->bias, m->n_bias));
}

static void edit_counts(chance *c, rig *r, memory *m, uint32_t slot)
{
    const int32_t id = (int32_t)chance_below(c, N_VOCAB);
    const int32_t prompt = (int32_t)chance_below(c, 3);
    const int32_t answer = m->counts[id].answer ? -1 : 0;
    assert_true(gm_step_put_count(r->step, &(gm_count_edit){slot, id, prompt, answer}));
    m->counts[id].prompt = (uint16_t)(m->counts[id].prompt + prompt);
    m->counts[id].answer = (uint16_t)(m->counts[id].answer + answer);
}

/* Both slots draw in one step; biases, counts and masks come and go; each token is the law's. */
static void test_draws(void **state)
{
    (void)state;
    rig r;
    chance c = {82};
    memory m[N_SLOTS];
    open_model(&r);
    for (uint32_t step = 0; step < 300; step++) {
        uint32_t mask[N_SLOTS][MASK_WORDS], pos[N_SLOTS];
        for (uint32_t s = 0; s < N_SLOTS; s++) {
            if (step % (s ? 20 : 40) == 0) begin_slot(&c, &r, &m[s], s);
            if (step % 3 == s) edit_counts(&c, &r, &m[s], s);
            const gm_step_row row = row_at(GM_ROW_ID, chance_below(&c, N_VOCAB), s, step % 50);
            gm_step_out out = {.row = s, .want = GM_WANT_DRAW | GM_WANT_LOGITS, .mask = GM_NO_MASK};
            pos[s] = row.pos + 1;
            mask[s][0] = chance_u32(&c);
            mask[s][1] = chance_u32(&c);
            if (step % 5 == s) assert_true(gm_step_put_mask(r.step, mask[s], &out.mask));
            assert_true(gm_step_put_row(r.step, &row) && gm_step_put_out(r.step, &out));
        }
        const gm_result result = rig_run(&r);
        for (uint32_t s = 0; s < N_SLOTS; s++) {
            float adjusted[N_VOCAB];
            uint32_t order[N_VOCAB];
            const gm_draw_row row = {.draw = &m[s].draw,
                                     .counts = m[s].counts,
                                     .bias = m[s].bias,
                                     .n_bias = m[s].n_bias,
                                     .mask = step % 5 == s ? mask[s] : NULL,
                                     .pos = pos[s]};
            const uint32_t want = gm_draw_token(result.out[s].logits, N_VOCAB, &row,
                                                &(gm_draw_scratch){adjusted, order});
            assert_int_equal(result.out[s].token, want);
            m[s].counts[want].answer++;
        }
    }
    rig_close(&r);
}

/* Counts stay within what they can hold, whatever is added. */
static void test_counts_saturate(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    static const int32_t adds[] = {INT32_MAX, INT32_MAX, INT32_MIN, -1, 70000, INT32_MIN};
    for (size_t i = 0; i < sizeof adds / sizeof *adds; i++) {
        assert_true(gm_step_put_count(r.step, &(gm_count_edit){0, 3, adds[i], adds[i]}));
        check_still_works(&r);
    }
    rig_close(&r);
}

static void test_bad_rows(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    static const struct {
        gm_step_row row;
        const char *why;
    } cases[] = {
        {{.kind = GM_ROW_ID, .slot = N_SLOTS}, "row 1"},
        {{.kind = GM_ROW_ID, .slot = UINT32_MAX}, "row 1"},
        {{.kind = GM_ROW_ID, .pos = TABLE_LEN * GM_PAGE_LEN}, "row 1"},
        {{.kind = GM_ROW_ID, .pos = UINT32_MAX}, "row 1"},
        {{.kind = GM_ROW_ID, .last = {0, TABLE_LEN * GM_PAGE_LEN}}, "row 1"},
        {{.kind = GM_ROW_ID, .last = {0, UINT32_MAX}}, "row 1"},
        {{.kind = GM_ROW_ID, .first = {0, 1}, .last = {0, 0}}, "row 1"},
        {{.kind = GM_ROW_ID, .src = N_VOCAB}, "token 37"},
        {{.kind = GM_ROW_ID, .src = UINT32_MAX}, "token 4294967295"},
        {{.kind = GM_ROW_GIVEN, .src = 0}, "row 1"},
        {{.kind = 3, .src = 1}, "row 1"},
        {{.kind = UINT32_MAX, .src = 1}, "row 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(&r, row_at(GM_ROW_ID, 1, 0, 0), GM_WANT_DRAW);
        put(&r, cases[i].row, GM_WANT_DRAW);
        rig_refused(&r, GM_E_ARG, cases[i].why);
        check_still_works(&r);
    }
    /* A page taken away is no longer seen. */
    assert_true(gm_step_put_edit(r.step, &(gm_page_edit){1, GM_CLASS_GLOBAL, 0, GM_NO_PAGE}));
    put(&r, row_at(GM_ROW_ID, 1, 1, 40), 0);
    rig_refused(&r, GM_E_ARG, "no page");
    rig_close(&r);
}

static void test_bad_outputs(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    static const gm_step_out cases[] = {
        {.row = 1, .want = GM_WANT_HIDDEN, .mask = GM_NO_MASK},
        {.row = UINT32_MAX, .want = GM_WANT_DRAW, .mask = GM_NO_MASK},
        {.row = 0, .want = GM_WANT_DRAW, .mask = 0},
        {.row = 0, .want = GM_WANT_DRAW, .mask = GM_NO_MASK - 1},
        {.row = 0, .want = GM_WANT_TOP, .n_top = GM_TOP_MAX + 1, .mask = GM_NO_MASK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gm_step_row row = row_at(GM_ROW_ID, 1, 0, 0);
        assert_true(gm_step_put_row(r.step, &row) && gm_step_put_out(r.step, &cases[i]));
        rig_refused(&r, GM_E_ARG, "output 0");
        check_still_works(&r);
    }
    rig_close(&r);
}

static void test_bad_edits(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    static const gm_page_edit edits[] = {{N_SLOTS, 1, 0, 0},   {0, GM_CLASSES, 0, 0},
                                         {0, 1, TABLE_LEN, 0}, {0, 1, 0, N_PAGES},
                                         {0, 0, 0, 1},         {0, 1, 0, GM_NO_PAGE - 1}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        assert_true(gm_step_put_edit(r.step, &edits[i]));
        rig_refused(&r, GM_E_ARG, "page edit 0");
        check_still_works(&r);
    }
    static const gm_page_copy copies[] = {{GM_CLASSES, 0, 1}, {1, N_PAGES, 0}, {1, 0, N_PAGES}};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        assert_true(gm_step_put_copy(r.step, &copies[i]));
        rig_refused(&r, GM_E_ARG, "page copy 0");
        check_still_works(&r);
    }
    static const gm_count_edit counts[] = {{N_SLOTS, 0, 1, 1}, {0, -1, 1, 1}, {0, N_VOCAB, 1, 1}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        assert_true(gm_step_put_count(r.step, &counts[i]));
        rig_refused(&r, GM_E_ARG, "count 0");
        check_still_works(&r);
    }
    rig_close(&r);
}

static void test_bad_settings(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    const gm_bias bias[MAX_BIAS + 1] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}};
    assert_true(gm_step_put_set(r.step, N_SLOTS, &greedy, NULL, 0));
    rig_refused(&r, GM_E_ARG, "setting 0");
    assert_true(gm_step_put_set(r.step, 0, &greedy, bias, MAX_BIAS + 1));
    rig_refused(&r, GM_E_ARG, "setting 0");
    static const int32_t ids[] = {-1, N_VOCAB, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const gm_bias wild[2] = {{1, 1}, {ids[i], 1}};
        assert_true(gm_step_put_set(r.step, 0, &greedy, wild, 2));
        put(&r, row_at(GM_ROW_ID, 1, 0, 0), GM_WANT_DRAW);
        rig_refused(&r, GM_E_ARG, "setting 0");
        check_still_works(&r);
    }
    rig_close(&r);
}

/* Masks that are too short for the vocabulary would be read past their end. */
static void test_short_masks(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    gm_step *const whole = r.step;
    gm_step_limits small = limits;
    small.mask_words = MASK_WORDS - 1;
    assert_int_equal(gm_step_alloc(&r.step, &small, &r.err), GM_OK);
    const uint32_t words[1] = {UINT32_MAX};
    const gm_step_row row = row_at(GM_ROW_ID, 1, 0, 0);
    gm_step_out out = {.want = GM_WANT_DRAW};
    assert_true(gm_step_put_mask(r.step, words, &out.mask));
    assert_true(gm_step_put_row(r.step, &row) && gm_step_put_out(r.step, &out));
    rig_refused(&r, GM_E_ARG, "mask");
    gm_step_free(r.step);
    r.step = whole;
    check_still_works(&r);
    rig_close(&r);
}

/* An exec takes what it was lowered for. */
static void test_too_many_rows(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    gm_exec *const wide = r.ex;
    assert_int_equal(r.ops->lower(r.be, r.w, r.kv, &r.plan, (gm_bucket){2, 1}, &r.ex, &r.err),
                     GM_OK);
    for (uint32_t i = 0; i < 3; i++) {
        const gm_step_row row = row_at(GM_ROW_ID, i, 0, i);
        assert_true(gm_step_put_row(r.step, &row));
    }
    rig_refused(&r, GM_E_ARG, "3 rows and 0 outputs, expected at most 2 and 1");
    put(&r, row_at(GM_ROW_ID, 0, 0, 0), GM_WANT_DRAW);
    put(&r, row_at(GM_ROW_ID, 1, 0, 1), GM_WANT_DRAW);
    rig_refused(&r, GM_E_ARG, "2 rows and 2 outputs, expected at most 2 and 1");
    check_still_works(&r);
    r.ops->drop(r.ex);
    r.ex = wide;
    rig_close(&r);
}

static void test_tickets(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    gm_ticket first = 0, second = 0, third = 0;
    gm_result out = {0};
    put(&r, row_at(GM_ROW_ID, 4, 0, 0), GM_WANT_DRAW);
    assert_int_equal(r.ops->run(r.ex, r.step, &first, &r.err), GM_OK);
    assert_int_equal(r.ops->run(r.ex, r.step, &second, &r.err), GM_OK);
    assert_int_equal(r.ops->run(r.ex, r.step, &third, &r.err), GM_E_ARG);
    assert_non_null(strstr(r.err.msg, "under way"));
    assert_int_equal(r.ops->wait(r.be, second, &out, &r.err), GM_E_ARG);
    assert_non_null(strstr(r.err.msg, "out of order"));
    assert_int_equal(r.ops->wait(r.be, 0, &out, &r.err), GM_E_ARG);
    assert_int_equal(r.ops->wait(r.be, first, &out, &r.err), GM_OK);
    assert_int_equal(out.n_out, 1);
    assert_int_equal(r.ops->wait(r.be, first, &out, &r.err), GM_E_ARG);
    assert_int_equal(r.ops->run(r.ex, r.step, &third, &r.err), GM_OK);
    assert_int_equal(r.ops->wait(r.be, second, &out, &r.err), GM_OK);
    assert_int_equal(r.ops->wait(r.be, third, &out, &r.err), GM_OK);
    assert_int_equal(r.ops->wait(r.be, third + 1, &out, &r.err), GM_E_ARG);
    gm_step_clear(r.step);
    check_still_works(&r);
    rig_close(&r);
}

static void test_abandon(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    atomic_store(&r.abandon, 1);
    put(&r, row_at(GM_ROW_ID, 4, 0, 0), GM_WANT_DRAW);
    rig_refused(&r, GM_E_CANCEL, "abandoned");
    atomic_store(&r.abandon, 0);
    check_still_works(&r);
    rig_close(&r);
}

static bool refuse(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    ++*(int *)ctx;
    return false;
}

static void test_load_cancelled(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    int told = 0;
    gm_wset *w = NULL;
    const gm_progress progress = {refuse, &told};
    assert_int_equal(r.ops->load(r.be, &r.plan.weights, &progress, &w, &r.err), GM_E_CANCEL);
    assert_null(w);
    assert_int_equal(told, 1);
    rig_close(&r);
}

/* KV memory that is not what the plan needs. */
static void test_lower_refuses(void **state)
{
    (void)state;
    rig r;
    open_model(&r);
    gm_exec *ex = NULL;
    const gm_bucket one = {1, 1};
    assert_int_equal(r.ops->lower(r.be, r.w, NULL, &r.plan, one, &ex, &r.err), GM_E_ARG);
    assert_null(ex);
    static const uint8_t local[] = {GM_CLASS_LOCAL};
    gm_kv_desc wrong[5] = {desc, desc, desc, desc, desc};
    wrong[0].n_layer = 0;
    wrong[1].layer_class = local;
    wrong[2].head_dim = 8;
    wrong[3].n_kv_head = 1;
    wrong[4].n_vocab = N_VOCAB + 1;
    for (size_t i = 0; i < 5; i++) {
        gm_kvmem *kv = NULL;
        assert_int_equal(r.ops->kv_open(r.be, &wrong[i], &kv, &r.err), GM_OK);
        assert_int_equal(r.ops->lower(r.be, r.w, kv, &r.plan, one, &ex, &r.err), GM_E_ARG);
        assert_null(ex);
        r.ops->kv_close(kv);
    }
    rig_close(&r);
}

/* A draw of given logits, with nothing between. */
static void test_draw_alone(void **state)
{
    (void)state;
    rig r = {0};
    chance c = {83};
    enum { WIDE = 301 };
    const gm_val y = gm_op_pick_rows(&r.plan, gm_op_input_given(&r.plan, WIDE));
    gm_op_output(&r.plan, GM_OUT_DRAW, gm_op_draw(&r.plan, y));
    gm_kv_desc d = desc;
    gm_step_limits l = limits;
    d.n_layer = 0;
    d.n_vocab = WIDE;
    l.given_cols = WIDE;
    l.mask_words = (WIDE + 31) / 32;
    rig_open(&r, "ref", &d, &l);
    for (uint32_t i = 0; i < 50; i++) {
        float logits[WIDE], adjusted[WIDE];
        uint32_t order[WIDE];
        gm_draw draw = greedy;
        draw.inv_temp = 0.5f;
        draw.top_k = i;
        draw.seed_lo = i;
        chance_normals(&c, logits, WIDE);
        assert_true(gm_step_put_set(r.step, 0, &draw, NULL, 0));
        gm_step_row row = {.kind = GM_ROW_GIVEN, .pos = i};
        assert_true(gm_step_put_given(r.step, logits, &row.src));
        put(&r, row, GM_WANT_DRAW | GM_WANT_TOP);
        const gm_result out = rig_run(&r);
        const gm_draw_row by = {.draw = &draw, .pos = i + 1};
        const gm_draw_scratch scratch = {adjusted, order};
        assert_int_equal(out.out[0].token, gm_draw_token(logits, WIDE, &by, &scratch));
        assert_int_equal(out.out[0].n_top, N_VOCAB);
    }
    rig_close(&r);
}

/* Without slots there is no last token to take. */
static void test_last_without_slots(void **state)
{
    (void)state;
    rig r = {0};
    chance c = {84};
    const gm_wid embed = rig_weight(&r, &c, GM_QTYPE_F32, N_VOCAB, COLS);
    const gm_val x = gm_op_pick_rows(&r.plan, gm_op_input_rows(&r.plan, embed, 1));
    gm_op_output(&r.plan, GM_OUT_HIDDEN, x);
    rig_open(&r, "ref", NULL, &limits);
    put(&r, row_at(GM_ROW_LAST, 1, 0, 0), GM_WANT_HIDDEN);
    rig_refused(&r, GM_E_ARG, "token -1");
    rig_close(&r);
}

static void test_registry(void **state)
{
    (void)state;
    for (size_t i = 0; gm_backend_at(i); i++) {
        const gm_backend_ops *const ops = gm_backend_at(i);
        assert_ptr_equal(gm_backend_find(ops->name), ops);
        assert_true(ops->about[0] != '\0');
    }
    assert_non_null(gm_backend_find("auto"));
    assert_null(gm_backend_find("abacus"));
    assert_null(gm_backend_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_token),     cmocka_unit_test(test_wants),
        cmocka_unit_test(test_draws),          cmocka_unit_test(test_counts_saturate),
        cmocka_unit_test(test_bad_rows),       cmocka_unit_test(test_bad_outputs),
        cmocka_unit_test(test_bad_edits),      cmocka_unit_test(test_bad_settings),
        cmocka_unit_test(test_short_masks),    cmocka_unit_test(test_too_many_rows),
        cmocka_unit_test(test_tickets),        cmocka_unit_test(test_abandon),
        cmocka_unit_test(test_load_cancelled), cmocka_unit_test(test_lower_refuses),
        cmocka_unit_test(test_draw_alone),     cmocka_unit_test(test_last_without_slots),
        cmocka_unit_test(test_registry),
    };
    return cmocka_run_group_tests_name("t_ref_step", tests, NULL, NULL);
}
