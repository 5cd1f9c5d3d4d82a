/* SPDX-License-Identifier: MIT */
/* Each op of the oracle alone: rows given in, the op, its rows out, compared with
 * the formula of plan/op.h in double. Attention and what steps may do wrong are in
 * t_ref_kv.c and t_ref_step.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/fp16.h"
#include "fixtures/rig.h"
#include "fixtures/slowdot.h"

#define ROWS     5
#define MAX_COLS 512

static const char *const backends[] = {"ref", "ref-int8"};
static float given[ROWS][MAX_COLS];

static gm_step_limits limits_for(uint32_t cols)
{
    return (gm_step_limits){
        .rows = ROWS, .segs = 1, .outs = ROWS, .given = ROWS, .given_cols = cols};
}

/* Ends a plan at x, gives it random rows at odd positions, and answers its result. */
static gm_result through(rig *r, chance *c, const char *backend, uint32_t cols, gm_val x)
{
    const gm_step_limits limits = limits_for(cols);
    gm_op_output(&r->plan, GM_OUT_HIDDEN, gm_op_pick_rows(&r->plan, x));
    rig_open(r, backend, NULL, &limits);
    for (uint32_t i = 0; i < ROWS; i++) {
        chance_normals(c, given[i], cols);
        rig_put_given(r, given[i], 3 + 1000 * i * i * i);
    }
    return rig_run(r);
}

static void check_close(float got, double want, double scale)
{
    if (!(fabs((double)got - want) <= 1e-6 * fmax(scale, fabs(want))))
        fail_msg("%.9g, expected %.9g", (double)got, want);
}

/* NORM by its formula: value i of n. */
static double normed(const float *x, const float *w, const gm_norm *norm, uint32_t n, uint32_t i)
{
    double squares = 0;
    for (uint32_t j = 0; j < n; j++)
        squares += (double)x[j] * (double)x[j];
    return (double)x[i] * ((double)w[i] + (double)norm->offset) /
           sqrt(squares / n + (double)norm->eps);
}

static void test_norm(void **state)
{
    (void)state;
    chance c = {21};
    static const uint32_t widths[] = {1, 36, 70, 257};
    for (uint32_t k = 0; k < 16; k++) {
        rig r = {0};
        const uint32_t cols = widths[k % 4];
        const gm_qtype types[] = {GM_QTYPE_F32, GM_QTYPE_BF16};
        const gm_norm norm = {.weight = rig_weight(&r, &c, types[k / 8], 1, cols),
                              .eps = k & 4 ? 1e-6f : 0.5f,
                              .offset = k & 4 ? 1.0f : 0.0f};
        float w[MAX_COLS];
        const gm_val x = gm_op_input_given(&r.plan, cols);
        const gm_result out = through(&r, &c, backends[k % 2], cols, gm_op_norm(&r.plan, x, &norm));
        rig_weight_row(&r, norm.weight, 0, w);
        for (uint32_t i = 0; i < ROWS * cols; i++) {
            const double want = normed(given[i / cols], w, &norm, cols, i % cols);
            check_close(out.out[i / cols].hidden[i % cols], want, 0);
        }
        rig_close(&r);
    }
}

static void test_norm_add(void **state)
{
    (void)state;
    chance c = {22};
    rig r = {0};
    enum { COLS = 70 };
    const gm_norm first = {.weight = rig_weight(&r, &c, GM_QTYPE_F32, 1, COLS), .eps = 1e-6f};
    const gm_norm second = {.weight = rig_weight(&r, &c, GM_QTYPE_F16, 1, COLS), .offset = 1};
    const gm_val x = gm_op_input_given(&r.plan, COLS);
    const gm_val y = gm_op_norm(&r.plan, x, &first);
    const gm_result out = through(&r, &c, "ref", COLS, gm_op_norm_add(&r.plan, x, y, &second));
    float w[2][COLS];
    rig_weight_row(&r, first.weight, 0, w[0]);
    rig_weight_row(&r, second.weight, 0, w[1]);
    for (uint32_t i = 0; i < ROWS; i++) {
        float mid[COLS];
        for (uint32_t j = 0; j < COLS; j++)
            mid[j] = (float)normed(given[i], w[0], &first, COLS, j);
        for (uint32_t j = 0; j < COLS; j++) {
            const double want = (double)given[i][j] + normed(mid, w[1], &second, COLS, j);
            check_close(out.out[i].hidden[j], want, 3);
        }
    }
    rig_close(&r);
}

static void test_softcap(void **state)
{
    (void)state;
    chance c = {23};
    rig r = {0};
    const gm_val x = gm_op_input_given(&r.plan, 33);
    const gm_result out = through(&r, &c, "ref", 33, gm_op_softcap(&r.plan, x, 0.75f));
    for (uint32_t i = 0; i < ROWS * 33; i++) {
        const double want = 0.75 * tanh((double)given[i / 33][i % 33] / 0.75);
        check_close(out.out[i / 33].hidden[i % 33], want, 0);
    }
    rig_close(&r);
}

/* Heads of odd halves, positions to the end of a long context, and the factor of large models. */
static void test_norm_rope(void **state)
{
    (void)state;
    chance c = {24};
    static const struct {
        uint32_t heads, dim;
        gm_rope rope;
    } cases[] = {
        {3, 10, {10000, 1}}, {1, 256, {1e6f, 8}}, {5, 2, {1e6f, 1}}, {2, 70, {1e4f, 2.5f}}};
    static const uint32_t pos[ROWS] = {0, 1, 511, 40000, 131071};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        rig r = {0};
        const uint32_t dim = cases[k].dim, cols = cases[k].heads * dim;
        const gm_norm norm = {.weight = rig_weight(&r, &c, GM_QTYPE_F32, 1, dim), .eps = 1e-6f};
        const gm_step_limits limits = limits_for(cols);
        const gm_val x = gm_op_input_given(&r.plan, cols);
        const gm_val y = gm_op_norm_rope(&r.plan, x, &norm, &cases[k].rope);
        gm_op_output(&r.plan, GM_OUT_HIDDEN, gm_op_pick_rows(&r.plan, y));
        rig_open(&r, "ref", NULL, &limits);
        for (uint32_t i = 0; i < ROWS; i++) {
            chance_normals(&c, given[i], cols);
            rig_put_given(&r, given[i], pos[i]);
        }
        const gm_result out = rig_run(&r);
        float w[256];
        rig_weight_row(&r, norm.weight, 0, w);
        for (uint32_t i = 0; i < ROWS * cols / 2; i++) {
            const uint32_t row = i / (cols / 2), head = i % (cols / 2) / (dim / 2);
            const uint32_t j = i % (dim / 2), at = head * dim;
            const double a = normed(given[row] + at, w, &norm, dim, j);
            const double b = normed(given[row] + at, w, &norm, dim, j + dim / 2);
            const double angle = pos[row] / (double)cases[k].rope.factor /
                                 pow((double)cases[k].rope.theta, 2.0 * j / dim);
            const float *const got = out.out[row].hidden + at;
            check_close(got[j], cos(angle) * a - sin(angle) * b, hypot(a, b));
            check_close(got[j + dim / 2], sin(angle) * a + cos(angle) * b, hypot(a, b));
        }
        rig_close(&r);
    }
}

/* What a product of row x with a weight's row is, bit for bit, in either arithmetic. */
static float product(const rig *r, bool int8, bool twice, gm_wid w, uint32_t i, const float *x)
{
    const gm_tensor *const t = &r->tensors[w];
    const size_t n = gm_tensor_cols(t);
    float row[MAX_COLS], scale[MAX_COLS / GM_ACT_BLOCK];
    int8_t q[MAX_COLS];
    rig_weight_row(r, w, i, row);
    if (!int8) {
        double sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += (double)row[j] * (double)x[j];
        return (float)sum;
    }
    if (t->type->unpack) {
        const gm_act8 x8 = {q, scale};
        const uint8_t *const bytes = t->data + i * gm_tensor_row_size(t);
        gm_act8_quantise(x, n, &x8);
        const float first = slowdot_int8(t->type, bytes, &x8, n);
        if (!twice) return first;
        float rest[MAX_COLS];
        for (size_t j = 0; j < n; j++)
            rest[j] = x[j] - scale[j / GM_ACT_BLOCK] * (float)q[j];
        gm_act8_quantise(rest, n, &x8);
        return first + slowdot_int8(t->type, bytes, &x8, n);
    }
    return slowdot_f32(row, x, n);
}

/* Every type, odd numbers of rows and blocks, both arithmetics: equal to the last bit. */
static void test_matmul(void **state)
{
    (void)state;
    chance c = {25};
    for (size_t k = 0; gm_qtype_at(k / 2); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k / 2);
        const uint32_t cols = t->block_len == 1 ? 70 : t->block_len == 32 ? 96 : 512;
        rig r = {0};
        const gm_wid w = rig_weight(&r, &c, t->id, 11, cols);
        const gm_val x = gm_op_input_given(&r.plan, cols);
        const gm_result out = through(&r, &c, backends[k % 2], cols, gm_op_matmul(&r.plan, x, w));
        for (uint32_t i = 0; i < ROWS * 11; i++) {
            const float want = product(&r, k % 2, true, w, i % 11, given[i / 11]);
            assert_int_equal(gm_f32_bits(out.out[i / 11].hidden[i % 11]), gm_f32_bits(want));
        }
        rig_close(&r);
    }
}

static double gelu(double z)
{
    return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
}

/* Gate and up of the same type, and of two types: each keeps its own arithmetic. */
static void test_gate_up_gelu(void **state)
{
    (void)state;
    chance c = {26};
    for (size_t k = 0; gm_qtype_at(k / 4); k++) {
        const gm_qtype_info *const t = gm_qtype_at(k / 4);
        const uint32_t cols = t->block_len == 256 ? 256 : 96;
        rig r = {0};
        const gm_wid gate = rig_weight(&r, &c, t->id, 37, cols);
        const gm_wid up = rig_weight(&r, &c, k & 2 ? GM_QTYPE_F16 : t->id, 37, cols);
        const gm_val x = gm_op_input_given(&r.plan, cols);
        const gm_result out =
            through(&r, &c, backends[k % 2], cols, gm_op_gate_up_gelu(&r.plan, x, gate, up));
        for (uint32_t i = 0; i < ROWS * 37; i++) {
            const double z = (double)product(&r, k % 2, false, gate, i % 37, given[i / 37]);
            const double y = (double)product(&r, k % 2, false, up, i % 37, given[i / 37]);
            /* In float32 the tail of gelu, where it is nearly 0, is only near beside z. */
            check_close(out.out[i / 37].hidden[i % 37], gelu(z) * y, k % 2 ? fabs(z * y) : 0);
        }
        rig_close(&r);
    }
}

/* Rows of the embedding in every type, times the scale, next to given rows, which are not scaled. */
static void test_input_rows(void **state)
{
    (void)state;
    chance c = {27};
    for (size_t k = 0; gm_qtype_at(k); k++) {
        rig r = {0};
        enum { COLS = 256 };
        const gm_wid w = rig_weight(&r, &c, gm_qtype_at(k)->id, 13, COLS);
        const gm_step_limits limits = limits_for(COLS);
        const gm_val x = gm_op_input_rows(&r.plan, w, 25.298221f);
        gm_op_output(&r.plan, GM_OUT_HIDDEN, gm_op_pick_rows(&r.plan, x));
        rig_open(&r, backends[k % 2], NULL, &limits);
        static const uint32_t ids[] = {12, 0, 5};
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(gm_step_put_row(r.step, &(gm_step_row){.src = ids[i]}));
            const gm_step_out out = {.row = i, .want = GM_WANT_HIDDEN, .mask = GM_NO_MASK};
            assert_true(gm_step_put_out(r.step, &out));
        }
        chance_normals(&c, given[0], COLS);
        rig_put_given(&r, given[0], 9);
        const gm_result out = rig_run(&r);
        for (uint32_t i = 0; i < 3 * COLS; i++) {
            float row[COLS];
            rig_weight_row(&r, w, ids[i / COLS], row);
            assert_true(out.out[i / COLS].hidden[i % COLS] == row[i % COLS] * 25.298221f);
        }
        assert_memory_equal(out.out[3].hidden, given[0], sizeof(float) * COLS);
        rig_close(&r);
    }
}

/* Outputs name rows in any order and more than once; nobody asked is answered NULL. */
static void test_pick_rows(void **state)
{
    (void)state;
    chance c = {28};
    rig r = {0};
    enum { COLS = 7 };
    const gm_step_limits limits = limits_for(COLS);
    gm_op_output(&r.plan, GM_OUT_HIDDEN,
                 gm_op_pick_rows(&r.plan, gm_op_input_given(&r.plan, COLS)));
    rig_open(&r, "ref", NULL, &limits);
    static const uint32_t rows[ROWS] = {4, 0, 4, 2, 1};
    for (uint32_t i = 0; i < ROWS; i++) {
        gm_step_row row = {.kind = GM_ROW_GIVEN};
        chance_normals(&c, given[i], COLS);
        assert_true(gm_step_put_given(r.step, given[i], &row.src));
        assert_true(gm_step_put_row(r.step, &row));
        const gm_step_out out = {
            .row = rows[i], .want = i == 3 ? 0 : GM_WANT_HIDDEN, .mask = GM_NO_MASK};
        assert_true(gm_step_put_out(r.step, &out));
    }
    const gm_result out = rig_run(&r);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(out.out[i].token, -1);
        assert_null(out.out[i].logits);
        if (i == 3)
            assert_null(out.out[i].hidden);
        else
            assert_memory_equal(out.out[i].hidden, given[rows[i]], sizeof(float) * COLS);
    }
    rig_close(&r);
}

/* An output is declared, then its value is read on: it is still there at the end. */
static void test_outputs_outlive_their_readers(void **state)
{
    (void)state;
    chance c = {29};
    rig r = {0};
    enum { COLS = 36 };
    const gm_norm norm = {.weight = rig_weight(&r, &c, GM_QTYPE_F32, 1, COLS), .eps = 1e-6f};
    const gm_step_limits limits = limits_for(COLS);
    gm_val x = gm_op_pick_rows(&r.plan, gm_op_input_given(&r.plan, COLS));
    gm_op_output(&r.plan, GM_OUT_HIDDEN, x);
    for (int i = 0; i < 4; i++)
        x = gm_op_norm(&r.plan, x, &norm);
    gm_op_output(&r.plan, GM_OUT_LOGITS, x);
    rig_open(&r, "ref", NULL, &limits);
    chance_normals(&c, given[0], COLS);
    rig_put_given(&r, given[0], 0);
    const gm_result out = rig_run(&r);
    assert_memory_equal(out.out[0].hidden, given[0], sizeof(float) * COLS);
    assert_non_null(out.out[0].logits);
    rig_close(&r);
}

/* A row's bits do not depend on its neighbours or its place in the step. */
static void test_rows_are_alone(void **state)
{
    (void)state;
    chance c = {30};
    rig r = {0};
    enum { COLS = 96 };
    const gm_norm norm = {.weight = rig_weight(&r, &c, GM_QTYPE_F32, 1, COLS), .eps = 1e-6f};
    const gm_wid gate = rig_weight(&r, &c, GM_QTYPE_Q4_0, 64, COLS);
    const gm_wid up = rig_weight(&r, &c, GM_QTYPE_Q5_1, 64, COLS);
    const gm_wid down = rig_weight(&r, &c, GM_QTYPE_Q8_0, COLS, 64);
    const gm_step_limits limits = limits_for(COLS);
    const gm_val x = gm_op_input_given(&r.plan, COLS);
    const gm_val h = gm_op_gate_up_gelu(&r.plan, gm_op_norm(&r.plan, x, &norm), gate, up);
    const gm_val y = gm_op_norm_add(&r.plan, x, gm_op_matmul(&r.plan, h, down), &norm);
    gm_op_output(&r.plan, GM_OUT_HIDDEN, gm_op_pick_rows(&r.plan, y));
    rig_open(&r, "ref-int8", NULL, &limits);
    float together[ROWS][COLS];
    for (uint32_t i = 0; i < ROWS; i++) {
        chance_normals(&c, given[i], COLS);
        rig_put_given(&r, given[i], i);
    }
    gm_result out = rig_run(&r);
    for (uint32_t i = 0; i < ROWS; i++)
        memcpy(together[i], out.out[i].hidden, sizeof together[i]);
    for (uint32_t i = 0; i < ROWS; i++) {
        rig_put_given(&r, given[i], 77);
        out = rig_run(&r);
        assert_memory_equal(out.out[0].hidden, together[i], sizeof together[i]);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_add),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_norm_rope),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_gate_up_gelu),
        cmocka_unit_test(test_input_rows),
        cmocka_unit_test(test_pick_rows),
        cmocka_unit_test(test_outputs_outlive_their_readers),
        cmocka_unit_test(test_rows_are_alone),
    };
    return cmocka_run_group_tests_name("t_ref", tests, NULL, NULL);
}
