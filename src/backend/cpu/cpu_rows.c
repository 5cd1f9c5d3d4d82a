/* SPDX-License-Identifier: MIT */
/* Ops that treat every row by itself. A worker takes a row through all ops of the
 * phase and then, where the next phase multiplies, makes it int8. */

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

/* Cosines and sines of the row's position, for each rotation. */
static void angles(gm_exec *ex, uint32_t row)
{
    for (uint32_t i = 0; i < ex->n_ropes; i++) {
        const gm_cpu_rope *const r = &ex->ropes[i];
        float *const out = r->cos_sin + (size_t)row * 2 * r->half;
        for (uint32_t j = 0; j < r->half; j++) {
            const double angle = gm_step_rows(ex->step)[row].pos * r->speed[j];
            out[j] = (float)cos(angle);
            out[r->half + j] = (float)sin(angle);
        }
    }
}

/* The token ids and given rows were checked before the step began. Every plan begins with this, so
 * the angles are there for whoever turns a row. */
static void input(gm_exec *ex, const gm_op *op, uint32_t row)
{
    const gm_step_row *const r = &gm_step_rows(ex->step)[row];
    const uint32_t n = ex->plan->vals[op->out].cols;
    float *const out = gm_cpu_row(ex, op->out, row);
    angles(ex, row);
    if (r->kind == GM_ROW_GIVEN) {
        memcpy(out, gm_step_given_at(ex->step, r->src), n * sizeof *out);
        return;
    }
    const gm_tensor *const t = &ex->w->tensors.at[op->weight[0]];
    const int64_t id = gm_slots_token(ex->kv ? &ex->kv->slots : NULL, r);
    const gm_tiled *const tiled = &ex->w->tiled[op->weight[0]];
    if ((uint64_t)id / GM_PANEL_ROWS < tiled->n_panels)
        gm_tiles_expand(t, tiled->tiles, (uint64_t)id, out);
    else
        gm_qtype_expand(t->type, t->data + (uint64_t)id * gm_tensor_row_size(t), n, out);
    for (uint32_t i = 0; i < n; i++)
        out[i] *= op->scale;
}

static void norm(gm_exec *ex, const gm_op *op, uint32_t row)
{
    const gm_kernels *const k = &ex->be->k;
    const bool add = op->kind == GM_OP_NORM_ADD;
    const uint32_t n = ex->plan->vals[op->out].cols;
    float *const out = gm_cpu_row(ex, op->out, row);
    k->norm(gm_cpu_row(ex, op->in[add], row), ex->norm_of[op->norm.weight], n, op->norm.eps,
            op->norm.offset, out);
    if (add) k->add(gm_cpu_row(ex, op->in[0], row), n, out);
}

static const gm_cpu_rope *rope_of(const gm_exec *ex, const gm_op *op, uint32_t half)
{
    uint32_t i = 0;
    while (ex->ropes[i].half != half || ex->ropes[i].rope.theta != op->rope.theta ||
           ex->ropes[i].rope.factor != op->rope.factor)
        i++;
    return &ex->ropes[i];
}

static void norm_rope(gm_exec *ex, const gm_op *op, uint32_t row)
{
    const gm_kernels *const k = &ex->be->k;
    const uint32_t cols = ex->plan->vals[op->out].cols;
    const uint32_t dim = (uint32_t)gm_tensor_cols(&ex->w->tensors.at[op->norm.weight]);
    const gm_cpu_rope *const rope = rope_of(ex, op, dim / 2);
    for (uint32_t h = 0; h < cols; h += dim) {
        float *const out = gm_cpu_row(ex, op->out, row) + h;
        k->norm(gm_cpu_row(ex, op->in[0], row) + h, ex->norm_of[op->norm.weight], dim, op->norm.eps,
                op->norm.offset, out);
        k->rotate(rope->cos_sin + (size_t)row * dim, rope->half, out);
    }
}

static void cache(gm_exec *ex, const gm_op *op, uint32_t row, gm_lane *lane)
{
    const gm_kvmem *const kv = ex->kv;
    const gm_step_row *const r = &gm_step_rows(ex->step)[row];
    const uint32_t dim = op->attn.head_dim;
    memset(lane->row, 0, kv->len * sizeof *lane->row);
    for (uint32_t which = 0; which < 2; which++) {
        for (uint32_t h = 0; h < op->attn.n_kv_head; h++) {
            const float *const x = gm_cpu_row(ex, op->in[which], row) + (size_t)h * dim;
            uint8_t *const rows = gm_cpu_kv_rows(kv, r->slot, op->layer, r->pos, which, h);
            memcpy(lane->row, x, dim * sizeof *x);
            ex->be->k.kv_store[kv->type](lane->row, kv->len,
                                         rows + r->pos % GM_PAGE_LEN * kv->row_size);
        }
    }
}

/* Draws for all outputs of a slot in order, when this is the first of them. */
static void draw(gm_exec *ex, const gm_op *op, uint32_t out, gm_lane *lane)
{
    const gm_step_out *const outs = gm_step_outs(ex->step);
    const gm_step_row *const rows = gm_step_rows(ex->step);
    const uint32_t slot = rows[outs[out].row].slot;
    if (out && rows[outs[out - 1].row].slot == slot) return;
    for (; out < ex->step->n_outs && rows[outs[out].row].slot == slot; out++) {
        const uint32_t n = ex->plan->vals[op->in[0]].cols;
        const float *const logits = gm_cpu_row(ex, op->in[0], out);
        const gm_answer answer = {
            .step = ex->step,
            .i = out,
            .logits = logits,
            .n = n,
            .logsum = outs[out].want & GM_WANT_DRAW ? ex->be->k.logsum(logits, n) : 0,
            .scratch = &lane->draw,
            .top = ex->top + (size_t)out * GM_TOP_MAX,
        };
        gm_slots_answer(&ex->kv->slots, &answer, &ex->out[out]);
    }
}

static void output(gm_exec *ex, const gm_op *op, uint32_t out)
{
    const uint32_t want = gm_step_outs(ex->step)[out].want;
    float *const row = gm_cpu_row(ex, op->in[0], out);
    if (op->what == GM_OUT_LOGITS && want & GM_WANT_LOGITS) ex->out[out].logits = row;
    if (op->what == GM_OUT_HIDDEN && want & GM_WANT_HIDDEN) ex->out[out].hidden = row;
}

static void row_op(gm_exec *ex, const gm_op *op, uint32_t row, gm_lane *lane)
{
    const size_t size = op->out ? ex->plan->vals[op->out].cols * sizeof(float) : 0;
    switch (op->kind) {
    case GM_OP_INPUT_ROWS:
    case GM_OP_INPUT_GIVEN: input(ex, op, row); break;
    case GM_OP_NORM:
    case GM_OP_NORM_ADD: norm(ex, op, row); break;
    case GM_OP_NORM_ROPE: norm_rope(ex, op, row); break;
    case GM_OP_CACHE: cache(ex, op, row, lane); break;
    case GM_OP_ATTEND: gm_cpu_attend_join(ex, op, row); break;
    case GM_OP_PICK_ROWS:
        memcpy(gm_cpu_row(ex, op->out, row),
               gm_cpu_row(ex, op->in[0], gm_step_outs(ex->step)[row].row), size);
        break;
    case GM_OP_SOFTCAP:
        memcpy(gm_cpu_row(ex, op->out, row), gm_cpu_row(ex, op->in[0], row), size);
        ex->be->k.softcap(gm_cpu_row(ex, op->out, row), ex->plan->vals[op->out].cols, op->scale);
        break;
    case GM_OP_DRAW: draw(ex, op, row, lane); break;
    case GM_OP_OUTPUT: output(ex, op, row); break;
    default: break;
    }
}

static uint32_t n_rows_of(const gm_exec *ex, const gm_phase *ph)
{
    return ph->rows == GM_ROWS_ALL ? ex->step->n_rows : ex->step->n_outs;
}

/* What int8 left of n activations. */
static void rest_of(const float *x, size_t n, const gm_actblock *block, float *rest)
{
    for (size_t i = 0; i < n; i++) {
        const gm_actblock *const b = &block[i / GM_ACT_BLOCK];
        rest[i] = x[i] - b->scale * (float)b->q[i % GM_ACT_BLOCK];
    }
}

/* The row of ph->quantise as ph->n_int8 columns, each of what those before it left. The k-th columns
 * of all rows are together. */
static void quantise(gm_exec *ex, const gm_phase *ph, uint32_t row)
{
    const size_t cols = ex->plan->vals[ph->quantise].cols, n_rows = n_rows_of(ex, ph);
    const float *const from = gm_cpu_row(ex, ph->quantise, row);
    gm_acttile *tile = ex->acts + row;
    float rest[GM_PANEL_COLS];
    for (size_t at = 0; at < cols; at += GM_PANEL_COLS) {
        const size_t n = cols - at < GM_PANEL_COLS ? cols - at : GM_PANEL_COLS;
        const float *x = from + at;
        for (uint32_t k = 0; k < ph->n_int8; k++, tile += n_rows) {
            ex->be->k.quantise(x, n, tile->block);
            if (k + 1 == ph->n_int8) continue;
            rest_of(x, n, tile->block, rest);
            x = rest;
        }
    }
}

void gm_cpu_rows(gm_exec *ex, const gm_phase *ph, gm_tasks *tasks, uint32_t worker)
{
    uint32_t row = 0;
    while (gm_tasks_take(tasks, n_rows_of(ex, ph), 1, &row)) {
        for (uint32_t i = 0; i < ph->n_ops; i++)
            row_op(ex, ph->op[i], row, &ex->lanes[worker]);
        if (ph->quantise) quantise(ex, ph, row);
    }
}
