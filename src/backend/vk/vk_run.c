/* SPDX-License-Identifier: MIT */
/* An exec's life: made once with everything that a step will need, then steps go in and answers come
 * out. Running a step writes it to mapped memory and submits a recording that is there already;
 * waiting waits for the timeline and reads mapped memory. Neither allocates, records or binds.
 *
 * A recording is a number of pieces, and a submit hands over as many of them as take a tenth of a
 * second by what the exec's last step took: a prompt's 512 rows of 27B are seconds on a small GPU. One
 * submit is always under way and one behind it, so that the device does not wait for the host; the
 * others follow while their step is waited for, or at once where another step comes after. Steps of
 * answers are one submit on every device, since nobody's stream may wait for a slower one. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/clock.h"
#include "base/mem.h"

/* ---- making ---------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t n)
{
    return (n + 255) / 256 * 256;
}

static void measure(gm_exec *ex)
{
    const gm_plan *const p = ex->plan;
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        if (op->kind == GM_OP_INPUT_ROWS || op->kind == GM_OP_INPUT_GIVEN)
            ex->given_cols = p->vals[op->out].cols;
        if (op->kind == GM_OP_DRAW) ex->n_vocab = p->vals[op->in[0]].cols;
    }
    if (p->outputs[GM_OUT_LOGITS]) ex->n_vocab = p->vals[p->outputs[GM_OUT_LOGITS]].cols;
    if (p->outputs[GM_OUT_HIDDEN]) ex->hidden_cols = p->vals[p->outputs[GM_OUT_HIDDEN]].cols;
    ex->mask_words = (ex->n_vocab + 31) / 32;
    ex->max_masks = ex->bucket.outs;
    ex->rows_off = aligned(sizeof(struct gm_vk_head));
    ex->outs_off = ex->rows_off + aligned((uint64_t)ex->bucket.rows * sizeof(gm_step_row));
    ex->grids_off = ex->outs_off + aligned((uint64_t)ex->bucket.outs * sizeof(gm_step_out));
    ex->masks_off = ex->grids_off + aligned(GM_VK_GRIDS * 16);
    ex->answers_off = aligned(4);
    ex->logits_off =
        ex->answers_off + aligned((uint64_t)ex->bucket.outs * sizeof(struct gm_vk_answer));
    ex->hidden_off = ex->logits_off + aligned(4ull * ex->bucket.outs * ex->n_vocab);
}

/* Of what a step has for itself. */
static void slice_sizes(const gm_exec *ex, uint64_t size[GM_VK_SHARES])
{
    size[GM_VK_SHARE_STEP] = ex->masks_off + 4ull * ex->max_masks * ex->mask_words;
    size[GM_VK_SHARE_GIVEN] = 4ull * ex->bucket.rows * ex->given_cols;
    size[GM_VK_SHARE_RESULT] = ex->hidden_off + 4ull * ex->bucket.outs * ex->hidden_cols;
}

static gm_status alloc_slice(gm_exec *ex, uint32_t i, gm_err *err)
{
    gm_vk_slice *const s = &ex->slice[i];
    gm_vk_buf *const to[GM_VK_SHARES] = {NULL, &s->step, &s->given, &s->result};
    uint64_t size[GM_VK_SHARES];
    slice_sizes(ex, size);
    for (gm_vk_share k = GM_VK_SHARE_STEP; k < GM_VK_SHARES; k++)
        GM_TRY(gm_vk_share_take(ex->be, k, i, size[k], to[k], err));
    return GM_OK;
}

/* A size shares what a larger one has; where it needs more (attention's splits, of up to 64 rows), it
 * has that beside. */
gm_status gm_vk_exec_size_of(gm_backend *be, const gm_plan *p, const gm_kv_desc *kv, gm_bucket most,
                             uint64_t *bytes, gm_err *err)
{
    gm_kvmem mem = {.slots = {.desc = *kv}};
    uint64_t had[GM_VK_SHARES] = {0};
    uint32_t rows = 1;
    *bytes = 0;
    while (rows <= most.rows / 2)
        rows *= 2;
    for (; rows; rows /= 2) {
        const gm_bucket bucket = {rows, rows < most.outs ? rows : most.outs};
        gm_exec ex = {.be = be, .kv = &mem, .plan = p, .bucket = bucket, .flows = rows == 1};
        uint64_t size[GM_VK_SHARES], counters = 0;
        measure(&ex);
        slice_sizes(&ex, size);
        GM_TRY(gm_vk_values_size_of(&ex, &size[GM_VK_SHARE_VALUES], &counters, err));
        for (gm_vk_share k = 0; k < GM_VK_SHARES; k++) {
            if (size[k] <= had[k]) continue;
            *bytes += size[k] * (k == GM_VK_SHARE_VALUES ? 1 : GM_TICKETS);
            had[k] = size[k];
        }
        *bytes += counters + GM_VK_TURNS_SIZE;
    }
    *bytes += (uint64_t)GM_TICKETS * GM_VK_FLOW_SIZE * (p->n_ops + 1); /* dispatches are fewer */
    return GM_OK;
}

static uint32_t cut(const gm_exec *ex, const gm_vk_list *list, size_t ends[GM_VK_PIECES])
{
    double all = 0;
    for (size_t i = 0; i < list->n; i++)
        all += list->at[i].work;
    const double least = 2 * all / (GM_VK_PIECES - 1);
    const double most = ex->bucket.rows <= GM_VK_PIECE_ROWS ? all : ex->be->piece_work;
    return gm_vk_list_cut(list, fmax(most, least), ends);
}

static gm_status record_pieces(gm_exec *ex, gm_vk_slice *s, const gm_vk_list *list,
                               gm_vk_script *to, gm_err *err)
{
    size_t ends[GM_VK_PIECES];
    to->n_pieces = cut(ex, list, ends);
    GM_TRY(gm_mem_alloc(&to->pieces, to->n_pieces, sizeof *to->pieces, "recordings", err));
    for (uint32_t i = 0; i < to->n_pieces; i++) {
        const size_t first = i ? ends[i - 1] : 0;
        const gm_vk_list piece = {.at = list->at + first, .n = ends[i] - first};
        const gm_vk_recording r = {.pipes = &ex->be->pipes,
                                   .list = &piece,
                                   .grids = &s->step,
                                   .grids_off = ex->grids_off,
                                   .fronts = i || ex->flows ? NULL : &ex->counters,
                                   .fronts_at = ex->fronts,
                                   .flow = i ? NULL : &s->flow,
                                   .values = &ex->scratch,
                                   .values_off = ex->values_off,
                                   .values_size = ex->values_size,
                                   .values_word = GM_VK_UNWRITTEN};
        to->pieces[i].sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO;
        GM_TRY(gm_vk_record(&ex->be->dev, &r, &to->pieces[i].commandBuffer, err));
    }
    return GM_OK;
}

/* Counters for kernels that wait for each other, once it is known that there are some: one for each
 * dispatch, since others of them may be tried in the same place. */
static gm_status alloc_flow(gm_exec *ex, uint32_t i, gm_vk_list *list, gm_err *err)
{
    if (gm_vk_list_flow(ex, i, list) == 0) return GM_OK;
    GM_TRY(gm_vk_buf_alloc(&ex->be->dev, &ex->slice[i].flow, list->n * GM_VK_FLOW_SIZE, GM_VK_LOCAL,
                           "counters", err));
    gm_vk_list_flow(ex, i, list);
    return GM_OK;
}

static gm_status record_script(gm_exec *ex, uint32_t i, gm_vk_kind kind, gm_err *err)
{
    gm_vk_script *const to = &ex->slice[i].script[kind];
    gm_vk_list list = {0};
    gm_status status = gm_vk_list_plan(ex, i, kind, &list, err);
    if (status == GM_OK) status = alloc_flow(ex, i, &list, err);
    if (status == GM_OK) status = gm_vk_pipes_compile(&ex->be->pipes, ex->be->workers, err);
    if (status == GM_OK) status = record_pieces(ex, &ex->slice[i], &list, to, err);
    to->n_dispatches = list.n;
    for (size_t j = 0; j < list.n; j++)
        to->n_barriers += list.at[j].barrier;
    gm_vk_list_deinit(&list);
    return status;
}

static bool can_be_apart(const gm_exec *ex)
{
    const bool slots = ex->kv && ex->kv->slots.desc.n_slots > 1;
    return ex->bucket.rows == 1 || (slots && ex->bucket.rows <= GM_VK_APART_ROWS);
}

static gm_status record_slice(gm_exec *ex, uint32_t i, gm_err *err)
{
    if (can_be_apart(ex)) GM_TRY(record_script(ex, i, GM_VK_APART, err));
    return ex->bucket.rows > 1 ? record_script(ex, i, GM_VK_MIXED, err) : GM_OK;
}

/* Of several sequences even a single row is multiplied as float16, by kernels that do not wait. */
bool gm_vk_can_flow(const gm_exec *ex)
{
    bool can = ex->bucket.rows == 1 && ex->kv;
    for (gm_val v = 1; v < ex->plan->n_vals; v++)
        can = can && !ex->values[v].halves;
    return can;
}

static gm_status exec_init(gm_exec *ex, gm_err *err)
{
    measure(ex);
    const uint32_t n_vocab = ex->n_vocab ? ex->n_vocab : 1;
    GM_TRY(gm_mem_alloc(&ex->out, ex->bucket.outs, sizeof *ex->out, "results", err));
    GM_TRY(gm_mem_alloc(&ex->top, (size_t)ex->bucket.outs * GM_TOP_MAX, sizeof *ex->top, "results",
                        err));
    GM_TRY(gm_mem_alloc(&ex->order, n_vocab, sizeof *ex->order, "results", err));
    GM_TRY(gm_vk_buf_alloc(&ex->be->dev, &ex->turns, GM_VK_TURNS_SIZE, GM_VK_STEP, "turns", err));
    ex->flows = ex->bucket.rows == 1 && gm_vk_choices_flow(&ex->be->choices, ex->plan);
    GM_TRY(gm_vk_values_place(ex, err));
    ex->flows = ex->flows && gm_vk_can_flow(ex);
    for (uint32_t i = 0; i < GM_TICKETS; i++) {
        GM_TRY(alloc_slice(ex, i, err));
        GM_TRY(record_slice(ex, i, err));
    }
    return GM_OK;
}

gm_status gm_vk_lower(gm_backend *be, gm_wset *w, gm_kvmem *kv, const gm_plan *p, gm_bucket bucket,
                      gm_exec **out, gm_err *err)
{
    *out = NULL;
    if (p->n_taps)
        return gm_fail(err, GM_E_UNSUP, 0,
                       "vulkan: the plan has taps, which only cpu and ref give");
    GM_TRY(gm_slots_check_plan(kv ? &kv->slots : NULL, p, err));
    gm_exec *ex = NULL;
    GM_TRY(gm_mem_alloc(&ex, 1, sizeof *ex, "an exec", err));
    ex->be = be;
    ex->w = w;
    ex->kv = kv;
    ex->plan = p;
    ex->bucket = bucket;
    const gm_status status = exec_init(ex, err);
    if (status == GM_OK)
        *out = ex;
    else
        gm_vk_drop(ex);
    return status;
}

void gm_vk_drop(gm_exec *ex)
{
    if (!ex) return;
    gm_vk_dev *const d = &ex->be->dev;
    gm_vk_wait(d, d->n_submits, NULL);
    for (int i = 0; i < GM_TICKETS; i++) {
        for (gm_vk_kind kind = 0; kind < GM_VK_KINDS; kind++) {
            gm_vk_script *const script = &ex->slice[i].script[kind];
            for (uint32_t k = 0; script->pieces && k < script->n_pieces; k++)
                gm_vk_record_free(d, script->pieces[k].commandBuffer);
            gm_mem_free(script->pieces);
        }
        gm_vk_buf_free(d, &ex->slice[i].flow);
        gm_vk_share_release(ex->be, &ex->slice[i].step);
        gm_vk_share_release(ex->be, &ex->slice[i].given);
        gm_vk_share_release(ex->be, &ex->slice[i].result);
    }
    gm_vk_share_release(ex->be, &ex->scratch);
    gm_vk_buf_free(d, &ex->counters);
    gm_vk_buf_free(d, &ex->turns);
    gm_mem_free(ex->values);
    gm_mem_free(ex->out);
    gm_mem_free(ex->top);
    gm_mem_free(ex->order);
    gm_mem_free(ex);
}

/* ---- a step goes in -------------------------------------------------------------------------- */

/* What kernels would otherwise read outside their memory. */
static gm_status check_step(const gm_exec *ex, const gm_step *s, gm_err *err)
{
    const gm_kvmem *const kv = ex->kv;
    GM_TRY(gm_step_check(s, ex->bucket.rows, ex->bucket.outs, err));
    if (ex->flows && !s->n_rows) /* attention, which others wait for, would have no workgroup */
        return gm_fail(err, GM_E_ARG, 0, "step: no rows");
    if (s->n_masks > ex->max_masks)
        return gm_fail(err, GM_E_ARG, 0, "step: %" PRIu32 " masks are too many", s->n_masks);
    if (kv && (s->n_edits > kv->n_edits || s->n_counts > kv->n_counts ||
               s->n_copies > kv->n_copies || s->n_sets > kv->slots.desc.n_slots ||
               s->n_biases > kv->slots.desc.n_slots * kv->slots.desc.max_bias)) {
        return gm_fail(err, GM_E_ARG, 0, "step: more edits than the slots were made for");
    }
    return GM_OK;
}

static gm_status check_rows(const gm_exec *ex, const gm_step *s, gm_err *err)
{
    const gm_op *const input = &ex->plan->ops[0];
    const bool by_id = input->kind == GM_OP_INPUT_ROWS;
    const uint64_t n_tokens = by_id ? gm_tensor_rows(&ex->plan->weights.at[input->weight[0]]) : 0;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(s)[i];
        if (r->kind == GM_ROW_GIVEN) {
            if (r->src < s->n_given && s->n_given <= ex->bucket.rows &&
                s->limits.given_cols == ex->given_cols)
                continue;
            return gm_fail(err, GM_E_ARG, 0, "step: row %" PRIu32 " is given but not there", i);
        }
        const int64_t id = gm_slots_token(ex->kv ? &ex->kv->slots : NULL, r);
        if (!by_id || id < 0 || (uint64_t)id >= n_tokens) {
            return gm_fail(err, GM_E_ARG, 0,
                           "step: row %" PRIu32 " has token %" PRId64 ", which has no embedding", i,
                           id);
        }
    }
    return GM_OK;
}

/* Where the host writes for the device, and how many bytes. */
typedef struct writer {
    uint8_t *map;
    uint64_t n;
} writer;

static void put(writer *w, uint64_t off, const void *from, uint64_t size)
{
    memcpy(w->map + off, from, size);
    w->n += size;
}

static uint64_t write_edits(const gm_exec *ex, const gm_step *s, uint32_t which)
{
    const gm_vk_edits *const e = &ex->kv->edits[which];
    writer w = {.map = e->buf.map};
    put(&w, e->sets, gm_step_sets(s), s->n_sets * sizeof(gm_slot_set));
    put(&w, e->biases, gm_step_biases(s), s->n_biases * sizeof(gm_bias));
    put(&w, e->counts, gm_step_counts(s), s->n_counts * sizeof(gm_count_edit));
    put(&w, e->edits, gm_step_edits(s), s->n_edits * sizeof(gm_page_edit));
    put(&w, e->copies, gm_step_copies(s), s->n_copies * sizeof(gm_page_copy));
    return w.n;
}

/* Workgroups of attention that a row has: one for each split of the longest; or, of `most` for n_heads
 * heads of all rows, the share of the longest. */
static uint32_t split_shares(const gm_step *s, uint32_t class, uint32_t most, uint32_t n_heads)
{
    uint64_t longest = 0, all = 0;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(s)[i];
        const uint32_t n = r->last[class] / GM_VK_SPLIT - r->first[class] / GM_VK_SPLIT + 1;
        longest = n > longest ? n : longest;
        all += n;
    }
    if (!most || !all) return (uint32_t)longest;
    const uint64_t share = 1 + (most - 1) * longest / (n_heads * all);
    return (uint32_t)(share < longest ? share : longest);
}

static void write_grids(const gm_exec *ex, const gm_step *s, gm_vk_kind kind, writer *w)
{
    for (uint32_t i = 0; i < ex->n_grids[kind]; i++) {
        const gm_vk_grid *const g = &ex->grids[kind][i];
        uint32_t grid[4] = {s->n_outs, 1, 1, 0};
        if (g->kind == GM_VK_DYN_OUT_Y) {
            grid[0] = s->n_outs ? g->x : 0;
            grid[1] = (s->n_outs + g->per - 1) / g->per;
        } else if (g->kind == GM_VK_DYN_ATTEND) {
            grid[0] = g->x;
            grid[1] = g->walk ? 1 : split_shares(s, g->per, g->most, g->x);
            grid[2] = g->walk ? (s->n_rows + g->walk - 1) / g->walk : s->n_rows;
        }
        put(w, ex->grids_off + 16ull * i, grid, sizeof grid);
    }
}

static uint64_t write_step(const gm_exec *ex, const gm_step *s, gm_vk_kind kind, gm_vk_slice *slice)
{
    writer w = {.map = slice->step.map}, given = {.map = slice->given.map};
    const struct gm_vk_head head = {.n_rows = s->n_rows,
                                    .n_outs = s->n_outs,
                                    .n_sets = s->n_sets,
                                    .n_counts = s->n_counts,
                                    .n_edits = s->n_edits,
                                    .n_copies = s->n_copies,
                                    .n_draws = s->n_draw};
    put(&w, 0, &head, sizeof head);
    put(&w, ex->rows_off, gm_step_rows(s), s->n_rows * sizeof(gm_step_row));
    put(&w, ex->outs_off, gm_step_outs(s), s->n_outs * sizeof(gm_step_out));
    for (uint32_t i = 0; i < s->n_masks; i++) {
        put(&w, ex->masks_off + 4ull * i * ex->mask_words, gm_step_mask_at(s, i),
            4ull * ex->mask_words);
    }
    if (s->n_given) put(&given, 0, gm_step_given_at(s, 0), 4ull * s->n_given * ex->given_cols);
    write_grids(ex, s, kind, &w);
    return w.n + given.n;
}

/* Slots that will have drawn a token once this step is done: the next one may begin with it. */
static void expect_draws(gm_exec *ex, const gm_step *s)
{
    for (uint32_t i = 0; ex->kv && i < s->n_outs; i++) {
        const gm_step_out *const o = &gm_step_outs(s)[i];
        if (o->want & GM_WANT_DRAW) ex->kv->slots.at[gm_step_rows(s)[o->row].slot].last = 0;
    }
}

gm_vk_kind gm_vk_kind_of(const gm_exec *ex, const gm_step *s)
{
    const gm_step_row *const rows = gm_step_rows(s);
    if (!can_be_apart(ex)) return GM_VK_MIXED;
    if (ex->bucket.rows == 1) return GM_VK_APART;
    bool *const met = ex->kv->met;
    for (uint32_t i = 0; i < s->n_rows; i++)
        met[rows[i].slot] = false;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (met[rows[i].slot]) return GM_VK_MIXED;
        met[rows[i].slot] = true;
    }
    return GM_VK_APART;
}

/* How many pieces of a step make a submit: all, or as many as will take GM_VK_PART_US. */
static uint32_t pieces_of(const gm_exec *ex, const gm_step *s, uint32_t n_pieces)
{
    const double us = ex->row_us * s->n_rows;
    const bool answers = s->n_segs == s->n_rows;
    if (answers || (us > 0 && us <= GM_VK_PART_US)) return n_pieces;
    const double n = us > 0 ? n_pieces * GM_VK_PART_US / us : 1;
    return n > 1 ? (uint32_t)n : 1;
}

/* Hands over the next pieces. */
static gm_status send(gm_exec *ex, gm_vk_slice *s, gm_err *err)
{
    gm_vk_dev *const d = &ex->be->dev;
    const uint32_t left = s->now->n_pieces - s->n_sent,
                   n = s->per_submit < left ? s->per_submit : left;
    uint64_t value = 0;
    if (n == 0) return GM_OK;
    GM_TRY(gm_vk_submit_all(d, &s->now->pieces[s->n_sent], n, &value, err));
    s->before = s->value;
    s->value = value;
    s->n_sent += n;
    if (s->n_sent < s->now->n_pieces) return GM_OK;
    d->count.dispatches += s->now->n_dispatches;
    d->count.barriers += s->now->n_barriers;
    return GM_OK;
}

/* The step before this one goes first. */
static gm_status send_rest(gm_backend *be, gm_err *err)
{
    if (be->n_run == be->n_waited) return GM_OK;
    const uint32_t which = (be->n_run - 1) % GM_TICKETS;
    gm_exec *const ex = be->under_way[which];
    while (ex->slice[which].n_sent < ex->slice[which].now->n_pieces)
        GM_TRY(send(ex, &ex->slice[which], err));
    return GM_OK;
}

gm_status gm_vk_run(gm_exec *ex, const gm_step *s, gm_ticket *t, gm_err *err)
{
    gm_backend *const be = ex->be;
    if (be->n_run - be->n_waited >= GM_TICKETS)
        return gm_fail(err, GM_E_ARG, 0, "step: %d steps are under way already", GM_TICKETS);
    const uint32_t which = be->n_run % GM_TICKETS;
    gm_vk_slice *const slice = &ex->slice[which];
    GM_TRY(check_step(ex, s, err));
    if (ex->kv) GM_TRY(gm_slots_apply(&ex->kv->slots, s, err));
    GM_TRY(check_rows(ex, s, err));
    if (ex->kv) be->dev.count.bytes_up += write_edits(ex, s, which);
    const gm_vk_kind kind = gm_vk_kind_of(ex, s);
    be->dev.count.bytes_up += write_step(ex, s, kind, slice);
    GM_TRY(send_rest(be, err));
    memset(slice->result.map, 0, 4);
    slice->n_sent = 0;
    slice->now = &slice->script[kind];
    slice->per_submit = pieces_of(ex, s, slice->now->n_pieces);
    slice->start_s = gm_clock_s();
    for (int i = 0; i < 2; i++)
        GM_TRY(send(ex, slice, err));
    expect_draws(ex, s);
    slice->asked = s;
    be->under_way[which] = ex;
    *t = ++be->n_run;
    return GM_OK;
}

/* ---- answers come out ------------------------------------------------------------------------ */

static void read_out(gm_exec *ex, const gm_vk_slice *slice, uint32_t i)
{
    gm_device_counts *const count = &ex->be->dev.count;
    const gm_step_out *const o = &gm_step_outs(slice->asked)[i];
    const uint8_t *const from = slice->result.map;
    const float *const logits =
        (const float *)(const void *)(from + ex->logits_off) + (size_t)i * ex->n_vocab;
    gm_result_out *const out = &ex->out[i];
    *out = (gm_result_out){.token = -1};
    if (o->want & GM_WANT_DRAW) {
        struct gm_vk_answer a;
        memcpy(&a, from + ex->answers_off + i * sizeof a, sizeof a);
        out->token = a.token;
        out->logprob = a.logprob;
        count->bytes_down += sizeof a;
    }
    if (o->want & GM_WANT_TOP) {
        out->n_top = o->n_top < ex->n_vocab ? o->n_top : ex->n_vocab;
        out->top = ex->top + (size_t)i * GM_TOP_MAX;
        const double logsum =
            o->want & GM_WANT_DRAW
                ? gm_draw_logsum_by(logits, ex->n_vocab, (uint32_t)out->token, out->logprob)
                : gm_draw_logsum(logits, ex->n_vocab);
        gm_draw_top(logits, ex->n_vocab, logsum, out->n_top, ex->order,
                    ex->top + (size_t)i * GM_TOP_MAX);
    }
    if (o->want & GM_WANT_LOGITS) out->logits = logits;
    if (o->want & (GM_WANT_LOGITS | GM_WANT_TOP)) count->bytes_down += 4ull * ex->n_vocab;
    if (o->want & GM_WANT_HIDDEN) {
        count->bytes_down += 4ull * ex->hidden_cols;
        out->hidden =
            (const float *)(const void *)(from + ex->hidden_off) + (size_t)i * ex->hidden_cols;
    }
}

/* Sends what is left of the step and waits for all of it; or, where it is abandoned, for what was
 * sent. */
static gm_status finish(gm_exec *ex, gm_vk_slice *s, gm_err *err)
{
    gm_backend *const be = ex->be;
    bool abandoned = false;
    while (s->n_sent < s->now->n_pieces && !abandoned) {
        GM_TRY(gm_vk_wait(&be->dev, s->before, err));
        abandoned = be->abandon && atomic_load(be->abandon);
        if (!abandoned) GM_TRY(send(ex, s, err));
    }
    const double start = s->start_s > be->done_s ? s->start_s : be->done_s;
    const bool cpu = be->dev.props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    GM_TRY(cpu ? gm_vk_wait(&be->dev, s->value, err)
               : gm_vk_wait_until(&be->dev, s->value, start + 1e-6 * ex->row_us * s->asked->n_rows,
                                  err));
    const double now = gm_clock_s();
    be->done_s = now;
    if (abandoned) return gm_fail(err, GM_E_CANCEL, 0, "the step was abandoned");
    if (s->asked->n_rows) ex->row_us = 1e6 * (now - start) / s->asked->n_rows;
    return GM_OK;
}

/* A kernel that gave up waiting has computed nothing of use: the device counts as lost, and whoever
 * opens it again finds that its kernels do not wait for each other; unless somebody's own file says that
 * they do. */
gm_status gm_vk_check_late(const gm_exec *ex, uint32_t slice, gm_err *err)
{
    gm_backend *const be = ex->be;
    gm_vk_choice off = {.way = GM_VK_FLOW_OFF};
    uint32_t late;
    memcpy(&late, ex->slice[slice].result.map, sizeof late);
    if (!late) return GM_OK;
    memset(ex->slice[slice].result.map, 0, sizeof late);
    gm_vk_flow_name(ex->plan, off.what);
    gm_vk_choices_put(&be->choices, &off, NULL);
    if (!be->choices.given[0]) gm_vk_choices_write(be, NULL);
    return gm_fail(err, GM_E_LOST, 0, "vulkan: a kernel waited too long for the one before it");
}

gm_status gm_vk_answer(gm_backend *be, gm_ticket t, gm_result *r, gm_err *err)
{
    *r = (gm_result){0};
    if (t != be->n_waited + 1 || t > be->n_run)
        return gm_fail(err, GM_E_ARG, 0, "step: waited for out of order");
    const uint32_t which = be->n_waited % GM_TICKETS;
    gm_exec *const ex = be->under_way[which];
    gm_vk_slice *const slice = &ex->slice[which];
    be->n_waited++;
    GM_TRY(finish(ex, slice, err));
    GM_TRY(gm_vk_check_late(ex, which, err));
    for (uint32_t i = 0; i < slice->asked->n_outs; i++)
        read_out(ex, slice, i);
    *r = (gm_result){.n_out = slice->asked->n_outs, .out = ex->out};
    return GM_OK;
}
