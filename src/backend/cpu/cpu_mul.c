/* SPDX-License-Identifier: MIT */
/* Products. A worker takes a run of neighbouring panels and streams them from
 * memory: while it works on one, it asks for the next, because sixteen rows read
 * side by side are more streams than hardware prefetchers follow (docs/PERF.md). */

#include <string.h>

#include "backend/cpu/cpu.h"

#define RUNS_A_WORKER 4 /* runs that a phase is cut into, a worker: evens out unequal cores */

/* Asks for part `i` of `n` of the panel behind this one. */
static void fetch_ahead(const uint8_t *next, size_t size, size_t i, size_t n)
{
    const size_t per = (size + n - 1) / n, end = i * per + per < size ? i * per + per : size;
    for (size_t off = i * per; off < end; off += 64)
        __builtin_prefetch(next + off, 0, 2);
}

/* Sixteen rows of quantised weights with every column of acts: acc[n_cols, 16]. */
static void quantised_panel(gm_exec *ex, const gm_tensor *t, uint32_t first, bool more,
                            uint32_t n_cols, gm_lane *lane, float *acc)
{
    const gm_kernels *const k = &ex->be->k;
    gm_acts x = ex->acts;
    x.k = gm_tensor_cols(t);
    const gm_panelfmt *const fmt = gm_panelfmt_find(t->type->id);
    const size_t row_size = gm_tensor_row_size(t), cols = x.k;
    const uint64_t last = gm_tensor_rows(t) - 1;
    const uint8_t *row[GM_PANEL_ROWS];
    for (uint32_t r = 0; r < GM_PANEL_ROWS; r++)
        row[r] = t->data + (first + r < last ? first + r : last) * row_size;
    memset(acc, 0, n_cols * GM_PANEL_ROWS * sizeof *acc);
    const size_t n_chunks = (cols + GM_PANEL_COLS - 1) / GM_PANEL_COLS;
    for (size_t i = 0; i < n_chunks; i++) {
        const size_t k0 = i * GM_PANEL_COLS;
        const size_t left = (cols - k0) / GM_ACT_BLOCK;
        const uint32_t n_blocks = left < GM_PANEL_BLOCKS ? (uint32_t)left : GM_PANEL_BLOCKS;
        if (more)
            fetch_ahead(row[0] + GM_PANEL_ROWS * row_size, GM_PANEL_ROWS * row_size, i, n_chunks);
        k->unpack[t->type->id](row, k0 / t->type->block_len * t->type->block_size, n_blocks,
                               lane->panel);
        k->mul[fmt->kind](&(gm_panelmul){.panel = lane->panel,
                                         .n_blocks = n_blocks,
                                         .zero = fmt->zero,
                                         .x = &x,
                                         .k0 = k0,
                                         .n_cols = n_cols,
                                         .acc = acc});
    }
}

/* The same for plain floats, row by row. */
static void float_panel(gm_exec *ex, const gm_tensor *t, uint32_t first, const float *x,
                        uint32_t n_cols, float *acc)
{
    const size_t cols = gm_tensor_cols(t);
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

/* Panel `p` of an op's weight into acc. */
static void panel(gm_exec *ex, const gm_op *op, int which, uint32_t p, bool more, gm_lane *lane,
                  float *acc)
{
    const gm_tensor *const t = &ex->w->tensors.at[op->weight[which]];
    const bool out = ex->plan->vals[op->in[0]].rows == GM_ROWS_OUT;
    const uint32_t n_cols = out ? ex->step->n_outs : ex->step->n_rows;
    if (t->type->unpack)
        quantised_panel(ex, t, p * GM_PANEL_ROWS, more, n_cols, lane, acc);
    else
        float_panel(ex, t, p * GM_PANEL_ROWS, gm_cpu_row(ex, op->in[0], 0), n_cols, acc);
}

/* acc to the op's output, where the panel has rows. */
static void put_panel(gm_exec *ex, const gm_op *op, uint32_t p, const float *acc)
{
    const gm_valinfo *const v = &ex->plan->vals[op->out];
    const uint32_t n_cols = v->rows == GM_ROWS_OUT ? ex->step->n_outs : ex->step->n_rows;
    const uint32_t first = p * GM_PANEL_ROWS;
    const uint32_t n = v->cols - first < GM_PANEL_ROWS ? v->cols - first : GM_PANEL_ROWS;
    for (uint32_t c = 0; c < n_cols; c++)
        memcpy(gm_cpu_row(ex, op->out, c) + first, acc + c * GM_PANEL_ROWS, n * sizeof *acc);
}

static void gate_up_panel(gm_exec *ex, const gm_op *op, uint32_t p, bool more, gm_lane *lane)
{
    const uint32_t n_cols =
        ex->plan->vals[op->out].rows == GM_ROWS_OUT ? ex->step->n_outs : ex->step->n_rows;
    float *const gate = lane->acc, *const up = lane->acc + (size_t)n_cols * GM_PANEL_ROWS;
    panel(ex, op, 0, p, more, lane, gate);
    panel(ex, op, 1, p, more, lane, up);
    ex->be->k.gelu_mul(up, (size_t)n_cols * GM_PANEL_ROWS, gate);
    put_panel(ex, op, p, gate);
}

static uint32_t n_panels(const gm_exec *ex, const gm_op *op)
{
    return (ex->plan->vals[op->out].cols + GM_PANEL_ROWS - 1) / GM_PANEL_ROWS;
}

/* Task number t of the phase: a panel of one of its ops. */
static void product(gm_exec *ex, const gm_phase *ph, uint32_t t, bool more, gm_lane *lane)
{
    uint32_t i = 0;
    for (; t >= n_panels(ex, ph->op[i]); i++)
        t -= n_panels(ex, ph->op[i]);
    const gm_op *const op = ph->op[i];
    more = more && t + 1 < n_panels(ex, op);
    if (op->kind == GM_OP_GATE_UP_GELU) {
        gate_up_panel(ex, op, t, more, lane);
    } else {
        panel(ex, op, 0, t, more, lane, lane->acc);
        put_panel(ex, op, t, lane->acc);
    }
}

void gm_cpu_products(gm_exec *ex, const gm_phase *ph, gm_tasks *tasks, uint32_t worker)
{
    uint32_t total = 0, first = 0;
    for (uint32_t i = 0; i < ph->n_ops; i++)
        total += n_panels(ex, ph->op[i]);
    const uint32_t cut = gm_workers_n(ex->be->workers) * RUNS_A_WORKER;
    const uint32_t run = (total + cut - 1) / cut;
    for (uint32_t n; (n = gm_tasks_take(tasks, total, run, &first));) {
        for (uint32_t t = 0; t < n; t++)
            product(ex, ph, first + t, t + 1 < n, &ex->lanes[worker]);
    }
}
