/* SPDX-License-Identifier: MIT */
/* Calibration runs a plan of its own (gm_plan_tap_products): the model's, without the
 * head, whose taps are the inputs of all products. A step brings back its rows of every
 * tap, whatever the backend; here only their squares are summed, in float64 and in the
 * order of the text. Rows of a step are few enough that the taps of all layers fit into
 * a fixed amount of memory (gm_reader_rows).
 *
 * Every row counts alike, whatever its size: it is brought to a mean square of 1 first.
 * Gemma 3 has a norm behind each product, so that an error matters as a share of its row,
 * and the rows that ffn_down is multiplied with differ in size by a factor of ten and more. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "toolbox/importance.h"
#include "toolbox/reader.h"

/* One tap: the sums of the squares of its columns are a piece of the list of all. */
typedef struct tap {
    gm_val val;
    uint32_t cols;
    double *sums; /* [cols] */
} tap;

typedef struct calibration {
    const gm_model *m;
    gm_calibrate_opts opts;
    gm_plan plan;
    gm_pages pages;
    gm_reader reader;
    tap *taps; /* [plan.n_taps] */
    double *sums;
    uint64_t n_cols; /* of all taps */
} calibration;

static gm_status make_plan(calibration *c, gm_err *err)
{
    gm_plan_tap_products(&c->plan, &c->m->plan);
    GM_TRY(gm_plan_finish(&c->plan, err));
    const gm_op *const first = c->plan.ops + c->plan.n_ops - c->plan.n_taps;
    GM_TRY(gm_mem_alloc(&c->taps, c->plan.n_taps, sizeof *c->taps, "taps", err));
    for (uint32_t i = 0; i < c->plan.n_taps; i++) {
        const gm_val v = first[i].in[0];
        c->taps[i] = (tap){.val = v, .cols = c->plan.vals[v].cols};
        c->n_cols += c->taps[i].cols;
    }
    GM_TRY(gm_mem_alloc(&c->sums, c->n_cols, sizeof *c->sums, "sums", err));
    double *at = c->sums;
    for (uint32_t i = 0; i < c->plan.n_taps; at += c->taps[i++].cols)
        c->taps[i].sums = at;
    return GM_OK;
}

static void add_rows(const tap *t, const float *rows, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++, rows += t->cols) {
        double size = 0;
        for (uint32_t i = 0; i < t->cols; i++)
            size += (double)rows[i] * (double)rows[i] / (double)t->cols;
        for (uint32_t i = 0; i < t->cols && size != 0; i++)
            t->sums[i] += (double)rows[i] * (double)rows[i] / size;
    }
}

static gm_status read_text(calibration *c, gm_err *err)
{
    const gm_calibrate_opts *const o = &c->opts;
    const uint32_t rows = gm_reader_rows(c->n_cols * sizeof(float));
    GM_TRY(gm_reader_init(&c->reader, c->m, &o->engine,
                          &(gm_place_cfg){.plan = &c->plan, .rows = rows}, err));
    GM_TRY(gm_pages_init(&c->pages, c->m, (gm_str){o->text, o->len}, c->reader.place.n_ctx, err));
    uint64_t size = 0, done = 0;
    for (uint32_t i = 0; i < c->m->n_tensors; i++)
        size += c->m->tensors[i].size;
    const uint64_t total = size * gm_pages_steps(&c->pages, rows);
    for (uint32_t at = 0, n; (n = gm_pages_chunk(&c->pages, at, rows)); at += n) {
        gm_result r;
        GM_TRY(gm_reader_read(&c->reader, &c->pages, at, n, 0, &r, err));
        for (uint32_t i = 0; i < c->plan.n_taps; i++)
            add_rows(&c->taps[i], r.taps[i], n);
        done += size;
        if (o->progress && o->progress(o->progress_ctx, done, total))
            return gm_fail(err, GM_E_CANCEL, 0, "calibrate: cancelled");
    }
    return GM_OK;
}

/* ---- from sums to importance ----------------------------------------------------------- */

/* A weight that is multiplied with what the tap saw. Views of a fused tensor have one name. */
static gm_status add_weight(const calibration *c, const tap *t, const gm_tensor *w,
                            gm_importance *imp, gm_err *err)
{
    float *values = NULL;
    if (gm_importance_find(imp, w->name, t->cols)) return GM_OK;
    GM_TRY(gm_importance_add(imp, w->name, t->cols, &values, err));
    for (uint32_t i = 0; i < t->cols; i++) {
        values[i] = (float)(t->sums[i] / (double)c->pages.ids.n);
        if (isfinite(values[i])) continue;
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: column %" PRIu32 " of what tensor %s is multiplied with is no number",
                       c->m->file->path, i, w->name);
    }
    return GM_OK;
}

static gm_status add_tap(const calibration *c, const tap *t, gm_importance *imp, gm_err *err)
{
    const gm_plan *const p = &c->m->plan;
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        for (uint32_t k = 0; k < gm_op_products(op) && op->in[0] == t->val; k++)
            GM_TRY(add_weight(c, t, &p->weights.at[op->weight[k]], imp, err));
    }
    return GM_OK;
}

static gm_status calibrate(calibration *c, gm_importance **out, gm_err *err)
{
    GM_TRY(make_plan(c, err));
    GM_TRY(read_text(c, err));
    GM_TRY(gm_importance_make(out, c->m->n_tensors, err));
    for (uint32_t i = 0; i < c->plan.n_taps; i++)
        GM_TRY(add_tap(c, &c->taps[i], *out, err));
    return GM_OK;
}

/* ---- from outside ---------------------------------------------------------------------- */

gm_calibrate_opts gm_calibrate_opts_default(void)
{
    return (gm_calibrate_opts){.size = sizeof(gm_calibrate_opts),
                               .engine = gm_engine_opts_default()};
}

gm_status gm_calibrate(gm_importance **out, const gm_model *m, const gm_calibrate_opts *opts,
                       gm_err *err)
{
    calibration c = {.m = m, .opts = gm_calibrate_opts_default()};
    *out = NULL;
    memcpy(&c.opts, opts, opts->size < sizeof c.opts ? opts->size : sizeof c.opts);
    c.opts.engine.n_slots = 1;
    const gm_status status = calibrate(&c, out, err);
    gm_reader_deinit(&c.reader);
    gm_pages_deinit(&c.pages);
    gm_plan_deinit(&c.plan);
    gm_mem_free(c.taps);
    gm_mem_free(c.sums);
    if (status != GM_OK) {
        gm_importance_free(*out);
        *out = NULL;
    }
    return status;
}
