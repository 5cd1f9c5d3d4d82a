/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "file/meta.h"

/* One value under the key "k" in a file called x.gguf. */
static gm_meta meta_of(gm_metaval v)
{
    gm_meta m = {.file = "x.gguf"};
    v.key = GM_STR("k");
    assert_int_equal(gm_meta_add(&m, &v, NULL), GM_OK);
    return m;
}

static gm_metaval uint_val(uint32_t type, uint64_t u)
{
    return (gm_metaval){.type = type, .n = 1, .u = u};
}

static gm_metaval int_val(uint32_t type, int64_t i)
{
    return (gm_metaval){.type = type, .n = 1, .i = i};
}

static gm_metaval float_val(uint32_t type, double f)
{
    return (gm_metaval){.type = type, .n = 1, .f = f};
}

static gm_metaval str_val(const char *s)
{
    return (gm_metaval){.type = GM_META_STR, .n = 1, .s = gm_str_c(s)};
}

static const uint8_t RAW[] = {0xFE, 0xFF, 0x00, 0x80, 0x01, 0x00, 0x00, 0x00, 0x40};

static gm_metaval array_val(uint32_t elem, uint64_t n)
{
    return (gm_metaval){.type = GM_META_ARRAY, .elem = elem, .n = n, .raw = RAW + 1};
}

static void expect_sentence(const gm_err *err, const char *part)
{
    if (strncmp(err->msg, "x.gguf: key k ", 14) != 0 || !strstr(err->msg, part))
        fail_msg("\"%s\" lacks \"%s\"", err->msg, part);
}

static void u32_ok(gm_metaval v, uint32_t expected)
{
    gm_meta m = meta_of(v);
    uint32_t out = 77;
    bool found = false;
    assert_int_equal(gm_meta_u32(&m, "k", &out, &found, NULL), GM_OK);
    assert_true(found);
    assert_int_equal(out, expected);
    gm_meta_deinit(&m);
}

static void u32_refused(gm_metaval v, const char *part)
{
    gm_meta m = meta_of(v);
    gm_err err = {0};
    uint32_t out = 77;
    assert_int_equal(gm_meta_u32(&m, "k", &out, NULL, &err), GM_E_FORMAT);
    assert_int_equal(out, 77);
    expect_sentence(&err, part);
    gm_meta_deinit(&m);
}

static void u32_takes_integers_that_fit(void **state)
{
    (void)state;
    u32_ok(uint_val(GM_META_U8, 255), 255);
    u32_ok(int_val(GM_META_I8, 127), 127);
    u32_ok(uint_val(GM_META_U16, 65535), 65535);
    u32_ok(int_val(GM_META_I16, 0), 0);
    u32_ok(uint_val(GM_META_U32, UINT32_MAX), UINT32_MAX);
    u32_ok(int_val(GM_META_I32, INT32_MAX), INT32_MAX);
    u32_ok(uint_val(GM_META_U64, UINT32_MAX), UINT32_MAX);
    u32_ok(int_val(GM_META_I64, 1), 1);

    u32_refused(int_val(GM_META_I8, -1), "is -1, expected 0 to 4294967295");
    u32_refused(uint_val(GM_META_U64, UINT64_C(1) << 32), "is 4294967296, expected");
    u32_refused(uint_val(GM_META_U64, UINT64_MAX), "expected 0 to 4294967295");
    u32_refused(int_val(GM_META_I64, INT64_MIN), "expected 0 to 4294967295");
    u32_refused(float_val(GM_META_F32, 1), "has type f32, expected an integer");
    u32_refused(uint_val(GM_META_BOOL, 1), "has type bool, expected an integer");
    u32_refused(str_val("1"), "has type string, expected an integer");
    u32_refused(array_val(GM_META_I16, 1), "has type array of i16, expected an integer");
}

static void f32_ok(gm_metaval v, float expected)
{
    gm_meta m = meta_of(v);
    float out = 77;
    assert_int_equal(gm_meta_f32(&m, "k", &out, NULL, NULL), GM_OK);
    assert_true(out == expected);
    gm_meta_deinit(&m);
}

static void f32_refused(gm_metaval v, const char *part)
{
    gm_meta m = meta_of(v);
    gm_err err = {0};
    float out = 77;
    assert_int_equal(gm_meta_f32(&m, "k", &out, NULL, &err), GM_E_FORMAT);
    assert_true(out == 77);
    expect_sentence(&err, part);
    gm_meta_deinit(&m);
}

static void f32_takes_finite_numbers(void **state)
{
    (void)state;
    f32_ok(float_val(GM_META_F32, 1e-6f), 1e-6f);
    f32_ok(float_val(GM_META_F64, -0.1), -0.1f);
    f32_ok(float_val(GM_META_F64, (double)FLT_MAX), FLT_MAX);
    f32_ok(uint_val(GM_META_U32, 1000000), 1e6f);
    f32_ok(int_val(GM_META_I64, -3), -3.0f);

    f32_refused(float_val(GM_META_F64, 1e39), "is 1e+39, expected a finite f32");
    f32_refused(float_val(GM_META_F32, (double)INFINITY), "is inf, expected a finite f32");
    f32_refused(float_val(GM_META_F32, (double)NAN), "nan, expected a finite f32");
    f32_refused(uint_val(GM_META_BOOL, 1), "has type bool, expected a number");
    f32_refused(str_val("1.0"), "has type string, expected a number");
    f32_refused(array_val(GM_META_F32, 1), "has type array of f32, expected a number");
}

static void bool_takes_only_bools(void **state)
{
    (void)state;
    gm_err err = {0};
    bool out = false;
    gm_meta m = meta_of(uint_val(GM_META_BOOL, 1));
    assert_int_equal(gm_meta_bool(&m, "k", &out, NULL, &err), GM_OK);
    assert_true(out);
    gm_meta_deinit(&m);

    m = meta_of(uint_val(GM_META_U8, 1));
    assert_int_equal(gm_meta_bool(&m, "k", &out, NULL, &err), GM_E_FORMAT);
    expect_sentence(&err, "has type u8, expected bool");
    gm_meta_deinit(&m);
}

static void str_takes_only_strings(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_str out = GM_STR("default");
    gm_meta m = meta_of(str_val("gemma3"));
    assert_int_equal(gm_meta_str(&m, "k", &out, NULL, &err), GM_OK);
    assert_true(gm_str_eq(out, GM_STR("gemma3")));
    gm_meta_deinit(&m);

    m = meta_of(array_val(GM_META_STR, 0));
    assert_int_equal(gm_meta_str(&m, "k", &out, NULL, &err), GM_E_FORMAT);
    expect_sentence(&err, "has type array of string, expected string");
    gm_meta_deinit(&m);
}

static void absent_key_leaves_the_default(void **state)
{
    (void)state;
    const gm_meta m = {.file = "x.gguf"};
    uint32_t u = 5;
    float f = 6;
    bool b = true;
    gm_str s = GM_STR("seven");
    bool found = true;
    assert_null(gm_meta_find(&m, "k"));
    assert_int_equal(gm_meta_u32(&m, "k", &u, &found, NULL), GM_OK);
    assert_false(found);
    assert_int_equal(gm_meta_f32(&m, "k", &f, NULL, NULL), GM_OK);
    assert_int_equal(gm_meta_bool(&m, "k", &b, NULL, NULL), GM_OK);
    assert_int_equal(gm_meta_str(&m, "k", &s, NULL, NULL), GM_OK);
    assert_int_equal(u, 5);
    assert_true(f == 6);
    assert_true(b);
    assert_true(gm_str_eq(s, GM_STR("seven")));
}

static void find_wants_the_whole_key(void **state)
{
    (void)state;
    gm_meta m = {0};
    char keys[40][8];
    for (size_t i = 0; i < 40; i++) {
        snprintf(keys[i], sizeof keys[i], "key.%zu", i);
        const gm_metaval v = {.key = gm_str_c(keys[i]), .type = GM_META_U32, .n = 1, .u = i};
        assert_int_equal(gm_meta_add(&m, &v, NULL), GM_OK);
    }
    assert_int_equal(gm_meta_find(&m, "key.3")->u, 3);
    assert_int_equal(gm_meta_find(&m, "key.39")->u, 39);
    assert_null(gm_meta_find(&m, "key."));
    assert_null(gm_meta_find(&m, "key.399"));
    gm_meta_deinit(&m);
    gm_meta_deinit(&m);
}

/* RAW + 1 is odd, so these are unaligned reads too. */
static void elements_read_by_type(void **state)
{
    (void)state;
    const gm_metaval u8 = array_val(GM_META_U8, 8);
    assert_true(gm_meta_elem(&u8, 0) == 255);
    assert_true(gm_meta_elem(&u8, 7) == 64);
    const gm_metaval i8 = array_val(GM_META_I8, 8);
    assert_true(gm_meta_elem(&i8, 0) == -1);
    assert_true(gm_meta_elem(&i8, 2) == -128);
    const gm_metaval u16 = array_val(GM_META_U16, 4);
    assert_true(gm_meta_elem(&u16, 1) == 0x180);
    const gm_metaval i32 = array_val(GM_META_I32, 2);
    assert_true(gm_meta_elem(&i32, 0) == 0x018000FF);
    assert_true(gm_meta_elem(&i32, 1) == 0x40000000);
    const gm_metaval f32 = array_val(GM_META_F32, 2);
    assert_true(gm_meta_elem(&f32, 1) == 2.0);
    const gm_metaval bools = array_val(GM_META_BOOL, 8);
    assert_true(gm_meta_elem(&bools, 0) == 1);
    assert_true(gm_meta_elem(&bools, 1) == 0);
    const gm_metaval i64 = array_val(GM_META_I64, 1);
    assert_true(gm_meta_elem(&i64, 0) == (double)INT64_C(0x40000000018000FF));

    uint8_t raw[8];
    const double pi = 3.25;
    memcpy(raw, &pi, sizeof raw);
    const gm_metaval f64 = {.type = GM_META_ARRAY, .elem = GM_META_F64, .n = 1, .raw = raw};
    assert_true(gm_meta_elem(&f64, 0) == pi);
    memset(raw, 0xFF, sizeof raw);
    const gm_metaval ones = {.type = GM_META_ARRAY, .elem = GM_META_I64, .n = 1, .raw = raw};
    assert_true(gm_meta_elem(&ones, 0) == -1);
}

static void types_have_names_and_sizes(void **state)
{
    (void)state;
    assert_int_equal(gm_metatype_size(GM_META_BOOL), 1);
    assert_int_equal(gm_metatype_size(GM_META_F64), 8);
    assert_int_equal(gm_metatype_size(GM_META_STR), 0);
    assert_int_equal(gm_metatype_size(GM_META_ARRAY), 0);
    assert_int_equal(gm_metatype_size(13), 0);
    assert_string_equal(gm_metatype_name(GM_META_I16), "i16");
    assert_string_equal(gm_metatype_name(UINT32_MAX), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u32_takes_integers_that_fit),
        cmocka_unit_test(f32_takes_finite_numbers),
        cmocka_unit_test(bool_takes_only_bools),
        cmocka_unit_test(str_takes_only_strings),
        cmocka_unit_test(absent_key_leaves_the_default),
        cmocka_unit_test(find_wants_the_whole_key),
        cmocka_unit_test(elements_read_by_type),
        cmocka_unit_test(types_have_names_and_sizes),
    };
    return cmocka_run_group_tests_name("t_meta", tests, NULL, NULL);
}
