/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

enum { SQUARE, NORM, HALFNORM, N_WEIGHTS };

static gm_tensor weights[N_WEIGHTS];
static const gm_norm norm = {.weight = NORM};
static const gm_norm head_norm = {.weight = HALFNORM};
static const gm_rope rope = {10000, 1};
static const gm_attn attn = {GM_CLASS_LOCAL, 2, 2, 16, 1};

static int setup(void **state)
{
    (void)state;
    const gm_qtype_info *const f32 = gm_qtype_find(GM_QTYPE_F32);
    weights[SQUARE] = (gm_tensor){.name = "w", .type = f32, .n_dims = 2, .shape = {32, 32}};
    weights[NORM] = (gm_tensor){.name = "n", .type = f32, .n_dims = 1, .shape = {32}};
    weights[HALFNORM] = (gm_tensor){.name = "h", .type = f32, .n_dims = 1, .shape = {16}};
    return 0;
}

static gm_plan fresh(void)
{
    return (gm_plan){.weights = {.at = weights, .n = N_WEIGHTS}};
}

/* Finishes a plan that reads its last value and compares its groups, written "a|b|c". */
static void check_groups(gm_plan *p, gm_val last, const char *want)
{
    if (p->vals[last].rows == GM_ROWS_ALL) last = gm_op_pick_rows(p, last);
    gm_op_output(p, GM_OUT_HIDDEN, last);
    gm_err err = {0};
    if (gm_plan_finish(p, &err) != GM_OK) fail_msg("%s", err.msg);
    char got[400] = "";
    uint32_t next = 0;
    for (size_t i = 0; i < p->n_groups; i++) {
        const size_t at = strlen(got);
        snprintf(got + at, sizeof got - at, "%s%s", i ? "|" : "", p->groups[i].name);
        assert_int_equal(p->groups[i].op_first, next);
        assert_true(p->groups[i].n_ops > 0);
        next += p->groups[i].n_ops;
    }
    assert_int_equal(next, p->n_ops);
    assert_string_equal(got, want);
    gm_plan_deinit(p);
}

static void test_products(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_val x = gm_op_input_given(&p, 32);
    gm_val y = gm_op_norm_add(&p, x, gm_op_matmul(&p, x, SQUARE), &norm);
    check_groups(&p, gm_op_norm(&p, y, &norm), "input_given|proj-norm-add-norm|pick_rows|output");
    p = fresh();
    x = gm_op_input_given(&p, 32);
    check_groups(&p, gm_op_norm_add(&p, x, gm_op_matmul(&p, x, SQUARE), &norm),
                 "input_given|proj-norm-add|pick_rows|output");
    p = fresh();
    x = gm_op_input_given(&p, 32);
    check_groups(&p, gm_op_gate_up_gelu(&p, x, SQUARE, SQUARE),
                 "input_given|gate-up-gelu|pick_rows|output");
    p = fresh();
    x = gm_op_input_rows(&p, SQUARE, 1);
    check_groups(&p, gm_op_norm(&p, x, &norm), "embed-norm|pick_rows|output");
    p = fresh();
    x = gm_op_pick_rows(&p, gm_op_input_rows(&p, SQUARE, 1));
    check_groups(&p, gm_op_norm(&p, x, &norm), "input_rows|pick-norm|output");
}

/* The product of a group must be what is normed and added, and the sum what is normed after. */
static void test_products_not_linked(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_val x = gm_op_input_given(&p, 32);
    gm_val y = gm_op_matmul(&p, x, SQUARE);
    gm_val z = gm_op_norm_add(&p, x, x, &norm);
    check_groups(&p, gm_op_norm_add(&p, y, z, &norm),
                 "input_given|matmul|norm_add|norm_add|pick_rows|output");
    p = fresh();
    x = gm_op_input_given(&p, 32);
    check_groups(&p, gm_op_norm_add(&p, gm_op_matmul(&p, x, SQUARE), x, &norm),
                 "input_given|matmul|norm_add|pick_rows|output");
    p = fresh();
    x = gm_op_input_given(&p, 32);
    y = gm_op_norm_add(&p, x, gm_op_matmul(&p, x, SQUARE), &norm);
    z = gm_op_norm(&p, x, &norm);
    check_groups(&p, gm_op_norm_add(&p, y, z, &norm),
                 "input_given|proj-norm-add|norm|norm_add|pick_rows|output");
    p = fresh();
    x = gm_op_input_rows(&p, SQUARE, 1);
    y = gm_op_norm(&p, gm_op_input_given(&p, 32), &norm);
    check_groups(&p, gm_op_norm_add(&p, x, y, &norm),
                 "input_rows|input_given|norm|norm_add|pick_rows|output");
}

static void test_qkv(void **state)
{
    (void)state;
    for (int linked = 0; linked < 2; linked++) {
        gm_plan p = fresh();
        const gm_val x = gm_op_input_given(&p, 32), other = gm_op_input_given(&p, 32);
        const gm_val q = gm_op_matmul(&p, x, SQUARE), k = gm_op_matmul(&p, x, SQUARE);
        const gm_val v = gm_op_matmul(&p, linked ? x : other, SQUARE);
        const gm_val a = gm_op_norm_add(&p, q, k, &norm), b = gm_op_norm_add(&p, v, other, &norm);
        check_groups(&p, gm_op_norm_add(&p, a, b, &norm),
                     linked
                         ? "input_given|input_given|qkv|norm_add|norm_add|norm_add|pick_rows|output"
                         : "input_given|input_given|matmul|matmul|matmul|norm_add|norm_add|"
                           "norm_add|pick_rows|output");
    }
}

static void test_attention(void **state)
{
    (void)state;
    for (int linked = 0; linked < 2; linked++) {
        gm_plan p = fresh();
        const gm_val x = gm_op_input_given(&p, 32);
        const gm_val q = gm_op_norm_rope(&p, x, &head_norm, &rope);
        const gm_val k = gm_op_norm_rope(&p, x, &head_norm, &rope);
        const gm_val cache = gm_op_cache(&p, 0, linked ? k : x, x, &attn);
        const gm_val a = gm_op_attend(&p, q, cache, &attn);
        check_groups(&p, gm_op_norm_add(&p, k, a, &norm),
                     linked ? "input_given|rope-store-attend|norm_add|pick_rows|output"
                            : "input_given|norm_rope|norm_rope|cache|attend|norm_add|pick_rows|"
                              "output");
    }
}

static void test_head(void **state)
{
    (void)state;
    for (int cap = 0; cap < 2; cap++) {
        gm_plan p = fresh();
        const gm_val y = gm_op_pick_rows(&p, gm_op_input_given(&p, 32));
        gm_val logits = gm_op_matmul(&p, y, SQUARE);
        if (cap) logits = gm_op_softcap(&p, logits, 30);
        check_groups(&p, gm_op_draw(&p, logits),
                     cap ? "input_given|pick_rows|head-cap-draw|output"
                         : "input_given|pick_rows|head-draw|output");
    }
    gm_plan p = fresh();
    const gm_val y = gm_op_pick_rows(&p, gm_op_input_given(&p, 32));
    const gm_val logits = gm_op_matmul(&p, y, SQUARE), token = gm_op_draw(&p, y);
    gm_op_output(&p, GM_OUT_LOGITS, logits);
    check_groups(&p, token, "input_given|pick_rows|matmul|draw|output|output");
}

/* Gemma 3 as the models of tests/golden have it: five groups a layer, always the same. */
static void check_model(const char *name)
{
    char path[200];
    gm_model *m = NULL;
    gm_err err = {0};
    snprintf(path, sizeof path, "tests/golden/%s", name);
    if (gm_model_open(&m, path, &err) != GM_OK) fail_msg("%s", err.msg);
    const gm_plan *const p = &m->plan;
    static const char *const layer[] = {"qkv", "rope-store-attend", "proj-norm-add-norm",
                                        "gate-up-gelu", "proj-norm-add-norm"};
    const uint32_t n_layer = m->config.n_layer;
    size_t g = 0;
    assert_string_equal(p->groups[g++].name, "embed-norm");
    for (uint32_t l = 0; l < n_layer; l++) {
        for (size_t i = 0; i < 5; i++) {
            const int last = l + 1 == n_layer && i == 4;
            assert_string_equal(p->groups[g++].name, last ? "proj-norm-add" : layer[i]);
        }
    }
    assert_string_equal(p->groups[g++].name, "pick-norm");
    assert_string_equal(p->groups[g++].name, m->config.softcap > 0 ? "head-cap-draw" : "head-draw");
    for (int i = 0; i < 3; i++)
        assert_string_equal(p->groups[g++].name, "output");
    assert_int_equal(g, p->n_groups);
    gm_model_close(m);
}

static void test_gemma3(void **state)
{
    (void)state;
    check_model("one_layer");
    check_model("softcap");
    check_model("untied");
    check_model("layer_types");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_products_not_linked),
        cmocka_unit_test(test_qkv),      cmocka_unit_test(test_attention),
        cmocka_unit_test(test_head),     cmocka_unit_test(test_gemma3),
    };
    return cmocka_run_group_tests_name("t_fuse", tests, setup, NULL);
}
