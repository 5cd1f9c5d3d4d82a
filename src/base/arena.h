/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_ARENA_H
#define GM_BASE_ARENA_H

/* Memory that is freed all at once: what belongs to a model or to an open file
 * is taken from one arena, so that closing it is one call and a half-made
 * object closes like a whole one.
 *
 * An all-zero gm_arena is a valid empty one. Not thread-safe: one owner. */

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef struct gm_arena_block gm_arena_block;

typedef struct gm_arena {
    gm_arena_block *head;
} gm_arena;

/* Gives n elements of size bytes, all zero, aligned for any type, valid until gm_arena_deinit. */
gm_status gm_arena_alloc(gm_arena *a, void *out, uint64_t n, size_t size, const char *what,
                         gm_err *err);

/* Copies s into the arena, NUL-terminated. */
gm_status gm_arena_copy(gm_arena *a, gm_str s, const char **out, gm_err *err);

/* Frees everything; the arena is empty again. */
void gm_arena_deinit(gm_arena *a);

#endif
