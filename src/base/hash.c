/* SPDX-License-Identifier: MIT */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t gm_hash(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}
