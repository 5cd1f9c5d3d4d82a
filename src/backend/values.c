/* SPDX-License-Identifier: MIT */
#include "backend/values.h"

#include "base/mem.h"

/* The last op that reads a value; outputs are read after the last op. */
static size_t last_use(const gm_plan *p, gm_val v)
{
    size_t last = p->vals[v].op;
    for (size_t i = last; i < p->n_ops; i++) {
        if (p->ops[i].in[0] != v && p->ops[i].in[1] != v) continue;
        if (p->ops[i].kind == GM_OP_OUTPUT) return p->n_ops;
        last = i;
    }
    return last;
}

/* A free buffer of the value's shape, or a new one; its index goes to *at. */
static gm_status buf_take(gm_values *v, const gm_valinfo *val, gm_bucket bucket, size_t *at,
                          gm_err *err)
{
    for (size_t i = 0; i < v->n_bufs; i++) {
        gm_valuebuf *const b = &v->bufs[i];
        if (b->busy || b->rows != val->rows || b->cols != val->cols) continue;
        b->busy = true;
        *at = i;
        return GM_OK;
    }
    GM_TRY(gm_mem_grow(&v->bufs, &v->cap_bufs, v->n_bufs + 1, sizeof *v->bufs, "buffers", err));
    gm_valuebuf b = {.rows = val->rows, .cols = val->cols, .busy = true};
    const uint64_t rows = val->rows == GM_ROWS_ALL ? bucket.rows : bucket.outs;
    GM_TRY(gm_mem_alloc(&b.data, rows * val->cols, sizeof *b.data, "a value of the plan", err));
    *at = v->n_bufs;
    v->bufs[v->n_bufs++] = b;
    return GM_OK;
}

/* held and dies, by value: its buffer, and the op after which that is free. */
static gm_status place(gm_values *v, const gm_plan *p, gm_bucket bucket, size_t *held,
                       const size_t *dies, gm_err *err)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        if (op->out && op->kind != GM_OP_CACHE) {
            GM_TRY(buf_take(v, &p->vals[op->out], bucket, &held[op->out], err));
            v->at[op->out] = v->bufs[held[op->out]].data;
        }
        for (int k = 0; k < 2; k++) {
            const gm_val in = op->in[k];
            if (in && v->at[in] && dies[in] == i) v->bufs[held[in]].busy = false;
        }
    }
    return GM_OK;
}

static gm_status place_taps(gm_values *v, const gm_plan *p, gm_err *err)
{
    uint32_t n = 0;
    GM_TRY(gm_mem_alloc(&v->taps, p->n_taps, sizeof *v->taps, "taps", err));
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        if (op->kind == GM_OP_OUTPUT && op->what == GM_OUT_TAP) v->taps[n++] = v->at[op->in[0]];
    }
    return GM_OK;
}

gm_status gm_values_init(gm_values *v, const gm_plan *p, gm_bucket bucket, gm_err *err)
{
    size_t *held = NULL, *dies = NULL;
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_mem_alloc(&v->at, p->n_vals, sizeof *v->at, "values", err));
    GM_TRY_DONE(gm_mem_alloc(&held, p->n_vals, sizeof *held, "values", err));
    GM_TRY_DONE(gm_mem_alloc(&dies, p->n_vals, sizeof *dies, "values", err));
    for (gm_val i = 1; i < p->n_vals; i++)
        dies[i] = last_use(p, i);
    GM_TRY_DONE(place(v, p, bucket, held, dies, err));
    status = place_taps(v, p, err);
done:
    gm_mem_free(held);
    gm_mem_free(dies);
    return status;
}

void gm_values_deinit(gm_values *v)
{
    for (size_t i = 0; i < v->n_bufs; i++)
        gm_mem_free(v->bufs[i].data);
    gm_mem_free(v->bufs);
    gm_mem_free(v->at);
    gm_mem_free(v->taps);
    *v = (gm_values){0};
}
