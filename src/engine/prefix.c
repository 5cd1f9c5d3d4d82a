/* SPDX-License-Identifier: MIT */
#include "engine/prefix.h"

#define LEAST_SHARED 16 /* tokens; fewer are computed as fast as they are looked up */

/* Tokens that a donor has in the cache and r begins with. */
static uint32_t common(const gm_request *donor, const gm_request *r)
{
    const uint32_t most = r->n_prompt - 1 < donor->n_done ? r->n_prompt - 1 : donor->n_done;
    uint32_t n = 0;
    while (n < most && donor->ids[n] == r->ids[n])
        n++;
    return n;
}

/* A donor whose answer has gone far past what it has in common with r may have given the local
 * pages back; one with less in common may still have its own. */
static void consider(const gm_engine *e, const gm_request *donor, const gm_request *r,
                     const gm_request **best, uint32_t *best_n)
{
    if (!donor || donor == r) return;
    const uint32_t n = common(donor, r);
    if (n <= *best_n || !gm_kvpool_holds(&e->place.pool, &donor->table, n)) return;
    *best = donor;
    *best_n = n;
}

uint32_t gm_prefix_share(gm_engine *e, gm_request *r)
{
    const gm_request *best = NULL;
    uint32_t n = LEAST_SHARED - 1;
    if (r->flags & GM_REQUEST_PROMPT) return 0; /* every row is asked for */
    for (uint32_t i = 0; i < e->place.n_slots; i++)
        consider(e, e->slot[i], r, &best, &n);
    for (const gm_request *k = e->kept; k; k = k->next)
        consider(e, k, r, &best, &n);
    if (!best) return 0;
    return gm_kvpool_share(&e->place.pool, &r->table, &best->table, r->slot, n, e->step) ? n : 0;
}

void gm_prefix_keep(gm_engine *e, gm_request *r)
{
    gm_request **last = &e->kept;
    while (*last)
        last = &(*last)->next;
    r->next = NULL;
    *last = r;
}

void gm_prefix_forget(gm_engine *e, gm_request *r)
{
    gm_request **at = &e->kept;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at) *at = r->next;
    gm_kvpool_release(&e->place.pool, &r->table);
}

bool gm_prefix_evict(gm_engine *e)
{
    if (!e->kept) return false;
    gm_prefix_forget(e, e->kept);
    return true;
}
