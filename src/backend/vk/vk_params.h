/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_PARAMS_H
#define GM_BACKEND_VK_PARAMS_H

/* What C and GLSL both know: the push constants of each kernel, the records that kernels read, and
 * the numbers behind their flags. GLSL lays these structs out as C does, because every field has the
 * alignment of its own size and every struct ends on its largest one; vk_lower.c asserts the sizes.
 * A GM_ADDR is a device address. */

#ifdef GM_GLSL
#define GM_U32          uint
#define GM_I32          int
#define GM_F32          float
#define GM_ADDR         uint64_t
#define GM_STRUCT(name) name
#else
#include <stdint.h>
#define GM_U32          uint32_t
#define GM_I32          int32_t
#define GM_F32          float
#define GM_ADDR         uint64_t
#define GM_STRUCT(name) struct name
#endif

#define GM_VK_BLOCK 32  /* values of one int8 activation block              */
#define GM_VK_SUMS  8   /* running sums of a product: block b goes to b % 8 */
#define GM_VK_SPLIT 128 /* keys that one workgroup of attention sees        */
#define GM_VK_PAGE  32  /* cells of a page                                  */

#define GM_VK_ATTEND_LANES 256 /* of a workgroup that sees a split: the order of its sums */

/* Activations of prompts are float16: a sixteenth of them, so that large ones stay finite, and
 * weights times as much. */
#define GM_VK_HALF_X 0.0625
#define GM_VK_HALF_W 16.0

/* A row of int8 that is rounded twice has what the first rounding left `plane` blocks behind, in a
 * plane of its own; plane is 0 where a row is rounded once. */

/* flags of most kernels: whose rows they work on */
#define GM_VK_ROWS_OUT 1  /* the picked rows; else all rows                                     */
#define GM_VK_ROWS_ONE 16 /* there is one row and no more: the step need not be read to know it */

/* The beginning of a step on the device. */
struct gm_vk_head {
    GM_U32 n_rows, n_outs;
    GM_U32 n_sets, n_counts, n_edits, n_copies;
    GM_U32 n_draws;
    GM_U32 pad;
};

/* A slot: who it is for the draw. Tables, counts and biases lie in arrays of their own. */
struct gm_vk_slot {
    GM_I32 last; /* token drawn last, or -1 */
    GM_U32 n_bias;
    GM_U32 penalised;
    GM_U32 pad;
    GM_U32 seed_lo, seed_hi;
    GM_F32 inv_temp, log_min_p, repeat, inv_repeat, frequency, presence;
    GM_U32 top_k, top_p;
    GM_U32 pad2, pad3;
};

/* What the draw answers for an output. */
struct gm_vk_answer {
    GM_I32 token;
    GM_F32 logprob;
};

struct gm_vk_apply {
    GM_ADDR head, sets, biases, counts, edits, copies; /* of the step      */
    GM_ADDR slots, tables, count_table, bias_table;    /* of the KV memory */
    GM_ADDR pages; /* addresses of pages, those of the global class behind those of the local one */
    GM_U32 n_vocab, max_bias, table_len;
    GM_U32 n_pages_local;
    GM_U32 page_size[2]; /* in units of 16 bytes */
};

struct gm_vk_embed {
    GM_ADDR head, rows, given, slots, weight, dst;
    GM_U32 n_cols, n_tokens; /* of the weight */
    GM_F32 scale;
    GM_U32 flags;
};

/* How kernels follow each other without a barrier between them (inc/flow.glsl): one counts itself done,
 * and the next waits for that with what it can ask for before. */
#define GM_VK_FLOW_SIZE  128 /* bytes from one kernel's word to the next's               */
#define GM_VK_FLOW_INNER 64  /* and to a second one, for what its workgroups wait for    */
/* What words that they hand on are at a step's beginning. */
#define GM_VK_UNWRITTEN 0xffff8080u
struct gm_vk_flow {
    GM_ADDR before, done; /* words: how far the kernel before is, and this one; 0: nobody asks  */
    GM_ADDR hold;         /* a word: how far somebody is whom asking for much would disturb, or 0 */
    GM_ADDR late;         /* a word: not 0 once somebody has waited too long                    */
    GM_U32 n_before;      /* of `before`, when that kernel is done                              */
    GM_U32 n_hold;        /* of `hold`, when that is over                                       */
    GM_U32 patience;      /* looks at a word after which it is too long                         */
    GM_U32 pad;
};

/* x + norm(y), kept in dst, and then the norm of that, to h and q; one of the two may be missing. */
struct gm_vk_norms {
    GM_ADDR x, dst;     /* [n, cols]                                                      */
    GM_ADDR w1, w2;     /* of the first and the second norm, 0 where it is missing        */
    GM_ADDR h, q, meta; /* the result as float32 and as int8, each 0 where nobody wants it */
    GM_F32 eps1, offset1, eps2, offset2;
    GM_U32 plane, pad;
};

#define GM_VK_NORM_PICK 8 /* row i of x is the row of output i */
struct gm_vk_norm {
    GM_ADDR head, outs;
    GM_ADDR y; /* [n, cols] */
    GM_STRUCT(gm_vk_norms) n;
    GM_U32 n_cols, flags;
    GM_STRUCT(gm_vk_flow) flow; /* with it, each workgroup has a part of the only row */
};

/* What a product does with its results; a constant of its pipelines. */
#define GM_VK_AFTER_GELU 1 /* gelu(gate) * up                                                     */
#define GM_VK_AFTER_NORM \
    2 /* `norms` of the only row, by workgroups from wg_end[0] on, which wait */
/* Norms may come before it instead, of so many rows at most: they make x of `earlier`. Each row has
 * a word in `arrived`, a bit for each part that is done, and all are 0 before the step; who has looked
 * flow.patience times does without waiting. */
#define GM_VK_FRONT_ROWS  64
#define GM_VK_FRONT_PARTS 32
#define GM_VK_FRONT_SIZE  (4 * GM_VK_FRONT_ROWS)
struct gm_vk_matmul {
    GM_ADDR head;
    GM_ADDR x, meta; /* int8 and its scales, or float32 and 0; float16 as gm_vk_halves'  */
    GM_ADDR w[3];    /* up to three matrices of one type and width; gate and up          */
    GM_ADDR dst[3];  /* [n, rows of w] each; for gate and up: float32, int8, meta or 0   */
    GM_STRUCT(gm_vk_norms) norms;
    GM_ADDR earlier; /* y of norms that come before; of float16: what parts of a sum leave */
    GM_ADDR arrived; /* words of such norms; of float16 one for each tile: workgroups that
                      * have finished, 0 between dispatches                              */
    GM_U32 n_rows[3];
    GM_U32 wg_end[2]; /* workgroups before the second and before the third matrix         */
    GM_U32 n_cols;    /* of the weights                                                   */
    GM_U32 flags;
    GM_U32 plane;   /* of x; what gate and up give is rounded once. Of float16: rows of x */
    GM_U32 side;    /* 2^side tiles of columns follow each other before the next rows     */
    GM_U32 n_parts; /* of a row of norms that come before: each is one workgroup's      */
    GM_STRUCT(gm_vk_flow) flow;
};

/* Rows of int8 become float16, which is what prompts are multiplied as. */
#define GM_VK_HALF_ROWS 128 /* of a workgroup: here, and columns of one of a product */
#define GM_VK_HALF_PART (128 * GM_VK_HALF_ROWS * 4) /* bytes that a workgroup of a product leaves */
struct gm_vk_halves {
    GM_ADDR head;
    GM_ADDR x, meta;
    GM_ADDR dst;     /* [n_blocks, made even][n_rows][32] */
    GM_U32 n_blocks; /* of a row                          */
    GM_U32 n_rows;   /* of dst: whole workgroups          */
    GM_U32 plane, flags;
};

/* Rows as fragments of matrices: so many lie together, four blocks of each after each other. */
#define GM_VK_COLUMNS 8
#define GM_VK_CHUNK   128 /* values of a row: four blocks */

/* Heads of a row that are normed and turned. */
struct gm_vk_turn {
    GM_ADDR k, v;           /* as their products give them            */
    GM_ADDR q_norm, k_norm; /* weights                                */
    GM_ADDR turns;          /* [head_dim / 2] 64-bit parts of a turn  */
    GM_F32 eps, offset;     /* of both norms                          */
};

#define GM_VK_ROPE_NORM 2 /* heads are normed and rotated; else k and v are only stored */
struct gm_vk_rope {
    GM_ADDR head, rows, q;
    GM_ADDR q_out;
    GM_STRUCT(gm_vk_turn) t;
    GM_ADDR tables;
    GM_U32 n_head, n_kv_head, head_dim;
    GM_U32 table_len, layer_off; /* of the layer in a page, in units of 16 bytes */
    GM_U32 flags;                /* and the class in bit 8                       */
};

/* Rows that a workgroup of attention walks at once: a lane's sums are registers, and its heads,
 * dim floats each and g to a row, are shared memory. */
#define GM_VK_WALK_HEADS(dim)   ((dim) <= 128u ? 8u : (dim) <= 256u ? 4u : 2u)
#define GM_VK_TILE_ROWS(g, dim) (GM_VK_WALK_HEADS(dim) > (g) ? GM_VK_WALK_HEADS(dim) / (g) : 1u)
/* Saved splits that a lane of attention asks for at once, up to so many past the last. */
#define GM_VK_FOLD_ONCE 16
/* A prompt's attention: heads of q that a workgroup has, and workgroups that share their runs. */
#define GM_VK_HALF_HEADS  64
#define GM_VK_HALF_SHARES 8
struct gm_vk_attend {
    GM_ADDR rows, q, tables;
    GM_ADDR dst, dstq, meta; /* float32 and int8, each 0 where nobody wants it   */
    GM_ADDR parts, arrived;  /* partial results; workgroups that have finished   */
    GM_ADDR head;
    GM_STRUCT(gm_vk_turn) t; /* where q, k and v are as their products give them */
    GM_U32 n_head, n_kv_head, head_dim;
    GM_U32 table_len, layer_off, max_splits;
    GM_U32 class_of;
    GM_F32 scale;
    GM_U32 flags, plane;
    GM_STRUCT(gm_vk_flow) flow;
};

#define GM_VK_MODE_COPY    0 /* row i of a (or of the row of output i) to dst           */
#define GM_VK_MODE_SOFTCAP 1 /* scale * tanh(a / scale)                                  */
#define GM_VK_MODE_GELU    2 /* gelu_tanh(a) * b                                         */
struct gm_vk_rows {
    GM_ADDR head, outs, a, b;
    GM_ADDR dst, q, meta; /* float32 and int8, each 0 where nobody wants it */
    GM_U32 n_cols, mode, flags, want;
    GM_F32 scale;
    GM_U32 plane;
};

#define GM_VK_DRAW_PART 8192 /* tokens of a row that a workgroup looks at */
struct gm_vk_draw_params {
    GM_ADDR head, rows, outs, masks;
    GM_ADDR logits, adjusted; /* [outs, n_vocab] */
    GM_ADDR slots, count_table, bias_table;
    GM_ADDR answers;
    GM_ADDR parts;   /* [outs, n_parts] of 16 bytes: what workgroups leave          */
    GM_ADDR arrived; /* [outs] workgroups that have finished, 0 between dispatches  */
    GM_U32 n_vocab, max_bias, mask_words;
    GM_U32 n_parts;
};

struct gm_vk_places {
    GM_ADDR dst; /* [lanes of a subgroup, 256 / lanes] */
};

struct gm_vk_roof {
    GM_ADDR src, dst; /* dst is written if the bytes read are of one kind, so that they are read */
    GM_U32 n;         /* of 16 bytes */
    GM_U32 pad;
};

#endif
