/* SPDX-License-Identifier: MIT */
/* What vk_shape.c chooses is what the kernel can do: for every type, number of columns and use. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/vk/vk.h"

static const gm_vk_tuning plain = {
    .subgroup = 8, .words_under_way = 20, .tile_from = UINT32_MAX, .half_from = UINT32_MAX};

static void check_cut(const gm_vk_product *p, const gm_vk_cut *cut)
{
    const uint32_t *const s = cut->spec, rows = cut->rows, columns = cut->columns;
    const bool gate = p->after == GM_VK_AFTER_GELU;
    assert_int_equal(s[GM_VK_MM_FLOW], p->flows);
    assert_int_equal(s[GM_VK_MM_LANES] % 64, 0); /* whole subgroups, on every device */
    assert_int_equal(rows * s[GM_VK_MM_COL_GROUPS] * 8, s[GM_VK_MM_LANES] * s[GM_VK_MM_ROWS]);
    assert_int_equal(16 % s[GM_VK_MM_ROWS], 0); /* a group's rows lie in one band */
    assert_int_equal(s[GM_VK_MM_COLS] % p->planes, 0);
    assert_int_equal(s[GM_VK_MM_BLOCKS] % (8 * s[GM_VK_MM_ROUNDS]), 0);
    assert_true(s[GM_VK_MM_BLOCKS] > 0 || !p->n_blocks);
    const bool even = p->n_blocks && p->n_blocks % (8 * s[GM_VK_MM_ROUNDS]) == 0;
    assert_int_equal(s[GM_VK_MM_EVEN], even);
    /* Who does norms in registers has groups that divide their 64 sums. */
    if (s[GM_VK_MM_AFTER] == GM_VK_AFTER_NORM) assert_int_equal(64 % (s[GM_VK_MM_LANES] / 8), 0);
    if (gate) assert_int_equal(rows % GM_VK_BLOCK, 0);
    if (gate) assert_int_equal(s[GM_VK_MM_TILE], rows * columns);
    /* No more columns than there are, once a workgroup has more than eight. */
    assert_true(columns < 2 * (p->columns / p->planes) || columns <= 8);
    const uint32_t in_shared = s[GM_VK_MM_COLS] * s[GM_VK_MM_COL_GROUPS] * s[GM_VK_MM_BLOCKS] * 40;
    assert_true(in_shared + s[GM_VK_MM_TILE] * 4 <= 32768);
}

/* The usual way, and all others that may be tried. */
static void check(const gm_vk_product *p)
{
    gm_vk_cut cut;
    gm_vk_cut_product(&plain, p, &cut);
    check_cut(p, &cut);
    for (uint32_t i = 0; i < GM_VK_TRIES; i++) {
        if (gm_vk_cut_try(&plain, p, i, &cut)) check_cut(p, &cut);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const uint32_t words = gm_vk_block_words(gm_qtype_at(i)->id);
        assert_int_equal(words > 0, gm_qtype_at(i)->unpack != NULL);
        for (uint32_t rows = 1; rows <= 512; rows++) {
            for (uint32_t after = 0; after <= GM_VK_AFTER_GELU; after++) {
                gm_vk_product p = {
                    .columns = rows, .planes = 1, .n_blocks = 33, .words = words, .after = after};
                if (!words) p.n_blocks = 0;
                check(&p);
                p.columns *= 2;
                p.planes = 2;
                p.n_blocks = 672;
                if (words) check(&p);
            }
        }
    }
}

/* Rounds on their way divide those of a row of 27B, 21, 16 and 84 of them, where kernels wait, in the
 * usual way and in all others that are tried. */
static void test_even_rounds(void **state)
{
    (void)state;
    static const uint32_t n_blocks[] = {168, 128, 672}, want[][2] = {{7, 3}, {8, 4}, {7, 4}};
    gm_vk_tuning wide = plain;
    wide.words_under_way = 40;
    gm_vk_product p = {.words = 5, .n_rows = 5376, .flows = true};
    for (size_t i = 0; i < 3 * 2; i++) {
        gm_vk_cut cut;
        p.columns = p.planes = 1 + i % 2;
        p.n_blocks = n_blocks[i / 2];
        gm_vk_cut_product(&wide, &p, &cut);
        check_cut(&p, &cut);
        assert_int_equal(cut.spec[GM_VK_MM_ROUNDS], want[i / 2][i % 2]);
        for (uint32_t k = 0; k < GM_VK_TRIES; k++)
            if (gm_vk_cut_try(&wide, &p, k, &cut)) assert_int_equal(cut.spec[GM_VK_MM_EVEN], 1);
    }
}

/* Products of one row that wait for the kernel before: whatever the device has, theirs is the one kernel
 * that knows how to. */
static void test_waiting(void **state)
{
    (void)state;
    const gm_vk_tuning matrices = {.subgroup = 32,
                                   .max_shared = 49152,
                                   .words_under_way = 40,
                                   .matrix_depth = 32,
                                   .tile_from = 2,
                                   .half_from = 65};
    const gm_vk_tuning *const tunings[] = {&plain, &matrices};
    static const uint32_t n_blocks[] = {8, 33, 168, 672};
    gm_vk_product p = {.flows = true, .type = GM_QTYPE_Q4_0, .words = 5, .n_rows = 5376};
    for (uint32_t i = 0; i < 2 * 2 * 3 * 4; i++) {
        gm_vk_cut cut;
        uint32_t n_ways = 0;
        p.columns = p.planes = 1 + i / 2 % 2;
        p.after = i / 4 % 3;
        p.n_blocks = n_blocks[i / 12];
        gm_vk_cut_product(tunings[i % 2], &p, &cut);
        assert_string_equal(cut.pipeline, "matmul");
        check_cut(&p, &cut);
        for (uint32_t k = 0; k < GM_VK_TRIES; k++) {
            if (!gm_vk_cut_try(tunings[i % 2], &p, k, &cut)) continue;
            assert_string_equal(cut.pipeline, "matmul");
            check_cut(&p, &cut);
            n_ways++;
        }
        assert_true(n_ways > 1);
    }
}

/* A product has the name that it is found by, and so has the same one that waits. */
static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {
        "q4_0 5376x21504, then norms, 1 rows waiting",
        "q6_k 1024x256, 1 rows twice waiting",
        "q4_k 21504x5376, gate and up, 1 rows twice waiting",
        "q4_0 5376x21504, 1 rows",
    };
    static const char *const wrong[] = {
        "q4_0 64x64, 1 rows waiting ",
        "q4_0 64x64, 1 rows waiting twice",
        "q4_0 64x64, 1 rows  waiting",
        "q4_0 64x64 waiting, 1 rows",
    };
    for (uint32_t i = 0; i < 4; i++) {
        gm_vk_product p;
        gm_vk_cut cut, found;
        char name[GM_VK_NAME];
        assert_true(gm_vk_product_parse(names[i], &p));
        assert_int_equal(p.flows, i < 3);
        assert_int_equal(p.planes, 1 + (strstr(names[i], " twice") != NULL));
        assert_int_equal(p.columns, p.planes);
        gm_vk_product_name(&p, name);
        assert_string_equal(name, names[i]);
        for (uint32_t k = 0; k < GM_VK_TRIES; k++) {
            if (!gm_vk_cut_try(&plain, &p, k, &cut)) continue;
            gm_vk_cut_name(&cut, name);
            assert_true(gm_vk_cut_find(&plain, &p, name, &found));
            assert_memory_equal(found.spec, cut.spec, sizeof cut.spec);
        }
        assert_false(gm_vk_product_parse(wrong[i], &p));
    }
}

/* Tiles fit in shared memory, are whole, and gate and up have blocks of 32 rows. */
static void test_tiles(void **state)
{
    (void)state;
    const gm_vk_tuning t = {.subgroup = 32,
                            .max_shared = 49152,
                            .matrix_depth = 32,
                            .tile_from = 5,
                            .half_from = 65,
                            .words_under_way = 20};
    for (uint32_t columns = 1; columns <= 512; columns++) {
        for (uint32_t k = 0; k < 8; k++) {
            const gm_vk_product p = {.columns = columns * (1 + k % 2),
                                     .planes = 1 + k % 2,
                                     .n_blocks = 168,
                                     .words = 5,
                                     .two_scales = k / 2 % 2,
                                     .after = k / 4 ? GM_VK_AFTER_GELU : 0};
            gm_vk_cut cut;
            gm_vk_cut_product(&t, &p, &cut);
            assert_int_equal(cut.halves, columns >= t.half_from);
            if (columns >= t.half_from) {
                assert_string_equal(cut.pipeline, "matmul_half");
            } else if (p.columns < t.tile_from << p.two_scales) {
                assert_string_equal(cut.pipeline, "matmul");
            } else {
                assert_string_equal(cut.pipeline, "matmul_mma");
                assert_int_equal(cut.columns % 8, 0);
            }
            if (p.after) assert_int_equal(cut.rows % GM_VK_BLOCK, 0);
            /* Whatever is usual, both are tried, to 64 rows. */
            uint32_t n_tiles = 0, n_groups = 0;
            for (uint32_t i = 0; i < GM_VK_TRIES; i++) {
                if (!gm_vk_cut_try(&t, &p, i, &cut) || cut.halves) continue;
                const bool groups = strcmp(cut.pipeline, "matmul") == 0;
                if (groups) check_cut(&p, &cut);
                ++*(groups ? &n_groups : &n_tiles);
            }
            assert_int_equal(n_groups > 1, columns < t.half_from);
            assert_int_equal(n_tiles > 1, columns < t.half_from && p.columns > 1);
        }
    }
}

/* The constants of matmul_fragment, in the manifest's order. */
enum { LANES, SUBGROUP, TM, TN, CHUNKS = 6, UNITS, WM, WK, STAGE };

/* Answers in how many runs it is summed. */
static uint32_t check_fragments(const gm_vk_product *p, const gm_vk_cut *cut)
{
    const uint32_t *const s = cut->spec, matrices = p->after == GM_VK_AFTER_GELU ? 2 : 1;
    assert_string_equal(cut->pipeline, "matmul_fragment_mma");
    assert_int_equal(s[LANES], 32 * s[WM] * s[WK]);
    assert_true(s[LANES] <= 512);
    assert_int_equal(cut->rows, 16 * s[TM] * s[WM]);
    assert_int_equal(cut->columns, 8 * s[TN]);
    assert_true(cut->columns < 2 * p->columns || cut->columns == 8);
    if (matrices == 2) assert_int_equal(cut->rows % GM_VK_BLOCK, 0);
    /* A unit of columns has one place in the chunks that the code has in a row. */
    if (s[UNITS]) assert_int_equal(4 * s[CHUNKS] % s[UNITS], 0);
    const uint32_t results = s[WK] * 8 * (matrices * cut->rows + 4) * 4;
    assert_true(results <= 32768);
    if (s[STAGE]) {
        assert_int_equal(s[WK], 1);
        assert_true(s[WM] > 1); /* or there is nothing to share */
        assert_true(results + 2 * s[TN] * 2048 <= 49152);
    }
    return s[WK];
}

/* All ways of a product have the same runs, whatever the number of columns to 64. */
static void test_fragments(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1024, 5376, 21504, 262144};
    const gm_vk_tuning t = {.subgroup = 32,
                            .max_shared = 49152,
                            .words_under_way = 40,
                            .matrix_depth = 32,
                            .tile_from = 8,
                            .half_from = 65,
                            .half_tiles = 256,
                            .fragments = true,
                            .fragment_mma = true};
    for (uint32_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        gm_vk_product p = {.planes = 1,
                           .n_blocks = 168,
                           .words = 5,
                           .after = i % 2,
                           .type = GM_QTYPE_Q4_0,
                           .n_rows = rows[i / 2],
                           .fragments = true};
        uint32_t runs = 0;
        for (p.columns = 1; p.columns <= 512; p.columns++) {
            gm_vk_cut cut;
            uint32_t n_ways = 0;
            gm_vk_cut_product(&t, &p, &cut);
            check_fragments(&p, &cut);
            if (p.columns == 1) runs = cut.spec[WK];
            for (uint32_t k = 0; k < GM_VK_TRIES; k++) {
                if (!gm_vk_cut_try(&t, &p, k, &cut)) continue;
                const uint32_t n = check_fragments(&p, &cut);
                if (p.columns < t.half_from) assert_int_equal(n, runs);
                n_ways++;
            }
            assert_true(n_ways > 1);
        }
    }
}

/* Gate and up of 27B, 64 rows: one workgroup for each multiprocessor of a large device, with columns in
 * shared memory; not where a device has too little of it, or where workgroups would be too few. */
static void test_one_each(void **state)
{
    (void)state;
    gm_vk_tuning t = {.subgroup = 32,
                      .max_shared = 49152,
                      .half_from = 65,
                      .half_tiles = 256,
                      .fragments = true,
                      .fragment_mma = true};
    gm_vk_product p = {.columns = 64,
                       .planes = 1,
                       .n_blocks = 168,
                       .words = 5,
                       .after = GM_VK_AFTER_GELU,
                       .type = GM_QTYPE_Q4_0,
                       .n_rows = 21504,
                       .fragments = true};
    gm_vk_cut cut;
    gm_vk_cut_product(&t, &p, &cut);
    assert_int_equal(p.n_rows / cut.rows, 112);
    assert_int_equal(cut.spec[STAGE], 1);
    p.n_rows = 10240;
    gm_vk_cut_product(&t, &p, &cut);
    assert_int_equal(cut.spec[STAGE], 0);
    p.n_rows = 21504;
    t.max_shared = 32768;
    for (uint32_t i = 0; i < GM_VK_TRIES; i++) {
        if (gm_vk_cut_try(&t, &p, i, &cut)) assert_true(!cut.spec[STAGE] || cut.spec[TN] < 8);
    }
    gm_vk_cut_product(&t, &p, &cut);
    assert_int_equal(cut.spec[STAGE], 0);
}

/* --exact: whatever the number of rows, the kernels are those of 1 to 64, and the manifest says of
 * each that it keeps the bits. */
static void test_exact(void **state)
{
    (void)state;
    const gm_vk_tuning t = {.subgroup = 32,
                            .max_shared = 49152,
                            .matrix_depth = 32,
                            .tile_from = 17,
                            .half_from = UINT32_MAX,
                            .words_under_way = 20};
    for (uint32_t columns = 1; columns <= 512; columns++) {
        for (uint32_t after = 0; after <= GM_VK_AFTER_GELU; after++) {
            const gm_vk_product p = {
                .columns = columns, .planes = 1, .n_blocks = 168, .words = 5, .after = after};
            gm_vk_cut cut;
            gm_vk_cut_product(&t, &p, &cut);
            assert_string_equal(cut.pipeline, columns < t.tile_from ? "matmul" : "matmul_mma");
            for (uint32_t i = 0; i < gm_vk_n_shaders; i++) {
                if (strcmp(gm_vk_shaders[i].pipeline, cut.pipeline) == 0)
                    assert_true(gm_vk_shaders[i].exact);
            }
        }
    }
}

/* What parts leave has room, none is empty, and none is short. */
static void test_parts(void **state)
{
    (void)state;
    const gm_vk_tuning t = {.half_tiles = 256}, none = {0};
    for (uint32_t tiles = 1; tiles <= 600; tiles++) {
        for (uint32_t n_blocks = 1; n_blocks <= 700; n_blocks++) {
            const uint32_t parts = gm_vk_half_parts(&t, tiles, n_blocks);
            const uint32_t each = ((n_blocks + parts - 1) / parts + 1) / 2 * 2;
            assert_true(parts == 1 || (tiles < 256 && tiles * parts <= 512));
            assert_true(parts == 1 || each >= 16);
            assert_true((parts - 1) * each < n_blocks && parts * each >= n_blocks);
            assert_int_equal(gm_vk_half_parts(&none, tiles, n_blocks), 1);
        }
    }
    assert_int_equal(gm_vk_half_parts(&t, 168, 672), 3);
    assert_int_equal(gm_vk_half_size(65, 33), 2 * 128 * 64);
}

static void test_attends_by_halves(void **state)
{
    (void)state;
    const gm_vk_tuning t = {.half_from = 65};
    const struct {
        gm_attn a;
        uint32_t rows;
        bool yes;
    } cases[] = {
        {{.n_head = 32, .n_kv_head = 16, .head_dim = 128}, 65, true},
        {{.n_head = 32, .n_kv_head = 16, .head_dim = 128}, 64, false},
        {{.n_head = 4, .n_kv_head = 1, .head_dim = 256}, 512, true},
        {{.n_head = 3, .n_kv_head = 1, .head_dim = 256}, 512, false},
        {{.n_head = 4, .n_kv_head = 1, .head_dim = 320}, 512, false},
        {{.n_head = 4, .n_kv_head = 1, .head_dim = 96}, 512, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(gm_vk_attends_by_halves(&t, &cases[i].a, cases[i].rows), cases[i].yes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_even_rounds),
        cmocka_unit_test(test_waiting),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_tiles),     cmocka_unit_test(test_exact),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_attends_by_halves),
        cmocka_unit_test(test_fragments), cmocka_unit_test(test_one_each)};
    return cmocka_run_group_tests_name("t_vk_shape", tests, NULL, NULL);
}
