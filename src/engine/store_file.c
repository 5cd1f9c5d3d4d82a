/* SPDX-License-Identifier: MIT */
#include "engine/store_file.h"

#include "base/hash.h"
#include "base/mem.h"

#define SAMPLE 4096 /* bytes at the beginning, the middle and the end of each tensor */

static const char MAGIC[8] = "gemmule";

/* ---- whose it is --------------------------------------------------------------------------- */

/* Where the first tensor's data begin in a map: what is before is the head and the tables. */
static size_t head_size(const gm_tensorfile *f, const gm_mapfile *map)
{
    size_t end = map->size;
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const uint8_t *const data = f->tensors[i].data;
        if (data < map->data || data >= map->data + map->size) continue;
        const size_t at = (size_t)(data - map->data);
        if (at < end) end = at;
    }
    return end;
}

static uint64_t sample(const gm_tensor *t, uint64_t hash)
{
    const uint64_t n = t->size < SAMPLE ? t->size : SAMPLE;
    hash = gm_hash(t->data, n, hash ^ t->size);
    hash = gm_hash(t->data + (t->size - n) / 2, n, hash);
    return gm_hash(t->data + t->size - n, n, hash);
}

uint64_t gm_store_model_hash(const gm_model *m)
{
    const gm_tensorfile *const f = m->file;
    uint64_t hash = 0;
    for (uint32_t i = 0; i < f->n_maps; i++) {
        const gm_mapfile *const map = &f->maps[i];
        if (map->size) hash = gm_hash(map->data, head_size(f, map), hash ^ map->size);
    }
    for (uint32_t i = 0; i < f->n_tensors; i++)
        hash = sample(&f->tensors[i], hash);
    return hash;
}

/* ---- segments ------------------------------------------------------------------------------ */

gm_store_layout gm_store_layout_of(const gm_store_head *h, const uint32_t n_pages[GM_CLASSES])
{
    gm_store_layout at = {.ids = sizeof *h};
    uint64_t ids = 0, index = 0, size = 0;
    bool ok = gm_size_mul(h->n_ids - h->first, sizeof(int32_t), &ids) &&
              gm_size_align(ids, 8, &ids) && gm_size_mul(h->n_pages, sizeof(gm_store_page), &index);
    at.index = at.ids + ids;
    at.pages = at.size = at.index + index;
    for (int c = 0; ok && c < GM_CLASSES; c++)
        ok =
            gm_size_mul(n_pages[c], h->page_size[c], &size) && gm_size_add(at.size, size, &at.size);
    return ok ? at : (gm_store_layout){0};
}

static uint64_t head_hash(const uint8_t *segment, const gm_store_layout *at)
{
    gm_store_head head;
    memcpy(&head, segment, sizeof head);
    head.hash = 0;
    const uint64_t hash = gm_hash(&head, sizeof head, 0);
    return gm_hash(segment + sizeof head, at->pages - sizeof head, hash);
}

void gm_store_seal(uint8_t *segment, const gm_store_layout *at)
{
    gm_store_head *const head = (gm_store_head *)(void *)segment;
    gm_store_page *const index = (gm_store_page *)(void *)(segment + at->index);
    memcpy(head->magic, MAGIC, sizeof MAGIC);
    const uint8_t *page = segment + at->pages;
    for (uint32_t i = 0; i < head->n_pages; i++) {
        index[i].hash = gm_hash(page, head->page_size[index[i].class], 0);
        page += head->page_size[index[i].class];
    }
    head->hash = head_hash(segment, at);
}

static const char *check_head(const gm_store_head *h, const gm_store_head *expected)
{
    if (h->page_len != expected->page_len ||
        memcmp(h->page_size, expected->page_size, sizeof h->page_size) != 0)
        return "its pages have another size";
    if (h->first != expected->first || h->n_ids < h->first || h->n_ids == 0)
        return "it is in disorder";
    return NULL;
}

const char gm_store_foreign[] = "of another model, backend, KV type or exactness";

/* Why a segment that is as it was written is not for who asks. */
static const char *check_owner(const gm_store_head *h, const gm_store_head *expected,
                               uint32_t table_len)
{
    if (h->whose != expected->whose) return gm_store_foreign;
    if (h->n_ids > (uint64_t)table_len * GM_PAGE_LEN) return "longer than the context";
    return NULL;
}

/* The index must name each page of a table once, in order, class by class. */
static const char *check_index(const uint8_t *segment, const gm_store_head *h, gm_store_layout *at,
                               uint32_t table_len)
{
    const gm_store_page *const index = (const gm_store_page *)(const void *)(segment + at->index);
    uint32_t n[GM_CLASSES] = {0};
    for (uint32_t i = 0; i < h->n_pages; i++) {
        if (index[i].class >= GM_CLASSES || index[i].index >= table_len)
            return "its pages do not fit the context";
        const bool follows =
            i == 0 || index[i].class > index[i - 1].class ||
            (index[i].class == index[i - 1].class && index[i].index > index[i - 1].index);
        if (!follows) return "its pages are in disorder";
        n[index[i].class]++;
    }
    *at = gm_store_layout_of(h, n);
    return NULL;
}

static const char *check_pages(const uint8_t *segment, const gm_store_head *h,
                               const gm_store_layout *at)
{
    const gm_store_page *const index = (const gm_store_page *)(const void *)(segment + at->index);
    const uint8_t *page = segment + at->pages;
    for (uint32_t i = 0; i < h->n_pages; i++) {
        const uint64_t size = h->page_size[index[i].class];
        if (gm_hash(page, size, 0) != index[i].hash) return "its checksum is wrong";
        page += size;
    }
    return NULL;
}

const char *gm_store_check(const uint8_t *segment, uint64_t size, const gm_store_head *expected,
                           uint32_t table_len, gm_store_layout *at, bool *others)
{
    gm_store_head h;
    *others = false;
    if (size < sizeof h) return "it is cut short";
    memcpy(&h, segment, sizeof h);
    if (memcmp(h.magic, MAGIC, sizeof MAGIC) != 0) return "it is no cache of gemmule's";
    if (h.version != GM_STORE_VERSION) return "it is of another version";
    const uint32_t none[GM_CLASSES] = {0};
    *at = gm_store_layout_of(&h, none);
    if (at->pages == 0 || at->pages > size) return "it is cut short";
    if (h.hash != head_hash(segment, at)) return "its checksum is wrong";
    const char *wrong = check_owner(&h, expected, table_len);
    *others = wrong != NULL;
    if (!wrong) wrong = check_head(&h, expected);
    if (wrong) return wrong;
    wrong = check_index(segment, &h, at, table_len);
    if (wrong) return wrong;
    if (at->size == 0 || at->size > size) return "it is cut short";
    return check_pages(segment, &h, at);
}
