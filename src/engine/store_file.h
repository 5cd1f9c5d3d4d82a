/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_STORE_FILE_H
#define GM_ENGINE_STORE_FILE_H

/* A beginning as a file: its token ids and the pages that hold them.
 *
 *     head    magic, version, whose (model, backend, KV type: one hash), counts, and
 *             a hash of everything up to the pages
 *     ids     n token ids
 *     index   class, place in the table and hash of each page
 *     pages   their bytes, in the order of the index
 *
 * Numbers are little-endian. A file that differs in any bit is refused, whatever it
 * came from: no count is used before its hash has been compared. */

#include "engine/kv.h"
#include "model/model.h"

#define GM_STORE_VERSION 1

typedef struct gm_store_head {
    char magic[8];
    uint32_t version;
    uint32_t n_ids, n_pages;
    uint32_t page_len;
    uint64_t whose;
    uint64_t page_size[GM_CLASSES];
    uint64_t hash; /* of the head with this field 0, ids and index */
} gm_store_head;

typedef struct gm_store_page {
    uint32_t class, index;
    uint64_t hash; /* of its bytes */
} gm_store_page;

/* A hash by which a model file is known: its size, its head with the table of tensors, and samples
 * of its weights. */
uint64_t gm_store_model_hash(const gm_model *m);

uint64_t gm_store_hash(const void *p, size_t n, uint64_t seed);

/* Bytes of a file with so many ids and pages, and where its parts begin; 0 where that is too much. */
typedef struct gm_store_layout {
    uint64_t ids, index, pages, size;
} gm_store_layout;
gm_store_layout gm_store_layout_of(const gm_store_head *h, const uint32_t n_pages[GM_CLASSES]);

/* Fills in the hashes of a file in memory, whose pages and index are there. */
void gm_store_seal(uint8_t *file, const gm_store_layout *at);

/* Checks a file in memory, all but its pages' own hashes; answers the sentence of what is wrong
 * with it, or NULL. */
const char *gm_store_check(const uint8_t *file, uint64_t size, const gm_store_head *expected,
                           uint32_t table_len, gm_store_layout *at);

#endif
