/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/tile.h"

/* A tensor of the type with bytes that differ everywhere, in memory of exactly its size. */
static gm_tensor tensor_of(const gm_qtype_info *type, uint64_t rows, uint64_t cols)
{
    gm_tensor t = {.name = "w", .type = type, .n_dims = 2, .shape = {rows, cols}};
    t.size = rows * gm_tensor_row_size(&t);
    uint8_t *const data = malloc(t.size);
    assert_non_null(data);
    uint32_t x = 1;
    for (uint64_t i = 0; i < t.size; i++) {
        x = x * 1664525 + 1013904223;
        data[i] = (uint8_t)(x >> 24);
    }
    t.data = data;
    return t;
}

/* Every row comes back from the tiles byte by byte; the rows that are missing are the last one. */
static void check(const gm_qtype_info *type, uint64_t rows, uint64_t cols)
{
    const gm_tensor t = tensor_of(type, rows, cols);
    const uint64_t row_size = gm_tensor_row_size(&t), n_blocks = cols / type->block_len;
    const uint64_t most = 256 / type->block_len, all_rows = (rows + 15) / 16 * 16;
    uint64_t size = 0;
    assert_true(gm_tiles_size(&t, &size));
    assert_int_equal(size, all_rows * row_size);
    uint8_t *const tiles = malloc(size), *const row = malloc(row_size);
    assert_true(tiles && row);
    for (uint64_t p = 0; p < all_rows / 16; p++)
        gm_tiles_make(&t, p, tiles + p * 16 * row_size);
    for (uint64_t r = 0; r < all_rows; r++) {
        const uint8_t *tile = tiles + r / 16 * 16 * row_size;
        for (uint64_t b = 0, n = 0; b < n_blocks; b += n) {
            n = n_blocks - b < most ? n_blocks - b : most;
            gm_tile_row(type, tile, n, (uint32_t)(r % 16), row + b * type->block_size);
            tile += 16 * n * type->block_size;
        }
        assert_memory_equal(row, t.data + (r < rows ? r : rows - 1) * row_size, row_size);
    }
    free(row);
    free(tiles);
    free((void *)(uintptr_t)t.data);
}

static void test_there_and_back(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const gm_qtype_info *const type = gm_qtype_at(i);
        if (!type->unpack) continue;
        n++;
        check(type, 16, 256);
        check(type, 1, 512);
        check(type, 37, 768);
        if (type->block_len == 32) check(type, 17, 32);
        if (type->block_len == 32) check(type, 33, 352);
    }
    assert_int_equal(n, 12);
}

/* Values of a row from tiles are those of the row itself. */
static void test_expand(void **state)
{
    (void)state;
    const gm_tensor t = tensor_of(gm_qtype_find(GM_QTYPE_Q8_0), 19, 352);
    uint8_t *const tiles = malloc(32 * gm_tensor_row_size(&t));
    float want[352], got[352];
    assert_non_null(tiles);
    gm_tiles_make(&t, 0, tiles);
    gm_tiles_make(&t, 1, tiles + 16 * gm_tensor_row_size(&t));
    for (uint64_t r = 0; r < 19; r++) {
        gm_qtype_expand(t.type, t.data + r * gm_tensor_row_size(&t), 352, want);
        gm_tiles_expand(&t, tiles, r, got);
        assert_memory_equal(got, want, sizeof want);
    }
    free(tiles);
    free((void *)(uintptr_t)t.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_expand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
