/* SPDX-License-Identifier: MIT */
/* What two models make of the same text. Both read it at once, step for step, because
 * a row of probabilities is a megabyte: it is compared while it is there, and what is
 * kept of it are four numbers.
 *
 * With la and lb the logits, the divergence of b from a is
 *
 *     sum(p_a (log p_a - log p_b)) = sum(p_a (la - lb)) - (logsum(la) - logsum(lb))
 *
 * so one pass over both rows is enough, and equal rows give 0 to the last bit. Rows are
 * shared out among workers; sums over the text are made in its order. */

#include "toolbox/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "toolbox/reader.h"

/* Tokens of a window where nobody says: as an engine's context. */
#define MOST_CTX 4096u

/* What is kept of a token. */
typedef struct verdict {
    double kl;
    double logprob[2]; /* of the token that comes */
    bool same_top;
} verdict;

/* One step of both models. */
typedef struct reading {
    gm_reader reader[2];
    gm_pages pages;
    gm_result result[2];
    uint32_t at, n, n_vocab;
    gm_tasks tasks;
    verdict *verdicts; /* [n ids]: those of targets, in order, are the first n_verdicts */
    uint32_t n_verdicts;
    verdict *step; /* [rows] */
} reading;

gm_status gm_compare_tell(gm_compare *c, uint64_t bytes, gm_err *err)
{
    c->done += bytes;
    if (!c->opts.progress || c->opts.progress(c->opts.progress_ctx, c->done, c->total) == 0)
        return GM_OK;
    return gm_fail(err, GM_E_CANCEL, 0, "compare: cancelled");
}

/* ---- one token ------------------------------------------------------------------------- */

static uint32_t top_of(const float *x, uint32_t n)
{
    uint32_t top = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (x[i] > x[top]) top = i;
    }
    return top;
}

static verdict judge(const float *a, const float *b, uint32_t n, int32_t target)
{
    const uint32_t top_a = top_of(a, n), top_b = top_of(b, n);
    double sum_a = 0, sum_b = 0, apart = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double weight = exp((double)a[i] - (double)a[top_a]);
        sum_a += weight;
        sum_b += exp((double)b[i] - (double)b[top_b]);
        if (weight > 0) apart += weight * ((double)a[i] - (double)b[i]);
    }
    const double log_a = (double)a[top_a] + log(sum_a), log_b = (double)b[top_b] + log(sum_b);
    const double kl = apart / sum_a - (log_a - log_b);
    return (verdict){.kl = kl < 0 ? 0 : kl, /* a rounding error below equality */
                     .logprob = {(double)a[target] - log_a, (double)b[target] - log_b},
                     .same_top = top_a == top_b};
}

static void judge_rows(void *ctx, uint32_t worker)
{
    (void)worker;
    reading *const r = ctx;
    for (uint32_t i; gm_tasks_take(&r->tasks, r->n, 1, &i);) {
        const int32_t target = gm_pages_target(&r->pages, r->at + i);
        if (target == GM_NO_TOKEN) continue;
        r->step[i] =
            judge(r->result[0].out[i].logits, r->result[1].out[i].logits, r->n_vocab, target);
    }
}

/* ---- the text -------------------------------------------------------------------------- */

static gm_status read_step(gm_compare *c, reading *r, gm_err *err)
{
    for (int s = 0; s < 2; s++) {
        GM_TRY(gm_reader_read(&r->reader[s], &r->pages, r->at, r->n, GM_WANT_LOGITS, &r->result[s],
                              err));
    }
    atomic_store(&r->tasks.next, 0);
    gm_workers_run(c->workers, judge_rows, r);
    for (uint32_t i = 0; i < r->n; i++) {
        if (gm_pages_target(&r->pages, r->at + i) == GM_NO_TOKEN) continue;
        for (int s = 0; s < 2; s++) {
            if (!isnan(r->step[i].logprob[s])) continue;
            return gm_fail(err, GM_E_FORMAT, 0,
                           "%s: after token %" PRIu32 " of the text its logits are not numbers",
                           c->model[s]->file->path, r->at + i + 1);
        }
        r->verdicts[r->n_verdicts++] = r->step[i];
    }
    return GM_OK;
}

static int by_kl(const void *a, const void *b)
{
    const double x = ((const verdict *)a)->kl, y = ((const verdict *)b)->kl;
    return (x > y) - (x < y);
}

/* Of a mean of n values, as if tokens were drawn one by one. */
static double standard_error(double mean_square, double mean, double n)
{
    return sqrt(fmax(mean_square - mean * mean, 0) / n);
}

static void sum_up(const reading *r, gm_compare_result *out)
{
    const double n = r->n_verdicts;
    double log_sum[2] = {0}, kl_squares = 0, diff_squares = 0;
    out->n_tokens = r->n_verdicts;
    for (uint32_t i = 0; i < r->n_verdicts; i++) {
        const verdict *const v = &r->verdicts[i];
        log_sum[0] += v->logprob[0];
        log_sum[1] += v->logprob[1];
        out->kl_mean += v->kl / n;
        kl_squares += v->kl * v->kl / n;
        diff_squares += pow(v->logprob[0] - v->logprob[1], 2) / n;
        out->same_top += v->same_top / n;
        out->logprob_diff += fabs(v->logprob[0] - v->logprob[1]) / n;
    }
    for (int s = 0; s < 2; s++)
        out->side[s].perplexity = exp(-log_sum[s] / n);
    const double diff = (log_sum[0] - log_sum[1]) / n;
    out->ppl_ratio = exp(diff);
    out->ppl_error = out->ppl_ratio * standard_error(diff_squares, diff, n);
    out->kl_error = standard_error(kl_squares, out->kl_mean, n);
    qsort(r->verdicts, r->n_verdicts, sizeof *r->verdicts, by_kl);
    out->kl_p99 = r->verdicts[(uint32_t)ceil(0.99 * n) - 1].kl;
    out->kl_worst = r->verdicts[r->n_verdicts - 1].kl;
}

static gm_status read_text(gm_compare *c, reading *r, uint32_t rows, gm_err *err)
{
    for (int s = 0; s < 2; s++) {
        GM_TRY(gm_reader_init(&r->reader[s], c->model[s], &c->opts.engine,
                              &(gm_place_cfg){.rows = rows}, err));
    }
    GM_TRY(gm_mem_alloc(&r->verdicts, r->pages.ids.n, sizeof *r->verdicts, "verdicts", err));
    GM_TRY(gm_mem_alloc(&r->step, rows, sizeof *r->step, "verdicts", err));
    for (r->at = 0; (r->n = gm_pages_chunk(&r->pages, r->at, rows)); r->at += r->n) {
        GM_TRY(read_step(c, r, err));
        GM_TRY(gm_compare_tell(c, c->result->side[0].bytes + c->result->side[1].bytes, err));
    }
    sum_up(r, c->result);
    return GM_OK;
}

static gm_status compare(gm_compare *c, reading *r, gm_err *err)
{
    const gm_str text =
        c->opts.text ? (gm_str){c->opts.text, c->opts.len} : gm_str_c(gm_compare_text);
    const uint32_t a = gm_vocab_len(c->model[0]->vocab), b = gm_vocab_len(c->model[1]->vocab);
    r->n_vocab = a < b ? a : b; /* the larger one has padding */
    const uint32_t rows = gm_reader_rows((a < b ? b : a) * sizeof(float));
    GM_TRY(gm_pages_init(&r->pages, c->model[0], text, c->opts.engine.n_ctx, err));
    /* Once tensor by tensor, then in each step. */
    c->total = (1 + (uint64_t)gm_pages_steps(&r->pages, rows)) *
               (c->result->side[0].bytes + c->result->side[1].bytes);
    GM_TRY(gm_workers_open(&c->workers, c->opts.engine.n_threads, err));
    GM_TRY(gm_compare_weights(c, err));
    return read_text(c, r, rows, err);
}

/* ---- from outside ---------------------------------------------------------------------- */

gm_compare_opts gm_compare_opts_default(void)
{
    return (gm_compare_opts){.size = sizeof(gm_compare_opts),
                             .n_worst = GM_COMPARE_WORST,
                             .engine = gm_engine_opts_default()};
}

typedef struct shape_text {
    char text[128];
} shape_text;

static shape_text shape_of(const gm_model *m)
{
    const gm_config *const c = &m->config;
    shape_text s;
    snprintf(s.text, sizeof s.text,
             "%" PRIu32 " layers of %" PRIu32 " x %" PRIu32 " with %" PRIu32 " + %" PRIu32
             " heads of %" PRIu32,
             c->n_layer, c->n_embd, c->n_ffn, c->n_head, c->n_kv_head, c->head_dim);
    return s;
}

static gm_status check_models(const gm_model *a, const gm_model *b, gm_err *err)
{
    const shape_text shape_a = shape_of(a), shape_b = shape_of(b);
    if (strcmp(shape_a.text, shape_b.text) != 0) {
        return gm_fail(err, GM_E_ARG, 0, "compare: %s has %s, and %s has %s, expected one shape",
                       a->file->path, shape_a.text, b->file->path, shape_b.text);
    }
    if (gm_vocab_hash(a->vocab) == gm_vocab_hash(b->vocab)) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0,
                   "compare: %s has a vocabulary of %" PRIu32 " pieces, and %s another of %" PRIu32
                   ", expected the same",
                   a->file->path, gm_vocab_len(a->vocab), b->file->path, gm_vocab_len(b->vocab));
}

static void fill_side(const gm_model *m, gm_compare_side *side)
{
    uint64_t n_weights = 0;
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        side->bytes += m->tensors[i].size;
        n_weights += gm_tensor_rows(&m->tensors[i]) * gm_tensor_cols(&m->tensors[i]);
    }
    side->bits = 8.0 * (double)side->bytes / (double)n_weights;
}

/* Checks the options, and makes them those of one sequence on both. */
static gm_status read_opts(gm_compare *c, const gm_compare_opts *opts, gm_err *err)
{
    gm_compare_opts *const o = &c->opts;
    *o = gm_compare_opts_default();
    memcpy(o, opts, opts->size < sizeof *o ? opts->size : sizeof *o);
    if (o->n_worst > GM_COMPARE_WORST) {
        return gm_fail(err, GM_E_ARG, 0,
                       "compare: %" PRIu32 " tensors to name, expected at most %d", o->n_worst,
                       GM_COMPARE_WORST);
    }
    const uint32_t a = c->model[0]->config.n_ctx, b = c->model[1]->config.n_ctx;
    const uint32_t most = a < b ? a : b;
    if (o->engine.n_ctx == 0) o->engine.n_ctx = most < MOST_CTX ? most : MOST_CTX;
    if (o->engine.n_ctx < 2 || o->engine.n_ctx > most) {
        return gm_fail(err, GM_E_ARG, 0,
                       "compare: windows of %" PRIu32 " tokens, expected 2 to %" PRIu32
                       ", which the models were made for",
                       o->engine.n_ctx, most);
    }
    o->engine.n_slots = 1;
    return GM_OK;
}

gm_status gm_compare_run(const gm_model *a, const gm_model *b, const gm_compare_opts *opts,
                         gm_compare_result *out, gm_err *err)
{
    gm_compare_result full = {.size = out->size};
    gm_compare c = {.model = {a, b}, .result = &full};
    reading r = {0};
    GM_TRY(check_models(a, b, err));
    GM_TRY(read_opts(&c, opts, err));
    fill_side(a, &full.side[0]);
    fill_side(b, &full.side[1]);
    const gm_status status = compare(&c, &r, err);
    for (int s = 0; s < 2; s++)
        gm_reader_deinit(&r.reader[s]);
    gm_pages_deinit(&r.pages);
    gm_mem_free(r.verdicts);
    gm_mem_free(r.step);
    gm_workers_close(c.workers);
    if (status == GM_OK) memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
    return status;
}
