/* SPDX-License-Identifier: MIT */

/* tokenizer.json: byte-pair encoding by a list of merges, turned into pieces with
 * scores.
 *
 * SentencePiece joins two neighbours when the result is a piece, the best score
 * first; Hugging Face joins two neighbours when the pair is in a list, the
 * earliest first. Gemma's list was made from SentencePiece's scores: it has every
 * split of every piece into two pieces, all splits of one piece stand together,
 * and the pieces come in the order of their scores. So the order in which pieces
 * first appear gives the scores back:
 *
 *     score = -(how many pieces the list makes before this one)
 *
 * and pieces that no merge makes (single characters) come after all others. Any
 * other list would be encoded wrongly by scores, so these properties are checked,
 * and a list without them is refused.
 *
 * Added tokens are matched whole in the text by both, so merges that make them or
 * use them never run, with one exception: in Hugging Face's form runs of spaces
 * are built by merges, because the text has spaces where the piece has U+2581.
 * Those merges must come before all others for the result to be the same.
 *
 * The check looks up every split of every piece. Hashes are polynomials,
 * hash(ab) = hash(a) * B^len(b) + hash(b), so that a lookup of a prefix, a suffix
 * or a join costs no walk over its bytes, and the whole takes time in proportion
 * to the length of all pieces: 0.3 s for Gemma's 514906 merges. */

#include "file/hf.h"
#include "file/hf_json.h"
#include "file/hf_meta.h"
#include "file/hf_vocab.h"

#define HASH_BASE 0x9E3779B97F4A7C15u
#define NO_PIECE  UINT32_MAX

typedef struct bpe {
    gm_tensorfile *f;
    const char *name;
    gm_hf_vocab v;
    gm_arena scratch; /* everything below                                       */
    gm_str *text;     /* by id, as the file spells it; no bytes: no piece       */
    uint64_t *hash;   /* by id                                                  */
    uint32_t *slot;   /* open addressing: id + 1, 0 for a free one              */
    unsigned bits;    /* there are 1 << bits slots                              */
    uint64_t *power;  /* HASH_BASE ^ i, up to the longest piece                 */
    uint32_t *seen;   /* by length of the left part: the last block to have it  */
    bool *made;       /* by id: some merge makes it                             */
} bpe;

static gm_str str_head(gm_str s, size_t len)
{
    return (gm_str){s.p, len};
}

static gm_str str_tail(gm_str s, size_t len)
{
    return (gm_str){s.p + len, s.len - len};
}

static bool has_space(gm_str s)
{
    const gm_str mark = GM_STR(GM_HF_SPACE);
    for (size_t i = 0; i + mark.len <= s.len; i++) {
        if (gm_str_starts(str_tail(s, i), mark)) return true;
    }
    return false;
}

/* ---- pieces by text ------------------------------------------------------------------ */

static uint64_t hash_add(uint64_t hash, char c)
{
    return hash * HASH_BASE + (uint8_t)c + 1;
}

static uint64_t hash_of(gm_str s)
{
    uint64_t h = 0;
    for (size_t i = 0; i < s.len; i++)
        h = hash_add(h, s.p[i]);
    return h;
}

/* The first slot to look at. */
static size_t slot_of(const bpe *b, uint64_t hash)
{
    return (size_t)(((hash ^ hash >> 32) * 0xD6E8FEB86659FD93u) >> (64 - b->bits));
}

/* The piece spelled a + c, whose hash is given. */
static uint32_t piece_find(const bpe *b, uint64_t hash, gm_str a, gm_str c)
{
    const size_t mask = ((size_t)1 << b->bits) - 1;
    for (size_t i = slot_of(b, hash); b->slot[i]; i = (i + 1) & mask) {
        const uint32_t id = b->slot[i] - 1;
        const gm_str t = b->text[id];
        if (b->hash[id] == hash && t.len == a.len + c.len && gm_str_eq(str_head(t, a.len), a) &&
            gm_str_eq(str_tail(t, a.len), c))
            return id;
    }
    return NO_PIECE;
}

static uint32_t piece_find_text(const bpe *b, gm_str s)
{
    return piece_find(b, hash_of(s), s, GM_STR(""));
}

static gm_status table_build(bpe *b, gm_err *err)
{
    const uint32_t n = b->v.n;
    size_t longest = 0;
    for (b->bits = 4; (uint64_t)1 << b->bits < (uint64_t)n * 2;)
        b->bits++;
    for (uint32_t id = 0; id < n; id++)
        longest = b->text[id].len > longest ? b->text[id].len : longest;
    gm_arena *const a = &b->scratch;
    GM_TRY(gm_arena_alloc(a, &b->hash, n, sizeof *b->hash, "hashes of pieces", err));
    GM_TRY(gm_arena_alloc(a, &b->made, n, sizeof *b->made, "marks of pieces", err));
    GM_TRY(gm_arena_alloc(a, &b->slot, UINT64_C(1) << b->bits, sizeof *b->slot,
                          "the table of pieces", err));
    GM_TRY(gm_arena_alloc(a, &b->power, longest + 1, sizeof *b->power, "powers", err));
    GM_TRY(gm_arena_alloc(a, &b->seen, longest + 1, sizeof *b->seen, "marks of splits", err));
    b->power[0] = 1;
    for (size_t i = 1; i <= longest; i++)
        b->power[i] = b->power[i - 1] * HASH_BASE;
    const size_t mask = ((size_t)1 << b->bits) - 1;
    for (uint32_t id = 0; id < n; id++) {
        if (!b->text[id].len) continue;
        b->hash[id] = hash_of(b->text[id]);
        size_t i = slot_of(b, b->hash[id]);
        while (b->slot[i])
            i = (i + 1) & mask;
        b->slot[i] = id + 1;
    }
    return GM_OK;
}

/* ---- vocabulary and added tokens ----------------------------------------------------- */

/* Reads a token id that is below limit. */
static gm_status id_read(const bpe *b, const json_t *j, const char *piece, uint64_t limit,
                         uint32_t *id, gm_err *err)
{
    const json_int_t v = json_integer_value(j);
    if (!json_is_integer(j) || v < 0 || (uint64_t)v >= limit) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: the piece \"%.80s\" has the id %lld, expected one from 0 to %llu",
                       b->name, piece, (long long)v, (unsigned long long)(limit - 1));
    }
    *id = (uint32_t)v;
    return GM_OK;
}

/* How many ids there are; every id and the kind of every entry is checked on the way. */
static gm_status ids_count(const bpe *b, json_t *vocab, const json_t *added, uint32_t *n,
                           gm_err *err)
{
    const uint64_t entries = (uint64_t)json_object_size(vocab) + json_array_size(added);
    if (entries == 0 || entries > GM_HF_VOCAB_MAX) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: has %llu pieces, expected 1 to %u", b->name,
                       (unsigned long long)entries, GM_HF_VOCAB_MAX);
    }
    const uint64_t limit = entries + GM_HF_VOCAB_HOLES;
    uint32_t id = 0, last = 0;
    const char *key;
    json_t *j;
    size_t i;
    json_object_foreach(vocab, key, j)
    {
        GM_TRY(id_read(b, j, key, limit, &id, err));
        last = id > last ? id : last;
    }
    json_array_foreach(added, i, j)
    {
        const char *const content = json_string_value(json_object_get(j, "content"));
        if (!content || !content[0]) {
            return gm_fail(err, GM_E_FORMAT, 0,
                           "%s: entry %zu of added_tokens has no content, expected its text",
                           b->name, i);
        }
        GM_TRY(id_read(b, json_object_get(j, "id"), content, limit, &id, err));
        last = id > last ? id : last;
    }
    *n = last + 1;
    return GM_OK;
}

static bool is_byte(gm_str s)
{
    return s.len == 6 && gm_str_starts(s, GM_STR("<0x")) && s.p[5] == '>' &&
           strspn(s.p + 3, "0123456789ABCDEF") == 2;
}

static gm_status vocab_read(bpe *b, json_t *vocab, const json_t *added, gm_err *err)
{
    uint32_t n = 0;
    GM_TRY(ids_count(b, vocab, added, &n, err));
    GM_TRY(gm_hf_vocab_init(b->f, &b->v, n, err));
    GM_TRY(gm_arena_alloc(&b->scratch, &b->text, n, sizeof *b->text, "pieces", err));
    const char *key;
    json_t *j;
    size_t i;
    json_object_foreach(vocab, key, j)
    {
        const uint32_t id = (uint32_t)json_integer_value(j);
        const char *copy = NULL;
        if (b->text[id].p || !key[0]) {
            return gm_fail(
                err, GM_E_FORMAT, 0,
                "%s: the piece \"%.80s\" has the id %u, expected a text and an id of its "
                "own",
                b->name, key, id);
        }
        GM_TRY(gm_arena_copy(&b->f->arena, gm_str_c(key), &copy, err));
        b->text[id] = b->v.text[id] = gm_str_c(copy);
        b->v.kind[id] = is_byte(b->text[id]) ? GM_HF_KIND_BYTE : GM_HF_KIND_NORMAL;
    }
    json_array_foreach(added, i, j)
    {
        const gm_str content = gm_json_text(json_object_get(j, "content"));
        const bool special = json_is_true(json_object_get(j, "special"));
        const uint32_t id = (uint32_t)json_integer_value(json_object_get(j, "id"));
        GM_TRY(gm_hf_vocab_add(b->f, &b->v, id, content, special, err));
    }
    return table_build(b, err);
}

/* ---- merges -> scores ---------------------------------------------------------------- */

typedef struct merge {
    gm_str left, right;
    uint32_t l, r, out;
} merge;

static gm_status refuse_merge(const bpe *b, const merge *m, const char *why, gm_err *err)
{
    return gm_fail(err, GM_E_UNSUP, 0,
                   "%s: the merge of \"%.*s\" and \"%.*s\" %s; expected merges in SentencePiece's "
                   "order, as Gemma has them",
                   b->name, GM_STR_ARG(m->left), GM_STR_ARG(m->right), why);
}

/* A merge is ["a", "b"] or "a b". */
static bool merge_parse(const json_t *j, merge *m)
{
    const json_t *const left = json_array_get(j, 0);
    const json_t *const right = json_array_get(j, 1);
    if (json_array_size(j) == 2 && json_is_string(left) && json_is_string(right)) {
        *m = (merge){.left = gm_json_text(left), .right = gm_json_text(right)};
    } else if (json_is_string(j)) {
        const gm_str both = gm_json_text(j);
        const char *const space = memchr(both.p, ' ', both.len);
        if (!space || memchr(space + 1, ' ', both.len - (size_t)(space + 1 - both.p))) return false;
        const size_t at = (size_t)(space - both.p);
        *m = (merge){.left = str_head(both, at), .right = str_tail(both, at + 1)};
    } else {
        return false;
    }
    return m->left.len && m->right.len;
}

static gm_status merge_read(const bpe *b, const json_t *j, size_t i, merge *m, gm_err *err)
{
    if (!merge_parse(j, m)) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: merge %zu cannot be read, expected [\"a\", \"b\"] or \"a b\"", b->name,
                       i);
    }
    m->l = piece_find_text(b, m->left);
    m->r = piece_find_text(b, m->right);
    m->out = NO_PIECE;
    if (m->l != NO_PIECE && m->r != NO_PIECE) {
        const uint64_t hash = b->hash[m->l] * b->power[m->right.len] + b->hash[m->r];
        m->out = piece_find(b, hash, m->left, m->right);
    }
    if (m->out != NO_PIECE) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0,
                   "%s: merge %zu joins \"%.*s\" and \"%.*s\", expected two pieces of the "
                   "vocabulary that make a third",
                   b->name, i, GM_STR_ARG(m->left), GM_STR_ARG(m->right));
}

static bool is_normal(const bpe *b, uint32_t id)
{
    return id != NO_PIECE && b->v.kind[id] == GM_HF_KIND_NORMAL;
}

/* Refuses a piece with a split into two normal pieces that is not marked with `block`. */
static gm_status splits_check(const bpe *b, uint32_t id, uint32_t block, gm_err *err)
{
    const gm_str t = b->text[id];
    uint64_t prefix = 0;
    for (size_t k = 1; k < t.len; k++) {
        prefix = hash_add(prefix, t.p[k - 1]);
        if (b->seen[k] == block) continue;
        merge m = {.left = str_head(t, k), .right = str_tail(t, k)};
        if (!is_normal(b, piece_find(b, prefix, m.left, GM_STR("")))) continue;
        const uint64_t suffix = b->hash[id] - prefix * b->power[t.len - k];
        if (is_normal(b, piece_find(b, suffix, m.right, GM_STR(""))))
            return refuse_merge(b, &m, "makes a piece and is not in the list", err);
    }
    return GM_OK;
}

/* True for a merge that scores say nothing about; *why is set for one that they contradict. */
static bool merge_is_idle(const bpe *b, const merge *m, uint32_t n_made, const char **why)
{
    if (!is_normal(b, m->out)) {
        if (n_made > 0 && has_space(b->text[m->out])) *why = "makes a run of spaces too late";
        return true;
    }
    if (is_normal(b, m->l) && is_normal(b, m->r)) return false;
    if (has_space(is_normal(b, m->l) ? m->right : m->left))
        *why = "continues an added token with spaces";
    return true;
}

/* The merges of one piece stand together: a block. Blocks count from 1. */
static gm_status merges_read(bpe *b, const json_t *merges, gm_err *err)
{
    uint32_t block = 0, piece = NO_PIECE;
    size_t i;
    json_t *j;
    json_array_foreach(merges, i, j)
    {
        merge m = {0};
        const char *why = NULL;
        GM_TRY(merge_read(b, j, i, &m, err));
        const bool idle = merge_is_idle(b, &m, block, &why);
        if (why) return refuse_merge(b, &m, why, err);
        if (idle) continue;
        if (m.out != piece) {
            if (piece != NO_PIECE) GM_TRY(splits_check(b, piece, block, err));
            if (b->made[m.out])
                return refuse_merge(b, &m, "stands apart from others that make the same", err);
            b->made[m.out] = true;
            b->v.score[m.out] = -(float)block++;
            piece = m.out;
        }
        if (b->seen[m.left.len] == block) return refuse_merge(b, &m, "is there twice", err);
        b->seen[m.left.len] = block;
    }
    if (piece != NO_PIECE) GM_TRY(splits_check(b, piece, block, err));
    uint32_t n_before = block;
    for (uint32_t id = 0; id < b->v.n; id++) {
        if (!is_normal(b, id) || b->made[id]) continue;
        GM_TRY(splits_check(b, id, block + 1, err));
        b->v.score[id] = -(float)n_before++;
    }
    return GM_OK;
}

/* ---- what surrounds the model -------------------------------------------------------- */

static bool text_is(const json_t *j, const char *text)
{
    return json_is_string(j) && strcmp(json_string_value(j), text) == 0;
}

static bool splits_at_space(const json_t *j)
{
    return text_is(json_object_get(json_object_get(j, "pattern"), "String"), " ");
}

/* Spaces become U+2581 and nothing else happens to the text: a split at spaces never fires after
 * that. */
static gm_status pipeline_check(const gm_json *root, gm_err *err)
{
    const json_t *const norm = gm_json_find(root, "normalizer");
    const json_t *const pre = gm_json_find(root, "pre_tokenizer");
    if (!text_is(json_object_get(norm, "type"), "Replace") || !splits_at_space(norm) ||
        !text_is(json_object_get(norm, "content"), GM_HF_SPACE)) {
        return gm_fail(
            err, GM_E_UNSUP, 0,
            "%s: its normalizer is not supported; expected Gemma's, which replaces \" \" "
            "by U+2581",
            root->file);
    }
    if (pre && !(text_is(json_object_get(pre, "type"), "Split") && splits_at_space(pre))) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s: its pre_tokenizer is not supported; expected Gemma's, which splits at "
                       "\" \", or none",
                       root->file);
    }
    return GM_OK;
}

static gm_status model_check(const gm_json *model, gm_err *err)
{
    static const char *const OFF[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                      "ignore_merges"};
    if (!text_is(gm_json_find(model, "type"), "BPE"))
        return gm_json_refuse(model, "type", gm_json_find(model, "type"), "BPE", err);
    for (size_t i = 0; i < sizeof OFF / sizeof OFF[0]; i++) {
        const json_t *const j = gm_json_find(model, OFF[i]);
        if (j && !json_is_false(j) && !text_is(j, ""))
            return gm_json_refuse(model, OFF[i], j, "none", err);
    }
    bool byte_fallback = false;
    GM_TRY(gm_json_bool(model, "byte_fallback", &byte_fallback, err));
    if (byte_fallback) return GM_OK;
    return gm_json_refuse(model, "byte_fallback", gm_json_find(model, "byte_fallback"), "true",
                          err);
}

static gm_status ids_put(bpe *b, const gm_json *model, gm_err *err)
{
    gm_str unk = GM_STR("<unk>");
    GM_TRY(gm_json_str(model, "unk_token", &unk, err));
    const struct {
        const char *key;
        gm_str piece;
    } IDS[] = {
        {"tokenizer.ggml.bos_token_id", GM_STR("<bos>")},
        {"tokenizer.ggml.eos_token_id", GM_STR("<eos>")},
        {"tokenizer.ggml.unknown_token_id", unk},
        {"tokenizer.ggml.padding_token_id", GM_STR("<pad>")},
    };
    for (size_t i = 0; i < sizeof IDS / sizeof IDS[0]; i++) {
        const uint32_t id = piece_find_text(b, IDS[i].piece);
        if (id != NO_PIECE) GM_TRY(gm_hf_put_u32(b->f, IDS[i].key, id, err));
    }
    const uint32_t id = piece_find_text(b, unk);
    if (is_normal(b, id)) b->v.kind[id] = GM_HF_KIND_UNKNOWN;
    return GM_OK;
}

static gm_status tokenizer_translate(bpe *b, const gm_json *root, gm_err *err)
{
    const json_t *model_at = NULL, *vocab = NULL;
    GM_TRY(gm_json_object(root, "model", &model_at, err));
    const gm_json model = {model_at, root->file, "model."};
    GM_TRY(model_check(&model, err));
    GM_TRY(pipeline_check(root, err));
    GM_TRY(gm_json_object(&model, "vocab", &vocab, err));
    const json_t *const merges = gm_json_find(&model, "merges");
    const json_t *const added = gm_json_find(root, "added_tokens");
    if (!json_is_array(merges)) return gm_json_refuse(&model, "merges", merges, "an array", err);
    if (added && !json_is_array(added))
        return gm_json_refuse(root, "added_tokens", added, "an array", err);
    GM_TRY(vocab_read(b, (json_t *)(uintptr_t)vocab, added, err));
    GM_TRY(ids_put(b, &model, err));
    GM_TRY(merges_read(b, merges, err));
    GM_TRY(gm_hf_vocab_put(b->f, &b->v, err));
    return gm_hf_put_bool(b->f, "tokenizer.ggml.add_space_prefix", false, err);
}

gm_status gm_hf_tokenizer_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                const char *name, gm_err *err)
{
    json_t *root = NULL;
    bpe b = {.f = f, .name = name};
    GM_TRY(gm_json_parse(&root, data, size, 0, name, err));
    const gm_status status = tokenizer_translate(&b, &(gm_json){root, name, ""}, err);
    gm_arena_deinit(&b.scratch);
    json_decref(root);
    return status;
}
