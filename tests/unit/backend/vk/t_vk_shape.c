/* SPDX-License-Identifier: MIT */
/* What vk_shape.c chooses is what the kernel can do: for every type, number of columns and use. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/vk/vk.h"

static void check(const gm_vk_product *p)
{
    uint32_t s[GM_VK_SPECS] = {0};
    gm_vk_shape_product(p, s);
    const uint32_t rows = gm_vk_shape_rows(s), columns = gm_vk_shape_columns(s);
    const bool gate = p->after == GM_VK_AFTER_GELU;
    assert_int_equal(rows * s[GM_VK_MM_COL_GROUPS] * 8, s[GM_VK_MM_LANES] * s[GM_VK_MM_ROWS]);
    assert_int_equal(16 % s[GM_VK_MM_ROWS], 0); /* a group's rows lie in one band */
    assert_int_equal(s[GM_VK_MM_COLS] % p->planes, 0);
    assert_int_equal(s[GM_VK_MM_BLOCKS] % (8 * s[GM_VK_MM_ROUNDS]), 0);
    assert_true(s[GM_VK_MM_BLOCKS] > 0 || !p->n_blocks);
    if (gate) assert_int_equal(rows % GM_VK_BLOCK, 0);
    if (gate) assert_int_equal(s[GM_VK_MM_TILE], rows * columns);
    /* The last workgroup of a row of workgroups does the norms: there is one row of them. */
    if (p->after == GM_VK_AFTER_NORM) assert_true(columns >= p->columns / p->planes);
    /* No more columns than there are, once a workgroup has more than eight. */
    assert_true(columns < 2 * (p->columns / p->planes) || columns <= 8);
    const uint32_t in_shared = s[GM_VK_MM_COLS] * s[GM_VK_MM_COL_GROUPS] * s[GM_VK_MM_BLOCKS] * 40;
    assert_true(in_shared + s[GM_VK_MM_TILE] * 4 <= 32768);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const uint32_t words = gm_vk_block_words(gm_qtype_at(i)->id);
        assert_int_equal(words > 0, gm_qtype_at(i)->unpack != NULL);
        for (uint32_t rows = 1; rows <= 512; rows++) {
            for (uint32_t after = 0; after <= GM_VK_AFTER_NORM; after++) {
                if (after == GM_VK_AFTER_NORM && rows > GM_VK_TAIL_ROWS) continue;
                check(&(gm_vk_product){rows, 1, words ? 33 : 0, words, after});
                if (words) check(&(gm_vk_product){2 * rows, 2, 672, words, after});
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests_name("t_vk_shape", tests, NULL, NULL);
}
