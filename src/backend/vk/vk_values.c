/* SPDX-License-Identifier: MIT */
/* Where values live. A value is kept as float32, as int8 or as both, by what its readers want; its
 * memory is free again after the last group that reads it, so 62 layers need about as much as one.
 * Where kernels wait for each other it is not: each word is then written once in a step, and says itself
 * whether it has been (shaders/inc/base.glsl). A row of 27B takes 11 MB so. */

#include "backend/vk/vk.h"
#include "base/mem.h"

#define ALIGN 256u

typedef struct block {
    uint64_t off, size;
    bool busy;
} block;

typedef struct placer {
    gm_exec *ex;
    block *blocks;
    size_t n, cap;
    uint64_t end;
    size_t *last;     /* [n_vals] the last group that reads it      */
    bool *f32;        /* [n_vals] whether a reader wants it so      */
    uint32_t *n_int8; /* [n_vals] rows of int8 that its readers want */
    uint64_t arrived; /* bytes of counters                         */
    uint64_t fronts;  /* and of words behind them                  */
} placer;

/* ---- what is wanted -------------------------------------------------------------------------- */

static bool keeps_nothing(const gm_plan *p, const placer *pl, gm_val v)
{
    const gm_opkind maker = p->ops[p->vals[v].op].kind;
    if (p->vals[v].is_cache || maker == GM_OP_DRAW) return true;
    return !pl->f32[v] && !pl->n_int8[v];
}

static void want(placer *pl, const gm_op *op, size_t group)
{
    const bool product = op->kind == GM_OP_MATMUL || op->kind == GM_OP_GATE_UP_GELU;
    const uint32_t n_weights = op->kind == GM_OP_GATE_UP_GELU ? 2 : 1;
    for (int k = 0; k < 2; k++) {
        const gm_val v = op->in[k];
        if (!v) continue;
        /* What is normed may be so by the product behind, and again until that is done. */
        const size_t end = op->kind == GM_OP_OUTPUT     ? SIZE_MAX
                           : op->kind == GM_OP_NORM_ADD ? group + 1
                                                        : group;
        if (pl->last[v] < end) pl->last[v] = end;
        for (uint32_t w = 0; product && w < n_weights; w++) {
            if (op->num.act[w] == GM_ACT_F32) pl->f32[v] = true;
            if (op->num.act[w] > pl->n_int8[v]) pl->n_int8[v] = op->num.act[w];
        }
        if (!product) pl->f32[v] = true;
    }
}

/* Kernels that write int8 themselves; after the others a kernel reads float32 and rounds it. */
static bool rounds(const gm_plan *p, gm_val v)
{
    const gm_op *const op = &p->ops[p->vals[v].op];
    switch (op->kind) {
    case GM_OP_NORM: return true;
    case GM_OP_ATTEND: return op->attn.head_dim % GM_VK_BLOCK == 0;
    case GM_OP_GATE_UP_GELU:
        return p->weights.at[op->weight[0]].type == p->weights.at[op->weight[1]].type;
    default: return false;
    }
}

static void find_wants(placer *pl)
{
    const gm_plan *const p = pl->ex->plan;
    for (size_t g = 0; g < p->n_groups; g++) {
        for (uint32_t i = 0; i < p->groups[g].n_ops; i++)
            want(pl, &p->ops[p->groups[g].op_first + i], g);
    }
    for (gm_val v = 1; v < p->n_vals; v++)
        pl->f32[v] = pl->f32[v] || (pl->n_int8[v] && !rounds(p, v));
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Offsets are stored plus one until the buffer has an address: 0 stays "not kept". */
static gm_status take(placer *pl, uint64_t size, uint64_t *out, gm_err *err)
{
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    for (size_t i = 0; i < pl->n; i++) {
        block *const b = &pl->blocks[i];
        if (b->busy || b->size != size) continue;
        b->busy = true;
        *out = b->off + 1;
        return GM_OK;
    }
    GM_TRY(gm_mem_grow(&pl->blocks, &pl->cap, pl->n + 1, sizeof *pl->blocks, "values", err));
    pl->blocks[pl->n++] = (block){pl->end, size, true};
    *out = pl->end + 1;
    pl->end += size;
    return GM_OK;
}

static void give(placer *pl, uint64_t at)
{
    for (size_t i = 0; i < pl->n && at; i++) {
        if (pl->blocks[i].off + 1 == at) pl->blocks[i].busy = false;
    }
}

/* Whether the readers of a value get columns of float16. Int8 reads a row's weights a little faster, which
 * is all that a single sequence has; several have the same bits alone and together. */
static bool by_fragments(const gm_exec *ex, uint32_t cols)
{
    const gm_vk_tuning *const t = &ex->be->tuning;
    const bool alone = ex->kv && ex->kv->slots.desc.n_slots == 1;
    return t->fragments && cols % GM_VK_CHUNK == 0 && !(alone && ex->bucket.rows < t->half_from);
}

static gm_status place_value(placer *pl, gm_val v, gm_err *err)
{
    const gm_exec *const ex = pl->ex;
    const gm_valinfo *const i = &ex->plan->vals[v];
    const uint64_t rows = i->rows == GM_ROWS_ALL ? ex->bucket.rows : ex->bucket.outs;
    gm_vk_value *const to = &ex->values[v];
    if (keeps_nothing(ex->plan, pl, v)) return GM_OK;
    if (pl->f32[v]) GM_TRY(take(pl, rows * i->cols * 4, &to->f32, err));
    to->n_int8 = pl->n_int8[v];
    if (to->n_int8 && by_fragments(ex, i->cols)) {
        to->n_int8 = 0;
        to->halves = true;
        to->q_size = gm_vk_columns_size((uint32_t)rows, i->cols);
        return take(pl, to->q_size, &to->q, err);
    }
    to->q_size = rows * i->cols * to->n_int8;
    to->meta_size = to->q_size / GM_VK_BLOCK * 8;
    if (!to->n_int8) return GM_OK;
    GM_TRY(take(pl, to->q_size, &to->q, err));
    return take(pl, to->meta_size, &to->meta, err);
}

static gm_status place_groups(placer *pl, gm_err *err)
{
    const gm_plan *const p = pl->ex->plan;
    for (size_t g = 0; g < p->n_groups; g++) {
        const gm_group *const group = &p->groups[g];
        for (uint32_t i = 0; i < group->n_ops; i++) {
            const gm_val v = p->ops[group->op_first + i].out;
            if (v) GM_TRY(place_value(pl, v, err));
        }
        for (gm_val v = 1; v < p->n_vals && !pl->ex->flows; v++) {
            if (pl->last[v] != g) continue;
            give(pl, pl->ex->values[v].f32);
            give(pl, pl->ex->values[v].q);
            give(pl, pl->ex->values[v].meta);
        }
    }
    return GM_OK;
}

static uint64_t parts_size(const gm_exec *ex, const gm_op *op)
{
    const gm_kv_desc *const d = &ex->kv->slots.desc;
    const uint64_t splits = (d->table_len * GM_PAGE_LEN + GM_VK_SPLIT - 1) / GM_VK_SPLIT;
    const uint64_t all = ex->bucket.rows * splits + GM_VK_FOLD_ONCE - 1;
    return all * op->attn.n_head * (gm_vk_kv_dim(d) + 2ull) * 4;
}

bool gm_vk_splits_attention(const gm_exec *ex, const gm_op *op)
{
    return ex->bucket.rows <= GM_VK_SPLIT_ROWS && parts_size(ex, op) <= GM_VK_SPLIT_BYTES;
}

/* Bytes of a product's input as float16. */
static uint64_t halves_size(const gm_exec *ex, gm_val in)
{
    const gm_valinfo *const i = &ex->plan->vals[in];
    const uint32_t rows = i->rows == GM_ROWS_ALL ? ex->bucket.rows : ex->bucket.outs;
    if (by_fragments(ex, i->cols)) return 0;
    return rows >= ex->be->tuning.half_from ? gm_vk_half_size(rows, i->cols) : 0;
}

uint32_t gm_vk_draw_parts(uint32_t n_vocab)
{
    return (n_vocab + GM_VK_DRAW_PART - 1) / GM_VK_DRAW_PART;
}

static void at_least(uint64_t *n, uint64_t least)
{
    if (*n < least) *n = least;
}

/* Scratch of single kernels: what parts of attention and of draws leave, adjusted logits, the two
 * sides of a mixed gate, the input of a prompt's product. */
static gm_status place_scratch(placer *pl, gm_err *err)
{
    gm_exec *const ex = pl->ex;
    const gm_plan *const p = ex->plan;
    uint64_t parts = 0, adjusted = 0, wide = 0, halves = 0;
    pl->arrived = ALIGN;
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        const uint64_t rows = ex->bucket.rows, outs = ex->bucket.outs;
        if (op->kind == GM_OP_ATTEND && ex->kv) {
            if (gm_vk_splits_attention(ex, op)) at_least(&parts, parts_size(ex, op));
            at_least(&pl->arrived, rows * op->attn.n_kv_head * 4);
        }
        if (op->kind == GM_OP_NORM_ADD && rows <= GM_VK_FRONT_ROWS) pl->fronts += GM_VK_FRONT_SIZE;
        if (op->kind == GM_OP_MATMUL || op->kind == GM_OP_GATE_UP_GELU)
            at_least(&halves, halves_size(ex, op->in[0]));
        if (op->kind == GM_OP_DRAW) {
            const uint32_t n_vocab = p->vals[op->in[0]].cols;
            adjusted = outs * 4 * n_vocab;
            at_least(&parts, outs * gm_vk_draw_parts(n_vocab) * 16);
            at_least(&pl->arrived, outs * 4);
        }
        if (op->kind == GM_OP_GATE_UP_GELU && !rounds(p, op->out)) {
            const uint64_t n = p->vals[op->out].rows == GM_ROWS_ALL ? rows : outs;
            at_least(&wide, n * p->vals[op->out].cols * 4);
        }
    }
    GM_TRY(take(pl, parts, &ex->parts, err));
    GM_TRY(take(pl, wide, &ex->wide[0], err));
    GM_TRY(take(pl, wide, &ex->wide[1], err));
    GM_TRY(take(pl, halves, &ex->halves, err));
    const uint64_t tiles = halves ? ex->be->tuning.half_tiles : 0;
    at_least(&pl->arrived, tiles * 4);
    pl->arrived = (pl->arrived + ALIGN - 1) / ALIGN * ALIGN;
    GM_TRY(take(pl, 2 * tiles * GM_VK_HALF_PART, &ex->sums, err));
    return take(pl, adjusted, &ex->adjusted, err);
}

static void relocate(uint64_t base, uint64_t *at)
{
    if (*at) *at += base - 1;
}

/* Offsets of everything; nothing is allocated on the device. */
static gm_status find_places(placer *pl, gm_err *err)
{
    gm_exec *const ex = pl->ex;
    const gm_plan *const p = ex->plan;
    GM_TRY(gm_mem_alloc(&pl->last, p->n_vals, sizeof *pl->last, "values", err));
    GM_TRY(gm_mem_alloc(&pl->f32, p->n_vals, sizeof *pl->f32, "values", err));
    GM_TRY(gm_mem_alloc(&pl->n_int8, p->n_vals, sizeof *pl->n_int8, "values", err));
    GM_TRY(gm_mem_alloc(&ex->values, p->n_vals, sizeof *ex->values, "values", err));
    find_wants(pl);
    GM_TRY(place_scratch(pl, err)); /* first, and never given back */
    ex->values_off = pl->end;
    GM_TRY(place_groups(pl, err));
    ex->values_size = pl->end - ex->values_off;
    return GM_OK;
}

static gm_status place_all(placer *pl, gm_err *err)
{
    gm_exec *const ex = pl->ex;
    const gm_plan *const p = ex->plan;
    GM_TRY(find_places(pl, err));
    GM_TRY(gm_vk_share_take(ex->be, GM_VK_SHARE_VALUES, 0, pl->end, &ex->scratch, err));
    GM_TRY(gm_vk_buf_alloc(&ex->be->dev, &ex->counters, pl->arrived + pl->fronts, GM_VK_LOCAL,
                           "counters", err));
    GM_TRY(gm_vk_fill_now(&ex->be->dev, &ex->counters, 0, err));
    ex->arrived = ex->counters.addr;
    ex->fronts = ex->counters.addr + pl->arrived;
    for (gm_val v = 1; v < p->n_vals; v++) {
        relocate(ex->scratch.addr, &ex->values[v].f32);
        relocate(ex->scratch.addr, &ex->values[v].q);
        relocate(ex->scratch.addr, &ex->values[v].meta);
    }
    relocate(ex->scratch.addr, &ex->parts);
    relocate(ex->scratch.addr, &ex->wide[0]);
    relocate(ex->scratch.addr, &ex->wide[1]);
    relocate(ex->scratch.addr, &ex->halves);
    relocate(ex->scratch.addr, &ex->sums);
    relocate(ex->scratch.addr, &ex->adjusted);
    return GM_OK;
}

static void placer_deinit(placer *pl)
{
    gm_mem_free(pl->blocks);
    gm_mem_free(pl->last);
    gm_mem_free(pl->f32);
    gm_mem_free(pl->n_int8);
}

gm_status gm_vk_values_place(gm_exec *ex, gm_err *err)
{
    placer pl = {.ex = ex};
    const gm_status status = place_all(&pl, err);
    placer_deinit(&pl);
    return status;
}

gm_status gm_vk_values_size_of(gm_exec *ex, uint64_t *scratch, uint64_t *counters, gm_err *err)
{
    placer pl = {.ex = ex};
    const gm_status status = find_places(&pl, err);
    *scratch = pl.end;
    *counters = pl.arrived + pl.fronts;
    placer_deinit(&pl);
    gm_mem_free(ex->values);
    ex->values = NULL;
    return status;
}
