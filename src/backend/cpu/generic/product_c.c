/* SPDX-License-Identifier: MIT */
/* Products in portable C: any format through its quant/ function, multiplied by the
 * law as written. */

#include <string.h>

#include "backend/cpu/kernels.h"

/* Row r's part of a block of the format, as blocks first .. of the panel. */
static void place_row(const gm_qints *b, uint32_t block_len, int32_t zero, uint32_t r,
                      uint32_t first, gm_panel *out)
{
    for (uint32_t i = 0; i < block_len; i++) {
        const uint32_t k = i % GM_ACT_BLOCK;
        out->code[first + i / GM_ACT_BLOCK][k / 4][r][k % 4] = (uint8_t)(b->q[i] + zero);
    }
    for (uint32_t i = 0; i < block_len / GM_ACT_BLOCK; i++) {
        out->d[first + i][r] = b->d;
        out->dmin[first + i][r] = b->dmin;
        for (uint32_t half = 0; half < 2; half++) {
            out->sc[first + i][half][r] = b->sc[2 * i + half];
            out->m[first + i][half][r] = b->m[2 * i + half];
        }
    }
}

static void unpack(gm_qtype type, const uint8_t *tile, uint32_t n_blocks, gm_panel *out)
{
    const gm_qtype_info *const t = gm_qtype_find((uint32_t)type);
    const int32_t zero = gm_panel_zero(type);
    const uint32_t step = t->block_len / GM_ACT_BLOCK, n = n_blocks / step;
    uint8_t row[GM_TILE_ROW_MAX];
    gm_qints ints;
    for (uint32_t r = 0; r < GM_PANEL_ROWS; r++) {
        gm_tile_row(t, tile, n, r, row);
        for (uint32_t b = 0; b < n; b++) {
            t->unpack(row + (size_t)b * t->block_size, &ints);
            place_row(&ints, t->block_len, zero, r, b * step, out);
        }
    }
}

/* S and M of one row's block. */
static gm_blocksum block_sum(const gm_tilemul *a, int32_t zero, uint32_t b, uint32_t r, size_t col)
{
    const gm_actblock *const x = &a->x[col].block[b];
    gm_blocksum s = {0, 0};
    for (uint32_t half = 0; half < 2; half++) {
        const int32_t sum = x->half[half];
        int32_t p = -zero * sum;
        for (uint32_t i = 0; i < GM_QGROUP; i++)
            p += a->panel->code[b][4 * half + i / 4][r][i % 4] * x->q[half * GM_QGROUP + i];
        s.s += a->panel->sc[b][half][r] * p;
        s.m += a->panel->m[b][half][r] * sum;
    }
    return s;
}

static void mul(const gm_tilemul *a, gm_qtype type)
{
    const int32_t zero = gm_panel_zero(type);
    unpack(type, a->tile, a->n_blocks, a->panel);
    if (a->begins) memset(a->acc, 0, a->n_cols * GM_PANEL_ROWS * sizeof *a->acc);
    for (uint32_t c = 0; c < a->n_cols; c++) {
        const gm_actblock *const x = a->x[c].block;
        for (uint32_t b = 0; b < a->n_blocks; b++) {
            for (uint32_t r = 0; r < GM_PANEL_ROWS; r++) {
                const gm_blocksum s = block_sum(a, zero, b, r, c);
                a->acc[c * GM_PANEL_ROWS + r] += x[b].scale * (a->panel->d[b][r] * (float)s.s -
                                                               a->panel->dmin[b][r] * (float)s.m);
            }
        }
    }
}

/* A dot product in plain C, over and over. */
static double spin(uint64_t n)
{
    int8_t a[256], b[256];
    for (int i = 0; i < 256; i++)
        a[i] = b[i] = (int8_t)i;
    volatile int32_t keep = 0;
    for (uint64_t r = 0; r < n; r++) {
        int32_t sum = 0;
        for (int i = 0; i < 256; i++)
            sum += a[i] * b[i];
        keep = keep ^ sum;
        a[r % 256]++;
    }
    return (double)n * 256 * 2;
}

#define PRODUCT(name, type)                   \
    static void name##_c(const gm_tilemul *a) \
    {                                         \
        mul(a, type);                         \
    }
GM_PRODUCTS(PRODUCT)

void gm_kernels_product_c(gm_kernels *k)
{
#define FILL(name, type) k->mul[type] = name##_c;
    GM_PRODUCTS(FILL)
    k->spin = spin;
}
