/* SPDX-License-Identifier: MIT */
#include "base/guard.h"

#ifndef NDEBUG

static _Thread_local bool guarded;

bool gm_guard_set(bool on)
{
    const bool before = guarded;
    guarded = on;
    return before;
}

bool gm_guard_is_on(void)
{
    return guarded;
}

#endif
