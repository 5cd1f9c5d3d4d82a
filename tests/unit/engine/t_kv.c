/* SPDX-License-Identifier: MIT */
/* The page pool, walked by sequences of any length against a plain model of what
 * a backend's tables look like after each step's edits. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "engine/kv.h"
#include "fixtures/tinymodel.h"

enum { SLOTS = 3, TABLE = 16 };

typedef struct fixture {
    gm_arena arena;
    gm_kvpool pool;
    gm_kvtable table[SLOTS];
    gm_step *step;
    uint32_t shadow[SLOTS][GM_CLASSES][TABLE]; /* what the backend was told */
    uint32_t n_pos[SLOTS];
    uint32_t n_ctx, chunk;
} fixture;

static void begin(fixture *f, uint32_t n_ctx, uint32_t window, uint32_t chunk)
{
    *f = (fixture){.n_ctx = n_ctx, .chunk = chunk};
    gm_kvpool_plan(&f->pool, SLOTS, n_ctx, window, chunk);
    assert_true(f->pool.table_len <= TABLE);
    assert_int_equal(gm_kvpool_init(&f->pool, &f->arena, NULL), GM_OK);
    for (uint32_t s = 0; s < SLOTS; s++)
        assert_int_equal(gm_kvtable_init(&f->table[s], &f->pool, &f->arena, NULL), GM_OK);
    assert_int_equal(gm_step_alloc(&f->step, &(gm_step_limits){.edits = 64}, NULL), GM_OK);
    memset(f->shadow, 0xFF, sizeof f->shadow);
}

static void end(fixture *f)
{
    gm_step_free(f->step);
    gm_arena_deinit(&f->arena);
}

static void assert_all_free(const fixture *f)
{
    for (int c = 0; c < GM_CLASSES; c++) {
        assert_int_equal(f->pool.n_free[c], f->pool.n_pages[c]);
        uint32_t seen = 0;
        for (uint32_t i = 0; i < f->pool.n_free[c]; i++) {
            assert_true(f->pool.free[c][i] < f->pool.n_pages[c]);
            for (uint32_t j = 0; j < i; j++)
                seen += f->pool.free[c][i] == f->pool.free[c][j];
        }
        assert_int_equal(seen, 0);
    }
}

/* No page is in two places, and each has been either given out or is free. */
static void assert_pages_are_unique(const fixture *f)
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        uint32_t owners[SLOTS * TABLE] = {0}, held = 0;
        for (uint32_t s = 0; s < SLOTS; s++) {
            for (uint32_t i = 0; i < f->pool.table_len; i++) {
                assert_int_equal(f->shadow[s][c][i], f->table[s].page[c][i]);
                if (f->shadow[s][c][i] == GM_NO_PAGE) continue;
                assert_true(f->shadow[s][c][i] < f->pool.n_pages[c]);
                assert_int_equal(owners[f->shadow[s][c][i]]++, 0);
                held++;
            }
        }
        assert_int_equal(held + f->pool.n_free[c], f->pool.n_pages[c]);
    }
}

/* One step of n rows for a slot; afterwards each row's visible positions have pages. */
static void advance(fixture *f, uint32_t slot, uint32_t n)
{
    const uint32_t pos = f->n_pos[slot];
    gm_step_clear(f->step);
    if (!gm_kvpool_extend(&f->pool, &f->table[slot], slot, pos, n, f->step))
        fail_msg("no pages for %u rows at %u, window %u, context %u", n, pos, f->pool.window,
                 f->n_ctx);
    for (uint32_t i = 0; i < f->step->n_edits; i++) {
        const gm_page_edit *const e = &gm_step_edits(f->step)[i];
        assert_int_equal(e->slot, slot);
        f->shadow[e->slot][e->class][e->index] = e->page;
    }
    assert_pages_are_unique(f);
    for (uint32_t i = pos; i < pos + n; i++) {
        gm_step_row row = {.pos = i};
        gm_kvpool_visible(&f->pool, &row);
        for (uint32_t c = 0; c < GM_CLASSES; c++) {
            if (c == GM_CLASS_LOCAL && f->pool.window == 0) continue;
            for (uint32_t p = row.first[c]; p <= row.last[c]; p++)
                assert_int_not_equal(f->shadow[slot][c][p / GM_PAGE_LEN], GM_NO_PAGE);
        }
    }
    f->n_pos[slot] += n;
}

static void restart(fixture *f, uint32_t slot)
{
    gm_kvpool_release(&f->pool, &f->table[slot]);
    memset(f->shadow[slot], 0xFF, sizeof f->shadow[slot]);
    f->n_pos[slot] = 0;
}

/* ---- tests ----------------------------------------------------------------------------- */

static void test_visible_positions(void **state)
{
    (void)state;
    static const struct {
        uint32_t window, pos, first;
    } rows[] = {
        {8, 0, 0}, {8, 6, 0}, {8, 7, 0},  {8, 8, 1},           {8, 100, 93},
        {1, 0, 0}, {1, 9, 9}, {0, 50, 0}, {UINT32_MAX, 50, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const gm_kvpool pool = {.window = rows[i].window};
        gm_step_row row = {.pos = rows[i].pos};
        gm_kvpool_visible(&pool, &row);
        assert_int_equal(row.first[GM_CLASS_LOCAL], rows[i].first);
        assert_int_equal(row.first[GM_CLASS_GLOBAL], 0);
        assert_int_equal(row.last[GM_CLASS_LOCAL], rows[i].pos);
        assert_int_equal(row.last[GM_CLASS_GLOBAL], rows[i].pos);
    }
}

/* Every slot filled to the last position in steps of every size: the pool never runs dry, and all
 * pages are there again afterwards. */
static void test_full_contexts_always_fit(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 2, 8, 31, 32, 33, 64, 100, 300, 10000};
    static const uint32_t chunks[] = {1, 7, 31, 32, 33, 64};
    static const uint32_t contexts[] = {2, 31, 32, 33, 65, 200, 509};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
            for (size_t x = 0; x < sizeof contexts / sizeof *contexts; x++) {
                fixture f;
                begin(&f, contexts[x], windows[w], chunks[k]);
                for (uint32_t s = 0; s < SLOTS; s++) {
                    while (f.n_pos[s] < f.n_ctx) {
                        const uint32_t left = f.n_ctx - f.n_pos[s];
                        advance(&f, s, left < f.chunk ? left : f.chunk);
                    }
                }
                for (uint32_t s = 0; s < SLOTS; s++)
                    restart(&f, s);
                assert_all_free(&f);
                end(&f);
            }
        }
    }
}

/* Slots that come and go at random, in steps of random sizes. */
static void test_random_walk(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 8, 33, 64, 200};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        fixture f;
        begin(&f, 500, windows[w], 64);
        for (uint64_t i = 0; i < 2000; i++) {
            const uint64_t x = tiny_random(windows[w], i);
            const uint32_t slot = (uint32_t)(x % SLOTS), n = (uint32_t)(1 + (x >> 8) % 64);
            if (f.n_pos[slot] + n > f.n_ctx || (x >> 16) % 40 == 0)
                restart(&f, slot);
            else
                advance(&f, slot, (x >> 32) % 2 ? n : 1);
        }
        for (uint32_t s = 0; s < SLOTS; s++)
            restart(&f, s);
        assert_all_free(&f);
        end(&f);
    }
}

/* Local layers cost a window and not a context. */
static void test_local_pages_come_back(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 512, 40, 16);
    assert_int_equal(f.pool.n_pages[GM_CLASS_GLOBAL], 16 * SLOTS);
    assert_int_equal(f.pool.n_pages[GM_CLASS_LOCAL], 3 * SLOTS);
    while (f.n_pos[0] < 512)
        advance(&f, 0, 16);
    assert_int_equal(f.shadow[0][GM_CLASS_LOCAL][0], GM_NO_PAGE);
    assert_true(f.pool.n_pages[GM_CLASS_LOCAL] - f.pool.n_free[GM_CLASS_LOCAL] <= 3);
    assert_int_equal(f.pool.n_pages[GM_CLASS_GLOBAL] - f.pool.n_free[GM_CLASS_GLOBAL], 16);
    end(&f);
}

/* A full list of edits, and an empty pool, are answered with false; nothing is lost. */
static void test_what_does_not_fit(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 500, 8, 64);
    gm_step *small = NULL;
    assert_int_equal(gm_step_alloc(&small, &(gm_step_limits){.edits = 1}, NULL), GM_OK);
    assert_false(gm_kvpool_extend(&f.pool, &f.table[0], 0, 0, 64, small));
    gm_kvpool_release(&f.pool, &f.table[0]);
    assert_all_free(&f);
    gm_step_free(small);

    f.pool.n_free[GM_CLASS_GLOBAL] = 1;
    gm_step_clear(f.step);
    assert_false(gm_kvpool_extend(&f.pool, &f.table[0], 0, 0, 64, f.step));
    gm_kvpool_release(&f.pool, &f.table[0]);
    assert_int_equal(f.pool.n_free[GM_CLASS_GLOBAL], 1);
    gm_kvpool_release(&f.pool, &f.table[0]); /* of nothing: nothing */
    assert_int_equal(f.pool.n_free[GM_CLASS_GLOBAL], 1);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visible_positions), cmocka_unit_test(test_full_contexts_always_fit),
        cmocka_unit_test(test_random_walk),       cmocka_unit_test(test_local_pages_come_back),
        cmocka_unit_test(test_what_does_not_fit),
    };
    return cmocka_run_group_tests_name("t_kv", tests, NULL, NULL);
}
