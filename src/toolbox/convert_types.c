/* SPDX-License-Identifier: MIT */
/* Which tensor gets which type. The plain types come from the table of formats,
 * with llama.cpp's one exception: the head, which mostly is the embedding too, has
 * at least q6_k. The mixes are tables: q4_k_m and q5_k_m as llama.cpp has them, so
 * that a name means the same file size everywhere, and `balanced`, ours. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/strbuf.h"
#include "toolbox/convert.h"

static const gm_mix mixes[] = {
    {.name = "q4_k_m",
     .about = "4.9 bits: q4_k, with q6_k where it matters more, as llama.cpp mixes it",
     .file_type = 15,
     .base = GM_QTYPE_Q4_K,
     .head = GM_QTYPE_Q6_K,
     .rows = {{"attn_v", GM_QTYPE_Q6_K, true},
              {"ffn_down", GM_QTYPE_Q6_K, true},
              {"attn_qkv", GM_QTYPE_Q5_K, false}}},
    {.name = "q5_k_m",
     .about = "5.7 bits: q5_k, with q6_k where it matters more, as llama.cpp mixes it",
     .file_type = 17,
     .base = GM_QTYPE_Q5_K,
     .head = GM_QTYPE_Q6_K,
     .rows = {{"attn_v", GM_QTYPE_Q6_K, true},
              {"ffn_down", GM_QTYPE_Q6_K, true},
              {"attn_qkv", GM_QTYPE_Q6_K, false}}},
    {.name = "balanced",
     .about = "about 5 bits: each part at the type that costs least quality a byte",
     .file_type = 15,
     .base = GM_QTYPE_Q4_K,
     .head = GM_QTYPE_Q6_K,
     .rows = {{"attn_v", GM_QTYPE_Q5_K, false},
              {"attn_qkv", GM_QTYPE_Q5_K, false},
              {"ffn_gate", GM_QTYPE_Q5_K, false},
              {"ffn_down", GM_QTYPE_Q5_K, false}}},
};

#define N_MIXES (sizeof mixes / sizeof *mixes)

const char *gm_convert_type(size_t i, const char **about)
{
    const gm_mix *const mix = i < N_MIXES ? &mixes[i] : NULL;
    const gm_qtype_info *const t = mix ? NULL : gm_qtype_at(i - N_MIXES);
    if (about) *about = mix ? mix->about : "";
    return mix ? mix->name : t ? t->name : NULL;
}

/* The names that are expected are those from the given one on. */
static gm_status refuse_name(const char *what, const char *name, size_t from, gm_err *err)
{
    gm_strbuf known = {0};
    for (size_t i = from; gm_convert_type(i, NULL); i++)
        gm_strbuf_printf(&known, " %s", gm_convert_type(i, NULL));
    gm_status status = gm_strbuf_status(&known, err);
    if (status == GM_OK) {
        status = gm_fail(err, GM_E_ARG, 0, "convert: %s is \"%.40s\", expected one of:%s", what,
                         name, known.p);
    }
    gm_strbuf_deinit(&known);
    return status;
}

/* Everything that type, but a head of at least q6_k. */
static gm_mix plain_mix(const gm_qtype_info *t)
{
    const gm_qtype_info *const q6_k = gm_qtype_find(GM_QTYPE_Q6_K);
    const bool is_small =
        (uint64_t)t->block_size * q6_k->block_len < (uint64_t)q6_k->block_size * t->block_len;
    return (gm_mix){
        .name = t->name,
        .about = "",
        .file_type = gm_gguf_file_type(t->id),
        .base = t->id,
        .head = is_small ? GM_QTYPE_Q6_K : t->id,
    };
}

gm_status gm_mix_find(gm_mix *out, const char *name, const char *head_type, gm_err *err)
{
    const gm_qtype_info *const plain = gm_qtype_find_name(gm_str_c(name));
    const gm_qtype_info *const head = head_type ? gm_qtype_find_name(gm_str_c(head_type)) : NULL;
    bool found = plain != NULL;
    if (plain) *out = plain_mix(plain);
    for (size_t i = 0; i < N_MIXES && !found; i++) {
        found = strcasecmp(mixes[i].name, name) == 0;
        if (found) *out = mixes[i];
    }
    if (!found) return refuse_name("the type", name, 0, err);
    if (head_type && !head) return refuse_name("the head's type", head_type, N_MIXES, err);
    if (head) out->head = head->id;
    return GM_OK;
}

/* In the first and the last eighth, and every third between. */
static bool layer_has_more(uint32_t layer, uint32_t n_layer)
{
    const uint32_t eighth = n_layer / 8;
    return layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
}

/* Takes "blk.17.attn_v.weight" apart; false for names that are not of a layer. */
static bool name_parse(const char *name, uint32_t *layer, gm_str *part)
{
    char *end = NULL;
    if (strncmp(name, "blk.", 4) != 0) return false;
    *layer = (uint32_t)strtoul(name + 4, &end, 10);
    if (*end != '.') return false;
    const gm_str rest = gm_str_c(end + 1), suffix = GM_STR(".weight");
    *part = (gm_str){rest.p, gm_str_ends(rest, suffix) ? rest.len - suffix.len : rest.len};
    return true;
}

static gm_qtype wanted_type(const gm_mix *mix, const char *name, uint32_t n_layer)
{
    uint32_t layer = 0;
    gm_str part = {0};
    if (!name_parse(name, &layer, &part)) return mix->base;
    for (const gm_mixrow *row = mix->rows; row->part; row++) {
        if (!gm_str_eq(part, gm_str_c(row->part))) continue;
        return !row->some || layer_has_more(layer, n_layer) ? row->type : mix->base;
    }
    return mix->base;
}

const gm_qtype_info *gm_mix_type(const gm_mix *mix, const gm_tensor *t, uint32_t n_layer,
                                 bool is_head, bool *fallback)
{
    *fallback = false;
    if (t->n_dims == 1) return gm_qtype_find(GM_QTYPE_F32);
    const gm_qtype wanted = is_head ? mix->head : wanted_type(mix, t->name, n_layer);
    const uint64_t cols = gm_tensor_cols(t);
    const gm_qtype_info *type = gm_qtype_fit(gm_qtype_find((uint32_t)wanted), cols);
    if (cols % type->block_len != 0) type = gm_qtype_find(GM_QTYPE_F16);
    *fallback = type->id != wanted;
    return type;
}
