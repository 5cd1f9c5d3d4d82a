/* SPDX-License-Identifier: MIT */
/* The tokenizer against its definition: of all neighbours that together are a piece, join those
 * with the best score, the leftmost of equals, until there are none.
 *
 * The input is a vocabulary and a text over four characters. The first byte is the number of
 * pieces; each piece is two bytes, of which one has its characters and one its length, whether it
 * is user-defined, and its score; the rest is the text, four characters a byte. */
#include "fuzz/fuzz_vocab.h"

enum { PIECES = 24, PIECE_LEN = 4, TEXT = 128 };

static const char ALPHABET[][4] = {"a", "b", "c", GM_SPACE_STR};

typedef struct symbol {
    gm_str text;
    int32_t id;
    bool whole; /* user-defined: no merge crosses it */
} symbol;

typedef struct pieces {
    char text[PIECES + 4][3 * PIECE_LEN + 1];
    gm_str str[PIECES + 4];
    float score[PIECES + 4];
    int32_t kind[PIECES + 4];
    uint32_t n;
} pieces;

static void pieces_read(pieces *p, const uint8_t *data, size_t n)
{
    for (; p->n < 4; p->n++) {
        p->str[p->n] = gm_str_c(ALPHABET[p->n]);
        p->score[p->n] = -100;
        p->kind[p->n] = GM_PIECE_NORMAL;
    }
    for (size_t i = 0; i < n; i++, p->n++) {
        const unsigned chars = data[2 * i], more = data[2 * i + 1];
        char *const text = p->text[p->n];
        size_t len = 0;
        for (unsigned k = 0; k < 1 + (more & 3); k++)
            len += (size_t)snprintf(text + len, 4, "%s", ALPHABET[chars >> 2 * k & 3]);
        p->str[p->n] = (gm_str){text, len};
        p->score[p->n] = -(float)(more >> 3);
        p->kind[p->n] = more & 4 ? GM_PIECE_USER : GM_PIECE_NORMAL;
    }
}

static gm_vocab *vocab_open(const pieces *p)
{
    gm_metaval vals[] = {
        {GM_STR("tokenizer.ggml.model"), .type = GM_META_STR, .n = 1, .s = GM_STR("llama")},
        {GM_STR("tokenizer.ggml.tokens"), GM_META_ARRAY, GM_META_STR, p->n, .strs = p->str},
        {GM_STR("tokenizer.ggml.scores"), GM_META_ARRAY, GM_META_F32, p->n,
         .raw = (const uint8_t *)p->score},
        {GM_STR("tokenizer.ggml.token_type"), GM_META_ARRAY, GM_META_I32, p->n,
         .raw = (const uint8_t *)p->kind},
    };
    const gm_meta meta = {.at = vals, .n = sizeof vals / sizeof vals[0], .file = "fuzz"};
    gm_vocab *v = NULL;
    FUZZ_CHECK(gm_vocab_open(&v, &meta, p->n, NULL) == GM_OK);
    return v;
}

static size_t symbols_cut(const gm_vocab *v, gm_str text, symbol *out)
{
    size_t n = 0;
    for (size_t at = 0, len = 0; at < text.len; at += len, n++) {
        const gm_str rest = {text.p + at, text.len - at};
        const int32_t user = gm_vocab_match_user(v, rest, &len);
        if (user == GM_NO_TOKEN) len = gm_utf8_len((uint8_t)*rest.p);
        const gm_str one = {rest.p, len};
        const bool whole = user != GM_NO_TOKEN;
        out[n] = (symbol){one, whole ? user : gm_vocab_find_merged(v, one), whole};
    }
    return n;
}

/* Joins the best pair; false when there is none. */
static bool merge_best(const gm_vocab *v, symbol *s, size_t *n)
{
    size_t best = *n;
    int32_t best_id = GM_NO_TOKEN;
    for (size_t i = 0; i + 1 < *n; i++) {
        if (s[i].whole || s[i + 1].whole) continue;
        const gm_str both = {s[i].text.p, s[i].text.len + s[i + 1].text.len};
        const int32_t id = gm_vocab_find_merged(v, both);
        if (id == GM_NO_TOKEN) continue;
        if (best_id != GM_NO_TOKEN && gm_vocab_score(v, id) <= gm_vocab_score(v, best_id)) continue;
        best = i;
        best_id = id;
    }
    if (best_id == GM_NO_TOKEN) return false;
    s[best].text.len += s[best + 1].text.len;
    s[best].id = best_id;
    memmove(s + best + 1, s + best + 2, (*n - best - 2) * sizeof *s);
    --*n;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t n_pieces = size ? data[0] % (PIECES + 1) : 0;
    if (size == 0 || 2 * n_pieces >= size) return 0;
    static pieces p; /* zeroed for each input: too large for a stack frame */
    p = (pieces){0};
    pieces_read(&p, data + 1, n_pieces);
    char text[3 * TEXT + 1] = "";
    size_t len = 0;
    for (size_t i = 0; i < TEXT && 1 + 2 * n_pieces + i / 4 < size; i++) {
        const unsigned four = data[1 + 2 * n_pieces + i / 4];
        len += (size_t)snprintf(text + len, 4, "%s", ALPHABET[four >> i % 4 * 2 & 3]);
    }
    gm_vocab *const v = vocab_open(&p);
    static symbol symbols[TEXT];
    size_t n = symbols_cut(v, (gm_str){text, len}, symbols);
    while (merge_best(v, symbols, &n))
        continue;
    gm_ids ids = {0};
    FUZZ_CHECK(gm_tokenizer_encode(v, (gm_str){text, len}, 0, &ids, NULL) == GM_OK);
    FUZZ_CHECK(ids.n == n);
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(ids.at[i] == symbols[i].id);
    gm_ids_deinit(&ids);
    gm_vocab_close(v);
    return 0;
}
