/* SPDX-License-Identifier: MIT */
#ifndef GM_MODEL_MODEL_H
#define GM_MODEL_MODEL_H

/* A model: the numbers of its file, its weights (checked for shape), its
 * vocabulary, and its forward pass as a plan. Never changes once open; any
 * thread may read it. gm_model_open and gm_model_close are public. */

#include "file/tensorfile.h"
#include "plan/plan.h"
#include "text/vocab.h"

/* The numbers of the file, with defaults and known mistakes of published files resolved. */
typedef struct gm_config {
    uint32_t n_layer, n_embd, n_ffn, n_head, n_kv_head, head_dim, n_ctx;
    uint32_t window; /* positions a local layer sees, itself included              */
    float eps, norm_offset;
    float attn_scale;
    float softcap; /* of the logits; 0: none                                     */
    gm_rope rope[GM_CLASSES];
    uint8_t *layer_class; /* [n_layer], GM_CLASS_*; from the model's arena              */
    struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
    } sampling; /* what the file recommends, else Gemma's                     */
} gm_config;

typedef struct gm_layer {
    gm_norm attn_norm, q_norm, k_norm, attn_post_norm, ffn_norm, ffn_post_norm;
    gm_wid wq, wk, wv, wo, w_gate, w_up, w_down;
    gm_rope rope;
    gm_attn attn;
} gm_layer;

struct gm_model {
    gm_tensorfile *file;
    gm_arena arena;
    gm_config config;
    gm_tensor *tensors; /* the weights in use, by gm_wid */
    uint32_t n_tensors;
    gm_layer *layers;   /* [n_layer]      */
    gm_wid embed, head; /* the same where tied */
    gm_norm out_norm;
    gm_vocab *vocab;
    gm_plan plan;
    const char *name, *note; /* from the arena */
};

/* config.c: reads and checks the metadata. Layer classes come from the arena. */
gm_status gm_config_read(gm_config *c, const gm_meta *meta, gm_arena *arena, gm_err *err);

/* weights.c: finds every tensor, checks its shape, cuts a fused attn_qkv apart. */
gm_status gm_model_bind(gm_model *m, gm_err *err);

/* gemma3.c: the forward pass. */
void gm_gemma3_plan(gm_plan *p, const gm_model *m);

#endif
