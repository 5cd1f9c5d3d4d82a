/* SPDX-License-Identifier: MIT */
/* The numbers of a Gemma 3 file. What the metadata leaves out has the defaults
 * that converters rely on, and mistakes of published files are put right:
 *
 *   - The attention scale has no key in GGUF. It is head_dim^-1/2, except for the
 *     27B model (62 layers), which uses (n_embd / n_head)^-1/2. Hugging Face
 *     configs say it, under a key of ours.
 *   - Older Ollama files of 4B, 12B and 27B (34, 48, 62 layers) lack the rope
 *     factor of global layers, which is 8; their 1B file claims a soft cap of 30
 *     for logits, which no Gemma 3 has; rope bases are under other keys.
 *   - Local layers always turn by base 10000 without a factor.
 *   - Without a window every layer is global. */

#include <inttypes.h>
#include <math.h>

#include "model/model.h"

#define KEY(name) "gemma3." name

/* Bounds that no real model comes near, so that later products of these cannot overflow. */
enum {
    MAX_LAYERS = 1024,
    MAX_WIDTH = 1 << 20,
    MAX_FFN = 1 << 22,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 1024,
};

/* A number that must be there and lie within bounds. */
static gm_status read_count(const gm_meta *meta, const char *key, uint32_t min, uint32_t max,
                            uint32_t *out, gm_err *err)
{
    bool found = false;
    GM_TRY(gm_meta_u32(meta, key, out, &found, err));
    if (!found) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: key %s is missing, expected a number up to %" PRIu32, meta->file, key,
                       max);
    }
    if (*out < min || *out > max) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: key %s is %" PRIu32 ", expected %" PRIu32 " to %" PRIu32, meta->file,
                       key, *out, min, max);
    }
    return GM_OK;
}

/* A float that may be missing (default in *out) and must be positive and finite. */
static gm_status read_positive(const gm_meta *meta, const char *key, float *out, bool *found,
                               gm_err *err)
{
    GM_TRY(gm_meta_f32(meta, key, out, found, err));
    if (*out > 0 && isfinite(*out)) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0, "%s: key %s is %g, expected a positive number", meta->file,
                   key, (double)*out);
}

static gm_status check_architecture(const gm_meta *meta, gm_err *err)
{
    gm_str arch = {0};
    bool found = false;
    GM_TRY(gm_meta_str(meta, "general.architecture", &arch, &found, err));
    if (!found) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: key general.architecture is missing, expected gemma3", meta->file);
    }
    if (gm_str_eq(arch, GM_STR("gemma3"))) return GM_OK;
    return gm_fail(err, GM_E_UNSUP, 0, "%s: architecture is %.*s, expected gemma3%s", meta->file,
                   GM_STR_ARG(arch),
                   gm_str_eq(arch, GM_STR("clip")) ? " (this file is a vision tower)" : "");
}

static gm_status read_shape(gm_config *c, const gm_meta *meta, gm_err *err)
{
    GM_TRY(read_count(meta, KEY("block_count"), 1, MAX_LAYERS, &c->n_layer, err));
    GM_TRY(read_count(meta, KEY("embedding_length"), 1, MAX_WIDTH, &c->n_embd, err));
    GM_TRY(read_count(meta, KEY("feed_forward_length"), 1, MAX_FFN, &c->n_ffn, err));
    GM_TRY(read_count(meta, KEY("context_length"), 2, GM_META_MAX_CTX, &c->n_ctx, err));
    GM_TRY(read_count(meta, KEY("attention.head_count"), 1, MAX_HEADS, &c->n_head, err));
    c->n_kv_head = c->n_head;
    c->head_dim = c->n_embd / c->n_head;
    GM_TRY(gm_meta_u32(meta, KEY("attention.head_count_kv"), &c->n_kv_head, NULL, err));
    GM_TRY(gm_meta_u32(meta, KEY("attention.key_length"), &c->head_dim, NULL, err));
    uint32_t value_length = c->head_dim;
    GM_TRY(gm_meta_u32(meta, KEY("attention.value_length"), &value_length, NULL, err));
    if (c->head_dim == 0 || c->head_dim > MAX_HEAD_DIM || c->head_dim % 2 ||
        value_length != c->head_dim) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: heads have %" PRIu32 " key and %" PRIu32
                       " value dimensions, expected the same even number up to %d",
                       meta->file, c->head_dim, value_length, MAX_HEAD_DIM);
    }
    if (c->n_kv_head == 0 || c->n_kv_head > c->n_head || c->n_head % c->n_kv_head) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: %" PRIu32 " heads share %" PRIu32
                       " key-value heads, expected a number that divides them",
                       meta->file, c->n_head, c->n_kv_head);
    }
    return GM_OK;
}

/* Layers with a factor of 8 where an older Ollama file has no key for it. */
static bool layers_want_factor(uint32_t n_layer)
{
    return n_layer == 34 || n_layer == 48 || n_layer == 62;
}

static gm_status read_rope(gm_config *c, const gm_meta *meta, gm_err *err)
{
    c->rope[GM_CLASS_LOCAL] = (gm_rope){10000, 1};
    c->rope[GM_CLASS_GLOBAL] = (gm_rope){10000, 1};
    float *const local = &c->rope[GM_CLASS_LOCAL].theta;
    float *const global = &c->rope[GM_CLASS_GLOBAL].theta;
    GM_TRY(read_positive(meta, KEY("rope.local.freq_base"), local, NULL, err));
    GM_TRY(read_positive(meta, KEY("rope.freq_base_swa"), local, NULL, err));
    GM_TRY(read_positive(meta, KEY("rope.global.freq_base"), global, NULL, err));
    GM_TRY(read_positive(meta, KEY("rope.freq_base"), global, NULL, err));

    gm_str type = GM_STR("linear");
    GM_TRY(gm_meta_str(meta, KEY("rope.scaling.type"), &type, NULL, err));
    const bool none = gm_str_eq(type, GM_STR("none"));
    if (!none && !gm_str_eq(type, GM_STR("linear"))) {
        return gm_fail(err, GM_E_UNSUP, 0, "%s: rope scaling is %.*s, expected linear or none",
                       meta->file, GM_STR_ARG(type));
    }
    float factor = 0;
    bool found = false;
    GM_TRY(gm_meta_f32(meta, KEY("rope.scaling.factor"), &factor, &found, err));
    if (!found && layers_want_factor(c->n_layer)) factor = 8;
    if (!(factor >= 0 && factor <= 1e6f)) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: rope scaling factor is %g, expected 0 to 1000000",
                       meta->file, (double)factor);
    }
    c->rope[GM_CLASS_GLOBAL].factor = none || factor == 0 ? 1 : factor;
    return GM_OK;
}

/* Which layers are local: from a pattern n (each n-th is global) or a list. */
static gm_status read_classes(gm_config *c, const gm_meta *meta, gm_arena *arena, gm_err *err)
{
    GM_TRY(gm_arena_alloc(arena, &c->layer_class, c->n_layer, 1, "layer classes", err));
    GM_TRY(gm_meta_u32(meta, KEY("attention.sliding_window"), &c->window, NULL, err));
    const char *const key = KEY("attention.sliding_window_pattern");
    const gm_metaval *const v = gm_meta_find(meta, key);
    const bool list = v && v->type == GM_META_ARRAY;
    if (list && (v->elem != GM_META_BOOL || v->n != c->n_layer)) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: key %s has %" PRIu64 " entries of type %s, expected %" PRIu32
                       " of type bool",
                       meta->file, key, v->n, gm_metatype_name(v->elem), c->n_layer);
    }
    uint32_t pattern = 6;
    if (!list) GM_TRY(gm_meta_u32(meta, key, &pattern, NULL, err));
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const bool local = list           ? gm_meta_elem(v, l) != 0
                           : pattern == 0 ? true
                                          : l % pattern < pattern - 1;
        c->layer_class[l] = local && c->window ? GM_CLASS_LOCAL : GM_CLASS_GLOBAL;
    }
    return GM_OK;
}

static gm_status read_scale(gm_config *c, const gm_meta *meta, gm_err *err)
{
    float dim = c->n_layer == 62 ? (float)(c->n_embd / c->n_head) : (float)c->head_dim;
    GM_TRY(read_positive(meta, "gemmule.attention.query_scale_dim", &dim, NULL, err));
    c->attn_scale = 1 / sqrtf(dim);
    return GM_OK;
}

static gm_status read_softcap(gm_config *c, const gm_meta *meta, gm_err *err)
{
    float of_scores = 0;
    GM_TRY(gm_meta_f32(meta, KEY("attn_logit_softcapping"), &of_scores, NULL, err));
    if (of_scores != 0) {
        return gm_fail(
            err, GM_E_UNSUP, 0,
            "%s: key %s is %g, expected none: Gemma 3 has no soft cap of attention scores",
            meta->file, KEY("attn_logit_softcapping"), (double)of_scores);
    }
    GM_TRY(gm_meta_f32(meta, KEY("final_logit_softcapping"), &c->softcap, NULL, err));
    const bool ollama_mistake = (c->n_layer == 18 || c->n_layer == 26) && c->softcap == 30;
    if (ollama_mistake) c->softcap = 0;
    if (c->softcap >= 0 && isfinite(c->softcap)) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0, "%s: soft cap of logits is %g, expected 0 or more",
                   meta->file, (double)c->softcap);
}

/* What the file recommends for sampling; values out of range are ignored, the user decides. */
static gm_status read_sampling(gm_config *c, const gm_meta *meta, gm_err *err)
{
    float temperature = 1, top_p = 0.95f, min_p = 0;
    uint32_t top_k = 64;
    GM_TRY(gm_meta_f32(meta, "general.sampling.temp", &temperature, NULL, err));
    GM_TRY(gm_meta_f32(meta, "general.sampling.top_p", &top_p, NULL, err));
    GM_TRY(gm_meta_f32(meta, "general.sampling.min_p", &min_p, NULL, err));
    GM_TRY(gm_meta_u32(meta, "general.sampling.top_k", &top_k, NULL, err));
    c->sampling.temperature =
        temperature >= 0 && temperature <= GM_TEMPERATURE_MAX ? temperature : 1;
    c->sampling.top_p = top_p > 0 && top_p <= 1 ? top_p : 0.95f;
    c->sampling.min_p = min_p >= 0 && min_p <= 1 ? min_p : 0;
    c->sampling.top_k = top_k;
    return GM_OK;
}

gm_status gm_config_read(gm_config *c, const gm_meta *meta, gm_arena *arena, gm_err *err)
{
    *c = (gm_config){.eps = 1e-6f};
    GM_TRY(check_architecture(meta, err));
    GM_TRY(read_shape(c, meta, err));
    GM_TRY(read_rope(c, meta, err));
    GM_TRY(read_classes(c, meta, arena, err));
    GM_TRY(read_scale(c, meta, err));
    GM_TRY(read_softcap(c, meta, err));
    GM_TRY(read_positive(meta, KEY("attention.layer_norm_rms_epsilon"), &c->eps, NULL, err));
    GM_TRY(gm_meta_f32(meta, "gemmule.norm_offset", &c->norm_offset, NULL, err));
    return read_sampling(c, meta, err);
}
