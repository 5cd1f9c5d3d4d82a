/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_HASH_H
#define GM_BASE_HASH_H

/* The one hash of files that we write: it tells bytes that changed from bytes that did not, and is
 * no defence against somebody who wants it not to. The same on every machine. */

#include <stddef.h>
#include <stdint.h>

/* Of n bytes; a hash of several things takes the hash of those before as its seed. */
uint64_t gm_hash(const void *p, size_t n, uint64_t seed);

#endif
