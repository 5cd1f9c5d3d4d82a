/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_GUARD_H
#define GM_BASE_GUARD_H

/* The promise that the token loop allocates nothing, enforced. While a thread is
 * guarded, an allocation through base/mem.h ends the process with a sentence: it is
 * our own mistake, never an input's. Other threads allocate as they like; workers
 * are guarded while they work for a thread that is. Builds with NDEBUG have no guard,
 * and these functions cost nothing there. */

#include <stdbool.h>

#ifdef NDEBUG

static inline bool gm_guard_set(bool on)
{
    return (void)on, false;
}

static inline bool gm_guard_is_on(void)
{
    return false;
}

#else

/* Guards the calling thread, or no more; answers what it was before, to be set again. */
bool gm_guard_set(bool on);
/* Whether the calling thread is guarded. */
bool gm_guard_is_on(void);

#endif

#endif
