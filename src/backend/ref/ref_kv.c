/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "backend/ref/ref.h"
#include "base/fp16.h"
#include "base/mem.h"

gm_status gm_ref_kv_size_of(const gm_kv_desc *d, uint64_t *bytes, gm_err *err)
{
    gm_kv_sizes sizes;
    uint64_t layer = 0;
    if (!gm_size_mul((uint64_t)d->n_kv_head * d->head_dim, 2ull * GM_PAGE_LEN * sizeof(float),
                     &layer))
        return gm_fail(err, GM_E_TOOBIG, 0, "kv: a layer of a page is too large to count");
    GM_TRY(gm_kv_sizes_of(d, layer, &sizes, err));
    *bytes = sizes.all;
    return GM_OK;
}

static gm_status kv_init(gm_kvmem *kv, const gm_kv_desc *d, gm_err *err)
{
    GM_TRY(gm_slots_init(&kv->slots, d, err));
    kv->cell_len = (uint64_t)d->n_kv_head * d->head_dim;
    for (int c = 0; c < GM_CLASSES; c++) {
        kv->page_len[c] = kv->slots.n_layer_of[c] * (uint64_t)(2 * GM_PAGE_LEN) * kv->cell_len;
        GM_TRY(gm_mem_alloc(&kv->pages[c], d->n_pages[c], kv->page_len[c] * sizeof(float),
                            "KV pages", err));
    }
    return GM_OK;
}

gm_status gm_ref_kv_open(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err)
{
    (void)be;
    *out = NULL;
    uint64_t bytes = 0;
    GM_TRY(gm_ref_kv_size_of(d, &bytes, err));
    if (d->type != GM_QTYPE_F32 && d->type != GM_QTYPE_F16 && d->type != GM_QTYPE_Q8_0) {
        return gm_fail(err, GM_E_UNSUP, 0, "ref: a KV cache of %s, expected f32, f16 or q8_0",
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
    for (int c = 0; c < GM_CLASSES; c++)
        gm_mem_free(kv->pages[c]);
    gm_slots_deinit(&kv->slots);
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
        if (m->class >= GM_CLASSES || m->page >= kv->slots.desc.n_pages[m->class])
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
    const uint32_t c = kv->slots.layer_class[layer];
    const uint64_t row = ((uint64_t)kv->slots.layer_index[layer] * 2 + which) * GM_PAGE_LEN;
    return kv->pages[c] + gm_slots_page(&kv->slots, slot, layer, pos) * kv->page_len[c] +
           (row + pos % GM_PAGE_LEN) * kv->cell_len;
}

/* A head's values become what blocks of 32 int8 with an f16 scale hold. */
static void round_q8_0(const float *x, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += GM_ACT_BLOCK) {
        int8_t q[GM_ACT_BLOCK];
        float scale;
        const uint32_t len = n - i < GM_ACT_BLOCK ? n - i : GM_ACT_BLOCK;
        gm_act8_quantise(x + i, len, &(gm_act8){q, &scale});
        scale = gm_f16_to_f32(gm_f32_to_f16(scale));
        for (uint32_t j = 0; j < len; j++)
            out[i + j] = (float)q[j] * scale;
    }
}

void gm_ref_kv_store(const gm_kvmem *kv, const float *x, float *cell)
{
    const gm_kv_desc *const d = &kv->slots.desc;
    switch (d->type) {
    case GM_QTYPE_F16:
        for (uint64_t i = 0; i < kv->cell_len; i++)
            cell[i] = gm_f16_to_f32(gm_f32_to_f16(x[i]));
        return;
    case GM_QTYPE_Q8_0:
        for (uint32_t h = 0; h < d->n_kv_head; h++)
            round_q8_0(x + (size_t)h * d->head_dim, d->head_dim, cell + (size_t)h * d->head_dim);
        return;
    default: memcpy(cell, x, kv->cell_len * sizeof *cell);
    }
}

gm_status gm_ref_kv_apply(gm_kvmem *kv, const gm_step *s, gm_err *err)
{
    GM_TRY(gm_slots_apply(&kv->slots, s, err));
    for (uint32_t i = 0; i < s->n_copies; i++) {
        const gm_page_copy *const m = &gm_step_copies(s)[i];
        float *const pages = kv->pages[m->class];
        memmove(pages + m->to * kv->page_len[m->class], pages + m->from * kv->page_len[m->class],
                gm_ref_kv_page_size(kv, m->class));
    }
    return GM_OK;
}
