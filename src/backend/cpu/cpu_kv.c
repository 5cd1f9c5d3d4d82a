/* SPDX-License-Identifier: MIT */
/* Pages: for each layer of the class, K and V, for each KV head, 32 rows. A head's
 * rows lie together because attention walks one head over many positions. */

#include <inttypes.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

/* The padded length of a head's row. */
static uint32_t row_len(const gm_kv_desc *d)
{
    return (d->head_dim + GM_KV_PAD - 1) / GM_KV_PAD * GM_KV_PAD;
}

static gm_status sizes_of(const gm_kv_desc *d, gm_kv_sizes *out, gm_err *err)
{
    if (gm_kv_index(d->type) < 0) {
        return gm_fail(err, GM_E_UNSUP, 0, "cpu: a KV cache of %s, expected f32, f16 or q8_0",
                       gm_qtype_name(d->type));
    }
    const uint64_t head = (uint64_t)gm_kv_row_size(d->type, row_len(d)) * GM_PAGE_LEN;
    return gm_kv_sizes_of(d, head * 2 * d->n_kv_head, out, err);
}

gm_status gm_cpu_kv_size_of(const gm_kv_desc *d, uint64_t *bytes, gm_err *err)
{
    gm_kv_sizes sizes;
    GM_TRY(sizes_of(d, &sizes, err));
    *bytes = sizes.all;
    return GM_OK;
}

static gm_status kv_init(gm_kvmem *kv, const gm_kv_desc *d, gm_err *err)
{
    gm_kv_sizes sizes;
    GM_TRY(sizes_of(d, &sizes, err));
    memcpy(kv->page_size, sizes.page, sizeof kv->page_size);
    kv->type = gm_kv_index(d->type);
    kv->len = row_len(d);
    kv->row_size = gm_kv_row_size(d->type, kv->len);
    kv->head_size = (uint64_t)kv->row_size * GM_PAGE_LEN;
    GM_TRY(gm_slots_init(&kv->slots, d, err));
    for (int c = 0; c < GM_CLASSES; c++)
        GM_TRY(gm_mem_alloc(&kv->pages[c], d->n_pages[c], kv->page_size[c], "KV pages", err));
    return GM_OK;
}

gm_status gm_cpu_kv_open(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err)
{
    (void)be;
    *out = NULL;
    uint64_t bytes = 0;
    GM_TRY(gm_cpu_kv_size_of(d, &bytes, err));
    gm_kvmem *kv = NULL;
    GM_TRY(gm_mem_alloc(&kv, 1, sizeof *kv, "the KV cache", err));
    const gm_status status = kv_init(kv, d, err);
    if (status == GM_OK)
        *out = kv;
    else
        gm_cpu_kv_close(kv);
    return status;
}

void gm_cpu_kv_close(gm_kvmem *kv)
{
    if (!kv) return;
    for (int c = 0; c < GM_CLASSES; c++)
        gm_mem_free(kv->pages[c]);
    gm_slots_deinit(&kv->slots);
    gm_mem_free(kv);
}

uint64_t gm_cpu_kv_page_size(const gm_kvmem *kv, uint32_t class)
{
    return kv->page_size[class];
}

gm_status gm_cpu_kv_copy(gm_kvmem *kv, const gm_page_move *moves, uint32_t n, gm_ticket *t,
                         gm_err *err)
{
    *t = 0;
    for (uint32_t i = 0; i < n; i++) {
        const gm_page_move *const m = &moves[i];
        if (m->class >= GM_CLASSES || m->page >= kv->slots.desc.n_pages[m->class])
            return gm_fail(err, GM_E_ARG, 0, "kv: there is no page %" PRIu32, m->page);
        const uint64_t size = kv->page_size[m->class];
        uint8_t *const page = kv->pages[m->class] + m->page * size;
        if (m->save)
            memcpy(m->host, page, size);
        else
            memcpy(page, m->host, size);
    }
    return GM_OK;
}

gm_status gm_cpu_kv_apply(gm_kvmem *kv, const gm_step *s, gm_err *err)
{
    GM_TRY(gm_slots_apply(&kv->slots, s, err));
    for (uint32_t i = 0; i < s->n_copies; i++) {
        const gm_page_copy *const m = &gm_step_copies(s)[i];
        const uint64_t size = kv->page_size[m->class];
        memmove(kv->pages[m->class] + m->to * size, kv->pages[m->class] + m->from * size, size);
    }
    return GM_OK;
}

uint8_t *gm_cpu_kv_rows(const gm_kvmem *kv, uint32_t slot, uint32_t layer, uint32_t pos,
                        uint32_t which, uint32_t head)
{
    const uint32_t c = kv->slots.layer_class[layer];
    const uint64_t in_page =
        ((uint64_t)kv->slots.layer_index[layer] * 2 + which) * kv->slots.desc.n_kv_head + head;
    return kv->pages[c] + gm_slots_page(&kv->slots, slot, layer, pos) * kv->page_size[c] +
           in_page * kv->head_size;
}
