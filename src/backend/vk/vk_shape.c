/* SPDX-License-Identifier: MIT */
/* Which kernel a product of so many columns gets: groups of eight lanes for few of them, tiles of 16
 * by 16 for more, and tiles of float16 for a prompt's, which alone change bits.
 *
 * A workgroup of groups has lanes / 8 of them; a group works on `rows` rows of weights (of each of two matrices, for gate and up) and nc columns, and cg groups side
 * by side have the same rows. Sums are a lane's registers, so a tile of more columns has fewer rows,
 * and the workgroup grows before either gets small.
 *
 * What a lane has on its way is registers too. A Radeon 780M holds 8 waves if a lane has 64 of them,
 * which leaves 20 for it, and needs 5 KB on their way in each unit: 8 waves have 16. */

#include "backend/vk/vk.h"

typedef struct shape {
    uint32_t columns; /* at most; the last one takes any number  */
    uint32_t words;   /* of a block, at most, to get this far    */
    uint32_t lanes, rows, nc, cg, rounds;
} shape;

static const shape plain[] = {
    {1, 9, 128, 1, 1, 1, 4}, {2, 9, 256, 1, 2, 1, 4},  {4, 9, 128, 2, 4, 1, 1},
    {8, 9, 256, 2, 4, 2, 1}, {16, 9, 256, 4, 4, 4, 1}, {UINT32_MAX, 9, 512, 4, 4, 8, 1},
};

/* The last workgroup does the norms: it has lanes enough to hold a row. */
static const shape normed[] = {
    {1, 9, 512, 1, 1, 1, 8},
    {2, 9, 512, 1, 2, 1, 4},
    {UINT32_MAX, 9, 512, 1, 4, 1, 1},
};

/* 32 results of gate and up are a block of int8, which one workgroup has to have. */
static const shape gated[] = {
    {1, 9, 256, 1, 1, 1, 1}, {2, 9, 256, 1, 2, 1, 1},          {4, 9, 256, 1, 4, 1, 1},
    {8, 9, 512, 1, 4, 2, 1}, {UINT32_MAX, 7, 512, 2, 4, 4, 1},
};

static uint32_t whole(uint32_t n, uint32_t of)
{
    return (n + of - 1) / of * of;
}

static void cut_groups(const gm_vk_tuning *t, const gm_vk_product *p, gm_vk_cut *out)
{
    const bool gate = p->after == GM_VK_AFTER_GELU;
    const shape *s = gate ? gated : p->after ? normed : plain;
    while (p->columns > s->columns && p->words <= s[1].words)
        s++;
    uint32_t rounds = s->rounds;
    while (rounds > 1 && rounds * s->rows * (1 + gate) * p->words > t->words_under_way)
        rounds /= 2;
    /* Shared memory: 60 bytes a lane let as many workgroups in as registers do. */
    const uint32_t turn = 8 * rounds, most = s->lanes * 3 / 2 / (s->nc * s->cg) / turn * turn;
    const uint32_t all = whole(p->n_blocks, turn);
    out->pipeline = p->n_blocks ? "matmul" : "matmul_float";
    out->rows = s->lanes / 8 / s->cg * s->rows;
    out->columns = s->nc * s->cg / p->planes;
    uint32_t *const spec = out->spec;
    spec[GM_VK_MM_LANES] = s->lanes;
    spec[GM_VK_MM_ROWS] = s->rows;
    spec[GM_VK_MM_COLS] = s->nc;
    spec[GM_VK_MM_ROUNDS] = rounds;
    spec[GM_VK_MM_AFTER] = p->after;
    spec[GM_VK_MM_TILE] = gate ? out->rows * out->columns : 1;
    spec[GM_VK_MM_PLANES] = p->planes;
    spec[GM_VK_MM_COL_GROUPS] = s->cg;
    spec[GM_VK_MM_NORM] = p->n_normed ? (p->n_normed + 4 * s->lanes - 1) / (4 * s->lanes) : 1;
    spec[GM_VK_MM_BLOCKS] = all < most ? all : most;
}

/* Bytes of shared memory that matmul_tile.comp takes. */
static uint32_t tile_shared(const gm_vk_product *p, uint32_t m, uint32_t n, uint32_t halves)
{
    const uint32_t operands = ((m * halves + n) * 48 + 16 * (halves + 1)) * 8;
    const uint32_t sums = m * 16 * 8 * 4;
    const uint32_t pieces = p->two_scales ? 2 : 1;
    return (operands > sums ? operands : sums) + 2 * pieces * 8 * (m + n + 8) * 4 +
           8 * (n + 4) * 4 + 1024;
}

static bool cut_tiles(const gm_vk_tuning *t, const gm_vk_product *p, gm_vk_cut *out)
{
    if (!p->n_blocks || p->columns < t->tile_from || p->after == GM_VK_AFTER_NORM) return false;
    const uint32_t depth = t->matrix_depth ? t->matrix_depth : p->two_scales ? 16 : 32;
    const uint32_t halves = p->two_scales && depth == 32 ? 2 : 1, nm = p->after ? 2 : 1;
    const uint32_t tn = p->columns <= 16 ? 1 : t->tile_n;
    uint32_t tm = p->after && t->tile_m < 4 ? 4 : t->tile_m;
    while (tm > 2 * nm && tile_shared(p, tm * 16, tn * 16, halves) > t->max_shared)
        tm /= 2;
    if (tile_shared(p, tm * 16, tn * 16, halves) > t->max_shared) return false;
    *out = (gm_vk_cut){
        .pipeline = t->matrix_depth ? "matmul_mma" : "matmul_tile",
        .spec = {8 * t->subgroup, t->subgroup, tm, tn, p->after, p->planes, depth, halves,
                 t->row_bits, t->col_bits},
        .rows = tm * 16 / nm,
        .columns = tn * 16 / p->planes,
    };
    return true;
}

void gm_vk_cut_product(const gm_vk_tuning *t, const gm_vk_product *p, gm_vk_cut *out)
{
    *out = (gm_vk_cut){0};
    if (p->n_blocks && p->columns / p->planes >= t->half_from) {
        *out = (gm_vk_cut){.pipeline = "matmul_half",
                           .spec = {8 * t->subgroup, t->subgroup, p->after, p->planes},
                           .rows = p->after ? 64 : 128,
                           .columns = 128};
        return;
    }
    if (!cut_tiles(t, p, out)) cut_groups(t, p, out);
}
