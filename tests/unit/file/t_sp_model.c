/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mapfile.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "file/hf.h"

#define REAL_MODEL "../shared/data/gemma3-tokenizer/gemma3.SYNTHETIC-tail.spiece.model"
#define SP         "\xE2\x96\x81"

/* A string that may hold NULs, for tables. */
#define BYTES(literal)               \
    {                                \
        literal, sizeof(literal) - 1 \
    }

static gm_tensorfile *fresh(void)
{
    gm_tensorfile *f = NULL;
    assert_int_equal(gm_mem_alloc(&f, 1, sizeof *f, "a test's file", NULL), GM_OK);
    return f;
}

/* ---- a writer of protobuf ------------------------------------------------------------ */

static void put_varint(gm_strbuf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        gm_strbuf_putc(b, (char)(v | 0x80));
    gm_strbuf_putc(b, (char)v);
}

static void put_int(gm_strbuf *b, unsigned field, uint64_t v)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, v);
}

static void put_bytes(gm_strbuf *b, unsigned field, gm_str s)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, s.len);
    gm_strbuf_put(b, s);
}

static void put_piece(gm_strbuf *b, const char *text, float score, unsigned kind)
{
    gm_strbuf p = {0};
    char bytes[4];
    memcpy(bytes, &score, 4);
    put_bytes(&p, 1, gm_str_c(text));
    put_varint(&p, 2 << 3 | 5);
    gm_strbuf_put(&p, (gm_str){bytes, 4});
    if (kind != 1) put_int(&p, 3, kind);
    put_bytes(b, 1, gm_strbuf_str(&p));
    gm_strbuf_deinit(&p);
}

static const struct {
    const char *text;
    float score;
    unsigned kind;
} PIECES[] = {
    {"<pad>", 0, 3},           {"<eos>", 0, 3},          {"<bos>", 0, 3},      {"<unk>", 0, 2},
    {"<mask>", 0, 4},          {"[multimodal]", 0, 4},   {"<unused0>", 0, 4},  {"<unusedx>", 0, 4},
    {"<start_of_turn>", 0, 4}, {"<end_of_image>", 0, 4}, {SP SP "a" SP, 0, 4}, {"<0x0A>", 0, 6},
    {SP "t", -0.0f, 1},        {"in", -1.5f, 1},         {"<mask>x", -2, 1},   {"old", -3, 5},
};
#define N_PIECES (sizeof PIECES / sizeof PIECES[0])

/* A whole model, followed by extra bytes. */
static gm_strbuf model_make(const char *extra, size_t n_extra)
{
    gm_strbuf b = {0}, trainer = {0}, norm = {0};
    for (size_t i = 0; i < N_PIECES; i++)
        put_piece(&b, PIECES[i].text, PIECES[i].score, PIECES[i].kind);
    put_bytes(&trainer, 1, GM_STR("input.txt"));
    put_int(&trainer, 3, 2);
    put_varint(&trainer, 10 << 3 | 5);
    gm_strbuf_put(&trainer, GM_STR("abcd"));
    put_varint(&trainer, 99 << 3 | 1);
    gm_strbuf_put(&trainer, GM_STR("abcdefgh"));
    put_int(&trainer, 40, 3);
    put_int(&trainer, 41, 2);
    put_int(&trainer, 42, 1);
    put_int(&trainer, 43, UINT64_MAX);
    put_bytes(&norm, 1, GM_STR("identity"));
    put_bytes(&norm, 2, GM_STR(""));
    put_int(&norm, 3, 0);
    put_int(&norm, 4, 0);
    put_bytes(&b, 2, gm_strbuf_str(&trainer));
    put_bytes(&b, 3, gm_strbuf_str(&norm));
    put_bytes(&b, 4, GM_STR("self test"));
    gm_strbuf_put(&b, (gm_str){extra, n_extra});
    assert_int_equal(gm_strbuf_status(&b, NULL), GM_OK);
    gm_strbuf_deinit(&trainer);
    gm_strbuf_deinit(&norm);
    return b;
}

static const gm_metaval *array(const gm_tensorfile *f, const char *key, uint32_t elem, uint64_t n)
{
    const gm_metaval *const v = gm_meta_find(&f->meta, key);
    assert_non_null(v);
    assert_int_equal(v->type, GM_META_ARRAY);
    assert_int_equal(v->elem, elem);
    assert_int_equal(v->n, n);
    return v;
}

static uint32_t u32(const gm_tensorfile *f, const char *key, uint32_t absent)
{
    uint32_t v = absent;
    assert_int_equal(gm_meta_u32(&f->meta, key, &v, NULL, NULL), GM_OK);
    return v;
}

static bool truth(const gm_tensorfile *f, const char *key)
{
    bool v = false, found = false;
    assert_int_equal(gm_meta_bool(&f->meta, key, &v, &found, NULL), GM_OK);
    assert_true(found);
    return v;
}

/* ---- tests --------------------------------------------------------------------------- */

static void test_translation(void **state)
{
    (void)state;
    gm_strbuf b = model_make("", 0);
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    if (gm_sp_model_parse(f, (const uint8_t *)b.p, b.len, "tokenizer.model", &err) != GM_OK)
        fail_msg("%s", err.msg);
    const gm_metaval *const tokens = array(f, "tokenizer.ggml.tokens", GM_META_STR, N_PIECES);
    const gm_metaval *const scores = array(f, "tokenizer.ggml.scores", GM_META_F32, N_PIECES);
    const gm_metaval *const kinds = array(f, "tokenizer.ggml.token_type", GM_META_I32, N_PIECES);
    static const int KIND[N_PIECES] = {3, 3, 3, 2, 3, 4, 3, 4, 3, 3, 4, 6, 1, 1, 1, 5};
    for (size_t i = 0; i < N_PIECES; i++) {
        const char *const text = i == 10 ? "  a " : PIECES[i].text;
        assert_true(gm_str_eq(tokens->strs[i], gm_str_c(text)));
        assert_true(gm_meta_elem(scores, i) == (double)PIECES[i].score);
        assert_int_equal((int)gm_meta_elem(kinds, i), KIND[i]);
    }
    assert_int_equal(u32(f, "tokenizer.ggml.bos_token_id", 99), 2);
    assert_int_equal(u32(f, "tokenizer.ggml.eos_token_id", 99), 1);
    assert_int_equal(u32(f, "tokenizer.ggml.unknown_token_id", 99), 3);
    assert_null(gm_meta_find(&f->meta, "tokenizer.ggml.padding_token_id"));
    assert_true(truth(f, "tokenizer.ggml.add_bos_token"));
    assert_false(truth(f, "tokenizer.ggml.add_eos_token"));
    assert_false(truth(f, "tokenizer.ggml.add_space_prefix"));
    gm_tensorfile_close(f);
    gm_strbuf_deinit(&b);
}

static void test_config_outranks(void **state)
{
    (void)state;
    gm_strbuf b = model_make("\x1A\x02\x18\x01", 4); /* add_dummy_prefix true */
    const char *const config = "{\"model_type\": \"gemma3_text\", \"eos_token_id\": [8, 1]}";
    gm_tensorfile *const f = fresh();
    assert_int_equal(gm_hf_config_parse(f, (const uint8_t *)config, strlen(config), "c", NULL),
                     GM_OK);
    assert_int_equal(gm_sp_model_parse(f, (const uint8_t *)b.p, b.len, "t", NULL), GM_OK);
    assert_int_equal(u32(f, "tokenizer.ggml.eos_token_id", 99), 8);
    assert_true(truth(f, "tokenizer.ggml.add_space_prefix"));
    gm_tensorfile_close(f);
    gm_strbuf_deinit(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    /* As in protobuf the last of several fields wins, so each fault is appended to a good file. */
    static const struct {
        gm_str extra;
        const char *words;
        gm_status code;
    } CASES[] = {
        {BYTES("\x12\x02\x18\x01"), "type unigram", GM_E_UNSUP},
        {BYTES("\x12\x02\x18\x03"), "type word", GM_E_UNSUP},
        {BYTES("\x12\x02\x18\x09"), "type unknown", GM_E_UNSUP},
        {BYTES("\x12\x03\xC0\x01\x01"), "treat_whitespace_as_suffix", GM_E_UNSUP},
        {BYTES("\x1A\x0A\x0A\x08nmt_nfkc"), "\"nmt_nfkc\"", GM_E_UNSUP},
        {BYTES("\x1A\x03\x12\x01x"), "normalises", GM_E_UNSUP},
        {BYTES("\x1A\x02\x20\x01"), "remove_extra_whitespaces", GM_E_UNSUP},
        {BYTES("\x1A\x02\x28\x00"), "escape_whitespaces", GM_E_UNSUP},
        {BYTES("\x12\x03\xC8\x02\x10"), "bos_id is 16, expected one of its 16", GM_E_FORMAT},
        {BYTES("\x02\x00"), "outermost", GM_E_FORMAT},
        {BYTES("\x0B"), "outermost", GM_E_FORMAT},
        {BYTES("\x26"), "outermost", GM_E_FORMAT},
        {BYTES("\x0A"), "outermost", GM_E_FORMAT},
        {BYTES("\x0A\x7F"), "outermost", GM_E_FORMAT},
        {BYTES("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), "outermost", GM_E_FORMAT},
        {BYTES("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), "outermost", GM_E_FORMAT},
        {BYTES("\x2D\x01\x02"), "outermost", GM_E_FORMAT},
        {BYTES("\x29\x01\x02"), "outermost", GM_E_FORMAT},
        {BYTES("\x08\x01"), "outermost", GM_E_FORMAT},
        {BYTES("\x12\x01\x18"), "trainer_spec", GM_E_FORMAT},
        {BYTES("\x12\x02\x1A\x00"), "trainer_spec", GM_E_FORMAT},
        {BYTES("\x1A\x02\x08\x00"), "normalizer_spec", GM_E_FORMAT},
        {BYTES("\x0A\x00"), "piece 16", GM_E_FORMAT},
        {BYTES("\x0A\x02\x0A\x00"), "piece 16", GM_E_FORMAT},
        {BYTES("\x0A\x05\x0A\x01x\x18\x00"), "kind 0", GM_E_FORMAT},
        {BYTES("\x0A\x05\x0A\x01x\x18\x07"), "kind 7", GM_E_FORMAT},
        {BYTES("\x0A\x08\x0A\x01x\x15\x00\x00\xC0\x7F"), "finite", GM_E_FORMAT},
        {BYTES("\x0A\x08\x0A\x01x\x15\x00\x00\x80\x7F"), "finite", GM_E_FORMAT},
        {BYTES("\x0A\x02\x0A\x05"), "list of pieces", GM_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        gm_strbuf b = model_make(CASES[i].extra.p, CASES[i].extra.len);
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        const gm_status s =
            gm_sp_model_parse(f, (const uint8_t *)b.p, b.len, "tokenizer.model", &err);
        if (s != CASES[i].code || !strstr(err.msg, CASES[i].words) ||
            !strstr(err.msg, "tokenizer.model"))
            fail_msg("case %zu: status %d, \"%s\"", i, s, err.msg);
        gm_tensorfile_close(f);
        gm_strbuf_deinit(&b);
    }
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    assert_int_equal(gm_sp_model_parse(f, NULL, 0, "tokenizer.model", &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "has no pieces"));
    gm_tensorfile_close(f);
}

/* Cut anywhere: refused or, between two fields, read as a smaller file; never past the end. */
static void test_truncated(void **state)
{
    (void)state;
    gm_strbuf b = model_make("", 0);
    for (size_t n = 0; n < b.len; n++) {
        uint8_t *const cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, b.p, n);
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        const gm_status s = gm_sp_model_parse(f, cut, n, "tokenizer.model", &err);
        /* 11 bytes of self test data are the only ones that may be missing. */
        if (n != b.len - 11 && (s == GM_OK || !err.msg[0])) fail_msg("%zu bytes: %d", n, s);
        gm_tensorfile_close(f);
        free(cut);
    }
    gm_strbuf_deinit(&b);
}

/* ---- the real thing ------------------------------------------------------------------ */

static void test_gemma(void **state)
{
    (void)state;
    gm_mapfile m = {0};
    if (gm_mapfile_open(&m, REAL_MODEL, NULL) != GM_OK) {
        print_message("skipped: %s is not there\n", REAL_MODEL);
        skip();
    }
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    if (gm_sp_model_parse(f, m.data, m.size, REAL_MODEL, &err) != GM_OK) fail_msg("%s", err.msg);
    const gm_metaval *const tokens = array(f, "tokenizer.ggml.tokens", GM_META_STR, 262144);
    const gm_metaval *const scores = array(f, "tokenizer.ggml.scores", GM_META_F32, 262144);
    const gm_metaval *const kinds = array(f, "tokenizer.ggml.token_type", GM_META_I32, 262144);
    size_t count[7] = {0};
    for (uint64_t i = 0; i < kinds->n; i++)
        count[(int)gm_meta_elem(kinds, i)]++;
    assert_int_equal(count[1], 255474);
    assert_int_equal(count[2], 1);
    /* 3 of the file's own; <mask>; <unused0..6241>; two turns; two images. */
    assert_int_equal(count[3], 3 + 1 + 6242 + 2 + 2);
    assert_int_equal(count[4], 6410 - 1 - 6242 - 2 - 2);
    assert_int_equal(count[6], 256);
    assert_true(gm_str_eq(tokens->strs[106], GM_STR("<end_of_turn>")));
    assert_true(gm_str_eq(tokens->strs[138], GM_STR("  ")));
    assert_true(gm_str_eq(tokens->strs[494], GM_STR(SP "t")));
    assert_true(gm_meta_elem(scores, 500) == -6);
    gm_tensorfile_close(f);
    gm_mapfile_close(&m);
}

static void text_write(const char *path)
{
    static const char *const WORD[] = {"the",    "model",   "reads", "a",      "token",  "and",
                                       "writes", "another", "into",  "memory", "slowly", "again"};
    FILE *const out = fopen(path, "w");
    assert_non_null(out);
    uint32_t seed = 1;
    for (int i = 0; i < 1500; i++) {
        seed = seed * 1664525u + 1013904223u;
        fprintf(out, "%s%s", WORD[(seed >> 16) % 12], i % 11 == 10 ? ".\n" : i % 17 ? " " : "  ");
    }
    fclose(out);
}

/* Trains a vocabulary in dir; false, with a reason, when there is no spm_train. */
static bool train(const char *dir, const char *options)
{
    char cmd[1024];
    snprintf(cmd, sizeof cmd,
             "command -v spm_train >/dev/null || exit 3; cd '%s' && spm_train --input=t.txt"
             " --model_prefix=m --vocab_size=330 --model_type=bpe --byte_fallback=true"
             " --normalization_rule_name=identity --remove_extra_whitespaces=false %s"
             " --pad_id=0 --eos_id=1 --bos_id=2 --unk_id=3 --user_defined_symbols='<mask>,"
             "<start_of_turn>,<p>' >log 2>&1",
             dir, options);
    const int rc = system(cmd);
    if (WIFEXITED(rc) && WEXITSTATUS(rc) == 3) {
        print_message("skipped: spm_train (Debian's sentencepiece) is not installed\n");
        return false;
    }
    assert_int_equal(rc, 0);
    return true;
}

/* Compares with the list that spm_train writes beside its model: "piece TAB score". */
static void vocab_compare(const gm_tensorfile *f, const char *path)
{
    const gm_metaval *const tokens = array(f, "tokenizer.ggml.tokens", GM_META_STR, 330);
    const gm_metaval *const scores = array(f, "tokenizer.ggml.scores", GM_META_F32, 330);
    FILE *const in = fopen(path, "r");
    assert_non_null(in);
    char line[256];
    for (uint64_t i = 0; i < tokens->n; i++) {
        assert_non_null(fgets(line, sizeof line, in));
        char *const tab = strrchr(line, '\t');
        assert_non_null(tab);
        assert_true(gm_str_eq(tokens->strs[i], (gm_str){line, (size_t)(tab - line)}));
        assert_true(gm_meta_elem(scores, i) == strtod(tab + 1, NULL));
    }
    fclose(in);
}

static void test_spm_train(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    char dir[256], path[300];
    snprintf(dir, sizeof dir, "%s/gm_sp_XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/t.txt", dir);
    text_write(path);
    bool ran = false;
    for (int prefix = 0; prefix < 2; prefix++) {
        ran = train(dir, prefix ? "--add_dummy_prefix=true" : "--add_dummy_prefix=false");
        if (!ran) break;
        gm_mapfile m = {0};
        gm_err err = {0};
        snprintf(path, sizeof path, "%s/m.model", dir);
        assert_int_equal(gm_mapfile_open(&m, path, &err), GM_OK);
        gm_tensorfile *const f = fresh();
        if (gm_sp_model_parse(f, m.data, m.size, path, &err) != GM_OK) fail_msg("%s", err.msg);
        snprintf(path, sizeof path, "%s/m.vocab", dir);
        vocab_compare(f, path);
        static const int KIND[] = {3, 3, 3, 2, 3, 3, 4, 6};
        const gm_metaval *const kinds = array(f, "tokenizer.ggml.token_type", GM_META_I32, 330);
        for (uint64_t i = 0; i < 8; i++)
            assert_int_equal((int)gm_meta_elem(kinds, i), KIND[i]);
        assert_int_equal((int)gm_meta_elem(kinds, 329), 1);
        assert_int_equal(u32(f, "tokenizer.ggml.padding_token_id", 99), 0);
        assert_int_equal(u32(f, "tokenizer.ggml.bos_token_id", 99), 2);
        assert_int_equal(truth(f, "tokenizer.ggml.add_space_prefix"), prefix);
        gm_tensorfile_close(f);
        gm_mapfile_close(&m);
    }
    static const char *const FILES[] = {"t.txt", "m.model", "m.vocab", "log"};
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, FILES[i]);
        unlink(path);
    }
    rmdir(dir);
    if (!ran) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_translation), cmocka_unit_test(test_config_outranks),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_gemma),       cmocka_unit_test(test_spm_train),
    };
    return cmocka_run_group_tests_name("t_sp_model", tests, NULL, NULL);
}
