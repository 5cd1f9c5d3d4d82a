/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdlib.h>

#include "base/fp16.h"
#include "fixtures/chance.h"
#include "quant/tensor.h"

/* What GGUF files hold: number, name, values and bytes of a block. */
static const struct {
    uint32_t id;
    const char *name;
    uint32_t len, size;
} known[] = {
    {0, "f32", 1, 4},       {1, "f16", 1, 2},       {30, "bf16", 1, 2},
    {2, "q4_0", 32, 18},    {3, "q4_1", 32, 20},    {6, "q5_0", 32, 22},
    {7, "q5_1", 32, 24},    {8, "q8_0", 32, 34},    {10, "q2_k", 256, 84},
    {11, "q3_k", 256, 110}, {12, "q4_k", 256, 144}, {13, "q5_k", 256, 176},
    {14, "q6_k", 256, 210}, {20, "iq4_nl", 32, 18}, {23, "iq4_xs", 256, 136},
};

#define KNOWN (sizeof known / sizeof *known)

static void test_table(void **state)
{
    (void)state;
    size_t n = 0;
    while (gm_qtype_at(n))
        n++;
    assert_int_equal(n, KNOWN);
    assert_null(gm_qtype_at(SIZE_MAX));
    for (size_t i = 0; i < KNOWN; i++) {
        const gm_qtype_info *const t = gm_qtype_find(known[i].id);
        assert_non_null(t);
        assert_int_equal(t->id, known[i].id);
        assert_string_equal(t->name, known[i].name);
        assert_int_equal(t->block_len, known[i].len);
        assert_int_equal(t->block_size, known[i].size);
        assert_int_equal(t->unpack != NULL, t->block_len > 1);
        assert_true(t->block_len <= GM_QBLOCK_MAX);
        assert_string_equal(gm_qtype_name(known[i].id), known[i].name);
    }
}

static void test_find_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        char upper[16] = {0};
        const size_t len = strlen(known[i].name);
        for (size_t j = 0; j < len; j++)
            upper[j] = (char)toupper(known[i].name[j]);
        const gm_qtype_info *const t = gm_qtype_find(known[i].id);
        assert_ptr_equal(gm_qtype_find_name(gm_str_c(known[i].name)), t);
        assert_ptr_equal(gm_qtype_find_name(gm_str_c(upper)), t);
        assert_null(gm_qtype_find_name((gm_str){upper, len - 1}));
        upper[len] = 'x';
        assert_null(gm_qtype_find_name((gm_str){upper, len + 1}));
    }
    assert_null(gm_qtype_find_name(GM_STR("")));
    assert_null(gm_qtype_find_name(GM_STR("q8_1")));
    assert_null(gm_qtype_find_name(GM_STR("q4\0_0")));
}

/* Types that GGUF has and we do not: no row, but a name for the sentence. */
static void test_unsupported(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        const char *name;
    } others[] = {{9, "q8_1"},     {15, "q8_k"},    {16, "iq2_xxs"},   {17, "iq2_xs"},
                  {18, "iq3_xxs"}, {19, "iq1_s"},   {21, "iq3_s"},     {22, "iq2_s"},
                  {24, "i8"},      {25, "i16"},     {26, "i32"},       {27, "i64"},
                  {28, "f64"},     {29, "iq1_m"},   {34, "tq1_0"},     {35, "tq2_0"},
                  {39, "mxfp4"},   {40, "nvfp4"},   {4, "unknown"},    {5, "unknown"},
                  {31, "unknown"}, {41, "unknown"}, {1000, "unknown"}, {UINT32_MAX, "unknown"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_null(gm_qtype_find(others[i].id));
        assert_string_equal(gm_qtype_name(others[i].id), others[i].name);
    }
}

static void test_row_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        const gm_qtype_info *const t = gm_qtype_find(known[i].id);
        for (uint64_t cols = 0; cols <= 1024; cols++) {
            uint64_t size = 77;
            const bool fits = gm_qtype_row_size(t, cols, &size);
            assert_int_equal(fits, cols % known[i].len == 0);
            assert_int_equal(size, fits ? cols / known[i].len * known[i].size : 0);
        }
        uint64_t size = 77;
        const uint64_t most = UINT64_MAX / known[i].len * known[i].len;
        assert_int_equal(gm_qtype_row_size(t, most, &size), known[i].size < known[i].len);
        if (known[i].size >= known[i].len) assert_int_equal(size, 0);
    }
}

static void test_tensor_shape(void **state)
{
    (void)state;
    const gm_tensor t = {.type = gm_qtype_find(GM_QTYPE_Q4_0), .n_dims = 3, .shape = {3, 5, 96}};
    assert_int_equal(gm_tensor_cols(&t), 96);
    assert_int_equal(gm_tensor_rows(&t), 15);
    assert_int_equal(gm_tensor_row_size(&t), 54);
    const gm_tensor v = {.type = gm_qtype_find(GM_QTYPE_F32), .n_dims = 1, .shape = {7}};
    assert_int_equal(gm_tensor_cols(&v), 7);
    assert_int_equal(gm_tensor_rows(&v), 1);
    assert_int_equal(gm_tensor_row_size(&v), 28);
}

/* Plain floats keep every bit, NaNs and denormals too, at odd addresses and odd lengths. */
static void test_plain_floats(void **state)
{
    (void)state;
    chance c = {5};
    enum { N = 70001 };
    uint8_t *const bytes = malloc(4 * N + 1);
    float *const out = malloc(N * sizeof *out);
    for (size_t i = 0; i < 4 * N + 1; i++)
        bytes[i] = (uint8_t)chance_u32(&c);
    const uint8_t *const row = bytes + 1;
    gm_qtype_expand(gm_qtype_find(GM_QTYPE_F32), row, N, out);
    assert_memory_equal(out, row, N * sizeof *out);
    gm_qtype_expand(gm_qtype_find(GM_QTYPE_F16), row, N, out);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(gm_f32_bits(out[i]), gm_f32_bits(gm_read_f16(row + 2 * i)));
    gm_qtype_expand(gm_qtype_find(GM_QTYPE_BF16), row, N, out);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(gm_f32_bits(out[i]), (uint32_t)gm_read_u16(row + 2 * i) << 16);
    free(bytes);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),        cmocka_unit_test(test_find_name),
        cmocka_unit_test(test_unsupported),  cmocka_unit_test(test_row_size),
        cmocka_unit_test(test_tensor_shape), cmocka_unit_test(test_plain_floats),
    };
    return cmocka_run_group_tests_name("t_qtype", tests, NULL, NULL);
}
