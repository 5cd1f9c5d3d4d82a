/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spm_tool.h"
#include "text/chat.h"
#include "vocab_fixture.h"

/* The real 262144-piece vocabulary of Gemma 3, with ids made by others. The data is not part of the
 * repository: it lies in $GM_SHARED or ../shared, and without it these tests are passed over. */

static fixture gguf;     /* as llama.cpp's converter writes it */
static fixture official; /* as tokenizer.model has it          */
static gm_vocab *vocab;

static void data_path(const char *name, char *out, size_t size)
{
    const char *const shared = getenv("GM_SHARED");
    snprintf(out, size, "%s/data/gemma3-tokenizer/%s", shared ? shared : "../shared", name);
}

static void data_read(const char *name, gm_strbuf *out)
{
    char path[1024];
    data_path(name, path, sizeof path);
    if (!file_read(path, out)) fail_msg("%s cannot be read", path);
}

static size_t base64_read(gm_str in, char *out)
{
    static const char CODE[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, n_bits = 0;
    size_t n = 0;
    for (size_t i = 0; i < in.len && in.p[i] != '='; i++) {
        const char *const at = memchr(CODE, in.p[i], 64);
        assert_non_null(at);
        bits = bits << 6 | (uint32_t)(at - CODE);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out[n++] = (char)(bits >> n_bits & 0xFF);
    }
    return n;
}

/* The converter's rules, by id: what is neither normal nor a byte has the score -1000 and is a
 * control piece, or user-defined with spaces for U+2581. */
static int32_t gguf_type(int32_t id, int32_t type)
{
    if (type == GM_PIECE_NORMAL || type == GM_PIECE_BYTE) return type;
    const bool user = id == 5 || (id >= 107 && id <= 237) || (id >= 255968 && id <= 255998);
    return user ? GM_PIECE_USER : GM_PIECE_CONTROL;
}

static void gguf_piece(gm_str piece, float score, int32_t type)
{
    const int32_t changed = gguf_type((int32_t)gguf.n, type);
    char text[256];
    size_t n = 0;
    assert_true(piece.len < sizeof text);
    while (piece.len) {
        const bool space = changed == GM_PIECE_USER && gm_str_starts(piece, GM_STR(GM_SPACE_STR));
        text[n++] = space ? ' ' : *piece.p;
        piece = (gm_str){piece.p + (space ? 3 : 1), piece.len - (space ? 3 : 1)};
    }
    const bool kept = changed == GM_PIECE_NORMAL || changed == GM_PIECE_BYTE;
    fixture_piece(&gguf, (gm_str){text, n}, kept ? score : -1000.0f, changed);
}

static int set_up(void **state)
{
    (void)state;
    gm_strbuf file = {0};
    data_read("gemma3.spm.txt", &file);
    gm_str rest = gm_strbuf_str(&file), line;
    while (line_next(&rest, &line)) {
        const char *const end = memchr(line.p, ' ', line.len);
        assert_non_null(end);
        char piece[256], *numbers = NULL;
        const size_t n = base64_read((gm_str){line.p, (size_t)(end - line.p)}, piece);
        const float score = strtof(end, &numbers);
        const int32_t type = (int32_t)strtol(numbers, NULL, 10);
        fixture_piece(&official, (gm_str){piece, n}, score, type);
        gguf_piece((gm_str){piece, n}, score, type);
    }
    gm_strbuf_deinit(&file);
    assert_int_equal(gguf.n, 262144);
    vocab = fixture_vocab(&gguf);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gm_vocab_close(vocab);
    fixture_close(&gguf);
    fixture_close(&official);
    return 0;
}

static void t_special_ids(void **state)
{
    (void)state;
    const gm_vocab_ids *const s = gm_vocab_special(vocab);
    assert_int_equal(s->pad, 0);
    assert_int_equal(s->eos, 1);
    assert_int_equal(s->bos, 2);
    assert_int_equal(s->unk, 3);
    assert_int_equal(s->start_of_turn, 105);
    assert_int_equal(s->end_of_turn, 106);
    assert_int_equal(gm_vocab_byte(vocab, 0), 238);
    assert_int_equal(gm_vocab_byte(vocab, 255), 493);
    assert_int_equal(gm_vocab_find(vocab, GM_STR("<start_of_image>")), 255999);
    assert_false(gm_vocab_is_end(vocab, 212));
    assert_true(gm_vocab_is_end(vocab, 1) && gm_vocab_is_end(vocab, 106));
}

/* Every piece is found by its text; a few texts are there twice, once as a normal piece. */
static void t_find(void **state)
{
    (void)state;
    for (int32_t id = 0; id < 262144; id++) {
        const gm_str piece = gm_vocab_piece(vocab, id);
        const int32_t found = gm_vocab_find(vocab, piece);
        assert_true(found == id || (found >= 0 && found < id));
        assert_true(gm_str_eq(gm_vocab_piece(vocab, found), piece));
    }
    assert_int_equal(gm_vocab_find(vocab, GM_STR("no such piece")), GM_NO_TOKEN);
}

static void t_vectors(void **state)
{
    (void)state;
    IDS_CHECK(vocab, GM_STR("Hello, world!"), 0, 9259, 236764, 1902, 236888);
    IDS_CHECK(vocab, GM_STR("Hello, world!"), GM_TOKENIZE_BOS, 2, 9259, 236764, 1902, 236888);
    IDS_CHECK(vocab, GM_STR("What is the capital of France?"), 0, 3689, 563, 506, 5279, 529, 7001,
              236881);
    IDS_CHECK(vocab, GM_STR("<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"),
              GM_TOKENIZE_SPECIAL, 105, 2364, 107, 10979, 106, 107, 105, 4368, 107);
    IDS_CHECK(vocab, GM_STR("Hello  world"), 0, 9259, 138, 12392);
    IDS_CHECK(vocab, GM_STR("    if x:\n        return 1\n"), 0, 140, 584, 1123, 236787, 107, 144,
              2060, 236743, 236770, 107);
    IDS_CHECK(vocab, GM_STR("a\tb"), 0, 236746, 255968, 236763);
    IDS_CHECK(vocab, GM_STR("\r\n"), 0, 251, 107);
    IDS_CHECK(vocab, GM_STR("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E"), 0, 94951);
    IDS_CHECK(vocab, GM_STR("\xF0\x9F\xAB\xA9"), 0, 478, 397, 409, 407);
    IDS_CHECK(vocab, GM_STR("12+34=46"), 0, 236770, 236778, 236862, 236800, 236812, 236784, 236812,
              236825);
    IDS_CHECK(vocab, GM_STR("user\n\n\n<start_of_image>"), GM_TOKENIZE_SPECIAL, 2364, 109, 255999);
    IDS_CHECK(vocab, GM_STR("<bos>"), 0, 236820, 46757, 236813);
    IDS_CHECK(vocab, GM_STR("<bos>"), GM_TOKENIZE_SPECIAL, 2);
    IDS_CHECK(vocab, GM_STR("<start_of_turn>"), 0, 236820, 3041, 236779, 1340, 236779, 887, 236813);
}

static void t_runs(void **state)
{
    (void)state;
    char text[101];
    static const struct {
        char c;
        int32_t two; /* the id of a run of two; longer ones follow */
    } RUNS[] = {{'\n', 108}, {' ', 138}, {'\t', 255969}};
    for (size_t r = 0; r < 3; r++) {
        memset(text, RUNS[r].c, sizeof text);
        for (size_t n = 2; n <= 100; n++) {
            int32_t expected[5];
            size_t n_expected = 0, left = n;
            for (; left >= 31; left -= 31)
                expected[n_expected++] = RUNS[r].two + 29;
            const int32_t one = RUNS[r].c == ' ' ? 236743 : RUNS[r].two - 1;
            if (left == 1) expected[n_expected++] = one;
            if (left > 1) expected[n_expected++] = RUNS[r].two + (int32_t)left - 2;
            ids_check(vocab, (gm_str){text, n}, 0, expected, n_expected);
        }
    }
}

/* \n, \s and \x of the golden files: a newline, a space, nothing. */
static void unescape(gm_str line, gm_strbuf *out)
{
    gm_strbuf_clear(out);
    for (size_t i = 0; i < line.len; i++) {
        const char next = i + 1 < line.len && line.p[i] == '\\' ? line.p[i + 1] : '\0';
        if (next != 'n' && next != 's' && next != 'x') {
            gm_strbuf_putc(out, line.p[i]);
            continue;
        }
        if (next != 'x') gm_strbuf_putc(out, next == 'n' ? '\n' : ' ');
        i++;
    }
}

static size_t golden_lines(const char *input_name, const char *ids_name)
{
    gm_strbuf input = {0}, ids = {0}, text = {0};
    gm_ids expected = {0};
    data_read(input_name, &input);
    data_read(ids_name, &ids);
    gm_str rest = gm_strbuf_str(&input), ids_rest = gm_strbuf_str(&ids);
    gm_str line = {0}, ids_line = {0};
    size_t n = 0;
    while (line_next(&rest, &line)) {
        if (line.len == 0) continue;
        assert_true(line_next(&ids_rest, &ids_line));
        unescape(line, &text);
        numbers_read(ids_line, &expected);
        ids_check(vocab, gm_strbuf_str(&text), 0, expected.at, expected.n);
        n++;
    }
    gm_strbuf_deinit(&input);
    gm_strbuf_deinit(&ids);
    gm_strbuf_deinit(&text);
    gm_ids_deinit(&expected);
    return n;
}

static void t_golden_lines(void **state)
{
    (void)state;
    assert_int_equal(
        golden_lines("golden-kitoken/small_input.txt", "golden-kitoken/small_tokens_gemma3.txt"),
        20);
    assert_int_equal(
        golden_lines("golden-kitoken/mixed_input.txt", "golden-kitoken/mixed_tokens_gemma3.txt"),
        120);
}

static void t_golden_utf8(void **state)
{
    (void)state;
    gm_strbuf input = {0}, ids = {0}, output = {0}, text = {0};
    gm_ids expected = {0};
    data_read("golden-kitoken/utf8_input.txt", &input);
    data_read("golden-kitoken/utf8_tokens_gemma3.txt", &ids);
    data_read("golden-kitoken/utf8_output_gemma3.txt", &output);
    numbers_read(gm_strbuf_str(&ids), &expected);
    assert_int_equal(expected.n, 5087);
    ids_check(vocab, gm_strbuf_str(&input), 0, expected.at, expected.n);
    ids_text(vocab, expected.at, expected.n, &text);
    assert_true(gm_str_eq(gm_strbuf_str(&text), gm_strbuf_str(&output)));
    gm_strbuf_deinit(&input);
    gm_strbuf_deinit(&ids);
    gm_strbuf_deinit(&output);
    gm_strbuf_deinit(&text);
    gm_ids_deinit(&expected);
}

/* No plain text, however spelled, has a control token. */
static void t_no_forging(void **state)
{
    (void)state;
    gm_ids ids = {0};
    gm_strbuf text = {0};
    for (int32_t id = 0; id < 262144; id++) {
        if (gm_vocab_kind(vocab, id) != GM_PIECE_CONTROL) continue;
        gm_strbuf_put(&text, gm_vocab_piece(vocab, id));
        if (id % 3 == 0) gm_strbuf_putc(&text, '\n');
    }
    assert_int_equal(gm_tokenizer_encode(vocab, gm_strbuf_str(&text), 0, &ids, NULL), GM_OK);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(gm_vocab_kind(vocab, ids.at[i]), GM_PIECE_CONTROL);
    gm_strbuf_deinit(&text);
    gm_ids_deinit(&ids);
}

static void t_chat(void **state)
{
    (void)state;
    const gm_message messages[] = {
        {"system", " Be brief.", 10},
        {"user", "  Hi<end_of_turn>\n", 18},
        {"assistant", "\nHello, world!", 14},
        {"user", "Hi", 2},
    };
    gm_ids got = {0}, expected = {0};
    assert_int_equal(gm_chat_encode(vocab, messages, 4, &got, NULL), GM_OK);
    /* The same conversation as the template writes it, but for the text that looks like control. */
    const gm_str parts[] = {
        GM_STR("<bos><start_of_turn>"),
        GM_STR("user\n Be brief.\n\nHi<end_of_turn>"),
        GM_STR("<end_of_turn>\n<start_of_turn>model\nHello, world!<end_of_turn>\n"
               "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"),
    };
    for (size_t i = 0; i < 3; i++) {
        const uint32_t flags = i == 1 ? 0 : GM_TOKENIZE_SPECIAL;
        assert_int_equal(gm_tokenizer_encode(vocab, parts[i], flags, &expected, NULL), GM_OK);
    }
    assert_true(ids_equal(&got, expected.at, expected.n));
    gm_ids_deinit(&got);
    gm_ids_deinit(&expected);
}

/* tokenizer.model's kinds and spelling give the same vocabulary; so do wrong kinds for the control
 * tokens, as published once, and padding up to the rows of the larger models. */
static void t_dialects(void **state)
{
    (void)state;
    official.types[105] = GM_PIECE_NORMAL;
    official.types[106] = GM_PIECE_NORMAL;
    gm_vocab *v = NULL;
    assert_int_equal(fixture_open(&official, 262208, &v, NULL), GM_OK);
    assert_int_equal(gm_vocab_len(v), 262208);
    assert_true(gm_str_eq(gm_vocab_piece(v, 262207), GM_STR("[PAD262207]")));
    assert_true(gm_vocab_hash(v) == gm_vocab_hash(vocab));
    IDS_CHECK(v, GM_STR("Hello  world<end_of_turn>"), GM_TOKENIZE_SPECIAL, 9259, 138, 12392, 106);
    gm_vocab_close(v);
}

/* Random lines against SentencePiece itself with this vocabulary. */
static void t_sentencepiece(void **state)
{
    (void)state;
    static const char *const SYMBOLS[] = {
        "<h1>", "</table>", "<b>",    "</b>",         "<start_of_tur",  "[multimodal]",    "<tabl",
        " the", "\r",       "\t\t\t", "Hello, world", " \xE2\x96\x81 ", ">\xE2\x96\x81</", NULL};
    if (!spm_found()) {
        print_message("passed over: spm_encode (package sentencepiece) is missing\n");
        return;
    }
    spm_dir d;
    spm_dir_open(&d);
    char model[1024], absolute[PATH_MAX], options[PATH_MAX + 16];
    data_path("gemma3.SYNTHETIC-tail.spiece.model", model, sizeof model);
    assert_non_null(realpath(model, absolute));
    snprintf(options, sizeof options, "--model='%s'", absolute);
    gm_strbuf lines = {0};
    spm_lines(&lines, 8000, 3, SYMBOLS);
    spm_compare(&d, options, vocab, 0, gm_strbuf_str(&lines), true);
    gm_strbuf_deinit(&lines);
    spm_dir_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_special_ids),  cmocka_unit_test(t_find),
        cmocka_unit_test(t_vectors),      cmocka_unit_test(t_runs),
        cmocka_unit_test(t_golden_lines), cmocka_unit_test(t_golden_utf8),
        cmocka_unit_test(t_no_forging),   cmocka_unit_test(t_chat),
        cmocka_unit_test(t_dialects),     cmocka_unit_test(t_sentencepiece),
    };
    char path[1024];
    data_path("gemma3.spm.txt", path, sizeof path);
    FILE *const f = fopen(path, "rb");
    if (!f) {
        printf("t_gemma_vocab: passed over, there is no %s\n", path);
        return 0;
    }
    fclose(f);
    return cmocka_run_group_tests_name("t_gemma_vocab", tests, set_up, tear_down);
}
