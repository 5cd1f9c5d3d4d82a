/* SPDX-License-Identifier: MIT */
/* The maths of each op, as one would write it on paper. Values between ops are
 * float32; inside an op sums, means and transcendental functions are float64, so
 * that what is left of rounding is the storage between ops. ref-int8 takes the ops of
 * ref_float.c instead. */

#include <inttypes.h>
#include <math.h>

#include "backend/ref/ref.h"

/* Row i of a value. */
static float *row_of(const gm_exec *ex, gm_val v, uint32_t i)
{
    return ex->values.at[v] + (size_t)i * ex->plan->vals[v].cols;
}

static uint32_t rows_of(const gm_exec *ex, gm_val v)
{
    return ex->plan->vals[v].rows == GM_ROWS_ALL ? ex->step->n_rows : ex->step->n_outs;
}

static const gm_tensor *tensor_of(const gm_exec *ex, gm_wid w)
{
    return &ex->w->tensors.at[w];
}

/* Row i of a weight, expanded to float32; valid until the next call. */
static const float *weight_row(gm_exec *ex, gm_wid w, uint64_t i)
{
    const gm_tensor *const t = tensor_of(ex, w);
    gm_qtype_expand(t->type, t->data + i * gm_tensor_row_size(t), gm_tensor_cols(t), ex->expanded);
    return ex->expanded;
}

/* y = x * (w + offset) / sqrt(mean(x^2) + eps), n values; y may be x. */
static void norm_row(const gm_exec *ex, const float *x, const float *w, const gm_norm *norm,
                     size_t n, float *y)
{
    if (ex->be->int8) {
        gm_ref_norm_f32(x, w, norm, n, y);
        return;
    }
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    const double up = 1 / sqrt(sum / (double)n + (double)norm->eps);
    for (size_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * up * ((double)w[i] + (double)norm->offset));
}

/* Rotates pairs (i, i + n/2) by angles pos / factor * theta^(-2i/n). */
static void rope_row(const gm_exec *ex, float *x, size_t n, uint32_t pos, const gm_rope *rope)
{
    const size_t half = n / 2;
    for (size_t i = 0; i < half; i++) {
        const double speed =
            pow((double)rope->theta, -(double)i / (double)half) / (double)rope->factor;
        const double c = cos(pos * speed), s = sin(pos * speed);
        const double a = (double)x[i], b = (double)x[i + half];
        if (ex->be->int8) {
            gm_ref_rotate_f32((float)c, (float)s, &x[i], &x[i + half]);
            continue;
        }
        x[i] = (float)(a * c - b * s);
        x[i + half] = (float)(b * c + a * s);
    }
}

static double gelu_tanh(double z)
{
    return 0.5 * z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
}

static gm_status input_rows(gm_exec *ex, const gm_op *op, gm_err *err)
{
    const uint32_t cols = ex->plan->vals[op->out].cols;
    for (uint32_t i = 0; i < ex->step->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(ex->step)[i];
        float *const out = row_of(ex, op->out, i);
        if (r->kind == GM_ROW_GIVEN) {
            if (r->src >= ex->step->n_given || ex->step->limits.given_cols != cols)
                return gm_fail(err, GM_E_ARG, 0, "step: row %" PRIu32 " is given but not there", i);
            memcpy(out, gm_step_given_at(ex->step, r->src), cols * sizeof *out);
            continue;
        }
        const bool by_id = op->kind == GM_OP_INPUT_ROWS;
        const int64_t id = gm_slots_token(ex->kv ? &ex->kv->slots : NULL, r);
        if (!by_id || id < 0 || (uint64_t)id >= gm_tensor_rows(tensor_of(ex, op->weight[0]))) {
            return gm_fail(err, GM_E_ARG, 0,
                           "step: row %" PRIu32 " has token %" PRId64 ", which has no embedding", i,
                           id);
        }
        const float *const w = weight_row(ex, op->weight[0], (uint64_t)id);
        for (uint32_t j = 0; j < cols; j++)
            out[j] = w[j] * op->scale;
    }
    return GM_OK;
}

/* Row i of int8, n values a row. */
static gm_act8 act8_row(const gm_exec *ex, size_t i, size_t n)
{
    return (gm_act8){ex->act8.q + i * n, ex->act8.scale + i * (n / GM_ACT_BLOCK)};
}

/* Row i of x as n_int8 rows, each of what those before it left. */
static void quantise(gm_exec *ex, const float *x, uint32_t i, size_t n, uint32_t n_int8)
{
    for (uint32_t k = 0; k < n_int8; k++) {
        const gm_act8 x8 = act8_row(ex, (size_t)i * n_int8 + k, n);
        gm_act8_quantise(x, n, &x8);
        gm_act8_rest(x, n, &x8, ex->rest);
        x = ex->rest;
    }
}

/* A row of quantised weights with the n_int8 rows of row i of x. */
static float product(const gm_exec *ex, const gm_tensor *t, size_t j, uint32_t i, uint32_t n_int8)
{
    const size_t n = gm_tensor_cols(t);
    const uint8_t *const w = t->data + j * gm_tensor_row_size(t);
    float sum = 0;
    for (uint32_t k = 0; k < n_int8; k++) {
        const gm_act8 x8 = act8_row(ex, (size_t)i * n_int8 + k, n);
        const float y = gm_dot_int8(t->type, w, &x8, n);
        sum = k ? sum + y : y;
    }
    return sum;
}

/* out = x W^T with the op's weight `which`. A row of W is expanded once for all rows of x. */
static void matmul(gm_exec *ex, const gm_op *op, int which, float *out)
{
    const gm_tensor *const t = tensor_of(ex, op->weight[which]);
    const size_t n = gm_tensor_cols(t), m = gm_tensor_rows(t);
    const uint32_t rows = rows_of(ex, op->in[0]);
    const uint32_t n_int8 = ex->be->int8 ? op->num.act[which] : 0;
    for (uint32_t i = 0; i < rows; i++)
        quantise(ex, row_of(ex, op->in[0], i), i, n, n_int8);
    for (size_t j = 0; j < m; j++) {
        const float *const w = n_int8 ? NULL : weight_row(ex, op->weight[which], j);
        for (uint32_t i = 0; i < rows; i++) {
            const float *const x = row_of(ex, op->in[0], i);
            float *const y = out + i * m + j;
            if (n_int8)
                *y = product(ex, t, j, i, n_int8);
            else
                *y = ex->be->int8 ? gm_dot_f32(w, x, n) : gm_dot_exact(w, x, n);
        }
    }
}

static void norm(gm_exec *ex, const gm_op *op)
{
    const uint32_t n = ex->plan->vals[op->out].cols;
    const bool add = op->kind == GM_OP_NORM_ADD;
    const gm_val from = add ? op->in[1] : op->in[0];
    const float *const w = weight_row(ex, op->norm.weight, 0);
    for (uint32_t i = 0; i < rows_of(ex, op->out); i++) {
        float *const out = row_of(ex, op->out, i);
        norm_row(ex, row_of(ex, from, i), w, &op->norm, n, out);
        for (uint32_t j = 0; add && j < n; j++)
            out[j] += row_of(ex, op->in[0], i)[j];
    }
}

static void norm_rope(gm_exec *ex, const gm_op *op)
{
    const uint32_t cols = ex->plan->vals[op->out].cols;
    const size_t head_dim = gm_tensor_cols(tensor_of(ex, op->norm.weight));
    const float *const w = weight_row(ex, op->norm.weight, 0);
    for (uint32_t i = 0; i < rows_of(ex, op->out); i++) {
        const uint32_t pos = gm_step_rows(ex->step)[i].pos;
        for (size_t h = 0; h < cols; h += head_dim) {
            float *const out = row_of(ex, op->out, i) + h;
            norm_row(ex, row_of(ex, op->in[0], i) + h, w, &op->norm, head_dim, out);
            rope_row(ex, out, head_dim, pos, &op->rope);
        }
    }
}

static void cache(gm_exec *ex, const gm_op *op)
{
    for (uint32_t i = 0; i < ex->step->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(ex->step)[i];
        for (uint32_t which = 0; which < 2; which++) {
            gm_ref_kv_store(ex->kv, row_of(ex, op->in[which], i),
                            gm_ref_kv_cell(ex->kv, r->slot, op->layer, r->pos, which));
        }
    }
}

const float *gm_ref_head_cell(const gm_exec *ex, const gm_refhead *h, uint32_t pos, uint32_t which)
{
    return gm_ref_kv_cell(ex->kv, h->slot, h->op->layer, pos, which) + h->kv_off;
}

static void attend_exact(gm_exec *ex, const gm_refhead *h, float *out)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t p = h->first; p <= h->last; p++) {
        const float *const k = gm_ref_head_cell(ex, h, p, 0);
        double dot = 0;
        for (uint32_t j = 0; j < h->dim; j++)
            dot += (double)h->q[j] * (double)k[j];
        ex->scores[p - h->first] = (double)h->op->attn.scale * dot;
        max = fmax(max, ex->scores[p - h->first]);
    }
    for (uint32_t p = h->first; p <= h->last; p++) {
        ex->scores[p - h->first] = exp(ex->scores[p - h->first] - max);
        sum += ex->scores[p - h->first];
    }
    memset(ex->acc, 0, h->dim * sizeof *ex->acc);
    for (uint32_t p = h->first; p <= h->last; p++) {
        const float *const v = gm_ref_head_cell(ex, h, p, 1);
        for (uint32_t j = 0; j < h->dim; j++)
            ex->acc[j] += ex->scores[p - h->first] * (double)v[j];
    }
    for (uint32_t j = 0; j < h->dim; j++)
        out[j] = (float)(ex->acc[j] / sum);
}

static void attend(gm_exec *ex, const gm_op *op)
{
    const gm_attn *const a = &op->attn;
    const uint32_t group = a->n_head / a->n_kv_head;
    for (uint32_t i = 0; i < ex->step->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(ex->step)[i];
        for (uint32_t head = 0; head < a->n_head; head++) {
            const gm_refhead h = {
                .op = op,
                .q = row_of(ex, op->in[0], i) + (size_t)head * a->head_dim,
                .dim = a->head_dim,
                .slot = r->slot,
                .kv_off = (size_t)(head / group) * a->head_dim,
                .first = r->first[a->class],
                .last = r->last[a->class],
            };
            float *const out = row_of(ex, op->out, i) + (size_t)head * a->head_dim;
            (ex->be->int8 ? gm_ref_attend_f32 : attend_exact)(ex, &h, out);
        }
    }
}

static void gate_up_gelu(gm_exec *ex, const gm_op *op)
{
    float *const gate = ex->values.at[op->out], *const up = ex->wide;
    matmul(ex, op, 0, gate);
    matmul(ex, op, 1, up);
    const size_t n = (size_t)rows_of(ex, op->out) * ex->plan->vals[op->out].cols;
    for (size_t i = 0; i < n; i++) {
        gate[i] = ex->be->int8 ? gm_ref_gelu_f32(gate[i]) * up[i]
                               : (float)(gelu_tanh((double)gate[i]) * (double)up[i]);
    }
}

static void pick_rows(gm_exec *ex, const gm_op *op)
{
    const size_t size = ex->plan->vals[op->out].cols * sizeof(float);
    for (uint32_t i = 0; i < ex->step->n_outs; i++)
        memcpy(row_of(ex, op->out, i), row_of(ex, op->in[0], gm_step_outs(ex->step)[i].row), size);
}

static void softcap(gm_exec *ex, const gm_op *op)
{
    const size_t n = (size_t)rows_of(ex, op->out) * ex->plan->vals[op->out].cols;
    const float *const x = ex->values.at[op->in[0]];
    float *const y = ex->values.at[op->out];
    const double cap = (double)op->scale;
    for (size_t i = 0; i < n; i++) {
        y[i] = ex->be->int8 ? gm_ref_softcap_f32(x[i], op->scale)
                            : (float)(cap * tanh((double)x[i] / cap));
    }
}

static void draw(gm_exec *ex, const gm_op *op)
{
    const uint32_t n = ex->plan->vals[op->in[0]].cols;
    for (uint32_t i = 0; i < ex->step->n_outs; i++) {
        const float *const logits = row_of(ex, op->in[0], i);
        const gm_answer answer = {
            .step = ex->step,
            .i = i,
            .logits = logits,
            .n = n,
            .logsum = gm_draw_logsum(logits, n),
            .scratch = &ex->draw,
            .top = ex->top + (size_t)i * GM_TOP_MAX,
        };
        gm_slots_answer(&ex->kv->slots, &answer, &ex->out[i]);
    }
}

static void output(gm_exec *ex, const gm_op *op)
{
    for (uint32_t i = 0; i < ex->step->n_outs; i++) {
        const uint32_t want = gm_step_outs(ex->step)[i].want;
        if (op->what == GM_OUT_LOGITS && want & GM_WANT_LOGITS)
            ex->out[i].logits = row_of(ex, op->in[0], i);
        if (op->what == GM_OUT_HIDDEN && want & GM_WANT_HIDDEN)
            ex->out[i].hidden = row_of(ex, op->in[0], i);
    }
}

gm_status gm_ref_op(gm_exec *ex, const gm_op *op, gm_err *err)
{
    switch (op->kind) {
    case GM_OP_INPUT_ROWS:
    case GM_OP_INPUT_GIVEN: return input_rows(ex, op, err);
    case GM_OP_NORM:
    case GM_OP_NORM_ADD: norm(ex, op); return GM_OK;
    case GM_OP_MATMUL: matmul(ex, op, 0, ex->values.at[op->out]); return GM_OK;
    case GM_OP_NORM_ROPE: norm_rope(ex, op); return GM_OK;
    case GM_OP_CACHE: cache(ex, op); return GM_OK;
    case GM_OP_ATTEND: attend(ex, op); return GM_OK;
    case GM_OP_GATE_UP_GELU: gate_up_gelu(ex, op); return GM_OK;
    case GM_OP_PICK_ROWS: pick_rows(ex, op); return GM_OK;
    case GM_OP_SOFTCAP: softcap(ex, op); return GM_OK;
    case GM_OP_DRAW: draw(ex, op); return GM_OK;
    case GM_OP_OUTPUT: output(ex, op); return GM_OK;
    default: break;
    }
    return gm_fail(err, GM_E_UNSUP, 0, "ref: op %s is not known here", gm_opkind_name(op->kind));
}
