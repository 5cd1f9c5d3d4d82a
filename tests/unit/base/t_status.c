/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/status.h"
#include "base/str.h"
#include "base/utf8.h"

static void test_fills(void **state)
{
    (void)state;
    gm_err err = {0};
    assert_int_equal(gm_fail(&err, GM_E_IO, 13, "%s: %d of %u", "file", -3, 7u), GM_E_IO);
    assert_int_equal(err.code, GM_E_IO);
    assert_int_equal(err.os, 13);
    assert_string_equal(err.msg, "file: -3 of 7");
    assert_int_equal(gm_fail(NULL, GM_E_BUSY, 0, "%s", "nobody asks"), GM_E_BUSY);
}

/* What a file holds can be quoted: broken bytes and controls do not reach a terminal. */
static void test_is_printable(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"a\nb\tc\x1b[1m\x7f", "a?b?c?[1m?"},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"\xC3", "?"},
        {"\xE2\x82z", "??z"},
        {"\xC2\x9B"
         "31m",
         "??31m"}, /* U+009B begins a terminal sequence */
        {"\xED\xA0\x80\xFF\xC0\x80", "??????"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gm_err err = {0};
        gm_fail(&err, GM_E_FORMAT, 0, "%s", cases[i].in);
        assert_string_equal(err.msg, cases[i].out);
    }
}

/* A sentence too long loses its beginning, never a part of a character and never its NUL. */
static void test_long_sentences(void **state)
{
    (void)state;
    char text[1200];
    for (size_t lead = 0; lead < 4; lead++) {
        memset(text, 'a', sizeof text);
        for (size_t i = lead; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 4);
        text[sizeof text - 1] = '\0';
        gm_err err = {0};
        gm_fail(&err, GM_E_FORMAT, 0, "%s", text);
        const size_t n = strlen(err.msg);
        assert_true(n >= sizeof err.msg - 4 && n < sizeof err.msg);
        assert_memory_equal(err.msg, "...", 3);
        assert_string_equal(err.msg + 3, text + sizeof text - 1 - (n - 3));
        for (size_t i = 0; i < n;) {
            uint32_t cp = 0;
            const size_t len = gm_utf8_read(err.msg + i, n - i, &cp);
            assert_true(len > 0);
            i += len;
        }
    }
}

/* A path as long as they come leaves room for what is wrong with it. */
static void test_long_paths(void **state)
{
    (void)state;
    char path[4096];
    memset(path, 'p', sizeof path);
    memcpy(path + sizeof path - 12, "/model.gguf", 12);
    gm_err err = {0};
    gm_fail(&err, GM_E_FORMAT, 0, "%s: ends after 7 bytes, expected 24", path);
    assert_memory_equal(err.msg, "...ppp", 6);
    assert_non_null(strstr(err.msg, "ppp/model.gguf: ends after 7 bytes, expected 24"));
}

static gm_status failing(gm_status s, int *after)
{
    GM_TRY(s);
    *after = 1;
    return GM_OK;
}

static gm_status cleaning(gm_status s, int *cleaned)
{
    gm_status status = GM_OK;
    GM_TRY_DONE(s);
    *cleaned = 10;
done:
    ++*cleaned;
    return status;
}

static void test_try(void **state)
{
    (void)state;
    int after = 0, cleaned = 0;
    assert_int_equal(failing(GM_E_LOST, &after), GM_E_LOST);
    assert_int_equal(after, 0);
    assert_int_equal(failing(GM_OK, &after), GM_OK);
    assert_int_equal(after, 1);
    assert_int_equal(cleaning(GM_E_ARG, &cleaned), GM_E_ARG);
    assert_int_equal(cleaned, 1);
    assert_int_equal(cleaning(GM_OK, &cleaned), GM_OK);
    assert_int_equal(cleaned, 11);
}

static void test_str(void **state)
{
    (void)state;
    const gm_str none = {0}, abc = GM_STR("abc");
    assert_true(gm_str_eq(none, gm_str_c("")));
    assert_true(gm_str_eq(abc, gm_str_c("abc")) && !gm_str_eq(abc, GM_STR("abd")));
    assert_false(gm_str_eq(abc, GM_STR("abcd")));
    assert_true(gm_str_starts(abc, GM_STR("ab")) && gm_str_ends(abc, GM_STR("bc")));
    assert_true(gm_str_starts(abc, GM_STR("")) && gm_str_ends(abc, abc));
    assert_true(gm_str_starts(abc, none) && gm_str_ends(abc, none));
    assert_true(gm_str_starts(none, none) && gm_str_ends(none, none));
    assert_false(gm_str_starts(abc, GM_STR("abcd")) || gm_str_ends(abc, GM_STR("xabc")));
    assert_false(gm_str_starts(abc, GM_STR("b")) || gm_str_ends(abc, GM_STR("b")));
    gm_err err = {0};
    char long_name[200];
    memset(long_name, 'n', sizeof long_name);
    gm_fail(&err, GM_E_FORMAT, 0, "%.*s", GM_STR_ARG(((gm_str){long_name, sizeof long_name})));
    assert_int_equal(strlen(err.msg), 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fills),
        cmocka_unit_test(test_is_printable),
        cmocka_unit_test(test_long_sentences),
        cmocka_unit_test(test_long_paths),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_str),
    };
    return cmocka_run_group_tests_name("t_status", tests, NULL, NULL);
}
