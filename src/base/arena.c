/* SPDX-License-Identifier: MIT */
#include "base/arena.h"

#include <stdalign.h>

#include "base/mem.h"

/* Small things share blocks of this size, large things get one of their own. */
#define ARENA_BLOCK_SIZE ((size_t)64 << 10)

struct gm_arena_block {
    gm_arena_block *next;
    size_t used, cap;
    alignas(max_align_t) unsigned char bytes[];
};

/* A block with room for size bytes: the newest one if it fits, else a new one in front of it. */
static gm_status block_for(gm_arena *a, size_t size, const char *what, gm_err *err)
{
    if (a->head && a->head->cap - a->head->used >= size) return GM_OK;
    const size_t cap = size > ARENA_BLOCK_SIZE ? size : ARENA_BLOCK_SIZE;
    gm_arena_block *b = NULL;
    GM_TRY(gm_mem_alloc(&b, 1, sizeof *b + cap, what, err));
    b->cap = cap;
    b->next = a->head;
    a->head = b;
    return GM_OK;
}

gm_status gm_arena_alloc(gm_arena *a, void *out, uint64_t n, size_t size, const char *what,
                         gm_err *err)
{
    uint64_t bytes = 0;
    void *p = NULL;
    memcpy(out, &p, sizeof p);
    if (!gm_size_mul(n, size, &bytes) || !gm_size_align(bytes, alignof(max_align_t), &bytes) ||
        bytes > SIZE_MAX / 2) {
        return gm_fail(err, GM_E_NOMEM, 0, "memory: %s needs %llu x %zu bytes, which is too many",
                       what, (unsigned long long)n, size);
    }
    GM_TRY(block_for(a, (size_t)bytes, what, err));
    p = a->head->bytes + a->head->used;
    a->head->used += (size_t)bytes;
    memcpy(out, &p, sizeof p);
    return GM_OK;
}

gm_status gm_arena_copy(gm_arena *a, gm_str s, const char **out, gm_err *err)
{
    char *p = NULL;
    *out = NULL;
    GM_TRY(gm_arena_alloc(a, &p, (uint64_t)s.len + 1, 1, "a string", err));
    if (s.len) memcpy(p, s.p, s.len);
    *out = p;
    return GM_OK;
}

void gm_arena_deinit(gm_arena *a)
{
    while (a->head) {
        gm_arena_block *const next = a->head->next;
        gm_mem_free(a->head);
        a->head = next;
    }
}
