/* SPDX-License-Identifier: MIT */
/* Which kernel a product of so many columns gets: groups of eight lanes for few of them, tiles of 16
 * by 16 for more, and tiles of float16 for a prompt's, which alone change bits. The tables are what
 * usually suits; gm_vk_cut_try lists what else there is, with the same bits, for who can measure.
 *
 * A workgroup of groups has lanes / 8 of them; a group works on `rows` rows of weights (of each of
 * two matrices, for gate and up) and nc columns, and cg groups side by side have the same rows. Sums
 * are a lane's registers, so a tile of more columns has fewer rows, and the workgroup grows before
 * either gets small.
 *
 * What a lane has on its way is registers too. A Radeon 780M holds 8 waves if a lane has 64 of them,
 * which leaves 20 for it, and needs 5 KB on their way in each unit: 8 waves have 16. */

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Of kernels that wait for each other. Down, whose row of activations is 27 KB of shared memory in 27B,
 * has larger workgroups, so that two of them on each multiprocessor are all there are: an H200 has often no
 * more than 64 KB of it set up, and a third one would start when the first is done. Q, k and v, whose
 * input is rounded twice, have less on their way: attention waits beside them and needs registers, too. */
static const shape waiting[] = {{1, 9, 128, 1, 1, 1, 8}, {UINT32_MAX, 9, 128, 1, 2, 1, 4}};
static const shape waiting_long[] = {{1, 9, 192, 1, 1, 1, 8}, {UINT32_MAX, 9, 192, 1, 2, 1, 4}};
#define LONG_ROW 512 /* blocks: 20 KB */
static const shape waiting_normed[] = {{1, 9, 256, 1, 1, 1, 8}, {UINT32_MAX, 9, 256, 1, 2, 1, 8}};

/* 32 results of gate and up are a block of int8, which one workgroup has to have. */
static const shape gated[] = {
    {1, 9, 256, 1, 1, 1, 1}, {2, 9, 256, 1, 2, 1, 1},          {4, 9, 256, 1, 4, 1, 1},
    {8, 9, 512, 1, 4, 2, 1}, {UINT32_MAX, 7, 512, 2, 4, 4, 1},
};

static uint32_t whole(uint32_t n, uint32_t of)
{
    return (n + of - 1) / of * of;
}

/* Words that a lane has on its way. */
static uint32_t words_of(const gm_vk_product *p, const shape *s)
{
    return s->rounds * s->rows * (p->after == GM_VK_AFTER_GELU ? 2 : 1) * p->words;
}

static bool is_even(const gm_vk_product *p, uint32_t rounds)
{
    return rounds && p->n_blocks % (8 * rounds) == 0;
}

/* Rounds on their way that divide those of a row, if some do that are more than half as many: what is
 * left over is computed for nothing. */
static uint32_t even_rounds(const gm_vk_product *p, uint32_t most)
{
    for (uint32_t n = most; 2 * n > most; n--) {
        if (is_even(p, n)) return n;
    }
    return most;
}

/* The nearest such to n, which may be more. */
static uint32_t near_even_rounds(const gm_vk_product *p, uint32_t n)
{
    for (uint32_t by = 0; 2 * by < n; by++) {
        if (is_even(p, n - by)) return n - by;
        if (is_even(p, n + by)) return n + by;
    }
    return n;
}

static shape usual_shape(const gm_vk_tuning *t, const gm_vk_product *p)
{
    const bool is_long = p->n_blocks > LONG_ROW;
    const shape *s = p->after == GM_VK_AFTER_GELU ? gated
                     : p->after                   ? waiting_normed
                     : !p->flows                  ? plain
                     : is_long                    ? waiting_long
                                                  : waiting;
    while (p->columns > s->columns && p->words <= s[1].words)
        s++;
    shape found = *s;
    while (found.rounds > 1 && words_of(p, &found) > t->words_under_way)
        found.rounds /= 2;
    if (p->flows) found.rounds = even_rounds(p, found.rounds);
    return found;
}

/* Blocks of a column that are in shared memory at a time: 60 bytes a lane, with the results of gate and
 * up and the sums of norms, let as many workgroups in as registers do. Where kernels flow the whole row
 * should be there once it is waited for, 32 KB of it. */
static uint32_t blocks_shared(const gm_vk_product *p, const shape *s)
{
    const uint32_t turn = 8 * s->rounds, columns = s->nc * s->cg;
    const bool gate = p->after == GM_VK_AFTER_GELU;
    const uint32_t beside = gate ? s->lanes / 8 / s->cg * s->rows * columns * 4 + 512 : 0;
    const uint32_t blocks = p->flows ? 768 : (s->lanes * 60 - beside) / 40;
    return blocks / columns / turn * turn;
}

/* All, or a number that divides the sums of a lane. */
uint32_t gm_vk_front_turns(const gm_vk_tuning *t, uint32_t n_cols, uint32_t lanes)
{
    uint32_t groups = 64; /* of the workgroup's, those that have sums: shaders/inc/norms.glsl */
    while (groups > 4 && groups * 8 > lanes)
        groups /= 2;
    const uint32_t turns = (n_cols + groups * GM_VK_BLOCK - 1) / (groups * GM_VK_BLOCK);
    const uint32_t sums = 64 / groups;
    return turns <= t->front_turns ? turns : sums > 4 ? sums : 4;
}

static void cut_groups(const gm_vk_product *p, const shape *s, gm_vk_cut *out)
{
    const bool gate = p->after == GM_VK_AFTER_GELU;
    const uint32_t most = blocks_shared(p, s), all = whole(p->n_blocks, 8 * s->rounds);
    out->pipeline = p->n_blocks ? "matmul" : "matmul_float";
    out->rows = s->lanes / 8 / s->cg * s->rows;
    out->columns = s->nc * s->cg / p->planes;
    uint32_t *const spec = out->spec;
    spec[GM_VK_MM_LANES] = s->lanes;
    spec[GM_VK_MM_ROWS] = s->rows;
    spec[GM_VK_MM_COLS] = s->nc;
    spec[GM_VK_MM_ROUNDS] = s->rounds;
    spec[GM_VK_MM_AFTER] = p->after;
    spec[GM_VK_MM_TILE] = gate ? out->rows * out->columns : 1;
    spec[GM_VK_MM_PLANES] = p->planes;
    spec[GM_VK_MM_COL_GROUPS] = s->cg;
    const bool normed = p->after == GM_VK_AFTER_NORM;
    spec[GM_VK_MM_NORM] = normed ? (p->n_rows + 4 * s->lanes - 1) / (4 * s->lanes) : 1;
    spec[GM_VK_MM_BLOCKS] = all < most ? all : most;
    spec[GM_VK_MM_FLOW] = p->flows;
    spec[GM_VK_MM_EVEN] = p->n_blocks && is_even(p, s->rounds);
}

/* Of matmul_tile.comp: tiles of rows and of columns, and subgroups for each of the four pairs of sums.
 * Two tiles of rows make workgroups enough where a matrix has few rows; gate and up need two each for
 * a block of int8. What more of either costs in registers is not won back (docs/PERF.md, 40 to 43). */
typedef struct tiling {
    uint32_t m, n, shares;
} tiling;

static const tiling plain_few = {2, 1, 1}, plain_many = {2, 2, 1};
static const tiling gated_few = {4, 1, 1}, gated_many = {4, 2, 2};

/* Bytes of shared memory that it takes. */
static uint32_t tile_shared(const gm_vk_product *p, const tiling *t, uint32_t depth,
                            uint32_t stages)
{
    const uint32_t m = t->m * 16, n = t->n * 16, pieces = p->two_scales ? 2 : 1;
    const uint32_t halves = p->two_scales && depth == 32 ? 2 : 1;
    const uint32_t operands = stages * (m * 17 + n * (16 * halves + 1)) * 16, sums = m * 16 * 16;
    const uint32_t scales = 2 * pieces * (m + 4 + n + 4); /* and minima, if a type has some */
    return (operands > sums ? operands : sums) + stages * 8 * scales * 4;
}

/* False where it does not fit. */
static bool cut_tiling(const gm_vk_tuning *t, const gm_vk_product *p, const tiling *cut,
                       gm_vk_cut *out)
{
    const uint32_t depth = t->matrix_depth ? t->matrix_depth : p->two_scales ? 16 : 32;
    const bool narrow = t->subgroup < 32;
    if (tile_shared(p, cut, depth, 1) > t->max_shared) return false;
    /* With more columns, or gate and up, a second stage gains little and keeps others out. */
    const bool two = cut->n == 1 && !p->after && tile_shared(p, cut, depth, 2) <= t->max_shared;
    *out = (gm_vk_cut){
        .pipeline = t->matrix_depth ? "matmul_mma" : "matmul_tile",
        .spec = {4 * (narrow ? cut->m : cut->shares) * t->subgroup, t->subgroup, cut->m, cut->n,
                 p->after, 0, p->planes, depth, 1 + two, t->row_bits, t->col_bits},
        .rows = cut->m * 16 / (p->after ? 2 : 1),
        .columns = cut->n * 16 / p->planes,
    };
    return true;
}

static bool tiles_can(const gm_vk_product *p)
{
    return p->n_blocks && !p->flows; /* tiles do not wait */
}

static bool cut_tiles(const gm_vk_tuning *t, const gm_vk_product *p, gm_vk_cut *out)
{
    /* Two scales take two matrices of zeros by half. */
    if (p->columns < t->tile_from << p->two_scales || !tiles_can(p)) return false;
    /* In a small subgroup a lane has many of a tile's results: one tile is enough. */
    if (p->columns > 16 && t->subgroup >= 32 &&
        cut_tiling(t, p, p->after ? &gated_many : &plain_many, out))
        return true;
    return cut_tiling(t, p, p->after ? &gated_few : &plain_few, out);
}

static bool by_halves(const gm_vk_tuning *t, const gm_vk_product *p)
{
    return p->n_blocks && !p->fragments && p->columns / p->planes >= t->half_from;
}

void gm_vk_cut_product(const gm_vk_tuning *t, const gm_vk_product *p, gm_vk_cut *out)
{
    *out = (gm_vk_cut){0};
    if (p->fragments && gm_vk_cut_fragments(t, p, 0, out)) return;
    if (by_halves(t, p)) {
        *out = (gm_vk_cut){.pipeline = "matmul_half",
                           .spec = {4 * t->subgroup, t->subgroup, p->after, 1},
                           .rows = p->after ? 64 : 128,
                           .columns = GM_VK_HALF_ROWS,
                           .halves = true};
        return;
    }
    if (cut_tiles(t, p, out)) return;
    const shape s = usual_shape(t, p);
    cut_groups(p, &s, out);
}

/* ---- other ways ------------------------------------------------------------------------------ */

/* What else may suit a product by groups: the powers of two by which the numbers of its usual shape
 * are multiplied. The likeliest come first, for whoever has little time. */
typedef struct change {
    int8_t lanes, rows, nc, cg, rounds;
} change;

static const change changes[] = {
    {.rounds = 1},
    {.rounds = -1},
    {.lanes = 1},
    {.lanes = -1},
    {.rows = 1},
    {.rows = 1, .rounds = -1},
    {.rows = -1},
    {.rows = -1, .rounds = 1},
    {.lanes = 1, .cg = 1},
    {.lanes = -1, .cg = -1},
    {.nc = -1, .cg = 1},
    {.nc = 1, .cg = -1},
    {.lanes = -1, .rounds = 1},
    {.lanes = 1, .rounds = 1},
    {.lanes = 1, .rows = 1, .rounds = -1},
    {.lanes = -1, .rounds = -1},
    {.lanes = -1, .rows = 1},
    {.lanes = -1, .rows = 1, .rounds = 1},
    {.lanes = -1, .rows = 1, .rounds = -1},
    {.rows = 1, .rounds = 1},
    {.rounds = 2},
    {.rounds = -2},
    {.lanes = -1, .rounds = 2},
    {.lanes = -2, .rows = 1},
    {.lanes = -2, .rows = 1, .rounds = 1},
    {.lanes = -2, .rows = 2},
};
#define N_CHANGES (sizeof changes / sizeof *changes)

static const tiling tilings[] = {{2, 1, 1}, {2, 2, 1}, {4, 1, 1}, {4, 2, 2}, {4, 1, 2}, {4, 2, 1}};
#define N_TILES (sizeof tilings / sizeof *tilings)

#define N_OTHERS (uint32_t)(N_CHANGES + N_TILES + 1) /* and groups, for what goes by tiles */

_Static_assert(1 + N_OTHERS == GM_VK_TRIES, "vk.h counts them");

static uint32_t times(uint32_t n, int8_t power)
{
    return power < 0 ? n >> -power : n << power;
}

/* Whether the kernel can have that shape, and a device might like it. t_vk_shape asserts the like. */
static bool suits(const gm_vk_tuning *t, const gm_vk_product *p, const shape *s)
{
    const bool gate = p->after == GM_VK_AFTER_GELU;
    const uint32_t columns = s->nc * s->cg;
    if (s->lanes < 64 || s->lanes > 512 || s->lanes % 64 /* whole subgroups */ || !s->rows ||
        s->rows > 8 || !s->rounds || s->rounds > 16 || !s->nc || s->nc > 4 || !s->cg ||
        s->lanes / 8 % s->cg || s->nc % p->planes)
        return false;
    if (columns >= 2 * p->columns && columns / p->planes > 8) return false;
    const uint32_t rows = s->lanes / 8 / s->cg * s->rows, results = gate ? rows * columns : 1;
    if (gate && rows % GM_VK_BLOCK) return false;
    if (p->after == GM_VK_AFTER_NORM && columns < p->columns) return false;
    const uint32_t blocks = blocks_shared(p, s);
    const uint32_t shared = columns * blocks * 40 + results / p->planes * 4;
    return blocks > 0 && shared <= 32768 && s->rows * s->nc * (1 + gate) <= 16 &&
           words_of(p, s) <= 2 * t->words_under_way;
}

static bool cut_changed(const gm_vk_tuning *t, const gm_vk_product *p, const change *c,
                        gm_vk_cut *out)
{
    const shape from = usual_shape(t, p);
    shape s = {.lanes = times(from.lanes, c->lanes),
               .rows = times(from.rows, c->rows),
               .nc = times(from.nc, c->nc),
               .cg = times(from.cg, c->cg),
               .rounds = times(from.rounds, c->rounds)};
    if (p->flows) s.rounds = near_even_rounds(p, s.rounds);
    if (!suits(t, p, &s)) return false;
    if (p->flows && is_even(p, from.rounds) && !is_even(p, s.rounds)) return false;
    cut_groups(p, &s, out);
    return true;
}

static bool cut_other_tiling(const gm_vk_tuning *t, const gm_vk_product *p, uint32_t i,
                             gm_vk_cut *out)
{
    const tiling *const cut = &tilings[i];
    if (!t->matrix_depth || p->columns < 2 || !tiles_can(p)) return false;
    if (p->after && cut->m < gated_few.m) return false;
    if (cut->n > 1 && p->columns <= 16) return false;
    return cut_tiling(t, p, cut, out);
}

/* Of a product by tiles other tiles come first, then groups. */
bool gm_vk_cut_try(const gm_vk_tuning *t, const gm_vk_product *p, uint32_t i, gm_vk_cut *out)
{
    gm_vk_tuning by_groups = *t;
    by_groups.tile_from = UINT32_MAX;
    *out = (gm_vk_cut){0};
    if (p->fragments) return gm_vk_cut_fragments(t, p, i, out);
    gm_vk_cut_product(t, p, out);
    if (i == 0) return true;
    if (!p->n_blocks || by_halves(t, p)) return false;
    i = (i - 1 + (cut_tiles(t, p, out) ? (uint32_t)N_CHANGES : 0)) % N_OTHERS;
    if (i < N_CHANGES) return cut_changed(t, p, &changes[i], out);
    i -= (uint32_t)N_CHANGES;
    if (i < N_TILES) return cut_other_tiling(t, p, i, out);
    gm_vk_cut_product(&by_groups, p, out);
    return true;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *const after_names[] = {"", ", gate and up", ", then norms"};

/* Sizes of steps are powers of two, and as many outputs as may be wanted are named by the next. */
void gm_vk_product_name(const gm_vk_product *p, char name[GM_VK_NAME])
{
    uint32_t rows = 1;
    while (rows < p->columns / p->planes)
        rows *= 2;
    snprintf(name, GM_VK_NAME, "%s %" PRIu32 "x%" PRIu32 "%s, %" PRIu32 " rows%s%s",
             gm_qtype_name(p->type), p->n_rows, p->n_blocks * GM_VK_BLOCK, after_names[p->after],
             rows,
             p->fragments    ? " of float16"
             : p->planes > 1 ? " twice"
                             : "",
             p->flows ? " waiting" : "");
}

static bool take_text(const char **at, const char *text)
{
    const size_t len = strlen(text);
    if (strncmp(*at, text, len) != 0) return false;
    *at += len;
    return true;
}

static bool take_number(const char **at, uint32_t *out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)**at)) return false;
    const unsigned long n = strtoul(*at, &end, 10);
    *at = end;
    *out = (uint32_t)n;
    return n <= 1u << 30;
}

/* The name that it gets says whether it was all there. */
bool gm_vk_product_parse(const char *name, gm_vk_product *out)
{
    const char *at = strchr(name, ' ');
    const gm_qtype_info *const type =
        at ? gm_qtype_find_name((gm_str){name, (size_t)(at - name)}) : NULL;
    uint32_t n_rows = 0, n_cols = 0, after = 0, rows = 0;
    char again[GM_VK_NAME];
    if (!type || !take_text(&at, " ") || !take_number(&at, &n_rows) || !take_text(&at, "x") ||
        !take_number(&at, &n_cols))
        return false;
    for (uint32_t i = 1; i < sizeof after_names / sizeof *after_names; i++)
        after = take_text(&at, after_names[i]) ? i : after;
    if (!take_text(&at, ", ") || !take_number(&at, &rows) || !take_text(&at, " rows")) return false;
    const bool fragments = take_text(&at, " of float16");
    const uint32_t planes = !fragments && take_text(&at, " twice") ? 2 : 1;
    const bool flows = take_text(&at, " waiting");
    *out = (gm_vk_product){.columns = rows * planes,
                           .planes = planes,
                           .n_blocks = n_cols / GM_VK_BLOCK,
                           .words = gm_vk_block_words(type->id),
                           .two_scales = gm_vk_two_scales(type->id),
                           .after = after,
                           .type = type->id,
                           .n_rows = n_rows,
                           .fragments = fragments,
                           .flows = flows};
    gm_vk_product_name(out, again);
    return strcmp(again, name) == 0;
}

void gm_vk_cut_name(const gm_vk_cut *cut, char name[GM_VK_NAME])
{
    uint32_t n_spec = GM_VK_SPECS;
    while (n_spec && !cut->spec[n_spec - 1])
        n_spec--;
    int len = snprintf(name, GM_VK_NAME, "%s", cut->pipeline);
    for (uint32_t i = 0; i < n_spec && len < GM_VK_NAME; i++)
        len += snprintf(name + len, (size_t)(GM_VK_NAME - len), "%c%" PRIu32, i ? ',' : ':',
                        cut->spec[i]);
}

bool gm_vk_cut_find(const gm_vk_tuning *t, const gm_vk_product *p, const char *name, gm_vk_cut *out)
{
    char one[GM_VK_NAME];
    for (uint32_t i = 0; i < GM_VK_TRIES; i++) {
        if (!gm_vk_cut_try(t, p, i, out)) continue;
        gm_vk_cut_name(out, one);
        if (strcmp(one, name) == 0) return true;
    }
    return false;
}

/* Twice as many workgroups as the device holds, or a little less: a wave that is not full costs as
 * much as one that is. A part of less than 16 blocks is mostly beginning and end. */
uint32_t gm_vk_half_parts(const gm_vk_tuning *t, uint32_t tiles, uint32_t n_blocks)
{
    uint32_t parts = tiles < t->half_tiles ? 2 * t->half_tiles / tiles : 1;
    parts = parts > 8 ? 8 : parts;
    while (parts > 1 && n_blocks / parts < 16)
        parts--;
    return parts;
}

uint32_t gm_vk_half_rows(uint32_t rows)
{
    return whole(rows, GM_VK_HALF_ROWS);
}

uint64_t gm_vk_half_size(uint32_t rows, uint32_t cols)
{
    return 2ull * gm_vk_half_rows(rows) * whole(cols, 2 * GM_VK_BLOCK);
}

bool gm_vk_attends_by_halves(const gm_vk_tuning *t, const gm_attn *a, uint32_t rows)
{
    return rows >= t->half_from && GM_VK_HALF_HEADS % (a->n_head / a->n_kv_head) == 0 &&
           a->head_dim % 64 == 0 && a->head_dim <= 256;
}
