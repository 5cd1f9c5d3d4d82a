/* SPDX-License-Identifier: MIT */
/* Who goes into the next step. Sequences that answer come first, a row each, so
 * that nobody's stream waits for somebody else's prompt; what room is left goes to
 * prompts, in chunks. */

#include "engine/engine.h"
#include "sample/sampler.h"

static uint32_t rows_left(const gm_engine *e)
{
    return e->step->limits.rows - e->step->n_rows;
}

/* A slot's first step: its draw parameters and biases. */
static bool begin_slot(gm_engine *e, gm_request *r)
{
    if (r->begun) return true;
    r->begun = gm_step_put_set(e->step, r->slot, &r->draw, r->bias, r->n_bias);
    return r->begun;
}

/* Rows [n_done, n_done + n) of the sequence, as one segment. */
static void put_rows(gm_engine *e, const gm_request *r, uint32_t n)
{
    gm_step *const s = e->step;
    gm_step_put_seg(s, &(gm_step_seg){r->slot, s->n_rows, n});
    for (uint32_t i = r->n_done; i < r->n_done + n; i++) {
        gm_step_row row = {
            .kind = GM_ROW_ID, .slot = r->slot, .pos = i, .src = (uint32_t)r->ids[i]};
        gm_kvpool_visible(&e->pool, &row);
        gm_step_put_row(s, &row);
        if (r->draw.repeat != 1 && i < r->n_prompt)
            gm_step_put_count(s, &(gm_count_edit){r->slot, r->ids[i], 1, 0});
    }
}

/* The last known token's row gives the next token. */
static void put_out(gm_engine *e, gm_request *r)
{
    gm_step *const s = e->step;
    gm_step_out out = {.row = s->n_rows - 1, .want = GM_WANT_DRAW, .mask = GM_NO_MASK};
    if (r->n_top > GM_TOP_MAX || r->flags & GM_REQUEST_HASH) out.want |= GM_WANT_LOGITS;
    if (r->n_top && r->n_top <= GM_TOP_MAX) {
        out.want |= GM_WANT_TOP;
        out.n_top = r->n_top;
    }
    e->out_seq[s->n_outs] = r;
    gm_step_put_out(s, &out);
}

static void add(gm_engine *e, gm_request *r)
{
    const uint32_t todo = r->n_ids - r->n_done;
    const uint32_t n = todo < rows_left(e) ? todo : rows_left(e);
    if (n == 0 || !begin_slot(e, r)) return;
    if (!gm_kvpool_extend(&e->pool, &r->table, r->slot, r->n_done, n, e->step)) return;
    put_rows(e, r, n);
    r->n_now = n;
    if (n == todo) put_out(e, r);
}

bool gm_sched_fill(gm_engine *e)
{
    gm_step_clear(e->step);
    for (int prompts = 0; prompts < 2; prompts++) {
        for (uint32_t i = 0; i < e->n_slots; i++) {
            gm_request *const r = e->slot[i];
            if (!r) continue;
            if (!prompts) r->n_now = 0;
            const bool is_prompt = r->n_done < r->n_prompt;
            if (is_prompt == (prompts == 1) && gm_seq_has_room(r)) add(e, r);
        }
    }
    return e->step->n_rows > 0;
}
