/* SPDX-License-Identifier: MIT */
/* Tensors are paired by what the model uses them for, not by name, so that a fused
 * attn_qkv meets its three parts and an untied head meets the embedding. Compared is
 * what a weight does: a norm with its offset, the norm of queries with the scale of
 * attention, which a converter may have folded into it.
 *
 * Workers take blocks of rows. A block's sums are kept by themselves and added in order
 * at the end, so the result does not depend on who took what. */

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "toolbox/compare.h"

#define BLOCK_ROWS 16

/* What is added to a tensor's values, and what they are multiplied with then. */
typedef struct view {
    const gm_tensor *t;
    float add, times;
} view;

typedef struct pair {
    view of[2];
    double error;
    uint32_t index; /* in the model's order */
} pair;

typedef struct sums {
    double difference, size; /* of squares */
} sums;

typedef struct weights {
    pair *pairs;
    uint32_t n;
    const pair *now; /* being compared */
    gm_tasks tasks;
    sums *blocks;  /* [blocks of now] */
    float *rows;   /* [workers, 2, widest] */
    size_t widest; /* row */
} weights;

/* ---- pairs ----------------------------------------------------------------------------- */

static view matrix_of(const gm_model *m, gm_wid w)
{
    return (view){&m->tensors[w], 0, 1};
}

static view norm_of(const gm_model *m, const gm_norm *n, float times)
{
    return (view){&m->tensors[n->weight], n->offset, times};
}

static void add(weights *w, view a, view b)
{
    w->pairs[w->n] = (pair){.of = {a, b}, .index = w->n};
    w->n++;
    if (gm_tensor_cols(a.t) > w->widest) w->widest = gm_tensor_cols(a.t);
}

static void add_layer(weights *w, const gm_model *const m[2], uint32_t l)
{
    static const size_t matrices[] = {
        offsetof(gm_layer, wq),     offsetof(gm_layer, wk),   offsetof(gm_layer, wv),
        offsetof(gm_layer, wo),     offsetof(gm_layer, w_up), offsetof(gm_layer, w_gate),
        offsetof(gm_layer, w_down),
    };
    static const size_t norms[] = {
        offsetof(gm_layer, attn_norm), offsetof(gm_layer, attn_post_norm),
        offsetof(gm_layer, ffn_norm),  offsetof(gm_layer, ffn_post_norm),
        offsetof(gm_layer, k_norm),
    };
    const gm_layer *const a = &m[0]->layers[l], *const b = &m[1]->layers[l];
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        const size_t at = matrices[i];
        add(w, matrix_of(m[0], *(const gm_wid *)((const char *)a + at)),
            matrix_of(m[1], *(const gm_wid *)((const char *)b + at)));
    }
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        const size_t at = norms[i];
        add(w, norm_of(m[0], (const gm_norm *)((const char *)a + at), 1),
            norm_of(m[1], (const gm_norm *)((const char *)b + at), 1));
    }
    add(w, norm_of(m[0], &a->q_norm, a->attn.scale), norm_of(m[1], &b->q_norm, b->attn.scale));
}

static void add_all(weights *w, const gm_model *const m[2])
{
    add(w, matrix_of(m[0], m[0]->embed), matrix_of(m[1], m[1]->embed));
    if (m[0]->head != m[0]->embed || m[1]->head != m[1]->embed)
        add(w, matrix_of(m[0], m[0]->head), matrix_of(m[1], m[1]->head));
    for (uint32_t l = 0; l < m[0]->config.n_layer; l++)
        add_layer(w, m, l);
    add(w, norm_of(m[0], &m[0]->out_norm, 1), norm_of(m[1], &m[1]->out_norm, 1));
}

/* ---- comparing ------------------------------------------------------------------------- */

/* Rows that both have: of two embeddings one may have rows for padding. */
static uint32_t rows_of(const pair *p)
{
    const uint64_t a = gm_tensor_rows(p->of[0].t), b = gm_tensor_rows(p->of[1].t);
    return (uint32_t)(a < b ? a : b);
}

static uint32_t blocks_of(const pair *p)
{
    return (rows_of(p) + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static void expand_row(const view *v, uint32_t row, float *out)
{
    const size_t n = gm_tensor_cols(v->t);
    gm_qtype_expand(v->t->type, v->t->data + row * gm_tensor_row_size(v->t), n, out);
    for (size_t i = 0; i < n; i++)
        out[i] = v->times * (out[i] + v->add);
}

static void compare_rows(void *ctx, uint32_t worker)
{
    weights *const w = ctx;
    const pair *const p = w->now;
    const size_t cols = gm_tensor_cols(p->of[0].t);
    float *const a = w->rows + 2 * worker * w->widest, *const b = a + w->widest;
    for (uint32_t block; gm_tasks_take(&w->tasks, blocks_of(p), 1, &block);) {
        sums s = {0};
        const uint32_t first = block * BLOCK_ROWS, left = rows_of(p) - first;
        for (uint32_t r = 0; r < BLOCK_ROWS && r < left; r++) {
            expand_row(&p->of[0], first + r, a);
            expand_row(&p->of[1], first + r, b);
            for (size_t i = 0; i < cols; i++) {
                const double x = (double)a[i], d = x - (double)b[i];
                s.difference += d * d;
                s.size += x * x;
            }
        }
        w->blocks[block] = s;
    }
}

static double compare_pair(weights *w, pair *p, gm_workers *workers)
{
    w->now = p;
    atomic_store(&w->tasks.next, 0);
    gm_workers_run(workers, compare_rows, w);
    sums s = {0};
    for (uint32_t i = 0; i < blocks_of(p); i++) {
        s.difference += w->blocks[i].difference;
        s.size += w->blocks[i].size;
    }
    if (s.difference == 0) return 0;
    const double error = sqrt(s.difference / s.size);
    return isnan(error) ? INFINITY : error;
}

static int by_error(const void *a, const void *b)
{
    const pair *const x = a, *const y = b;
    if (x->error != y->error) return x->error < y->error ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static gm_status compare_all(gm_compare *c, weights *w, gm_err *err)
{
    for (uint32_t i = 0; i < w->n; i++) {
        pair *const p = &w->pairs[i];
        p->error = compare_pair(w, p, c->workers);
        GM_TRY(gm_compare_tell(c, p->of[0].t->size + p->of[1].t->size, err));
    }
    qsort(w->pairs, w->n, sizeof *w->pairs, by_error);
    gm_compare_result *const r = c->result;
    for (uint32_t i = 0; i < w->n && i < c->opts.n_worst && w->pairs[i].error > 0; i++) {
        const pair *const p = &w->pairs[i];
        r->worst[r->n_worst++] =
            (gm_compare_tensor){.name = p->of[0].t->name,
                                .type = {p->of[0].t->type->name, p->of[1].t->type->name},
                                .error = p->error};
    }
    return GM_OK;
}

gm_status gm_compare_weights(gm_compare *c, gm_err *err)
{
    weights w = {0};
    gm_status status = GM_OK;
    const size_t most = 3 + 13 * (size_t)c->model[0]->config.n_layer;
    GM_TRY_DONE(gm_mem_alloc(&w.pairs, most, sizeof *w.pairs, "pairs of tensors", err));
    add_all(&w, c->model);
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < w.n; i++) {
        if (blocks_of(&w.pairs[i]) > n_blocks) n_blocks = blocks_of(&w.pairs[i]);
    }
    GM_TRY_DONE(gm_mem_alloc(&w.blocks, n_blocks, sizeof *w.blocks, "sums", err));
    GM_TRY_DONE(gm_mem_alloc(&w.rows, 2 * (size_t)gm_workers_n(c->workers),
                             w.widest * sizeof *w.rows, "rows", err));
    status = compare_all(c, &w, err);
done:
    gm_mem_free(w.pairs);
    gm_mem_free(w.blocks);
    gm_mem_free(w.rows);
    return status;
}
