/* SPDX-License-Identifier: MIT */
/* Pages and slots on the device. A slot's page table holds addresses, so a kernel goes from position
 * to cell with one read, and pages may lie in as many buffers as the driver makes us take. The host
 * keeps a copy of tables and parameters (gm_slots) only to check steps before the device sees them. */

#include <inttypes.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/mem.h"

#define BUFFER_SIZE (1ull << 30)

static bool is_q8(const gm_kv_desc *d)
{
    return d->type == GM_QTYPE_Q8_0;
}

uint32_t gm_vk_kv_dim(const gm_kv_desc *d)
{
    const uint32_t unit = is_q8(d) ? 32 : 8;
    return (d->head_dim + unit - 1) / unit * unit;
}

/* Bytes of one layer in a page: K and V, every head, 32 cells. inc/cells.glsl has the same. */
static gm_status layer_size(const gm_kv_desc *d, uint64_t *size, gm_err *err)
{
    const uint64_t cells = (uint64_t)GM_PAGE_LEN * gm_vk_kv_dim(d) * d->n_kv_head * 2;
    switch (d->type) {
    case GM_QTYPE_F32: *size = cells * 4; return GM_OK;
    case GM_QTYPE_F16: *size = cells * 2; return GM_OK;
    case GM_QTYPE_Q8_0: *size = cells + cells / 32 * 4; return GM_OK;
    default:
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: a KV cache of %s, expected f32, f16 or q8_0",
                       gm_qtype_name(d->type));
    }
}

gm_status gm_vk_kv_size_of(const gm_kv_desc *d, uint64_t *bytes, gm_err *err)
{
    gm_kv_sizes sizes;
    uint64_t layer = 0;
    GM_TRY(layer_size(d, &layer, err));
    GM_TRY(gm_kv_sizes_of(d, layer, &sizes, err));
    *bytes = sizes.all;
    return GM_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A buffer of the device's that the host fills once. */
static gm_status put_buf(gm_vk_dev *d, gm_vk_buf *b, const void *data, uint64_t size, gm_err *err)
{
    GM_TRY(gm_vk_buf_alloc(d, b, size, GM_VK_LOCAL, "page addresses", err));
    if (b->map) {
        memcpy(b->map, data, size);
        return GM_OK;
    }
    gm_vk_buf stage = {0};
    gm_status status = gm_vk_buf_alloc(d, &stage, size, GM_VK_STAGING, "staging", err);
    if (status == GM_OK) {
        memcpy(stage.map, data, size);
        status = gm_vk_copy_now(d, &(gm_vk_copy){&stage, b, 0, 0, size}, 1, err);
    }
    gm_vk_buf_free(d, &stage);
    return status;
}

static gm_status alloc_pages(gm_kvmem *kv, const gm_kv_desc *d, gm_err *err)
{
    gm_vk_dev *const dev = &kv->be->dev;
    const uint64_t max = dev->max_alloc < BUFFER_SIZE ? dev->max_alloc : BUFFER_SIZE;
    const uint64_t n_pages = (uint64_t)d->n_pages[0] + d->n_pages[1];
    size_t cap = 0;
    uint64_t at = 0;
    GM_TRY(gm_mem_alloc(&kv->page_addr, n_pages, sizeof *kv->page_addr, "pages", err));
    for (int c = 0; c < GM_CLASSES; c++) {
        const uint64_t size = kv->page_size[c], per = size ? max / size : UINT32_MAX;
        if (per == 0)
            return gm_fail(err, GM_E_DEVMEM, 0, "vulkan: a KV page is larger than one allocation");
        for (uint64_t first = 0; first < d->n_pages[c] && size; first += per) {
            const uint64_t n = d->n_pages[c] - first < per ? d->n_pages[c] - first : per;
            GM_TRY(gm_mem_grow(&kv->page_bufs, &cap, kv->n_page_bufs + 1, sizeof *kv->page_bufs,
                               "pages", err));
            gm_vk_buf *const b = &kv->page_bufs[kv->n_page_bufs];
            GM_TRY(gm_vk_buf_alloc(dev, b, n * size, GM_VK_LOCAL, "the KV cache", err));
            kv->n_page_bufs++;
            GM_TRY(gm_vk_fill_now(dev, b, 0, err));
            for (uint64_t i = 0; i < n; i++)
                kv->page_addr[at + first + i] = b->addr + i * size;
        }
        at += d->n_pages[c];
    }
    return put_buf(dev, &kv->pages, kv->page_addr, n_pages * 8, err);
}

static uint64_t aligned(uint64_t n)
{
    return (n + 15) / 16 * 16;
}

static gm_status alloc_edits(gm_kvmem *kv, gm_vk_edits *e, gm_err *err)
{
    const gm_kv_desc *const d = &kv->slots.desc;
    e->sets = aligned(sizeof(struct gm_vk_head));
    e->biases = e->sets + aligned((uint64_t)d->n_slots * sizeof(gm_slot_set));
    e->counts = e->biases + aligned((uint64_t)d->n_slots * d->max_bias * sizeof(gm_bias));
    e->edits = e->counts + aligned((uint64_t)kv->n_counts * sizeof(gm_count_edit));
    e->copies = e->edits + aligned((uint64_t)kv->n_edits * sizeof(gm_page_edit));
    const uint64_t size = e->copies + aligned((uint64_t)kv->n_copies * sizeof(gm_page_copy));
    return gm_vk_buf_alloc(&kv->be->dev, &e->buf, size, GM_VK_STEP, "steps", err);
}

static gm_status kv_init(gm_kvmem *kv, const gm_kv_desc *d, gm_err *err)
{
    gm_vk_dev *const dev = &kv->be->dev;
    const uint64_t n = d->n_slots;
    GM_TRY(layer_size(d, &kv->layer_size, err));
    gm_kv_sizes sizes;
    GM_TRY(gm_kv_sizes_of(d, kv->layer_size, &sizes, err));
    memcpy(kv->page_size, sizes.page, sizeof kv->page_size);
    GM_TRY(gm_slots_init(&kv->slots, d, err));
    GM_TRY(gm_mem_alloc(&kv->met, d->n_slots, sizeof *kv->met, "slots", err));
    /* What the engine's largest step brings (engine/place.c), and some more. */
    kv->n_edits = GM_CLASSES * (d->n_slots * (d->table_len + 8) + 128);
    kv->n_counts = d->table_len * GM_PAGE_LEN + 1024;
    kv->n_copies = d->n_slots * GM_CLASSES + 16;
    GM_TRY(alloc_pages(kv, d, err));
    const struct {
        gm_vk_buf *buf;
        uint64_t size;
    } bufs[] = {
        {&kv->slot_buf, n * sizeof(struct gm_vk_slot)},
        {&kv->tables, n * GM_CLASSES * d->table_len * 8},
        {&kv->counts, n * d->n_vocab * 4},
        {&kv->biases, n * d->max_bias * sizeof(gm_bias)},
    };
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) {
        GM_TRY(gm_vk_buf_alloc(dev, bufs[i].buf, bufs[i].size, GM_VK_LOCAL, "slots", err));
        GM_TRY(gm_vk_fill_now(dev, bufs[i].buf, 0, err));
    }
    for (int i = 0; i < GM_TICKETS; i++)
        GM_TRY(alloc_edits(kv, &kv->edits[i], err));
    return GM_OK;
}

gm_status gm_vk_kv_open(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err)
{
    *out = NULL;
    uint64_t bytes = 0;
    GM_TRY(gm_vk_kv_size_of(d, &bytes, err));
    gm_kvmem *kv = NULL;
    GM_TRY(gm_mem_alloc(&kv, 1, sizeof *kv, "the KV cache", err));
    kv->be = be;
    const gm_status status = kv_init(kv, d, err);
    if (status == GM_OK)
        *out = kv;
    else
        gm_vk_kv_close(kv);
    return status;
}

void gm_vk_kv_close(gm_kvmem *kv)
{
    if (!kv) return;
    gm_vk_dev *const d = &kv->be->dev;
    gm_vk_wait(d, d->n_submits, NULL);
    for (size_t i = 0; i < kv->n_page_bufs; i++)
        gm_vk_buf_free(d, &kv->page_bufs[i]);
    gm_vk_buf *const bufs[] = {&kv->slot_buf, &kv->tables, &kv->counts, &kv->biases, &kv->pages};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        gm_vk_buf_free(d, bufs[i]);
    for (int i = 0; i < GM_TICKETS; i++)
        gm_vk_buf_free(d, &kv->edits[i].buf);
    gm_mem_free(kv->met);
    gm_mem_free(kv->page_bufs);
    gm_mem_free(kv->page_addr);
    gm_slots_deinit(&kv->slots);
    gm_mem_free(kv);
}

uint64_t gm_vk_kv_page_size(const gm_kvmem *kv, uint32_t class)
{
    return kv->page_size[class];
}

/* ---- pages to the host and back -------------------------------------------------------------- */

static gm_status move_page(gm_kvmem *kv, const gm_page_move *m, const gm_vk_buf *stage, gm_err *err)
{
    gm_vk_dev *const d = &kv->be->dev;
    const uint64_t size = kv->page_size[m->class];
    const uint64_t addr =
        kv->page_addr[(m->class == GM_CLASS_GLOBAL ? kv->slots.desc.n_pages[0] : 0) + m->page];
    const gm_vk_buf *b = kv->page_bufs;
    while (addr - b->addr >= b->size)
        b++;
    const uint64_t off = addr - b->addr;
    if (m->save) {
        GM_TRY(gm_vk_copy_now(d, &(gm_vk_copy){b, stage, off, 0, size}, 1, err));
        memcpy(m->host, stage->map, size);
        return GM_OK;
    }
    memcpy(stage->map, m->host, size);
    return gm_vk_copy_now(d, &(gm_vk_copy){stage, b, 0, off, size}, 1, err);
}

gm_status gm_vk_kv_copy(gm_kvmem *kv, const gm_page_move *moves, uint32_t n, gm_ticket *t,
                        gm_err *err)
{
    gm_vk_dev *const d = &kv->be->dev;
    const uint64_t most = kv->page_size[0] > kv->page_size[1] ? kv->page_size[0] : kv->page_size[1];
    gm_vk_buf stage = {0};
    *t = 0;
    gm_status status = gm_vk_buf_alloc(d, &stage, most, GM_VK_RESULT, "staging", err);
    for (uint32_t i = 0; i < n && status == GM_OK; i++) {
        if (moves[i].class >= GM_CLASSES || moves[i].page >= kv->slots.desc.n_pages[moves[i].class])
            status = gm_fail(err, GM_E_ARG, 0, "kv: there is no page %" PRIu32, moves[i].page);
        else
            status = move_page(kv, &moves[i], &stage, err);
    }
    gm_vk_buf_free(d, &stage);
    return status;
}
