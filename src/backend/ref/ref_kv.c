/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "backend/ref/ref.h"
#include "base/mem.h"

gm_status gm_ref_kv_size_of(const gm_backend *be, const gm_kv_desc *d, uint64_t *bytes, gm_err *err)
{
    (void)be;
    uint32_t n_layer_of[GM_CLASSES] = {0};
    *bytes = 0;
    for (uint32_t l = 0; l < d->n_layer; l++)
        n_layer_of[d->layer_class[l]]++;
    for (int c = 0; c < GM_CLASSES; c++) {
        uint64_t size = (uint64_t)d->n_kv_head * d->head_dim;
        if (!gm_size_mul(size, 2ull * GM_PAGE_LEN * sizeof(float), &size) ||
            !gm_size_mul(size, n_layer_of[c], &size) || !gm_size_mul(size, d->n_pages[c], &size) ||
            !gm_size_add(*bytes, size, bytes)) {
            return gm_fail(err, GM_E_TOOBIG, 0, "kv: %" PRIu32 " pages are too many to count",
                           d->n_pages[c]);
        }
    }
    return GM_OK;
}

static gm_status slot_init(gm_ref_slot *s, const gm_kv_desc *d, gm_err *err)
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

static gm_status kv_init(gm_kvmem *kv, const gm_kv_desc *d, gm_err *err)
{
    kv->desc = *d;
    kv->desc.n_slots = 0; /* grows as slots are made, so that close frees just those */
    kv->cell_len = (uint64_t)d->n_kv_head * d->head_dim;
    GM_TRY(gm_mem_alloc(&kv->layer_class, d->n_layer, 1, "the KV layout", err));
    GM_TRY(
        gm_mem_alloc(&kv->layer_index, d->n_layer, sizeof *kv->layer_index, "the KV layout", err));
    for (uint32_t l = 0; l < d->n_layer; l++) {
        kv->layer_class[l] = d->layer_class[l];
        kv->layer_index[l] = kv->n_layer_of[d->layer_class[l]]++;
    }
    kv->desc.layer_class = kv->layer_class;
    for (int c = 0; c < GM_CLASSES; c++) {
        kv->page_len[c] = kv->n_layer_of[c] * 2ull * GM_PAGE_LEN * kv->cell_len;
        GM_TRY(gm_mem_alloc(&kv->pages[c], d->n_pages[c], kv->page_len[c] * sizeof(float),
                            "KV pages", err));
    }
    GM_TRY(gm_mem_alloc(&kv->slots, d->n_slots, sizeof *kv->slots, "slots", err));
    while (kv->desc.n_slots < d->n_slots)
        GM_TRY(slot_init(&kv->slots[kv->desc.n_slots++], d, err));
    return GM_OK;
}

gm_status gm_ref_kv_open(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err)
{
    *out = NULL;
    uint64_t bytes = 0;
    GM_TRY(gm_ref_kv_size_of(be, d, &bytes, err));
    if (d->type != GM_QTYPE_F32) {
        return gm_fail(err, GM_E_UNSUP, 0, "ref: the KV cache is f32 here, not %s",
                       gm_qtype_name(d->type));
    }
    gm_kvmem *kv = NULL;
    GM_TRY(gm_mem_alloc(&kv, 1, sizeof *kv, "the KV cache", err));
    const gm_status status = kv_init(kv, d, err);
    if (status == GM_OK)
        *out = kv;
    else
        gm_ref_kv_close(kv);
    return status;
}

void gm_ref_kv_close(gm_kvmem *kv)
{
    if (!kv) return;
    for (uint32_t i = 0; i < kv->desc.n_slots && kv->slots; i++) {
        for (int c = 0; c < GM_CLASSES; c++)
            gm_mem_free(kv->slots[i].table[c]);
        gm_mem_free(kv->slots[i].counts);
        gm_mem_free(kv->slots[i].bias);
    }
    for (int c = 0; c < GM_CLASSES; c++)
        gm_mem_free(kv->pages[c]);
    gm_mem_free(kv->slots);
    gm_mem_free(kv->layer_class);
    gm_mem_free(kv->layer_index);
    gm_mem_free(kv);
}

uint64_t gm_ref_kv_page_size(const gm_kvmem *kv, uint32_t class)
{
    return kv->page_len[class] * sizeof(float);
}

gm_status gm_ref_kv_copy(gm_kvmem *kv, const gm_page_move *moves, uint32_t n, gm_ticket *t,
                         gm_err *err)
{
    *t = 0;
    for (uint32_t i = 0; i < n; i++) {
        const gm_page_move *const m = &moves[i];
        if (m->class >= GM_CLASSES || m->page >= kv->desc.n_pages[m->class])
            return gm_fail(err, GM_E_ARG, 0, "kv: there is no page %" PRIu32, m->page);
        float *const page = kv->pages[m->class] + m->page * kv->page_len[m->class];
        if (m->save)
            memcpy(m->host, page, gm_ref_kv_page_size(kv, m->class));
        else
            memcpy(page, m->host, gm_ref_kv_page_size(kv, m->class));
    }
    return GM_OK;
}

float *gm_ref_kv_cell(const gm_kvmem *kv, uint32_t slot, uint32_t layer, uint32_t pos,
                      uint32_t which)
{
    const uint32_t c = kv->layer_class[layer];
    const uint32_t page = kv->slots[slot].table[c][pos / GM_PAGE_LEN];
    const uint64_t row = ((uint64_t)kv->layer_index[layer] * 2 + which) * GM_PAGE_LEN;
    return kv->pages[c] + page * kv->page_len[c] + (row + pos % GM_PAGE_LEN) * kv->cell_len;
}

/* Numbers that would read or write outside the tables are refused; they are the engine's mistakes,
 * and the oracle is where such a mistake should be seen first. */
static gm_status check_edits(const gm_kvmem *kv, const gm_step *s, gm_err *err)
{
    const gm_kv_desc *const d = &kv->desc;
    for (uint32_t i = 0; i < s->n_sets; i++) {
        const gm_slot_set *const set = &gm_step_sets(s)[i];
        if (set->slot >= d->n_slots || set->n_bias > d->max_bias)
            return gm_fail(err, GM_E_ARG, 0, "step: setting %" PRIu32 " is out of bounds", i);
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

static gm_status check_rows(const gm_kvmem *kv, const gm_step *s, gm_err *err)
{
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(s)[i];
        bool ok = r->slot < kv->desc.n_slots && r->pos / GM_PAGE_LEN < kv->desc.table_len;
        for (int c = 0; ok && c < GM_CLASSES; c++) {
            if (kv->n_layer_of[c] == 0) continue;
            ok = r->first[c] <= r->last[c] && r->last[c] / GM_PAGE_LEN < kv->desc.table_len;
            for (uint32_t p = r->first[c] / GM_PAGE_LEN; ok && p <= r->last[c] / GM_PAGE_LEN; p++)
                ok = kv->slots[r->slot].table[c][p] != GM_NO_PAGE;
            ok = ok && kv->slots[r->slot].table[c][r->pos / GM_PAGE_LEN] != GM_NO_PAGE;
        }
        if (!ok) {
            return gm_fail(err, GM_E_ARG, 0,
                           "step: row %" PRIu32 " sees positions that have no page", i);
        }
    }
    return GM_OK;
}

static void slot_set(gm_kvmem *kv, const gm_step *s, const gm_slot_set *set)
{
    gm_ref_slot *const slot = &kv->slots[set->slot];
    slot->last = -1;
    slot->draw = set->draw;
    slot->penalised = set->draw.repeat != 1 || set->draw.frequency != 0 || set->draw.presence != 0;
    slot->n_bias = set->n_bias;
    memcpy(slot->bias, gm_step_biases(s) + set->bias_first, set->n_bias * sizeof *slot->bias);
    memset(slot->counts, 0, kv->desc.n_vocab * sizeof *slot->counts);
}

static uint16_t saturated(int32_t count)
{
    return (uint16_t)(count < 0 ? 0 : count > UINT16_MAX ? UINT16_MAX : count);
}

gm_status gm_ref_kv_apply(gm_kvmem *kv, const gm_step *s, gm_err *err)
{
    GM_TRY(check_edits(kv, s, err));
    for (uint32_t i = 0; i < s->n_sets; i++)
        slot_set(kv, s, &gm_step_sets(s)[i]);
    for (uint32_t i = 0; i < s->n_counts; i++) {
        const gm_count_edit *const e = &gm_step_counts(s)[i];
        gm_draw_count *const c = &kv->slots[e->slot].counts[e->id];
        c->prompt = saturated(c->prompt + e->prompt);
        c->answer = saturated(c->answer + e->answer);
    }
    for (uint32_t i = 0; i < s->n_copies; i++) {
        const gm_page_copy *const m = &gm_step_copies(s)[i];
        float *const pages = kv->pages[m->class];
        memmove(pages + m->to * kv->page_len[m->class], pages + m->from * kv->page_len[m->class],
                gm_ref_kv_page_size(kv, m->class));
    }
    for (uint32_t i = 0; i < s->n_edits; i++) {
        const gm_page_edit *const e = &gm_step_edits(s)[i];
        kv->slots[e->slot].table[e->class][e->index] = e->page;
    }
    return check_rows(kv, s, err);
}
