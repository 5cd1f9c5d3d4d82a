/* SPDX-License-Identifier: MIT */
/* A lost device takes the pages along, and nothing else that a sequence needs: its tokens are the
 * engine's, draws are keyed by position, and text that was sent is not made again. So what was set up
 * is set up once more, and every sequence is where one is that was set aside and lost its pages. */

#include <stdio.h>

#include "base/guard.h"
#include "engine/prefix.h"

/* Whether anybody still waits for the weights. */
static bool tell(void *ctx, uint64_t done, uint64_t total)
{
    const gm_engine *const e = ctx;
    (void)done, (void)total;
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        if (e->slot[i] && !atomic_load(&e->slot[i]->cancelled)) return true;
    }
    return false;
}

/* No page has anything in it any more. */
static void forget_pages(gm_engine *e)
{
    for (uint32_t i = 0; i < e->place.n_slots; i++) {
        if (e->slot[i]) gm_prefix_unload(e, e->slot[i]);
    }
    for (gm_request *r = e->queue; r; r = r->next)
        gm_prefix_unload(e, r);
    gm_prefix_clear(e);
}

/* The store is closed before and opened after, so that it reads what it has written till then. */
static gm_status reopen(gm_engine *e, gm_err *err)
{
    char text[sizeof e->lost.msg + 80];
    snprintf(text, sizeof text, "%s; it is opened again, and answers go on where they were",
             e->lost.msg);
    if (e->opts.note) e->opts.note(e->opts.note_ctx, text);
    gm_store_close(&e->store);
    GM_TRY(gm_place_reopen(&e->place, &(gm_progress){tell, e}, err));
    return gm_store_open(&e->store, &e->place, &e->opts, err);
}

gm_status gm_recover(gm_engine *e, gm_err *err)
{
    const bool guarded = gm_guard_set(false); /* what follows is setting up */
    forget_pages(e);
    pthread_mutex_unlock(&e->lock);
    const gm_status status = reopen(e, err);
    pthread_mutex_lock(&e->lock);
    if (status == GM_OK) {
        gm_prefix_load(e);
        e->lost = (gm_err){0};
    }
    gm_guard_set(guarded);
    return status;
}
