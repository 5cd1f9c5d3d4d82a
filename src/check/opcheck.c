/* SPDX-License-Identifier: MIT */
/* A case becomes a plan: rows that the step brings -> the op -> picked rows -> output.
 * Where an op wants more inputs than one (the other side of an addition, keys, values),
 * they are the same columns in another order, by a product with ones and zeros: exact in
 * every arithmetic, so that what is compared is the op and nothing before it.
 *
 * A target runs everything twice, first with NaNs for input. Whatever it keeps from
 * there (value buffers, cells of the cache that no row should see yet) and reads again
 * shows as NaN in the second run. */

#include "check/opcheck.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fp16.h"
#include "base/mem.h"
#include "quant/noise.h"

#define N_SLOTS 2u

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

#define DRAW_COLS 2 /* a token, and its log-probability */

struct gm_opcheck {
    gm_opcase c;
    uint64_t seed;
    gm_plan plan;
    gm_tensor tensors[N_WEIGHTS];
    uint8_t *bytes[N_WEIGHTS];
    uint32_t n_weights;
    uint32_t cols; /* of the output                          */
    float *x;      /* [rows, n_in]                           */
    float *spoilt; /* [n_in] NaNs                            */
    float *want;   /* [rows, cols], once has_want            */
    float *got;    /* [rows, cols]                           */
    bool has_want;
};

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
static gm_status add_weight(gm_opcheck *o, gm_qtype type, uint32_t rows, uint32_t cols,
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
    GM_TRY(gm_mem_alloc(&o->bytes[o->n_weights], size + 1, 1, "weights", err));
    *data = o->bytes[o->n_weights] + 1;
    o->tensors[o->n_weights] = (gm_tensor){
        .name = names[o->n_weights],
        .type = info,
        .n_dims = rows ? 2 : 1,
        .shape = {rows ? rows : cols, cols},
        .data = *data,
        .size = size,
    };
    o->plan.weights = (gm_tensors){.at = o->tensors, .n = ++o->n_weights};
    return GM_OK;
}

static gm_status add_random(gm_opcheck *o, uint32_t rows, uint32_t cols, float mean, gm_err *err)
{
    const bool vector = rows == 0;
    uint8_t *data = NULL;
    GM_TRY(add_weight(o, vector ? GM_QTYPE_F32 : o->c.type, rows, cols, &data, err));
    const gm_tensor *const t = &o->tensors[o->n_weights - 1];
    const gm_noise noise = {
        .type = t->type,
        .law = {mean, vector ? 0.1 : 1.0 / cols},
        .key = o->seed + o->n_weights,
    };
    gm_noise_fill(&noise, 0, t->size, data);
    for (uint32_t i = 0; i < rows; i++) {
        uint8_t *const row = data + i * gm_tensor_row_size(t);
        if (o->c.dist == GM_OPDIST_MAX) row_to_max(t, i % 2 ? 0x00 : 0xFF, row);
        if (o->c.dist == GM_OPDIST_DENORMAL) row_to_denormal(t, row);
    }
    return GM_OK;
}

/* Ones and zeros, so that column i of the product is column i + shift of x. */
static gm_status add_shift(gm_opcheck *o, uint32_t n, uint32_t shift, gm_err *err)
{
    uint8_t *data = NULL;
    const float one = 1;
    GM_TRY(add_weight(o, GM_QTYPE_F32, n, o->c.n_in, &data, err));
    for (uint64_t i = 0; i < n; i++)
        memcpy(data + 4 * (i * o->c.n_in + (i + shift) % o->c.n_in), &one, 4);
    return GM_OK;
}

static gm_status make_layer_weights(gm_opcheck *o, gm_err *err)
{
    const gm_opcase *const c = &o->c;
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
        GM_TRY(add_random(o, shapes[i].rows, shapes[i].cols, shapes[i].rows ? 0 : 1, err));
    return GM_OK;
}

static gm_status make_weights(gm_opcheck *o, gm_err *err)
{
    const gm_opcase *const c = &o->c;
    const uint32_t kv_cols = c->n_kv_head * c->head_dim;
    if (c->layer) return make_layer_weights(o, err);
    switch (c->kind) {
    case GM_OP_INPUT_ROWS:
    case GM_OP_MATMUL: return add_random(o, c->n_out, c->n_in, 0, err);
    case GM_OP_GATE_UP_GELU:
        GM_TRY(add_random(o, c->n_out, c->n_in, 0, err));
        return add_random(o, c->n_out, c->n_in, 0, err);
    case GM_OP_NORM: return add_random(o, 0, c->n_in, 1, err);
    case GM_OP_NORM_ADD:
        GM_TRY(add_random(o, 0, c->n_in, 1, err));
        return add_shift(o, c->n_in, 1, err);
    case GM_OP_NORM_ROPE: return add_random(o, 0, c->head_dim, 0, err);
    case GM_OP_ATTEND:
        GM_TRY(add_shift(o, kv_cols, 1, err));
        return add_shift(o, kv_cols, c->n_in / 2, err);
    default: return GM_OK;
    }
}

static gm_attn attn_of(const gm_opcase *c)
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
    const gm_attn attn = attn_of(c);
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
    const gm_attn attn = attn_of(c);
    const gm_val k = gm_op_matmul(p, x, 0), v = gm_op_matmul(p, x, 1);
    return gm_op_attend(p, x, gm_op_cache(p, 0, k, v, &attn), &attn);
}

static gm_status make_plan(gm_opcheck *o, gm_err *err)
{
    gm_plan *const p = &o->plan;
    const gm_opcase *const c = &o->c;
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
    o->cols = c->kind == GM_OP_DRAW ? DRAW_COLS : p->vals[y].cols;
    return GM_OK;
}

static gm_status make(gm_opcheck *o, gm_err *err)
{
    const gm_opcase *const c = &o->c;
    GM_TRY(make_weights(o, err));
    GM_TRY(make_plan(o, err));
    const size_t n_out = (size_t)c->rows * o->cols;
    GM_TRY(gm_mem_alloc(&o->x, (size_t)c->rows * c->n_in, sizeof *o->x, "inputs", err));
    GM_TRY(gm_mem_alloc(&o->spoilt, c->n_in, sizeof *o->spoilt, "inputs", err));
    GM_TRY(gm_mem_alloc(&o->want, n_out, sizeof *o->want, "results", err));
    GM_TRY(gm_mem_alloc(&o->got, n_out, sizeof *o->got, "results", err));
    uint64_t state = o->seed;
    for (uint32_t i = 0; i < c->rows; i++)
        draw_row(c, i, &state, o->x + (size_t)i * c->n_in);
    for (uint32_t i = 0; i < c->n_in; i++)
        o->spoilt[i] = NAN;
    return GM_OK;
}

gm_status gm_opcheck_open(gm_opcheck **out, const gm_opcase *c, uint64_t seed, gm_err *err)
{
    *out = NULL;
    if (c->rows == 0 || c->n_in == 0)
        return gm_fail(err, GM_E_ARG, 0, "opcheck: a case without rows or columns");
    gm_opcheck *o = NULL;
    GM_TRY(gm_mem_alloc(&o, 1, sizeof *o, "a case", err));
    o->c = *c;
    o->seed = seed;
    const gm_status status = make(o, err);
    if (status == GM_OK)
        *out = o;
    else
        gm_opcheck_close(o);
    return status;
}

void gm_opcheck_close(gm_opcheck *o)
{
    if (!o) return;
    gm_plan_deinit(&o->plan);
    for (int i = 0; i < N_WEIGHTS; i++)
        gm_mem_free(o->bytes[i]);
    gm_mem_free(o->x);
    gm_mem_free(o->spoilt);
    gm_mem_free(o->want);
    gm_mem_free(o->got);
    gm_mem_free(o);
}

/* ---- running --------------------------------------------------------------------------- */

/* A target at work on a case. */
typedef struct session {
    const gm_backend_ops *ops;
    gm_backend *be;
    gm_wset *w;
    gm_kvmem *kv;
    gm_exec *ex;
    gm_step *step;
    uint32_t chunk;
    uint32_t table_len; /* pages of a sequence */
    bool borrowed;      /* be is the target's  */
} session;

/* Whether rows belong to sequences, which have slots. */
static bool has_slots(const gm_opcase *c)
{
    return c->kind == GM_OP_ATTEND || c->kind == GM_OP_DRAW;
}

static void session_close(session *s)
{
    if (s->be) {
        s->ops->drop(s->ex);
        if (s->kv) s->ops->kv_close(s->kv);
        s->ops->unload(s->w);
        if (!s->borrowed) s->ops->close(s->be);
    }
    gm_step_free(s->step);
    *s = (session){0};
}

static gm_status open_kv(session *s, const gm_opcase *c, gm_err *err)
{
    const uint8_t class = (uint8_t)attn_of(c).class;
    const gm_kv_desc desc = {
        .type = c->layer || c->kind == GM_OP_DRAW ? GM_QTYPE_F16 : c->type,
        .n_layer = 1,
        .layer_class = &class,
        .n_kv_head = c->n_kv_head ? c->n_kv_head : 1,
        .head_dim = c->head_dim ? c->head_dim : 8,
        .n_vocab = c->kind == GM_OP_DRAW ? c->n_in : 1,
        .n_slots = N_SLOTS,
        .n_pages = {N_SLOTS * s->table_len, N_SLOTS * s->table_len},
        .table_len = s->table_len,
    };
    return s->ops->kv_open(s->be, &desc, &s->kv, err);
}

/* On failure the session is half made, to be closed all the same. */
static gm_status session_open(session *s, const gm_opcheck *o, const gm_opcheck_target *t,
                              gm_err *err)
{
    const gm_opcase *const c = &o->c;
    *s = (session){.ops = t->ops, .be = t->be, .borrowed = t->be != NULL};
    s->chunk = t->chunk && t->chunk < c->rows ? t->chunk : c->rows;
    s->table_len = (c->rows / N_SLOTS + GM_PAGE_LEN) / GM_PAGE_LEN;
    if (!s->be) GM_TRY(s->ops->open(&s->be, &t->cfg, err));
    GM_TRY(s->ops->load(s->be, &o->plan.weights, NULL, &s->w, err));
    if (has_slots(c)) GM_TRY(open_kv(s, c, err));
    const gm_bucket bucket = {s->chunk, s->chunk};
    GM_TRY(s->ops->lower(s->be, s->w, s->kv, &o->plan, bucket, &s->ex, err));
    const gm_step_limits limits = {
        .rows = s->chunk,
        .segs = s->chunk,
        .outs = s->chunk,
        .edits = GM_CLASSES * N_SLOTS * s->table_len,
        .sets = N_SLOTS,
        .given = s->chunk,
        .given_cols = c->n_in,
    };
    return gm_step_alloc(&s->step, &limits, err);
}

/* Pages are dealt from the last one on, the sequences' in turn. */
static bool put_pages(session *s)
{
    bool ok = true;
    const uint32_t n = N_SLOTS * s->table_len;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t class = 0; class < GM_CLASSES; class ++) {
            const gm_page_edit edit = {i % N_SLOTS, class, i / N_SLOTS, n - 1 - i};
            ok = ok && gm_step_put_edit(s->step, &edit);
        }
    }
    return ok;
}

/* One sequence draws by chance, the other what is likeliest. */
static bool put_draws(session *s)
{
    const gm_draw draws[N_SLOTS] = {
        {.seed_lo = 11,
         .inv_temp = 1.25f,
         .log_min_p = -INFINITY,
         .repeat = 1,
         .inv_repeat = 1,
         .top_k = 40,
         .top_p = GM_DRAW_TOP_P_OFF / 10 * 9},
        {.repeat = 1, .inv_repeat = 1, .log_min_p = -INFINITY, .top_p = GM_DRAW_TOP_P_OFF},
    };
    bool ok = true;
    for (uint32_t i = 0; i < N_SLOTS; i++)
        ok = ok && gm_step_put_set(s->step, i, &draws[i], NULL, 0);
    return ok;
}

/* Row i of the case, and an output of it. */
static bool put_row(const gm_opcheck *o, session *s, uint32_t i, bool spoil)
{
    const gm_opcase *const c = &o->c;
    const bool slots = has_slots(c);
    const uint32_t at = s->step->n_rows, pos = slots ? i / N_SLOTS : 977 * i + 3;
    const uint32_t first = c->window && pos >= c->window ? pos - c->window + 1 : 0;
    gm_step_row row = {
        .kind = GM_ROW_GIVEN,
        .slot = slots ? i % N_SLOTS : 0,
        .pos = pos,
        .first = {first, first},
        .last = {pos, pos},
    };
    if (c->kind == GM_OP_INPUT_ROWS && !spoil) {
        row.kind = GM_ROW_ID;
        row.src = i * 7 % c->n_out;
    } else if (!gm_step_put_given(s->step, spoil ? o->spoilt : o->x + (size_t)i * c->n_in,
                                  &row.src)) {
        return false;
    }
    return gm_step_put_row(s->step, &row) &&
           gm_step_put_seg(s->step, &(gm_step_seg){row.slot, at, 1}) &&
           gm_step_put_out(s->step, &(gm_step_out){.row = at,
                                                   .want = c->kind == GM_OP_DRAW ? GM_WANT_DRAW
                                                                                 : GM_WANT_HIDDEN,
                                                   .mask = GM_NO_MASK});
}

/* Rows [first, first + chunk) as the session's step. */
static gm_status fill_step(const gm_opcheck *o, session *s, uint32_t first, bool spoil, gm_err *err)
{
    gm_step_clear(s->step);
    bool ok = !s->kv || first || (put_pages(s) && put_draws(s));
    for (uint32_t i = first; i < o->c.rows && i < first + s->chunk; i++)
        ok = ok && put_row(o, s, i, spoil);
    return ok ? GM_OK : gm_fail(err, GM_E_ARG, 0, "opcheck: the step is too small for its rows");
}

static gm_status run_step(session *s, gm_result *r, gm_err *err)
{
    gm_ticket t = 0;
    GM_TRY(s->ops->run(s->ex, s->step, &t, err));
    return s->ops->wait(s->be, t, r, err);
}

static void put_answer(const gm_opcheck *o, const gm_result_out *from, float *row)
{
    if (o->c.kind == GM_OP_DRAW) {
        row[0] = (float)from->token;
        row[1] = from->logprob;
    } else if (from->hidden) {
        memcpy(row, from->hidden, o->cols * sizeof *row);
    }
}

/* Every row, step after step, into out [rows, cols]. */
static gm_status run_rows(const gm_opcheck *o, session *s, bool spoil, float *out, gm_err *err)
{
    for (size_t i = 0; i < (size_t)o->c.rows * o->cols; i++)
        out[i] = NAN;
    for (uint32_t first = 0; first < o->c.rows; first += s->chunk) {
        gm_result r = {0};
        GM_TRY(fill_step(o, s, first, spoil, err));
        GM_TRY(run_step(s, &r, err));
        for (uint32_t i = 0; i < r.n_out; i++) {
            put_answer(o, &r.out[i], out + (size_t)(first + i) * o->cols);
        }
    }
    return GM_OK;
}

static gm_status run_target(const gm_opcheck *o, const gm_opcheck_target *t, float *out,
                            gm_err *err)
{
    session s;
    gm_status status = session_open(&s, o, t, err);
    if (status == GM_OK && !t->fresh) status = run_rows(o, &s, true, out, err);
    if (status == GM_OK) status = run_rows(o, &s, false, out, err);
    session_close(&s);
    return status;
}

static gm_status run_reference(gm_opcheck *o, gm_err *err)
{
    const gm_opcheck_target ref = {.ops = gm_backend_find(o->c.reference)};
    if (o->has_want) return GM_OK;
    if (!ref.ops)
        return gm_fail(err, GM_E_ARG, 0, "opcheck: there is no backend %s", o->c.reference);
    GM_TRY(run_target(o, &ref, o->want, err));
    o->has_want = true;
    return GM_OK;
}

/* ---- judging --------------------------------------------------------------------------- */

/* What a difference is measured by: the row's largest value. A soft cap's is the cap, and where
 * gelu has made a whole row 0 it may be 0 to 20 digits. Tokens are the same or not. */
static double magnitude(const gm_opcheck *o, const float *want)
{
    double most = o->c.kind == GM_OP_GATE_UP_GELU ? 1e-20 : 0;
    if (o->c.kind == GM_OP_DRAW) return 1;
    if (o->c.kind == GM_OP_SOFTCAP) return (double)o->plan.ops[1].scale;
    for (uint32_t i = 0; i < o->cols; i++)
        most = fmax(most, fabs((double)want[i]));
    return most;
}

static void judge_row(const gm_opcheck *o, uint32_t row, gm_opcheck_result *r)
{
    const float *const want = o->want + (size_t)row * o->cols;
    const float *const got = o->got + (size_t)row * o->cols;
    const double most = magnitude(o, want);
    for (uint32_t i = 0; i < o->cols; i++) {
        const uint32_t bits = gm_f32_bits(got[i]);
        const bool same = bits == gm_f32_bits(want[i]);
        double worst = same ? 0 : fabs((double)got[i] - (double)want[i]) / most;
        if (!isfinite(got[i]) || !isfinite(want[i]) || isnan(worst)) worst = INFINITY;
        r->hash = (r->hash ^ bits) * 0x100000001B3u;
        if (o->c.bound > 0 ? worst > o->c.bound : !same || isinf(worst)) r->passed = false;
        if (worst > r->worst) {
            r->worst = worst;
            r->worst_row = row;
            r->worst_col = i;
            r->got = got[i];
            r->want = want[i];
        }
    }
}

gm_status gm_opcheck_run(gm_opcheck *o, const gm_opcheck_target *t, gm_opcheck_result *r,
                         gm_err *err)
{
    *r = (gm_opcheck_result){0};
    GM_TRY(run_reference(o, err));
    GM_TRY(run_target(o, t, o->got, err));
    r->passed = true;
    for (uint32_t i = 0; i < o->c.rows; i++)
        judge_row(o, i, r);
    return GM_OK;
}

/* ---- timing ---------------------------------------------------------------------------- */

/* Bytes that the session's step reads, and its operations. */
static void work_of(const gm_opcheck *o, const session *s, double *bytes, double *ops)
{
    const gm_opcase *const c = &o->c;
    const double rows = s->step->n_rows;
    *bytes = *ops = 0;
    for (uint32_t i = 0; i < o->n_weights; i++) {
        *bytes += (double)o->tensors[i].size;
        *ops += 2 * rows * (double)gm_tensor_rows(&o->tensors[i]) *
                (double)gm_tensor_cols(&o->tensors[i]);
    }
    if (!s->kv) return;
    uint64_t row_size = 0;
    const uint32_t class = attn_of(c).class;
    (void)gm_qtype_row_size(gm_qtype_find((uint32_t)c->type), c->head_dim, &row_size);
    *bytes = *ops = 0;
    for (uint32_t i = 0; i < s->step->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(s->step)[i];
        const double seen = r->last[class] - r->first[class] + 1;
        *bytes += 2 * seen * c->n_kv_head * (double)row_size;
        *ops += 4 * seen * c->n_head * c->head_dim;
    }
}

static gm_status time_steps(const gm_opcheck *o, session *s, double seconds, gm_opcheck_speed *out,
                            gm_err *err)
{
    double bytes = 0, ops = 0, best = INFINITY;
    const double end = gm_clock_s() + seconds;
    gm_result r = {0};
    GM_TRY(run_rows(o, s, false, o->got, err));
    work_of(o, s, &bytes, &ops);
    for (; out->n_runs < 3 || gm_clock_s() < end; out->n_runs++) {
        const double begin = gm_clock_s();
        GM_TRY(run_step(s, &r, err));
        best = fmin(best, gm_clock_s() - begin);
    }
    out->us = best * 1e6;
    out->gbytes_s = bytes / best * 1e-9;
    out->gops_s = ops / best * 1e-9;
    return GM_OK;
}

gm_status gm_opcheck_time(gm_opcheck *o, const gm_opcheck_target *t, double seconds,
                          gm_opcheck_speed *out, gm_err *err)
{
    session s;
    *out = (gm_opcheck_speed){0};
    gm_status status = session_open(&s, o, t, err);
    if (status == GM_OK) status = time_steps(o, &s, seconds, out, err);
    session_close(&s);
    return status;
}
