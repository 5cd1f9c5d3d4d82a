/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "fixtures/chance.h"

/* What 128-bit arithmetic says about a sum or a product of two 64-bit numbers. */
__extension__ typedef unsigned __int128 wide;

static void check_pair(uint64_t a, uint64_t b)
{
    uint64_t got = 1;
    const wide product = (wide)a * b, sum = (wide)a + b;
    assert_int_equal(gm_size_mul(a, b, &got), product <= UINT64_MAX);
    assert_true(got == (product <= UINT64_MAX ? (uint64_t)product : 0));
    assert_int_equal(gm_size_add(a, b, &got), sum <= UINT64_MAX);
    assert_true(got == (sum <= UINT64_MAX ? (uint64_t)sum : 0));
}

static void test_size_math(void **state)
{
    (void)state;
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     3,
                                     UINT32_MAX,
                                     (uint64_t)UINT32_MAX + 1,
                                     UINT64_MAX / 2,
                                     UINT64_MAX / 2 + 1,
                                     UINT64_MAX / 3,
                                     UINT64_MAX - 1,
                                     UINT64_MAX};
    const size_t n = sizeof edges / sizeof *edges;
    for (size_t i = 0; i < n * n; i++)
        check_pair(edges[i / n], edges[i % n]);
    chance c = {1};
    for (int i = 0; i < 20000; i++) {
        const uint64_t a =
            ((uint64_t)chance_u32(&c) << 32 | chance_u32(&c)) >> chance_below(&c, 64);
        const uint64_t b =
            ((uint64_t)chance_u32(&c) << 32 | chance_u32(&c)) >> chance_below(&c, 64);
        check_pair(a, b);
    }
}

static void test_size_align(void **state)
{
    (void)state;
    uint64_t got = 0;
    for (uint64_t align = 1; align <= 4096; align *= 2) {
        for (uint64_t n = 0; n < 300; n++) {
            assert_true(gm_size_align(n, align, &got));
            assert_true(got >= n && got < n + align && got % align == 0);
        }
        assert_true(gm_size_align(UINT64_MAX - align + 1, align, &got));
        assert_true(got == UINT64_MAX - align + 1);
        assert_int_equal(gm_size_align(UINT64_MAX, align, &got), align == 1);
    }
    assert_true(gm_size_align(1, (uint64_t)1 << 63, &got));
    assert_true(got == (uint64_t)1 << 63);
    assert_false(gm_size_align(((uint64_t)1 << 63) + 1, (uint64_t)1 << 63, &got));
}

static void test_alloc_zeroes(void **state)
{
    (void)state;
    gm_err err = {0};
    uint8_t *p = NULL;
    assert_int_equal(gm_mem_alloc(&p, 37, 3, "bytes", &err), GM_OK);
    for (size_t i = 0; i < 37 * 3; i++)
        assert_int_equal(p[i], 0);
    gm_mem_free(p);
    assert_int_equal(gm_mem_alloc(&p, 0, 0, "nothing", &err), GM_OK);
    assert_non_null(p);
    gm_mem_free(p);
    gm_mem_free(NULL);
}

static void test_alloc_aligned(void **state)
{
    (void)state;
    gm_err err = {0};
    for (size_t n = 0; n < 300; n += 7) {
        uint8_t *p = NULL;
        assert_int_equal(gm_mem_alloc_aligned(&p, n, 3, "vectors", &err), GM_OK);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < n * 3; i++)
            assert_int_equal(p[i], 0);
        gm_mem_free(p);
    }
    int poison = 0;
    void *p = &poison;
    volatile size_t huge = SIZE_MAX / 2;
    assert_int_equal(gm_mem_alloc_aligned(&p, huge, 3, "the sun", &err), GM_E_NOMEM);
    assert_null(p);
    assert_non_null(strstr(err.msg, "the sun"));
    p = &poison;
    huge = SIZE_MAX;
    assert_int_equal(gm_mem_alloc_aligned(&p, huge - 30, 1, "the sun", &err), GM_E_NOMEM);
    assert_null(p);
}

static void test_alloc_refuses(void **state)
{
    (void)state;
    gm_err err = {0};
    int poison = 0;
    void *p = &poison;
    /* Volatile, or the compiler sees a size that no malloc can have and warns. */
    volatile size_t huge = SIZE_MAX / 2;
    assert_int_equal(gm_mem_alloc(&p, huge, 3, "the moon", &err), GM_E_NOMEM);
    assert_null(p);
    assert_non_null(strstr(err.msg, "the moon"));
}

static void test_alloc_huge(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, (2 << 20) - 1, 2 << 20, (5 << 20) + 3};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint8_t *p = NULL;
        assert_int_equal(gm_mem_alloc_huge(&p, sizes[s], "a thing", NULL), GM_OK);
        for (uint64_t i = 0; i < sizes[s]; i += 4096)
            assert_int_equal(p[i], 0);
        if (sizes[s]) p[sizes[s] - 1] = 1;
        gm_mem_free_huge(p, sizes[s]);
    }
    gm_mem_free_huge(NULL, 5);
    uint8_t *p = (uint8_t *)sizes;
    gm_err err = {0};
    assert_int_equal(gm_mem_alloc_huge(&p, UINT64_MAX / 2, "a thing", &err), GM_E_NOMEM);
    assert_null(p);
    assert_non_null(strstr(err.msg, "a thing"));
}

static void test_grow(void **state)
{
    (void)state;
    gm_err err = {0};
    uint32_t *p = NULL;
    size_t cap = 0, reallocs = 0;
    for (size_t n = 1; n <= 5000; n++) {
        const size_t before = cap;
        assert_int_equal(gm_mem_grow(&p, &cap, n, sizeof *p, "numbers", &err), GM_OK);
        assert_true(cap >= n);
        reallocs += cap != before;
        p[n - 1] = (uint32_t)n;
    }
    assert_true(reallocs <= 10);
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(p[i], i + 1);

    uint32_t *const old = p;
    const size_t old_cap = cap;
    volatile size_t huge = SIZE_MAX;
    assert_int_equal(gm_mem_grow(&p, &cap, huge, sizeof *p, "too much", &err), GM_E_NOMEM);
    assert_int_equal(gm_mem_grow(&p, &cap, huge / 8, sizeof *p, "too much", NULL), GM_E_NOMEM);
    assert_ptr_equal(p, old);
    assert_int_equal(cap, old_cap);
    assert_non_null(strstr(err.msg, "too much"));
    gm_mem_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_math),     cmocka_unit_test(test_size_align),
        cmocka_unit_test(test_alloc_zeroes),  cmocka_unit_test(test_alloc_refuses),
        cmocka_unit_test(test_alloc_aligned), cmocka_unit_test(test_grow),
        cmocka_unit_test(test_alloc_huge),
    };
    return cmocka_run_group_tests_name("t_mem", tests, NULL, NULL);
}
