/* SPDX-License-Identifier: MIT */
/* A target runs everything twice, first with NaNs for input. Whatever it keeps from
 * there (value buffers, cells of the cache that no row should see yet) and reads again
 * shows as NaN in the second run. */

#include "check/opcheck.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fp16.h"
#include "base/mem.h"
#include "check/opmade.h"

#define N_SLOTS 2u

struct gm_opcheck {
    gm_opmade made;
    float *want; /* [rows, cols], once has_want */
    float *got;  /* [rows, cols]                */
    bool has_want;
};

static gm_status make(gm_opcheck *o, const gm_opcase *c, uint64_t seed, gm_err *err)
{
    GM_TRY(gm_opmade_init(&o->made, c, seed, err));
    const size_t n_out = (size_t)c->rows * o->made.cols;
    GM_TRY(gm_mem_alloc(&o->want, n_out, sizeof *o->want, "results", err));
    return gm_mem_alloc(&o->got, n_out, sizeof *o->got, "results", err);
}

gm_status gm_opcheck_open(gm_opcheck **out, const gm_opcase *c, uint64_t seed, gm_err *err)
{
    *out = NULL;
    if (c->rows == 0 || c->n_in == 0)
        return gm_fail(err, GM_E_ARG, 0, "opcheck: a case without rows or columns");
    gm_opcheck *o = NULL;
    GM_TRY(gm_mem_alloc(&o, 1, sizeof *o, "a case", err));
    const gm_status status = make(o, c, seed, err);
    if (status == GM_OK)
        *out = o;
    else
        gm_opcheck_close(o);
    return status;
}

void gm_opcheck_close(gm_opcheck *o)
{
    if (!o) return;
    gm_opmade_deinit(&o->made);
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
    const uint8_t class = (uint8_t)gm_opmade_attn(c).class;
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
    const gm_opcase *const c = &o->made.c;
    *s = (session){.ops = t->ops, .be = t->be, .borrowed = t->be != NULL};
    s->chunk = t->chunk && t->chunk < c->rows ? t->chunk : c->rows;
    s->table_len = (c->rows / N_SLOTS + GM_PAGE_LEN) / GM_PAGE_LEN;
    if (!s->be) GM_TRY(s->ops->open(&s->be, &t->cfg, err));
    GM_TRY(s->ops->load(s->be, &o->made.plan.weights, NULL, &s->w, err));
    if (has_slots(c)) GM_TRY(open_kv(s, c, err));
    const gm_bucket bucket = {s->chunk, s->chunk};
    GM_TRY(s->ops->lower(s->be, s->w, s->kv, &o->made.plan, bucket, &s->ex, err));
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
    const gm_opcase *const c = &o->made.c;
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
    } else if (!gm_step_put_given(s->step, spoil ? o->made.spoilt : o->made.x + (size_t)i * c->n_in,
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
    for (uint32_t i = first; i < o->made.c.rows && i < first + s->chunk; i++)
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
    if (o->made.c.kind == GM_OP_DRAW) {
        row[0] = (float)from->token;
        row[1] = from->logprob;
    } else if (from->hidden) {
        memcpy(row, from->hidden, o->made.cols * sizeof *row);
    }
}

/* Every row, step after step, into out [rows, cols]. */
static gm_status run_rows(const gm_opcheck *o, session *s, bool spoil, float *out, gm_err *err)
{
    for (size_t i = 0; i < (size_t)o->made.c.rows * o->made.cols; i++)
        out[i] = NAN;
    for (uint32_t first = 0; first < o->made.c.rows; first += s->chunk) {
        gm_result r = {0};
        GM_TRY(fill_step(o, s, first, spoil, err));
        GM_TRY(run_step(s, &r, err));
        for (uint32_t i = 0; i < r.n_out; i++) {
            put_answer(o, &r.out[i], out + (size_t)(first + i) * o->made.cols);
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
    const gm_opcheck_target ref = {.ops = gm_backend_find(o->made.c.reference)};
    if (o->has_want) return GM_OK;
    if (!ref.ops)
        return gm_fail(err, GM_E_ARG, 0, "opcheck: there is no backend %s", o->made.c.reference);
    GM_TRY(run_target(o, &ref, o->want, err));
    o->has_want = true;
    return GM_OK;
}

/* ---- judging --------------------------------------------------------------------------- */

/* What a difference is measured by: the row's largest value; of products that have few in a row,
 * which may all come out near 0, that of all rows. A soft cap's is the cap, and where gelu has made a
 * whole row 0 it may be 0 to 20 digits. Tokens are the same or not. */
static double magnitude(const gm_opcheck *o, const float *want)
{
    const uint32_t cols = o->made.cols;
    const bool few = o->made.c.kind == GM_OP_MATMUL && cols < 4;
    const float *const of = few ? o->want : want;
    double most = o->made.c.kind == GM_OP_GATE_UP_GELU ? 1e-20 : 0;
    if (o->made.c.kind == GM_OP_DRAW) return 1;
    if (o->made.c.kind == GM_OP_SOFTCAP) return (double)o->made.plan.ops[1].scale;
    for (uint32_t i = 0; i < (few ? o->made.c.rows * cols : cols); i++)
        most = fmax(most, fabs((double)of[i]));
    return most;
}

static void judge_row(const gm_opcheck *o, uint32_t row, gm_opcheck_result *r)
{
    const float *const want = o->want + (size_t)row * o->made.cols;
    const float *const got = o->got + (size_t)row * o->made.cols;
    const double most = magnitude(o, want);
    for (uint32_t i = 0; i < o->made.cols; i++) {
        const uint32_t bits = gm_f32_bits(got[i]);
        const bool same = bits == gm_f32_bits(want[i]);
        double worst = same ? 0 : fabs((double)got[i] - (double)want[i]) / most;
        if (!isfinite(got[i]) || !isfinite(want[i]) || isnan(worst)) worst = INFINITY;
        r->hash = (r->hash ^ bits) * 0x100000001B3u;
        if (o->made.c.bound > 0 ? worst > o->made.c.bound : !same || isinf(worst))
            r->passed = false;
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
    for (uint32_t i = 0; i < o->made.c.rows; i++)
        judge_row(o, i, r);
    return GM_OK;
}

/* ---- timing ---------------------------------------------------------------------------- */

/* Bytes that the session's step reads, and its operations. */
static void work_of(const gm_opcheck *o, const session *s, double *bytes, double *ops)
{
    const gm_opcase *const c = &o->made.c;
    const double rows = s->step->n_rows;
    *bytes = *ops = 0;
    for (uint32_t i = 0; i < o->made.n_weights; i++) {
        *bytes += (double)o->made.tensors[i].size;
        *ops += 2 * rows * (double)gm_tensor_rows(&o->made.tensors[i]) *
                (double)gm_tensor_cols(&o->made.tensors[i]);
    }
    if (!s->kv) return;
    uint64_t row_size = 0;
    const uint32_t class = gm_opmade_attn(c).class;
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
