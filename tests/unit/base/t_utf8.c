/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "fixtures/chance.h"

/* Writes a code point as the standard's table of bit patterns has it. */
static size_t encode(uint32_t cp, uint8_t *out)
{
    if (cp < 0x80) return out[0] = (uint8_t)cp, 1;
    const size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; cp >>= 6)
        out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)((0xF00u >> n & 0xFF) | cp);
    return n;
}

static bool is_scalar(uint32_t cp)
{
    return cp < 0xD800 || (cp > 0xDFFF && cp <= 0x10FFFF);
}

/* The slow definition of a character: some code point that is written just so. It decodes by the
 * bit patterns alone and asks encode whether that is the way to write it. */
static bool is_character(const uint8_t *p, size_t n, uint32_t *cp)
{
    uint8_t again[4];
    *cp = n == 1 ? p[0] : p[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        *cp = *cp << 6 | (p[i] & 0x3Fu);
    return is_scalar(*cp) && encode(*cp, again) == n && memcmp(p, again, n) == 0;
}

/* By one, two or three bytes: whether some longer character begins with them. Made from all the
 * characters there are, by the first test. */
static bool begins1[1 << 8], begins2[1 << 16], begins3[1 << 24];

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x1FFFFF; cp++) {
        uint8_t u[5] = {0};
        const size_t n = encode(cp, u);
        uint32_t got = 0xABCDEF;
        const size_t len = gm_utf8_read((const char *)u, n, &got);
        assert_int_equal(len, is_scalar(cp) ? n : 0);
        assert_int_equal(got, is_scalar(cp) ? cp : 0xABCDEF);
        if (!is_scalar(cp)) continue;
        assert_int_equal(gm_utf8_len(u[0]), n);
        assert_int_equal(gm_utf8_read((const char *)u, 5, &got), n);
        for (size_t cut = 0; cut < n; cut++)
            assert_int_equal(gm_utf8_read((const char *)u, cut, &got), 0);
        begins1[u[0]] |= n > 1;
        begins2[u[0] << 8 | u[1]] |= n > 2;
        begins3[u[0] << 16 | u[1] << 8 | u[2]] |= n > 3;
    }
}

static void test_every_lead(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 256; b++)
        assert_int_equal(gm_utf8_len((uint8_t)b) > 1, begins1[b]);
}

/* A read gives the shortest character that the bytes begin with, or none. */
static void check_read(const uint8_t *u, size_t n)
{
    uint32_t want = 0, got = 0;
    size_t len = 0;
    for (size_t i = 1; i <= n && !len; i++)
        len = is_character(u, i, &want) ? i : 0;
    const size_t read = gm_utf8_read((const char *)u, n, &got);
    if (read != len || (len && got != want))
        fail_msg("%02x %02x %02x %02x: read %zu, expected %zu", u[0], u[1], u[2], u[3], read, len);
}

/* The length of p's longest end that is a true beginning of a character. */
static size_t unfinished(const uint8_t *p, size_t n)
{
    if (n >= 3 && begins3[p[n - 3] << 16 | p[n - 2] << 8 | p[n - 1]]) return 3;
    if (n >= 2 && begins2[p[n - 2] << 8 | p[n - 1]]) return 2;
    return n >= 1 && begins1[p[n - 1]] ? 1 : 0;
}

static void check_whole(const uint8_t *u, size_t n)
{
    const size_t whole = gm_utf8_whole((const char *)u, n);
    if (whole != n - unfinished(u, n)) {
        fail_msg("%02x %02x %02x %02x (%zu): whole %zu, expected %zu", u[0], u[1], u[2], u[3], n,
                 whole, n - unfinished(u, n));
    }
}

static void test_every_short_string(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < 1 << 24; s++) {
        const uint8_t u[4] = {(uint8_t)(s >> 16), (uint8_t)(s >> 8), (uint8_t)s, 0};
        check_read(u, 3);
        check_whole(u, 3);
        if (u[2] == 0) check_read(u, 2), check_whole(u, 2);
        if (u[1] == 0 && u[2] == 0) check_read(u, 1), check_whole(u, 1);
    }
    assert_int_equal(gm_utf8_whole("", 0), 0);
}

/* The bytes at which something changes, in every order of four. */
static void test_every_string_of_four(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                    0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1,
                                    0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFB, 0xFC, 0xFE, 0xFF};
    const uint32_t n = sizeof bytes;
    for (uint32_t s = 0; s < n * n * n * n; s++) {
        const uint8_t u[4] = {bytes[s / (n * n * n)], bytes[s / (n * n) % n], bytes[s / n % n],
                              bytes[s % n]};
        check_read(u, 4);
        check_whole(u, 4);
    }
}

/* Text cut anywhere: what is whole never ends inside a character, and the rest is under 4 bytes. */
static void test_whole_of_text(void **state)
{
    (void)state;
    chance c = {3};
    uint8_t text[400];
    for (int round = 0; round < 200; round++) {
        size_t border[101] = {0}, n_chars = 0;
        while (n_chars < 100) {
            uint32_t cp = chance_below(&c, 0x110000) >> chance_below(&c, 20);
            if (!is_scalar(cp)) cp = 'x';
            border[n_chars + 1] = border[n_chars] + encode(cp, text + border[n_chars]);
            n_chars++;
        }
        for (size_t cut = 0, at = 0; cut <= border[100]; cut++) {
            while (at < 100 && border[at + 1] <= cut)
                at++;
            assert_int_equal(gm_utf8_whole((const char *)text, cut), border[at]);
        }
    }
}

/* Byte by byte: what is counted is what comes out, with and without somewhere to put it. */
static void test_byte_by_byte(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
        size_t n_whole, n_end;
    } CASES[] = {
        {"ab", "ab", 2, 0},
        {"\xE2\x82\xAC", "\xE2\x82\xAC", 1, 0},
        {"a\xE2\x82", "a\xEF\xBF\xBD\xEF\xBF\xBD", 1, 2},
        {"\xE2\xE2\x82\xAC", "\xEF\xBF\xBD\xE2\x82\xAC", 2, 0},
        {"\x9F\xF0\x9F\x98z", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz", 5, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gm_utf8_part into = {0}, counted = {0};
        gm_strbuf out = {0};
        size_t n = 0, n_counted = 0;
        for (const char *p = CASES[i].bytes; *p; p++) {
            n += gm_utf8_part_put(&into, *p, &out);
            n_counted += gm_utf8_part_put(&counted, *p, NULL);
        }
        assert_int_equal(n, CASES[i].n_whole);
        assert_int_equal(n_counted, CASES[i].n_whole);
        assert_int_equal(gm_utf8_part_end(&into, &out), CASES[i].n_end);
        assert_int_equal(gm_utf8_part_end(&counted, NULL), CASES[i].n_end);
        assert_string_equal(out.p, CASES[i].text);
        gm_strbuf_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),   cmocka_unit_test(test_every_lead),
        cmocka_unit_test(test_every_short_string), cmocka_unit_test(test_every_string_of_four),
        cmocka_unit_test(test_whole_of_text),      cmocka_unit_test(test_byte_by_byte),
    };
    return cmocka_run_group_tests_name("t_utf8", tests, NULL, NULL);
}
