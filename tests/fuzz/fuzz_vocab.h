/* SPDX-License-Identifier: MIT */
#ifndef GM_TESTS_FUZZ_VOCAB_H
#define GM_TESTS_FUZZ_VOCAB_H

/* A small vocabulary with every kind of piece, and what must hold for any
 * vocabulary that was accepted. */

#include "base/strbuf.h"
#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "text/detok.h"
#include "text/tokenizer.h"

#define FUZZ_PIECES 320 /* room */

/* Which vocabulary: bits. */
enum { FUZZ_VOCAB_NO_BYTES = 1, FUZZ_VOCAB_NO_UNK = 2, FUZZ_VOCAB_SPACE = 4, FUZZ_VOCABS = 8 };

typedef struct fuzz_piece {
    const char *text;
    float score;
    int32_t kind;
} fuzz_piece;

static const fuzz_piece FUZZ_LIST[] = {
    {"<pad>", 0, 3},
    {"<eos>", 0, 3},
    {"<bos>", 0, 3},
    {"<mask>", 0, 4},
    {"<start_of_turn>", 0, 4},
    {"<end_of_turn>", 0, 4},
    {"<unused7>", 0, 4},
    {"<b>", 0, 4},
    {"\n", 0, 4},
    {"\n\n", 0, 4},
    {"  ", 0, 4},
    {"  \xE2\x96\x81", 0, 4},
    {"\xE2\x96\x81", -40, 1},
    {"a", -41, 1},
    {"b", -42, 1},
    {"c", -43, 1},
    {"<", -44, 1},
    {">", -45, 1},
    {"e", -46, 1},
    {"\xC3\xA9", -47, 1},
    {"\xEF\xBF\xBD", -48, 1},
    {"ab", 0, 1},
    {"bc", -1, 1},
    {"abc", -3, 1},
    {"\xE2\x96\x81"
     "a",
     -2, 1},
    {"ca", -2, 5},
    {"cac", -4, 5},
    {"caca", -5, 1},
    {"<b", -6, 1},
    {"e\xC3\xA9", -7, 1},
    {"<bos>", -8, 1},
};

/* The vocabulary of those bits, made once. */
static inline const gm_vocab *fuzz_vocab(uint32_t which)
{
    static gm_vocab *vocabs[FUZZ_VOCABS];
    static gm_str text[FUZZ_VOCABS][FUZZ_PIECES];
    static float score[FUZZ_VOCABS][FUZZ_PIECES];
    static int32_t kind[FUZZ_VOCABS][FUZZ_PIECES];
    static char bytes[256][8];
    if (vocabs[which]) return vocabs[which];
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof FUZZ_LIST / sizeof FUZZ_LIST[0]; i++, n++) {
        text[which][n] = gm_str_c(FUZZ_LIST[i].text);
        score[which][n] = FUZZ_LIST[i].score;
        kind[which][n] = FUZZ_LIST[i].kind;
    }
    if (!(which & FUZZ_VOCAB_NO_UNK)) {
        text[which][n] = GM_STR("<unk>");
        kind[which][n++] = GM_PIECE_UNKNOWN;
    }
    for (unsigned b = 0; b < 256 && !(which & FUZZ_VOCAB_NO_BYTES); b++) {
        snprintf(bytes[b], sizeof bytes[b], "<0x%02X>", b);
        text[which][n] = gm_str_c(bytes[b]);
        kind[which][n++] = GM_PIECE_BYTE;
    }
    gm_metaval vals[] = {
        {.type = GM_META_STR, .n = 1, .s = GM_STR("llama")},
        {.type = GM_META_ARRAY, .elem = GM_META_STR, .n = n, .strs = text[which]},
        {.type = GM_META_ARRAY, .elem = GM_META_F32, .n = n, .raw = (const uint8_t *)score[which]},
        {.type = GM_META_ARRAY, .elem = GM_META_I32, .n = n, .raw = (const uint8_t *)kind[which]},
        {.type = GM_META_BOOL, .n = 1, .u = (which & FUZZ_VOCAB_SPACE) != 0},
    };
    static const char *const KEYS[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.add_space_prefix"};
    for (size_t i = 0; i < sizeof vals / sizeof vals[0]; i++)
        vals[i].key = gm_str_c(KEYS[i]);
    const gm_meta meta = {.at = vals, .n = sizeof vals / sizeof vals[0], .file = "fuzz"};
    FUZZ_CHECK(gm_vocab_open(&vocabs[which], &meta, n + 2, NULL) == GM_OK);
    return vocabs[which];
}

static inline void fuzz_ids_check(const gm_vocab *v, const gm_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        FUZZ_CHECK(gm_vocab_has(v, ids->at[i]));
}

static inline bool fuzz_is_utf8(gm_str s)
{
    uint32_t cp = 0;
    for (size_t i = 0, len = 0; i < s.len; i += len) {
        len = gm_utf8_read(s.p + i, s.len - i, &cp);
        if (len == 0) return false;
    }
    return true;
}

/* Ids to text, which is whole characters after each of them. */
static inline void fuzz_decode(const gm_vocab *v, const gm_ids *ids, gm_strbuf *out)
{
    gm_detok d = {0};
    size_t before = 0;
    for (size_t i = 0; i < ids->n; i++) {
        gm_detok_put(&d, v, ids->at[i], out);
        FUZZ_CHECK(out->len == before ||
                   fuzz_is_utf8((gm_str){out->p + before, out->len - before}));
        before = out->len;
    }
    gm_detok_end(&d, out);
    FUZZ_CHECK(gm_strbuf_status(out, NULL) == GM_OK && fuzz_is_utf8(gm_strbuf_str(out)));
}

/* Opens the vocabulary of a file that was accepted, and puts a text through it, both ways. */
static inline void fuzz_vocab_try(const gm_meta *meta, uint64_t n_pad)
{
    static const char TEXT[] =
        "<bos>The cat, caf\xC3\xA9  <b>\n\n1 \xF0\x9F\x98\x80\xFF abcabc<0x41>";
    const gm_metaval *const tokens = gm_meta_find(meta, "tokenizer.ggml.tokens");
    gm_vocab *v = NULL;
    gm_err err = {0};
    gm_ids ids = {0};
    gm_strbuf text = {0};
    const uint64_t n_rows = (tokens ? tokens->n : 0) + n_pad;
    if (!fuzz_ok(gm_vocab_open(&v, meta, n_rows, &err), &err)) return;
    const gm_vocab_ids *const special = gm_vocab_special(v);
    FUZZ_CHECK(gm_vocab_len(v) == n_rows);
    FUZZ_CHECK(special->eos == GM_NO_TOKEN || gm_vocab_is_end(v, special->eos));
    FUZZ_CHECK(!gm_vocab_adds_bos(v) || gm_vocab_has(v, special->bos));
    for (uint32_t flags = 0; flags < 4; flags++) {
        ids.n = 0;
        (void)fuzz_ok(gm_tokenizer_encode(v, GM_STR(TEXT), flags, &ids, &err), &err);
        fuzz_ids_check(v, &ids);
        fuzz_decode(v, &ids, &text);
    }
    gm_strbuf_deinit(&text);
    gm_ids_deinit(&ids);
    gm_vocab_close(v);
}

#endif
