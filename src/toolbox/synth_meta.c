/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "file/gguf.h"
#include "toolbox/synth.h"

/* Gemma's turns, as text/chat.c makes them. */
static const char chat_template[] =
    "{{ bos_token }}{% set ns = namespace(system='') %}"
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.system = m.content + '\\n\\n' %}"
    "{% else %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}{{ '\\n' }}"
    "{{ ns.system }}{{ m.content | trim }}<end_of_turn>{{ '\\n' }}"
    "{% set ns.system = '' %}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model{{ '\\n' }}{% endif %}";

#define NUMBER(name, kind, ...)                                  \
    {                                                            \
        .key = GM_STR(name), .type = (kind), .n = 1, __VA_ARGS__ \
    }
#define U32(name, value)  NUMBER(name, GM_META_U32, .u = (value))
#define F32(name, value)  NUMBER(name, GM_META_F32, .f = (value))
#define BOOL(name, value) NUMBER(name, GM_META_BOOL, .u = (value))
#define STR(name, value)  NUMBER(name, GM_META_STR, .s = (value))
#define ARRAY(name, kind, ...)                                                             \
    {                                                                                      \
        .key = GM_STR(name), .type = GM_META_ARRAY, .elem = (kind), .n = v->n, __VA_ARGS__ \
    }

gm_status gm_synth_meta_make(gm_meta *meta, const gm_synth_shape *s, const gm_synth_vocab *v,
                             const gm_qtype_info *type, uint64_t seed, gm_arena *arena, gm_err *err)
{
    char text[64];
    const char *name = NULL;
    const int len = snprintf(text, sizeof text, "synthetic gemma-3-%s", s->name);
    GM_TRY(gm_arena_copy(arena, (gm_str){text, (size_t)len}, &name, err));
    const gm_metaval keys[] = {
        STR("general.architecture", GM_STR("gemma3")),
        STR("general.type", GM_STR("model")),
        STR("general.name", gm_str_c(name)),
        U32("general.file_type", gm_gguf_file_type(type->id)),
        U32("general.quantization_version", 2),
        BOOL("gemmule.synthetic", true),
        NUMBER("gemmule.synth.seed", GM_META_U64, .u = seed),
        U32("gemma3.context_length", s->n_ctx),
        U32("gemma3.embedding_length", s->n_embd),
        U32("gemma3.block_count", s->n_layer),
        U32("gemma3.feed_forward_length", s->n_ffn),
        U32("gemma3.attention.head_count", s->n_head),
        U32("gemma3.attention.head_count_kv", s->n_kv_head),
        U32("gemma3.attention.key_length", s->head_dim),
        U32("gemma3.attention.value_length", s->head_dim),
        F32("gemma3.attention.layer_norm_rms_epsilon", 1e-6f),
        U32("gemma3.attention.sliding_window", s->window),
        F32("gemma3.rope.freq_base", 1000000),
        STR("tokenizer.ggml.model", GM_STR("llama")),
        STR("tokenizer.ggml.pre", GM_STR("default")),
        ARRAY("tokenizer.ggml.tokens", GM_META_STR, .strs = v->pieces),
        ARRAY("tokenizer.ggml.scores", GM_META_F32, .raw = (const uint8_t *)v->scores),
        ARRAY("tokenizer.ggml.token_type", GM_META_I32, .raw = (const uint8_t *)v->kinds),
        U32("tokenizer.ggml.bos_token_id", 2),
        U32("tokenizer.ggml.eos_token_id", 1),
        U32("tokenizer.ggml.unknown_token_id", 3),
        U32("tokenizer.ggml.padding_token_id", 0),
        BOOL("tokenizer.ggml.add_bos_token", true),
        BOOL("tokenizer.ggml.add_eos_token", false),
        BOOL("tokenizer.ggml.add_space_prefix", false),
        STR("tokenizer.chat_template", GM_STR(chat_template)),
        /* Only where there is a factor: the last two. */
        STR("gemma3.rope.scaling.type", GM_STR("linear")),
        F32("gemma3.rope.scaling.factor", s->rope_factor),
    };
    const size_t n = sizeof keys / sizeof *keys - (s->rope_factor == 1 ? 2 : 0);
    gm_metaval *at = NULL;
    GM_TRY(gm_arena_alloc(arena, &at, n, sizeof *at, "metadata", err));
    memcpy(at, keys, n * sizeof *at);
    *meta = (gm_meta){.at = at, .n = n, .file = "synth"};
    return GM_OK;
}
