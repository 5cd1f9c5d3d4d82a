/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vocab_fixture.h"

/* A vocabulary small enough to follow by hand. Characters are 263 on, merged pieces 268 on, the
 * higher id with the lower score; -1000 for special pieces, as GGUF files have it. */
enum {
    BYTE = 7,
    A = 263,
    B,
    C,
    SPACE,
    ABC = 268,
    AB,
    BC,
    AA,
    AAAA,
    SPACE_A,
    NL = 274,
    NLNL,
    SPACES,
    TAG,
    TAGS,
    SOFT,
};

static fixture small;
static gm_vocab *vocab;

static int set_up(void **state)
{
    (void)state;
    fixture_gemma(&small, true);
    static const char *const PIECES[] = {"a",  "b",  "c",    GM_SPACE_STR,    "<", "abc", "ab",
                                         "bc", "aa", "aaaa", GM_SPACE_STR "a"};
    for (size_t i = 0; i < sizeof PIECES / sizeof PIECES[0]; i++)
        fixture_piece(&small, gm_str_c(PIECES[i]), -(float)i, GM_PIECE_NORMAL);
    static const char *const USER[] = {"\n", "\n\n", "  ", "<b>", "<b>s"};
    for (size_t i = 0; i < sizeof USER / sizeof USER[0]; i++)
        fixture_piece(&small, gm_str_c(USER[i]), -1000, GM_PIECE_USER);
    fixture_piece(&small, GM_STR("s<eos>"), -1000, GM_PIECE_CONTROL);
    vocab = fixture_vocab(&small);
    assert_int_equal(gm_vocab_find(vocab, GM_STR("abc")), ABC);
    assert_int_equal(gm_vocab_find(vocab, GM_STR("s<eos>")), SOFT);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gm_vocab_close(vocab);
    fixture_close(&small);
    return 0;
}

static void t_merges(void **state)
{
    (void)state;
    IDS_CHECK(vocab, GM_STR("ab"), 0, AB);
    IDS_CHECK(vocab, GM_STR("abc"), 0, ABC);
    IDS_CHECK(vocab, GM_STR("cbc"), 0, C, BC);
    IDS_CHECK(vocab, GM_STR("aaa"), 0, AA, A); /* a tie goes to the left */
    IDS_CHECK(vocab, GM_STR("aaaaaaa"), 0, AAAA, AA, A);
    IDS_CHECK(vocab, GM_STR("aab"), 0, A, AB); /* the better score goes first */
    IDS_CHECK(vocab, GM_STR("b a"), 0, B, SPACE_A);
    IDS_CHECK(vocab, GM_STR("b ab"), 0, B, SPACE, AB);
    ids_check(vocab, GM_STR(""), 0, NULL, 0);
    IDS_CHECK(vocab, GM_STR(""), GM_TOKENIZE_BOS, 2);
}

static void t_user_pieces(void **state)
{
    (void)state;
    IDS_CHECK(vocab, GM_STR("a\n\n\nb"), 0, A, NLNL, NL, B);
    IDS_CHECK(vocab, GM_STR("   a"), 0, SPACES, SPACE_A);
    IDS_CHECK(vocab, GM_STR("  ab"), 0, SPACES, AB);
    IDS_CHECK(vocab, GM_STR("<b>s<b>a"), 0, TAGS, TAG, A);
    /* A literal U+2581 is a space to the vocabulary. */
    IDS_CHECK(vocab, GM_STR(GM_SPACE_STR " "), 0, SPACES);
}

static void t_control(void **state)
{
    (void)state;
    IDS_CHECK(vocab, GM_STR("<end_of_turn>a<bos>"), GM_TOKENIZE_SPECIAL, 6, A, 2);
    IDS_CHECK(vocab, GM_STR("a"), GM_TOKENIZE_SPECIAL | GM_TOKENIZE_BOS, 2, A);
    IDS_CHECK(vocab, GM_STR("<bos>a"), GM_TOKENIZE_SPECIAL | GM_TOKENIZE_BOS, 2, 2, A);
    /* Control pieces come before user-defined ones, though "<b>s" begins first; the longer of two
     * control pieces wins. */
    IDS_CHECK(vocab, GM_STR("<b>s<eos>"), GM_TOKENIZE_SPECIAL, TAG, SOFT);
    IDS_CHECK(vocab, GM_STR("<b><eos>\n"), GM_TOKENIZE_SPECIAL, TAG, 1, NL);
    IDS_CHECK(vocab, GM_STR("<eo"), GM_TOKENIZE_SPECIAL, A + 4, BYTE + 'e', BYTE + 'o');
}

static void t_no_forging(void **state)
{
    (void)state;
    for (int32_t id = 0; id < SOFT + 1; id++) {
        if (gm_vocab_kind(vocab, id) != GM_PIECE_CONTROL &&
            gm_vocab_kind(vocab, id) != GM_PIECE_BYTE)
            continue;
        gm_ids ids = {0};
        assert_int_equal(gm_tokenizer_encode(vocab, gm_vocab_piece(vocab, id), 0, &ids, NULL),
                         GM_OK);
        assert_true(ids.n > 1);
        for (size_t i = 0; i < ids.n; i++)
            assert_int_not_equal(gm_vocab_kind(vocab, ids.at[i]), GM_PIECE_CONTROL);
        gm_ids_deinit(&ids);
    }
}

static void t_bytes(void **state)
{
    (void)state;
    IDS_CHECK(vocab, GM_STR("a\xC3\xA9z"), 0, A, BYTE + 0xC3, BYTE + 0xA9, BYTE + 'z');
    IDS_CHECK(vocab, GM_STR("\0a\0"), 0, BYTE, A, BYTE);
    /* Each bad byte is one U+FFFD. */
    IDS_CHECK(vocab, GM_STR("\xFFz"), 0, BYTE + 0xEF, BYTE + 0xBF, BYTE + 0xBD, BYTE + 'z');
    IDS_CHECK(vocab, GM_STR("\xE2\x96"), 0, BYTE + 0xEF, BYTE + 0xBF, BYTE + 0xBD, BYTE + 0xEF,
              BYTE + 0xBF, BYTE + 0xBD);
}

static void t_appends(void **state)
{
    (void)state;
    gm_ids ids = {0};
    assert_int_equal(gm_ids_push(&ids, 42, NULL), GM_OK);
    assert_int_equal(gm_tokenizer_encode(vocab, GM_STR("ab"), 0, &ids, NULL), GM_OK);
    assert_true(ids_equal(&ids, (const int32_t[]){42, AB}, 2));
    gm_ids_deinit(&ids);
    assert_true(ids.at == NULL && ids.n == 0);
}

static void t_unknown(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, false);
    fixture_piece(&f, GM_STR("a"), 0, GM_PIECE_NORMAL); /* 7 */
    gm_vocab *v = fixture_vocab(&f);
    IDS_CHECK(v, GM_STR("axyaz"), 0, 7, 3, 7, 3);
    IDS_CHECK(v, GM_STR("x<eos>x"), GM_TOKENIZE_SPECIAL, 3, 1, 3);
    gm_vocab_close(v);
    fixture_close(&f);

    fixture_piece(&f, GM_STR("a"), 0, GM_PIECE_NORMAL);
    v = fixture_vocab(&f);
    gm_ids ids = {0};
    gm_err err = {0};
    assert_int_equal(gm_ids_push(&ids, 42, NULL), GM_OK);
    assert_int_equal(gm_tokenizer_encode(v, GM_STR("aax"), 0, &ids, &err), GM_E_UNSUP);
    assert_non_null(strstr(err.msg, "\"x\""));
    assert_int_equal(gm_tokenizer_encode(v, GM_STR("a"), GM_TOKENIZE_BOS, &ids, &err), GM_E_UNSUP);
    assert_true(ids_equal(&ids, (const int32_t[]){42}, 1));
    gm_ids_deinit(&ids);
    gm_vocab_close(v);
    fixture_close(&f);
}

/* A space stands before each text where the file asks for it, but not before an empty one. */
static void t_space_prefix(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, true);
    fixture_piece(&f, GM_STR("a"), -1, GM_PIECE_NORMAL);             /* 263 */
    fixture_piece(&f, GM_STR(GM_SPACE_STR "a"), 0, GM_PIECE_NORMAL); /* 264 */
    fixture_bool(&f, "tokenizer.ggml.add_space_prefix", true);
    gm_vocab *const v = fixture_vocab(&f);
    IDS_CHECK(v, GM_STR("aa"), 0, 264, 263);
    IDS_CHECK(v, GM_STR("<bos>aa"), GM_TOKENIZE_SPECIAL, 2, 264, 263);
    ids_check(v, GM_STR(""), 0, NULL, 0);
    gm_vocab_close(v);
    fixture_close(&f);
}

/* Long runs and long texts go through, and every id is what a short text has. */
static void t_long(void **state)
{
    (void)state;
    const size_t n = 1 << 18;
    char *const text = malloc(n);
    gm_ids ids = {0};
    assert_non_null(text);
    memset(text, 'a', n);
    assert_int_equal(gm_tokenizer_encode(vocab, (gm_str){text, n}, 0, &ids, NULL), GM_OK);
    assert_int_equal(ids.n, n / 4);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.at[i], AAAA);
    ids.n = 0;
    for (size_t i = 0; i < n; i += 4)
        memcpy(text + i, "<eo ", 4);
    assert_int_equal(gm_tokenizer_encode(vocab, (gm_str){text, n}, GM_TOKENIZE_SPECIAL, &ids, NULL),
                     GM_OK);
    assert_int_equal(ids.n, n);
    gm_ids_deinit(&ids);
    free(text);
}

static void t_too_long(void **state)
{
    (void)state;
    gm_ids ids = {0};
    gm_err err = {0};
    assert_int_equal(gm_tokenizer_encode(vocab, (gm_str){"", SIZE_MAX}, 0, &ids, &err),
                     GM_E_TOOBIG);
    assert_int_equal(ids.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_merges),  cmocka_unit_test(t_user_pieces),
        cmocka_unit_test(t_control), cmocka_unit_test(t_no_forging),
        cmocka_unit_test(t_bytes),   cmocka_unit_test(t_appends),
        cmocka_unit_test(t_unknown), cmocka_unit_test(t_space_prefix),
        cmocka_unit_test(t_long),    cmocka_unit_test(t_too_long),
    };
    return cmocka_run_group_tests_name("t_tokenizer", tests, set_up, tear_down);
}
