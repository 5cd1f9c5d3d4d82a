/* SPDX-License-Identifier: MIT */
/* Finding the weights. Every tensor that the model needs is looked up by name
 * and checked for shape; every tensor that the file has must be needed, because a
 * weight that is silently left out (a bias, a layer too many) changes the answer.
 *
 * Two spellings of the same thing are put right here: a fused attn_qkv is cut
 * into three views, rows of q first, then k, then v; and without an output tensor
 * the head is the embedding. */

#include <inttypes.h>
#include <stdio.h>

#include "model/model.h"

/* What is being looked up, so that sentences can name it. */
typedef struct wanted {
    char name[64];
    uint64_t rows, cols; /* rows 0: a vector of cols */
} wanted;

static wanted want(uint32_t layer, const char *what, uint64_t rows, uint64_t cols)
{
    wanted w = {.rows = rows, .cols = cols};
    if (layer == UINT32_MAX)
        snprintf(w.name, sizeof w.name, "%s.weight", what);
    else
        snprintf(w.name, sizeof w.name, "blk.%" PRIu32 ".%s.weight", layer, what);
    return w;
}

/* "rows, cols", for sentences. */
typedef struct shape_text {
    char text[64];
} shape_text;

static shape_text wanted_shape(const wanted *w)
{
    shape_text s;
    if (w->rows)
        snprintf(s.text, sizeof s.text, "%" PRIu64 ", %" PRIu64, w->rows, w->cols);
    else
        snprintf(s.text, sizeof s.text, "%" PRIu64, w->cols);
    return s;
}

static gm_status shape_mismatch(const gm_model *m, const gm_tensor *t, const wanted *w, gm_err *err)
{
    char found[96] = "";
    for (uint32_t i = 0; i < t->n_dims; i++) {
        const size_t len = strlen(found);
        snprintf(found + len, sizeof found - len, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
    }
    return gm_fail(err, GM_E_FORMAT, 0, "%s: tensor %s is [%s], expected [%s]", m->file->path,
                   t->name, found, wanted_shape(w).text);
}

static gm_status check_shape(const gm_model *m, const gm_tensor *t, const wanted *w, gm_err *err)
{
    const bool fits = w->rows ? t->n_dims == 2 && t->shape[0] == w->rows && t->shape[1] == w->cols
                              : t->n_dims == 1 && t->shape[0] == w->cols;
    return fits ? GM_OK : shape_mismatch(m, t, w, err);
}

static gm_wid keep(gm_model *m, const gm_tensor *t)
{
    m->tensors[m->n_tensors] = *t;
    return m->n_tensors++;
}

static gm_status find(const gm_model *m, const wanted *w, const gm_tensor **out, gm_err *err)
{
    *out = gm_tensorfile_find(m->file, w->name);
    if (!*out) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: tensor %s is missing, expected [%s]",
                       m->file->path, w->name, wanted_shape(w).text);
    }
    return check_shape(m, *out, w, err);
}

static gm_status bind_matrix(gm_model *m, uint32_t layer, const char *what, uint64_t rows,
                             uint64_t cols, gm_wid *out, gm_err *err)
{
    const wanted w = want(layer, what, rows, cols);
    const gm_tensor *t = NULL;
    GM_TRY(find(m, &w, &t, err));
    *out = keep(m, t);
    return GM_OK;
}

static gm_status bind_norm(gm_model *m, uint32_t layer, const char *what, uint64_t cols,
                           gm_norm *out, gm_err *err)
{
    const wanted w = want(layer, what, 0, cols);
    const gm_tensor *t = NULL;
    GM_TRY(find(m, &w, &t, err));
    if (t->type->unpack) {
        return gm_fail(err, GM_E_UNSUP, 0, "%s: tensor %s has type %s, expected f32, f16 or bf16",
                       m->file->path, t->name, t->type->name);
    }
    *out = (gm_norm){keep(m, t), m->config.eps, m->config.norm_offset};
    return GM_OK;
}

/* A view of n rows of a matrix. */
static gm_tensor rows_view(const gm_tensor *t, uint64_t first, uint64_t n)
{
    gm_tensor view = *t;
    view.shape[0] = n;
    view.data = t->data + first * gm_tensor_row_size(t);
    view.size = n * gm_tensor_row_size(t);
    return view;
}

static gm_status bind_qkv(gm_model *m, uint32_t l, gm_layer *w, gm_err *err)
{
    const gm_config *const c = &m->config;
    const uint64_t q = (uint64_t)c->n_head * c->head_dim, kv = (uint64_t)c->n_kv_head * c->head_dim;
    const wanted fused = want(l, "attn_qkv", q + 2 * kv, c->n_embd);
    const gm_tensor *const t = gm_tensorfile_find(m->file, fused.name);
    if (!t) {
        GM_TRY(bind_matrix(m, l, "attn_q", q, c->n_embd, &w->wq, err));
        GM_TRY(bind_matrix(m, l, "attn_k", kv, c->n_embd, &w->wk, err));
        return bind_matrix(m, l, "attn_v", kv, c->n_embd, &w->wv, err);
    }
    GM_TRY(check_shape(m, t, &fused, err));
    const gm_tensor views[3] = {rows_view(t, 0, q), rows_view(t, q, kv), rows_view(t, q + kv, kv)};
    w->wq = keep(m, &views[0]);
    w->wk = keep(m, &views[1]);
    w->wv = keep(m, &views[2]);
    return GM_OK;
}

static gm_status bind_layer(gm_model *m, uint32_t l, gm_err *err)
{
    const gm_config *const c = &m->config;
    gm_layer *const w = &m->layers[l];
    const uint32_t d = c->n_embd;
    GM_TRY(bind_norm(m, l, "attn_norm", d, &w->attn_norm, err));
    GM_TRY(bind_qkv(m, l, w, err));
    GM_TRY(bind_norm(m, l, "attn_q_norm", c->head_dim, &w->q_norm, err));
    GM_TRY(bind_norm(m, l, "attn_k_norm", c->head_dim, &w->k_norm, err));
    GM_TRY(bind_matrix(m, l, "attn_output", d, (uint64_t)c->n_head * c->head_dim, &w->wo, err));
    GM_TRY(bind_norm(m, l, "post_attention_norm", d, &w->attn_post_norm, err));
    GM_TRY(bind_norm(m, l, "ffn_norm", d, &w->ffn_norm, err));
    GM_TRY(bind_matrix(m, l, "ffn_gate", c->n_ffn, d, &w->w_gate, err));
    GM_TRY(bind_matrix(m, l, "ffn_up", c->n_ffn, d, &w->w_up, err));
    GM_TRY(bind_matrix(m, l, "ffn_down", d, c->n_ffn, &w->w_down, err));
    GM_TRY(bind_norm(m, l, "post_ffw_norm", d, &w->ffn_post_norm, err));
    const uint32_t class = c->layer_class[l];
    w->rope = c->rope[class];
    w->attn = (gm_attn){class, c->n_head, c->n_kv_head, c->head_dim, c->attn_scale};
    return GM_OK;
}

/* The embedding has as many rows as the vocabulary will have pieces, at least those that the file
 * lists; the head has as many again. */
static gm_status bind_ends(gm_model *m, gm_err *err)
{
    const gm_tensor *const embed = gm_tensorfile_find(m->file, "token_embd.weight");
    const gm_metaval *const pieces = gm_meta_find(&m->file->meta, "tokenizer.ggml.tokens");
    const uint64_t listed = pieces && pieces->n ? pieces->n : 1;
    const uint64_t rows = embed && embed->n_dims == 2 ? embed->shape[0] : listed;
    GM_TRY(bind_matrix(m, UINT32_MAX, "token_embd", rows, m->config.n_embd, &m->embed, err));
    m->head = m->embed;
    if (gm_tensorfile_find(m->file, "output.weight"))
        GM_TRY(bind_matrix(m, UINT32_MAX, "output", rows, m->config.n_embd, &m->head, err));
    return bind_norm(m, UINT32_MAX, "output_norm", m->config.n_embd, &m->out_norm, err);
}

static gm_status check_all_used(const gm_model *m, gm_err *err)
{
    for (uint32_t i = 0; i < m->file->n_tensors; i++) {
        bool used = false;
        for (uint32_t j = 0; j < m->n_tensors && !used; j++)
            used = m->tensors[j].name == m->file->tensors[i].name;
        if (!used) {
            return gm_fail(err, GM_E_UNSUP, 0,
                           "%s: tensor %s is no part of a Gemma 3 model of %" PRIu32 " layers",
                           m->file->path, m->file->tensors[i].name, m->config.n_layer);
        }
    }
    return GM_OK;
}

gm_status gm_model_bind(gm_model *m, gm_err *err)
{
    const uint64_t most = 3 + 13ull * m->config.n_layer;
    if (m->file->n_tensors > 2 * most + 16) { /* keeps the searches below short for any file */
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: has %" PRIu32 " tensors, expected at most %" PRIu64
                       " in a Gemma 3 model of %" PRIu32 " layers",
                       m->file->path, m->file->n_tensors, most, m->config.n_layer);
    }
    GM_TRY(gm_arena_alloc(&m->arena, &m->tensors, most, sizeof *m->tensors, "the weights", err));
    GM_TRY(gm_arena_alloc(&m->arena, &m->layers, m->config.n_layer, sizeof *m->layers, "the layers",
                          err));
    GM_TRY(bind_ends(m, err));
    for (uint32_t l = 0; l < m->config.n_layer; l++)
        GM_TRY(bind_layer(m, l, err));
    return check_all_used(m, err);
}
