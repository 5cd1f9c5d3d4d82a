/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdalign.h>

#include "base/arena.h"
#include "fixtures/chance.h"

/* Pieces of all sizes, around the block's size too: zeroed, aligned, and none touches another. */
static void test_pieces_are_apart(void **state)
{
    (void)state;
    gm_arena a = {0};
    gm_err err = {0};
    chance c = {2};
    enum { N = 400 };
    static uint8_t *piece[N];
    static size_t len[N];
    for (size_t i = 0; i < N; i++) {
        static const size_t odd[] = {0, 1, 15, 16, 17, 65535, 65536, 65537, 100000};
        len[i] = i % 20 ? chance_below(&c, 300) : odd[i / 20 % (sizeof odd / sizeof *odd)];
        assert_int_equal(gm_arena_alloc(&a, &piece[i], len[i], 1, "a piece", &err), GM_OK);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % alignof(max_align_t), 0);
        for (size_t j = 0; j < len[i]; j++)
            assert_int_equal(piece[i][j], 0);
        memset(piece[i], (int)(i % 251) + 1, len[i]);
    }
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < len[i]; j++)
            assert_int_equal(piece[i][j], i % 251 + 1);
    }
    gm_arena_deinit(&a);
    assert_null(a.head);
    gm_arena_deinit(&a);
}

static void test_too_much(void **state)
{
    (void)state;
    gm_arena a = {0};
    gm_err err = {0};
    static const struct {
        uint64_t n;
        size_t size;
    } cases[] = {{UINT64_MAX, 1},   {UINT64_MAX, 8},          {UINT64_MAX / 2 + 1, 2},
                 {1, SIZE_MAX},     {UINT64_MAX - 7, 1},      {SIZE_MAX / 2 + 17, 1},
                 {3, SIZE_MAX / 2}, {UINT64_MAX / 16 + 1, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int poison = 0;
        void *p = &poison;
        assert_int_equal(gm_arena_alloc(&a, &p, cases[i].n, cases[i].size, "tensors", &err),
                         GM_E_NOMEM);
        assert_null(p);
        assert_non_null(strstr(err.msg, "tensors"));
    }
    void *p = NULL;
    assert_int_equal(gm_arena_alloc(&a, &p, 3, 5, "after failures", &err), GM_OK);
    gm_arena_deinit(&a);
}

static void test_copy(void **state)
{
    (void)state;
    gm_arena a = {0};
    gm_err err = {0};
    const char *s = NULL, *none = NULL;
    assert_int_equal(gm_arena_copy(&a, (gm_str){"abcdef", 3}, &s, &err), GM_OK);
    assert_string_equal(s, "abc");
    assert_int_equal(gm_arena_copy(&a, (gm_str){NULL, 0}, &none, &err), GM_OK);
    assert_string_equal(none, "");
    assert_int_equal(gm_arena_copy(&a, (gm_str){"a\0b", 3}, &s, &err), GM_OK);
    assert_memory_equal(s, "a\0b", 4);
    gm_arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_apart),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_copy),
    };
    return cmocka_run_group_tests_name("t_arena", tests, NULL, NULL);
}
