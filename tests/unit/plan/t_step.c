/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plan/step.h"

static const gm_step_limits odd = {.rows = 3,
                                   .segs = 2,
                                   .outs = 5,
                                   .edits = 7,
                                   .copies = 1,
                                   .sets = 2,
                                   .biases = 3,
                                   .counts = 4,
                                   .masks = 2,
                                   .given = 3,
                                   .given_cols = 5,
                                   .mask_words = 3};

static gm_step *made(const gm_step_limits *limits)
{
    gm_step *s = NULL;
    gm_err err = {0};
    if (gm_step_alloc(&s, limits, &err) != GM_OK) fail_msg("%s", err.msg);
    return s;
}

/* Parts lie one after the other, each on a border of 16 bytes, none over another. */
static void test_layout(void **state)
{
    (void)state;
    gm_step *const s = made(&odd);
    const struct {
        uint32_t off;
        size_t size;
    } parts[] = {
        {0, sizeof *s},
        {s->rows_off, odd.rows * sizeof(gm_step_row)},
        {s->segs_off, odd.segs * sizeof(gm_step_seg)},
        {s->outs_off, odd.outs * sizeof(gm_step_out)},
        {s->edits_off, odd.edits * sizeof(gm_page_edit)},
        {s->copies_off, odd.copies * sizeof(gm_page_copy)},
        {s->sets_off, odd.sets * sizeof(gm_slot_set)},
        {s->biases_off, odd.biases * sizeof(gm_bias)},
        {s->counts_off, odd.counts * sizeof(gm_count_edit)},
        {s->masks_off, (size_t)odd.masks * odd.mask_words * sizeof(uint32_t)},
        {s->given_off, (size_t)odd.given * odd.given_cols * sizeof(float)},
    };
    const size_t n = sizeof parts / sizeof *parts;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(parts[i].off % 16, 0);
        assert_true(parts[i].off + parts[i].size <= (i + 1 < n ? parts[i + 1].off : s->size));
    }
    assert_int_equal(s->size % 16, 0);
    assert_memory_equal(&s->limits, &odd, sizeof odd);
    gm_step_free(s);
    gm_step_free(NULL);
}

static void fill(gm_step *s, uint32_t from)
{
    uint32_t index = 0;
    for (uint32_t i = 0; i < odd.rows; i++)
        assert_true(gm_step_put_row(s, &(gm_step_row){.src = from + i, .last = {i, i + 1}}));
    for (uint32_t i = 0; i < odd.segs; i++)
        assert_true(gm_step_put_seg(s, &(gm_step_seg){from + i, i, 1}));
    for (uint32_t i = 0; i < odd.outs; i++)
        assert_true(gm_step_put_out(s, &(gm_step_out){.row = from + i, .want = GM_WANT_DRAW}));
    for (uint32_t i = 0; i < odd.edits; i++)
        assert_true(gm_step_put_edit(s, &(gm_page_edit){from + i, 1, i, i}));
    for (uint32_t i = 0; i < odd.copies; i++)
        assert_true(gm_step_put_copy(s, &(gm_page_copy){1, from + i, i}));
    for (uint32_t i = 0; i < odd.counts; i++)
        assert_true(gm_step_put_count(s, &(gm_count_edit){from + i, 1, 2, 3}));
    for (uint32_t i = 0; i < odd.masks; i++) {
        const uint32_t words[3] = {from + i, from + i + 1, from + i + 2};
        assert_true(gm_step_put_mask(s, words, &index));
        assert_int_equal(index, i);
    }
    for (uint32_t i = 0; i < odd.given; i++) {
        const float row[5] = {(float)(from + i), 1, 2, 3, 4};
        assert_true(gm_step_put_given(s, row, &index));
        assert_int_equal(index, i);
    }
}

static void check_filled(const gm_step *s, uint32_t from)
{
    for (uint32_t i = 0; i < odd.rows; i++) {
        assert_int_equal(gm_step_rows(s)[i].src, from + i);
        assert_int_equal(gm_step_rows(s)[i].last[1], i + 1);
    }
    for (uint32_t i = 0; i < odd.segs; i++)
        assert_int_equal(gm_step_segs(s)[i].slot, from + i);
    for (uint32_t i = 0; i < odd.outs; i++)
        assert_int_equal(gm_step_outs(s)[i].row, from + i);
    for (uint32_t i = 0; i < odd.edits; i++)
        assert_int_equal(gm_step_edits(s)[i].slot, from + i);
    for (uint32_t i = 0; i < odd.copies; i++)
        assert_int_equal(gm_step_copies(s)[i].from, from + i);
    for (uint32_t i = 0; i < odd.counts; i++)
        assert_int_equal(gm_step_counts(s)[i].slot, from + i);
    for (uint32_t i = 0; i < odd.masks; i++)
        assert_int_equal(gm_step_mask_at(s, i)[2], from + i + 2);
    for (uint32_t i = 0; i < odd.given; i++) {
        assert_true(gm_step_given_at(s, i)[0] == (float)(from + i));
        assert_true(gm_step_given_at(s, i)[4] == 4);
    }
}

/* Each part takes what its limit says and not one more; a full part disturbs no other. */
static void test_fills_up(void **state)
{
    (void)state;
    gm_step *const s = made(&odd);
    const uint32_t words[3] = {0};
    const float row[5] = {0};
    for (uint32_t turn = 0; turn < 3; turn++) {
        uint32_t index = 0;
        gm_step_clear(s);
        fill(s, 100 * turn);
        assert_false(gm_step_put_row(s, &(gm_step_row){0}));
        assert_false(gm_step_put_seg(s, &(gm_step_seg){0}));
        assert_false(gm_step_put_out(s, &(gm_step_out){.want = GM_WANT_DRAW}));
        assert_false(gm_step_put_edit(s, &(gm_page_edit){0}));
        assert_false(gm_step_put_copy(s, &(gm_page_copy){0}));
        assert_false(gm_step_put_count(s, &(gm_count_edit){0}));
        assert_false(gm_step_put_mask(s, words, &index));
        assert_false(gm_step_put_given(s, row, &index));
        assert_int_equal(s->n_draw, odd.outs);
        check_filled(s, 100 * turn);
    }
    const uint32_t size = s->size;
    gm_step_clear(s);
    assert_int_equal(s->n_rows | s->n_segs | s->n_outs | s->n_edits | s->n_copies | s->n_sets |
                         s->n_biases | s->n_counts | s->n_masks | s->n_given | s->n_head |
                         s->n_draw,
                     0);
    assert_int_equal(s->size, size);
    gm_step_free(s);
}

/* A setting and its biases go in together or not at all. */
static void test_sets(void **state)
{
    (void)state;
    gm_step *const s = made(&odd);
    const gm_bias bias[4] = {{1, 0.5f}, {2, -1}, {3, 7}, {4, 8}};
    const gm_draw draw = {.inv_temp = 2, .top_k = 9};
    assert_false(gm_step_put_set(s, 4, &draw, bias, 4));
    assert_int_equal(s->n_sets, 0);
    assert_int_equal(s->n_biases, 0);
    assert_true(gm_step_put_set(s, 4, &draw, bias, 2));
    assert_false(gm_step_put_set(s, 5, &draw, bias + 2, 2));
    assert_true(gm_step_put_set(s, 5, &draw, bias + 2, 1));
    assert_false(gm_step_put_set(s, 6, &draw, NULL, 0));
    assert_int_equal(s->n_sets, 2);
    assert_int_equal(s->n_biases, 3);
    const gm_slot_set *const sets = gm_step_sets(s);
    assert_int_equal(sets[0].slot, 4);
    assert_int_equal(sets[0].bias_first, 0);
    assert_int_equal(sets[0].n_bias, 2);
    assert_int_equal(sets[1].slot, 5);
    assert_int_equal(sets[1].bias_first, 2);
    assert_int_equal(sets[1].draw.top_k, 9);
    assert_int_equal(gm_step_biases(s)[2].id, 3);
    gm_step_clear(s);
    assert_true(gm_step_put_set(s, 0, &draw, bias, 3));
    assert_int_equal(gm_step_sets(s)[0].bias_first, 0);
    gm_step_free(s);
}

static void test_counts_of_outputs(void **state)
{
    (void)state;
    static const struct {
        uint32_t want, head, draw;
    } cases[] = {{0, 0, 0},
                 {GM_WANT_HIDDEN, 0, 0},
                 {GM_WANT_LOGITS, 1, 0},
                 {GM_WANT_TOP, 1, 0},
                 {GM_WANT_DRAW, 1, 1},
                 {GM_WANT_DRAW | GM_WANT_LOGITS | GM_WANT_TOP | GM_WANT_HIDDEN, 1, 1}};
    gm_step *const s = made(&(gm_step_limits){.outs = 1});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gm_step_clear(s);
        assert_true(gm_step_put_out(s, &(gm_step_out){.want = cases[i].want}));
        assert_int_equal(s->n_head, cases[i].head);
        assert_int_equal(s->n_draw, cases[i].draw);
        assert_false(gm_step_put_out(s, &(gm_step_out){.want = cases[i].want}));
        assert_int_equal(s->n_head, cases[i].head);
        assert_int_equal(s->n_draw, cases[i].draw);
    }
    gm_step_free(s);
}

static void test_check(void **state)
{
    (void)state;
    gm_step *const s = made(&odd);
    gm_err err = {0};
    fill(s, 0);
    assert_int_equal(gm_step_check(s, odd.rows - 1, odd.outs, &err), GM_E_ARG);
    assert_string_equal(err.msg, "step: 3 rows and 5 outputs, expected at most 2 and 5");
    assert_int_equal(gm_step_check(s, odd.rows, odd.outs - 1, &err), GM_E_ARG);
    assert_int_equal(gm_step_check(s, odd.rows, odd.outs, &err), GM_E_ARG);
    assert_string_equal(err.msg, "step: output 3 is out of bounds"); /* of row 3 of 3 */
    static const struct {
        gm_step_out out;
        gm_status status;
    } cases[] = {
        {{.row = 2, .want = GM_WANT_TOP, .n_top = GM_TOP_MAX, .mask = 1}, GM_OK},
        {{.row = 2, .want = GM_WANT_DRAW, .mask = GM_NO_MASK}, GM_OK},
        {{.row = 3, .mask = GM_NO_MASK}, GM_E_ARG},
        {{.row = 0, .mask = 2}, GM_E_ARG},
        {{.row = 0, .n_top = GM_TOP_MAX + 1, .mask = GM_NO_MASK}, GM_E_ARG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s->n_outs = 0;
        assert_true(gm_step_put_out(s, &cases[i].out));
        assert_int_equal(gm_step_check(s, odd.rows, 1, &err), cases[i].status);
    }
    gm_step_free(s);
}

static void test_empty_limits(void **state)
{
    (void)state;
    gm_step *const s = made(&(gm_step_limits){0});
    uint32_t index = 0;
    const float none = 0;
    assert_false(gm_step_put_row(s, &(gm_step_row){0}));
    assert_false(gm_step_put_given(s, &none, &index));
    gm_step_free(s);
}

/* Limits whose block does not fit 32-bit offsets are refused before anything is allocated. */
static void test_limits_too_large(void **state)
{
    (void)state;
    static const gm_step_limits cases[] = {
        {.rows = UINT32_MAX},
        {.segs = UINT32_MAX},
        {.outs = UINT32_MAX},
        {.edits = UINT32_MAX},
        {.copies = UINT32_MAX},
        {.sets = UINT32_MAX},
        {.biases = UINT32_MAX},
        {.counts = UINT32_MAX},
        {.masks = UINT32_MAX, .mask_words = 1},
        {.masks = 65536, .mask_words = 16384},
        {.masks = UINT32_MAX, .mask_words = UINT32_MAX},
        {.given = UINT32_MAX, .given_cols = UINT32_MAX},
        {.given = 1, .given_cols = UINT32_MAX},
        {.rows = 60000000, .segs = 100000000, .outs = 100000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int poison = 0;
        gm_step *s = (gm_step *)(void *)&poison;
        gm_err err = {0};
        assert_int_equal(gm_step_alloc(&s, &cases[i], &err), GM_E_TOOBIG);
        assert_null(s);
        assert_non_null(strstr(err.msg, "step"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_fills_up),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_counts_of_outputs),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_empty_limits),
        cmocka_unit_test(test_limits_too_large),
    };
    return cmocka_run_group_tests_name("t_step", tests, NULL, NULL);
}
