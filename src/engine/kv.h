/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_KV_H
#define GM_ENGINE_KV_H

/* Which page holds what. The backend owns the memory; here are page numbers.
 *
 * Pages come in two classes, and a sequence has a table of pages for each. Global
 * pages are kept for the whole context; local pages go back to the pool once no row
 * to come can see them, so local layers cost a window and not a context.
 *
 * A sequence may be told to keep the local pages before some positions, so that
 * others can go on from there later (gm_kvpool_mark): these stay in its table when
 * it has gone past them, and no row of its own looks at them.
 *
 * Pages are counted: sequences with a common beginning share its pages. A page that
 * is shared is never written to; whoever comes to write in one gets a copy first.
 * Every change is put into the step as an edit or a copy. A call that answers false
 * has changed nothing. Engine thread only. */

#include "base/arena.h"
#include "plan/step.h"

typedef struct gm_kvpool {
    uint32_t *free[GM_CLASSES]; /* stacks of page numbers                   */
    uint32_t *refs[GM_CLASSES]; /* by page: tables that hold it             */
    uint32_t n_free[GM_CLASSES], n_pages[GM_CLASSES];
    uint32_t window; /* positions a local layer sees */
    uint32_t table_len;
} gm_kvpool;

typedef struct gm_kvtable {
    uint32_t *page[GM_CLASSES]; /* [table_len], GM_NO_PAGE where none */
    uint32_t first[GM_CLASSES]; /* index of the first page in use     */
    uint32_t n[GM_CLASSES];     /* one past the last page held        */
    uint8_t *keep;              /* [table_len] local pages that stay when they are out of use */
} gm_kvtable;

/* Pages that n_seqs sequences of n_ctx positions need at most, fed `chunk` rows a step. */
void gm_kvpool_plan(gm_kvpool *p, uint32_t n_seqs, uint32_t n_ctx, uint32_t window, uint32_t chunk);
gm_status gm_kvpool_init(gm_kvpool *p, gm_arena *arena, gm_err *err);
gm_status gm_kvtable_init(gm_kvtable *t, const gm_kvpool *p, gm_arena *arena, gm_err *err);

/* Makes sure that positions [pos, pos + n) have pages of their own to be written, first giving back
 * local pages that no position from pos on can see. Answers false when pages or room in the step
 * run out. */
bool gm_kvpool_extend(gm_kvpool *p, gm_kvtable *t, uint32_t slot, uint32_t pos, uint32_t n,
                      gm_step *step);

/* Whether a table has every page that rows from position n on see of what is before them. */
bool gm_kvpool_holds(const gm_kvpool *p, const gm_kvtable *t, uint32_t n);

/* The most positions, up to n, that others could go on from: all of n, or whole pages. */
uint32_t gm_kvpool_longest(const gm_kvpool *p, const gm_kvtable *t, uint32_t n);

/* The local pages that rows from position n on see of what is before them are to stay, from now
 * on; unmark gives back those that stayed. */
void gm_kvpool_mark(const gm_kvpool *p, gm_kvtable *t, uint32_t n);
void gm_kvpool_unmark(gm_kvpool *p, gm_kvtable *t);

/* Pages of a class that a sequence of n positions needs at most, fed `chunk` rows a step. */
uint32_t gm_kvpool_need(const gm_kvpool *p, uint32_t class, uint32_t n, uint32_t chunk);

/* Gives the empty table `to` the first n positions of `from`, with what was kept of them. Answers false when `from` does
 * not hold them, or the step has no room. */
bool gm_kvpool_share(gm_kvpool *p, gm_kvtable *to, const gm_kvtable *from, uint32_t slot,
                     uint32_t n, gm_step *step);

/* Tells the slot that its sequence now has of every page in use. Answers false when the step has no
 * room. */
bool gm_kvpool_seat(const gm_kvpool *p, const gm_kvtable *t, uint32_t slot, gm_step *step);

/* Forgets every position from n on. Answers false when the table does not hold what is
 * before n, or the step has no room. */
bool gm_kvpool_truncate(gm_kvpool *p, gm_kvtable *t, uint32_t slot, uint32_t n, gm_step *step);

/* Takes a free page, of which there must be one, for a place of a table, to be kept there. */
uint32_t gm_kvpool_put(gm_kvpool *p, gm_kvtable *t, uint32_t class, uint32_t index);

/* Gives every page back. */
void gm_kvpool_release(gm_kvpool *p, gm_kvtable *t);

/* The positions that the row at pos sees in each class. */
void gm_kvpool_visible(const gm_kvpool *p, gm_step_row *row);

#endif
