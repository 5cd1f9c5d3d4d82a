/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "vocab_fixture.h"

enum { BYTE = 7, HELLO = 263, SPACES, SPELLED, UNUSED, BROKEN, PADDING };

#define BAD GM_UTF8_REPLACEMENT_STR

static fixture small;
static gm_vocab *vocab;

static int set_up(void **state)
{
    (void)state;
    fixture_gemma(&small, true);
    fixture_piece(&small, GM_STR(GM_SPACE_STR "h\xC3\xA9" GM_SPACE_STR), 0, GM_PIECE_NORMAL);
    fixture_piece(&small, GM_STR("  "), 0, GM_PIECE_USER);
    fixture_piece(&small, GM_STR(GM_SPACE_STR "\n"), 0, GM_PIECE_USER);
    fixture_piece(&small, GM_STR("never"), 0, GM_PIECE_UNUSED);
    fixture_piece(&small, GM_STR("x\xE2\x96"), 0, GM_PIECE_NORMAL);
    return fixture_open(&small, PADDING + 3, &vocab, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    gm_vocab_close(vocab);
    fixture_close(&small);
    return 0;
}

static void text_check(const int32_t *ids, size_t n, gm_str expected)
{
    gm_strbuf out = {0};
    ids_text(vocab, ids, n, &out);
    if (!gm_str_eq(gm_strbuf_str(&out), expected))
        fail_msg("\"%s\" is not \"%s\"", out.p ? out.p : "", expected.p);
    gm_strbuf_deinit(&out);
}

#define TEXT_CHECK(expected, ...)              \
    text_check((const int32_t[]){__VA_ARGS__}, \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), GM_STR(expected))

static void t_pieces(void **state)
{
    (void)state;
    TEXT_CHECK(" h\xC3\xA9 ", HELLO);
    TEXT_CHECK("   \n h\xC3\xA9 ", SPACES, SPELLED, HELLO);
    TEXT_CHECK("", 0, 1, 2, 3, 4, 5, 6, UNUSED, PADDING, PADDING + 2);
    TEXT_CHECK("  ", -1, SPACES, PADDING + 3, INT32_MAX, INT32_MIN);
    /* Bytes that spell U+2581 are that character, not a space. */
    TEXT_CHECK(GM_SPACE_STR, BYTE + 0xE2, BYTE + 0x96, BYTE + 0x81);
    TEXT_CHECK("\0a", BYTE, BYTE + 'a');
}

/* Nothing comes out before a character is whole, and then all of it. */
static void t_whole_characters(void **state)
{
    (void)state;
    static const char *const CHARACTERS[] = {"a",
                                             "\x7F",
                                             "\xC2\x80",
                                             "\xDF\xBF",
                                             "\xE0\xA0\x80",
                                             "\xE2\x82\xAC",
                                             "\xED\x9F\xBF",
                                             "\xEF\xBF\xBF",
                                             "\xF0\x9F\x98\x80",
                                             "\xF4\x8F\xBF\xBF"};
    gm_detok d = {0};
    gm_strbuf out = {0};
    for (size_t c = 0; c < sizeof CHARACTERS / sizeof CHARACTERS[0]; c++) {
        const gm_str whole = gm_str_c(CHARACTERS[c]);
        gm_strbuf_clear(&out);
        for (size_t i = 0; i < whole.len; i++) {
            assert_int_equal(out.len, 0);
            gm_detok_put(&d, vocab, BYTE + (uint8_t)whole.p[i], &out);
            gm_detok_put(&d, vocab, 5, &out); /* control tokens change nothing */
        }
        assert_true(gm_str_eq(gm_strbuf_str(&out), whole));
        assert_int_equal(d.part.n_held, 0);
    }
    gm_detok_end(&d, &out);
    gm_strbuf_deinit(&out);
}

static void t_bad_bytes(void **state)
{
    (void)state;
    TEXT_CHECK(BAD, BYTE + 0x80);
    TEXT_CHECK(BAD BAD "a", BYTE + 0xC0, BYTE + 0xFF, BYTE + 'a');
    TEXT_CHECK(BAD BAD " h\xC3\xA9 ", BYTE + 0xE2, BYTE + 0x82, HELLO);
    TEXT_CHECK(BAD BAD "\xC3\xA9", BYTE + 0xE2, BYTE + 0x82, BYTE + 0xC3, BYTE + 0xA9);
    TEXT_CHECK(BAD BAD BAD, BYTE + 0xED, BYTE + 0xA0, BYTE + 0x80); /* a surrogate */
    TEXT_CHECK(BAD BAD BAD, BYTE + 0xF0, BYTE + 0x9F, BYTE + 0x98); /* cut at the end */
    /* A piece that is not UTF-8 itself, finished by a byte token or not. */
    TEXT_CHECK("x\xE2\x96\x80", BROKEN, BYTE + 0x80);
    TEXT_CHECK("x" BAD BAD "  ", BROKEN, SPACES);
}

/* Any bytes at all: the stream, whatever its steps, is what one go over the bytes gives. */
static void t_random_bytes(void **state)
{
    (void)state;
    static const uint8_t BYTES[] = {'a',  0x80, 0x9F, 0xA0, 0xBF, 0xC3,
                                    0xE0, 0xE2, 0xED, 0xF0, 0xF4};
    uint64_t seed = 9;
    gm_strbuf expected = {0}, got = {0};
    for (int round = 0; round < 3000; round++) {
        char bytes[12];
        int32_t ids[12];
        const size_t n = draw(&seed, 13);
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (char)BYTES[draw(&seed, sizeof BYTES)];
            ids[i] = BYTE + (uint8_t)bytes[i];
        }
        gm_strbuf_clear(&expected);
        for (size_t i = 0, len = 0; i < n; i += len ? len : 1) {
            uint32_t cp = 0;
            len = gm_utf8_read(bytes + i, n - i, &cp);
            gm_strbuf_put(&expected, len ? (gm_str){bytes + i, len} : GM_STR(BAD));
        }
        ids_text(vocab, ids, n, &got);
        assert_true(gm_str_eq(gm_strbuf_str(&got), gm_strbuf_str(&expected)));
    }
    gm_strbuf_deinit(&expected);
    gm_strbuf_deinit(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_pieces),
        cmocka_unit_test(t_whole_characters),
        cmocka_unit_test(t_bad_bytes),
        cmocka_unit_test(t_random_bytes),
    };
    return cmocka_run_group_tests_name("t_detok", tests, set_up, tear_down);
}
