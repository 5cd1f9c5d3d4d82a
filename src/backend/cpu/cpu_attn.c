/* SPDX-License-Identifier: MIT */
/* Attention without a matrix of scores: a running maximum, a running sum and a
 * running mix of values for each query head, page after page.
 *
 * A row's keys are cut at multiples of 512 positions into pieces. Pieces are
 * computed apart and joined in order, always by the same operations; so a long
 * context can be shared by several workers, and the result does not depend on
 * whether it was. With many rows a worker takes a whole row's head and joins as it
 * goes; with few, pieces are tasks, kept in ex->parts and joined by the next phase.
 *
 *     a piece, for a KV head and its group of query heads:
 *     max[group]  sum[group]  mix[group, len] */

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

typedef struct piece {
    float *max, *sum, *mix;
} piece;

static piece piece_at(float *at, uint32_t group)
{
    return (piece){at, at + group, at + 2 * (size_t)group};
}

static uint32_t group_of(const gm_op *op)
{
    return op->attn.n_head / op->attn.n_kv_head;
}

/* exp of one number, by the kernel that does the others. */
static float exp_of(const gm_exec *ex, float x)
{
    ex->be->k.exp_sub(&x, 1, 0);
    return x;
}

/* The queries of a KV head, padded with zeros. */
static void take_query(const gm_exec *ex, const gm_op *op, uint32_t row, uint32_t head,
                       float *query)
{
    const uint32_t group = group_of(op), len = ex->kv->len, dim = op->attn.head_dim;
    const float *const q = gm_cpu_row(ex, op->in[0], row) + (size_t)head * group * dim;
    for (uint32_t g = 0; g < group; g++) {
        memcpy(query + (size_t)g * len, q + (size_t)g * dim, dim * sizeof *q);
        memset(query + (size_t)g * len + dim, 0, (len - dim) * sizeof *q);
    }
}

/* Scores of a page become weights; the piece's maximum and sum move on. */
static void weigh(const gm_exec *ex, uint32_t group, uint32_t n, float *scores, piece *p,
                  float *keep)
{
    for (uint32_t g = 0; g < group; g++) {
        float *const s = scores + (size_t)g * GM_PAGE_LEN;
        float max = p->max[g];
        for (uint32_t i = 0; i < n; i++)
            max = s[i] > max ? s[i] : max;
        keep[g] = exp_of(ex, p->max[g] - max);
        p->sum[g] = p->sum[g] * keep[g] + ex->be->k.exp_sub(s, n, max);
        p->max[g] = max;
    }
}

/* Piece number i of a row's visible positions. */
typedef struct span {
    uint32_t n, first, last;
} span;

static span span_of(const gm_op *op, const gm_step_row *r, uint32_t i)
{
    const uint32_t split = op->num.key_split, class = op->attn.class;
    const uint32_t begin = r->first[class] / split, end = r->last[class] / split;
    span s = {.n = end - begin + 1, .first = (begin + i) * split};
    s.last = s.first + split - 1;
    if (s.first < r->first[class]) s.first = r->first[class];
    if (s.last > r->last[class]) s.last = r->last[class];
    return s;
}

/* One span of positions, by the queries in the lane. */
static void attend_piece(const gm_exec *ex, const gm_op *op, uint32_t slot, uint32_t head,
                         const span *s, gm_lane *lane, float *out)
{
    const gm_kvmem *const kv = ex->kv;
    const uint32_t group = group_of(op);
    float *const keep = lane->scores + (size_t)group * GM_PAGE_LEN;
    piece p = piece_at(out, group);
    for (uint32_t g = 0; g < group; g++)
        p.max[g] = -INFINITY;
    memset(p.sum, 0, group * (1 + (size_t)kv->len) * sizeof *p.sum);
    for (uint32_t pos = s->first; pos <= s->last; pos = (pos / GM_PAGE_LEN + 1) * GM_PAGE_LEN) {
        const uint32_t end = (pos / GM_PAGE_LEN + 1) * GM_PAGE_LEN;
        gm_kvcells cells = {
            .base = gm_cpu_kv_rows(kv, slot, op->layer, pos, 0, head),
            .stride = kv->row_size,
            .cell_first = pos % GM_PAGE_LEN,
            .n = (s->last + 1 < end ? s->last + 1 : end) - pos,
            .len = kv->len,
            .group = group,
        };
        ex->be->k.kv_scores[kv->type](&cells, lane->query, op->attn.scale, lane->scores);
        weigh(ex, group, cells.n, lane->scores, &p, keep);
        cells.base = gm_cpu_kv_rows(kv, slot, op->layer, pos, 1, head);
        ex->be->k.kv_mix[kv->type](&cells, lane->scores, keep, p.mix);
    }
}

/* Takes piece b into piece a. */
static void join(const gm_exec *ex, uint32_t group, float *a_at, float *b_at)
{
    const uint32_t len = ex->kv->len;
    const piece a = piece_at(a_at, group), b = piece_at(b_at, group);
    for (uint32_t g = 0; g < group; g++) {
        const float max = a.max[g] > b.max[g] ? a.max[g] : b.max[g];
        const float of_a = exp_of(ex, a.max[g] - max), of_b = exp_of(ex, b.max[g] - max);
        a.max[g] = max;
        a.sum[g] = a.sum[g] * of_a + b.sum[g] * of_b;
        for (uint32_t i = 0; i < len; i++) {
            const size_t at = (size_t)g * len + i;
            a.mix[at] = a.mix[at] * of_a + b.mix[at] * of_b;
        }
    }
}

static void put_out(const gm_exec *ex, const gm_op *op, uint32_t row, uint32_t head, float *at)
{
    const uint32_t group = group_of(op), dim = op->attn.head_dim;
    const piece p = piece_at(at, group);
    float *const out = gm_cpu_row(ex, op->out, row) + (size_t)head * group * dim;
    for (uint32_t g = 0; g < group; g++) {
        for (uint32_t i = 0; i < dim; i++)
            out[(size_t)g * dim + i] = p.mix[(size_t)g * ex->kv->len + i] / p.sum[g];
    }
}

static void attend_row(gm_exec *ex, const gm_op *op, uint32_t row, uint32_t head, gm_lane *lane)
{
    const gm_step_row *const r = &gm_step_rows(ex->step)[row];
    float *const whole = lane->part, *const next = lane->part + ex->part_len;
    take_query(ex, op, row, head, lane->query);
    for (uint32_t i = 0, n = 1; i < n; i++) {
        const span s = span_of(op, r, i);
        n = s.n;
        attend_piece(ex, op, r->slot, head, &s, lane, i ? next : whole);
        if (i) join(ex, group_of(op), whole, next);
    }
    put_out(ex, op, row, head, whole);
}

static float *part_at(const gm_exec *ex, const gm_op *op, uint32_t row, uint32_t head, uint32_t i)
{
    const size_t n = ((size_t)row * op->attn.n_kv_head + head) * ex->max_parts + i;
    return ex->parts + n * ex->part_len;
}

static bool is_split(const gm_exec *ex)
{
    return ex->step->n_rows <= ex->split_rows;
}

void gm_cpu_attend(gm_exec *ex, const gm_phase *ph, gm_tasks *tasks, uint32_t worker)
{
    const gm_op *const op = ph->op[0];
    gm_lane *const lane = &ex->lanes[worker];
    const uint32_t per_row = op->attn.n_kv_head * (is_split(ex) ? ex->max_parts : 1);
    uint32_t t = 0;
    while (gm_tasks_take(tasks, ex->step->n_rows * per_row, 1, &t)) {
        const uint32_t row = t / per_row;
        if (!is_split(ex)) {
            attend_row(ex, op, row, t % per_row, lane);
            continue;
        }
        const uint32_t head = t % per_row / ex->max_parts, i = t % ex->max_parts;
        const gm_step_row *const r = &gm_step_rows(ex->step)[row];
        const span s = span_of(op, r, i);
        if (i >= s.n) continue;
        take_query(ex, op, row, head, lane->query);
        attend_piece(ex, op, r->slot, head, &s, lane, part_at(ex, op, row, head, i));
    }
}

void gm_cpu_attend_join(gm_exec *ex, const gm_op *op, uint32_t row)
{
    if (!is_split(ex)) return;
    for (uint32_t head = 0; head < op->attn.n_kv_head; head++) {
        float *const whole = part_at(ex, op, row, head, 0);
        const uint32_t n = span_of(op, &gm_step_rows(ex->step)[row], 0).n;
        for (uint32_t i = 1; i < n; i++)
            join(ex, group_of(op), whole, part_at(ex, op, row, head, i));
        put_out(ex, op, row, head, whole);
    }
}
