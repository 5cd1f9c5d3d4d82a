/* SPDX-License-Identifier: MIT */
/* Building a plan. Each gm_op_* function checks its arguments, appends one op
 * and one value, and returns the value. After the first mistake p->err is set and
 * every later call returns 0, the value that is none. */

#include "plan/plan.h"

#include <inttypes.h>

#include "base/mem.h"

/* Keys of attention that are summed as one piece, by absolute position: enough pieces for every core
 * at long contexts, few enough that joining them costs nothing. */
#define KEY_SPLIT 512

static gm_val mistake(gm_plan *p, const char *what)
{
    if (p->err.code == GM_OK) gm_fail(&p->err, GM_E_ARG, 0, "plan: %s", what);
    return 0;
}

static bool is_value(gm_plan *p, gm_val v)
{
    if (v == 0 || v >= p->n_vals) mistake(p, "an op reads a value that no op made");
    return p->err.code == GM_OK;
}

static bool is_matrix(gm_plan *p, gm_val v)
{
    if (!is_value(p, v)) return false;
    if (p->vals[v].is_cache) mistake(p, "a cache stands where a matrix is wanted");
    return !p->vals[v].is_cache;
}

/* A matrix with a row for each row of the step, so that a row's position is known. */
static bool has_positions(gm_plan *p, gm_val v)
{
    if (!is_matrix(p, v)) return false;
    if (p->vals[v].rows != GM_ROWS_ALL) mistake(p, "what has positions must be of all rows");
    return p->vals[v].rows == GM_ROWS_ALL;
}

static uint32_t cols_of(const gm_plan *p, gm_val v)
{
    return p->vals[v].cols;
}

/* The weight of that index, if it is a matrix or vector of rows x cols (0: any number). */
static const gm_tensor *weight(gm_plan *p, gm_wid w, uint64_t rows, uint64_t cols)
{
    if (p->err.code != GM_OK) return NULL;
    if (w >= p->weights.n) {
        mistake(p, "an op names a weight that the model does not have");
        return NULL;
    }
    const gm_tensor *const t = &p->weights.at[w];
    const uint64_t r = gm_tensor_rows(t), c = gm_tensor_cols(t);
    if ((rows && r != rows) || (cols && c != cols) || r - 1 >= UINT32_MAX || c - 1 >= UINT32_MAX) {
        gm_fail(&p->err, GM_E_FORMAT, 0,
                "plan: tensor %s is [%" PRIu64 ", %" PRIu64 "], expected [%" PRIu64 ", %" PRIu64
                "]",
                t->name, r, c, rows ? rows : r, cols ? cols : c);
        return NULL;
    }
    return t;
}

/* Appends op, and a value of rows x cols that it makes (none for cols = 0). */
static gm_val append(gm_plan *p, gm_op op, uint32_t rows, uint32_t cols)
{
    if (p->err.code != GM_OK) return 0;
    if (gm_mem_grow(&p->ops, &p->cap_ops, p->n_ops + 1, sizeof *p->ops, "a plan", &p->err) ||
        gm_mem_grow(&p->vals, &p->cap_vals, p->n_vals + 2, sizeof *p->vals, "a plan", &p->err)) {
        return 0;
    }
    if (p->n_vals == 0) p->vals[p->n_vals++] = (gm_valinfo){0};
    if (cols) {
        op.out = (gm_val)p->n_vals;
        p->vals[p->n_vals++] = (gm_valinfo){rows, cols, (uint32_t)p->n_ops, op.kind == GM_OP_CACHE};
    }
    if (op.num.k_parts == 0) op.num.k_parts = 1;
    p->ops[p->n_ops++] = op;
    return op.out;
}

/* Quantised weights take int8 activations, plain floats take float32. Attention's products are
 * rounded twice: they are a tenth of the work of a model, and a third of its error. The feed-forward
 * part and the head, which are the other nine tenths, are rounded once (docs/PERF.md, attempt 13). */
static uint32_t act_for(const gm_tensor *w, bool once)
{
    if (!w->type->unpack) return GM_ACT_F32;
    return once ? GM_ACT_INT8 : GM_ACT_INT8_TWICE;
}

gm_val gm_op_input_rows(gm_plan *p, gm_wid embed, float scale)
{
    const gm_tensor *const w = weight(p, embed, 0, 0);
    if (!w) return 0;
    return append(p, (gm_op){.kind = GM_OP_INPUT_ROWS, .weight = {embed}, .scale = scale},
                  GM_ROWS_ALL, (uint32_t)gm_tensor_cols(w));
}

gm_val gm_op_input_given(gm_plan *p, uint32_t cols)
{
    if (cols == 0) return mistake(p, "given rows are empty");
    return append(p, (gm_op){.kind = GM_OP_INPUT_GIVEN}, GM_ROWS_ALL, cols);
}

gm_val gm_op_norm(gm_plan *p, gm_val x, const gm_norm *norm)
{
    if (!is_matrix(p, x) || !weight(p, norm->weight, 1, cols_of(p, x))) return 0;
    return append(p, (gm_op){.kind = GM_OP_NORM, .in = {x}, .norm = *norm}, p->vals[x].rows,
                  cols_of(p, x));
}

gm_val gm_op_matmul(gm_plan *p, gm_val x, gm_wid w)
{
    if (!is_matrix(p, x)) return 0;
    const gm_tensor *const t = weight(p, w, 0, cols_of(p, x));
    if (!t) return 0;
    const bool down = p->ops[p->vals[x].op].kind == GM_OP_GATE_UP_GELU;
    const bool head = p->vals[x].rows == GM_ROWS_OUT;
    const gm_op op = {
        .kind = GM_OP_MATMUL, .in = {x}, .weight = {w}, .num.act = {act_for(t, down || head)}};
    return append(p, op, p->vals[x].rows, (uint32_t)gm_tensor_rows(t));
}

gm_val gm_op_norm_rope(gm_plan *p, gm_val x, const gm_norm *norm, const gm_rope *rope)
{
    if (!has_positions(p, x)) return 0;
    const gm_tensor *const t = weight(p, norm->weight, 1, 0);
    if (!t) return 0;
    const uint64_t head_dim = gm_tensor_cols(t);
    if (head_dim % 2 || cols_of(p, x) % head_dim)
        return mistake(p, "heads to rotate must be even and fill the row");
    return append(p, (gm_op){.kind = GM_OP_NORM_ROPE, .in = {x}, .norm = *norm, .rope = *rope},
                  p->vals[x].rows, cols_of(p, x));
}

gm_val gm_op_cache(gm_plan *p, uint32_t layer, gm_val k, gm_val v, const gm_attn *attn)
{
    if (!has_positions(p, k) || !has_positions(p, v)) return 0;
    const uint32_t width = attn->n_kv_head * attn->head_dim;
    if (cols_of(p, k) != width || cols_of(p, v) != width)
        return mistake(p, "rows for the cache are not n_kv_head x head_dim wide");
    return append(p, (gm_op){.kind = GM_OP_CACHE, .layer = layer, .in = {k, v}, .attn = *attn},
                  GM_ROWS_ALL, width);
}

gm_val gm_op_attend(gm_plan *p, gm_val q, gm_val cache, const gm_attn *attn)
{
    if (!has_positions(p, q) || !is_value(p, cache)) return 0;
    if (!p->vals[cache].is_cache) return mistake(p, "attention wants a cache");
    const gm_attn *const made = &p->ops[p->vals[cache].op].attn;
    if (attn->class != made->class || attn->n_kv_head != made->n_kv_head ||
        attn->head_dim != made->head_dim)
        return mistake(p, "attention and its cache differ in class or heads");
    if (cols_of(p, q) != attn->n_head * attn->head_dim || attn->n_head % attn->n_kv_head)
        return mistake(p, "queries are not n_head x head_dim wide, or heads do not share evenly");
    const gm_op op = {.kind = GM_OP_ATTEND,
                      .layer = p->ops[p->vals[cache].op].layer,
                      .in = {q, cache},
                      .attn = *attn,
                      .num.key_split = KEY_SPLIT};
    return append(p, op, p->vals[q].rows, cols_of(p, q));
}

gm_val gm_op_norm_add(gm_plan *p, gm_val x, gm_val y, const gm_norm *norm)
{
    if (!is_matrix(p, x) || !is_matrix(p, y) || !weight(p, norm->weight, 1, cols_of(p, y)))
        return 0;
    if (cols_of(p, x) != cols_of(p, y) || p->vals[x].rows != p->vals[y].rows)
        return mistake(p, "the two sides of an addition differ in shape");
    return append(p, (gm_op){.kind = GM_OP_NORM_ADD, .in = {x, y}, .norm = *norm}, p->vals[x].rows,
                  cols_of(p, x));
}

gm_val gm_op_gate_up_gelu(gm_plan *p, gm_val x, gm_wid gate, gm_wid up)
{
    if (!is_matrix(p, x)) return 0;
    const gm_tensor *const g = weight(p, gate, 0, cols_of(p, x));
    if (!g) return 0;
    const gm_tensor *const u = weight(p, up, gm_tensor_rows(g), cols_of(p, x));
    if (!u) return 0;
    const gm_op op = {.kind = GM_OP_GATE_UP_GELU,
                      .in = {x},
                      .weight = {gate, up},
                      .num.act = {act_for(g, true), act_for(u, true)}};
    return append(p, op, p->vals[x].rows, (uint32_t)gm_tensor_rows(g));
}

gm_val gm_op_pick_rows(gm_plan *p, gm_val x)
{
    if (!is_matrix(p, x)) return 0;
    if (p->vals[x].rows != GM_ROWS_ALL) return mistake(p, "rows are picked twice");
    return append(p, (gm_op){.kind = GM_OP_PICK_ROWS, .in = {x}}, GM_ROWS_OUT, cols_of(p, x));
}

gm_val gm_op_softcap(gm_plan *p, gm_val x, float cap)
{
    if (!is_matrix(p, x)) return 0;
    if (!(cap > 0)) return mistake(p, "a soft cap must be larger than 0");
    return append(p, (gm_op){.kind = GM_OP_SOFTCAP, .in = {x}, .scale = cap}, p->vals[x].rows,
                  cols_of(p, x));
}

gm_val gm_op_draw(gm_plan *p, gm_val logits)
{
    if (!is_matrix(p, logits)) return 0;
    if (p->vals[logits].rows != GM_ROWS_OUT) return mistake(p, "tokens are drawn from picked rows");
    return append(p, (gm_op){.kind = GM_OP_DRAW, .in = {logits}}, GM_ROWS_OUT, 1);
}

void gm_op_output(gm_plan *p, uint32_t what, gm_val x)
{
    if (!is_matrix(p, x)) return;
    const gm_op op = {.kind = GM_OP_OUTPUT, .in = {x}, .what = what};
    if (what == GM_OUT_TAP) {
        append(p, op, 0, 0);
        p->n_taps++;
    } else if (p->vals[x].rows != GM_ROWS_OUT) {
        mistake(p, "an output must be of picked rows");
    } else if (what >= GM_OUTS || p->outputs[what]) {
        mistake(p, "an output is declared twice or is unknown");
    } else {
        append(p, op, 0, 0);
        p->outputs[what] = x;
    }
}

static bool has_tap(const gm_plan *p, gm_val x)
{
    for (size_t i = p->n_ops - p->n_taps; i < p->n_ops; i++) {
        if (p->ops[i].in[0] == x) return true;
    }
    return false;
}

void gm_plan_tap_products(gm_plan *p, const gm_plan *from)
{
    size_t last = from->n_ops;
    while (last > 0 && !gm_op_products(&from->ops[last - 1]))
        last--;
    p->weights = from->weights;
    for (size_t i = 0; i + 1 < last; i++) {
        const gm_op *const op = &from->ops[i];
        const gm_valinfo *const v = &from->vals[op->out];
        if (op->kind != GM_OP_OUTPUT) append(p, *op, v->rows, v->cols);
    }
    for (size_t i = 0; i < last && p->err.code == GM_OK; i++) {
        const gm_op *const op = &from->ops[i];
        if (gm_op_products(op) && !has_tap(p, op->in[0])) gm_op_output(p, GM_OUT_TAP, op->in[0]);
    }
}

/* Every value must be read by some op: a value nobody reads is a mistake in the model's text. */
static void check_used(gm_plan *p)
{
    for (gm_val v = 1; v < p->n_vals && p->err.code == GM_OK; v++) {
        bool used = false;
        for (size_t i = p->vals[v].op; i < p->n_ops && !used; i++)
            used = p->ops[i].in[0] == v || p->ops[i].in[1] == v;
        if (!used) {
            gm_fail(&p->err, GM_E_ARG, 0, "plan: the result of op %" PRIu32 " (%s) is never read",
                    p->vals[v].op, gm_opkind_name(p->ops[p->vals[v].op].kind));
        }
    }
}

gm_status gm_plan_finish(gm_plan *p, gm_err *err)
{
    if (p->n_ops == 0) mistake(p, "it has no ops");
    check_used(p);
    if (p->err.code != GM_OK) {
        if (err) *err = p->err;
        return p->err.code;
    }
    return gm_plan_fuse(p, err);
}

void gm_plan_deinit(gm_plan *p)
{
    gm_mem_free(p->ops);
    gm_mem_free(p->vals);
    gm_mem_free(p->groups);
    *p = (gm_plan){0};
}
