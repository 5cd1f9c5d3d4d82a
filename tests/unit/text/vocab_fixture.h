/* SPDX-License-Identifier: MIT */
#ifndef GM_TESTS_VOCAB_FIXTURE_H
#define GM_TESTS_VOCAB_FIXTURE_H

/* Vocabularies for the tests of src/text, built as metadata, and small tools around them. A test
 * adds pieces and keys, opens the vocabulary, and closes the fixture after the vocabulary. Files
 * that include this include cmocka before. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "text/detok.h"
#include "text/tokenizer.h"

typedef struct fixture {
    gm_arena arena;
    gm_meta meta;
    gm_str *tokens;
    float *scores;
    int32_t *types;
    size_t n, cap;
    bool no_types; /* leave token_type out */
} fixture;

static inline void fixture_piece(fixture *f, gm_str piece, float score, int32_t type)
{
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 64;
        f->tokens = realloc(f->tokens, f->cap * sizeof *f->tokens);
        f->scores = realloc(f->scores, f->cap * sizeof *f->scores);
        f->types = realloc(f->types, f->cap * sizeof *f->types);
        assert_true(f->tokens && f->scores && f->types);
    }
    const char *copy = NULL;
    assert_int_equal(gm_arena_copy(&f->arena, piece, &copy, NULL), GM_OK);
    f->tokens[f->n] = (gm_str){copy, piece.len};
    f->scores[f->n] = score;
    f->types[f->n++] = type;
}

/* Gemma's first five pieces, turn tokens (5, 6) and, with bytes, 256 byte pieces from 7 on. */
static inline void fixture_gemma(fixture *f, bool bytes)
{
    static const char *const NAMES[] = {"<pad>",  "<eos>",           "<bos>",        "<unk>",
                                        "<mask>", "<start_of_turn>", "<end_of_turn>"};
    for (size_t i = 0; i < 7; i++)
        fixture_piece(f, gm_str_c(NAMES[i]), 0, GM_PIECE_CONTROL);
    for (int b = 0; b < 256 && bytes; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        fixture_piece(f, gm_str_c(name), 0, GM_PIECE_BYTE);
    }
}

static inline void fixture_key(fixture *f, const char *key, gm_metaval v)
{
    v.key = gm_str_c(key);
    v.n = v.type == GM_META_ARRAY ? v.n : 1;
    assert_int_equal(gm_meta_add(&f->meta, &v, NULL), GM_OK);
}

static inline void fixture_u32(fixture *f, const char *key, uint32_t value)
{
    fixture_key(f, key, (gm_metaval){.type = GM_META_U32, .u = value});
}

static inline void fixture_bool(fixture *f, const char *key, bool value)
{
    fixture_key(f, key, (gm_metaval){.type = GM_META_BOOL, .u = value});
}

/* Adds the keys of the pieces and opens a vocabulary of n_rows, or of as many as there are
 * pieces. */
static inline gm_status fixture_open(fixture *f, uint64_t n_rows, gm_vocab **v, gm_err *err)
{
    f->meta.file = "test.gguf";
    fixture_key(f, "tokenizer.ggml.model", (gm_metaval){.type = GM_META_STR, .s = GM_STR("llama")});
    fixture_key(
        f, "tokenizer.ggml.tokens",
        (gm_metaval){.type = GM_META_ARRAY, .elem = GM_META_STR, .n = f->n, .strs = f->tokens});
    fixture_key(f, "tokenizer.ggml.scores",
                (gm_metaval){.type = GM_META_ARRAY,
                             .elem = GM_META_F32,
                             .n = f->n,
                             .raw = (const uint8_t *)f->scores});
    if (!f->no_types) {
        fixture_key(f, "tokenizer.ggml.token_type",
                    (gm_metaval){.type = GM_META_ARRAY,
                                 .elem = GM_META_I32,
                                 .n = f->n,
                                 .raw = (const uint8_t *)f->types});
    }
    return gm_vocab_open(v, &f->meta, n_rows ? n_rows : f->n, err);
}

static inline gm_vocab *fixture_vocab(fixture *f)
{
    gm_vocab *v = NULL;
    gm_err err = {0};
    if (fixture_open(f, 0, &v, &err) != GM_OK) fail_msg("%s", err.msg);
    return v;
}

static inline void fixture_close(fixture *f)
{
    gm_meta_deinit(&f->meta);
    gm_arena_deinit(&f->arena);
    free(f->tokens);
    free(f->scores);
    free(f->types);
    *f = (fixture){0};
}

static inline void ids_print(const char *what, const int32_t *ids, size_t n)
{
    print_error("%s:", what);
    for (size_t i = 0; i < n; i++)
        print_error(" %d", ids[i]);
    print_error("\n");
}

static inline bool ids_equal(const gm_ids *got, const int32_t *expected, size_t n)
{
    return got->n == n && (n == 0 || memcmp(got->at, expected, n * sizeof *expected) == 0);
}

/* Fails the test unless the text has these ids. */
static inline void ids_check(const gm_vocab *v, gm_str text, uint32_t flags,
                             const int32_t *expected, size_t n)
{
    gm_ids got = {0};
    gm_err err = {0};
    if (gm_tokenizer_encode(v, text, flags, &got, &err) != GM_OK) fail_msg("%s", err.msg);
    if (!ids_equal(&got, expected, n)) {
        print_error("text: %.*s\n", GM_STR_ARG(text));
        ids_print("expected", expected, n);
        ids_print("got", got.at, got.n);
        fail();
    }
    gm_ids_deinit(&got);
}

#define IDS_CHECK(v, text, flags, ...)                        \
    ids_check(v, text, flags, (const int32_t[]){__VA_ARGS__}, \
              sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* The text of ids, in one go. */
static inline void ids_text(const gm_vocab *v, const int32_t *ids, size_t n, gm_strbuf *out)
{
    gm_detok d = {0};
    gm_strbuf_clear(out);
    for (size_t i = 0; i < n; i++)
        gm_detok_put(&d, v, ids[i], out);
    gm_detok_end(&d, out);
    assert_int_equal(gm_strbuf_status(out, NULL), GM_OK);
}

/* A small generator with the same numbers on every machine. */
static inline uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % below);
}

/* A whole file, appended; false when it cannot be read. */
static inline bool file_read(const char *path, gm_strbuf *out)
{
    FILE *const f = fopen(path, "rb");
    if (!f) return false;
    char chunk[65536];
    for (size_t n = fread(chunk, 1, sizeof chunk, f); n; n = fread(chunk, 1, sizeof chunk, f))
        gm_strbuf_put(out, (gm_str){chunk, n});
    fclose(f);
    return gm_strbuf_status(out, NULL) == GM_OK;
}

/* Cuts the next line off *rest. */
static inline bool line_next(gm_str *rest, gm_str *line)
{
    if (rest->len == 0) return false;
    const char *const end = memchr(rest->p, '\n', rest->len);
    const size_t len = end ? (size_t)(end - rest->p) : rest->len;
    const size_t used = len + (end ? 1 : 0);
    *line = (gm_str){rest->p, len};
    *rest = (gm_str){rest->p + used, rest->len - used};
    return true;
}

/* The numbers of a line, whatever stands between them. */
static inline void numbers_read(gm_str line, gm_ids *out)
{
    out->n = 0;
    for (size_t i = 0; i < line.len;) {
        if (line.p[i] < '0' || line.p[i] > '9') {
            i++;
            continue;
        }
        int32_t x = 0;
        for (; i < line.len && line.p[i] >= '0' && line.p[i] <= '9'; i++)
            x = x * 10 + (line.p[i] - '0');
        assert_int_equal(gm_ids_push(out, x, NULL), GM_OK);
    }
}

#endif
