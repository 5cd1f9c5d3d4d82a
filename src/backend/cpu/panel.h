/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_PANEL_H
#define GM_BACKEND_CPU_PANEL_H

/* How products of quantised weights are computed.
 *
 * Weights lie in tiles of sixteen rows and 256 columns (tile.h). A tile is multiplied
 * with every column of activations before the next one is touched. So one kernel for
 * each format works from one sequence to five hundred rows of a prompt.
 *
 *     code[block][k / 4][row][k % 4]      a 512-bit register is 16 rows x 4 columns,
 *                                         which is what VPDPBUSD multiplies with four
 *                                         activations; a lane ends up with the whole sum
 *                                         of its row's block of 32
 *
 * Scales of a tile are put into L1 once. Codes are too in portable C; with registers they
 * are cut from the tile for every few columns, which costs less than keeping them. Codes are unsigned: code = q + zero. The sums are those of quant/dot.h, and the
 * float operations too, one by one in the same order, so a result equals ref-int8's
 * to the last bit on every rung, for every number of columns. */

#include <stdint.h>

#include "backend/cpu/tile.h"
#include "quant/dot.h"

#define GM_PANEL_BLOCKS 8 /* blocks of 32 columns in a tile */
#define GM_PANEL_COLS   (GM_PANEL_BLOCKS * GM_ACT_BLOCK)

/* How scales enter; formats with blocks of 256 have one d and dmin for the tile. */
typedef enum gm_panelkind {
    GM_PANEL_FLAT,     /* d[block]                                    q4_0 q5_0 q8_0 iq4_nl */
    GM_PANEL_FLAT_MIN, /* d[block], dmin[block]                       q4_1 q5_1             */
    GM_PANEL_SC32,     /* d, sc[block][0]                             iq4_xs                */
    GM_PANEL_SC32_MIN, /* d, dmin, sc[block][0], m[block][0]          q4_k q5_k             */
    GM_PANEL_SC16,     /* d, sc[block][0..1]                          q6_k q3_k             */
    GM_PANEL_SC16_MIN, /* d, dmin, sc[block][0..1], m[block][0..1]    q2_k                  */
} gm_panelkind;

typedef struct gm_panel {
    _Alignas(64) uint8_t code[GM_PANEL_BLOCKS][8][GM_PANEL_ROWS][4];
    float d[GM_PANEL_BLOCKS][GM_PANEL_ROWS], dmin[GM_PANEL_BLOCKS][GM_PANEL_ROWS];
    int32_t sc[GM_PANEL_BLOCKS][2][GM_PANEL_ROWS], m[GM_PANEL_BLOCKS][2][GM_PANEL_ROWS];
} gm_panel;

/* Thirty-two activations as int8 with their scale, and sums for zero and minima: a line of the
 * cache, so that one load brings all of it, and cores that write neighbours do not meet. */
typedef struct gm_actblock {
    _Alignas(64) int8_t q[GM_ACT_BLOCK];
    float scale;
    int32_t sum;
    int32_t half[2];  /* sums of its groups of 16 */
    int32_t less_8;   /* -8 sum and -128 sum, what the zeros of q4_0 and of q8_0 add: a kernel */
    int32_t less_128; /* that begins with them as they are has its vector ports for products  */
} gm_actblock;

/* The activations of one column (a row of the batch) that meet a tile. */
typedef struct gm_acttile {
    gm_actblock block[GM_PANEL_BLOCKS];
} gm_acttile;

/* Adds the products of a tile to acc, or to zeros. Formats with blocks of 256 always have n_blocks = 8. */
typedef struct gm_tilemul {
    const uint8_t *tile;
    size_t ahead;        /* its bytes, where as many further on are to be asked for; else 0 */
    uint32_t n_blocks;   /* of 32 columns */
    bool begins;         /* acc has nothing yet */
    gm_panel *panel;     /* room to take it apart */
    const gm_acttile *x; /* [n_cols] */
    uint32_t n_cols;     /* 1 at least */
    float *acc;          /* [n_cols, 16] */
} gm_tilemul;
typedef void gm_tilemul_fn(const gm_tilemul *a);

/* The quantised formats, each with the name that its kernels carry. */
#define GM_PRODUCTS(X)         \
    X(q4_0, GM_QTYPE_Q4_0)     \
    X(q4_1, GM_QTYPE_Q4_1)     \
    X(q5_0, GM_QTYPE_Q5_0)     \
    X(q5_1, GM_QTYPE_Q5_1)     \
    X(q8_0, GM_QTYPE_Q8_0)     \
    X(q2_k, GM_QTYPE_Q2_K)     \
    X(q3_k, GM_QTYPE_Q3_K)     \
    X(q4_k, GM_QTYPE_Q4_K)     \
    X(q5_k, GM_QTYPE_Q5_K)     \
    X(q6_k, GM_QTYPE_Q6_K)     \
    X(iq4_nl, GM_QTYPE_IQ4_NL) \
    X(iq4_xs, GM_QTYPE_IQ4_XS)

static inline gm_panelkind gm_panel_kind(gm_qtype type)
{
    switch (type) {
    case GM_QTYPE_Q4_1:
    case GM_QTYPE_Q5_1: return GM_PANEL_FLAT_MIN;
    case GM_QTYPE_IQ4_XS: return GM_PANEL_SC32;
    case GM_QTYPE_Q4_K:
    case GM_QTYPE_Q5_K: return GM_PANEL_SC32_MIN;
    case GM_QTYPE_Q3_K:
    case GM_QTYPE_Q6_K: return GM_PANEL_SC16;
    case GM_QTYPE_Q2_K: return GM_PANEL_SC16_MIN;
    default: return GM_PANEL_FLAT;
    }
}

/* code = q + zero; WIDE where codes use all eight bits. */
#define GM_PANEL_WIDE 128
static inline int32_t gm_panel_zero(gm_qtype type)
{
    switch (type) {
    case GM_QTYPE_Q4_0: return 8;
    case GM_QTYPE_Q5_0: return 16;
    case GM_QTYPE_Q3_K: return 4;
    case GM_QTYPE_Q6_K: return 32;
    case GM_QTYPE_Q8_0:
    case GM_QTYPE_IQ4_NL:
    case GM_QTYPE_IQ4_XS: return GM_PANEL_WIDE;
    default: return 0;
    }
}

#endif
