/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_PANEL_H
#define GM_BACKEND_CPU_PANEL_H

/* How products of quantised weights are computed.
 *
 * Weights stay in the file's own layout. Sixteen rows of a matrix are a panel. A
 * panel is walked in chunks of 256 columns: a chunk is taken apart into L1, with
 * its rows side by side, and multiplied with every column of activations before
 * the next one is touched. So there is one `unpack` for each format and one `mul`
 * for each way that scales enter (kind), and every pair works from one sequence to
 * five hundred rows of a prompt.
 *
 *     code[block][k / 4][row][k % 4]      a 512-bit register is 16 rows x 4 columns,
 *                                         which is what VPDPBUSD multiplies with four
 *                                         activations; a lane ends up with the whole sum
 *                                         of its row's block of 32
 *
 * Codes are unsigned: code = q + zero. The sums are those of quant/dot.h, and the
 * float operations too, one by one in the same order, so a result equals ref-int8's
 * to the last bit on every rung, for every number of columns. */

#include <stdint.h>

#include "quant/dot.h"

#define GM_PANEL_ROWS   16
#define GM_PANEL_BLOCKS 8 /* blocks of 32 columns in a chunk */
#define GM_PANEL_COLS   (GM_PANEL_BLOCKS * GM_ACT_BLOCK)

/* How scales enter; formats with blocks of 256 have one d and dmin for the chunk. */
typedef enum gm_panelkind {
    GM_PANEL_FLAT,     /* d[block]                                    q4_0 q5_0 q8_0 iq4_nl */
    GM_PANEL_FLAT_MIN, /* d[block], dmin[block]                       q4_1 q5_1             */
    GM_PANEL_SC32,     /* d, sc[block][0]                             iq4_xs                */
    GM_PANEL_SC32_MIN, /* d, dmin, sc[block][0], m[block][0]          q4_k q5_k             */
    GM_PANEL_SC16,     /* d, sc[block][0..1]                          q6_k q3_k             */
    GM_PANEL_SC16_MIN, /* d, dmin, sc[block][0..1], m[block][0..1]    q2_k                  */
    GM_PANEL_KINDS,
} gm_panelkind;

typedef struct gm_panel {
    _Alignas(64) uint8_t code[GM_PANEL_BLOCKS][8][GM_PANEL_ROWS][4];
    float d[GM_PANEL_BLOCKS][GM_PANEL_ROWS], dmin[GM_PANEL_BLOCKS][GM_PANEL_ROWS];
    int32_t sc[GM_PANEL_BLOCKS][2][GM_PANEL_ROWS], m[GM_PANEL_BLOCKS][2][GM_PANEL_ROWS];
} gm_panel;

/* Activations of several columns (rows of the batch) as int8, with the sums that zero needs. */
typedef struct gm_acts {
    int8_t *q;    /* [n, k]      */
    float *scale; /* [n, k / 32] */
    int32_t *sum; /* [n, k / 16] */
    size_t k;
} gm_acts;

/* What the kernels know of a format. */
typedef struct gm_panelfmt {
    gm_panelkind kind;
    int32_t zero;
} gm_panelfmt;
const gm_panelfmt *gm_panelfmt_find(gm_qtype type); /* NULL for plain floats */

/* Takes apart n_blocks blocks of 32 columns of the 16 rows, from byte `off` of each on. Formats
 * with blocks of 256 always have n_blocks = 8. */
typedef void gm_unpack_fn(const uint8_t *const row[GM_PANEL_ROWS], size_t off, uint32_t n_blocks,
                          gm_panel *out);

/* Adds the products of a chunk, whose first column is k0, to acc[n_cols][16]. */
typedef struct gm_panelmul {
    const gm_panel *panel;
    uint32_t n_blocks;
    int32_t zero;
    const gm_acts *x;
    size_t k0;
    uint32_t col_first, n_cols;
    float *acc; /* [n_cols, 16], of columns col_first .. */
} gm_panelmul;
typedef void gm_panelmul_fn(const gm_panelmul *a);

#endif
