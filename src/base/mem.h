/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_MEM_H
#define GM_BASE_MEM_H

/* Host memory and the arithmetic of sizes.
 *
 * mem.c is the only file of the library that calls malloc and its kin, so that
 * one place decides what an allocation is. Counts that come from a file or a
 * user are multiplied and added through the checked functions below before
 * they reach an allocation or an index. Every function may be called from any
 * thread; what allocates, from none that base/guard.h guards. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Allocates n elements of size bytes, all zero. The result is never NULL on
 * GM_OK, not even for n = 0. `what` names the thing in the error sentence. */
gm_status gm_mem_alloc(void *out, size_t n, size_t size, const char *what, gm_err *err);

/* The same for things that vector registers want on a 64-byte border. */
gm_status gm_mem_alloc_aligned(void *out, size_t n, size_t size, const char *what, gm_err *err);

/* The same for hundreds of megabytes that are read again and again: on huge pages where the system
 * has them, because a page walk every 4 KiB costs a tenth of the memory's speed. Pages come when
 * they are first written to. Freed with its size by gm_mem_free_huge, which takes NULL. */
gm_status gm_mem_alloc_huge(void *out, uint64_t size, const char *what, gm_err *err);
void gm_mem_free_huge(void *ptr, uint64_t size);

/* Grows the array *ptr (may be NULL) to hold at least `need` elements, doubling *cap; the new
 * tail is not initialised. On failure *ptr and *cap are as they were. */
gm_status gm_mem_grow(void *ptr, size_t *cap, size_t need, size_t size, const char *what,
                      gm_err *err);

/* Frees what gm_mem_alloc or gm_mem_grow made; NULL is fine. */
void gm_mem_free(void *ptr);

/* *out = a * b, or a + b; false, and *out = 0, when the result does not fit. */
bool gm_size_mul(uint64_t a, uint64_t b, uint64_t *out);
bool gm_size_add(uint64_t a, uint64_t b, uint64_t *out);

/* *out = n rounded up to a multiple of align (a power of two); false on overflow. */
bool gm_size_align(uint64_t n, uint64_t align, uint64_t *out);

#endif
