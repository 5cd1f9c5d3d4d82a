/* SPDX-License-Identifier: MIT */
/* From plan to phases, and the memory that they need.
 *
 * Ops on rows are gathered into one phase while they go over the same rows; a
 * product whose weights take int8 activations has its input quantised at the end of
 * the rows phase before it. Products of the same input become one phase. A draw
 * begins a phase of its own, because the draws of one slot are made in order. */

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

#define MAX_OPS (sizeof((gm_phase *)0)->op / sizeof *((gm_phase *)0)->op)

static gm_status add_phase(gm_exec *ex, gm_phasekind kind, uint32_t rows, gm_err *err)
{
    GM_TRY(gm_mem_grow(&ex->phases, &ex->cap_phases, ex->n_phases + 1, sizeof *ex->phases, "phases",
                       err));
    ex->phases[ex->n_phases++] = (gm_phase){.kind = kind, .rows = rows};
    return GM_OK;
}

static gm_phase *last_phase(const gm_exec *ex)
{
    return ex->n_phases ? &ex->phases[ex->n_phases - 1] : NULL;
}

/* The rows that an op goes over. */
static uint32_t domain_of(const gm_plan *p, const gm_op *op)
{
    return op->kind == GM_OP_OUTPUT ? GM_ROWS_OUT : p->vals[op->out].rows;
}

/* A rows phase over that domain which still has room: the last one, or a new one. */
static gm_status rows_phase(gm_exec *ex, uint32_t rows, bool fresh, gm_err *err)
{
    const gm_phase *const last = last_phase(ex);
    const bool fits = last && last->kind == GM_PHASE_ROWS && last->rows == rows &&
                      last->n_ops < MAX_OPS && !last->quantise;
    return fits && !fresh ? GM_OK : add_phase(ex, GM_PHASE_ROWS, rows, err);
}

static gm_status add_row_op(gm_exec *ex, const gm_op *op, gm_err *err)
{
    GM_TRY(rows_phase(ex, domain_of(ex->plan, op), op->kind == GM_OP_DRAW, err));
    gm_phase *const ph = last_phase(ex);
    ph->op[ph->n_ops++] = op;
    return GM_OK;
}

/* The value whose int8 form is at hand, in so many rows of int8 a row. */
typedef struct at_hand {
    gm_val value;
    uint32_t n_int8;
} at_hand;

static gm_status add_product(gm_exec *ex, const gm_op *op, at_hand *hand, gm_err *err)
{
    const gm_val in = op->in[0];
    const uint32_t *const act = op->num.act, n_int8 = act[0] > act[1] ? act[0] : act[1];
    if (n_int8 && (hand->value != in || hand->n_int8 < n_int8)) {
        GM_TRY(rows_phase(ex, ex->plan->vals[in].rows, false, err));
        last_phase(ex)->quantise = hand->value = in;
        last_phase(ex)->n_int8 = hand->n_int8 = n_int8;
    }
    gm_phase *last = last_phase(ex);
    const bool joins = last && last->kind == GM_PHASE_PRODUCTS && op->kind == GM_OP_MATMUL &&
                       last->op[0]->kind == GM_OP_MATMUL && last->op[0]->in[0] == in &&
                       last->n_ops < MAX_OPS;
    if (!joins) GM_TRY(add_phase(ex, GM_PHASE_PRODUCTS, ex->plan->vals[in].rows, err));
    last = last_phase(ex);
    last->op[last->n_ops++] = op;
    return GM_OK;
}

static gm_status add_attend(gm_exec *ex, const gm_op *op, gm_err *err)
{
    GM_TRY(add_phase(ex, GM_PHASE_ATTEND, GM_ROWS_ALL, err));
    gm_phase *const ph = last_phase(ex);
    ph->op[ph->n_ops++] = op;
    return add_row_op(ex, op, err); /* the join */
}

static gm_status make_phases(gm_exec *ex, gm_err *err)
{
    at_hand hand = {0};
    for (size_t i = 0; i < ex->plan->n_ops; i++) {
        const gm_op *const op = &ex->plan->ops[i];
        if (gm_op_products(op))
            GM_TRY(add_product(ex, op, &hand, err));
        else if (op->kind == GM_OP_ATTEND)
            GM_TRY(add_attend(ex, op, err));
        else if (op->kind != GM_OP_OUTPUT || op->what != GM_OUT_TAP) /* a tap is where it is */
            GM_TRY(add_row_op(ex, op, err));
    }
    GM_TRY(gm_mem_alloc(&ex->alone, ex->n_phases, sizeof *ex->alone, "phases", err));
    return gm_mem_alloc(&ex->tasks, ex->n_phases, sizeof *ex->tasks, "phases", err);
}

/* ---- memory ---------------------------------------------------------------------------- */

static gm_status add_rope(gm_exec *ex, const gm_op *op, gm_err *err)
{
    const uint32_t half = (uint32_t)gm_tensor_cols(&ex->w->tensors.at[op->norm.weight]) / 2;
    for (uint32_t i = 0; i < ex->n_ropes; i++) {
        const gm_cpu_rope *const r = &ex->ropes[i];
        if (r->half == half && r->rope.theta == op->rope.theta && r->rope.factor == op->rope.factor)
            return GM_OK;
    }
    if (ex->n_ropes == GM_CPU_ROPES) {
        return gm_fail(err, GM_E_UNSUP, 0, "cpu: the plan has more than %d different rotations",
                       GM_CPU_ROPES);
    }
    gm_cpu_rope *const r = &ex->ropes[ex->n_ropes++];
    r->rope = op->rope;
    r->half = half;
    GM_TRY(gm_mem_alloc(&r->speed, half, sizeof *r->speed, "rotations", err));
    for (uint32_t i = 0; i < half; i++)
        r->speed[i] = pow((double)op->rope.theta, -(double)i / half) / (double)op->rope.factor;
    return gm_mem_alloc(&r->cos_sin, (size_t)ex->bucket.rows * 2 * half, sizeof *r->cos_sin,
                        "rotations", err);
}

/* A norm's weights as float32, once. */
static gm_status add_norm(gm_exec *ex, gm_wid w, gm_err *err)
{
    if (ex->norm_of[w]) return GM_OK;
    const gm_tensor *const t = &ex->w->tensors.at[w];
    const size_t n = gm_tensor_cols(t);
    GM_TRY(gm_mem_alloc(&ex->norm_of[w], n, sizeof(float), "norms", err));
    gm_qtype_expand(t->type, t->data, n, ex->norm_of[w]);
    return GM_OK;
}

static gm_status alloc_norms(gm_exec *ex, gm_err *err)
{
    GM_TRY(gm_mem_alloc(&ex->norm_of, ex->w->tensors.n, sizeof *ex->norm_of, "norms", err));
    for (size_t i = 0; i < ex->plan->n_ops; i++) {
        const gm_op *const op = &ex->plan->ops[i];
        const bool rope = op->kind == GM_OP_NORM_ROPE;
        if (rope || op->kind == GM_OP_NORM || op->kind == GM_OP_NORM_ADD)
            GM_TRY(add_norm(ex, op->norm.weight, err));
        if (rope) GM_TRY(add_rope(ex, op, err));
    }
    return GM_OK;
}

/* What attention needs follows from the op with the largest group and the fewest heads. */
static gm_status alloc_attention(gm_exec *ex, uint32_t *group, gm_err *err)
{
    const uint32_t n_workers = gm_workers_n(ex->be->workers);
    uint32_t split = UINT32_MAX;
    *group = 0;
    for (size_t i = 0; i < ex->plan->n_ops; i++) {
        const gm_op *const op = &ex->plan->ops[i];
        if (op->kind != GM_OP_ATTEND) continue;
        const uint32_t g = op->attn.n_head / op->attn.n_kv_head;
        if (g > *group) *group = g;
        if (op->num.key_split < split) split = op->num.key_split;
    }
    if (*group == 0) return GM_OK;
    const gm_kv_desc *const d = &ex->kv->slots.desc;
    ex->part_len = *group * (2 + ex->kv->len);
    ex->max_parts = d->table_len * GM_PAGE_LEN / split + 1;
    ex->split_rows = (4 * n_workers - 1) / d->n_kv_head; /* past that there are tasks enough */
    if (ex->split_rows > ex->bucket.rows) ex->split_rows = ex->bucket.rows;
    return gm_mem_alloc(&ex->parts, (size_t)ex->split_rows * d->n_kv_head * ex->max_parts,
                        ex->part_len * sizeof *ex->parts, "attention", err);
}

static gm_status alloc_lane(gm_exec *ex, gm_lane *l, uint32_t group, uint32_t vocab, gm_err *err)
{
    const uint32_t rows = ex->bucket.rows > ex->bucket.outs ? ex->bucket.rows : ex->bucket.outs;
    const size_t len = ex->kv ? ex->kv->len : 0;
    GM_TRY(gm_mem_alloc_aligned(&l->panel, 1, sizeof *l->panel, "a panel", err));
    GM_TRY(gm_mem_alloc_aligned(&l->tile, GM_PANEL_ROWS, GM_TILE_ROW_MAX, "a tile", err));
    GM_TRY(gm_mem_alloc(&l->acc, 2 * GM_ACT_INT8_TWICE * (size_t)rows * GM_PANEL_ROWS,
                        sizeof *l->acc, "sums", err));
    GM_TRY(gm_mem_alloc(&l->query, group * len, sizeof *l->query, "queries", err));
    GM_TRY(gm_mem_alloc(&l->part, 2 * (size_t)ex->part_len, sizeof *l->part, "attention", err));
    GM_TRY(gm_mem_alloc(&l->scores, (size_t)group * (GM_PAGE_LEN + 1), sizeof *l->scores, "scores",
                        err));
    GM_TRY(gm_mem_alloc(&l->row, len, sizeof *l->row, "a row", err));
    GM_TRY(gm_mem_alloc(&l->draw.adjusted, vocab, sizeof *l->draw.adjusted, "the draw", err));
    return gm_mem_alloc(&l->draw.order, vocab, sizeof *l->draw.order, "the draw", err);
}

/* Room for the widest input that is made int8. */
static gm_status alloc_acts(gm_exec *ex, gm_err *err)
{
    size_t most = 0;
    for (size_t i = 0; i < ex->n_phases; i++) {
        const gm_phase *const ph = &ex->phases[i];
        if (!ph->quantise) continue;
        const size_t rows = ph->rows == GM_ROWS_ALL ? ex->bucket.rows : ex->bucket.outs;
        const size_t cols = ex->plan->vals[ph->quantise].cols;
        const size_t n = ph->n_int8 * rows * ((cols + GM_PANEL_COLS - 1) / GM_PANEL_COLS);
        if (n > most) most = n;
    }
    return gm_mem_alloc_aligned(&ex->acts, most, sizeof *ex->acts, "activations", err);
}

static uint32_t vocab_of(const gm_plan *p)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind == GM_OP_DRAW) return p->vals[p->ops[i].in[0]].cols;
    }
    return 0;
}

gm_status gm_cpu_lower(gm_exec *ex, gm_err *err)
{
    const uint32_t n_workers = gm_workers_n(ex->be->workers), vocab = vocab_of(ex->plan);
    uint32_t group = 0;
    GM_TRY(make_phases(ex, err));
    GM_TRY(gm_values_init(&ex->values, ex->plan, ex->bucket, err));
    GM_TRY(alloc_norms(ex, err));
    GM_TRY(alloc_acts(ex, err));
    GM_TRY(alloc_attention(ex, &group, err));
    GM_TRY(gm_mem_alloc(&ex->out, ex->bucket.outs, sizeof *ex->out, "results", err));
    GM_TRY(gm_mem_alloc(&ex->top, (size_t)ex->bucket.outs * GM_TOP_MAX, sizeof *ex->top, "results",
                        err));
    GM_TRY(gm_mem_alloc(&ex->lanes, n_workers, sizeof *ex->lanes, "lanes", err));
    for (uint32_t i = 0; i < n_workers; i++)
        GM_TRY(alloc_lane(ex, &ex->lanes[i], group, vocab, err));
    return GM_OK;
}

static void free_lane(gm_lane *l)
{
    gm_mem_free(l->panel);
    gm_mem_free(l->tile);
    gm_mem_free(l->acc);
    gm_mem_free(l->query);
    gm_mem_free(l->part);
    gm_mem_free(l->scores);
    gm_mem_free(l->row);
    gm_mem_free(l->draw.adjusted);
    gm_mem_free(l->draw.order);
}

void gm_cpu_drop(gm_exec *ex)
{
    if (!ex) return;
    for (uint32_t i = 0; ex->lanes && i < gm_workers_n(ex->be->workers); i++)
        free_lane(&ex->lanes[i]);
    for (uint32_t i = 0; ex->norm_of && i < ex->w->tensors.n; i++)
        gm_mem_free(ex->norm_of[i]);
    for (uint32_t i = 0; i < ex->n_ropes; i++) {
        gm_mem_free(ex->ropes[i].speed);
        gm_mem_free(ex->ropes[i].cos_sin);
    }
    gm_values_deinit(&ex->values);
    gm_mem_free(ex->lanes);
    gm_mem_free(ex->norm_of);
    gm_mem_free(ex->acts);
    gm_mem_free(ex->parts);
    gm_mem_free(ex->out);
    gm_mem_free(ex->top);
    gm_mem_free(ex->phases);
    gm_mem_free(ex->tasks);
    gm_mem_free(ex->alone);
    gm_mem_free(ex);
}
