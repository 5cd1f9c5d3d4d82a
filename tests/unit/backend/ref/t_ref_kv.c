/* SPDX-License-Identifier: MIT */
/* Attention through the cache. One plan has a local and a global layer over the
 * same projections of given rows; pages are dealt from a shuffled pack, slots
 * take turns inside a step, and every row is compared with attention over the whole
 * history in double. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "fixtures/rig.h"
#include "quant/dot.h"

#define COLS      24
#define MAX_ROWS  16
#define MAX_POS   130
#define MAX_WIDTH 64
#define N_SLOTS   3
#define TABLE_LEN ((MAX_POS + GM_PAGE_LEN - 1) / GM_PAGE_LEN)
#define N_PAGES   (N_SLOTS * TABLE_LEN + 2)
#define WINDOW    7

static const uint8_t layer_class[] = {GM_CLASS_GLOBAL, GM_CLASS_LOCAL, GM_CLASS_GLOBAL};
enum { OTHER_LAYER = 0, LOCAL_LAYER = 1, GLOBAL_LAYER = 2 };

typedef struct scene {
    rig r;
    chance c;
    gm_attn attn[GM_CLASSES];
    gm_wid wq, wk, wv;
    float x[N_SLOTS][MAX_POS][COLS]; /* what each slot was given */
    uint32_t n_pos[N_SLOTS];
    uint32_t table[N_SLOTS][GM_CLASSES][TABLE_LEN];
    uint32_t pack[GM_CLASSES][N_PAGES], n_pack[GM_CLASSES];
} scene;

static void shuffle_pages(scene *s)
{
    for (int c = 0; c < GM_CLASSES; c++) {
        s->n_pack[c] = N_PAGES;
        for (uint32_t i = 0; i < N_PAGES; i++) {
            const uint32_t j = chance_below(&s->c, i + 1);
            s->pack[c][i] = s->pack[c][j];
            s->pack[c][j] = i;
        }
    }
}

static scene *scene_open(uint64_t seed, uint32_t n_head, uint32_t n_kv_head, uint32_t dim)
{
    scene *const s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->c = (chance){seed};
    gm_plan *const p = &s->r.plan;
    s->wq = rig_weight(&s->r, &s->c, GM_QTYPE_F32, n_head * dim, COLS);
    s->wk = rig_weight(&s->r, &s->c, GM_QTYPE_F32, n_kv_head * dim, COLS);
    s->wv = rig_weight(&s->r, &s->c, GM_QTYPE_F32, n_kv_head * dim, COLS);
    const gm_val x = gm_op_input_given(p, COLS), q = gm_op_matmul(p, x, s->wq);
    const gm_val k = gm_op_matmul(p, x, s->wk), v = gm_op_matmul(p, x, s->wv);
    for (uint32_t class = 0; class < GM_CLASSES; class ++) {
        s->attn[class] = (gm_attn){class, n_head, n_kv_head, dim, class ? 0.05f : 0.08f};
        const uint32_t layer = class == GM_CLASS_LOCAL ? LOCAL_LAYER : GLOBAL_LAYER;
        const gm_val cache = gm_op_cache(p, layer, k, v, &s->attn[class]);
        const gm_val a = gm_op_attend(p, q, cache, &s->attn[class]);
        gm_op_output(p, class ? GM_OUT_LOGITS : GM_OUT_HIDDEN, gm_op_pick_rows(p, a));
    }
    /* Nobody looks at this one: it fills the other global layer, to be in the way of a wrong place. */
    const gm_val other = gm_op_cache(p, OTHER_LAYER, k, v, &s->attn[GM_CLASS_GLOBAL]);
    const gm_val unseen = gm_op_attend(p, q, other, &s->attn[GM_CLASS_GLOBAL]);
    gm_op_output(p, GM_OUT_DRAW, gm_op_pick_rows(p, unseen));
    const gm_kv_desc desc = {.type = GM_QTYPE_F32,
                             .n_layer = 3,
                             .layer_class = layer_class,
                             .n_kv_head = n_kv_head,
                             .head_dim = dim,
                             .n_vocab = 1,
                             .n_slots = N_SLOTS,
                             .n_pages = {N_PAGES, N_PAGES},
                             .table_len = TABLE_LEN};
    const gm_step_limits limits = {.rows = MAX_ROWS,
                                   .segs = MAX_ROWS,
                                   .outs = MAX_ROWS,
                                   .edits = 64,
                                   .copies = 16,
                                   .given = MAX_ROWS,
                                   .given_cols = COLS};
    rig_open(&s->r, "ref", &desc, &limits);
    memset(s->table, 0xFF, sizeof s->table);
    shuffle_pages(s);
    return s;
}

static void scene_close(scene *s)
{
    rig_close(&s->r);
    free(s);
}

/* The next position of a slot, its page if it begins one, and an output; returns the position. */
static uint32_t put_next(scene *s, uint32_t slot, uint32_t sees_ahead)
{
    const uint32_t pos = s->n_pos[slot]++;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        uint32_t *const page = &s->table[slot][c][pos / GM_PAGE_LEN];
        if (*page != GM_NO_PAGE) continue;
        assert_true(s->n_pack[c] > 0);
        *page = s->pack[c][--s->n_pack[c]];
        const gm_page_edit edit = {slot, c, pos / GM_PAGE_LEN, *page};
        assert_true(gm_step_put_edit(s->r.step, &edit));
    }
    gm_step_row row = {.kind = GM_ROW_GIVEN,
                       .slot = slot,
                       .pos = pos,
                       .first = {pos >= WINDOW ? pos - WINDOW + 1 : 0, 0},
                       .last = {pos + sees_ahead, pos + sees_ahead}};
    const gm_step_out out = {
        .row = s->r.step->n_rows, .want = GM_WANT_HIDDEN | GM_WANT_LOGITS, .mask = GM_NO_MASK};
    assert_true(gm_step_put_given(s->r.step, s->x[slot][pos], &row.src));
    assert_true(gm_step_put_row(s->r.step, &row));
    assert_true(gm_step_put_out(s->r.step, &out));
    return pos;
}

static void project(const scene *s, gm_wid w, const float *x, float *out)
{
    const uint32_t n = (uint32_t)gm_tensor_rows(&s->r.tensors[w]);
    for (uint32_t i = 0; i < n; i++) {
        float row[COLS];
        rig_weight_row(&s->r, w, i, row);
        out[i] = gm_dot_exact(row, x, COLS);
    }
}

/* Attention of one row by its definition: [n_head, head_dim]. */
static void attend(const scene *s, uint32_t slot, const gm_step_row *row, uint32_t class,
                   double *out)
{
    const gm_attn *const a = &s->attn[class];
    float q[MAX_WIDTH], k[MAX_WIDTH], v[MAX_WIDTH];
    double sum[MAX_WIDTH] = {0};
    memset(out, 0, MAX_WIDTH * sizeof *out);
    project(s, s->wq, s->x[slot][row->pos], q);
    for (uint32_t t = row->first[class]; t <= row->last[class]; t++) {
        project(s, s->wk, s->x[slot][t], k);
        project(s, s->wv, s->x[slot][t], v);
        for (uint32_t h = 0; h < a->n_head; h++) {
            const uint32_t from = h * a->n_kv_head / a->n_head * a->head_dim;
            double score = 0;
            for (uint32_t j = 0; j < a->head_dim; j++)
                score += (double)q[h * a->head_dim + j] * (double)k[from + j];
            const double weight = exp((double)a->scale * score);
            sum[h] += weight;
            for (uint32_t j = 0; j < a->head_dim; j++)
                out[h * a->head_dim + j] += weight * (double)v[from + j];
        }
    }
    for (uint32_t i = 0; i < a->n_head * a->head_dim; i++)
        out[i] /= sum[i / a->head_dim];
}

/* Runs the step and compares every row, to what float32 scores of up to 30 and values of up to 10
 * leave of it; copies the rows' bits to `bits` where wanted. */
static void run_and_check(scene *s, float (*bits)[MAX_POS][2 * MAX_WIDTH])
{
    gm_step_row rows[MAX_ROWS];
    const uint32_t n = s->r.step->n_rows;
    const uint32_t width = s->attn[0].n_head * s->attn[0].head_dim;
    memcpy(rows, gm_step_rows(s->r.step), n * sizeof *rows);
    const gm_result out = rig_run(&s->r);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t class = 0; class < GM_CLASSES; class ++) {
            const float *const got = class ? out.out[i].logits : out.out[i].hidden;
            double want[MAX_WIDTH];
            attend(s, rows[i].slot, &rows[i], class, want);
            for (uint32_t j = 0; j < width; j++) {
                if (!(fabs((double)got[j] - want[j]) <= 2e-5 * fmax(1, fabs(want[j]))))
                    fail_msg("slot %u position %u class %u: %.9g, expected %.9g", rows[i].slot,
                             rows[i].pos, class, (double)got[j], want[j]);
            }
            if (bits)
                memcpy(bits[rows[i].slot][rows[i].pos] + class * MAX_WIDTH, got,
                       width * sizeof *got);
        }
    }
}

static void fill_given(scene *s, uint64_t seed)
{
    chance c = {seed};
    chance_normals(&c, &s->x[0][0][0], (size_t)N_SLOTS * MAX_POS * COLS);
}

/* Random turns: a few rows of this slot, a few of that one, until all are full. */
static void run_mixed(scene *s, float (*bits)[MAX_POS][2 * MAX_WIDTH])
{
    uint32_t left = N_SLOTS * MAX_POS;
    while (left) {
        uint32_t room = 1 + chance_below(&s->c, MAX_ROWS);
        while (room && left) {
            const uint32_t slot = chance_below(&s->c, N_SLOTS);
            uint32_t n = MAX_POS - s->n_pos[slot];
            if (n > room) n = room;
            if (n) n = 1 + chance_below(&s->c, n);
            for (uint32_t i = 0; i < n; i++)
                put_next(s, slot, 0);
            room -= n;
            left -= n;
        }
        run_and_check(s, bits);
    }
}

static void test_heads_and_pages(void **state)
{
    (void)state;
    static const uint32_t heads[][3] = {{4, 1, 10}, {3, 3, 6}, {6, 2, 10}, {1, 1, 36}, {8, 4, 8}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        scene *const s = scene_open(31 + i, heads[i][0], heads[i][1], heads[i][2]);
        fill_given(s, 5);
        run_mixed(s, NULL);
        scene_close(s);
    }
}

/* The same rows in mixed company, one by one and in full chunks: the same bits. */
static void test_bits_do_not_depend_on_chunks(void **state)
{
    (void)state;
    static float mixed[N_SLOTS][MAX_POS][2 * MAX_WIDTH], alone[N_SLOTS][MAX_POS][2 * MAX_WIDTH];
    scene *s = scene_open(41, 6, 2, 10);
    fill_given(s, 6);
    run_mixed(s, mixed);
    scene_close(s);
    for (uint32_t chunk = 1; chunk <= MAX_ROWS; chunk += 15) {
        s = scene_open(41, 6, 2, 10);
        fill_given(s, 6);
        memset(alone, 0xA5, sizeof alone);
        for (uint32_t slot = 0; slot < N_SLOTS; slot++) {
            while (s->n_pos[slot] < MAX_POS) {
                for (uint32_t i = 0; i < chunk && s->n_pos[slot] < MAX_POS; i++)
                    put_next(s, slot, 0);
                run_and_check(s, alone);
            }
        }
        for (uint32_t i = 0; i < N_SLOTS * MAX_POS; i++) {
            for (uint32_t class = 0; class < GM_CLASSES; class ++) {
                const size_t off = class * MAX_WIDTH;
                assert_memory_equal(alone[i / MAX_POS][i % MAX_POS] + off,
                                    mixed[i / MAX_POS][i % MAX_POS] + off, 60 * sizeof(float));
            }
        }
        scene_close(s);
    }
}

/* An image's rows see each other both ways: the interval ends after the row itself. */
static void test_sees_ahead(void **state)
{
    (void)state;
    scene *const s = scene_open(51, 4, 2, 8);
    fill_given(s, 7);
    for (uint32_t i = 0; i < 30; i++) {
        put_next(s, 1, 0);
        if (i % 10 == 9) run_and_check(s, NULL);
    }
    for (uint32_t i = 0; i < 9; i++)
        put_next(s, 1, 8 - i);
    run_and_check(s, NULL);
    scene_close(s);
}

/* Fork: slot 2 takes copies of slot 0's pages, then both go on apart. */
static void test_page_copies(void **state)
{
    (void)state;
    scene *const s = scene_open(61, 4, 1, 10);
    fill_given(s, 8);
    while (s->n_pos[0] < 50) {
        for (uint32_t i = 0; i < 10; i++)
            put_next(s, 0, 0);
        run_and_check(s, NULL);
    }
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = 0; i <= 49 / GM_PAGE_LEN; i++) {
            const uint32_t to = s->pack[c][--s->n_pack[c]];
            const gm_page_copy copy = {c, s->table[0][c][i], to};
            s->table[2][c][i] = to;
            assert_true(gm_step_put_copy(s->r.step, &copy));
            assert_true(gm_step_put_edit(s->r.step, &(gm_page_edit){2, c, i, to}));
        }
    }
    memcpy(s->x[2], s->x[0], 50 * sizeof *s->x[0]);
    s->n_pos[2] = 50;
    for (uint32_t i = 0; i < 5; i++)
        put_next(s, 2, 0), put_next(s, 0, 0);
    run_and_check(s, NULL);
    for (uint32_t i = 0; i < 5; i++)
        put_next(s, 0, 0), put_next(s, 2, 0);
    run_and_check(s, NULL);
    scene_close(s);
}

/* Pages leave to host memory and come back under other numbers, for another slot. */
static void test_kv_copy(void **state)
{
    (void)state;
    scene *const s = scene_open(71, 4, 2, 6);
    const gm_backend_ops *const ops = s->r.ops;
    fill_given(s, 9);
    while (s->n_pos[0] < 40) {
        for (uint32_t i = 0; i < 8; i++)
            put_next(s, 0, 0);
        run_and_check(s, NULL);
    }
    gm_page_move moves[4];
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t class = i / 2;
        const uint64_t size = ops->kv_page_size(s->r.kv, class);
        /* Layers of the class, K and V, cells, values. */
        assert_int_equal(size, (class ? 2u : 1u) * 2 * GM_PAGE_LEN * 12 * sizeof(float));
        moves[i] = (gm_page_move){class, s->table[0][class][i % 2], true, malloc(size)};
        assert_non_null(moves[i].host);
    }
    gm_ticket t = 0;
    gm_err err = {0};
    assert_int_equal(ops->kv_copy(s->r.kv, moves, 4, &t, &err), GM_OK);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t class = i / 2;
        moves[i].page = s->pack[class][--s->n_pack[class]];
        moves[i].save = false;
        s->table[1][class][i % 2] = moves[i].page;
        const gm_page_edit edit = {1, class, i % 2, moves[i].page};
        assert_true(gm_step_put_edit(s->r.step, &edit));
    }
    assert_int_equal(ops->kv_copy(s->r.kv, moves, 4, &t, &err), GM_OK);
    memcpy(s->x[1], s->x[0], 40 * sizeof *s->x[0]);
    s->n_pos[1] = 40;
    for (uint32_t i = 0; i < 6; i++)
        put_next(s, 1, 0);
    run_and_check(s, NULL);
    gm_page_move bad = moves[0];
    bad.page = N_PAGES;
    assert_int_equal(ops->kv_copy(s->r.kv, &bad, 1, &t, &err), GM_E_ARG);
    bad = moves[0];
    bad.class = GM_CLASSES;
    assert_int_equal(ops->kv_copy(s->r.kv, &bad, 1, &t, &err), GM_E_ARG);
    for (uint32_t i = 0; i < 4; i++)
        free(moves[i].host);
    scene_close(s);
}

static void test_kv_descriptions(void **state)
{
    (void)state;
    const gm_backend_ops *const ops = gm_backend_find("ref");
    gm_backend *be = NULL;
    gm_kvmem *kv = NULL;
    gm_err err = {0};
    uint64_t bytes = 0;
    assert_int_equal(ops->open(&be, &(gm_backend_cfg){0}, &err), GM_OK);
    gm_kv_desc d = {.type = GM_QTYPE_F32,
                    .n_layer = 3,
                    .layer_class = layer_class,
                    .n_kv_head = 2,
                    .head_dim = 6,
                    .n_vocab = 5,
                    .n_slots = 1,
                    .n_pages = {3, 5},
                    .table_len = 2};
    assert_int_equal(ops->kv_size_of(&d, &bytes, &err), GM_OK);
    assert_int_equal(bytes, (3 * 1 + 5 * 2) * 2 * GM_PAGE_LEN * 12 * sizeof(float));
    d.type = GM_QTYPE_Q4_0;
    assert_int_equal(ops->kv_open(be, &d, &kv, &err), GM_E_UNSUP);
    assert_null(kv);
    d.type = GM_QTYPE_F32;
    d.n_pages[1] = UINT32_MAX;
    d.head_dim = UINT32_MAX;
    assert_int_equal(ops->kv_size_of(&d, &bytes, &err), GM_E_TOOBIG);
    assert_int_equal(ops->kv_open(be, &d, &kv, &err), GM_E_TOOBIG);
    assert_null(kv);
    ops->kv_close(NULL);
    ops->drop(NULL);
    ops->unload(NULL);
    ops->close(be);
    ops->close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_and_pages), cmocka_unit_test(test_bits_do_not_depend_on_chunks),
        cmocka_unit_test(test_sees_ahead),      cmocka_unit_test(test_page_copies),
        cmocka_unit_test(test_kv_copy),         cmocka_unit_test(test_kv_descriptions),
    };
    return cmocka_run_group_tests_name("t_ref_kv", tests, NULL, NULL);
}
