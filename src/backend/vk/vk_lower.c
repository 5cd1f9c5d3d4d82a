/* SPDX-License-Identifier: MIT */
/* A plan becomes a list of dispatches, and the list two recordings, one for each step that may be
 * under way: they differ only in where their step lies. A second such list may be for steps of rows
 * of different slots. Nothing else in a recording depends on a step's contents; what does is read from
 * the step by the kernels, or is a grid that the step brings.
 *
 * A layer of Gemma 3 is five dispatches where a step has one row: norms and qkv; rope, store and
 * attention; out; norms, gate and up; down. Where kernels wait for each other out has its norms behind
 * it, and those of down are a kernel of their own; on a card one of both always is. Of rows that share
 * a slot rope is one, and of more than 64 rows all of these are. */

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/mem.h"

_Static_assert(sizeof(struct gm_vk_head) == 32, "as GLSL lays it out");
_Static_assert(sizeof(struct gm_vk_slot) == 64, "as GLSL lays it out");
_Static_assert(sizeof(struct gm_vk_apply) <= GM_VK_PUSH, "push constants");
_Static_assert(sizeof(struct gm_vk_norm) <= GM_VK_PUSH, "push constants");
_Static_assert(sizeof(struct gm_vk_matmul) <= GM_VK_PUSH, "push constants");
_Static_assert(sizeof(struct gm_vk_halves) <= GM_VK_PUSH, "push constants");
_Static_assert(sizeof(struct gm_vk_rope) <= GM_VK_PUSH, "push constants");
_Static_assert(sizeof(struct gm_vk_attend) <= GM_VK_PUSH, "push constants");
_Static_assert(sizeof(struct gm_vk_norms) == 80, "as GLSL lays it out");
_Static_assert(sizeof(struct gm_vk_turn) == 48, "as GLSL lays it out");
_Static_assert(sizeof(struct gm_vk_draw_params) <= GM_VK_PUSH, "push constants");
_Static_assert(sizeof(gm_slot_set) == 52 && sizeof(gm_step_row) == 32, "as shaders read them");

#define LANES_ROW 256u /* of kernels that have a row each                        */

/* x + norm(y) and then its norm, the second part alone, or the first. */
typedef struct norms {
    const gm_op *add, *next, *pick;
} norms;

typedef struct lowering {
    gm_exec *ex;
    const gm_plan *p;
    gm_vk_slice *slice;
    uint32_t which; /* slice */
    gm_vk_list *list;
    uint32_t n_grids;
    norms front; /* that the next product does in its own dispatch, if there are some */
    uint32_t n_fronts;
    gm_vk_kind kind;
    gm_err *err;
} lowering;

/* ---- building a dispatch --------------------------------------------------------------------- */

typedef struct draft {
    const char *pipeline;
    int32_t type;
    uint32_t spec[GM_VK_SPECS];
    uint32_t rows, columns; /* of a product, that a workgroup takes */
    bool halves;            /* whether it wants its input so        */
    bool full;              /* it touches more than there is room for */
    gm_vk_dispatch d;
} draft;

static void touches(draft *t, uint64_t addr, uint64_t size, bool write)
{
    if (!addr || !size) return;
    t->full = t->full || t->d.n_ranges == GM_VK_RANGES;
    if (!t->full) t->d.ranges[t->d.n_ranges++] = (gm_vk_range){addr, size, write};
}

/* The cache of a layer, as a range that only itself overlaps. */
static void touches_cache(draft *t, uint32_t layer, bool write)
{
    touches(t, UINT64_C(1) << 63 | layer, 1, write);
}

static gm_status put(lowering *l, draft *t, const void *push, size_t size)
{
    memcpy(t->d.push, push, size);
    t->d.n_push = (uint32_t)size;
    if (t->full)
        return gm_fail(l->err, GM_E_UNSUP, 0,
                       "vulkan: a kernel of the plan touches too much memory");
    GM_TRY(gm_vk_pipes_want(&l->ex->be->pipes, t->pipeline, t->type, t->spec, &t->d.pipe, l->err));
    return gm_vk_list_add(l->list, &t->d, l->err);
}

static draft draft_of(const char *pipeline, int32_t type)
{
    return (draft){.pipeline = pipeline, .type = type, .d = {.indirect = -1, .grid = {1, 1, 1}}};
}

/* A grid that the step brings; equal ones share a place. */
static gm_status bring_grid(lowering *l, draft *t, gm_vk_grid g)
{
    gm_vk_grid *const grids = l->ex->grids[l->kind];
    uint32_t i = 0;
    while (i < l->n_grids && memcmp(&grids[i], &g, sizeof g) != 0)
        i++;
    if (i == GM_VK_GRIDS)
        return gm_fail(l->err, GM_E_UNSUP, 0, "vulkan: the plan has too many kinds of grids");
    if (i == l->n_grids) {
        grids[i] = g;
        l->ex->n_grids[l->kind] = ++l->n_grids;
    }
    t->d.indirect = (int32_t)i;
    return GM_OK;
}

/* ---- what kernels ask for -------------------------------------------------------------------- */

static uint64_t step_at(const lowering *l, uint64_t off)
{
    return l->slice->step.addr + off;
}

static uint32_t rows_of(const lowering *l, gm_val v)
{
    return l->p->vals[v].rows == GM_ROWS_ALL ? l->ex->bucket.rows : l->ex->bucket.outs;
}

static uint32_t rows_flag(const lowering *l, gm_val v)
{
    return (l->p->vals[v].rows == GM_ROWS_OUT ? GM_VK_ROWS_OUT : 0) |
           (rows_of(l, v) == 1 ? GM_VK_ROWS_ONE : 0);
}

/* Blocks from a value's first plane of int8 to its second, or 0. */
static uint32_t plane_of(const lowering *l, gm_val v)
{
    if (l->ex->values[v].n_int8 != GM_ACT_INT8_TWICE) return 0;
    return rows_of(l, v) * (l->p->vals[v].cols / GM_VK_BLOCK);
}

static void touches_value(const lowering *l, draft *t, gm_val v, bool write)
{
    const uint64_t n = (uint64_t)rows_of(l, v) * l->p->vals[v].cols;
    const gm_vk_value *const at = &l->ex->values[v];
    touches(t, at->f32, n * 4, write);
    touches(t, at->q, at->q_size, write);
    touches(t, at->meta, at->meta_size, write);
}

static gm_status norm_weight(lowering *l, gm_wid w, uint64_t *addr)
{
    const gm_tensor *const t = &l->p->weights.at[w];
    if (t->n_dims != 1)
        return gm_fail(l->err, GM_E_UNSUP, 0, "vulkan: norm %s is not a vector", t->name);
    *addr = l->ex->w->addr[w];
    return GM_OK;
}

/* Rows of a picked value have a grid that the step brings: none where nobody wants an output. */
static gm_status grid_of_rows(lowering *l, draft *t, gm_val v, uint32_t x, uint32_t per)
{
    const uint32_t rows = rows_of(l, v);
    if (l->p->vals[v].rows == GM_ROWS_OUT)
        return bring_grid(l, t, (gm_vk_grid){.kind = GM_VK_DYN_OUT_Y, .x = x, .per = per});
    t->d.grid[0] = x;
    t->d.grid[1] = (rows + per - 1) / per;
    return GM_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static gm_status lower_input(lowering *l, const gm_op *op)
{
    const bool by_id = op->kind == GM_OP_INPUT_ROWS;
    const gm_tensor *const w = by_id ? &l->p->weights.at[op->weight[0]] : NULL;
    gm_exec *const ex = l->ex;
    draft t = draft_of("embed", by_id ? (int32_t)w->type->id : GM_QTYPE_F32);
    t.spec[0] = LANES_ROW;
    t.d.grid[0] = ex->bucket.rows;
    const struct gm_vk_embed push = {
        .head = step_at(l, 0),
        .rows = step_at(l, ex->rows_off),
        .given = l->slice->given.addr,
        .slots = ex->kv ? ex->kv->slot_buf.addr : 0,
        .weight = by_id ? ex->w->addr[op->weight[0]] : 0,
        .dst = ex->values[op->out].f32,
        .n_cols = l->p->vals[op->out].cols,
        .n_tokens = by_id ? (uint32_t)gm_tensor_rows(w) : 1,
        .scale = op->scale,
        .flags = rows_flag(l, op->out),
    };
    if (ex->kv) touches(&t, ex->kv->slot_buf.addr, ex->kv->slot_buf.size, false);
    touches(&t, push.dst, 4ull * push.n_cols * ex->bucket.rows, true);
    return put(l, &t, &push, sizeof push);
}

/* What t, which has y, is told to do with x. */
static gm_status tell_norms(lowering *l, draft *t, gm_val x, const norms *n, struct gm_vk_norms *to)
{
    *to = (struct gm_vk_norms){.x = l->ex->values[x].f32};
    touches_value(l, t, x, false);
    if (n->add) {
        to->dst = l->ex->values[n->add->out].f32;
        to->eps1 = n->add->norm.eps;
        to->offset1 = n->add->norm.offset;
        GM_TRY(norm_weight(l, n->add->norm.weight, &to->w1));
        touches_value(l, t, n->add->out, true);
    }
    if (n->next) {
        const gm_vk_value *const h = &l->ex->values[n->next->out];
        to->h = h->f32;
        to->q = h->q;
        to->meta = h->meta;
        to->plane = plane_of(l, n->next->out);
        to->eps2 = n->next->norm.eps;
        to->offset2 = n->next->norm.offset;
        GM_TRY(norm_weight(l, n->next->norm.weight, &to->w2));
        touches_value(l, t, n->next->out, true);
    }
    return GM_OK;
}

static gm_status lower_norms(lowering *l, const norms *n)
{
    const gm_op *const first = n->add ? n->add : n->next;
    const gm_val x = n->pick ? n->pick->in[0] : first->in[0], out = first->out;
    draft t = draft_of("norm", GM_VK_NO_TYPE);
    struct gm_vk_norm push = {
        .head = step_at(l, 0),
        .outs = step_at(l, l->ex->outs_off),
        .n_cols = l->p->vals[out].cols,
        .flags = rows_flag(l, out) | (n->pick ? GM_VK_NORM_PICK : 0),
    };
    GM_TRY(tell_norms(l, &t, x, n, &push.n));
    if (n->add) {
        push.y = l->ex->values[n->add->in[1]].f32;
        touches_value(l, &t, n->add->in[1], false);
    }
    t.spec[0] = push.n_cols > 4 * LANES_ROW ? 512 : LANES_ROW;
    t.spec[1] = (push.n_cols + 4 * t.spec[0] - 1) / (4 * t.spec[0]);
    t.spec[2] = push.n_cols % 4 == 0;
    t.d.grid[0] = rows_of(l, out);
    if (l->ex->flows && n->add && !(push.flags & GM_VK_ROWS_OUT)) {
        t.d.flow = offsetof(struct gm_vk_norm, flow);
        t.d.n_done = t.d.grid[0] = t.spec[1];
        t.spec[3] = 1;
    }
    if (push.flags & GM_VK_ROWS_OUT)
        GM_TRY(bring_grid(l, &t, (gm_vk_grid){.kind = GM_VK_DYN_OUT_X}));
    return put(l, &t, &push, sizeof push);
}

/* rows.comp over value `shape`; the caller fills addresses and mode. */
static gm_status put_rows(lowering *l, draft *t, gm_val shape, struct gm_vk_rows *push)
{
    enum { LANES = 128 };
    push->head = step_at(l, 0);
    push->outs = step_at(l, l->ex->outs_off);
    push->n_cols = l->p->vals[shape].cols;
    push->flags |= rows_flag(l, shape);
    push->plane = plane_of(l, shape);
    t->spec[0] = LANES;
    const uint32_t x = (push->n_cols + 4 * LANES - 1) / (4 * LANES);
    GM_TRY(grid_of_rows(l, t, shape, x, 1));
    return put(l, t, push, sizeof *push);
}

static gm_status lower_elementwise(lowering *l, const gm_op *op)
{
    const gm_vk_value *const out = &l->ex->values[op->out];
    draft t = draft_of("rows", GM_VK_NO_TYPE);
    struct gm_vk_rows push = {
        .a = l->ex->values[op->in[0]].f32, .dst = out->f32, .q = out->q, .meta = out->meta};
    push.mode = op->kind == GM_OP_SOFTCAP ? GM_VK_MODE_SOFTCAP : GM_VK_MODE_COPY;
    push.scale = op->scale;
    if (op->kind == GM_OP_PICK_ROWS) push.flags = GM_VK_NORM_PICK;
    touches_value(l, &t, op->in[0], false);
    touches_value(l, &t, op->out, true);
    return put_rows(l, &t, op->out, &push);
}

/* Rounds a value whose maker could not. */
static gm_status lower_round(lowering *l, gm_val v)
{
    const gm_vk_value *const at = &l->ex->values[v];
    draft t = draft_of("rows", GM_VK_NO_TYPE);
    struct gm_vk_rows push = {.a = at->f32, .q = at->q, .meta = at->meta};
    touches_value(l, &t, v, true);
    return put_rows(l, &t, v, &push);
}

static gm_status lower_output(lowering *l, const gm_op *op)
{
    const gm_exec *const ex = l->ex;
    if (op->what == GM_OUT_DRAW) return GM_OK;
    const bool logits = op->what == GM_OUT_LOGITS;
    draft t = draft_of("rows", GM_VK_NO_TYPE);
    struct gm_vk_rows push = {
        .a = ex->values[op->in[0]].f32,
        .dst = l->slice->result.addr + (logits ? ex->logits_off : ex->hidden_off),
        .want = logits ? GM_WANT_LOGITS | GM_WANT_TOP : GM_WANT_HIDDEN,
    };
    touches_value(l, &t, op->in[0], false);
    touches(&t, push.dst, 4ull * ex->bucket.outs * l->p->vals[op->in[0]].cols, true);
    return put_rows(l, &t, op->in[0], &push);
}

/* ---- products -------------------------------------------------------------------------------- */

static draft product_draft(const lowering *l, const gm_op *op, const gm_tensor *w, uint32_t after,
                           struct gm_vk_matmul *push)
{
    const gm_val in = op->in[0];
    const bool quantised = op->num.act[0] != GM_ACT_F32;
    const bool fragments = quantised && l->ex->values[in].halves;
    const uint32_t planes = quantised && !fragments ? op->num.act[0] : 1;
    const uint32_t n_cols = (uint32_t)gm_tensor_cols(w);
    const gm_vk_product shape = {.columns = rows_of(l, in) * planes,
                                 .planes = planes,
                                 .n_blocks = quantised ? n_cols / GM_VK_BLOCK : 0,
                                 .words = gm_vk_block_words(w->type->id),
                                 .two_scales = gm_vk_two_scales(w->type->id),
                                 .after = after,
                                 .type = w->type->id,
                                 .n_rows = (uint32_t)gm_tensor_rows(w),
                                 .fragments = fragments,
                                 .flows = quantised && !fragments && l->ex->flows &&
                                          l->p->vals[in].rows == GM_ROWS_ALL};
    gm_vk_cut cut;
    const uint32_t tried = gm_vk_trial_cut(l->ex->be, &shape, &cut);
    draft t = draft_of(cut.pipeline, (int32_t)w->type->id);
    t.d.tried = tried;
    t.d.weights[t.d.n_weights++] = w;
    memcpy(t.spec, cut.spec, sizeof t.spec);
    t.rows = cut.rows;
    t.columns = cut.columns;
    t.halves = cut.halves;
    if (shape.flows) t.d.flow = offsetof(struct gm_vk_matmul, flow);
    *push = (struct gm_vk_matmul){
        .head = step_at(l, 0),
        .x = quantised ? l->ex->values[in].q : l->ex->values[in].f32,
        .meta = quantised ? l->ex->values[in].meta : 0,
        .wg_end = {UINT32_MAX, UINT32_MAX},
        .n_cols = n_cols,
        .flags = rows_flag(l, in),
        .plane = plane_of(l, in),
    };
    return t;
}

/* Makes float16 of a product's input. */
static gm_status lower_halves(lowering *l, draft *product, gm_val in, struct gm_vk_matmul *of)
{
    enum { LANES = 128 };
    const uint32_t rows = rows_of(l, in), n_blocks = of->n_cols / GM_VK_BLOCK;
    const uint64_t size = gm_vk_half_size(rows, of->n_cols);
    draft t = draft_of("halves", GM_VK_NO_TYPE);
    const struct gm_vk_halves push = {
        .head = of->head,
        .x = of->x,
        .meta = of->meta,
        .dst = l->ex->halves,
        .n_blocks = n_blocks,
        .n_rows = gm_vk_half_rows(rows),
        .plane = of->plane,
        .flags = of->flags,
    };
    t.spec[0] = LANES;
    touches_value(l, &t, in, false);
    touches(&t, push.dst, size, true);
    touches(product, push.dst, size, false);
    of->x = push.dst;
    of->plane = push.n_rows;
    GM_TRY(grid_of_rows(l, &t, in, (n_blocks + 1) / 2 * 2, GM_VK_HALF_ROWS));
    return put(l, &t, &push, sizeof push);
}

/* Where tiles are few, several workgroups have a part of each. */
static void cut_sums(const lowering *l, draft *t, struct gm_vk_matmul *push)
{
    const uint32_t tiles = t->d.grid[0] * t->d.grid[1];
    const uint32_t parts = gm_vk_half_parts(&l->ex->be->tuning, tiles, push->n_cols / GM_VK_BLOCK);
    t->d.grid[2] = parts;
    if (parts == 1) return;
    push->earlier = l->ex->sums;
    push->arrived = l->ex->arrived;
    touches(t, push->earlier, (uint64_t)tiles * parts * GM_VK_HALF_PART, true);
    touches(t, push->arrived, 4, true);
}

/* Every workgroup counts itself; where norms follow, those behind the product's that do them. */
static void count_done(draft *t, struct gm_vk_matmul *push)
{
    t->d.n_done = t->d.grid[0];
    if (t->spec[GM_VK_MM_AFTER] != GM_VK_AFTER_NORM) return;
    push->wg_end[0] = t->d.grid[0];
    t->d.n_done = t->spec[GM_VK_MM_NORM];
    t->d.grid[0] += t->d.n_done;
}

/* Whether the product that reads what norms write can do them first: of few rows. */
static bool can_front(const lowering *l, const norms *n)
{
    const uint32_t rows = l->ex->bucket.rows;
    return !l->ex->flows && n->add && n->next && l->p->vals[n->next->out].rows == GM_ROWS_ALL &&
           l->p->vals[n->next->out].cols % GM_VK_BLOCK == 0 && rows <= GM_VK_FRONT_ROWS &&
           rows < l->ex->be->tuning.half_from;
}

/* Norms whose product is here: t does them first. */
static gm_status put_front(lowering *l, draft *t, struct gm_vk_matmul *push)
{
    enum { LOOKS = 16384 }; /* some milliseconds of a GPU */
    const norms n = l->front;
    if (!n.next) return GM_OK;
    const uint32_t parts = l->ex->be->tuning.norm_units / l->ex->bucket.rows;
    l->front = (norms){0};
    GM_TRY(tell_norms(l, t, n.add->in[0], &n, &push->norms));
    push->earlier = l->ex->values[n.add->in[1]].f32;
    push->arrived = l->ex->fronts + (uint64_t)GM_VK_FRONT_SIZE * l->n_fronts++;
    push->n_parts = parts < 1 ? 1 : parts < GM_VK_FRONT_PARTS ? parts : GM_VK_FRONT_PARTS;
    push->flow.patience = LOOKS;
    t->spec[GM_VK_MM_FRONT] =
        gm_vk_front_turns(&l->ex->be->tuning, push->n_cols, t->spec[GM_VK_MM_LANES]);
    t->d.norms = true;
    touches_value(l, t, n.add->in[1], false);
    touches(t, push->arrived, GM_VK_FRONT_SIZE, true);
    return GM_OK;
}

/* Four tiles of columns side by side keep a prompt's weights from being read for each, and their
 * activations (128 columns of 27B: 860 KB, or a part of it where rows are longer) in a small cache. */
static gm_status put_product(lowering *l, draft *t, gm_val in, uint32_t wgs,
                             struct gm_vk_matmul *push)
{
    const uint32_t columns = t->columns, rows = rows_of(l, in);
    GM_TRY(put_front(l, t, push));
    if (t->halves)
        GM_TRY(lower_halves(l, t, in, push));
    else
        touches_value(l, t, in, false);
    push->side = rows > 3 * columns ? 2 : rows > columns ? 1 : 0;
    for (int i = 0; i < 3; i++)
        t->d.work += (double)rows * push->n_cols * push->n_rows[i];
    wgs <<= push->side;
    GM_TRY(grid_of_rows(l, t, in, wgs, columns << push->side));
    if (t->d.flow) count_done(t, push);
    const bool gate = t->spec[2] == GM_VK_AFTER_GELU;
    if (t->halves && !gate && t->d.indirect < 0) cut_sums(l, t, push);
    return put(l, t, push, sizeof *push);
}

/* Up to three products of one input with weights of one type, side by side in a dispatch; norms that
 * follow a single one may be done by workgroups of its own. */
static gm_status lower_products(lowering *l, const gm_op *ops, uint32_t n, const norms *after)
{
    struct gm_vk_matmul push;
    draft t = product_draft(l, ops, &l->p->weights.at[ops[0].weight[0]],
                            after ? GM_VK_AFTER_NORM : 0, &push);
    const uint32_t per = t.rows;
    uint32_t wgs = 0;
    t.d.norms = after;
    for (uint32_t i = 0; i < n; i++) {
        t.d.weights[i] = &l->p->weights.at[ops[i].weight[0]];
        push.w[i] = l->ex->w->addr[ops[i].weight[0]];
        push.dst[i] = l->ex->values[ops[i].out].f32;
        push.n_rows[i] = l->p->vals[ops[i].out].cols;
        wgs += (push.n_rows[i] + per - 1) / per;
        if (i + 1 < n) push.wg_end[i] = wgs;
        touches_value(l, &t, ops[i].out, true);
    }
    t.d.n_weights = n;
    if (after) GM_TRY(tell_norms(l, &t, after->add->in[0], after, &push.norms));
    return put_product(l, &t, ops[0].in[0], wgs, &push);
}

/* Runs of equal types share a dispatch. */
static gm_status lower_siblings(lowering *l, const gm_op *ops, uint32_t n)
{
    for (uint32_t first = 0, end; first < n; first = end) {
        const gm_qtype_info *const type = l->p->weights.at[ops[first].weight[0]].type;
        for (end = first + 1; end < n; end++) {
            if (l->p->weights.at[ops[end].weight[0]].type != type) break;
        }
        GM_TRY(lower_products(l, ops + first, end - first, NULL));
    }
    return GM_OK;
}

/* Gate and up of different types: two products, and the rest value by value. */
static gm_status lower_mixed_gate(lowering *l, const gm_op *op)
{
    const uint32_t cols = l->p->vals[op->out].cols;
    const uint64_t size = 4ull * rows_of(l, op->out) * cols;
    for (int i = 0; i < 2; i++) {
        struct gm_vk_matmul push;
        gm_op one = *op;
        one.num.act[0] = op->num.act[i];
        draft t = product_draft(l, &one, &l->p->weights.at[op->weight[i]], 0, &push);
        const uint32_t per = t.rows;
        push.w[0] = l->ex->w->addr[op->weight[i]];
        push.dst[0] = l->ex->wide[i];
        push.n_rows[0] = cols;
        touches(&t, l->ex->wide[i], size, true);
        GM_TRY(put_product(l, &t, op->in[0], (cols + per - 1) / per, &push));
    }
    const gm_vk_value *const out = &l->ex->values[op->out];
    draft t = draft_of("rows", GM_VK_NO_TYPE);
    struct gm_vk_rows push = {.a = l->ex->wide[0],
                              .b = l->ex->wide[1],
                              .dst = out->f32,
                              .q = out->q,
                              .meta = out->meta,
                              .mode = GM_VK_MODE_GELU};
    touches(&t, l->ex->wide[0], size, false);
    touches(&t, l->ex->wide[1], size, false);
    touches_value(l, &t, op->out, true);
    return put_rows(l, &t, op->out, &push);
}

static gm_status lower_gate(lowering *l, const gm_op *op)
{
    const gm_tensor *const gate = &l->p->weights.at[op->weight[0]];
    if (gate->type != l->p->weights.at[op->weight[1]].type) return lower_mixed_gate(l, op);
    struct gm_vk_matmul push;
    draft t = product_draft(l, op, gate, GM_VK_AFTER_GELU, &push);
    const gm_vk_value *const out = &l->ex->values[op->out];
    const uint32_t per = t.rows, rows = l->p->vals[op->out].cols;
    t.d.weights[t.d.n_weights++] = &l->p->weights.at[op->weight[1]];
    push.w[0] = l->ex->w->addr[op->weight[0]];
    push.w[1] = l->ex->w->addr[op->weight[1]];
    push.n_rows[0] = push.n_rows[1] = rows;
    push.dst[0] = out->f32;
    push.dst[1] = out->q;
    push.dst[2] = out->meta;
    touches_value(l, &t, op->out, true);
    return put_product(l, &t, op->in[0], (rows + per - 1) / per, &push);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The table of turns for a rope: made on first use, found afterwards. */
static uint64_t turns_of(lowering *l, const gm_rope *rope, uint32_t head_dim)
{
    gm_exec *const ex = l->ex;
    uint64_t at = 0;
    for (size_t i = 0; i < l->p->n_ops; i++) {
        const gm_op *const op = &l->p->ops[i];
        if (op->kind != GM_OP_NORM_ROPE) continue;
        if (op->rope.theta == rope->theta && op->rope.factor == rope->factor) break;
        at = at ? at : head_dim / 2; /* Gemma 3 has two ropes */
    }
    uint64_t *const table = (uint64_t *)(void *)ex->turns.map + at;
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        const double step = pow((double)rope->theta, -2.0 * i / head_dim) / (double)rope->factor;
        const double turn = step / (2 * acos(-1));
        table[i] = (uint64_t)ldexp(turn - floor(turn), 64);
    }
    return ex->turns.addr + at * 8;
}

static uint32_t layer_off(const gm_kvmem *kv, uint32_t layer)
{
    return (uint32_t)(kv->slots.layer_index[layer] * kv->layer_size / 16);
}

/* Heads of q and k normed and turned, k and v stored; q and k, or k and the cache may be missing. */
typedef struct heads {
    const gm_op *q, *k, *cache;
} heads;

/* What t is told of the heads: all but what follows from the step, and q. */
static gm_status tell_turn(lowering *l, draft *t, const heads *h, struct gm_vk_turn *to)
{
    const gm_exec *const ex = l->ex;
    *to = (struct gm_vk_turn){0};
    if (h->q) {
        const gm_tensor *const w = &l->p->weights.at[h->q->norm.weight];
        to->eps = h->q->norm.eps;
        to->offset = h->q->norm.offset;
        to->turns = turns_of(l, &h->q->rope, (uint32_t)gm_tensor_cols(w));
        GM_TRY(norm_weight(l, h->q->norm.weight, &to->q_norm));
        touches_value(l, t, h->q->in[0], false);
    }
    if (h->k) GM_TRY(norm_weight(l, h->k->norm.weight, &to->k_norm));
    if (h->cache) {
        const gm_val k = h->k ? h->k->in[0] : h->cache->in[0], v = h->cache->in[1];
        to->k = ex->values[k].f32;
        to->v = ex->values[v].f32;
        touches_value(l, t, k, false);
        touches_value(l, t, v, false);
        touches(t, ex->kv->tables.addr, ex->kv->tables.size, false);
        touches_cache(t, h->cache->layer, true);
    }
    return GM_OK;
}

/* gm_slots_check_plan has refused a plan that needs a KV cache and has none; this says so to whoever
 * reads, or analyses, this file alone. */
static gm_status needs_kv(const lowering *l)
{
    if (l->ex->kv) return GM_OK;
    return gm_fail(l->err, GM_E_ARG, 0, "vulkan: this plan needs a KV cache, and has none");
}

static gm_status lower_heads(lowering *l, const heads *h)
{
    gm_exec *const ex = l->ex;
    if (h->cache) GM_TRY(needs_kv(l));
    draft t = draft_of("rope", GM_VK_NO_TYPE);
    struct gm_vk_rope push = {.head = step_at(l, 0), .rows = step_at(l, ex->rows_off)};
    GM_TRY(tell_turn(l, &t, h, &push.t));
    if (h->q) {
        const gm_tensor *const w = &l->p->weights.at[h->q->norm.weight];
        push.flags |= GM_VK_ROPE_NORM | rows_flag(l, h->q->out);
        push.head_dim = (uint32_t)gm_tensor_cols(w);
        push.q = ex->values[h->q->in[0]].f32;
        push.q_out = ex->values[h->q->out].f32;
        push.n_head = l->p->vals[h->q->out].cols / push.head_dim;
        touches_value(l, &t, h->q->out, true);
    }
    if (h->cache) {
        push.flags |=
            h->cache->attn.class << 8 | rows_flag(l, h->k ? h->k->in[0] : h->cache->in[0]);
        push.head_dim = h->cache->attn.head_dim;
        push.n_kv_head = h->cache->attn.n_kv_head;
        push.tables = ex->kv->tables.addr;
        push.table_len = ex->kv->slots.desc.table_len;
        push.layer_off = layer_off(ex->kv, h->cache->layer);
    }
    t.spec[0] = 64;
    t.spec[1] = (push.head_dim + 31) / 32 * 32;
    t.spec[2] = ex->kv ? ex->kv->slots.desc.type : GM_QTYPE_F16;
    t.d.grid[0] = push.n_head + 2 * push.n_kv_head;
    t.d.grid[1] = ex->bucket.rows;
    return put(l, &t, &push, sizeof push);
}

/* Whether attention norms, turns and stores heads first, where nobody else waits for what it stores. */
static bool turns_heads(const lowering *l, const gm_op *op)
{
    return l->kind == GM_VK_APART && gm_vk_splits_attention(l->ex, op) &&
           !gm_vk_attends_by_halves(&l->ex->be->tuning, &op->attn, l->ex->bucket.rows);
}

/* With heads, it does. */
static gm_status lower_attend(lowering *l, const gm_op *op, const heads *h)
{
    gm_exec *const ex = l->ex;
    GM_TRY(needs_kv(l));
    const gm_kv_desc *const d = &ex->kv->slots.desc;
    const gm_vk_value *const out = &ex->values[op->out];
    const bool walk = !gm_vk_splits_attention(ex, op), rounds = op->attn.head_dim % 32 == 0;
    draft t = draft_of("attend", GM_VK_NO_TYPE);
    t.d.attends = op;
    struct gm_vk_attend push = {
        .head = step_at(l, 0),
        .rows = step_at(l, ex->rows_off),
        .q = ex->values[h ? h->q->in[0] : op->in[0]].f32,
        .tables = ex->kv->tables.addr,
        .dst = out->f32,
        .dstq = rounds ? out->q : 0,
        .meta = rounds ? out->meta : 0,
        .parts = ex->parts,
        .arrived = ex->arrived,
        .n_head = op->attn.n_head,
        .n_kv_head = op->attn.n_kv_head,
        .head_dim = op->attn.head_dim,
        .table_len = d->table_len,
        .layer_off = layer_off(ex->kv, op->layer),
        .max_splits = (d->table_len * GM_PAGE_LEN + GM_VK_SPLIT - 1) / GM_VK_SPLIT,
        .class_of = op->attn.class,
        .scale = op->attn.scale,
        .flags = rows_flag(l, op->out),
        .plane = plane_of(l, op->out),
    };
    const uint32_t g = op->attn.n_head / op->attn.n_kv_head, dim = gm_vk_kv_dim(d);
    const bool flows = h && !walk && ex->flows;
    const bool halves = gm_vk_attends_by_halves(&ex->be->tuning, &op->attn, ex->bucket.rows);
    gm_vk_grid grid = {.kind = GM_VK_DYN_ATTEND, .x = op->attn.n_kv_head, .per = op->attn.class};
    if (halves) {
        const uint32_t lanes = (dim > 128 ? 8 : 4) * ex->be->tuning.subgroup;
        const uint32_t spec[] = {lanes, ex->be->tuning.subgroup, g, dim, d->type};
        t.pipeline = "attend_half";
        memcpy(t.spec, spec, sizeof spec);
        grid.x *= GM_VK_HALF_SHARES;
        grid.walk = GM_VK_HALF_HEADS / g;
    } else {
        /* Where kernels wait, less on its way is fewer registers: an H200 holds two workgroups then. */
        const uint32_t many = ex->bucket.rows > GM_VK_PIECE_ROWS || flows;
        const uint32_t spec[] = {GM_VK_ATTEND_LANES, g, dim, walk, d->type, h != NULL, many, flows};
        memcpy(t.spec, spec, sizeof spec);
        /* Each workgroup turns heads: so many as fill the device; of several rows, which are not alike,
         * some times that. */
        if (h) grid.most = ex->be->tuning.split_wgs * (ex->bucket.rows > 1 ? 4 : 1);
        grid.walk = walk ? GM_VK_TILE_ROWS(g, dim) : 0;
    }
    if (flows) {
        t.d.flow = offsetof(struct gm_vk_attend, flow);
        t.d.n_done = t.d.n_held = op->attn.n_kv_head;
    }
    if (h) {
        GM_TRY(tell_turn(l, &t, h, &push.t));
    } else {
        touches_value(l, &t, op->in[0], false);
        touches_cache(&t, op->layer, false);
    }
    touches_value(l, &t, op->out, true);
    touches(&t, ex->parts, 4, true);
    touches(&t, ex->arrived, 4, true);
    GM_TRY(bring_grid(l, &t, grid));
    GM_TRY(put(l, &t, &push, sizeof push));
    return out->q && !rounds ? lower_round(l, op->out) : GM_OK;
}

static gm_status lower_draw(lowering *l, const gm_op *op)
{
    gm_exec *const ex = l->ex;
    GM_TRY(needs_kv(l));
    gm_kvmem *const kv = ex->kv;
    draft t = draft_of("draw", GM_VK_NO_TYPE);
    const struct gm_vk_draw_params push = {
        .head = step_at(l, 0),
        .rows = step_at(l, ex->rows_off),
        .outs = step_at(l, ex->outs_off),
        .masks = step_at(l, ex->masks_off),
        .logits = ex->values[op->in[0]].f32,
        .adjusted = ex->adjusted,
        .slots = kv->slot_buf.addr,
        .count_table = kv->counts.addr,
        .bias_table = kv->biases.addr,
        .answers = l->slice->result.addr + ex->answers_off,
        .parts = ex->parts,
        .arrived = ex->arrived,
        .n_vocab = kv->slots.desc.n_vocab,
        .max_bias = kv->slots.desc.max_bias,
        .mask_words = ex->mask_words,
        .n_parts = gm_vk_draw_parts(kv->slots.desc.n_vocab),
    };
    t.spec[0] = 1024;
    touches_value(l, &t, op->in[0], false);
    touches(&t, ex->adjusted, 4, true);
    touches(&t, ex->parts, 4, true);
    touches(&t, ex->arrived, 4, true);
    touches(&t, kv->slot_buf.addr, kv->slot_buf.size, true);
    touches(&t, kv->counts.addr, kv->counts.size, true);
    touches(&t, kv->biases.addr, kv->biases.size, false);
    GM_TRY(grid_of_rows(l, &t, op->in[0], push.n_parts, 1));
    return put(l, &t, &push, sizeof push);
}

static gm_status lower_apply(lowering *l)
{
    gm_kvmem *const kv = l->ex->kv;
    const gm_vk_edits *const e = &kv->edits[l->which];
    const gm_kv_desc *const d = &kv->slots.desc;
    draft t = draft_of("apply", GM_VK_NO_TYPE);
    const struct gm_vk_apply push = {
        .head = step_at(l, 0),
        .sets = e->buf.addr + e->sets,
        .biases = e->buf.addr + e->biases,
        .counts = e->buf.addr + e->counts,
        .edits = e->buf.addr + e->edits,
        .copies = e->buf.addr + e->copies,
        .slots = kv->slot_buf.addr,
        .tables = kv->tables.addr,
        .count_table = kv->counts.addr,
        .bias_table = kv->biases.addr,
        .pages = kv->pages.addr,
        .n_vocab = d->n_vocab,
        .max_bias = d->max_bias,
        .table_len = d->table_len,
        .n_pages_local = d->n_pages[GM_CLASS_LOCAL],
        .page_size = {(uint32_t)(kv->page_size[0] / 16), (uint32_t)(kv->page_size[1] / 16)},
    };
    t.spec[0] = LANES_ROW;
    t.d.grid[0] = 17;
    touches(&t, kv->slot_buf.addr, kv->slot_buf.size, true);
    touches(&t, kv->tables.addr, kv->tables.size, true);
    touches(&t, kv->counts.addr, kv->counts.size, true);
    touches(&t, kv->biases.addr, kv->biases.size, true);
    touches(&t, UINT64_C(1) << 63, d->n_layer, true); /* page copies: the cache of every layer */
    return put(l, &t, &push, sizeof push);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static gm_status lower_op(lowering *l, const gm_op *op)
{
    switch (op->kind) {
    case GM_OP_INPUT_ROWS:
    case GM_OP_INPUT_GIVEN: return lower_input(l, op);
    case GM_OP_NORM: return lower_norms(l, &(norms){.next = op});
    case GM_OP_NORM_ADD: return lower_norms(l, &(norms){.add = op});
    case GM_OP_MATMUL: return lower_products(l, op, 1, NULL);
    case GM_OP_NORM_ROPE: return lower_heads(l, &(heads){.q = op});
    case GM_OP_CACHE: return lower_heads(l, &(heads){.cache = op});
    case GM_OP_ATTEND: return lower_attend(l, op, NULL);
    case GM_OP_GATE_UP_GELU: return lower_gate(l, op);
    case GM_OP_PICK_ROWS:
    case GM_OP_SOFTCAP: return lower_elementwise(l, op);
    case GM_OP_DRAW: return lower_draw(l, op);
    case GM_OP_OUTPUT: return lower_output(l, op);
    default: break;
    }
    return gm_fail(l->err, GM_E_UNSUP, 0, "vulkan: op %s is not known here",
                   gm_opkind_name(op->kind));
}

/* Whether one kernel can turn both q and k: they are normed and turned alike. */
static bool turns_alike(const gm_op *q, const gm_op *k)
{
    return q->norm.eps == k->norm.eps && q->norm.offset == k->norm.offset &&
           q->rope.theta == k->rope.theta && q->rope.factor == k->rope.factor;
}

/* Whether the norms of the only row are done beside the product before them. Where kernels wait, one
 * for norms costs no more, and the product may have smaller workgroups than norms want: down, whose
 * input is rounded once, has most to gain from that. */
static bool goes_beside(const lowering *l, const gm_op *product)
{
    return l->ex->flows && l->p->vals[product->out].rows == GM_ROWS_ALL &&
           product->num.act[0] == GM_ACT_INT8_TWICE &&
           l->p->vals[product->out].cols % GM_VK_BLOCK == 0;
}

/* Whether op begins what reads the norms that wait for it, in one dispatch. */
static bool takes_front(const lowering *l, const gm_op *op)
{
    const bool gate = op->kind == GM_OP_GATE_UP_GELU;
    const gm_tensor *const at = l->p->weights.at;
    const bool halves = l->ex->values[l->front.next->out].halves;
    /* Gate and up of int8 have no registers left for norms on a card. */
    if (l->ex->be->tuning.one_front && gate != halves) return false;
    return (gate || op->kind == GM_OP_MATMUL) && op->in[0] == l->front.next->out &&
           (!gate || at[op->weight[0]].type == at[op->weight[1]].type);
}

/* Norms that nobody takes are a kernel. */
static gm_status lower_front(lowering *l)
{
    const norms n = l->front;
    l->front = (norms){0};
    return n.next ? lower_norms(l, &n) : GM_OK;
}

/* Lowers what of a group one kernel can do together, from its op i on; answers how many ops. */
static gm_status lower_some(lowering *l, const gm_op *ops, uint32_t left, uint32_t *taken)
{
    const gm_opkind second = left > 1 ? ops[1].kind : 0;
    if (l->front.next && !takes_front(l, ops)) GM_TRY(lower_front(l));
    if (ops[0].kind == GM_OP_MATMUL && second == GM_OP_NORM_ADD && ops[1].in[1] == ops[0].out &&
        goes_beside(l, ops)) {
        const bool next = left > 2 && ops[2].kind == GM_OP_NORM && ops[2].in[0] == ops[1].out;
        const norms after = {&ops[1], next ? &ops[2] : NULL, NULL};
        *taken = next ? 3 : 2;
        return lower_products(l, ops, 1, &after);
    }
    *taken = 2;
    if (ops[0].kind == GM_OP_NORM_ADD && second == GM_OP_NORM && ops[1].in[0] == ops[0].out) {
        l->front = (norms){.add = &ops[0], .next = &ops[1]};
        return can_front(l, &l->front) ? GM_OK : lower_front(l);
    }
    if (ops[0].kind == GM_OP_PICK_ROWS && second == GM_OP_NORM)
        return lower_norms(l, &(norms){.pick = &ops[0], .next = &ops[1]});
    *taken = 3;
    if (ops[0].kind == GM_OP_MATMUL && second == GM_OP_MATMUL && left == 3)
        return lower_siblings(l, ops, 3);
    if (ops[0].kind == GM_OP_NORM_ROPE && second == GM_OP_NORM_ROPE && left == 4 &&
        turns_alike(&ops[0], &ops[1]) && ops[2].in[0] == ops[1].out && ops[3].in[0] == ops[0].out) {
        const heads all = {&ops[0], &ops[1], &ops[2]};
        if (!turns_heads(l, &ops[3])) return lower_heads(l, &all);
        *taken = 4;
        return lower_attend(l, &ops[3], &all);
    }
    *taken = 1;
    GM_TRY(lower_op(l, ops));
    const gm_val v = ops->out;
    const bool maker_rounds = ops->kind == GM_OP_NORM || ops->kind == GM_OP_ATTEND ||
                              ops->kind == GM_OP_GATE_UP_GELU || ops->kind == GM_OP_PICK_ROWS ||
                              ops->kind == GM_OP_SOFTCAP;
    return v && l->ex->values[v].q && !maker_rounds ? lower_round(l, v) : GM_OK;
}

gm_status gm_vk_list_plan(gm_exec *ex, uint32_t slice, gm_vk_kind kind, gm_vk_list *list,
                          gm_err *err)
{
    lowering l = {.ex = ex,
                  .p = ex->plan,
                  .slice = &ex->slice[slice],
                  .which = slice,
                  .kind = kind,
                  .list = list,
                  .err = err};
    if (ex->kv) GM_TRY(lower_apply(&l));
    for (size_t g = 0; g < ex->plan->n_groups; g++) {
        const gm_group *const group = &ex->plan->groups[g];
        for (uint32_t i = 0, taken = 0; i < group->n_ops; i += taken)
            GM_TRY(lower_some(&l, &ex->plan->ops[group->op_first + i], group->n_ops - i, &taken));
    }
    GM_TRY(lower_front(&l));
    gm_vk_list_place_barriers(list);
    gm_vk_list_flow(ex, slice, list);
    return GM_OK;
}

uint32_t gm_vk_list_flow(const gm_exec *ex, uint32_t slice, gm_vk_list *list)
{
    /* A second of a GPU's looks, half a microsecond each; a processor's are a few nanoseconds, and who
     * is waited for may be without a core for a while. */
    enum { GPU_LOOKS = 2 << 20, CPU_LOOKS = 1 << 30 };
    const bool cpu = ex->be->dev.props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const gm_vk_slice *const s = &ex->slice[slice];
    return gm_vk_list_place_flow(list, s->flow.addr, s->result.addr, cpu ? CPU_LOOKS : GPU_LOOKS);
}
