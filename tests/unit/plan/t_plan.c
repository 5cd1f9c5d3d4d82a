/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plan/plan.h"

/* Weights without bytes: a plan looks at shapes and types only. */
enum { EMBED, NORM, MAT, HEADNORM, ODDNORM, TALL, SHORT, NONE, EMPTY, N_WEIGHTS };

static gm_tensor weights[N_WEIGHTS];

static gm_tensor tensor(const char *name, gm_qtype type, uint64_t rows, uint64_t cols)
{
    return (gm_tensor){
        .name = name, .type = gm_qtype_find((uint32_t)type), .n_dims = 2, .shape = {rows, cols}};
}

static int setup(void **state)
{
    (void)state;
    weights[EMBED] = tensor("embed", GM_QTYPE_Q8_0, 50, 96);
    weights[NORM] = tensor("norm", GM_QTYPE_F32, 1, 96);
    weights[MAT] = tensor("mat", GM_QTYPE_F16, 96, 96);
    weights[HEADNORM] = tensor("headnorm", GM_QTYPE_F32, 1, 24);
    weights[ODDNORM] = tensor("oddnorm", GM_QTYPE_F32, 1, 3);
    weights[TALL] = tensor("tall", GM_QTYPE_Q4_0, 160, 96);
    weights[SHORT] = tensor("short", GM_QTYPE_Q4_0, 96, 160);
    weights[EMPTY] = tensor("empty", GM_QTYPE_F32, 0, 96);
    weights[NONE] = tensor("none", GM_QTYPE_F32, 1, 32);
    return 0;
}

static const gm_norm norm = {.weight = NORM, .eps = 1e-6f};
static const gm_norm head_norm = {.weight = HEADNORM, .eps = 1e-6f};
static const gm_rope rope = {10000, 1};
static const gm_attn attn = {GM_CLASS_GLOBAL, 4, 2, 24, 0.25f};

static gm_plan fresh(void)
{
    return (gm_plan){.weights = {.at = weights, .n = N_WEIGHTS}};
}

/* The plan is refused with a sentence that has this in it; and nothing later changes that. */
static void check_mistake(gm_plan *p, gm_status code, const char *why)
{
    const size_t n_ops = p->n_ops;
    gm_err err = {0};
    assert_int_equal(gm_op_input_given(p, 32), 0);
    gm_op_output(p, GM_OUT_HIDDEN, 1);
    assert_int_equal(gm_op_norm(p, 12345, &norm), 0);
    assert_int_equal(p->n_ops, n_ops);
    assert_int_equal(gm_plan_finish(p, NULL), code);
    assert_int_equal(gm_plan_finish(p, &err), code);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, why)) fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
    gm_plan_deinit(p);
}

static void test_shapes(void **state)
{
    (void)state;
    gm_plan p = fresh();
    const gm_val x = gm_op_input_rows(&p, EMBED, 3);
    const gm_val q = gm_op_norm_rope(&p, gm_op_matmul(&p, x, MAT), &head_norm, &rope);
    const gm_val kv = gm_op_input_given(&p, 48);
    const gm_val a = gm_op_attend(&p, q, gm_op_cache(&p, 7, kv, kv, &attn), &attn);
    const gm_val y = gm_op_norm_add(&p, x, a, &norm);
    const gm_val f = gm_op_gate_up_gelu(&p, y, TALL, TALL);
    const gm_val z = gm_op_pick_rows(&p, gm_op_matmul(&p, f, SHORT));
    const gm_val logits = gm_op_softcap(&p, gm_op_matmul(&p, gm_op_norm(&p, z, &norm), EMBED), 30);
    const gm_val token = gm_op_draw(&p, logits);
    gm_op_output(&p, GM_OUT_DRAW, token);
    gm_op_output(&p, GM_OUT_LOGITS, logits);
    gm_err err = {0};
    if (gm_plan_finish(&p, &err) != GM_OK) fail_msg("%s", err.msg);
    static const struct {
        uint32_t rows, cols;
        gm_opkind kind;
    } want[] = {{GM_ROWS_ALL, 96, GM_OP_INPUT_ROWS}, {GM_ROWS_ALL, 96, GM_OP_MATMUL},
                {GM_ROWS_ALL, 96, GM_OP_NORM_ROPE},  {GM_ROWS_ALL, 48, GM_OP_INPUT_GIVEN},
                {GM_ROWS_ALL, 48, GM_OP_CACHE},      {GM_ROWS_ALL, 96, GM_OP_ATTEND},
                {GM_ROWS_ALL, 96, GM_OP_NORM_ADD},   {GM_ROWS_ALL, 160, GM_OP_GATE_UP_GELU},
                {GM_ROWS_ALL, 96, GM_OP_MATMUL},     {GM_ROWS_OUT, 96, GM_OP_PICK_ROWS},
                {GM_ROWS_OUT, 96, GM_OP_NORM},       {GM_ROWS_OUT, 50, GM_OP_MATMUL},
                {GM_ROWS_OUT, 50, GM_OP_SOFTCAP},    {GM_ROWS_OUT, 1, GM_OP_DRAW}};
    assert_int_equal(p.n_vals, 1 + sizeof want / sizeof *want);
    for (gm_val v = 1; v < p.n_vals; v++) {
        assert_int_equal(p.vals[v].rows, want[v - 1].rows);
        assert_int_equal(p.vals[v].cols, want[v - 1].cols);
        assert_int_equal(p.ops[p.vals[v].op].kind, want[v - 1].kind);
        assert_int_equal(p.ops[p.vals[v].op].out, v);
        assert_int_equal(p.vals[v].is_cache, want[v - 1].kind == GM_OP_CACHE);
    }
    assert_int_equal(p.ops[p.vals[a].op].layer, 7);
    assert_int_equal(p.outputs[GM_OUT_DRAW], token);
    assert_int_equal(p.outputs[GM_OUT_LOGITS], logits);
    assert_int_equal(p.outputs[GM_OUT_HIDDEN], 0);
    gm_plan_deinit(&p);
    gm_plan_deinit(&p);
}

/* Numerics follow from the weights' types. */
static void test_numerics(void **state)
{
    (void)state;
    gm_plan p = fresh();
    const gm_val x = gm_op_input_given(&p, 96);
    const gm_val plain = gm_op_matmul(&p, x, MAT), quantised = gm_op_matmul(&p, x, TALL);
    const gm_val both = gm_op_gate_up_gelu(&p, x, MAT, MAT);
    assert_int_equal(p.ops[p.vals[plain].op].num.act[0], GM_ACT_F32);
    assert_int_equal(p.ops[p.vals[quantised].op].num.act[0], GM_ACT_INT8_TWICE);
    assert_int_equal(p.ops[p.vals[both].op].num.act[1], GM_ACT_F32);
    assert_int_equal(p.ops[p.vals[both].op].num.k_parts, 1);
    gm_plan_deinit(&p);
}

static void test_weights(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_op_input_rows(&p, N_WEIGHTS, 1);
    check_mistake(&p, GM_E_ARG, "weight that the model does not have");
    p = fresh();
    gm_op_matmul(&p, gm_op_input_given(&p, 96), GM_NO_WEIGHT);
    check_mistake(&p, GM_E_ARG, "weight that the model does not have");
    p = fresh();
    gm_op_norm(&p, gm_op_input_given(&p, 64), &norm);
    check_mistake(&p, GM_E_FORMAT, "tensor norm is [1, 96], expected [1, 64]");
    p = fresh();
    gm_op_norm(&p, gm_op_input_given(&p, 96), &(gm_norm){.weight = MAT});
    check_mistake(&p, GM_E_FORMAT, "tensor mat is [96, 96], expected [1, 96]");
    p = fresh();
    gm_op_matmul(&p, gm_op_input_given(&p, 96), SHORT);
    check_mistake(&p, GM_E_FORMAT, "tensor short is [96, 160], expected [96, 96]");
    p = fresh();
    gm_op_gate_up_gelu(&p, gm_op_input_given(&p, 96), TALL, MAT);
    check_mistake(&p, GM_E_FORMAT, "tensor mat is [96, 96], expected [160, 96]");
    p = fresh();
    gm_op_matmul(&p, gm_op_input_given(&p, 96), EMPTY);
    check_mistake(&p, GM_E_FORMAT, "tensor empty is [0, 96]");
}

static void test_attention_shapes(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_op_norm_rope(&p, gm_op_input_given(&p, 96), &(gm_norm){.weight = ODDNORM}, &rope);
    check_mistake(&p, GM_E_ARG, "even");
    p = fresh();
    gm_op_norm_rope(&p, gm_op_input_given(&p, 100), &head_norm, &rope);
    check_mistake(&p, GM_E_ARG, "fill the row");
    p = fresh();
    gm_op_cache(&p, 0, gm_op_input_given(&p, 48), gm_op_input_given(&p, 24), &attn);
    check_mistake(&p, GM_E_ARG, "n_kv_head x head_dim");
    p = fresh();
    gm_op_attend(&p, gm_op_input_given(&p, 96), gm_op_input_given(&p, 48), &attn);
    check_mistake(&p, GM_E_ARG, "wants a cache");
    static const struct {
        gm_attn attn;
        uint32_t q_cols;
        const char *why;
    } wrong[] = {
        {{GM_CLASS_GLOBAL, 3, 2, 24, 1}, 96, "n_head x head_dim"},
        {{GM_CLASS_GLOBAL, 5, 2, 24, 1}, 120, "share evenly"},
        {{GM_CLASS_GLOBAL, 8, 2, 12, 1}, 96, "differ in class or heads"},
        {{GM_CLASS_GLOBAL, 4, 1, 24, 1}, 96, "differ in class or heads"},
        {{GM_CLASS_GLOBAL, 4, 0, 24, 1}, 96, "differ in class or heads"},
        {{GM_CLASS_LOCAL, 4, 2, 24, 1}, 96, "differ in class or heads"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        p = fresh();
        const gm_val kv = gm_op_input_given(&p, 48);
        const gm_val cache = gm_op_cache(&p, 0, kv, kv, &attn);
        gm_op_attend(&p, gm_op_input_given(&p, wrong[i].q_cols), cache, &wrong[i].attn);
        check_mistake(&p, GM_E_ARG, wrong[i].why);
    }
    p = fresh();
    const gm_val kv = gm_op_input_given(&p, 48);
    gm_op_norm(&p, gm_op_cache(&p, 0, kv, kv, &attn), &norm);
    check_mistake(&p, GM_E_ARG, "a cache stands where a matrix is wanted");
}

static void test_rows(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_op_pick_rows(&p, gm_op_pick_rows(&p, gm_op_input_given(&p, 96)));
    check_mistake(&p, GM_E_ARG, "picked twice");
    p = fresh();
    gm_op_draw(&p, gm_op_input_given(&p, 96));
    check_mistake(&p, GM_E_ARG, "picked rows");
    p = fresh();
    gm_op_output(&p, GM_OUT_HIDDEN, gm_op_input_given(&p, 96));
    check_mistake(&p, GM_E_ARG, "picked rows");
    p = fresh();
    gm_val x = gm_op_input_given(&p, 96);
    gm_op_norm_add(&p, x, gm_op_pick_rows(&p, x), &norm);
    check_mistake(&p, GM_E_ARG, "differ in shape");
    p = fresh();
    x = gm_op_input_given(&p, 96);
    gm_op_norm_add(&p, gm_op_input_given(&p, 32), x, &norm);
    check_mistake(&p, GM_E_ARG, "differ in shape");
}

/* Positions belong to the step's rows: what is rotated, cached or attends must be all of them. */
static void test_positions_need_all_rows(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_op_norm_rope(&p, gm_op_pick_rows(&p, gm_op_input_given(&p, 96)), &head_norm, &rope);
    check_mistake(&p, GM_E_ARG, "all rows");
    for (int which = 0; which < 2; which++) {
        p = fresh();
        const gm_val all = gm_op_input_given(&p, 48), picked = gm_op_pick_rows(&p, all);
        gm_op_cache(&p, 0, which ? all : picked, which ? picked : all, &attn);
        check_mistake(&p, GM_E_ARG, "all rows");
    }
    p = fresh();
    const gm_val kv = gm_op_input_given(&p, 48);
    const gm_val cache = gm_op_cache(&p, 0, kv, kv, &attn);
    gm_op_attend(&p, gm_op_pick_rows(&p, gm_op_input_given(&p, 96)), cache, &attn);
    check_mistake(&p, GM_E_ARG, "all rows");
}

static void test_outputs(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_val x = gm_op_pick_rows(&p, gm_op_input_given(&p, 96));
    gm_op_output(&p, GM_OUT_HIDDEN, x);
    gm_op_output(&p, GM_OUT_HIDDEN, x);
    check_mistake(&p, GM_E_ARG, "declared twice");
    p = fresh();
    x = gm_op_pick_rows(&p, gm_op_input_given(&p, 96));
    gm_op_output(&p, GM_OUTS, x);
    check_mistake(&p, GM_E_ARG, "unknown");
    p = fresh();
    gm_op_softcap(&p, gm_op_input_given(&p, 96), 0);
    check_mistake(&p, GM_E_ARG, "soft cap");
}

static void test_nothing_hangs_loose(void **state)
{
    (void)state;
    gm_plan p = fresh();
    gm_err err = {0};
    assert_int_equal(gm_plan_finish(&p, &err), GM_E_ARG);
    assert_string_equal(err.msg, "plan: it has no ops");
    p = fresh();
    const gm_val x = gm_op_input_given(&p, 96);
    gm_op_norm(&p, x, &norm);
    gm_op_output(&p, GM_OUT_HIDDEN, gm_op_pick_rows(&p, x));
    assert_int_equal(gm_plan_finish(&p, &err), GM_E_ARG);
    assert_string_equal(err.msg, "plan: the result of op 1 (norm) is never read");
    gm_plan_deinit(&p);
    /* A value that nobody made, where no mistake was made before. */
    static const gm_val loose[] = {0, 3, 12345, UINT32_MAX};
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++) {
        p = fresh();
        gm_op_output(&p, GM_OUT_HIDDEN, gm_op_pick_rows(&p, gm_op_input_given(&p, 96)));
        gm_op_output(&p, GM_OUT_LOGITS, loose[i]);
        check_mistake(&p, GM_E_ARG, "value");
    }
    p = fresh();
    gm_op_input_given(&p, 0);
    check_mistake(&p, GM_E_ARG, "plan");
}

static void test_print(void **state)
{
    (void)state;
    gm_plan p = fresh();
    const gm_val x = gm_op_input_rows(&p, EMBED, 2);
    const gm_val k = gm_op_input_given(&p, 48);
    const gm_val q = gm_op_norm_rope(&p, gm_op_norm(&p, x, &norm), &head_norm, &(gm_rope){1e6f, 8});
    const gm_val a = gm_op_attend(&p, q, gm_op_cache(&p, 3, k, k, &attn), &attn);
    const gm_val y = gm_op_pick_rows(&p, gm_op_gate_up_gelu(&p, a, TALL, TALL));
    gm_op_output(&p, GM_OUT_HIDDEN, y);
    gm_err err = {0};
    if (gm_plan_finish(&p, &err) != GM_OK) fail_msg("%s", err.msg);
    gm_strbuf out = {0};
    gm_plan_print(&p, &out);
    assert_string_equal(out.p, "input_rows\n"
                               "    %1 [n, 96] = input_rows embed:q8_0\n"
                               "input_given\n"
                               "    %2 [n, 48] = input_given\n"
                               "norm\n"
                               "    %3 [n, 96] = norm %1 norm:f32\n"
                               "norm_rope\n"
                               "    %4 [n, 96] = norm_rope %3 headnorm:f32 theta 1e+06 / 8\n"
                               "cache\n"
                               "    %5 [n, 48] = cache %2 %2 layer 3 global\n"
                               "attend\n"
                               "    %6 [n, 96] = attend %4 %5 layer 3 global\n"
                               "gate-up-gelu\n"
                               "    %7 [n, 160] = gate_up_gelu %6 tall:q4_0 tall:q4_0 int8\n"
                               "pick_rows\n"
                               "    %8 [out, 160] = pick_rows %7\n"
                               "output\n"
                               "    output %8\n");
    gm_strbuf_deinit(&out);
    gm_plan_deinit(&p);
}

/* What is left of a plan is what the inputs of its products need, under the same numbers. */
static void test_taps(void **state)
{
    (void)state;
    gm_plan whole = fresh(), p = {0};
    const gm_val x = gm_op_input_rows(&whole, EMBED, 3), h = gm_op_norm(&whole, x, &norm);
    const gm_val a = gm_op_matmul(&whole, h, MAT), b = gm_op_matmul(&whole, h, MAT);
    const gm_val f = gm_op_gate_up_gelu(&whole, gm_op_norm_add(&whole, a, b, &norm), TALL, TALL);
    const gm_val y = gm_op_pick_rows(&whole, gm_op_matmul(&whole, f, SHORT));
    const gm_val logits = gm_op_matmul(&whole, y, EMBED);
    gm_op_output(&whole, GM_OUT_HIDDEN, y);
    gm_op_output(&whole, GM_OUT_LOGITS, gm_op_softcap(&whole, logits, 30));
    gm_err err = {0};
    assert_int_equal(gm_plan_finish(&whole, &err), GM_OK);
    gm_plan_tap_products(&p, &whole);
    if (gm_plan_finish(&p, &err) != GM_OK) fail_msg("%s", err.msg);
    const gm_val want[] = {h, whole.ops[whole.vals[f].op].in[0], f, y};
    assert_int_equal(p.n_taps, 4);
    assert_int_equal(p.n_vals, logits);
    assert_int_equal(p.outputs[GM_OUT_HIDDEN], 0);
    for (uint32_t i = 0; i < 4; i++) {
        const gm_op *const op = &p.ops[p.n_ops - 4 + i];
        assert_int_equal(op->what, GM_OUT_TAP);
        assert_int_equal(op->in[0], want[i]);
    }
    for (gm_val v = 1; v < p.n_vals; v++)
        assert_memory_equal(&p.vals[v], &whole.vals[v], sizeof p.vals[v]);
    gm_plan_deinit(&p);
    gm_plan_deinit(&whole);
}

static void test_names(void **state)
{
    (void)state;
    for (int k = 1; k < GM_OP_KINDS; k++)
        assert_string_not_equal(gm_opkind_name((gm_opkind)k), "unknown");
    assert_string_equal(gm_opkind_name((gm_opkind)0), "unknown");
    assert_string_equal(gm_opkind_name(GM_OP_KINDS), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),  cmocka_unit_test(test_numerics),
        cmocka_unit_test(test_weights), cmocka_unit_test(test_attention_shapes),
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_positions_need_all_rows),
        cmocka_unit_test(test_outputs), cmocka_unit_test(test_nothing_hangs_loose),
        cmocka_unit_test(test_print),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_taps),
    };
    return cmocka_run_group_tests_name("t_plan", tests, setup, NULL);
}
