/* SPDX-License-Identifier: MIT */
/* What a synthetic model consists of. The shapes are Gemma 3's, and "tiny" is
 * one whose every width is a multiple of 256, so that every type fits it without
 * falling back. "narrow" has 27b's attention, an eighth of its heads, and
 * little else: for measuring attention with heads of 128.
 *
 * The laws of the weights keep activations near 1 and logits near 3. Each norm
 * sets what follows it to about 1 whatever the depth, so a matrix of n columns
 * only needs a variance of 1/n. The head is the embedding: its variance 9/d gives
 * logits a deviation of 3.
 *
 * output_norm is drawn around 0 and not around 1. The hidden state still holds
 * the embedding of the token it came from; with a positive norm the tied head
 * would find it there, sqrt(d) times as loud as any other token, and the model
 * would repeat its input for ever. Signs at random undo that. */

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include "base/strbuf.h"
#include "toolbox/synth.h"

/* Gemma's 236249 merged pieces and 19225 characters; tiny has the first of each. */
#define GEMMA_VOCAB 236249, 19225, true
#define TINY_VOCAB  1459, 95, false

static const gm_synth_shape shapes[] = {
    {"tiny", 7, 256, 512, 4, 2, 64, 32, 2048, 1, TINY_VOCAB},
    {"narrow", 12, 512, 512, 8, 4, 128, 1024, 32768, 1, TINY_VOCAB},
    {"270m", 18, 640, 2048, 4, 1, 256, 512, 32768, 1, GEMMA_VOCAB},
    {"1b", 26, 1152, 6912, 4, 1, 256, 512, 32768, 1, GEMMA_VOCAB},
    {"4b", 34, 2560, 10240, 8, 4, 256, 1024, 131072, 8, GEMMA_VOCAB},
    {"12b", 48, 3840, 15360, 16, 8, 256, 1024, 131072, 8, GEMMA_VOCAB},
    {"27b", 62, 5376, 21504, 32, 16, 128, 1024, 131072, 8, GEMMA_VOCAB},
};

#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* Refuses a name, with the ones that are known. */
static gm_status refuse_name(const char *what, const char *name, gm_strbuf *known, gm_err *err)
{
    gm_status status = gm_strbuf_status(known, err);
    if (status == GM_OK) {
        status = gm_fail(err, GM_E_ARG, 0, "synth: %s is \"%.80s\", expected one of:%s", what, name,
                         known->p);
    }
    gm_strbuf_deinit(known);
    return status;
}

gm_status gm_synth_shape_find(const gm_synth_shape **out, const char *name, gm_err *err)
{
    *out = NULL;
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (strcasecmp(shapes[i].name, name) != 0) continue;
        *out = &shapes[i];
        return GM_OK;
    }
    gm_strbuf known = {0};
    for (size_t i = 0; i < N_SHAPES; i++)
        gm_strbuf_printf(&known, " %s", shapes[i].name);
    return refuse_name("the size", name, &known, err);
}

gm_status gm_synth_type_find(const gm_qtype_info **out, const char *name, gm_err *err)
{
    *out = gm_qtype_find_name(gm_str_c(name));
    if (*out) return GM_OK;
    gm_strbuf known = {0};
    for (size_t i = 0; gm_qtype_at(i); i++)
        gm_strbuf_printf(&known, " %s", gm_qtype_at(i)->name);
    return refuse_name("the type", name, &known, err);
}

gm_status gm_synth_type_fit(const gm_qtype_info **out, const gm_qtype_info *type, uint64_t cols,
                            gm_err *err)
{
    *out = gm_qtype_fit(type, cols);
    if (cols % (*out)->block_len == 0) return GM_OK;
    const uint32_t block_len = (*out)->block_len;
    *out = NULL;
    return gm_fail(err, GM_E_ARG, 0,
                   "synth: a row of %" PRIu64
                   " values cannot be %s, expected a multiple of %" PRIu32,
                   cols, type->name, block_len);
}

/* ---- the list of tensors ------------------------------------------------------------------- */

/* The widths that tensors are made of. */
enum { ONE, EMBD, FFN, QUERY, KEY, HEAD, VOCAB, N_WIDTHS };

typedef struct part {
    const char *name;
    uint8_t rows, cols; /* widths; rows ONE: a norm */
} part;

static const part layer_parts[] = {
    {"attn_norm", ONE, EMBD},     {"attn_q", QUERY, EMBD},
    {"attn_k", KEY, EMBD},        {"attn_v", KEY, EMBD},
    {"attn_q_norm", ONE, HEAD},   {"attn_k_norm", ONE, HEAD},
    {"attn_output", EMBD, QUERY}, {"post_attention_norm", ONE, EMBD},
    {"ffn_norm", ONE, EMBD},      {"ffn_gate", FFN, EMBD},
    {"ffn_up", FFN, EMBD},        {"ffn_down", EMBD, FFN},
    {"post_ffw_norm", ONE, EMBD},
};

#define N_LAYER_PARTS (sizeof layer_parts / sizeof *layer_parts)

typedef struct maker {
    gm_synth_list *list;
    uint64_t width[N_WIDTHS];
    gm_arena *arena;
    gm_err *err;
} maker;

/* Appends blk.layer.name.weight, or name.weight where layer is negative. No product here can
 * overflow: the shapes are ours. */
static gm_status add(maker *m, int layer, const part *p, const gm_qtype_info *type,
                     gm_noise_law law)
{
    char name[64], prefix[16] = "";
    if (layer >= 0) snprintf(prefix, sizeof prefix, "blk.%d.", layer);
    const int len = snprintf(name, sizeof name, "%s%s.weight", prefix, p->name);
    gm_tensor *const t = &m->list->tensors[m->list->n];
    const uint64_t rows = m->width[p->rows], cols = m->width[p->cols];
    GM_TRY(gm_arena_copy(m->arena, (gm_str){name, (size_t)len}, &t->name, m->err));
    GM_TRY(gm_synth_type_fit(&t->type, type, cols, m->err));
    t->n_dims = p->rows == ONE ? 1 : 2;
    t->shape[0] = p->rows == ONE ? cols : rows;
    t->shape[1] = p->rows == ONE ? 0 : cols;
    t->size = rows * gm_tensor_row_size(t);
    m->list->laws[m->list->n++] = law;
    return GM_OK;
}

static gm_status add_layer(maker *m, int layer, const gm_qtype_info *type)
{
    const gm_qtype_info *const f32 = gm_qtype_find(GM_QTYPE_F32);
    for (size_t i = 0; i < N_LAYER_PARTS; i++) {
        const part *const p = &layer_parts[i];
        const gm_noise_law norm = {1, 1.0 / 12}; /* 0.5 to 1.5 */
        const gm_noise_law matrix = {0, 1.0 / (double)m->width[p->cols]};
        if (p->rows == ONE)
            GM_TRY(add(m, layer, p, f32, norm));
        else
            GM_TRY(add(m, layer, p, type, matrix));
    }
    return GM_OK;
}

gm_status gm_synth_list_make(gm_synth_list *list, const gm_synth_shape *shape,
                             const gm_qtype_info *type, const gm_qtype_info *head_type,
                             gm_arena *arena, gm_err *err)
{
    static const part embd = {"token_embd", VOCAB, EMBD}, out_norm = {"output_norm", ONE, EMBD};
    *list = (gm_synth_list){0};
    const uint64_t n = 2 + N_LAYER_PARTS * (uint64_t)shape->n_layer;
    GM_TRY(gm_arena_alloc(arena, &list->tensors, n, sizeof *list->tensors, "tensors", err));
    GM_TRY(gm_arena_alloc(arena, &list->laws, n, sizeof *list->laws, "laws of tensors", err));
    maker m = {
        .list = list,
        .width = {[ONE] = 1,
                  [EMBD] = shape->n_embd,
                  [FFN] = shape->n_ffn,
                  [QUERY] = (uint64_t)shape->n_head * shape->head_dim,
                  [KEY] = (uint64_t)shape->n_kv_head * shape->head_dim,
                  [HEAD] = shape->head_dim,
                  [VOCAB] = gm_synth_vocab_len(shape)},
        .arena = arena,
        .err = err,
    };
    GM_TRY(add(&m, -1, &embd, head_type, (gm_noise_law){0, 9.0 / shape->n_embd}));
    for (uint32_t l = 0; l < shape->n_layer; l++)
        GM_TRY(add_layer(&m, (int)l, type));
    return add(&m, -1, &out_norm, gm_qtype_find(GM_QTYPE_F32), (gm_noise_law){0, 1});
}
