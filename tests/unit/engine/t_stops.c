/* SPDX-License-Identifier: MIT */
/* Stop strings against the plain definition: the answer ends before the stop
 * string that begins first, however the text is cut into pieces. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "engine/stops.h"
#include "fixtures/tinymodel.h"

enum { CHUNK = 8 };

typedef struct fixture {
    gm_arena arena;
    gm_stops stops;
    gm_strbuf out;
    gm_err err;
} fixture;

static void begin(fixture *f, const char *const *strings, uint32_t n)
{
    *f = (fixture){0};
    if (gm_stops_init(&f->stops, strings, n, CHUNK, &f->arena, &f->err) != GM_OK)
        fail_msg("%s", f->err.msg);
}

static void end(fixture *f)
{
    gm_stops_deinit(&f->stops);
    gm_strbuf_deinit(&f->out);
    gm_arena_deinit(&f->arena);
}

static bool put(fixture *f, const char *text)
{
    return gm_stops_put(&f->stops, gm_str_c(text), &f->out);
}

static void assert_out(const fixture *f, const char *expected)
{
    assert_string_equal(gm_strbuf_str(&f->out).p, expected);
}

/* ---- by hand --------------------------------------------------------------------------- */

static void test_no_stops(void **state)
{
    (void)state;
    fixture f;
    begin(&f, NULL, 0);
    assert_false(put(&f, "one "));
    assert_out(&f, "one ");
    assert_false(put(&f, "two"));
    assert_false(gm_stops_end(&f.stops, &f.out));
    assert_out(&f, "one two");
    end(&f);
}

static void test_across_borders(void **state)
{
    (void)state;
    fixture f;
    begin(&f, (const char *const[]){"END"}, 1);
    assert_false(put(&f, "xE"));
    assert_out(&f, "x");
    assert_false(put(&f, "N"));
    assert_out(&f, "x");
    assert_false(put(&f, "EN"));
    assert_out(&f, "xEN");
    assert_true(put(&f, "D and more"));
    assert_out(&f, "xEN");
    end(&f);
}

/* What was held back comes out when nothing more comes. */
static void test_held_back_text_comes_at_the_end(void **state)
{
    (void)state;
    fixture f;
    begin(&f, (const char *const[]){"\n\nUser:"}, 1);
    assert_false(put(&f, "a\n\nUs"));
    assert_out(&f, "a");
    assert_false(gm_stops_end(&f.stops, &f.out));
    assert_out(&f, "a\n\nUs");
    assert_false(gm_stops_end(&f.stops, &f.out));
    assert_out(&f, "a\n\nUs");
    end(&f);
}

static void test_stop_behind_the_beginning_of_another(void **state)
{
    (void)state;
    static const char *const both[] = {"abcdef", "cd"};
    fixture f;
    begin(&f, both, 2);
    assert_false(put(&f, "-abcd"));
    assert_out(&f, "-");
    assert_true(put(&f, "x"));
    assert_out(&f, "-ab");
    end(&f);
    begin(&f, both, 2);
    assert_false(put(&f, "-abcd"));
    assert_true(put(&f, "ef"));
    assert_out(&f, "-");
    end(&f);
    begin(&f, both, 2);
    assert_false(put(&f, "-abcd"));
    assert_true(gm_stops_end(&f.stops, &f.out));
    assert_out(&f, "-ab");
    end(&f);
}

static void test_empty_strings_are_refused(void **state)
{
    (void)state;
    fixture f = {0};
    assert_int_equal(
        gm_stops_init(&f.stops, (const char *const[]){"a", ""}, 2, CHUNK, &f.arena, &f.err),
        GM_E_ARG);
    assert_non_null(strstr(f.err.msg, "stop"));
    end(&f);
}

/* ---- by definition --------------------------------------------------------------------- */

/* Where the answer ends by the definition, or its length; *stopped says which. */
static size_t cut_at(const char *text, const char *const *strings, uint32_t n, bool *stopped)
{
    for (size_t i = 0; text[i]; i++) {
        for (uint32_t k = 0; k < n; k++) {
            if (strncmp(text + i, strings[k], strlen(strings[k])) == 0) {
                *stopped = true;
                return i;
            }
        }
    }
    *stopped = false;
    return strlen(text);
}

/* Feeds text in random pieces; whether a stop string came, at any time. */
static bool feed(fixture *f, const char *text, uint64_t seed)
{
    const size_t cap = f->stops.held.cap;
    size_t at = 0;
    for (uint64_t i = 0; text[at]; i++) {
        const size_t left = strlen(text + at), want = tiny_random(seed, i) % (CHUNK + 1);
        const gm_str piece = {text + at, want < left ? want : left};
        if (gm_stops_put(&f->stops, piece, &f->out)) return true;
        at += piece.len;
        if (f->stops.n) assert_true(f->stops.held.len < f->stops.longest);
        assert_int_equal(f->stops.held.cap, cap);
        assert_int_equal(f->out.len + f->stops.held.len, at);
    }
    return gm_stops_end(&f->stops, &f->out);
}

static void test_any_text_in_any_pieces(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 20000; round++) {
        char text[41] = "", stop[3][8] = {""};
        const char *strings[3];
        const uint32_t n_stop = (uint32_t)(1 + tiny_random(round, 0) % 3);
        const size_t len = tiny_random(round, 1) % sizeof text;
        for (size_t i = 0; i < len; i++)
            text[i] = (char)('a' + tiny_random(round, 10 + i) % 3);
        for (uint32_t k = 0; k < n_stop; k++) {
            const size_t n = 1 + tiny_random(round, 2 + k) % 7;
            for (size_t i = 0; i < n; i++)
                stop[k][i] = (char)('a' + tiny_random(round, 100 * (k + 1) + i) % 3);
            strings[k] = stop[k];
        }
        bool stopped = false;
        const size_t cut = cut_at(text, strings, n_stop, &stopped);
        fixture f;
        begin(&f, strings, n_stop);
        const bool found = feed(&f, text, round + 1000000);
        if (found != stopped || f.out.len != cut || memcmp(gm_strbuf_str(&f.out).p, text, cut) != 0)
            fail_msg("round %u: \"%s\" gave \"%s\", expected the first %zu", (unsigned)round, text,
                     gm_strbuf_str(&f.out).p, cut);
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_stops),
        cmocka_unit_test(test_across_borders),
        cmocka_unit_test(test_held_back_text_comes_at_the_end),
        cmocka_unit_test(test_stop_behind_the_beginning_of_another),
        cmocka_unit_test(test_empty_strings_are_refused),
        cmocka_unit_test(test_any_text_in_any_pieces),
    };
    return cmocka_run_group_tests_name("t_stops", tests, NULL, NULL);
}
