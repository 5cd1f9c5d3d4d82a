/* SPDX-License-Identifier: MIT */

/* config.json and generation_config.json, said in GGUF's words.
 *
 * A text model's config is flat (model_type gemma3_text), that of a model with a
 * vision tower holds the same under text_config (model_type gemma3). Published
 * files leave out what equals the default of transformers' Gemma3TextConfig, so
 * every field has that default here. What a config can ask for and Gemma 3 does
 * not have is refused: a model that runs but means something else is worse than
 * one that does not run.
 *
 * Rotary positions come in two dialects, read by the same code: transformers 4
 * has rope_theta and rope_local_base_freq beside a rope_scaling object,
 * transformers 5 has rope_parameters with one object for each kind of layer. */

#include <stdio.h>

#include "file/hf.h"
#include "file/hf_json.h"
#include "file/hf_meta.h"

/* The most that a config may ask for: well past the largest Gemma 3 (62 layers, 5376 wide), and
 * small enough that products of any three fit in 64 bits. */
#define MAX_LAYERS 1024u
#define MAX_HEADS  1024u
#define MAX_HEAD   1024u
#define MAX_HIDDEN (1u << 20)
#define MAX_FFN    (1u << 22)
#define MAX_VOCAB  (1u << 22)

typedef struct rope {
    double base;
    double factor; /* positions are divided by it; 1 for none */
} rope;

typedef struct config {
    uint32_t hidden, ffn, n_layer, n_head, n_head_kv, head_dim, window, context, vocab;
    double eps, query_scale_dim;
    rope full, sliding;
    bool tied;
} config;

static gm_status refuse_unsup(const gm_json *o, const char *key, const char *found,
                              const char *expected, gm_err *err)
{
    return gm_fail(err, GM_E_UNSUP, 0, "%s: %s%s is %s, which is not supported; expected %s",
                   o->file, o->prefix, key, found, expected);
}

/* ---- numbers ------------------------------------------------------------------------- */

static gm_status numbers_read(const gm_json *o, config *c, gm_err *err)
{
    const struct {
        const char *key;
        uint32_t *out, value, min, max;
    } INTS[] = {
        {"hidden_size", &c->hidden, 2304, 1, MAX_HIDDEN},
        {"intermediate_size", &c->ffn, 9216, 1, MAX_FFN},
        {"num_hidden_layers", &c->n_layer, 26, 1, MAX_LAYERS},
        {"num_attention_heads", &c->n_head, 8, 1, MAX_HEADS},
        {"num_key_value_heads", &c->n_head_kv, 4, 1, MAX_HEADS},
        {"head_dim", &c->head_dim, 256, 2, MAX_HEAD},
        {"sliding_window", &c->window, 4096, 1, GM_META_MAX_CTX},
        {"max_position_embeddings", &c->context, 131072, 2, GM_META_MAX_CTX},
        {"vocab_size", &c->vocab, 262208, 1, MAX_VOCAB},
    };
    for (size_t i = 0; i < sizeof INTS / sizeof INTS[0]; i++) {
        *INTS[i].out = INTS[i].value;
        GM_TRY(gm_json_u32(o, INTS[i].key, INTS[i].min, INTS[i].max, INTS[i].out, err));
    }
    if (c->head_dim % 2 != 0) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: %shead_dim is %u, expected an even number",
                       o->file, o->prefix, c->head_dim);
    }
    if (c->n_head % c->n_head_kv != 0) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: %snum_attention_heads is %u, expected a multiple of the %u "
                       "num_key_value_heads",
                       o->file, o->prefix, c->n_head, c->n_head_kv);
    }
    c->eps = 1e-6;
    c->query_scale_dim = 256;
    GM_TRY(gm_json_f64(o, "rms_norm_eps", 1e-12, 1, &c->eps, err));
    return gm_json_f64(o, "query_pre_attn_scalar", 1e-6, MAX_HIDDEN, &c->query_scale_dim, err);
}

/* ---- rotary positions ---------------------------------------------------------------- */

/* One kind of layer: {rope_theta, rope_type or type, factor}, each of them optional. */
static gm_status rope_read(const gm_json *o, rope *r, gm_err *err)
{
    GM_TRY(gm_json_f64(o, "rope_theta", 1, 1e12, &r->base, err));
    const char *const type_key = gm_json_find(o, "rope_type") ? "rope_type" : "type";
    gm_str type = GM_STR("default");
    GM_TRY(gm_json_str(o, type_key, &type, err));
    r->factor = 1;
    if (gm_str_eq(type, GM_STR("default"))) return GM_OK;
    if (!gm_str_eq(type, GM_STR("linear"))) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s: %s%s is \"%.*s\", which is not supported; expected default or linear",
                       o->file, o->prefix, type_key, GM_STR_ARG(type));
    }
    if (!gm_json_find(o, "factor"))
        return gm_json_refuse(o, "factor", NULL, "the factor of linear scaling", err);
    return gm_json_f64(o, "factor", 1e-3, 1e6, &r->factor, err);
}

/* rope_scaling or rope_parameters: one object for both kinds of layers, or one that is all about
 * the layers with full attention. */
static gm_status rope_object_read(const gm_json *parent, const char *key, config *c, gm_err *err)
{
    char prefix[64], full_prefix[96], sliding_prefix[96];
    const json_t *object = NULL;
    GM_TRY(gm_json_object(parent, key, &object, err));
    if (!object) return GM_OK;
    snprintf(prefix, sizeof prefix, "%s%s.", parent->prefix, key);
    snprintf(full_prefix, sizeof full_prefix, "%sfull_attention.", prefix);
    snprintf(sliding_prefix, sizeof sliding_prefix, "%ssliding_attention.", prefix);
    const gm_json o = {object, parent->file, prefix};

    const json_t *full = NULL, *sliding = NULL;
    GM_TRY(gm_json_object(&o, "full_attention", &full, err));
    GM_TRY(gm_json_object(&o, "sliding_attention", &sliding, err));
    if (!full && !sliding) return rope_read(&o, &c->full, err);
    const gm_json of = {full, parent->file, full_prefix};
    const gm_json os = {sliding, parent->file, sliding_prefix};
    if (full) GM_TRY(rope_read(&of, &c->full, err));
    if (sliding) GM_TRY(rope_read(&os, &c->sliding, err));
    if (c->sliding.factor == 1) return GM_OK;
    return gm_fail(err, GM_E_UNSUP, 0,
                   "%s: %sfactor is %g, which is not supported; expected 1 for sliding attention",
                   parent->file, sliding_prefix, c->sliding.factor);
}

static gm_status ropes_read(const gm_json *o, config *c, gm_err *err)
{
    c->full = (rope){1e6, 1};
    c->sliding = (rope){1e4, 1};
    GM_TRY(gm_json_f64(o, "rope_theta", 1, 1e12, &c->full.base, err));
    GM_TRY(gm_json_f64(o, "rope_local_base_freq", 1, 1e12, &c->sliding.base, err));
    GM_TRY(rope_object_read(o, "rope_scaling", c, err));
    return rope_object_read(o, "rope_parameters", c, err);
}

/* ---- which layers see how far -------------------------------------------------------- */

static gm_status layer_types_read(const gm_json *o, const json_t *types, uint32_t n, uint8_t *local,
                                  gm_err *err)
{
    if (!json_is_array(types)) return gm_json_refuse(o, "layer_types", types, "an array", err);
    if (json_array_size(types) != n) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: %slayer_types has %zu entries, expected one for each of %u layers",
                       o->file, o->prefix, json_array_size(types), n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const json_t *const j = json_array_get(types, i);
        const gm_str type = json_is_string(j) ? gm_json_text(j) : GM_STR("");
        local[i] = gm_str_eq(type, GM_STR("sliding_attention"));
        if (!local[i] && !gm_str_eq(type, GM_STR("full_attention"))) {
            return gm_json_refuse(o, "layer_types' entry", j, "sliding_attention or full_attention",
                                  err);
        }
    }
    return GM_OK;
}

/* One byte a layer, 1 for those that see a window only. */
static gm_status layers_put(gm_tensorfile *f, const gm_json *o, uint32_t n, gm_err *err)
{
    uint8_t *local = NULL;
    GM_TRY(gm_arena_alloc(&f->arena, &local, n, 1, "the list of layer types", err));
    const json_t *const types = gm_json_find(o, "layer_types");
    if (types) {
        GM_TRY(layer_types_read(o, types, n, local, err));
    } else {
        uint32_t pattern = 6;
        GM_TRY(gm_json_u32(o, "_sliding_window_pattern", 1, MAX_LAYERS, &pattern, err));
        GM_TRY(gm_json_u32(o, "sliding_window_pattern", 1, MAX_LAYERS, &pattern, err));
        for (uint32_t i = 0; i < n; i++)
            local[i] = (i + 1) % pattern != 0;
    }
    return gm_hf_put_array(f, "gemma3.attention.sliding_window_pattern", GM_META_BOOL, local, n,
                           err);
}

/* ---- what Gemma 3 does not have ------------------------------------------------------ */

static gm_status extras_refuse(const gm_json *o, gm_err *err)
{
    static const char *const FALSE_ONLY[] = {"attention_bias", "use_bidirectional_attention"};
    for (size_t i = 0; i < sizeof FALSE_ONLY / sizeof FALSE_ONLY[0]; i++) {
        bool on = false;
        GM_TRY(gm_json_bool(o, FALSE_ONLY[i], &on, err));
        if (on) return refuse_unsup(o, FALSE_ONLY[i], "true", "false", err);
    }
    if (gm_json_find(o, "attn_logit_softcapping"))
        return refuse_unsup(o, "attn_logit_softcapping", "set", "null", err);
    gm_str act = GM_STR("gelu_pytorch_tanh");
    GM_TRY(gm_json_str(o, "hidden_activation", &act, err));
    if (gm_str_eq(act, GM_STR("gelu_pytorch_tanh"))) return GM_OK;
    return gm_fail(err, GM_E_UNSUP, 0,
                   "%s: %shidden_activation is \"%.*s\", which is not supported; expected "
                   "gelu_pytorch_tanh",
                   o->file, o->prefix, GM_STR_ARG(act));
}

static gm_status quantised_refuse(const gm_json *o, gm_err *err)
{
    if (!gm_json_find(o, "quantization_config")) return GM_OK;
    return gm_fail(err, GM_E_UNSUP, 0,
                   "%s: has a %squantization_config; quantised Hugging Face checkpoints are not "
                   "supported, expected weights in BF16, F16 or F32 (or a GGUF file)",
                   o->file, o->prefix);
}

/* Finds the text model's object: the root, or its text_config. */
static gm_status text_find(const gm_json *root, gm_json *text, gm_err *err)
{
    const json_t *nested = NULL;
    gm_str type = {0};
    GM_TRY(gm_json_object(root, "text_config", &nested, err));
    GM_TRY(gm_json_str(root, "model_type", &type, err));
    const gm_str expected = nested ? GM_STR("gemma3") : GM_STR("gemma3_text");
    if (!type.p) return gm_json_refuse(root, "model_type", NULL, "gemma3 or gemma3_text", err);
    if (gm_str_eq(type, GM_STR("gemma3")) && !nested)
        return gm_json_refuse(root, "text_config", NULL, "an object", err);
    if (!gm_str_eq(type, expected)) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s: model_type is \"%.*s\", which is not supported; expected %s",
                       root->file, GM_STR_ARG(type), expected.p);
    }
    *text = *root;
    if (!nested) return GM_OK;
    *text = (gm_json){nested, root->file, "text_config."};
    type = GM_STR("gemma3_text");
    GM_TRY(gm_json_str(text, "model_type", &type, err));
    if (gm_str_eq(type, GM_STR("gemma3_text"))) return GM_OK;
    return gm_json_refuse(text, "model_type", gm_json_find(text, "model_type"), "gemma3_text", err);
}

/* ---- the translation ----------------------------------------------------------------- */

static gm_status numbers_put(gm_tensorfile *f, const config *c, gm_err *err)
{
    GM_TRY(gm_hf_put_str(f, "general.architecture", GM_STR("gemma3"), err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.context_length", c->context, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.embedding_length", c->hidden, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.block_count", c->n_layer, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.feed_forward_length", c->ffn, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.attention.head_count", c->n_head, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.attention.head_count_kv", c->n_head_kv, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.attention.key_length", c->head_dim, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.attention.value_length", c->head_dim, err));
    GM_TRY(gm_hf_put_f32(f, "gemma3.attention.layer_norm_rms_epsilon", c->eps, err));
    GM_TRY(gm_hf_put_u32(f, "gemma3.attention.sliding_window", c->window, err));
    GM_TRY(gm_hf_put_f32(f, "gemma3.rope.freq_base", c->full.base, err));
    GM_TRY(gm_hf_put_f32(f, "gemma3.rope.freq_base_swa", c->sliding.base, err));
    if (c->full.factor != 1)
        GM_TRY(gm_hf_put_str(f, "gemma3.rope.scaling.type", GM_STR("linear"), err));
    GM_TRY(gm_hf_put_f32(f, "gemma3.rope.scaling.factor", c->full.factor, err));
    GM_TRY(gm_hf_put_f32(f, "gemmule.norm_offset", 1, err));
    GM_TRY(gm_hf_put_f32(f, "gemmule.attention.query_scale_dim", c->query_scale_dim, err));
    return gm_hf_put_bool(f, "gemmule.tied_embeddings", c->tied, err);
}

/* An id, or a list of them whose first is the tokenizer's own. */
static gm_status eos_put(gm_tensorfile *f, const gm_json *o, gm_err *err)
{
    const json_t *const all = gm_json_find(o, "eos_token_id");
    const json_t *const j = json_is_array(all) ? json_array_get(all, 0) : all;
    if (!j) return GM_OK;
    const json_int_t id = json_integer_value(j);
    if (!json_is_integer(j) || id < 0 || id >= (json_int_t)MAX_VOCAB)
        return gm_json_refuse(o, "eos_token_id", j, "a token id or a list of them", err);
    return gm_hf_put_u32(f, "tokenizer.ggml.eos_token_id", (uint32_t)id, err);
}

static gm_status config_translate(gm_tensorfile *f, const gm_json *root, gm_err *err)
{
    gm_json text = {0};
    config c = {.tied = true};
    gm_str origin = {0};
    GM_TRY(text_find(root, &text, err));
    const bool conditional = text.at != root->at;
    GM_TRY(quantised_refuse(root, err));
    GM_TRY(quantised_refuse(&text, err));
    GM_TRY(extras_refuse(&text, err));
    GM_TRY(numbers_read(&text, &c, err));
    GM_TRY(ropes_read(&text, &c, err));
    GM_TRY(gm_json_bool(root, "tie_word_embeddings", &c.tied, err));
    GM_TRY(gm_json_bool(&text, "tie_word_embeddings", &c.tied, err));
    GM_TRY(numbers_put(f, &c, err));
    GM_TRY(layers_put(f, &text, c.n_layer, err));
    /* transformers' class for text and images never applies a soft cap. */
    if (!conditional && gm_json_find(&text, "final_logit_softcapping")) {
        double cap = 0;
        GM_TRY(gm_json_f64(&text, "final_logit_softcapping", 1e-3, 1e6, &cap, err));
        GM_TRY(gm_hf_put_f32(f, "gemma3.final_logit_softcapping", cap, err));
    }
    GM_TRY(eos_put(f, root, err));
    if (conditional) GM_TRY(eos_put(f, &text, err));
    GM_TRY(gm_json_str(root, "_name_or_path", &origin, err));
    return origin.len ? gm_hf_put_str(f, "general.name", origin, err) : GM_OK;
}

gm_status gm_hf_config_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                             gm_err *err)
{
    json_t *root = NULL;
    GM_TRY(gm_json_parse(&root, data, size, 0, name, err));
    const gm_status status = config_translate(f, &(gm_json){root, name, ""}, err);
    json_decref(root);
    return status;
}

static gm_status generation_translate(gm_tensorfile *f, const gm_json *root, gm_err *err)
{
    double temperature = 0, top_p = 0;
    uint32_t top_k = 0;
    if (gm_json_find(root, "temperature")) {
        GM_TRY(gm_json_f64(root, "temperature", 0, GM_TEMPERATURE_MAX, &temperature, err));
        GM_TRY(gm_hf_put_f32(f, "general.sampling.temp", temperature, err));
    }
    if (gm_json_find(root, "top_k")) {
        GM_TRY(gm_json_u32(root, "top_k", 0, MAX_VOCAB, &top_k, err));
        GM_TRY(gm_hf_put_u32(f, "general.sampling.top_k", top_k, err));
    }
    if (gm_json_find(root, "top_p")) {
        GM_TRY(gm_json_f64(root, "top_p", 0, 1, &top_p, err));
        GM_TRY(gm_hf_put_f32(f, "general.sampling.top_p", top_p, err));
    }
    return GM_OK;
}

gm_status gm_hf_generation_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                 const char *name, gm_err *err)
{
    json_t *root = NULL;
    GM_TRY(gm_json_parse(&root, data, size, 0, name, err));
    const gm_status status = generation_translate(f, &(gm_json){root, name, ""}, err);
    json_decref(root);
    return status;
}
