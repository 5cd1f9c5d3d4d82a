/* SPDX-License-Identifier: MIT */
/* A case becomes a plan: rows that the step brings -> the op -> picked rows -> output.
 * Where an op wants more inputs than one (the other side of an addition, keys, values),
 * they are the same columns in another order, by a product with ones and zeros: exact in
 * every arithmetic, so that what is compared is the op and nothing before it. */

#include "check/opmade.h"

#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "base/mem.h"
#include "quant/noise.h"

/* The weights of a layer, in the order of its ops; an op alone has the first, or the first two. */
enum {
    W_NORM,
    W_Q,
    W_K,
    W_V,
    W_Q_NORM,
    W_K_NORM,
    W_OUT,
    W_POST_NORM,
    W_FFN_NORM,
    W_GATE,
    W_UP,
    W_DOWN,
    W_FFN_POST_NORM,
    N_WEIGHTS,
};
_Static_assert(N_WEIGHTS == GM_OPMADE_WEIGHTS, "a case has room for all of them");

/* ---- numbers --------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Between -1 and 1. */
static float next_signed(uint64_t *state)
{
    return (float)((int64_t)(next(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

static void draw_row(const gm_opcase *c, uint32_t row, uint64_t *state, float *x)
{
    for (uint32_t i = 0; i < c->n_in; i++) {
        const float r = next_signed(state);
        switch (c->dist) {
        case GM_OPDIST_MAX: x[i] = row % 2 ? -4 : 4; break;
        case GM_OPDIST_DENORMAL: x[i] = row % 2 ? 4 * r : r * 0x1p-126f; break;
        case GM_OPDIST_ZERO: x[i] = 0; break;
        default: x[i] = 4 * r;
        }
    }
    /* Attention squares what it is given, and takes its exponential. */
    if (c->dist == GM_OPDIST_OUTLIER && c->n_in)
        x[next(state) % c->n_in] =
            (row % 2 ? -1.0f : 1.0f) * (c->kind == GM_OP_ATTEND ? 32 : 0x1p20f);
}

/* Whether byte i of a block is part of its floats: whether they change with it. */
static bool is_float_byte(const gm_qtype_info *t, const uint8_t *block, size_t i)
{
    uint8_t other[GM_QBLOCK_MAX * sizeof(float)];
    gm_qints a, b;
    memcpy(other, block, t->block_size);
    other[i] ^= 0xFF;
    t->unpack(block, &a);
    t->unpack(other, &b);
    return gm_f32_bits(a.d) != gm_f32_bits(b.d) || gm_f32_bits(a.dmin) != gm_f32_bits(b.dmin);
}

/* Every code and sub-scale of a row becomes all ones, or all zeros. */
static void row_to_max(const gm_tensor *t, uint8_t fill, uint8_t *row)
{
    const gm_qtype_info *const q = t->type;
    for (size_t at = 0; q->unpack && at < gm_tensor_row_size(t); at += q->block_size) {
        for (size_t i = 0; i < q->block_size; i++) {
            if (!is_float_byte(q, row + at, i)) row[at + i] = fill;
        }
    }
}

/* The exponents of a row's floats become 0. Floats lie at even places, high byte last. */
static void row_to_denormal(const gm_tensor *t, uint8_t *row)
{
    const gm_qtype_info *const q = t->type;
    for (size_t at = 0; at < gm_tensor_row_size(t); at += q->block_size) {
        if (q->id == GM_QTYPE_F32 || q->id == GM_QTYPE_BF16) {
            row[at + q->block_size - 1] &= 0x80;
            row[at + q->block_size - 2] &= 0x7F;
            continue;
        }
        for (size_t i = 1; i < q->block_size; i += 2) {
            if (!q->unpack || is_float_byte(q, row + at, i)) row[at + i] &= 0x83;
        }
    }
}

/* ---- the plan -------------------------------------------------------------------------- */

/* A weight of that shape whose bytes are still to be filled; rows 0: a vector. */
static gm_status add_weight(gm_opmade *m, gm_qtype type, uint32_t rows, uint32_t cols,
                            uint8_t **data, gm_err *err)
{
    static const char *const names[N_WEIGHTS] = {"0", "1", "2", "3",  "4",  "5", "6",
                                                 "7", "8", "9", "10", "11", "12"};
    const gm_qtype_info *const info = gm_qtype_find((uint32_t)type);
    uint64_t row_size = 0;
    if (!info || !gm_qtype_row_size(info, cols, &row_size)) {
        return gm_fail(err, GM_E_ARG, 0, "opcheck: a row of %u values of %s cannot be", cols,
                       gm_qtype_name((uint32_t)type));
    }
    const uint64_t size = row_size * (rows ? rows : 1);
    /* One byte off any alignment, as a file's map may be. */
    GM_TRY(gm_mem_alloc(&m->bytes[m->n_weights], size + 1, 1, "weights", err));
    *data = m->bytes[m->n_weights] + 1;
    m->tensors[m->n_weights] = (gm_tensor){
        .name = names[m->n_weights],
        .type = info,
        .n_dims = rows ? 2 : 1,
        .shape = {rows ? rows : cols, cols},
        .data = *data,
        .size = size,
    };
    m->plan.weights = (gm_tensors){.at = m->tensors, .n = ++m->n_weights};
    return GM_OK;
}

static gm_status add_random(gm_opmade *m, uint32_t rows, uint32_t cols, float mean, gm_err *err)
{
    const bool vector = rows == 0;
    uint8_t *data = NULL;
    GM_TRY(add_weight(m, vector ? GM_QTYPE_F32 : m->c.type, rows, cols, &data, err));
    const gm_tensor *const t = &m->tensors[m->n_weights - 1];
    const gm_noise noise = {
        .type = t->type,
        .law = {mean, vector ? 0.1 : 1.0 / cols},
        .key = m->seed + m->n_weights,
    };
    gm_noise_fill(&noise, 0, t->size, data);
    for (uint32_t i = 0; i < rows; i++) {
        uint8_t *const row = data + i * gm_tensor_row_size(t);
        if (m->c.dist == GM_OPDIST_MAX) row_to_max(t, i % 2 ? 0x00 : 0xFF, row);
        if (m->c.dist == GM_OPDIST_DENORMAL) row_to_denormal(t, row);
    }
    return GM_OK;
}

/* Ones and zeros, so that column i of the product is column i + shift of x. */
static gm_status add_shift(gm_opmade *m, uint32_t n, uint32_t shift, gm_err *err)
{
    uint8_t *data = NULL;
    const float one = 1;
    GM_TRY(add_weight(m, GM_QTYPE_F32, n, m->c.n_in, &data, err));
    for (uint64_t i = 0; i < n; i++)
        memcpy(data + 4 * (i * m->c.n_in + (i + shift) % m->c.n_in), &one, 4);
    return GM_OK;
}

static gm_status make_layer_weights(gm_opmade *m, gm_err *err)
{
    const gm_opcase *const c = &m->c;
    const uint32_t d = c->n_in, ffn = c->n_out;
    const uint32_t q_cols = c->n_head * c->head_dim, kv_cols = c->n_kv_head * c->head_dim;
    const struct {
        uint32_t rows, cols;
    } shapes[N_WEIGHTS] = {
        [W_NORM] = {0, d},
        [W_Q] = {q_cols, d},
        [W_K] = {kv_cols, d},
        [W_V] = {kv_cols, d},
        [W_Q_NORM] = {0, c->head_dim},
        [W_K_NORM] = {0, c->head_dim},
        [W_OUT] = {d, q_cols},
        [W_POST_NORM] = {0, d},
        [W_FFN_NORM] = {0, d},
        [W_GATE] = {ffn, d},
        [W_UP] = {ffn, d},
        [W_DOWN] = {d, ffn},
        [W_FFN_POST_NORM] = {0, d},
    };
    for (int i = 0; i < N_WEIGHTS; i++)
        GM_TRY(add_random(m, shapes[i].rows, shapes[i].cols, shapes[i].rows ? 0 : 1, err));
    return GM_OK;
}

static gm_status make_weights(gm_opmade *m, gm_err *err)
{
    const gm_opcase *const c = &m->c;
    const uint32_t kv_cols = c->n_kv_head * c->head_dim;
    if (c->layer) return make_layer_weights(m, err);
    switch (c->kind) {
    case GM_OP_INPUT_ROWS:
    case GM_OP_MATMUL: return add_random(m, c->n_out, c->n_in, 0, err);
    case GM_OP_GATE_UP_GELU:
        GM_TRY(add_random(m, c->n_out, c->n_in, 0, err));
        return add_random(m, c->n_out, c->n_in, 0, err);
    case GM_OP_NORM: return add_random(m, 0, c->n_in, 1, err);
    case GM_OP_NORM_ADD:
        GM_TRY(add_random(m, 0, c->n_in, 1, err));
        return add_shift(m, c->n_in, 1, err);
    case GM_OP_NORM_ROPE: return add_random(m, 0, c->head_dim, 0, err);
    case GM_OP_ATTEND:
        GM_TRY(add_shift(m, kv_cols, 1, err));
        return add_shift(m, kv_cols, c->n_in / 2, err);
    default: return GM_OK;
    }
}

gm_attn gm_opmade_attn(const gm_opcase *c)
{
    return (gm_attn){
        .class = c->window ? GM_CLASS_LOCAL : GM_CLASS_GLOBAL,
        .n_head = c->n_head,
        .n_kv_head = c->n_kv_head,
        .head_dim = c->head_dim,
        .scale = 1 / sqrtf((float)c->head_dim),
    };
}

static gm_norm norm_of(uint32_t weight)
{
    return (gm_norm){weight, 1e-6f, 0};
}

/* As model/gemma3.c has it. */
static gm_val put_layer(gm_plan *p, const gm_opcase *c, gm_val x)
{
    const gm_norm in = norm_of(W_NORM), of_q = norm_of(W_Q_NORM), of_k = norm_of(W_K_NORM);
    const gm_norm post = norm_of(W_POST_NORM), ffn = norm_of(W_FFN_NORM);
    const gm_norm ffn_post = norm_of(W_FFN_POST_NORM);
    const gm_rope rope = {10000, 8};
    const gm_attn attn = gm_opmade_attn(c);
    gm_val h = gm_op_norm(p, x, &in);
    gm_val q = gm_op_matmul(p, h, W_Q), k = gm_op_matmul(p, h, W_K);
    const gm_val v = gm_op_matmul(p, h, W_V);
    q = gm_op_norm_rope(p, q, &of_q, &rope);
    k = gm_op_norm_rope(p, k, &of_k, &rope);
    const gm_val a = gm_op_attend(p, q, gm_op_cache(p, 0, k, v, &attn), &attn);
    x = gm_op_norm_add(p, x, gm_op_matmul(p, a, W_OUT), &post);
    h = gm_op_norm(p, x, &ffn);
    const gm_val f = gm_op_gate_up_gelu(p, h, W_GATE, W_UP);
    return gm_op_norm_add(p, x, gm_op_matmul(p, f, W_DOWN), &ffn_post);
}

static gm_val put_attend(gm_plan *p, const gm_opcase *c, gm_val x)
{
    const gm_attn attn = gm_opmade_attn(c);
    const gm_val k = gm_op_matmul(p, x, 0), v = gm_op_matmul(p, x, 1);
    return gm_op_attend(p, x, gm_op_cache(p, 0, k, v, &attn), &attn);
}

static gm_status make_plan(gm_opmade *m, gm_err *err)
{
    gm_plan *const p = &m->plan;
    const gm_opcase *const c = &m->c;
    const gm_norm norm = {0, 1e-6f, c->kind == GM_OP_NORM_ROPE ? 1 : 0};
    const gm_rope rope = {10000, 8};
    gm_val y = 0;
    const gm_val x =
        c->kind == GM_OP_INPUT_ROWS ? gm_op_input_rows(p, 0, 0.37f) : gm_op_input_given(p, c->n_in);
    switch (c->kind) {
    case GM_OP_INPUT_ROWS: y = x; break;
    case GM_OP_MATMUL: y = gm_op_matmul(p, x, 0); break;
    case GM_OP_GATE_UP_GELU: y = gm_op_gate_up_gelu(p, x, 0, 1); break;
    case GM_OP_NORM: y = gm_op_norm(p, x, &norm); break;
    case GM_OP_NORM_ADD: y = gm_op_norm_add(p, x, gm_op_matmul(p, x, 1), &norm); break;
    case GM_OP_NORM_ROPE: y = gm_op_norm_rope(p, x, &norm, &rope); break;
    case GM_OP_SOFTCAP: y = gm_op_softcap(p, x, 2.5f); break;
    case GM_OP_ATTEND: y = c->layer ? put_layer(p, c, x) : put_attend(p, c, x); break;
    case GM_OP_DRAW: y = x; break;
    default:
        return gm_fail(err, GM_E_UNSUP, 0, "opcheck: op %s has no cases", gm_opkind_name(c->kind));
    }
    y = gm_op_pick_rows(p, y);
    if (c->kind == GM_OP_DRAW)
        gm_op_output(p, GM_OUT_DRAW, gm_op_draw(p, y));
    else
        gm_op_output(p, GM_OUT_HIDDEN, y);
    GM_TRY(gm_plan_finish(p, err));
    m->cols = c->kind == GM_OP_DRAW ? GM_OPMADE_DRAW_COLS : p->vals[y].cols;
    return GM_OK;
}

gm_status gm_opmade_init(gm_opmade *m, const gm_opcase *c, uint64_t seed, gm_err *err)
{
    *m = (gm_opmade){.c = *c, .seed = seed};
    GM_TRY(make_weights(m, err));
    GM_TRY(make_plan(m, err));
    GM_TRY(gm_mem_alloc(&m->x, (size_t)c->rows * c->n_in, sizeof *m->x, "inputs", err));
    GM_TRY(gm_mem_alloc(&m->spoilt, c->n_in, sizeof *m->spoilt, "inputs", err));
    uint64_t state = m->seed;
    for (uint32_t i = 0; i < c->rows; i++)
        draw_row(c, i, &state, m->x + (size_t)i * c->n_in);
    for (uint32_t i = 0; i < c->n_in; i++)
        m->spoilt[i] = NAN;
    return GM_OK;
}

void gm_opmade_deinit(gm_opmade *m)
{
    gm_plan_deinit(&m->plan);
    for (int i = 0; i < N_WEIGHTS; i++)
        gm_mem_free(m->bytes[i]);
    gm_mem_free(m->x);
    gm_mem_free(m->spoilt);
    *m = (gm_opmade){0};
}
