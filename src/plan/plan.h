/* SPDX-License-Identifier: MIT */
#ifndef GM_PLAN_PLAN_H
#define GM_PLAN_PLAN_H

/* A model's forward pass as a flat list of ops, symbolic in the number of rows.
 *
 * A model appends ops with the functions below; nothing runs. Every function
 * checks the shapes it is given. The first mistake latches, later ops do nothing,
 * and gm_plan_finish reports it, so that a model's text stays free of plumbing.
 * After gm_plan_finish the plan is read-only and any thread may read it.
 *
 *     gm_plan p = {.weights = tensors};
 *     gm_val x = gm_op_input_rows(&p, embed, scale);
 *     gm_op_output(&p, GM_OUT_HIDDEN, gm_op_pick_rows(&p, x));
 *     GM_TRY(gm_plan_finish(&p, err));        ... gm_plan_deinit(&p); */

#include "base/status.h"
#include "base/strbuf.h"
#include "plan/op.h"
#include "quant/tensor.h"

enum { GM_ROWS_ALL = 0, GM_ROWS_OUT = 1 };

typedef struct gm_valinfo {
    uint32_t rows; /* GM_ROWS_*                                     */
    uint32_t cols;
    uint32_t op;   /* index of the op that makes it                 */
    bool is_cache; /* a KV cache, not a matrix                      */
} gm_valinfo;

/* Neighbouring ops that a backend may lower as one; fuse.c makes them from a table. */
typedef struct gm_group {
    const char *name; /* the pattern's */
    uint32_t op_first, n_ops;
} gm_group;

typedef struct gm_plan {
    gm_tensors weights; /* borrowed; must outlive the plan */
    gm_op *ops;
    size_t n_ops, cap_ops;
    gm_valinfo *vals; /* vals[0] is unused */
    size_t n_vals, cap_vals;
    gm_group *groups;
    size_t n_groups, cap_groups;
    gm_val outputs[GM_OUTS]; /* 0 where the plan has no such output, or many: taps */
    uint32_t n_taps;
    gm_err err; /* the first mistake, or code GM_OK    */
} gm_plan;

gm_val gm_op_input_rows(gm_plan *p, gm_wid embed, float scale);
gm_val gm_op_input_given(gm_plan *p, uint32_t cols);
gm_val gm_op_norm(gm_plan *p, gm_val x, const gm_norm *norm);
gm_val gm_op_matmul(gm_plan *p, gm_val x, gm_wid w);
gm_val gm_op_norm_rope(gm_plan *p, gm_val x, const gm_norm *norm, const gm_rope *rope);
gm_val gm_op_cache(gm_plan *p, uint32_t layer, gm_val k, gm_val v, const gm_attn *attn);
gm_val gm_op_attend(gm_plan *p, gm_val q, gm_val cache, const gm_attn *attn);
gm_val gm_op_norm_add(gm_plan *p, gm_val x, gm_val y, const gm_norm *norm);
gm_val gm_op_gate_up_gelu(gm_plan *p, gm_val x, gm_wid gate, gm_wid up);
gm_val gm_op_pick_rows(gm_plan *p, gm_val x);
gm_val gm_op_softcap(gm_plan *p, gm_val x, float cap);
gm_val gm_op_draw(gm_plan *p, gm_val logits);
void gm_op_output(gm_plan *p, uint32_t what, gm_val x);

/* Makes *p (all-zero) the beginning of a finished plan, up to the input of its last product, with
 * the input of each product as a tap: once where several have the same, in the order of the
 * products. Values have the numbers that they have in `from`. Finish it as any other. */
void gm_plan_tap_products(gm_plan *p, const gm_plan *from);

/* Checks the whole (every value used, outputs declared), groups the ops, and reports the first
 * mistake of all calls above. */
gm_status gm_plan_finish(gm_plan *p, gm_err *err);
void gm_plan_deinit(gm_plan *p);

/* One line an op, with shapes, types and groups: what `inspect --plan` shows. */
void gm_plan_print(const gm_plan *p, gm_strbuf *out);

/* Fills p->groups (called by gm_plan_finish). */
gm_status gm_plan_fuse(gm_plan *p, gm_err *err);

#endif
