/* SPDX-License-Identifier: MIT */
#ifndef GM_PLAN_OP_H
#define GM_PLAN_OP_H

/* The ops that a model is written in.
 *
 * A value is a matrix of float32, [rows, cols], whose number of rows is symbolic:
 * all rows of the step, or only those whose output is wanted. A weight is named
 * by its index in the plan's gm_tensors. Each op says all about itself: a
 * backend lowers it, and ref computes it, from this struct alone.
 *
 *   kind           in            computes
 *   INPUT_ROWS     -             row of the embedding times scale, or a row the step brings
 *   INPUT_GIVEN    -             rows the step brings: a plan of one op is tested so
 *   NORM           x             x * (w + offset) / sqrt(mean(x^2) + eps)
 *   MATMUL         x             x W^T, W [cols out, cols in]
 *   NORM_ROPE      x             each head normed as NORM, then rotated by its position
 *   CACHE          k, v          stores rows in the KV cache; the value is the cache
 *   ATTEND         q, cache      softmax(scale q k^T) v over the row's visible positions
 *   NORM_ADD       x, y          x + NORM(y)
 *   GATE_UP_GELU   x             gelu_tanh(x G^T) * (x U^T)
 *   PICK_ROWS      x             only the rows whose output is wanted
 *   SOFTCAP        x             cap * tanh(x / cap)
 *   DRAW           logits        one token a row, by the law of draw.h
 *   OUTPUT         x             declares x an output of the plan
 *
 * Numerics belong to the op: how activations are rounded and sums are split
 * follows from shape and type alone, never from a device or the size of a batch. */

#include <stdint.h>

typedef uint32_t gm_val; /* index of a value; 0 is none             */
typedef uint32_t gm_wid; /* index of a weight; GM_NO_WEIGHT is none */
#define GM_NO_WEIGHT UINT32_MAX

typedef enum gm_opkind {
    GM_OP_INPUT_ROWS = 1,
    GM_OP_INPUT_GIVEN,
    GM_OP_NORM,
    GM_OP_MATMUL,
    GM_OP_NORM_ROPE,
    GM_OP_CACHE,
    GM_OP_ATTEND,
    GM_OP_NORM_ADD,
    GM_OP_GATE_UP_GELU,
    GM_OP_PICK_ROWS,
    GM_OP_SOFTCAP,
    GM_OP_DRAW,
    GM_OP_OUTPUT,
    GM_OP_KINDS,
} gm_opkind;

/* Layers of a class share a page table and a visibility: local layers see a window. */
enum { GM_CLASS_LOCAL = 0, GM_CLASS_GLOBAL = 1, GM_CLASSES = 2 };

/* What a plan gives back. The first three are of picked rows, once a plan. A tap is any matrix, and
 * there may be many: all its rows of the step come back, however many outputs the step has. */
enum { GM_OUT_DRAW = 0, GM_OUT_LOGITS = 1, GM_OUT_HIDDEN = 2, GM_OUT_TAP = 3, GM_OUTS = 4 };

/* How activations enter a product (quant/dot.h): how many rows of int8 stand for a row. */
enum { GM_ACT_F32 = 0, GM_ACT_INT8 = 1, GM_ACT_INT8_TWICE = 2 };

typedef struct gm_numerics {
    uint32_t act[2];    /* GM_ACT_*, for each weight                                      */
    uint32_t k_parts;   /* parts a product's sum is cut into, each summed in order, then
                           added in order; 1: one running sum                             */
    uint32_t key_split; /* keys of attention in one part, counted from position 0, parts
                           joined in order                                                */
} gm_numerics;

typedef struct gm_norm {
    gm_wid weight;
    float eps;
    float offset; /* added to the weight: 1 where a file stores it around 0 */
} gm_norm;

typedef struct gm_rope {
    float theta;  /* base of the angles                       */
    float factor; /* positions are divided by this, 1 or more */
} gm_rope;

typedef struct gm_attn {
    uint32_t class; /* GM_CLASS_*                              */
    uint32_t n_head, n_kv_head, head_dim;
    float scale; /* of q k^T                                */
} gm_attn;

typedef struct gm_op {
    gm_opkind kind;
    uint32_t layer; /* of the cache, where kind is CACHE or ATTEND */
    gm_val out;     /* 0 for OUTPUT                                */
    gm_val in[2];
    gm_wid weight[2];
    gm_numerics num;
    gm_norm norm;  /* NORM, NORM_ADD, NORM_ROPE                   */
    gm_rope rope;  /* NORM_ROPE                                   */
    gm_attn attn;  /* CACHE, ATTEND                               */
    float scale;   /* INPUT_ROWS; the cap of SOFTCAP              */
    uint32_t what; /* OUTPUT: GM_OUT_*                           */
} gm_op;

/* How many weights the op multiplies with: 0 for everything that is no product. */
static inline uint32_t gm_op_products(const gm_op *op)
{
    return op->kind == GM_OP_MATMUL ? 1 : op->kind == GM_OP_GATE_UP_GELU ? 2 : 0;
}

/* "matmul", "norm_rope": for printing. */
const char *gm_opkind_name(gm_opkind kind);

#endif
