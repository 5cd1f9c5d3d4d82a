/* SPDX-License-Identifier: MIT */
/* Which kernel a product of so many columns gets. A workgroup has lanes / 8 groups; a group works on
 * `rows` rows of weights (of each of two matrices, for gate and up) and nc columns, and cg groups side
 * by side have the same rows. Sums are a lane's registers, so a tile of more columns has fewer rows,
 * and the workgroup grows before either gets small.
 *
 * What a lane has on its way is registers too. A Radeon 780M holds 8 waves if a lane has 64 of them,
 * which leaves 20 for it, and needs 5 KB on their way in each unit: 8 waves have 16. None of this
 * changes a bit. */

#include "backend/vk/vk.h"

typedef struct shape {
    uint32_t columns; /* at most; the last one takes any number  */
    uint32_t words;   /* of a block, at most, to get this far    */
    uint32_t lanes, rows, nc, cg, rounds;
} shape;

static const shape plain[] = {
    {1, 9, 128, 1, 1, 1, 4}, {2, 9, 128, 2, 2, 1, 1},  {4, 9, 128, 2, 4, 1, 1},
    {8, 9, 256, 2, 4, 2, 1}, {16, 9, 256, 4, 4, 4, 1}, {UINT32_MAX, 9, 512, 4, 4, 8, 1},
};

/* 32 results of gate and up are a block of int8, which one workgroup has to have. */
static const shape gated[] = {
    {1, 9, 256, 1, 1, 1, 2}, {2, 9, 256, 1, 2, 1, 1},          {4, 9, 256, 1, 4, 1, 1},
    {8, 9, 512, 1, 4, 2, 1}, {UINT32_MAX, 7, 512, 2, 4, 4, 1},
};

#define WORDS_UNDER_WAY 20u

static uint32_t whole(uint32_t n, uint32_t of)
{
    return (n + of - 1) / of * of;
}

void gm_vk_shape_product(const gm_vk_product *p, uint32_t spec[GM_VK_SPECS])
{
    const bool gate = p->after == GM_VK_AFTER_GELU;
    const shape *s = gate ? gated : plain;
    while (p->columns > s->columns && p->words <= s[1].words)
        s++;
    uint32_t rounds = s->rounds;
    while (rounds > 1 && rounds * s->rows * (1 + gate) * p->words > WORDS_UNDER_WAY)
        rounds /= 2;
    /* Shared memory: 60 bytes a lane let as many workgroups in as registers do. */
    const uint32_t turn = 8 * rounds, most = s->lanes * 3 / 2 / (s->nc * s->cg) / turn * turn;
    const uint32_t all = whole(p->n_blocks, turn), results = s->lanes / 8 / s->cg * s->rows;
    spec[GM_VK_MM_LANES] = s->lanes;
    spec[GM_VK_MM_ROWS] = s->rows;
    spec[GM_VK_MM_COLS] = s->nc;
    spec[GM_VK_MM_ROUNDS] = rounds;
    spec[GM_VK_MM_AFTER] = p->after;
    spec[GM_VK_MM_TILE] = gate ? results * s->nc * s->cg / p->planes : 1;
    spec[GM_VK_MM_PLANES] = p->planes;
    spec[GM_VK_MM_COL_GROUPS] = s->cg;
    spec[GM_VK_MM_BLOCKS] = all < most ? all : most;
}

uint32_t gm_vk_shape_rows(const uint32_t spec[GM_VK_SPECS])
{
    return spec[GM_VK_MM_LANES] / 8 / spec[GM_VK_MM_COL_GROUPS] * spec[GM_VK_MM_ROWS];
}

uint32_t gm_vk_shape_columns(const uint32_t spec[GM_VK_SPECS])
{
    return spec[GM_VK_MM_COLS] * spec[GM_VK_MM_COL_GROUPS] / spec[GM_VK_MM_PLANES];
}
