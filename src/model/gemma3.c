/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "model/model.h"

/* One step of Gemma 3, top to bottom. Nothing runs here: every line appends an op, and a backend
 * lowers the plan once. Shape mistakes latch in the plan and are reported by gm_plan_finish. */
void gm_gemma3_plan(gm_plan *p, const gm_model *m)
{
    const float embed_scale = sqrtf((float)m->config.n_embd);
    gm_val x = gm_op_input_rows(p, m->embed, embed_scale); /* [n, d] */

    for (uint32_t l = 0; l < m->config.n_layer; l++) {
        const gm_layer *const w = &m->layers[l];
        gm_val h = gm_op_norm(p, x, &w->attn_norm);
        gm_val q = gm_op_matmul(p, h, w->wq); /* [n, n_head * head_dim]    */
        gm_val k = gm_op_matmul(p, h, w->wk); /* [n, n_kv_head * head_dim] */
        gm_val v = gm_op_matmul(p, h, w->wv);
        q = gm_op_norm_rope(p, q, &w->q_norm, &w->rope);
        k = gm_op_norm_rope(p, k, &w->k_norm, &w->rope);
        gm_val a = gm_op_attend(p, q, gm_op_cache(p, l, k, v, &w->attn), &w->attn);
        x = gm_op_norm_add(p, x, gm_op_matmul(p, a, w->wo), &w->attn_post_norm);

        h = gm_op_norm(p, x, &w->ffn_norm);
        gm_val f = gm_op_gate_up_gelu(p, h, w->w_gate, w->w_up); /* [n, d_ffn] */
        x = gm_op_norm_add(p, x, gm_op_matmul(p, f, w->w_down), &w->ffn_post_norm);
    }

    gm_val y = gm_op_norm(p, gm_op_pick_rows(p, x), &m->out_norm); /* [out, d] */
    gm_val logits = gm_op_matmul(p, y, m->head);                   /* [out, n_vocab] */
    if (m->config.softcap > 0) logits = gm_op_softcap(p, logits, m->config.softcap);
    gm_val token = gm_op_draw(p, logits);
    gm_op_output(p, GM_OUT_DRAW, token);
    gm_op_output(p, GM_OUT_LOGITS, logits);
    gm_op_output(p, GM_OUT_HIDDEN, y);
}
