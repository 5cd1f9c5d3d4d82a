/* SPDX-License-Identifier: MIT */
/* The result's keys. What describes the model comes from gm_config and gm_vocab,
 * where defaults are filled in and known mistakes of published files put right, so
 * that the result says everything and says it in today's words: whatever the source
 * called it, however much it left out. Keys that are about the model as a work
 * (its name, licence, chat template, sampling) are taken over as they are. */

#include <math.h>

#include "toolbox/convert.h"

/* What is written anew, and what has no meaning in the result. */
static const char *const replaced[] = {
    "general.architecture",
    "general.type",
    "general.file_type",
    "general.quantization_version",
    "general.alignment",
    "tokenizer.ggml.",
    "gemma3.",
    "gemmule.",
    "split.",
};

static bool is_replaced(gm_str key)
{
    if (gm_str_eq(key, GM_STR("gemmule.synthetic"))) return false;
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        if (gm_str_starts(key, gm_str_c(replaced[i]))) return true;
    }
    return false;
}

/* Where keys go; the first failure latches. */
typedef struct sink {
    gm_meta *meta;
    gm_status status;
    gm_err *err;
} sink;

static void put(sink *s, const char *key, gm_metaval v)
{
    v.key = gm_str_c(key);
    if (v.n == 0) v.n = 1;
    if (s->status == GM_OK) s->status = gm_meta_add(s->meta, &v, s->err);
}

static void put_u32(sink *s, const char *key, uint32_t x)
{
    put(s, key, (gm_metaval){.type = GM_META_U32, .u = x});
}

static void put_f32(sink *s, const char *key, float x)
{
    put(s, key, (gm_metaval){.type = GM_META_F32, .f = (double)x});
}

static void put_bool(sink *s, const char *key, bool x)
{
    put(s, key, (gm_metaval){.type = GM_META_BOOL, .u = x});
}

static void put_str(sink *s, const char *key, gm_str x)
{
    put(s, key, (gm_metaval){.type = GM_META_STR, .s = x});
}

static void put_numbers(sink *s, const char *key, gm_metatype elem, const void *at, uint64_t n)
{
    put(s, key, (gm_metaval){.type = GM_META_ARRAY, .elem = elem, .n = n, .raw = at});
}

/* ---- the model's numbers ------------------------------------------------------------------- */

/* Each n-th layer is global: n, or 0 where no n says it. */
static uint32_t pattern_of(const gm_config *c)
{
    uint32_t n = 1;
    while (n <= c->n_layer && c->layer_class[n - 1] == GM_CLASS_LOCAL)
        n++;
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const bool local = l % n < n - 1;
        if ((c->layer_class[l] == GM_CLASS_LOCAL) != local) return 0;
    }
    return n;
}

/* Readers take 6 for granted. A model of at most five layers may be all local and still fit that. */
static gm_status put_pattern(sink *s, const gm_config *c, gm_arena *arena)
{
    static const char key[] = "gemma3.attention.sliding_window_pattern";
    const uint32_t pattern = pattern_of(c);
    uint8_t *local = NULL;
    if (pattern == 6 || (pattern > c->n_layer && c->n_layer < 6)) return GM_OK;
    if (pattern) {
        put_u32(s, key, pattern);
        return GM_OK;
    }
    GM_TRY(gm_arena_alloc(arena, &local, c->n_layer, 1, "the list of layer types", s->err));
    for (uint32_t l = 0; l < c->n_layer; l++)
        local[l] = c->layer_class[l] == GM_CLASS_LOCAL;
    put_numbers(s, key, GM_META_BOOL, local, c->n_layer);
    return GM_OK;
}

static void put_config(sink *s, const gm_config *c)
{
    const gm_rope *const local = &c->rope[GM_CLASS_LOCAL], *const global =
                                                               &c->rope[GM_CLASS_GLOBAL];
    put_u32(s, "gemma3.context_length", c->n_ctx);
    put_u32(s, "gemma3.embedding_length", c->n_embd);
    put_u32(s, "gemma3.block_count", c->n_layer);
    put_u32(s, "gemma3.feed_forward_length", c->n_ffn);
    put_u32(s, "gemma3.attention.head_count", c->n_head);
    put_u32(s, "gemma3.attention.head_count_kv", c->n_kv_head);
    put_u32(s, "gemma3.attention.key_length", c->head_dim);
    put_u32(s, "gemma3.attention.value_length", c->head_dim);
    put_f32(s, "gemma3.attention.layer_norm_rms_epsilon", c->eps);
    put_u32(s, "gemma3.attention.sliding_window", c->window);
    put_f32(s, "gemma3.rope.freq_base", global->theta);
    put_f32(s, "gemma3.rope.freq_base_swa", local->theta);
    if (global->factor != 1) put_str(s, "gemma3.rope.scaling.type", GM_STR("linear"));
    put_f32(s, "gemma3.rope.scaling.factor", global->factor);
    if (c->softcap != 0) put_f32(s, "gemma3.final_logit_softcapping", c->softcap);
}

float gm_convert_query_ratio(const gm_config *c)
{
    const uint32_t derived = c->n_layer == 62 ? c->n_embd / c->n_head : c->head_dim;
    return c->attn_scale == 1 / sqrtf((float)derived) ? 1 : c->attn_scale * sqrtf((float)derived);
}

/* ---- the vocabulary ------------------------------------------------------------------------ */

/* One piece for each row of the embedding, which other readers insist on. */
static gm_status put_pieces(sink *s, const gm_vocab *v, gm_arena *arena)
{
    const uint32_t n = gm_vocab_len(v);
    gm_str *pieces = NULL;
    float *scores = NULL;
    int32_t *kinds = NULL;
    GM_TRY(gm_arena_alloc(arena, &pieces, n, sizeof *pieces, "pieces", s->err));
    GM_TRY(gm_arena_alloc(arena, &scores, n, sizeof *scores, "scores", s->err));
    GM_TRY(gm_arena_alloc(arena, &kinds, n, sizeof *kinds, "kinds of pieces", s->err));
    for (uint32_t id = 0; id < n; id++) {
        pieces[id] = gm_vocab_piece(v, (int32_t)id);
        scores[id] = gm_vocab_score(v, (int32_t)id);
        kinds[id] = (int32_t)gm_vocab_kind(v, (int32_t)id);
    }
    put(s, "tokenizer.ggml.tokens",
        (gm_metaval){.type = GM_META_ARRAY, .elem = GM_META_STR, .n = n, .strs = pieces});
    put_numbers(s, "tokenizer.ggml.scores", GM_META_F32, scores, n);
    put_numbers(s, "tokenizer.ggml.token_type", GM_META_I32, kinds, n);
    return GM_OK;
}

static gm_status put_vocab(sink *s, const gm_vocab *v, gm_arena *arena)
{
    const gm_vocab_ids *const ids = gm_vocab_special(v);
    const struct {
        const char *key;
        int32_t id;
    } special[] = {
        {"tokenizer.ggml.bos_token_id", ids->bos},
        {"tokenizer.ggml.eos_token_id", ids->eos},
        {"tokenizer.ggml.unknown_token_id", ids->unk},
        {"tokenizer.ggml.padding_token_id", ids->pad},
        {"tokenizer.ggml.eot_token_id", ids->end_of_turn},
    };
    put_str(s, "tokenizer.ggml.model", GM_STR("llama"));
    put_str(s, "tokenizer.ggml.pre", GM_STR("default"));
    GM_TRY(put_pieces(s, v, arena));
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (special[i].id != GM_NO_TOKEN) put_u32(s, special[i].key, (uint32_t)special[i].id);
    }
    put_bool(s, "tokenizer.ggml.add_bos_token", gm_vocab_adds_bos(v));
    put_bool(s, "tokenizer.ggml.add_eos_token", false);
    put_bool(s, "tokenizer.ggml.add_space_prefix", gm_vocab_adds_space(v));
    return GM_OK;
}

gm_status gm_convert_meta(gm_meta *out, const gm_model *m, const gm_mix *mix, gm_arena *arena,
                          gm_err *err)
{
    const gm_meta *const from = &m->file->meta;
    sink s = {.meta = out, .err = err};
    out->file = m->file->path;
    put_str(&s, "general.architecture", GM_STR("gemma3"));
    put_str(&s, "general.type", GM_STR("model"));
    for (size_t i = 0; i < from->n && s.status == GM_OK; i++) {
        if (!is_replaced(from->at[i].key)) s.status = gm_meta_add(out, &from->at[i], err);
    }
    put_u32(&s, "general.file_type", mix->file_type);
    put_u32(&s, "general.quantization_version", 2);
    put_config(&s, &m->config);
    GM_TRY(put_pattern(&s, &m->config, arena));
    GM_TRY(put_vocab(&s, m->vocab, arena));
    return s.status;
}
