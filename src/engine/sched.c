/* SPDX-License-Identifier: MIT */
/* Who goes into the next step. Sequences that answer come first, a row each, so
 * that nobody's stream waits for somebody else's prompt; what room is left goes to
 * prompts, in chunks. */

#include <string.h>

#include "engine/prefix.h"

#define LEAST_CHUNK 16 /* rows of a prompt that always may join, so that it gets on */

static uint32_t rows_left(const gm_engine *e)
{
    return e->turn->step->limits.rows - e->turn->step->n_rows;
}

/* The prompt counts for the repeat penalty, whoever computes it; and what was answered before the
 * sequence was set aside, for all of them. */
static void put_counts(gm_engine *e, const gm_request *r)
{
    for (uint32_t i = 0; i < r->n_ids; i++) {
        const bool asked = i < r->n_prompt;
        gm_step_put_count(e->turn->step, &(gm_count_edit){r->slot, r->ids[i], asked, !asked});
    }
}

/* What is there already: its own pages where it was set aside and they were left, or what others
 * have computed of it. */
static bool take_over(gm_engine *e, gm_request *r)
{
    if (r->n_done) return gm_kvpool_seat(&e->place.pool, &r->begin->table, r->slot, e->turn->step);
    const bool first = r->n_put == 0;
    r->n_done = r->begin->n = gm_prefix_share(e, r);
    if (!first) return true;
    r->n_cached = r->n_done;
    e->stats.n_cached += r->n_cached;
    return true;
}

/* A slot's first step: its draw parameters, biases and counts, and what is there already. Where
 * these have no room, the slot waits: in the next step others have theirs already. */
static bool begin_slot(gm_engine *e, gm_request *r)
{
    if (r->begun) return true;
    if (r->n_done == 0 && gm_prefix_awaits(e, r)) return false;
    const bool counts = r->draw.repeat != 1 || r->n_ids > r->n_prompt;
    if (counts && r->n_ids > e->turn->step->limits.counts - e->turn->step->n_counts) return false;
    if (!gm_step_put_set(e->turn->step, r->slot, &r->draw, r->bias, r->n_bias)) return false;
    if (counts) put_counts(e, r);
    r->begun = take_over(e, r);
    return r->begun;
}

/* The step's row at `row` tells of the token at `pos`: one to be drawn, or one of the prompt. */
static void put_out(gm_engine *e, gm_request *r, uint32_t row, uint32_t pos)
{
    gm_step *const s = e->turn->step;
    const bool known = pos < r->n_prompt;
    gm_step_out out = {
        .row = row, .want = known ? GM_WANT_LOGITS : GM_WANT_DRAW, .mask = GM_NO_MASK};
    if (r->n_top > GM_TOP_MAX || r->flags & GM_REQUEST_HASH) out.want |= GM_WANT_LOGITS;
    if (r->n_top && r->n_top <= GM_TOP_MAX) {
        out.want |= GM_WANT_TOP;
        out.n_top = r->n_top;
    }
    e->turn->out_of[s->n_outs] = (gm_outof){r->slot, pos};
    gm_step_put_out(s, &out);
}

/* Of n rows that were just put: the last known token's row gives the next token, and where the
 * prompt is to be told, every other row the token after it. */
static void put_outs(gm_engine *e, gm_request *r, uint32_t n)
{
    const uint32_t row = e->turn->step->n_rows - n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pos = r->n_done + i + 1;
        const bool tells = r->flags & GM_REQUEST_PROMPT && pos > r->n_put; /* its n-th is of n */
        const bool asked = pos < r->n_prompt ? tells : pos == r->n_ids;
        if (asked) put_out(e, r, row + i, pos);
    }
}

/* Outputs are few: a prompt that is to be told goes on in small steps. */
static uint32_t most_told(const gm_engine *e, const gm_request *r)
{
    const gm_step *const s = e->turn->step;
    const uint32_t reserved = e->place.n_slots; /* so that everybody can have one */
    const uint32_t outs =
        s->limits.outs > s->n_outs + reserved ? s->limits.outs - s->n_outs - reserved : 0;
    const uint32_t room = gm_seq_room(r);
    return room < outs ? room : outs;
}

/* Pages for the next n rows; requests that are finished give theirs up when there are too few. */
static bool make_room(gm_engine *e, gm_request *r, uint32_t n)
{
    while (
        !gm_kvpool_extend(&e->place.pool, &r->begin->table, r->slot, r->n_done, n, e->turn->step)) {
        if (!gm_prefix_evict(e)) return false;
    }
    return true;
}

static void add(gm_engine *e, gm_request *r, uint32_t most)
{
    if (most == 0 || !begin_slot(e, r)) return;
    const bool no_answer = r->flags & GM_REQUEST_NO_ANSWER;
    if (r->flags & GM_REQUEST_PROMPT && r->n_done < r->n_prompt) {
        const uint32_t told = most_told(e, r);
        if (told < most) most = told;
    }
    const uint32_t todo = r->n_ids - r->n_done - no_answer;
    const uint32_t n = todo < most ? todo : most;
    if (n == 0 || !make_room(e, r, n)) return;
    gm_place_put_rows(&e->place, e->turn->step, r->slot, &r->ids[r->n_done], r->n_done, n);
    e->turn->part[r->slot] = (gm_part){r, n, r->n_done + n == r->n_ids};
    put_outs(e, r, n);
}

/* Rows of prompts that may join a step. Beside answers, as many as make it last twice as long as
 * the answers alone would; by themselves, as many as fit. */
static uint32_t prompt_rows(const gm_engine *e)
{
    const uint32_t left = rows_left(e);
    if (e->turn->step->n_rows == 0 || e->row_us <= 0 || e->decode_us <= 0) return left;
    const double rows = e->decode_us / e->row_us;
    const uint32_t most = rows < LEAST_CHUNK ? LEAST_CHUNK : rows > left ? left : (uint32_t)rows;
    return most < left ? most : left;
}

static void clear(gm_engine *e)
{
    gm_step_clear(e->turn->step);
    memset(e->turn->part, 0, e->place.n_slots * sizeof *e->turn->part);
}

bool gm_sched_fill(gm_engine *e)
{
    const uint32_t n_slots = e->place.n_slots, first = e->slot_next++ % n_slots;
    clear(e);
    uint32_t most = 0; /* rows that prompts may still take */
    for (int prompts = 0; prompts < 2; prompts++) {
        if (prompts) most = prompt_rows(e);
        for (uint32_t i = 0; i < n_slots; i++) {
            gm_request *const r = e->slot[(first + i) % n_slots];
            if (!r) continue;
            if (gm_seq_is_behind(r) != (prompts == 1) || !gm_seq_has_room(r)) continue;
            add(e, r, prompts ? most : rows_left(e));
            if (prompts) most -= e->turn->part[r->slot].n;
        }
    }
    return e->turn->step->n_rows > 0;
}

/* Whether what comes behind this part of a step is known, but for a token. */
static bool has_next(const gm_part *p)
{
    const gm_request *const r = p->seq;
    return r && p->draws && !atomic_load(&r->cancelled) &&
           r->n_ids + 1 - r->n_prompt < r->max_answer && gm_seq_room(r) > 1;
}

/* The row of the token that is being drawn. Where there is no page for it, others may have to make room
 * first: the sequence is left out. */
static void add_next(gm_engine *e, gm_request *r)
{
    gm_step *const s = e->turn->step;
    if (!gm_kvpool_extend(&e->place.pool, &r->begin->table, r->slot, r->n_ids, 1, s)) return;
    gm_place_put_rows(&e->place, s, r->slot, NULL, r->n_ids, 1);
    e->turn->part[r->slot] = (gm_part){r, 1, true};
    put_out(e, r, s->n_rows - 1, r->n_ids + 1);
}

/* What the step before draws may be a sequence's last token, whose row is then computed for nobody:
 * such steps have to be short. Nothing follows a prompt, which may still be cancelled. */
bool gm_sched_fill_ahead(gm_engine *e, const gm_turn *before)
{
    const bool answers = before->step->n_rows == before->step->n_segs;
    if (!answers || e->decode_us <= 0 || e->decode_us > e->place.runner.ahead_us) return false;
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        const gm_request *const r = e->slot[i];
        if (r && !before->part[i].draws && gm_seq_has_room(r)) return false;
    }
    clear(e);
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        if (has_next(&before->part[i])) add_next(e, before->part[i].seq);
    }
    return e->turn->step->n_rows > 0;
}

void gm_sched_learn(gm_engine *e, const gm_turn *t, double us)
{
    uint32_t prompts = 0, answers = 0;
    for (uint32_t i = 0; i < t->step->n_segs; i++) {
        const gm_step_seg *const s = &gm_step_segs(t->step)[i];
        const gm_request *const r = t->part[s->slot].seq;
        if (r && gm_seq_is_behind(r))
            prompts += s->n_rows;
        else
            answers++;
    }
    if (prompts == 0) {
        e->decode_us = e->decode_us > 0 ? 0.8 * e->decode_us + 0.2 * us : us;
    } else {
        const double rest = answers ? us - e->decode_us : us;
        const double row = (rest > 0 ? rest : 0) / prompts;
        e->row_us = e->row_us > 0 ? 0.8 * e->row_us + 0.2 * row : row;
    }
}
