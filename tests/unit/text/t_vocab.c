/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "vocab_fixture.h"

static void t_kinds(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, true);
    const int32_t first = (int32_t)f.n;
    fixture_piece(&f, GM_STR("a"), -1, GM_PIECE_NORMAL);
    fixture_piece(&f, GM_STR("<unused12>"), 0, GM_PIECE_USER);
    fixture_piece(&f, GM_STR("<unused>"), 0, GM_PIECE_USER);
    fixture_piece(&f, GM_STR("<unused1x>"), 0, GM_PIECE_NORMAL);
    fixture_piece(&f, GM_STR("<end_of_image>"), 0, GM_PIECE_NORMAL);
    fixture_piece(&f, GM_STR("b"), -2.5f, 0);
    fixture_piece(&f, GM_STR(""), 0, GM_PIECE_UNUSED);
    f.types[5] = GM_PIECE_NORMAL; /* <start_of_turn>, as one published file had it */
    f.types[6] = GM_PIECE_USER;
    f.types[3] = GM_PIECE_UNKNOWN;
    f.types[7 + 0x41] = GM_PIECE_NORMAL;
    gm_vocab *const v = fixture_vocab(&f);
    for (int32_t id = 0; id < 7; id++)
        assert_int_equal(gm_vocab_kind(v, id), GM_PIECE_CONTROL);
    for (int b = 0; b < 256; b++) {
        assert_int_equal(gm_vocab_kind(v, 7 + b), GM_PIECE_BYTE);
        assert_int_equal(gm_vocab_byte(v, (uint8_t)b), 7 + b);
        assert_int_equal(gm_vocab_byte_value(v, 7 + b), b);
    }
    static const int32_t KINDS[] = {GM_PIECE_NORMAL, GM_PIECE_CONTROL, GM_PIECE_USER,
                                    GM_PIECE_NORMAL, GM_PIECE_CONTROL, GM_PIECE_NORMAL,
                                    GM_PIECE_UNUSED};
    for (int32_t i = 0; i < 7; i++)
        assert_int_equal(gm_vocab_kind(v, first + i), KINDS[i]);
    assert_true(gm_vocab_score(v, first + 5) == -2.5f);
    assert_true(gm_vocab_has(v, first + 6));
    assert_false(gm_vocab_has(v, first + 7) || gm_vocab_has(v, -1));
    assert_int_equal(gm_vocab_find(v, GM_STR("")), GM_NO_TOKEN);
    gm_vocab_close(v);
    fixture_close(&f);
}

static void t_no_types(void **state)
{
    (void)state;
    fixture f = {.no_types = true};
    fixture_gemma(&f, true);
    fixture_piece(&f, GM_STR("a"), -1, GM_PIECE_USER);
    gm_vocab *const v = fixture_vocab(&f);
    assert_int_equal(gm_vocab_kind(v, 2), GM_PIECE_CONTROL);
    assert_int_equal(gm_vocab_kind(v, 7), GM_PIECE_BYTE);
    assert_int_equal(gm_vocab_kind(v, 7 + 256), GM_PIECE_NORMAL);
    gm_vocab_close(v);
    fixture_close(&f);
}

/* The first of equal pieces is found; control and normal pieces of one text do not hide each
 * other from merging. */
static void t_duplicates(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, false);
    fixture_piece(&f, GM_STR("twice"), 0, GM_PIECE_CONTROL);
    fixture_piece(&f, GM_STR("twice"), 0, GM_PIECE_NORMAL);
    fixture_piece(&f, GM_STR("twice"), 0, GM_PIECE_NORMAL);
    gm_vocab *const v = fixture_vocab(&f);
    assert_int_equal(gm_vocab_find(v, GM_STR("twice")), 7);
    assert_int_equal(gm_vocab_find_merged(v, GM_STR("twice")), 8);
    assert_int_equal(gm_vocab_find_merged(v, GM_STR("<bos>")), GM_NO_TOKEN);
    assert_int_equal(gm_vocab_find(v, GM_STR("thrice")), GM_NO_TOKEN);
    gm_vocab_close(v);
    fixture_close(&f);
}

static void t_find_lengths(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, true);
    char text[64];
    for (size_t n = 1; n < sizeof text; n++) {
        for (char c = 'a'; c <= 'z'; c++) {
            memset(text, 'x', n);
            text[n / 2] = c == 'x' ? '-' : c;
            text[n - 1] = c;
            fixture_piece(&f, (gm_str){text, n}, 0, GM_PIECE_NORMAL);
        }
    }
    gm_vocab *const v = fixture_vocab(&f);
    for (int32_t id = 0; id < (int32_t)f.n; id++)
        assert_int_equal(gm_vocab_find(v, f.tokens[id]), id);
    gm_vocab_close(v);
    fixture_close(&f);
}

static void t_specials(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, false);
    fixture_u32(&f, "tokenizer.ggml.eos_token_id", 6); /* Unsloth's files */
    fixture_bool(&f, "tokenizer.ggml.add_bos_token", false);
    gm_vocab *const v = fixture_vocab(&f);
    const gm_vocab_ids *const s = gm_vocab_special(v);
    assert_int_equal(s->pad, 0);
    assert_int_equal(s->eos, 6);
    assert_int_equal(s->bos, 2);
    assert_int_equal(s->unk, 3);
    assert_int_equal(s->start_of_turn, 5);
    assert_int_equal(s->end_of_turn, 6);
    assert_true(gm_vocab_is_end(v, 1) && gm_vocab_is_end(v, 6));
    assert_false(gm_vocab_is_end(v, 5) || gm_vocab_is_end(v, GM_NO_TOKEN));
    assert_false(gm_vocab_adds_bos(v) || gm_vocab_adds_space(v));
    gm_vocab_close(v);
    fixture_close(&f);
}

static void t_no_specials(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_piece(&f, GM_STR("a"), 0, GM_PIECE_NORMAL);
    gm_vocab *const v = fixture_vocab(&f);
    const gm_vocab_ids *const s = gm_vocab_special(v);
    assert_true(s->bos == GM_NO_TOKEN && s->eos == GM_NO_TOKEN && s->unk == GM_NO_TOKEN);
    assert_true(s->pad == GM_NO_TOKEN && s->end_of_turn == GM_NO_TOKEN);
    assert_false(gm_vocab_adds_bos(v) || gm_vocab_is_end(v, GM_NO_TOKEN));
    assert_int_equal(gm_vocab_byte(v, 0), GM_NO_TOKEN);
    gm_vocab_close(v);
    fixture_close(&f);
}

static void t_padding(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, true);
    gm_vocab *v = NULL;
    assert_int_equal(fixture_open(&f, 300, &v, NULL), GM_OK);
    assert_int_equal(gm_vocab_len(v), 300);
    assert_true(gm_str_eq(gm_vocab_piece(v, 263), GM_STR("[PAD263]")));
    assert_true(gm_str_eq(gm_vocab_piece(v, 299), GM_STR("[PAD299]")));
    assert_int_equal(gm_vocab_kind(v, 299), GM_PIECE_UNUSED);
    gm_vocab_close(v);
    fixture_close(&f);
}

static uint64_t hash_of(gm_str piece, int32_t kind, uint64_t n_rows)
{
    fixture f = {0};
    fixture_gemma(&f, true);
    fixture_piece(&f, piece, 0, kind);
    gm_vocab *v = NULL;
    assert_int_equal(fixture_open(&f, n_rows, &v, NULL), GM_OK);
    const uint64_t hash = gm_vocab_hash(v);
    gm_vocab_close(v);
    fixture_close(&f);
    return hash;
}

static void t_hash(void **state)
{
    (void)state;
    const uint64_t hash = hash_of(GM_STR("  "), GM_PIECE_USER, 0);
    assert_true(hash == hash_of(GM_STR("\xE2\x96\x81\xE2\x96\x81"), GM_PIECE_USER, 280));
    assert_false(hash == hash_of(GM_STR("  "), GM_PIECE_NORMAL, 0));
    assert_false(hash == hash_of(GM_STR("   "), GM_PIECE_USER, 0));
}

static void t_match(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, false);
    fixture_piece(&f, GM_STR("  "), 0, GM_PIECE_USER);                        /* 7 */
    fixture_piece(&f, GM_STR("\xE2\x96\x81\xE2\x96\x81 "), 0, GM_PIECE_USER); /* 8 */
    fixture_piece(&f, GM_STR("<b"), 0, GM_PIECE_USER);                        /* 9 */
    fixture_piece(&f, GM_STR("[x y]"), 0, GM_PIECE_CONTROL);                  /* 10 */
    gm_vocab *const v = fixture_vocab(&f);
    size_t len = 0;
    const gm_str spaces = GM_STR("\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81");
    assert_int_equal(gm_vocab_match_user(v, spaces, &len), 8);
    assert_int_equal(len, 9);
    assert_int_equal(gm_vocab_match_user(v, (gm_str){spaces.p, 8}, &len), 7);
    assert_int_equal(len, 6);
    assert_int_equal(gm_vocab_match_user(v, (gm_str){spaces.p, 3}, &len), GM_NO_TOKEN);
    assert_int_equal(len, 0);
    assert_int_equal(gm_vocab_match_user(v, GM_STR("<bos>"), &len), 9);
    assert_int_equal(gm_vocab_match_control(v, GM_STR("<bos>"), &len), 2);
    assert_int_equal(gm_vocab_match_control(v, GM_STR("<bos"), &len), GM_NO_TOKEN);
    assert_int_equal(gm_vocab_match_control(v, GM_STR("[x y]"), &len), 10);
    assert_int_equal(gm_vocab_match_control(v, GM_STR(""), &len), GM_NO_TOKEN);
    gm_vocab_close(v);
    fixture_close(&f);
}

/* Opens what is expected to be refused, with a sentence that has these words. */
static void refused(fixture *f, uint64_t n_rows, const char *words)
{
    gm_vocab *v = NULL;
    gm_err err = {0};
    assert_int_not_equal(fixture_open(f, n_rows, &v, &err), GM_OK);
    assert_null(v);
    if (!strstr(err.msg, words) || !strstr(err.msg, "test.gguf"))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, words);
    fixture_close(f);
}

static void t_refused_values(void **state)
{
    (void)state;
    fixture f = {0};
    fixture_gemma(&f, true);
    refused(&f, 262, "263 pieces and the embedding 262 rows");

    refused(&f, 10, "0 pieces");

    fixture_gemma(&f, true);
    refused(&f, UINT64_MAX, "rows");

    fixture_gemma(&f, true);
    f.types[9] = 7;
    refused(&f, 0, "token_type of piece 9 is 7");

    fixture_gemma(&f, true);
    f.types[9] = -1;
    refused(&f, 0, "token_type of piece 9 is -1");

    fixture_gemma(&f, false);
    fixture_piece(&f, GM_STR("<0xfg>"), 0, GM_PIECE_BYTE);
    refused(&f, 0, "piece 7 is a byte piece spelled \"<0xfg>\"");

    fixture_gemma(&f, true);
    f.scores[8] = NAN;
    refused(&f, 0, "scores of piece 8 is not a number");

    fixture_gemma(&f, true);
    fixture_u32(&f, "tokenizer.ggml.padding_token_id", 263);
    refused(&f, 0, "padding_token_id is 263, expected an id below 263");
}

static void t_refused_arrays(void **state)
{
    (void)state;
    static const uint8_t RAW[8] = {0};
    const gm_metaval two = {.type = GM_META_ARRAY, .elem = GM_META_F32, .n = 2, .raw = RAW};
    fixture f = {0};
    fixture_gemma(&f, true);
    fixture_key(&f, "tokenizer.ggml.scores", two);
    refused(&f, 0, "tokenizer.ggml.scores has 2 elements, expected 263");

    fixture_gemma(&f, true);
    fixture_key(&f, "tokenizer.ggml.token_type", two);
    refused(&f, 0, "tokenizer.ggml.token_type is an array of f32, expected an array of i32");

    fixture_gemma(&f, true);
    fixture_u32(&f, "tokenizer.ggml.tokens", 1);
    refused(&f, 0, "tokenizer.ggml.tokens is u32, expected an array of string");

    fixture_gemma(&f, true);
    fixture_key(&f, "tokenizer.ggml.model", (gm_metaval){.type = GM_META_STR, .s = GM_STR("gpt2")});
    refused(&f, 0, "\"gpt2\", expected \"llama\"");

    gm_meta none = {.file = "test.gguf"};
    gm_vocab *v = NULL;
    gm_err err = {0};
    assert_int_equal(gm_vocab_open(&v, &none, 1, &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "tokenizer.ggml.model is missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_kinds),          cmocka_unit_test(t_no_types),
        cmocka_unit_test(t_duplicates),     cmocka_unit_test(t_find_lengths),
        cmocka_unit_test(t_specials),       cmocka_unit_test(t_no_specials),
        cmocka_unit_test(t_padding),        cmocka_unit_test(t_hash),
        cmocka_unit_test(t_match),          cmocka_unit_test(t_refused_values),
        cmocka_unit_test(t_refused_arrays),
    };
    return cmocka_run_group_tests_name("t_vocab", tests, NULL, NULL);
}
