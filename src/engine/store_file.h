/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_STORE_FILE_H
#define GM_ENGINE_STORE_FILE_H

/* A beginning as a file: its token ids and the pages that hold them. It grows with
 * them: a file is a row of segments, each of which goes on where the one before ends,
 * and has what is new: tokens, pages, and again the last page where that was not full.
 * So what was written is never written again, and a segment that was cut short, or
 * differs in any bit, costs itself and what comes after it. A segment:
 *
 *     head    magic, version, whose (model, backend, KV type: one hash), counts, and
 *             a hash of everything up to the pages
 *     ids     of the tokens from `first` to `n_ids`
 *     index   class, place in the table and hash of each page
 *     pages   their bytes, in the order of the index
 *
 * Numbers are little-endian. No count is used before its hash has been compared. */

#include "engine/kv.h"
#include "model/model.h"

#define GM_STORE_VERSION 2

typedef struct gm_store_head {
    char magic[8];
    uint32_t version;
    uint32_t first, n_ids; /* tokens before it, and with it */
    uint32_t n_pages, page_len;
    uint32_t zero;
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

/* Bytes of a segment with so many ids and pages, and where its parts begin; 0 where that is too
 * much. Pages hold a power of two of positions, so what follows one is aligned. */
typedef struct gm_store_layout {
    uint64_t ids, index, pages, size;
} gm_store_layout;
gm_store_layout gm_store_layout_of(const gm_store_head *h, const uint32_t n_pages[GM_CLASSES]);

/* Fills in the hashes of a segment in memory, whose pages and index are there. */
void gm_store_seal(uint8_t *segment, const gm_store_layout *at);

/* Why a segment is none of whoever asks. */
extern const char gm_store_foreign[];

/* Checks the segment at the beginning of size bytes; answers why it cannot be taken, or NULL.
 * *others says whether it may still be right for somebody else. */
const char *gm_store_check(const uint8_t *segment, uint64_t size, const gm_store_head *expected,
                           uint32_t table_len, gm_store_layout *at, bool *others);

#endif
