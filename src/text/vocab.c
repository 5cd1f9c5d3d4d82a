/* SPDX-License-Identifier: MIT */
#include "text/vocab.h"

#include <math.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/fp16.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "text/trie.h"

/* Pieces are views into the metadata; two indexes over them are built once.
 *
 *   - A hash table from text to id: open addressing, linear probing, eight bytes a slot, at most
 *     two thirds full (4 MB for 262144 pieces). A slot keeps half of the hash, so that a miss,
 *     which is the tokenizer's common case, rarely touches a piece.
 *   - A trie of the pieces that are matched whole in text: user-defined, control, unknown. They are
 *     few (6414 in Gemma 3), so its nodes are plain lists of siblings.
 *
 * SentencePiece keeps two maps, one of the pieces that merging makes and one of the rest, and a
 * text may stand in both. Here one table holds both: an equal text is a duplicate only within its
 * class. Entries are never removed, so the first that a search meets has the smallest id. */

typedef struct slot {
    uint32_t tag; /* the upper half of the text's hash */
    int32_t id1;  /* id + 1; 0: empty                  */
} slot;

struct gm_vocab {
    const gm_str *listed; /* [n_listed] pieces of the file         */
    gm_str *padding;      /* [len - n_listed] "[PADn]"             */
    float *score;         /* [len]                                 */
    uint8_t *kind;        /* [len] gm_piece_kind                   */
    slot *slots;          /* [slot_mask + 1]                       */
    uint64_t slot_mask;
    uint32_t n_listed, len;
    uint64_t hash;
    int32_t byte[256];
    bool adds_bos, adds_space;
    gm_vocab_ids special;
    gm_trie trie;
    gm_arena arena;
};

/* ---- text to id ---------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ b) * UINT64_C(0x9E3779B97F4A7C15);
    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return h ^ (h >> 32);
}

/* Eight bytes at a time; the last load may overlap the one before, which costs no branch a byte. */
static uint64_t text_hash(gm_str s)
{
    const uint8_t *const p = (const uint8_t *)s.p;
    const size_t n = s.len;
    uint64_t h = n;
    if (n >= 8) {
        for (size_t i = 0; i + 8 < n; i += 8)
            h = mix(h, gm_read_u64(p + i));
        return mix(h, gm_read_u64(p + n - 8));
    }
    if (n >= 4) return mix(h, (uint64_t)gm_read_u32(p) << 32 | gm_read_u32(p + n - 4));
    if (n == 0) return mix(h, 0);
    return mix(h, (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 8 | p[n - 1]);
}

static bool kind_is_merged(uint32_t kind)
{
    return kind == GM_PIECE_NORMAL || kind == GM_PIECE_USER || kind == GM_PIECE_UNUSED;
}

/* The slot that holds the piece, or the empty one where it belongs. With any set, the class of the
 * piece does not matter; else merged says which of the two classes is meant. */
static slot *slot_find(const gm_vocab *v, gm_str piece, uint64_t hash, bool any, bool merged)
{
    const uint32_t tag = (uint32_t)(hash >> 32);
    uint64_t at = hash & v->slot_mask;
    for (; v->slots[at].id1; at = (at + 1) & v->slot_mask) {
        const int32_t id = v->slots[at].id1 - 1;
        if (v->slots[at].tag == tag && (any || kind_is_merged(v->kind[id]) == merged) &&
            gm_str_eq(gm_vocab_piece(v, id), piece))
            break;
    }
    return &v->slots[at];
}

static gm_status table_alloc(gm_vocab *v, gm_err *err)
{
    uint64_t n_slots = 16;
    while (n_slots < (uint64_t)v->len + v->len / 2)
        n_slots *= 2;
    v->slot_mask = n_slots - 1;
    return gm_arena_alloc(&v->arena, &v->slots, n_slots, sizeof *v->slots, "the piece table", err);
}

static void table_add(gm_vocab *v, int32_t id, uint64_t hash)
{
    const gm_str piece = gm_vocab_piece(v, id);
    if (piece.len == 0) return;
    slot *const s = slot_find(v, piece, hash, false, kind_is_merged(v->kind[id]));
    if (s->id1 == 0) *s = (slot){.tag = (uint32_t)(hash >> 32), .id1 = id + 1};
}

/* ---- kinds --------------------------------------------------------------------------- */

/* The value of "<0x0A>", -1 for other texts. */
static int byte_value(gm_str s)
{
    static const char HEX[] = "0123456789ABCDEF";
    if (s.len != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>') return -1;
    const char *const hi = memchr(HEX, s.p[3], 16);
    const char *const lo = memchr(HEX, s.p[4], 16);
    return hi && lo ? (int)(hi - HEX) * 16 + (int)(lo - HEX) : -1;
}

/* "<unused0>" to "<unused6241>": user-defined in tokenizer.model, control in GGUF. */
static bool is_unused_name(gm_str s)
{
    const gm_str begin = GM_STR("<unused");
    if (!gm_str_starts(s, begin) || s.len < begin.len + 2 || s.p[s.len - 1] != '>') return false;
    for (size_t i = begin.len; i < s.len - 1; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
    }
    return true;
}

static bool is_control_name(gm_str s)
{
    static const gm_str NAMES[] = {
        {"<pad>", 5},           {"<eos>", 5},
        {"<bos>", 5},           {"<unk>", 5},
        {"<mask>", 6},          {"<start_of_turn>", 15},
        {"<end_of_turn>", 13},  {"<start_of_image>", 16},
        {"<end_of_image>", 14},
    };
    if (s.len == 0 || s.p[0] != '<') return false;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (gm_str_eq(s, NAMES[i])) return true;
    }
    return is_unused_name(s);
}

/* What a piece is: by its text where Gemma's own spelling says so, else what the file says. GGUF
 * has 0 for a kind that its writer did not know. */
static gm_status kind_set(gm_vocab *v, const gm_meta *meta, int32_t id, int32_t filed, gm_err *err)
{
    const gm_str piece = gm_vocab_piece(v, id);
    const int value = byte_value(piece);
    if (filed < 0 || filed > GM_PIECE_BYTE) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: tokenizer.ggml.token_type of piece %d is %d, expected 1 to 6",
                       meta->file, id, filed);
    }
    if (filed == GM_PIECE_BYTE && value < 0) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: piece %d is a byte piece spelled \"%.*s\", expected \"<0x00>\" to "
                       "\"<0xFF>\"",
                       meta->file, id, GM_STR_ARG(piece));
    }
    if (value >= 0) {
        v->kind[id] = GM_PIECE_BYTE;
        if (v->byte[value] == GM_NO_TOKEN) v->byte[value] = id;
    } else if (is_control_name(piece)) {
        v->kind[id] = GM_PIECE_CONTROL;
    } else {
        v->kind[id] = (uint8_t)(filed ? filed : GM_PIECE_NORMAL);
    }
    return GM_OK;
}

/* ---- reading the metadata ------------------------------------------------------------ */

/* An array of elem with n elements (any number where n is 0). *out is NULL where the key is
 * absent. */
static gm_status array_find(const gm_meta *meta, const char *key, uint32_t elem, uint64_t n,
                            const gm_metaval **out, gm_err *err)
{
    const gm_metaval *const val = gm_meta_find(meta, key);
    *out = NULL;
    if (!val) return GM_OK;
    if (val->type != GM_META_ARRAY || val->elem != elem) {
        const bool array = val->type == GM_META_ARRAY;
        return gm_fail(err, GM_E_FORMAT, 0, "%s: %s is %s%s, expected an array of %s", meta->file,
                       key, array ? "an array of " : "",
                       gm_metatype_name(array ? val->elem : val->type), gm_metatype_name(elem));
    }
    if (n && val->n != n) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: %s has %llu elements, expected %llu, one for each piece", meta->file,
                       key, (unsigned long long)val->n, (unsigned long long)n);
    }
    *out = val;
    return GM_OK;
}

static gm_status array_get(const gm_meta *meta, const char *key, uint32_t elem, uint64_t n,
                           const gm_metaval **out, gm_err *err)
{
    GM_TRY(array_find(meta, key, elem, n, out, err));
    if (*out) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0, "%s: %s is missing, expected an array of %s", meta->file,
                   key, gm_metatype_name(elem));
}

static gm_status model_check(const gm_meta *meta, gm_err *err)
{
    gm_str model = {0};
    bool found = false;
    GM_TRY(gm_meta_str(meta, "tokenizer.ggml.model", &model, &found, err));
    if (!found) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: tokenizer.ggml.model is missing, expected \"llama\"", meta->file);
    }
    if (!gm_str_eq(model, GM_STR("llama"))) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s: tokenizer.ggml.model is \"%.*s\", expected \"llama\" (SentencePiece)",
                       meta->file, GM_STR_ARG(model));
    }
    return GM_OK;
}

/* The pieces of the file and, up to n_rows, padding. */
static gm_status pieces_read(gm_vocab *v, const gm_meta *meta, uint64_t n_rows, gm_err *err)
{
    const gm_metaval *tokens = NULL;
    GM_TRY(array_get(meta, "tokenizer.ggml.tokens", GM_META_STR, 0, &tokens, err));
    if (tokens->n == 0 || tokens->n > n_rows || n_rows >= INT32_MAX) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: tokenizer.ggml.tokens has %llu pieces and the embedding %llu rows, "
                       "expected at least one piece and a row for each",
                       meta->file, (unsigned long long)tokens->n, (unsigned long long)n_rows);
    }
    v->listed = tokens->strs;
    v->n_listed = (uint32_t)tokens->n;
    v->len = (uint32_t)n_rows;
    const uint32_t n_pad = v->len - v->n_listed;
    char *text = NULL; /* "[PAD" + 10 digits + "]" + NUL */
    GM_TRY(gm_arena_alloc(&v->arena, &v->padding, n_pad, sizeof *v->padding, "padding", err));
    GM_TRY(gm_arena_alloc(&v->arena, &text, n_pad, 16, "padding", err));
    for (uint32_t i = 0; i < n_pad; i++) {
        const int n = snprintf(text + 16 * (size_t)i, 16, "[PAD%u]", v->n_listed + i);
        v->padding[i] = (gm_str){text + 16 * (size_t)i, (size_t)n};
    }
    return GM_OK;
}

static gm_status scores_read(gm_vocab *v, const gm_meta *meta, gm_err *err)
{
    const gm_metaval *scores = NULL;
    GM_TRY(array_get(meta, "tokenizer.ggml.scores", GM_META_F32, v->n_listed, &scores, err));
    GM_TRY(gm_arena_alloc(&v->arena, &v->score, v->len, sizeof *v->score, "scores", err));
    for (uint32_t id = 0; id < v->n_listed; id++) {
        v->score[id] = gm_read_f32(scores->raw + 4 * (size_t)id);
        if (isnan(v->score[id])) {
            return gm_fail(err, GM_E_FORMAT, 0,
                           "%s: tokenizer.ggml.scores of piece %u is not a number", meta->file, id);
        }
    }
    for (uint32_t id = v->n_listed; id < v->len; id++)
        v->score[id] = -10000.0f;
    return GM_OK;
}

static gm_status kinds_read(gm_vocab *v, const gm_meta *meta, gm_err *err)
{
    const gm_metaval *types = NULL;
    GM_TRY(array_find(meta, "tokenizer.ggml.token_type", GM_META_I32, v->n_listed, &types, err));
    GM_TRY(gm_arena_alloc(&v->arena, &v->kind, v->len, sizeof *v->kind, "piece kinds", err));
    for (size_t i = 0; i < 256; i++)
        v->byte[i] = GM_NO_TOKEN;
    for (uint32_t id = 0; id < v->n_listed; id++) {
        const uint32_t bits = types ? gm_read_u32(types->raw + 4 * (size_t)id) : GM_PIECE_NORMAL;
        GM_TRY(kind_set(v, meta, (int32_t)id, (int32_t)bits, err));
    }
    for (uint32_t id = v->n_listed; id < v->len; id++)
        v->kind[id] = GM_PIECE_UNUSED;
    return GM_OK;
}

/* The id that a key gives, else that of the piece spelled so. */
static gm_status special_read(const gm_vocab *v, const gm_meta *meta, const char *key, gm_str piece,
                              int32_t *out, gm_err *err)
{
    uint32_t id = 0;
    bool found = false;
    GM_TRY(gm_meta_u32(meta, key, &id, &found, err));
    if (found && id >= v->len) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: %s is %u, expected an id below %u", meta->file,
                       key, id, v->len);
    }
    *out = found ? (int32_t)id : gm_vocab_find(v, piece);
    return GM_OK;
}

static gm_status specials_read(gm_vocab *v, const gm_meta *meta, gm_err *err)
{
    const struct {
        const char *key;
        gm_str piece;
        int32_t *id;
    } fields[] = {
        {"tokenizer.ggml.bos_token_id", GM_STR("<bos>"), &v->special.bos},
        {"tokenizer.ggml.eos_token_id", GM_STR("<eos>"), &v->special.eos},
        {"tokenizer.ggml.unknown_token_id", GM_STR("<unk>"), &v->special.unk},
        {"tokenizer.ggml.padding_token_id", GM_STR("<pad>"), &v->special.pad},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        GM_TRY(special_read(v, meta, fields[i].key, fields[i].piece, fields[i].id, err));
    v->special.start_of_turn = gm_vocab_find(v, GM_STR("<start_of_turn>"));
    v->special.end_of_turn = gm_vocab_find(v, GM_STR("<end_of_turn>"));
    v->adds_bos = true;
    GM_TRY(gm_meta_bool(meta, "tokenizer.ggml.add_bos_token", &v->adds_bos, NULL, err));
    v->adds_bos = v->adds_bos && v->special.bos != GM_NO_TOKEN;
    return gm_meta_bool(meta, "tokenizer.ggml.add_space_prefix", &v->adds_space, NULL, err);
}

/* ---- the indexes --------------------------------------------------------------------- */

/* *piece with U+2581 for spaces; b holds the bytes where there are any. */
static gm_status respell(gm_str *piece, gm_strbuf *b, gm_err *err)
{
    if (piece->len == 0 || !memchr(piece->p, ' ', piece->len)) return GM_OK;
    gm_strbuf_clear(b);
    for (size_t i = 0; i < piece->len; i++) {
        const gm_str one = {piece->p + i, 1};
        gm_strbuf_put(b, *one.p == ' ' ? GM_STR(GM_SPACE_STR) : one);
    }
    *piece = gm_strbuf_str(b);
    return gm_strbuf_status(b, err);
}

static gm_status index_piece(gm_vocab *v, int32_t id, gm_strbuf *b, gm_err *err)
{
    const gm_piece_kind kind = gm_vocab_kind(v, id);
    gm_str piece = gm_vocab_piece(v, id);
    uint64_t hash = text_hash(piece);
    table_add(v, id, hash);
    if (kind == GM_PIECE_USER) {
        GM_TRY(respell(&piece, b, err));
        hash = text_hash(piece);
    }
    if (kind == GM_PIECE_USER || kind == GM_PIECE_CONTROL || kind == GM_PIECE_UNKNOWN)
        GM_TRY(gm_trie_add(&v->trie, piece, id, kind, err));
    if (kind != GM_PIECE_UNUSED) v->hash = mix(mix(v->hash, hash), (uint64_t)id << 3 | kind);
    return GM_OK;
}

static gm_status index_build(gm_vocab *v, gm_err *err)
{
    gm_strbuf scratch = {0};
    gm_status status = table_alloc(v, err);
    for (uint32_t id = 0; id < v->len && status == GM_OK; id++)
        status = index_piece(v, (int32_t)id, &scratch, err);
    gm_strbuf_deinit(&scratch);
    return status;
}

gm_status gm_vocab_open(gm_vocab **out, const gm_meta *meta, uint64_t n_rows, gm_err *err)
{
    gm_vocab *v = NULL;
    *out = NULL;
    GM_TRY(gm_mem_alloc(&v, 1, sizeof *v, "the vocabulary", err));
    gm_status status = GM_OK;
    GM_TRY_DONE(model_check(meta, err));
    GM_TRY_DONE(pieces_read(v, meta, n_rows, err));
    GM_TRY_DONE(scores_read(v, meta, err));
    GM_TRY_DONE(kinds_read(v, meta, err));
    GM_TRY_DONE(index_build(v, err));
    GM_TRY_DONE(specials_read(v, meta, err));
    *out = v;
    return GM_OK;
done:
    gm_vocab_close(v);
    return status;
}

void gm_vocab_close(gm_vocab *v)
{
    if (!v) return;
    gm_trie_deinit(&v->trie);
    gm_arena_deinit(&v->arena);
    gm_mem_free(v);
}

/* ---- reading ------------------------------------------------------------------------- */

uint32_t gm_vocab_len(const gm_vocab *v)
{
    return v->len;
}

bool gm_vocab_has(const gm_vocab *v, int32_t id)
{
    return id >= 0 && (uint32_t)id < v->len;
}

gm_str gm_vocab_piece(const gm_vocab *v, int32_t id)
{
    const uint32_t i = (uint32_t)id;
    return i < v->n_listed ? v->listed[i] : v->padding[i - v->n_listed];
}

gm_piece_kind gm_vocab_kind(const gm_vocab *v, int32_t id)
{
    return (gm_piece_kind)v->kind[id];
}

float gm_vocab_score(const gm_vocab *v, int32_t id)
{
    return v->score[id];
}

uint8_t gm_vocab_byte_value(const gm_vocab *v, int32_t id)
{
    return (uint8_t)byte_value(gm_vocab_piece(v, id));
}

int32_t gm_vocab_byte(const gm_vocab *v, uint8_t byte)
{
    return v->byte[byte];
}

int32_t gm_vocab_find(const gm_vocab *v, gm_str piece)
{
    return slot_find(v, piece, text_hash(piece), true, false)->id1 - 1;
}

int32_t gm_vocab_find_merged(const gm_vocab *v, gm_str piece)
{
    return slot_find(v, piece, text_hash(piece), false, true)->id1 - 1;
}

int32_t gm_vocab_match_control(const gm_vocab *v, gm_str text, size_t *len)
{
    return gm_trie_match(&v->trie, text, 1u << GM_PIECE_CONTROL | 1u << GM_PIECE_UNKNOWN, len);
}

int32_t gm_vocab_match_user(const gm_vocab *v, gm_str text, size_t *len)
{
    return gm_trie_match(&v->trie, text, 1u << GM_PIECE_USER, len);
}

const gm_vocab_ids *gm_vocab_special(const gm_vocab *v)
{
    return &v->special;
}

bool gm_vocab_is_end(const gm_vocab *v, int32_t id)
{
    return id != GM_NO_TOKEN && (id == v->special.eos || id == v->special.end_of_turn ||
                                 id == gm_vocab_find(v, GM_STR("<eos>")));
}

bool gm_vocab_adds_bos(const gm_vocab *v)
{
    return v->adds_bos;
}

bool gm_vocab_adds_space(const gm_vocab *v)
{
    return v->adds_space;
}

uint64_t gm_vocab_hash(const gm_vocab *v)
{
    return v->hash;
}
