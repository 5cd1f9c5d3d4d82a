/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/strbuf.h"

static void test_empty(void **state)
{
    (void)state;
    gm_strbuf b = {0};
    assert_int_equal(gm_strbuf_str(&b).len, 0);
    assert_string_equal(gm_strbuf_str(&b).p, "");
    assert_int_equal(gm_strbuf_status(&b, NULL), GM_OK);
    gm_strbuf_clear(&b);
    gm_strbuf_put(&b, (gm_str){NULL, 0});
    assert_string_equal(b.p, "");
    gm_strbuf_deinit(&b);
    gm_strbuf_deinit(&b);
}

/* Each way of appending, thousands of times, always with a NUL behind. */
static void test_appends(void **state)
{
    (void)state;
    gm_strbuf b = {0};
    size_t len = 0;
    for (int i = 0; i < 3000; i++) {
        gm_strbuf_put(&b, GM_STR("ab\0c"));
        gm_strbuf_putc(&b, (char)i);
        gm_strbuf_printf(&b, "%d%s", i % 10, "");
        len += 6;
        assert_int_equal(b.len, len);
        assert_true(b.cap > b.len);
        assert_int_equal(b.p[b.len], 0);
        assert_memory_equal(b.p + len - 6, "ab\0c", 4);
        assert_int_equal(b.p[len - 2], (char)i);
        assert_int_equal(b.p[len - 1], '0' + i % 10);
    }
    gm_strbuf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.p, "");
    gm_strbuf_printf(&b, "%*d", 5000, 7);
    assert_int_equal(b.len, 5000);
    assert_int_equal(b.p[4999], '7');
    assert_int_equal(gm_strbuf_status(&b, NULL), GM_OK);
    gm_strbuf_deinit(&b);
    assert_null(b.p);
}

/* A failure latches: nothing more is appended until the buffer is cleared. */
static void test_failure_latches(void **state)
{
    (void)state;
    gm_strbuf b = {0};
    gm_err err = {0};
    gm_strbuf_put(&b, GM_STR("kept"));
    gm_strbuf_put(&b, (gm_str){"x", SIZE_MAX - 2});
    assert_int_equal(b.failed, GM_E_NOMEM);
    gm_strbuf_putc(&b, 'y');
    gm_strbuf_printf(&b, "%d", 1);
    assert_string_equal(b.p, "kept");
    assert_int_equal(gm_strbuf_status(&b, &err), GM_E_NOMEM);
    assert_int_equal(err.code, GM_E_NOMEM);
    gm_strbuf_clear(&b);
    gm_strbuf_putc(&b, 'z');
    assert_string_equal(b.p, "z");
    assert_int_equal(gm_strbuf_status(&b, &err), GM_OK);
    gm_strbuf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_appends),
        cmocka_unit_test(test_failure_latches),
    };
    return cmocka_run_group_tests_name("t_strbuf", tests, NULL, NULL);
}
