/* SPDX-License-Identifier: MIT */
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/guard.h"

static void check_guard(void)
{
    assert(!gm_guard_is_on() && "memory was asked for inside the token loop: move it to set-up");
}

gm_status gm_mem_alloc(void *out, size_t n, size_t size, const char *what, gm_err *err)
{
    check_guard();
    void *const p = calloc(n ? n : 1, size ? size : 1);
    memcpy(out, &p, sizeof p);
    if (!p) {
        return gm_fail(err, GM_E_NOMEM, 0, "memory: %s needs %zu x %zu bytes and there are none",
                       what, n, size);
    }
    return GM_OK;
}

gm_status gm_mem_alloc_aligned(void *out, size_t n, size_t size, const char *what, gm_err *err)
{
    uint64_t bytes = 0;
    void *p = NULL;
    check_guard();
    const bool fits =
        gm_size_mul(n, size, &bytes) && gm_size_align(bytes, 64, &bytes) && bytes <= SIZE_MAX;
    if (fits) p = aligned_alloc(64, bytes ? (size_t)bytes : 64);
    memcpy(out, &p, sizeof p);
    if (!p) {
        return gm_fail(err, GM_E_NOMEM, 0, "memory: %s needs %zu x %zu bytes and there are none",
                       what, n, size);
    }
    memset(p, 0, (size_t)bytes);
    return GM_OK;
}

#define HUGE_PAGE ((uint64_t)2 << 20)

gm_status gm_mem_alloc_huge(void *out, uint64_t size, const char *what, gm_err *err)
{
    check_guard();
    uint64_t bytes = 0;
    void *p = MAP_FAILED;
    if (gm_size_align(size ? size : 1, HUGE_PAGE, &bytes) && bytes <= SIZE_MAX) {
        p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    const bool ok = p != MAP_FAILED;
    if (ok)
        madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    else
        p = NULL;
    memcpy(out, &p, sizeof p);
    if (ok) return GM_OK;
    return gm_fail(err, GM_E_NOMEM, 0, "memory: %s needs %" PRIu64 " bytes and there are none",
                   what, size);
}

void gm_mem_free_huge(void *ptr, uint64_t size)
{
    if (!ptr) return;
    gm_size_align(size ? size : 1, HUGE_PAGE, &size);
    munmap(ptr, (size_t)size);
}

gm_status gm_mem_grow(void *ptr, size_t *cap, size_t need, size_t size, const char *what,
                      gm_err *err)
{
    if (need <= *cap) return GM_OK;
    check_guard();
    size_t grown = *cap < 16 ? 16 : *cap;
    while (grown < need) {
        if (grown > SIZE_MAX / 2)
            grown = need;
        else
            grown *= 2;
    }
    uint64_t bytes = 0;
    void *old = NULL;
    memcpy(&old, ptr, sizeof old);
    void *const p =
        gm_size_mul(grown, size, &bytes) && bytes <= SIZE_MAX ? realloc(old, (size_t)bytes) : NULL;
    if (!p) {
        return gm_fail(err, GM_E_NOMEM, 0, "memory: %s needs %zu x %zu bytes and there are none",
                       what, grown, size);
    }
    memcpy(ptr, &p, sizeof p);
    *cap = grown;
    return GM_OK;
}

void gm_mem_free(void *ptr)
{
    free(ptr);
}

bool gm_size_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    if (!__builtin_mul_overflow(a, b, out)) return true;
    *out = 0;
    return false;
}

bool gm_size_add(uint64_t a, uint64_t b, uint64_t *out)
{
    if (!__builtin_add_overflow(a, b, out)) return true;
    *out = 0;
    return false;
}

bool gm_size_align(uint64_t n, uint64_t align, uint64_t *out)
{
    if (!gm_size_add(n, align - 1, out)) return false;
    *out &= ~(align - 1);
    return true;
}
