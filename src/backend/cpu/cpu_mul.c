/* SPDX-License-Identifier: MIT */
/* Products. A worker takes a run of neighbouring panels and streams their tiles from
 * memory: one run of bytes, which hardware prefetchers follow by themselves as long as
 * bytes are all that a worker waits for. With many columns it reads in bursts, and asks
 * for the next tile while it works on one. */

#include <string.h>

#include "backend/cpu/cpu.h"

#define MANY_COLUMNS 8
#define PARTS        2 /* a worker takes its share of what is left in so many runs */

/* Sixteen rows of quantised weights with every column of int8: acc[n_cols, 16]. Tiles are read where
 * they lie, or made here of weights that have not settled. */
static void quantised_panel(gm_exec *ex, gm_wid w, uint32_t p, uint32_t n_cols, gm_lane *lane,
                            float *acc)
{
    const gm_tensor *const t = &ex->w->tensors.at[w];
    const gm_tiled *const tiled = &ex->w->tiled[w];
    const bool settled = p < tiled->n_panels;
    const uint8_t *const panel = tiled->tiles + p * GM_PANEL_ROWS * gm_tensor_row_size(t);
    const size_t k = gm_tensor_cols(t);
    const gm_acttile *x = ex->acts;
    gm_tilesrc src;
    if (!settled) src = gm_tilesrc_of(t, p);
    for (size_t k0 = 0, off = 0; k0 < k; k0 += GM_PANEL_COLS, x += n_cols) {
        const size_t left = (k - k0) / GM_ACT_BLOCK;
        const uint32_t n_blocks = left < GM_PANEL_BLOCKS ? (uint32_t)left : GM_PANEL_BLOCKS;
        const size_t n = n_blocks * GM_ACT_BLOCK / t->type->block_len;
        const size_t size = n * t->type->block_size;
        const uint8_t *const tile = settled ? panel + off * GM_PANEL_ROWS : lane->tile;
        const bool asks = settled && n_cols >= MANY_COLUMNS;
        if (!settled) gm_tile_make(&src, off, n, lane->tile);
        ex->be->k.mul[t->type->id](&(gm_tilemul){.tile = tile,
                                                 .ahead = asks ? size * GM_PANEL_ROWS : 0,
                                                 .n_blocks = n_blocks,
                                                 .begins = k0 == 0,
                                                 .panel = lane->panel,
                                                 .x = x,
                                                 .n_cols = n_cols,
                                                 .acc = acc});
        off += size;
    }
}

/* The same for plain floats, row by row. */
static void float_panel(gm_exec *ex, const gm_tensor *t, uint32_t p, const float *x,
                        uint32_t n_cols, float *acc)
{
    const size_t cols = gm_tensor_cols(t), first = (size_t)p * GM_PANEL_ROWS;
    for (uint32_t r = 0; r < GM_PANEL_ROWS && first + r < gm_tensor_rows(t); r++) {
        ex->be->k.dots[t->type->id](&(gm_floatmul){
            .w = t->data + (first + r) * gm_tensor_row_size(t),
            .n = cols,
            .x = x,
            .x_stride = cols,
            .n_cols = n_cols,
            .out = acc + r,
            .out_stride = GM_PANEL_ROWS,
        });
    }
}

/* Adds to the sums of the first rows of int8 those of what they left. */
static void add_rests(const gm_exec *ex, uint32_t n_cols, uint32_t n_int8, float *acc)
{
    const size_t n = (size_t)n_cols * GM_PANEL_ROWS;
    for (uint32_t k = 1; k < n_int8; k++)
        ex->be->k.add(acc + k * n, n, acc);
}

/* Panel `p` of an op's weight into acc. */
static void panel(gm_exec *ex, const gm_op *op, int which, uint32_t p, uint32_t n_cols,
                  gm_lane *lane, float *acc)
{
    const gm_tensor *const t = &ex->w->tensors.at[op->weight[which]];
    const uint32_t n_int8 = op->num.act[which];
    if (n_int8) {
        quantised_panel(ex, op->weight[which], p, n_cols * n_int8, lane, acc);
        add_rests(ex, n_cols, n_int8, acc);
    } else {
        float_panel(ex, t, p, gm_cpu_row(ex, op->in[0], 0), n_cols, acc);
    }
}

/* All ops of a phase have as many. */
static uint32_t n_columns(const gm_exec *ex, const gm_op *op)
{
    return ex->plan->vals[op->out].rows == GM_ROWS_OUT ? ex->step->n_outs : ex->step->n_rows;
}

/* A panel's sums to rows of the op's output. Whole panels are copied by a size that the compiler
 * knows, in two registers instead of eight turns of a loop. */
static void put(gm_exec *ex, const gm_op *op, uint32_t p, uint32_t n_cols, const float *acc)
{
    const uint32_t first = p * GM_PANEL_ROWS, left = ex->plan->vals[op->out].cols - first;
    for (uint32_t c = 0; c < n_cols; c++, acc += GM_PANEL_ROWS) {
        float *const to = gm_cpu_row(ex, op->out, c) + first;
        if (left >= GM_PANEL_ROWS)
            memcpy(to, acc, GM_PANEL_ROWS * sizeof *acc);
        else
            memcpy(to, acc, left * sizeof *acc);
    }
}

/* Panel p of the op's output. */
static void product(gm_exec *ex, const gm_op *op, uint32_t p, gm_lane *lane)
{
    const uint32_t n_cols = n_columns(ex, op);
    float *const acc = lane->acc;
    float *const up = acc + (size_t)n_cols * GM_ACT_INT8_TWICE * GM_PANEL_ROWS;
    panel(ex, op, 0, p, n_cols, lane, acc);
    if (op->kind == GM_OP_GATE_UP_GELU) {
        panel(ex, op, 1, p, n_cols, lane, up);
        ex->be->k.gelu_mul(up, (size_t)n_cols * GM_PANEL_ROWS, acc);
    }
    put(ex, op, p, n_cols, acc);
}

static uint32_t n_panels(const gm_exec *ex, const gm_op *op)
{
    return (ex->plan->vals[op->out].cols + GM_PANEL_ROWS - 1) / GM_PANEL_ROWS;
}

/* A run of the phase's panels, which are counted through its ops. */
static void run(gm_exec *ex, const gm_phase *ph, uint32_t first, uint32_t n, gm_lane *lane)
{
    for (uint32_t i = 0, base = 0; i < ph->n_ops; base += n_panels(ex, ph->op[i++])) {
        const uint32_t end = base + n_panels(ex, ph->op[i]);
        for (uint32_t p = first > base ? first : base; p < first + n && p < end; p++)
            product(ex, ph->op[i], p - base, lane);
    }
}

void gm_cpu_products(gm_exec *ex, const gm_phase *ph, gm_tasks *tasks, uint32_t worker)
{
    const uint32_t n_cols = n_columns(ex, ph->op[0]);
    uint32_t total = 0, first = 0;
    if (n_cols == 0) return; /* a step without outputs needs no head */
    for (uint32_t i = 0; i < ph->n_ops; i++)
        total += n_panels(ex, ph->op[i]);
    const uint32_t parts = PARTS * gm_workers_n(ex->be->workers);
    for (uint32_t n; (n = gm_tasks_share(tasks, total, parts, &first));)
        run(ex, ph, first, n, &ex->lanes[worker]);
}
