/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_TILE_H
#define GM_BACKEND_CPU_TILE_H

/* How quantised weights lie in memory: the file's own bytes in another order.
 *
 * Sixteen rows of a matrix are a panel, 256 columns of a panel are a tile (the last
 * tile of a panel may have fewer), and tiles follow each other in the order in which
 * products read them. So a worker streams one run of memory, which hardware
 * prefetchers follow, where the file's layout has sixteen. Inside a tile rows lie side
 * by side, four bytes at a time, because that is how registers hold them:
 *
 *     halves[block][16]         u16: a block's lone f16, in formats whose size is not a
 *                               multiple of four (q4_0 q5_0 q8_0 q3_k q6_k iq4_nl)
 *     words[block][word][16]    u32: the rest of a block, in the order of the file
 *
 * A tile has exactly as many bytes as the blocks that it is made of. Rows that a
 * matrix lacks in its last panel are copies of its last row. */

#include <stddef.h>
#include <stdint.h>

#include "quant/tensor.h"

#define GM_PANEL_ROWS   16
#define GM_TILE_HALF    (2 * GM_PANEL_ROWS) /* bytes of one f16 of all rows */
#define GM_TILE_WORD    (4 * GM_PANEL_ROWS) /* bytes of one word of all rows */
#define GM_TILE_ROW_MAX 272 /* bytes of one row of a tile, at most: eight blocks of q8_0 */

/* Bytes of all panels of a quantised tensor; it is checked to fit. */
bool gm_tiles_size(const gm_tensor *t, uint64_t *size);

/* The sixteen rows of panel p of a tensor in the file's layout. */
typedef struct gm_tilesrc {
    const gm_qtype_info *type;
    const uint8_t *row[GM_PANEL_ROWS];
} gm_tilesrc;
gm_tilesrc gm_tilesrc_of(const gm_tensor *t, uint64_t p);

/* Copies n blocks of each row, from byte `off` of the row on, to a tile. */
void gm_tile_make(const gm_tilesrc *src, size_t off, size_t n, uint8_t *out);

/* Copies panel p of a tensor in the file's layout to tiles at `out`. */
void gm_tiles_make(const gm_tensor *t, uint64_t p, uint8_t *out);

/* Copies row r of the n blocks of a tile to `out`, in the file's layout. */
void gm_tile_row(const gm_qtype_info *type, const uint8_t *tile, size_t n, uint32_t r,
                 uint8_t *out);

/* The values of a row of a tensor, from its tiles. */
void gm_tiles_expand(const gm_tensor *t, const uint8_t *tiles, uint64_t row, float *out);

#endif
