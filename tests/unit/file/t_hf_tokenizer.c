/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp16.h"
#include "base/mapfile.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "file/hf.h"

#define DATA   "../shared/data/gemma3-tokenizer/"
#define SP     "\xE2\x96\x81"
#define NO_ONE 99u

static gm_tensorfile *fresh(void)
{
    gm_tensorfile *f = NULL;
    assert_int_equal(gm_mem_alloc(&f, 1, sizeof *f, "a test's file", NULL), GM_OK);
    return f;
}

static gm_status parse(gm_tensorfile *f, const char *json, gm_err *err)
{
    const size_t n = strlen(json);
    uint8_t *const bytes = malloc(n ? n : 1);
    assert_non_null(bytes);
    memcpy(bytes, json, n);
    const gm_status s = gm_hf_tokenizer_parse(f, bytes, n, "tokenizer.json", err);
    free(bytes);
    return s;
}

static gm_status parse_config(gm_tensorfile *f, const char *json, gm_err *err)
{
    return gm_hf_tokenizer_config_parse(f, (const uint8_t *)json, strlen(json),
                                        "tokenizer_config.json", err);
}

static uint32_t u32(const gm_tensorfile *f, const char *key)
{
    uint32_t v = NO_ONE;
    assert_int_equal(gm_meta_u32(&f->meta, key, &v, NULL, NULL), GM_OK);
    return v;
}

static const gm_metaval *array(const gm_tensorfile *f, const char *key, uint64_t n)
{
    const gm_metaval *const v = gm_meta_find(&f->meta, key);
    assert_non_null(v);
    assert_int_equal(v->n, n);
    return v;
}

static void expect_piece(const gm_tensorfile *f, uint64_t n, uint64_t id, const char *text,
                         int kind)
{
    const gm_str piece = array(f, "tokenizer.ggml.tokens", n)->strs[id];
    if (!gm_str_eq(piece, gm_str_c(text)))
        fail_msg("piece %d is \"%.*s\", expected \"%s\"", (int)id, (int)piece.len, piece.p, text);
    assert_int_equal((int)gm_meta_elem(array(f, "tokenizer.ggml.token_type", n), id), kind);
}

/* ---- a small tokenizer --------------------------------------------------------------- */

#define NORM    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SP "\"}"
#define PRE     "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}}"
#define OPTIONS "\"type\": \"BPE\", \"byte_fallback\": true, \"unk_token\": \"<unk>\""
#define VOCAB                                                                                   \
    "{\"<pad>\": 0, \"<eos>\": 1, \"<bos>\": 2, \"<unk>\": 3, \"" SP SP "\": 4, \"\\n\\n\": 5," \
    " \"<0x0A>\": 6, \"ab\": 7, \"abc\": 8, \"bc\": 9, \"a\": 10, \"b\": 11, \"c\": 12,"        \
    " \"" SP "\": 13, \"" SP "a\": 14, \"\\n\": 15, \"<0xaa>\": 16}"
#define ADDED                                                                                 \
    "[{\"id\": 0, \"content\": \"<pad>\"}, {\"id\": 2, \"content\": \"<bos>\", \"special\": " \
    "true},"                                                                                  \
    " {\"id\": 4, \"content\": \"" SP SP "\", \"special\": false},"                           \
    " {\"id\": 5, \"content\": \"\\n\\n\", \"special\": false},"                              \
    " {\"id\": 19, \"content\": \"<image_soft_token>\", \"special\": true}]"
#define USER   "[\"" SP "\", \"" SP "\"], [\"\\n\", \"\\n\"], "
#define MERGES "[" USER "[\"b\", \"c\"], \"a b\", [\"ab\", \"c\"], \"a bc\", [\"" SP "\", \"a\"]]"

#define TOKENIZER(options, vocab, merges, added, norm, pre)                     \
    "{\"version\": \"1.0\", \"added_tokens\": " added ", \"normalizer\": " norm \
    ", \"pre_tokenizer\": " pre ", \"model\": {" options ", \"vocab\": " vocab  \
    ", \"merges\": " merges "}}"

static void test_translation(void **state)
{
    (void)state;
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    if (parse(f, TOKENIZER(OPTIONS, VOCAB, MERGES, ADDED, NORM, PRE), &err) != GM_OK)
        fail_msg("%s", err.msg);
    static const struct {
        const char *text;
        int kind;
    } PIECES[20] = {
        {"<pad>", 3}, {"<eos>", 1},  {"<bos>", 3},   {"<unk>", 2},   {"  ", 4},
        {"\n\n", 4},  {"<0x0A>", 6}, {"ab", 1},      {"abc", 1},     {"bc", 1},
        {"a", 1},     {"b", 1},      {"c", 1},       {SP, 1},        {SP "a", 1},
        {"\n", 1},    {"<0xaa>", 1}, {"[PAD17]", 5}, {"[PAD18]", 5}, {"<image_soft_token>", 3},
    };
    for (size_t i = 0; i < 20; i++)
        expect_piece(f, 20, i, PIECES[i].text, PIECES[i].kind);
    const gm_metaval *const scores = array(f, "tokenizer.ggml.scores", 20);
    assert_true(gm_meta_elem(scores, 9) == 0);   /* bc */
    assert_true(gm_meta_elem(scores, 7) == -1);  /* ab */
    assert_true(gm_meta_elem(scores, 8) == -2);  /* abc */
    assert_true(gm_meta_elem(scores, 14) == -3); /* _a */
    for (uint64_t i = 10; i < 14; i++)
        assert_true(gm_meta_elem(scores, i) < -3);
    assert_true(gm_meta_elem(scores, 4) == 0);
    assert_int_equal(u32(f, "tokenizer.ggml.bos_token_id"), 2);
    assert_int_equal(u32(f, "tokenizer.ggml.eos_token_id"), 1);
    assert_int_equal(u32(f, "tokenizer.ggml.unknown_token_id"), 3);
    assert_int_equal(u32(f, "tokenizer.ggml.padding_token_id"), 0);
    bool prefix = true;
    assert_int_equal(gm_meta_bool(&f->meta, "tokenizer.ggml.add_space_prefix", &prefix, NULL, NULL),
                     GM_OK);
    assert_false(prefix);
    gm_tensorfile_close(f);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *json, *words;
        gm_status code;
    } CASES[] = {
#define MODEL(options) TOKENIZER(options, VOCAB, MERGES, ADDED, NORM, PRE)
#define LIST(merges)   TOKENIZER(OPTIONS, VOCAB, "[" merges "]", ADDED, NORM, PRE)
#define PIECES(vocab)  TOKENIZER(OPTIONS, vocab, "[]", "[]", NORM, PRE)
#define TOKENS(added)  TOKENIZER(OPTIONS, VOCAB, MERGES, added, NORM, PRE)
        {"", "empty", GM_E_FORMAT},
        {"[]", "no object", GM_E_FORMAT},
        {"{}", "model.type is nothing", GM_E_FORMAT},
        {"{\"model\": 3}", "model is 3", GM_E_FORMAT},
        {MODEL("\"type\": \"Unigram\""), "model.type is \"Unigram\", expected BPE", GM_E_FORMAT},
        {MODEL("\"type\": \"BPE\""), "byte_fallback is nothing", GM_E_FORMAT},
        {MODEL("\"type\": \"BPE\", \"byte_fallback\": false"), "byte_fallback is false",
         GM_E_FORMAT},
        {MODEL(OPTIONS ", \"ignore_merges\": true"), "ignore_merges is true", GM_E_FORMAT},
        {MODEL(OPTIONS ", \"dropout\": 0.1"), "dropout is 0.1", GM_E_FORMAT},
        {MODEL(OPTIONS ", \"end_of_word_suffix\": \"</w>\""), "end_of_word_suffix", GM_E_FORMAT},
        {MODEL("\"type\": \"BPE\", \"byte_fallback\": true, \"unk_token\": 3"), "unk_token is 3",
         GM_E_FORMAT},
        {TOKENIZER(OPTIONS, VOCAB, MERGES, ADDED, "null", PRE), "normalizer", GM_E_UNSUP},
        {TOKENIZER(OPTIONS, VOCAB, MERGES, ADDED, "{\"type\": \"NFKC\"}", PRE), "normalizer",
         GM_E_UNSUP},
        {TOKENIZER(OPTIONS, VOCAB, MERGES, ADDED, NORM, "{\"type\": \"ByteLevel\"}"),
         "pre_tokenizer", GM_E_UNSUP},
        {TOKENIZER(OPTIONS, "3", MERGES, ADDED, NORM, PRE), "model.vocab is 3", GM_E_FORMAT},
        {TOKENIZER(OPTIONS, VOCAB, "3", ADDED, NORM, PRE), "model.merges is 3", GM_E_FORMAT},
        {TOKENIZER(OPTIONS, VOCAB, MERGES, "3", NORM, PRE), "added_tokens is 3", GM_E_FORMAT},
        {PIECES("{}"), "has 0 pieces", GM_E_FORMAT},
        {PIECES("{\"a\": -1}"), "the id -1", GM_E_FORMAT},
        {PIECES("{\"a\": \"b\"}"), "\"a\" has the id", GM_E_FORMAT},
        {PIECES("{\"a\": 4097}"), "the id 4097, expected one from 0 to 4096", GM_E_FORMAT},
        {PIECES("{\"a\": 0, \"b\": 0}"), "\"b\" has the id 0", GM_E_FORMAT},
        {PIECES("{\"\": 0}"), "\"\" has the id 0", GM_E_FORMAT},
        {PIECES("{\"a\": 0, \"a\": 1}"), "duplicate", GM_E_FORMAT},
        {TOKENS("[3]"), "entry 0 of added_tokens has no content", GM_E_FORMAT},
        {TOKENS("[{\"id\": 1}]"), "entry 0 of added_tokens has no content", GM_E_FORMAT},
        {TOKENS("[{\"content\": \"x\"}]"), "\"x\" has the id", GM_E_FORMAT},
        {TOKENS("[{\"content\": \"x\", \"id\": 99999}]"), "\"x\" has the id 99999", GM_E_FORMAT},
        {LIST("3"), "merge 0 cannot be read", GM_E_FORMAT},
        {LIST("\"ab\""), "merge 0 cannot be read", GM_E_FORMAT},
        {LIST("\"a b c\""), "merge 0 cannot be read", GM_E_FORMAT},
        {LIST("[\"a\", \"b\", \"c\"]"), "merge 0 cannot be read", GM_E_FORMAT},
        {LIST("[\"a\", 1]"), "merge 0 cannot be read", GM_E_FORMAT},
        {LIST("[\"a\", \"\"]"), "merge 0 cannot be read", GM_E_FORMAT},
        {LIST("\"a x\""), "merge 0 joins \"a\" and \"x\"", GM_E_FORMAT},
        {LIST("\"a c\""), "merge 0 joins \"a\" and \"c\"", GM_E_FORMAT},
        /* A split of abc is missing; ab is made by none; abc's merges stand apart. */
        {LIST("\"b c\", \"a b\", \"ab c\", [\"" SP "\", \"a\"]"),
         "\"a\" and \"bc\" makes a piece and is not in the list", GM_E_UNSUP},
        {LIST("\"b c\", \"a bc\", \"ab c\", [\"" SP "\", \"a\"]"),
         "\"a\" and \"b\" makes a piece and is not in the list", GM_E_UNSUP},
        {LIST("\"b c\", \"a bc\", \"a b\", \"ab c\", [\"" SP "\", \"a\"]"),
         "makes a piece and is not in the list", GM_E_UNSUP},
        {LIST("\"b c\", \"a bc\", \"ab c\", \"a b\", \"ab c\""), "stands apart", GM_E_UNSUP},
        {LIST("\"b c\", \"b c\""), "is there twice", GM_E_UNSUP},
        {LIST("\"a b\", [\"" SP "\", \"" SP "\"]"), "run of spaces too late", GM_E_UNSUP},
        {TOKENIZER(OPTIONS, "{\"" SP "\": 0, \"" SP SP "\": 1, \"" SP SP "a\": 2, \"a\": 3}",
                   "[[\"" SP SP "\", \"a\"]]", "[{\"id\": 1, \"content\": \"" SP SP "\"}]", NORM,
                   PRE),
         "continues an added token with spaces", GM_E_UNSUP},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        const gm_status s = parse(f, CASES[i].json, &err);
        if (s != CASES[i].code || !strstr(err.msg, CASES[i].words) ||
            !strstr(err.msg, "tokenizer.json"))
            fail_msg("%s: status %d, \"%s\"", CASES[i].json, s, err.msg);
        gm_tensorfile_close(f);
    }
}

/* Merges that never run say nothing about scores: of an added token without spaces, late or used
 * as a part, both programs match it whole before any merge. */
static void test_idle_merges(void **state)
{
    (void)state;
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    const char *const json = TOKENIZER(
        OPTIONS, "{\"a\": 0, \"b\": 1, \"\\n\": 2, \"ab\": 3, \"\\n\\n\": 4, \"\\n\\na\": 5}",
        "[\"a b\", [\"\\n\", \"\\n\"], [\"\\n\\n\", \"a\"]]",
        "[{\"id\": 4, \"content\": \"\\n\\n\"}]", NORM, "null");
    if (parse(f, json, &err) != GM_OK) fail_msg("%s", err.msg);
    expect_piece(f, 6, 4, "\n\n", 4);
    gm_tensorfile_close(f);
}

/* ---- tokenizer_config.json ----------------------------------------------------------- */

static void test_config(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_tensorfile *const g = fresh();
    assert_int_equal(
        parse(g, TOKENIZER(OPTIONS, "{\"a\": 0, \"b\": 1, \"c\": 2}", "[]", "[]", NORM, PRE), &err),
        GM_OK);
    const char *const config =
        "{\"model_max_length\": 1000000000000000019884624838656, \"chat_template\": \"{{ x }}\","
        " \"added_tokens_decoder\": {"
        "  \"1\": {\"content\": \"<turn>\", \"special\": true},"
        "  \"2\": {\"content\": \"" SP "c\", \"special\": false},"
        "  \"5\": {\"content\": \"<image_soft_token>\", \"special\": true},"
        "  \"6\": {\"content\": \"<unused7>\", \"special\": false}},"
        " \"add_bos_token\": false, \"bos_token\": \"a\", \"eos_token\": {\"content\": \"<turn>\"},"
        " \"unk_token\": \"nowhere\", \"pad_token\": null}";
    if (parse_config(g, config, &err) != GM_OK) fail_msg("%s", err.msg);
    expect_piece(g, 7, 0, "a", 1);
    expect_piece(g, 7, 1, "<turn>", 3);
    expect_piece(g, 7, 2, " c", 4);
    expect_piece(g, 7, 3, "[PAD3]", 5);
    expect_piece(g, 7, 4, "[PAD4]", 5);
    expect_piece(g, 7, 5, "<image_soft_token>", 3);
    expect_piece(g, 7, 6, "<unused7>", 3);
    assert_int_equal(array(g, "tokenizer.ggml.scores", 7)->elem, GM_META_F32);
    gm_str chat = {0};
    assert_int_equal(gm_meta_str(&g->meta, "tokenizer.chat_template", &chat, NULL, NULL), GM_OK);
    assert_true(gm_str_eq(chat, GM_STR("{{ x }}")));
    assert_int_equal(u32(g, "tokenizer.ggml.bos_token_id"), 0);
    assert_int_equal(u32(g, "tokenizer.ggml.eos_token_id"), 1);
    assert_int_equal(u32(g, "tokenizer.ggml.unknown_token_id"), NO_ONE);
    assert_int_equal(u32(g, "tokenizer.ggml.padding_token_id"), NO_ONE);
    bool bos = true;
    assert_int_equal(gm_meta_bool(&g->meta, "tokenizer.ggml.add_bos_token", &bos, NULL, NULL),
                     GM_OK);
    assert_false(bos);
    gm_tensorfile_close(g);
}

static void test_config_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *json, *words;
    } CASES[] = {
        {"{", "not valid JSON"},
        {"{\"added_tokens_decoder\": []}", "added_tokens_decoder is an array"},
        {"{\"added_tokens_decoder\": {\"x\": {}}}", "the key \"x\""},
        {"{\"added_tokens_decoder\": {\"\": {}}}", "the key \"\""},
        {"{\"added_tokens_decoder\": {\"-1\": {}}}", "the key \"-1\""},
        {"{\"added_tokens_decoder\": {\"4099\": {}}}", "a token id below 4099"},
        {"{\"added_tokens_decoder\": {\"99999999999999999999\": {}}}", "a token id below 4099"},
        {"{\"added_tokens_decoder\": {\"1\": 2}}", "added_tokens_decoder.1 is 2"},
        {"{\"added_tokens_decoder\": {\"1\": {}}}", "no content for id 1"},
        {"{\"added_tokens_decoder\": {\"1\": {\"content\": 3}}}", "content is 3"},
        {"{\"added_tokens_decoder\": {\"1\": {\"content\": \"a\", \"special\": 3}}}",
         "special is 3"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        assert_int_equal(
            parse(f, TOKENIZER(OPTIONS, "{\"a\": 0, \"b\": 1, \"c\": 2}", "[]", "[]", NORM, PRE),
                  &err),
            GM_OK);
        const gm_status s = parse_config(f, CASES[i].json, &err);
        if (s != GM_E_FORMAT || !strstr(err.msg, CASES[i].words) ||
            !strstr(err.msg, "tokenizer_config.json"))
            fail_msg("%s: status %d, \"%s\"", CASES[i].json, s, err.msg);
        gm_tensorfile_close(f);
    }
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    assert_int_equal(parse_config(f, "{\"added_tokens_decoder\": {}}", &err), GM_E_ARG);
    gm_tensorfile_close(f);
}

/* ---- the real vocabulary ------------------------------------------------------------- */

/* Gemma's tokenizer.json, made again from the vocabulary that tokenizer.model holds and the list of
 * merges: its pieces, kinds and scores must be those of tokenizer.model. */
static char *gemma_json(const gm_tensorfile *sp, const gm_mapfile *merges)
{
    const gm_metaval *const tokens = array(sp, "tokenizer.ggml.tokens", 262144);
    const gm_metaval *const kinds = array(sp, "tokenizer.ggml.token_type", 262144);
    json_t *const vocab = json_object(), *const list = json_array(), *const added = json_array();
    json_t **const piece = malloc(262144 * sizeof *piece);
    assert_non_null(piece);
    for (uint64_t i = 0; i < tokens->n; i++) {
        gm_strbuf text = {0};
        const int kind = (int)gm_meta_elem(kinds, i);
        for (size_t c = 0; c < tokens->strs[i].len; c++) {
            const char at = tokens->strs[i].p[c];
            gm_strbuf_put(&text, at == ' ' ? GM_STR(SP) : (gm_str){&at, 1});
        }
        piece[i] = json_stringn(text.p, text.len);
        json_object_set_new(vocab, text.p, json_integer((json_int_t)i));
        if (kind != 1 && kind != 6)
            json_array_append_new(added, json_pack("{s:I,s:O,s:b}", "id", (json_int_t)i, "content",
                                                   piece[i], "special", kind != 4));
        gm_strbuf_deinit(&text);
    }
    for (size_t i = 0; i + 8 <= merges->size; i += 8) {
        json_array_append_new(list, json_pack("[O,O]", piece[gm_read_u32(merges->data + i)],
                                              piece[gm_read_u32(merges->data + i + 4)]));
    }
    for (uint64_t i = 0; i < tokens->n; i++)
        json_decref(piece[i]);
    free(piece);
    json_t *const root = json_pack(
        "{s:o,s:{s:s,s:{s:s},s:s},s:{s:s,s:b,s:s,s:o,s:o}}", "added_tokens", added, "normalizer",
        "type", "Replace", "pattern", "String", " ", "content", SP, "model", "type", "BPE",
        "byte_fallback", 1, "unk_token", "<unk>", "vocab", vocab, "merges", list);
    assert_non_null(root);
    char *const text = json_dumps(root, JSON_COMPACT);
    assert_non_null(text);
    json_decref(root);
    return text;
}

static void test_gemma(void **state)
{
    (void)state;
    gm_mapfile model = {0}, merges = {0};
    if (gm_mapfile_open(&model, DATA "gemma3.SYNTHETIC-tail.spiece.model", NULL) != GM_OK ||
        gm_mapfile_open(&merges, DATA "gemma3.merges.u32le.bin", NULL) != GM_OK) {
        print_message("skipped: %s is not there\n", DATA);
        gm_mapfile_close(&model);
        skip();
    }
    gm_tensorfile *const sp = fresh(), *const f = fresh();
    gm_err err = {0};
    assert_int_equal(gm_sp_model_parse(sp, model.data, model.size, "tokenizer.model", &err), GM_OK);
    char *const json = gemma_json(sp, &merges);
    if (gm_hf_tokenizer_parse(f, (const uint8_t *)json, strlen(json), "tokenizer.json", &err) !=
        GM_OK)
        fail_msg("%s", err.msg);
    const gm_str *const a = array(sp, "tokenizer.ggml.tokens", 262144)->strs;
    const gm_str *const b = array(f, "tokenizer.ggml.tokens", 262144)->strs;
    static const char *const NUMBERS[] = {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"};
    for (uint64_t i = 0; i < 262144; i++)
        assert_true(gm_str_eq(a[i], b[i]));
    for (size_t k = 0; k < 2; k++) {
        const gm_metaval *const x = array(sp, NUMBERS[k], 262144);
        const gm_metaval *const y = array(f, NUMBERS[k], 262144);
        /* <unk> is of a kind of its own in SentencePiece's file. */
        for (uint64_t i = 0; i < 262144; i++)
            assert_true(i == 3 || gm_meta_elem(x, i) == gm_meta_elem(y, i));
    }
    free(json);
    gm_tensorfile_close(f);
    gm_tensorfile_close(sp);
    gm_mapfile_close(&model);
    gm_mapfile_close(&merges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_translation),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_idle_merges),     cmocka_unit_test(test_config),
        cmocka_unit_test(test_config_refusals), cmocka_unit_test(test_gemma),
    };
    return cmocka_run_group_tests_name("t_hf_tokenizer", tests, NULL, NULL);
}
