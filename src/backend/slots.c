/* SPDX-License-Identifier: MIT */
#include "backend/slots.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

static gm_status slot_init(gm_slot *s, const gm_kv_desc *d, gm_err *err)
{
    s->last = -1;
    for (int c = 0; c < GM_CLASSES; c++) {
        GM_TRY(gm_mem_alloc(&s->table[c], d->table_len, sizeof *s->table[c], "a page table", err));
        for (uint32_t i = 0; i < d->table_len; i++)
            s->table[c][i] = GM_NO_PAGE;
    }
    GM_TRY(gm_mem_alloc(&s->counts, d->n_vocab, sizeof *s->counts, "penalty counts", err));
    return gm_mem_alloc(&s->bias, d->max_bias, sizeof *s->bias, "logit biases", err);
}

gm_status gm_kv_sizes_of(const gm_kv_desc *d, uint64_t layer, gm_kv_sizes *out, gm_err *err)
{
    uint64_t n_layer_of[GM_CLASSES] = {0};
    *out = (gm_kv_sizes){0};
    for (uint32_t l = 0; l < d->n_layer; l++)
        n_layer_of[d->layer_class[l]]++;
    for (int c = 0; c < GM_CLASSES; c++) {
        uint64_t size = 0;
        if (!gm_size_mul(layer, n_layer_of[c], &out->page[c]) ||
            !gm_size_mul(out->page[c], d->n_pages[c], &size) ||
            !gm_size_add(out->all, size, &out->all)) {
            return gm_fail(err, GM_E_TOOBIG, 0, "kv: %" PRIu32 " pages are too many to count",
                           d->n_pages[c]);
        }
    }
    return GM_OK;
}

gm_status gm_slots_init(gm_slots *s, const gm_kv_desc *d, gm_err *err)
{
    s->desc = *d;
    s->desc.n_slots = 0; /* grows as slots are made, so that deinit frees just those */
    GM_TRY(gm_mem_alloc(&s->layer_class, d->n_layer, 1, "the KV layout", err));
    GM_TRY(gm_mem_alloc(&s->layer_index, d->n_layer, sizeof *s->layer_index, "the KV layout", err));
    for (uint32_t l = 0; l < d->n_layer; l++) {
        s->layer_class[l] = d->layer_class[l];
        s->layer_index[l] = s->n_layer_of[d->layer_class[l]]++;
    }
    s->desc.layer_class = s->layer_class;
    GM_TRY(gm_mem_alloc(&s->at, d->n_slots, sizeof *s->at, "slots", err));
    while (s->desc.n_slots < d->n_slots)
        GM_TRY(slot_init(&s->at[s->desc.n_slots++], d, err));
    return GM_OK;
}

void gm_slots_deinit(gm_slots *s)
{
    for (uint32_t i = 0; i < s->desc.n_slots && s->at; i++) {
        for (int c = 0; c < GM_CLASSES; c++)
            gm_mem_free(s->at[i].table[c]);
        gm_mem_free(s->at[i].counts);
        gm_mem_free(s->at[i].bias);
    }
    gm_mem_free(s->at);
    gm_mem_free(s->layer_class);
    gm_mem_free(s->layer_index);
    *s = (gm_slots){0};
}

gm_status gm_slots_check_plan(const gm_slots *s, const gm_plan *p, gm_err *err)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        const bool caches = op->kind == GM_OP_CACHE, draws = op->kind == GM_OP_DRAW;
        if (!caches && !draws) continue;
        if (!s) return gm_fail(err, GM_E_ARG, 0, "backend: the plan needs KV memory and has none");
        const gm_kv_desc *const d = &s->desc;
        if (caches &&
            (op->layer >= d->n_layer || op->attn.n_kv_head != d->n_kv_head ||
             op->attn.head_dim != d->head_dim || op->attn.class != d->layer_class[op->layer])) {
            return gm_fail(err, GM_E_ARG, 0,
                           "backend: the KV memory is not made for layer %" PRIu32, op->layer);
        }
        if (draws && p->vals[op->in[0]].cols != d->n_vocab)
            return gm_fail(err, GM_E_ARG, 0, "backend: the slots are made for another vocabulary");
    }
    return GM_OK;
}

static bool is_set_ok(const gm_kv_desc *d, const gm_step *s, const gm_slot_set *set)
{
    bool ok = set->slot < d->n_slots && set->n_bias <= d->max_bias &&
              (uint64_t)set->bias_first + set->n_bias <= s->n_biases;
    for (uint32_t i = 0; ok && i < set->n_bias; i++) {
        const int32_t id = gm_step_biases(s)[set->bias_first + i].id;
        ok = id >= 0 && (uint32_t)id < d->n_vocab;
    }
    return ok;
}

/* Numbers that would read or write outside the tables are refused. They are the engine's mistakes,
 * and here is where such a mistake should be seen first. */
static gm_status check_edits(const gm_kv_desc *d, const gm_step *s, gm_err *err)
{
    for (uint32_t i = 0; i < s->n_sets; i++) {
        if (!is_set_ok(d, s, &gm_step_sets(s)[i]))
            return gm_fail(err, GM_E_ARG, 0, "step: setting %" PRIu32 " is out of bounds", i);
    }
    if (s->n_masks && 32ull * s->limits.mask_words < d->n_vocab) {
        return gm_fail(err, GM_E_ARG, 0, "step: masks have %llu bits, expected %" PRIu32,
                       32ull * s->limits.mask_words, d->n_vocab);
    }
    for (uint32_t i = 0; i < s->n_counts; i++) {
        const gm_count_edit *const e = &gm_step_counts(s)[i];
        if (e->slot >= d->n_slots || e->id < 0 || (uint32_t)e->id >= d->n_vocab)
            return gm_fail(err, GM_E_ARG, 0, "step: count %" PRIu32 " is out of bounds", i);
    }
    for (uint32_t i = 0; i < s->n_copies; i++) {
        const gm_page_copy *const m = &gm_step_copies(s)[i];
        if (m->class >= GM_CLASSES || m->from >= d->n_pages[m->class] ||
            m->to >= d->n_pages[m->class]) {
            return gm_fail(err, GM_E_ARG, 0, "step: page copy %" PRIu32 " is out of bounds", i);
        }
    }
    for (uint32_t i = 0; i < s->n_edits; i++) {
        const gm_page_edit *const e = &gm_step_edits(s)[i];
        if (e->slot >= d->n_slots || e->class >= GM_CLASSES || e->index >= d->table_len ||
            (e->page >= d->n_pages[e->class] && e->page != GM_NO_PAGE)) {
            return gm_fail(err, GM_E_ARG, 0, "step: page edit %" PRIu32 " is out of bounds", i);
        }
    }
    return GM_OK;
}

/* Whether every position of [first, last] has a page. */
static bool has_pages(const gm_slots *s, const gm_slot *slot, uint32_t class, uint32_t first,
                      uint32_t last)
{
    if (first > last || last / GM_PAGE_LEN >= s->desc.table_len) return false;
    for (uint32_t p = first / GM_PAGE_LEN; p <= last / GM_PAGE_LEN; p++) {
        if (slot->table[class][p] == GM_NO_PAGE) return false;
    }
    return true;
}

static gm_status check_rows(const gm_slots *s, const gm_step *step, gm_err *err)
{
    for (uint32_t i = 0; i < step->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(step)[i];
        bool ok = r->slot < s->desc.n_slots;
        for (uint32_t c = 0; ok && c < GM_CLASSES; c++) {
            if (s->n_layer_of[c] == 0) continue;
            const gm_slot *const slot = &s->at[r->slot];
            ok = has_pages(s, slot, c, r->pos, r->pos) &&
                 has_pages(s, slot, c, r->first[c], r->last[c]);
        }
        if (!ok) {
            return gm_fail(err, GM_E_ARG, 0,
                           "step: row %" PRIu32 " sees positions that have no page", i);
        }
    }
    return GM_OK;
}

static void slot_set(gm_slots *s, const gm_step *step, const gm_slot_set *set)
{
    gm_slot *const slot = &s->at[set->slot];
    slot->last = -1;
    slot->draw = set->draw;
    slot->penalised = set->draw.repeat != 1 || set->draw.frequency != 0 || set->draw.presence != 0;
    slot->n_bias = set->n_bias;
    memcpy(slot->bias, gm_step_biases(step) + set->bias_first, set->n_bias * sizeof *slot->bias);
    memset(slot->counts, 0, s->desc.n_vocab * sizeof *slot->counts);
}

static uint16_t saturated(int64_t count)
{
    return (uint16_t)(count < 0 ? 0 : count > UINT16_MAX ? UINT16_MAX : count);
}

gm_status gm_slots_apply(gm_slots *s, const gm_step *step, gm_err *err)
{
    GM_TRY(check_edits(&s->desc, step, err));
    for (uint32_t i = 0; i < step->n_sets; i++)
        slot_set(s, step, &gm_step_sets(step)[i]);
    for (uint32_t i = 0; i < step->n_counts; i++) {
        const gm_count_edit *const e = &gm_step_counts(step)[i];
        gm_draw_count *const c = &s->at[e->slot].counts[e->id];
        c->prompt = saturated((int64_t)c->prompt + e->prompt);
        c->answer = saturated((int64_t)c->answer + e->answer);
    }
    for (uint32_t i = 0; i < step->n_edits; i++) {
        const gm_page_edit *const e = &gm_step_edits(step)[i];
        s->at[e->slot].table[e->class][e->index] = e->page;
    }
    return check_rows(s, step, err);
}

int64_t gm_slots_token(const gm_slots *s, const gm_step_row *row)
{
    if (row->kind == GM_ROW_ID) return row->src;
    return row->kind == GM_ROW_LAST && s ? s->at[row->slot].last : -1;
}

static int32_t draw(gm_slots *s, const gm_answer *a)
{
    const gm_step_out *const o = &gm_step_outs(a->step)[a->i];
    const gm_step_row *const r = &gm_step_rows(a->step)[o->row];
    gm_slot *const slot = &s->at[r->slot];
    const gm_draw_row row = {
        .draw = &slot->draw,
        .counts = slot->penalised ? slot->counts : NULL,
        .bias = slot->bias,
        .n_bias = slot->n_bias,
        .mask = o->mask == GM_NO_MASK ? NULL : gm_step_mask_at(a->step, o->mask),
        .pos = r->pos + 1,
    };
    slot->last = (int32_t)gm_draw_token(a->logits, a->n, &row, a->scratch);
    if (slot->counts[slot->last].answer < UINT16_MAX) slot->counts[slot->last].answer++;
    return slot->last;
}

void gm_slots_answer(gm_slots *s, const gm_answer *a, gm_result_out *out)
{
    const gm_step_out *const o = &gm_step_outs(a->step)[a->i];
    if (o->want & GM_WANT_TOP) {
        out->n_top = o->n_top < a->n ? o->n_top : a->n;
        out->top = a->top;
        const double logsum = o->want & GM_WANT_DRAW ? a->logsum : gm_draw_logsum(a->logits, a->n);
        gm_draw_top(a->logits, a->n, logsum, out->n_top, a->scratch->order, a->top);
    }
    if (o->want & GM_WANT_DRAW) {
        out->token = draw(s, a);
        out->logprob = (float)((double)a->logits[out->token] - a->logsum);
    }
}
