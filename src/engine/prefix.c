/* SPDX-License-Identifier: MIT */
#include "engine/prefix.h"

#include "base/mem.h"

#define LEAST_SHARED 16 /* tokens; fewer are computed as fast as they are looked up */

/* ---- what is in common ------------------------------------------------------------------- */

/* Tokens that r begins with and a beginning has too, of its first n. */
static uint32_t common(const gm_beginning *b, uint32_t n, const gm_request *r)
{
    const uint32_t most = r->n_prompt - 1 < n ? r->n_prompt - 1 : n;
    uint32_t same = 0;
    while (same < most && b->ids[same] == r->ids[same])
        same++;
    return same;
}

/* The best that was found so far. */
typedef struct find {
    gm_beginning *from;
    uint32_t n;      /* tokens that can be taken over              */
    uint32_t common; /* tokens in common with whoever has the most */
} find;

/* A donor whose answer has gone far past what it has in common with r may have given the local
 * pages back; one with less in common may still have its own. Only a cache looks for a shorter
 * beginning: its marks are made for that. */
static void consider(const gm_engine *e, gm_beginning *b, const gm_request *r, find *f)
{
    if (!b || b == r->begin) return;
    const uint32_t same = common(b, b->n, r);
    if (same > f->common) f->common = same;
    if (same <= f->n) return;
    const uint32_t n = e->cache ? gm_kvpool_longest(&e->place.pool, &b->table, same)
                       : gm_kvpool_holds(&e->place.pool, &b->table, same) ? same
                                                                          : 0;
    if (n <= f->n) return;
    f->from = b;
    f->n = n;
}

static find look(const gm_engine *e, const gm_request *r)
{
    find f = {.n = LEAST_SHARED - 1};
    for (uint32_t i = 0; i < e->place.n_slots; i++)
        consider(e, e->slot[i] ? e->slot[i]->begin : NULL, r, &f);
    for (gm_beginning *k = e->kept; k; k = k->next)
        consider(e, k, r, &f);
    return f;
}

/* ---- kept beginnings --------------------------------------------------------------------- */

static void append(gm_engine *e, gm_beginning *b)
{
    gm_beginning **last = &e->kept;
    while (*last)
        last = &(*last)->next;
    b->next = NULL;
    *last = b;
}

static bool take_out(gm_engine *e, const gm_beginning *b)
{
    gm_beginning **at = &e->kept;
    while (*at && *at != b)
        at = &(*at)->next;
    if (!*at) return false;
    *at = b->next;
    return true;
}

static void drop(gm_engine *e, gm_beginning *b)
{
    gm_store_remove(&e->store, b);
    take_out(e, b);
    gm_kvpool_release(&e->place.pool, &b->table);
    gm_beginning_free(b);
}

/* What another beginning has as well, and can be gone on from there, need not be kept twice; its
 * file goes on with the other. */
static void drop_covered(gm_engine *e, gm_beginning *by)
{
    for (gm_beginning *k = e->kept, *next = NULL; k; k = next) {
        next = k->next;
        if (k->n > by->n || memcmp(k->ids, by->ids, k->n * sizeof *k->ids) != 0 ||
            !gm_kvpool_holds(&e->place.pool, &by->table, k->n))
            continue;
        gm_store_take_over(&e->store, by, k);
        drop(e, k);
    }
}

void gm_prefix_keep(gm_engine *e, gm_request *r)
{
    gm_beginning *const b = r->begin;
    r->begin = NULL;
    b->n = r->n_done;
    if (b->n < LEAST_SHARED) {
        drop(e, b);
        return;
    }
    b->owner = e->cache ? NULL : r;
    if (e->cache) drop_covered(e, b);
    append(e, b);
}

void gm_prefix_forget(gm_engine *e, const gm_request *r)
{
    for (gm_beginning *k = e->kept; k; k = k->next) {
        if (k->owner != r) continue;
        drop(e, k);
        return;
    }
}

void gm_prefix_unload(gm_engine *e, gm_request *r)
{
    gm_kvpool_release(&e->place.pool, &r->begin->table);
    r->n_done = r->begin->n = 0;
    r->begun = false;
}

static bool evict_aside(gm_engine *e)
{
    for (gm_request *r = e->queue; r; r = r->next) {
        if (r->n_done == 0) continue;
        gm_prefix_unload(e, r);
        return true;
    }
    return false;
}

bool gm_prefix_evict(gm_engine *e)
{
    if (e->kept) {
        e->stats.n_evicted++;
        gm_store_leave(&e->store, e->kept);
        drop(e, e->kept);
        return true;
    }
    if (evict_aside(e)) return true;
    const uint32_t before = e->place.pool.n_free[GM_CLASS_LOCAL];
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        if (e->slot[i]) gm_kvpool_unmark(&e->place.pool, &e->slot[i]->begin->table);
    }
    return e->place.pool.n_free[GM_CLASS_LOCAL] > before;
}

void gm_prefix_clear(gm_engine *e)
{
    for (gm_beginning *k = e->kept, *next = NULL; k; k = next) {
        next = k->next;
        gm_kvpool_release(&e->place.pool, &k->table);
        gm_beginning_free(k);
    }
    e->kept = NULL;
}

/* What was dropped and computed again is on disk twice. */
static void add_kept(void *ctx, gm_beginning *b)
{
    drop_covered(ctx, b);
    append(ctx, b);
}

void gm_prefix_load(gm_engine *e)
{
    gm_store_load(&e->store, &e->place, add_kept, e);
}

/* ---- requests ---------------------------------------------------------------------------- */

void gm_prefix_mark(const gm_engine *e, gm_request *r)
{
    if (!e->cache) return;
    const int32_t end_of_turn = gm_vocab_special(e->model->vocab)->end_of_turn;
    gm_kvtable *const t = &r->begin->table;
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        if (r->ids[i] == end_of_turn) gm_kvpool_mark(&e->place.pool, t, i);
    }
    gm_kvpool_mark(&e->place.pool, t, r->n_prompt - 1);
}

bool gm_prefix_awaits(gm_engine *e, const gm_request *r)
{
    if (!e->cache || r->flags & GM_REQUEST_PROMPT) return false;
    const uint32_t have = look(e, r).n;
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        gm_request *const other = e->slot[i];
        if (!other || other == r || !other->begun || other->flags & GM_REQUEST_PROMPT) continue;
        const uint32_t same = common(other->begin, other->n_prompt, r);
        if (other->n_done >= same || same < have + LEAST_SHARED) continue;
        gm_kvpool_mark(&e->place.pool, &other->begin->table, same);
        return true;
    }
    return false;
}

uint32_t gm_prefix_share(gm_engine *e, gm_request *r)
{
    gm_kvpool *const pool = &e->place.pool;
    if (r->flags & GM_REQUEST_PROMPT) return 0; /* every row is asked for */
    const find f = look(e, r);
    e->stats.n_lookups++;
    if (e->cache && f.common >= f.n + LEAST_SHARED)
        gm_kvpool_mark(pool, &r->begin->table, f.common);
    if (!f.from ||
        !gm_kvpool_share(pool, &r->begin->table, &f.from->table, r->slot, f.n, e->turn->step))
        return 0;
    e->stats.n_hits++;
    if (take_out(e, f.from)) { /* it is the one used last */
        append(e, f.from);
        gm_store_use(&e->store, f.from);
    }
    return f.n;
}
