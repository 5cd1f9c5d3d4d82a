/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_PREFIX_H
#define GM_ENGINE_PREFIX_H

/* Beginnings that are in the cache already. A request that begins like another one,
 * running or finished and not yet closed, takes over the pages of what they have in
 * common and computes only the rest. Token ids are compared, never a hash. */

#include "engine/engine.h"

/* Shares the longest beginning that some other request has in the cache, at least one token short
 * of the prompt; answers how many tokens that are (0: none). The step gets the edits. */
uint32_t gm_prefix_share(gm_engine *e, gm_request *r);

/* Finished requests keep their pages for this until they are closed, or until pages run out. */
void gm_prefix_keep(gm_engine *e, gm_request *r);
void gm_prefix_forget(gm_engine *e, gm_request *r);
/* Takes the pages of the request that has been finished longest; false when there is none. */
bool gm_prefix_evict(gm_engine *e);

#endif
