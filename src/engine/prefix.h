/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_PREFIX_H
#define GM_ENGINE_PREFIX_H

/* Beginnings that are in the cache already. A request that begins like another one,
 * running or finished, takes over the pages of what they have in common and computes
 * only the rest. Token ids are compared, never a hash.
 *
 * Finished requests leave their beginning here: until they are closed, or, where the
 * engine was opened to keep a cache, until pages run out; least recently used first.
 * Local layers see a window only, so a beginning can be gone on from where the window
 * before it is still held: at its end, and at its marks. With a cache there is a mark
 * at the end of every turn, at the end of the prompt, and wherever two prompts were
 * seen to part. Engine thread, under the lock. */

#include "engine/engine.h"

/* Marks the places that the prompt of a new request may be shared up to. */
void gm_prefix_mark(const gm_engine *e, gm_request *r);

/* Whether a running request is about to compute what r begins with: r then waits for it. */
bool gm_prefix_awaits(gm_engine *e, const gm_request *r);

/* Shares the longest beginning that is in the cache, at least one token short of the prompt;
 * answers how many tokens that are (0: none). The step gets the edits. */
uint32_t gm_prefix_share(gm_engine *e, gm_request *r);

/* A request is over: its beginning is kept. */
void gm_prefix_keep(gm_engine *e, gm_request *r);
/* A request is closed: its beginning goes, unless there is a cache. */
void gm_prefix_forget(gm_engine *e, const gm_request *r);
/* Gives back the pages of the beginning that was unused longest, then those of requests that were
 * set aside, then what running requests keep for others; false when there is none of these. */
bool gm_prefix_evict(gm_engine *e);
/* Takes the pages of a request that is not over: it has its tokens still, and computes them again when
 * it is its turn. */
void gm_prefix_unload(gm_engine *e, gm_request *r);
/* Reads what an engine before this one has left on disk. */
void gm_prefix_load(gm_engine *e);
/* Forgets every kept beginning; those on disk stay there. */
void gm_prefix_clear(gm_engine *e);

#endif
