/* SPDX-License-Identifier: MIT */
#include "backend/cpu/tile.h"

#include <string.h>

#include "base/mem.h"

#define TILE_COLS 256

/* Where a block's bytes go: its lone f16, then its words. */
typedef struct blockmap {
    size_t n_halves; /* 0 or 1 */
    size_t half_at, words_at, n_words;
} blockmap;

static blockmap blockmap_of(const gm_qtype_info *type)
{
    const bool lone = type->block_size % 4 != 0, first = type->block_len < TILE_COLS;
    return (blockmap){
        .n_halves = lone,
        .half_at = first ? 0 : type->block_size - 2,
        .words_at = lone && first ? 2 : 0,
        .n_words = type->block_size / 4,
    };
}

/* Blocks of a row in its tile that begins with block `first`. */
static size_t tile_blocks(const gm_tensor *t, size_t first)
{
    const size_t most = TILE_COLS / t->type->block_len;
    const size_t left = (size_t)(gm_tensor_cols(t) / t->type->block_len) - first;
    return left < most ? left : most;
}

bool gm_tiles_size(const gm_tensor *t, uint64_t *size)
{
    const uint64_t panels = (gm_tensor_rows(t) + GM_PANEL_ROWS - 1) / GM_PANEL_ROWS;
    return gm_size_mul(panels * GM_PANEL_ROWS, gm_tensor_row_size(t), size);
}

gm_tilesrc gm_tilesrc_of(const gm_tensor *t, uint64_t p)
{
    const uint64_t last = gm_tensor_rows(t) - 1;
    gm_tilesrc src = {.type = t->type};
    for (uint32_t r = 0; r < GM_PANEL_ROWS; r++) {
        const uint64_t i = p * GM_PANEL_ROWS + r;
        src.row[r] = t->data + (i < last ? i : last) * gm_tensor_row_size(t);
    }
    return src;
}

void gm_tile_make(const gm_tilesrc *src, size_t off, size_t n, uint8_t *out)
{
    const size_t size = src->type->block_size;
    const blockmap map = blockmap_of(src->type);
    for (size_t b = 0; b < n * map.n_halves; b++) {
        for (uint32_t r = 0; r < GM_PANEL_ROWS; r++, out += 2)
            memcpy(out, src->row[r] + off + b * size + map.half_at, 2);
    }
    for (size_t b = 0; b < n; b++) {
        const size_t at = off + b * size + map.words_at;
        for (size_t w = 0; w < map.n_words; w++) {
            for (uint32_t r = 0; r < GM_PANEL_ROWS; r++, out += 4)
                memcpy(out, src->row[r] + at + 4 * w, 4);
        }
    }
}

void gm_tiles_make(const gm_tensor *t, uint64_t p, uint8_t *out)
{
    const uint64_t row_size = gm_tensor_row_size(t);
    const gm_tilesrc src = gm_tilesrc_of(t, p);
    for (size_t off = 0; off < row_size;) {
        const size_t n = tile_blocks(t, off / t->type->block_size);
        gm_tile_make(&src, off, n, out + off * GM_PANEL_ROWS);
        off += n * t->type->block_size;
    }
}

void gm_tile_row(const gm_qtype_info *type, const uint8_t *tile, size_t n, uint32_t r, uint8_t *out)
{
    const blockmap map = blockmap_of(type);
    const uint8_t *const words = tile + n * map.n_halves * GM_TILE_HALF;
    for (size_t b = 0; b < n; b++, out += type->block_size) {
        if (map.n_halves) memcpy(out + map.half_at, tile + b * GM_TILE_HALF + 2 * (size_t)r, 2);
        for (size_t w = 0; w < map.n_words; w++)
            memcpy(out + map.words_at + 4 * w,
                   words + (b * map.n_words + w) * GM_TILE_WORD + 4 * (size_t)r, 4);
    }
}

void gm_tiles_expand(const gm_tensor *t, const uint8_t *tiles, uint64_t row, float *out)
{
    const gm_qtype_info *const type = t->type;
    const uint64_t row_size = gm_tensor_row_size(t);
    const uint8_t *tile = tiles + row / GM_PANEL_ROWS * GM_PANEL_ROWS * row_size;
    uint8_t bytes[GM_TILE_ROW_MAX];
    for (size_t b = 0, n; b < gm_tensor_cols(t) / type->block_len; b += n) {
        n = tile_blocks(t, b);
        gm_tile_row(type, tile, n, row % GM_PANEL_ROWS, bytes);
        gm_qtype_expand(type, bytes, n * type->block_len, out + b * type->block_len);
        tile += n * type->block_size * GM_PANEL_ROWS;
    }
}
