/* SPDX-License-Identifier: MIT */

/* Added tokens live in three places: as user-defined pieces of tokenizer.model,
 * as added_tokens of tokenizer.json, and as added_tokens_decoder of
 * tokenizer_config.json, which alone knows what was added after the SentencePiece
 * model was trained (262144 <image_soft_token>). All three end in
 * gm_hf_vocab_add. */

#include "file/hf_vocab.h"

#include <stdio.h>

#include "file/hf.h"
#include "file/hf_json.h"
#include "file/hf_meta.h"

gm_status gm_hf_vocab_init(gm_tensorfile *f, gm_hf_vocab *v, uint32_t n, gm_err *err)
{
    *v = (gm_hf_vocab){.n = n};
    GM_TRY(gm_arena_alloc(&f->arena, &v->text, n, sizeof *v->text, "pieces", err));
    GM_TRY(gm_arena_alloc(&f->arena, &v->score, n, sizeof *v->score, "scores of pieces", err));
    return gm_arena_alloc(&f->arena, &v->kind, n, sizeof *v->kind, "kinds of pieces", err);
}

int32_t gm_hf_vocab_kind(gm_str text, bool special)
{
    static const gm_str CONTROL[] = {
        {"<mask>", 6},
        {"<pad>", 5},
        {"<start_of_turn>", 15},
        {"<end_of_turn>", 13},
        {"<start_of_image>", 16},
        {"<end_of_image>", 14},
    };
    if (special) return GM_HF_KIND_CONTROL;
    for (size_t i = 0; i < sizeof CONTROL / sizeof CONTROL[0]; i++) {
        if (gm_str_eq(text, CONTROL[i])) return GM_HF_KIND_CONTROL;
    }
    const gm_str unused = GM_STR("<unused");
    if (!gm_str_starts(text, unused) || !gm_str_ends(text, GM_STR(">"))) return GM_HF_KIND_USER;
    for (size_t i = unused.len; i + 1 < text.len; i++) {
        if (text.p[i] < '0' || text.p[i] > '9') return GM_HF_KIND_USER;
    }
    return GM_HF_KIND_CONTROL;
}

/* Copies text with every U+2581 as a space. */
static gm_status spaces_copy(gm_tensorfile *f, gm_str text, gm_str *out, gm_err *err)
{
    const gm_str mark = GM_STR(GM_HF_SPACE);
    char *p = NULL;
    GM_TRY(gm_arena_alloc(&f->arena, &p, (uint64_t)text.len + 1, 1, "a piece", err));
    size_t len = 0;
    for (size_t i = 0; i < text.len;) {
        const bool space = gm_str_starts((gm_str){text.p + i, text.len - i}, mark);
        p[len++] = space ? ' ' : text.p[i];
        i += space ? mark.len : 1;
    }
    *out = (gm_str){p, len};
    return GM_OK;
}

gm_status gm_hf_vocab_add(gm_tensorfile *f, gm_hf_vocab *v, uint32_t id, gm_str text, bool special,
                          gm_err *err)
{
    v->kind[id] = gm_hf_vocab_kind(text, special);
    if (v->kind[id] == GM_HF_KIND_USER) return spaces_copy(f, text, &v->text[id], err);
    const char *copy = NULL;
    GM_TRY(gm_arena_copy(&f->arena, text, &copy, err));
    v->text[id] = (gm_str){copy, text.len};
    return GM_OK;
}

static gm_status holes_fill(gm_tensorfile *f, gm_hf_vocab *v, gm_err *err)
{
    for (uint32_t id = 0; id < v->n; id++) {
        if (v->kind[id]) continue;
        char name[24];
        const char *copy = NULL;
        snprintf(name, sizeof name, "[PAD%u]", id);
        GM_TRY(gm_arena_copy(&f->arena, gm_str_c(name), &copy, err));
        v->text[id] = gm_str_c(copy);
        v->kind[id] = GM_HF_KIND_UNUSED;
    }
    return GM_OK;
}

gm_status gm_hf_vocab_put(gm_tensorfile *f, gm_hf_vocab *v, gm_err *err)
{
    GM_TRY(holes_fill(f, v, err));
    GM_TRY(gm_hf_put_str(f, "tokenizer.ggml.model", GM_STR("llama"), err));
    GM_TRY(gm_hf_put_array(f, "tokenizer.ggml.tokens", GM_META_STR, v->text, v->n, err));
    GM_TRY(gm_hf_put_array(f, "tokenizer.ggml.scores", GM_META_F32, v->score, v->n, err));
    GM_TRY(gm_hf_put_array(f, "tokenizer.ggml.token_type", GM_META_I32, v->kind, v->n, err));
    GM_TRY(gm_hf_put_bool(f, "tokenizer.ggml.add_bos_token", true, err));
    return gm_hf_put_bool(f, "tokenizer.ggml.add_eos_token", false, err);
}

/* ---- tokenizer_config.json ----------------------------------------------------------- */

/* The key of an entry of added_tokens_decoder: a token id in decimal. */
static bool id_parse(const char *key, uint32_t limit, uint32_t *id)
{
    uint32_t v = 0;
    for (const char *c = key; *c; c++) {
        if (*c < '0' || *c > '9' || v >= limit) return false;
        v = v * 10 + (uint32_t)(*c - '0');
    }
    *id = v;
    return *key != '\0' && v < limit;
}

/* How many pieces there are when the n of the vocabulary are joined by the added ones. */
static gm_status added_count(const gm_json *added, uint32_t n, uint32_t *n_all, gm_err *err)
{
    const char *key;
    json_t *entry;
    *n_all = n;
    json_object_foreach((json_t *)(uintptr_t)added->at, key, entry)
    {
        uint32_t id = 0;
        if (!id_parse(key, n + GM_HF_VOCAB_HOLES, &id)) {
            return gm_fail(err, GM_E_FORMAT, 0,
                           "%s: %s has the key \"%.40s\", expected a token id below %u",
                           added->file, "added_tokens_decoder", key, n + GM_HF_VOCAB_HOLES);
        }
        if (!json_is_object(entry)) return gm_json_refuse(added, key, entry, "an object", err);
        if (id >= *n_all) *n_all = id + 1;
    }
    return GM_OK;
}

static gm_status added_apply(gm_tensorfile *f, const gm_json *added, gm_hf_vocab *v, gm_err *err)
{
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)added->at, key, entry)
    {
        const gm_json o = {entry, added->file, "added_tokens_decoder's "};
        uint32_t id = 0;
        gm_str text = {0};
        bool special = false;
        (void)id_parse(key, v->n, &id);
        GM_TRY(gm_json_str(&o, "content", &text, err));
        GM_TRY(gm_json_bool(&o, "special", &special, err));
        if (!text.len) {
            return gm_fail(err, GM_E_FORMAT, 0,
                           "%s: added_tokens_decoder has no content for id %u, expected its text",
                           added->file, id);
        }
        GM_TRY(gm_hf_vocab_add(f, v, id, text, special, err));
    }
    return GM_OK;
}

/* The meta's value of a key, to be changed; NULL when there is none. */
static gm_metaval *meta_edit(gm_meta *m, const char *key)
{
    const gm_metaval *const found = gm_meta_find(m, key);
    return found ? m->at + (found - m->at) : NULL;
}

static gm_status added_merge(gm_tensorfile *f, const gm_json *added, gm_err *err)
{
    gm_metaval *const tokens = meta_edit(&f->meta, "tokenizer.ggml.tokens");
    gm_metaval *const scores = meta_edit(&f->meta, "tokenizer.ggml.scores");
    gm_metaval *const kinds = meta_edit(&f->meta, "tokenizer.ggml.token_type");
    if (!tokens || !scores || !kinds)
        return gm_fail(err, GM_E_ARG, 0, "%s: was given before any vocabulary", added->file);
    const uint32_t n = (uint32_t)tokens->n;
    uint32_t n_all = 0;
    gm_hf_vocab v = {0};
    GM_TRY(added_count(added, n, &n_all, err));
    GM_TRY(gm_hf_vocab_init(f, &v, n_all, err));
    memcpy(v.text, tokens->strs, n * sizeof *v.text);
    memcpy(v.score, scores->raw, n * sizeof *v.score);
    memcpy(v.kind, kinds->raw, n * sizeof *v.kind);
    GM_TRY(added_apply(f, added, &v, err));
    GM_TRY(holes_fill(f, &v, err));
    tokens->strs = v.text;
    scores->raw = (const uint8_t *)v.score;
    kinds->raw = (const uint8_t *)v.kind;
    tokens->n = scores->n = kinds->n = n_all;
    return GM_OK;
}

/* bos_token and its like: the piece itself, or an object with its content. They name what the
 * vocabulary's own file left open. */
static gm_status specials_put(gm_tensorfile *f, const gm_json *o, gm_err *err)
{
    static const struct {
        const char *member, *key;
    } SPECIAL[] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"},
    };
    const gm_metaval *const tokens = gm_meta_find(&f->meta, "tokenizer.ggml.tokens");
    const uint32_t n = tokens ? (uint32_t)tokens->n : 0;
    const gm_str *const text = tokens ? tokens->strs : NULL;
    for (size_t i = 0; i < sizeof SPECIAL / sizeof SPECIAL[0]; i++) {
        const json_t *j = gm_json_find(o, SPECIAL[i].member);
        if (json_is_object(j)) j = json_object_get(j, "content");
        if (!json_is_string(j) || gm_meta_find(&f->meta, SPECIAL[i].key)) continue;
        uint32_t id = 0;
        while (id < n && !gm_str_eq(text[id], gm_json_text(j)))
            id++;
        if (id < n) GM_TRY(gm_hf_put_u32(f, SPECIAL[i].key, id, err));
    }
    return GM_OK;
}

static gm_status tokenizer_config_translate(gm_tensorfile *f, const gm_json *o, gm_err *err)
{
    const json_t *added = NULL;
    const json_t *const chat = gm_json_find(o, "chat_template");
    if (json_is_string(chat))
        GM_TRY(gm_hf_put_str(f, "tokenizer.chat_template", gm_json_text(chat), err));
    GM_TRY(gm_json_object(o, "added_tokens_decoder", &added, err));
    const gm_json decoder = {added, o->file, "added_tokens_decoder."};
    if (added) GM_TRY(added_merge(f, &decoder, err));
    gm_metaval *const add_bos = meta_edit(&f->meta, "tokenizer.ggml.add_bos_token");
    bool on = true;
    GM_TRY(gm_json_bool(o, "add_bos_token", &on, err));
    if (add_bos) add_bos->u = on;
    return specials_put(f, o, err);
}

gm_status gm_hf_tokenizer_config_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                       const char *name, gm_err *err)
{
    json_t *root = NULL;
    /* Gemma's file holds model_max_length 1000000000000000019884624838656: no int64. */
    GM_TRY(gm_json_parse(&root, data, size, JSON_DECODE_INT_AS_REAL, name, err));
    const gm_status status = tokenizer_config_translate(f, &(gm_json){root, name, ""}, err);
    json_decref(root);
    return status;
}
