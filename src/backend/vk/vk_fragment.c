/* SPDX-License-Identifier: MIT */
/* Products by fragments (matmul_fragment.comp): how many tiles of rows and columns a subgroup has, how
 * many subgroups a workgroup, and whether these have rows or runs of a sum of their own. In how many
 * runs a product of few columns is summed follows from its matrix: one with many rows has work for
 * all subgroups of a device, one with few is cut. So all its shapes have the same bits; a prompt's,
 * which are cut as it suits, have others. */

#include "backend/vk/vk.h"

#define RUNS      4
#define MANY_ROWS 16384u

/* Tiles of rows and at most so many of columns, chunks of weights and units of columns on their way,
 * subgroups with rows and with runs of their own, 1 if they read columns into shared memory. */
typedef struct shape {
    uint32_t columns; /* for which it is the usual one, at most; the last takes any number */
    uint8_t tm, tn, chunks, units, wm, wk, stage;
    bool one_each; /* ... if that makes about one workgroup for each multiprocessor */
} shape;

typedef struct shapes {
    const shape *at;
    uint32_t n;
} shapes;

#define ANY UINT32_MAX

static const shape whole[] = {
    {8, 1, 1, 2, 8, 4, 1, 0, 0},  {ANY, 2, 8, 1, 2, 4, 1, 0, 0}, {0, 1, 8, 3, 4, 4, 1, 0, 0},
    {0, 2, 4, 1, 1, 4, 1, 0, 0},  {0, 2, 4, 1, 4, 4, 1, 0, 0},   {0, 1, 8, 2, 1, 2, 1, 0, 0},
    {0, 1, 8, 1, 0, 12, 1, 1, 0}, {0, 1, 8, 2, 0, 8, 1, 1, 0},
};
static const shape cut[] = {
    {8, 1, 1, 4, 8, 1, RUNS, 0, 0},   {16, 1, 2, 2, 4, 1, RUNS, 0, 0},
    {32, 1, 4, 2, 1, 3, RUNS, 0, 1},  {32, 1, 4, 2, 1, 1, RUNS, 0, 0},
    {ANY, 2, 4, 1, 1, 3, RUNS, 0, 1}, {ANY, 2, 8, 1, 1, 1, RUNS, 0, 0},
    {0, 1, 1, 2, 8, 1, RUNS, 0, 0},   {0, 2, 4, 2, 2, 1, RUNS, 0, 0},
    {0, 2, 4, 1, 2, 1, RUNS, 0, 0},   {0, 1, 4, 2, 2, 1, RUNS, 0, 0},
    {0, 1, 4, 3, 4, 1, RUNS, 0, 0},
};
/* 32 results of gate and up are a block, which one workgroup has to have. */
static const shape whole_gate[] = {
    {8, 1, 1, 3, 2, 12, 1, 0, 1}, {8, 1, 1, 3, 2, 4, 1, 0, 0},    {16, 1, 2, 2, 1, 12, 1, 0, 1},
    {32, 1, 4, 2, 1, 4, 1, 0, 0}, {ANY, 1, 8, 1, 0, 12, 1, 1, 1}, {ANY, 1, 4, 2, 1, 4, 1, 0, 0},
    {0, 1, 8, 2, 2, 2, 1, 0, 0},  {0, 1, 4, 1, 2, 4, 1, 0, 0},    {0, 2, 8, 1, 1, 2, 1, 0, 0},
    {0, 1, 8, 2, 4, 4, 1, 0, 0},  {0, 1, 4, 2, 1, 12, 1, 0, 0},   {0, 1, 4, 2, 0, 4, 1, 1, 0},
    {0, 1, 8, 2, 0, 12, 1, 1, 0},
};
static const shape cut_gate[] = {{16, 1, 2, 2, 1, 2, RUNS, 0, 0},
                                 {ANY, 1, 4, 1, 1, 2, RUNS, 0, 0},
                                 {0, 1, 8, 1, 1, 2, RUNS, 0, 0}};
static const shape short_prompt[] = {{ANY, 2, 8, 2, 0, 1, 8, 0, 0}};
static const shape prompt[] = {{ANY, 2, 8, 2, 0, 2, 2, 0, 0}};
static const shape gated_prompt[] = {{ANY, 1, 8, 2, 0, 4, 1, 0, 0}};

#define SHAPES(table)                          \
    (shapes)                                   \
    {                                          \
        table, sizeof(table) / sizeof *(table) \
    }

uint64_t gm_vk_columns_size(uint32_t rows, uint32_t cols)
{
    return (rows + GM_VK_COLUMNS - 1ull) / GM_VK_COLUMNS * GM_VK_COLUMNS * cols * 2;
}

static shapes shapes_of(const gm_vk_tuning *t, const gm_vk_product *p)
{
    const bool gate = p->after == GM_VK_AFTER_GELU;
    const uint32_t rows = p->n_rows << gate;
    if (p->columns >= t->half_from) {
        const uint32_t tiles = p->n_rows / 32 * (p->columns / 64);
        if (gate) return SHAPES(gated_prompt);
        return tiles < t->half_tiles ? SHAPES(short_prompt) : SHAPES(prompt);
    }
    if (rows >= MANY_ROWS) return gate ? SHAPES(whole_gate) : SHAPES(whole);
    return gate ? SHAPES(cut_gate) : SHAPES(cut);
}

/* Tiles of columns: no more than there are. */
static uint32_t tiles_of(uint32_t columns, uint32_t most)
{
    uint32_t n = 1;
    while (n < most && n * GM_VK_COLUMNS < columns)
        n *= 2;
    return n;
}

/* Whether the device has room for the columns that a shape stages, two chunks of them, beside results. */
static bool has_room(const gm_vk_tuning *t, const gm_vk_product *p, const shape *s)
{
    const uint32_t rows = 16u * s->tm * s->wm << (p->after == GM_VK_AFTER_GELU);
    const uint32_t results = GM_VK_COLUMNS * (rows + 4) * 4;
    const uint32_t chunk = tiles_of(p->columns, s->tn) * GM_VK_COLUMNS * GM_VK_CHUNK * 2;
    return !s->stage || results + 2 * chunk <= t->max_shared;
}

/* Whether a shape makes nearly as many workgroups as a large device has multiprocessors, and no more: a
 * second one somewhere would take as long again. */
static bool one_each(const gm_vk_tuning *t, const gm_vk_product *p, const shape *s)
{
    const uint32_t rows = 16u * s->tm * s->wm,
                   columns = tiles_of(p->columns, s->tn) * GM_VK_COLUMNS;
    const uint32_t n = (p->n_rows + rows - 1) / rows * ((p->columns + columns - 1) / columns);
    return n <= t->half_tiles / 2 && 4 * n >= 3 * (t->half_tiles / 2);
}

static uint32_t usual(const gm_vk_tuning *t, const gm_vk_product *p, const shape *at)
{
    uint32_t i = 0;
    while (at[i].columns < p->columns ||
           (at[i].one_each && !(one_each(t, p, &at[i]) && has_room(t, p, &at[i]))))
        i++;
    return i;
}

bool gm_vk_cut_fragments(const gm_vk_tuning *t, const gm_vk_product *p, uint32_t i, gm_vk_cut *out)
{
    const shapes all = shapes_of(t, p);
    const uint32_t at = i ? i - 1 : usual(t, p, all.at);
    if (at >= all.n) return false;
    const shape s = all.at[at];
    if (s.stage && p->columns <= GM_VK_COLUMNS) return false; /* there is little to share */
    if (!has_room(t, p, &s)) return false;
    const uint32_t lanes = 32u * s.wm * s.wk, tn = tiles_of(p->columns, s.tn);
    /* Sums of matrices by hand are registers that four chunks of q8_0 do not leave. */
    const uint32_t chunks = t->fragment_mma || s.chunks < 4 ? s.chunks : 3;
    *out = (gm_vk_cut){
        .pipeline = t->fragment_mma ? "matmul_fragment_mma" : "matmul_fragment",
        .spec = {lanes, t->subgroup, s.tm, tn, p->after, 0, chunks, s.units, s.wm, s.wk, s.stage},
        .rows = 16u * s.tm * s.wm,
        .columns = tn * GM_VK_COLUMNS,
    };
    return true;
}
