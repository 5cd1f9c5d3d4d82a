/* SPDX-License-Identifier: MIT */
/* The page pool, walked by sequences of any length against a plain model of the backend: tables as
 * the edits leave them, pages of numbers that copies move, and what each sequence has written. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "engine/kv.h"
#include "fixtures/tinymodel.h"

enum { SLOTS = 4, TABLE = 16, CTX = TABLE * GM_PAGE_LEN, PAGES = SLOTS * TABLE };

typedef struct fixture {
    gm_arena arena;
    gm_kvpool pool;
    gm_kvtable table[SLOTS];
    gm_step *step;
    uint32_t shadow[SLOTS][GM_CLASSES][TABLE];     /* what the backend was told   */
    uint32_t cell[GM_CLASSES][PAGES][GM_PAGE_LEN]; /* what is in its pages        */
    uint32_t said[SLOTS][CTX];                     /* what each sequence wrote    */
    uint32_t n_pos[SLOTS];
    uint32_t n_ctx, chunk, n_written;
} fixture;

static void begin_with(fixture *f, uint32_t n_slots, uint32_t n_ctx, uint32_t window,
                       uint32_t chunk)
{
    *f = (fixture){.n_ctx = n_ctx, .chunk = chunk};
    gm_kvpool_plan(&f->pool, n_slots, n_ctx, window, chunk);
    assert_true(f->pool.table_len <= TABLE);
    assert_int_equal(gm_kvpool_init(&f->pool, &f->arena, NULL), GM_OK);
    for (uint32_t s = 0; s < SLOTS; s++)
        assert_int_equal(gm_kvtable_init(&f->table[s], &f->pool, &f->arena, NULL), GM_OK);
    const gm_step_limits limits = {.edits = 4 * TABLE, .copies = GM_CLASSES};
    assert_int_equal(gm_step_alloc(&f->step, &limits, NULL), GM_OK);
    memset(f->shadow, 0xFF, sizeof f->shadow);
}

static void begin(fixture *f, uint32_t n_ctx, uint32_t window, uint32_t chunk)
{
    begin_with(f, SLOTS, n_ctx, window, chunk);
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
            assert_int_equal(f->pool.refs[c][i], 0);
            for (uint32_t j = 0; j < i; j++)
                seen += f->pool.free[c][i] == f->pool.free[c][j];
        }
        assert_int_equal(seen, 0);
    }
}

/* ---- the slow model ---------------------------------------------------------------------- */

static bool has_class(const fixture *f, uint32_t class)
{
    return class == GM_CLASS_GLOBAL || f->pool.window != 0;
}

/* The first position of a class that the row at pos sees. */
static uint32_t first_of(const fixture *f, uint32_t class, uint32_t pos)
{
    gm_step_row row = {.pos = pos};
    gm_kvpool_visible(&f->pool, &row);
    return row.first[class];
}

static uint32_t owners_of(const fixture *f, uint32_t class, uint32_t page)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        for (uint32_t i = 0; i < TABLE; i++)
            n += f->shadow[s][class][i] == page;
    }
    return n;
}

/* Tables are what the backend was told, counts are how many hold a page, a page that nobody holds
 * is free. */
static void assert_pages_are_counted(const fixture *f)
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        uint32_t owners[PAGES] = {0}, held = 0, wrong = 0;
        for (uint32_t s = 0; s < SLOTS; s++) {
            for (uint32_t i = 0; i < f->pool.table_len; i++) {
                const uint32_t page = f->shadow[s][c][i];
                wrong += page != f->table[s].page[c][i];
                if (page == GM_NO_PAGE) continue;
                assert_true(page < f->pool.n_pages[c]);
                held += owners[page]++ == 0;
            }
        }
        for (uint32_t i = 0; i < f->pool.n_pages[c]; i++)
            wrong += owners[i] != f->pool.refs[c][i];
        for (uint32_t i = 0; i < f->pool.n_free[c]; i++)
            wrong += owners[f->pool.free[c][i]] != 0;
        assert_int_equal(wrong, 0);
        assert_int_equal(held + f->pool.n_free[c], f->pool.n_pages[c]);
    }
}

/* Positions of [first of pos, end) in which the slot would not read what its sequence wrote. */
static uint32_t n_wrong(const fixture *f, uint32_t slot, uint32_t pos, uint32_t end_pos)
{
    uint32_t wrong = 0;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        if (!has_class(f, c)) continue;
        for (uint32_t p = first_of(f, c, pos); p < end_pos; p++) {
            const uint32_t page = f->shadow[slot][c][p / GM_PAGE_LEN];
            wrong += page == GM_NO_PAGE || f->cell[c][page][p % GM_PAGE_LEN] != f->said[slot][p];
        }
    }
    return wrong;
}

/* Whatever was done for one slot, each still has what its next row sees. */
static void assert_all_is_well(const fixture *f)
{
    assert_pages_are_counted(f);
    for (uint32_t s = 0; s < SLOTS; s++)
        assert_int_equal(n_wrong(f, s, f->n_pos[s], f->n_pos[s]), 0);
}

/* What the backend does with a step before its rows. */
static void apply(fixture *f, const gm_step *step, uint32_t slot)
{
    for (uint32_t i = 0; i < step->n_copies; i++) {
        const gm_page_copy *const m = &gm_step_copies(step)[i];
        memcpy(f->cell[m->class][m->to], f->cell[m->class][m->from], sizeof f->cell[0][0]);
    }
    for (uint32_t i = 0; i < step->n_edits; i++) {
        const gm_page_edit *const e = &gm_step_edits(step)[i];
        assert_int_equal(e->slot, slot);
        f->shadow[e->slot][e->class][e->index] = e->page;
    }
}

/* The rows [pos, pos + n): each page that is written is this slot's alone. */
static void write_rows(fixture *f, uint32_t slot, uint32_t pos, uint32_t n)
{
    for (uint32_t p = pos; p < pos + n; p++) {
        f->said[slot][p] = ++f->n_written;
        for (uint32_t c = 0; c < GM_CLASSES; c++) {
            if (!has_class(f, c)) continue;
            const uint32_t page = f->shadow[slot][c][p / GM_PAGE_LEN];
            assert_int_not_equal(page, GM_NO_PAGE);
            if (p == pos || p % GM_PAGE_LEN == 0) assert_int_equal(owners_of(f, c, page), 1);
            f->cell[c][page][p % GM_PAGE_LEN] = f->said[slot][p];
        }
    }
    assert_int_equal(n_wrong(f, slot, pos, pos + n), 0);
}

/* Whether there are pages and room in the step for positions [pos, pos + n). */
static bool can_extend(const fixture *f, uint32_t slot, uint32_t pos, uint32_t n,
                       const gm_step *step)
{
    uint32_t edits = 0, copies = 0;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        if (!has_class(f, c)) continue;
        uint32_t freed = 0, needed = 0;
        for (uint32_t i = 0; i < TABLE; i++) {
            const uint32_t page = f->shadow[slot][c][i];
            const bool writes = i >= pos / GM_PAGE_LEN && i * GM_PAGE_LEN < pos + n;
            const bool seen = (i + 1) * GM_PAGE_LEN > first_of(f, c, pos);
            const uint32_t owners = page == GM_NO_PAGE ? 0 : owners_of(f, c, page);
            freed += !seen && owners == 1;
            needed += writes && owners != 1;
            edits += (!seen && owners) || (writes && owners != 1);
            copies += writes && owners > 1;
        }
        if (needed > f->pool.n_free[c] + freed) return false;
    }
    return edits <= step->limits.edits - step->n_edits &&
           copies <= step->limits.copies - step->n_copies;
}

/* Whether a table has all that a row at n sees of positions before it. */
static bool reaches(const fixture *f, uint32_t slot, uint32_t n)
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t p = first_of(f, c, n); has_class(f, c) && p < n; p++) {
            if (f->shadow[slot][c][p / GM_PAGE_LEN] == GM_NO_PAGE) return false;
        }
    }
    return true;
}

/* ---- calls, watched ---------------------------------------------------------------------- */

/* All that a call may change. */
typedef struct picture {
    uint32_t n_free[GM_CLASSES], free[GM_CLASSES][PAGES], refs[GM_CLASSES][PAGES];
    uint32_t first[SLOTS][GM_CLASSES], n[SLOTS][GM_CLASSES], page[SLOTS][GM_CLASSES][TABLE];
    uint8_t step[4096];
} picture;

static void take_picture(const fixture *f, const gm_step *step, picture *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        const size_t pages = f->pool.n_pages[c] * sizeof(uint32_t);
        out->n_free[c] = f->pool.n_free[c];
        memcpy(out->free[c], f->pool.free[c], pages);
        memcpy(out->refs[c], f->pool.refs[c], pages);
        for (uint32_t s = 0; s < SLOTS; s++) {
            out->first[s][c] = f->table[s].first[c];
            out->n[s][c] = f->table[s].n[c];
            memcpy(out->page[s][c], f->table[s].page[c], f->pool.table_len * sizeof(uint32_t));
        }
    }
    assert_true(step->size <= sizeof out->step);
    memcpy(out->step, step, step->size);
}

static void assert_unchanged(const fixture *f, const gm_step *step, const picture *before)
{
    picture after;
    take_picture(f, step, &after);
    assert_memory_equal(&after, before, sizeof after);
}

/* Positions [pos, pos + n) for a slot, written where the pages for them are had. */
static bool extend(fixture *f, uint32_t slot, uint32_t pos, uint32_t n, gm_step *step)
{
    picture before;
    gm_step_clear(step);
    take_picture(f, step, &before);
    const bool can = can_extend(f, slot, pos, n, step);
    assert_int_equal(gm_kvpool_extend(&f->pool, &f->table[slot], slot, pos, n, step), can);
    if (can) {
        apply(f, step, slot);
        write_rows(f, slot, pos, n);
    } else {
        assert_unchanged(f, step, &before);
    }
    return can;
}

static bool advance_on(fixture *f, uint32_t slot, uint32_t n, gm_step *step)
{
    const bool can = extend(f, slot, f->n_pos[slot], n, step);
    if (can) f->n_pos[slot] += n;
    assert_all_is_well(f);
    return can;
}

static void advance(fixture *f, uint32_t slot, uint32_t n)
{
    if (!advance_on(f, slot, n, f->step))
        fail_msg("no pages for %u rows at %u, window %u, context %u", n, f->n_pos[slot],
                 f->pool.window, f->n_ctx);
}

static void restart(fixture *f, uint32_t slot)
{
    gm_kvpool_release(&f->pool, &f->table[slot]);
    memset(f->shadow[slot], 0xFF, sizeof f->shadow[slot]);
    f->n_pos[slot] = 0;
}

/* Answers as it must: no where what is asked for is gone, yes where all is there. A window of one
 * position sees nothing before it, and then either will do. */
static void assert_answer(const fixture *f, bool answer, bool there, bool room)
{
    if (answer)
        assert_true(there);
    else
        assert_true(!there || !room || f->pool.window == 1);
}

static bool share_on(fixture *f, uint32_t to, uint32_t from, uint32_t n, gm_step *step)
{
    picture before;
    gm_step_clear(step);
    take_picture(f, step, &before);
    const bool there = reaches(f, from, n);
    const bool did = gm_kvpool_share(&f->pool, &f->table[to], &f->table[from], to, n, step);
    assert_answer(f, did, there, step->limits.edits >= 2 * TABLE);
    if (did) {
        apply(f, step, to);
        memcpy(f->said[to], f->said[from], n * sizeof f->said[0][0]);
        f->n_pos[to] = n;
        assert_int_equal(step->n_copies, 0);
    } else {
        assert_unchanged(f, step, &before);
    }
    assert_all_is_well(f);
    return did;
}

static bool truncate_on(fixture *f, uint32_t slot, uint32_t n, gm_step *step)
{
    picture before;
    gm_step_clear(step);
    take_picture(f, step, &before);
    const bool there = reaches(f, slot, n);
    const bool did = gm_kvpool_truncate(&f->pool, &f->table[slot], slot, n, step);
    assert_answer(f, did, there, step->limits.edits >= 2 * TABLE);
    if (did) {
        apply(f, step, slot);
        f->n_pos[slot] = n;
    } else {
        assert_unchanged(f, step, &before);
    }
    assert_all_is_well(f);
    return did;
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
        for (uint64_t i = 0; i < 1000; i++) {
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

/* ---- sharing ----------------------------------------------------------------------------- */

/* Pages are counted, not copied, until somebody writes; then the other's are as they were. */
static void test_share_counts_pages(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 500, 100, 64);
    advance(&f, 0, 64);
    advance(&f, 0, 13); /* three pages, the last one in part */
    assert_true(share_on(&f, 1, 0, 77, f.step));
    assert_true(share_on(&f, 2, 0, 64, f.step)); /* whole pages only */
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        assert_int_equal(f.pool.n_pages[c] - f.pool.n_free[c], 3);
        const uint32_t refs[] = {3, 3, 2};
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(f.pool.refs[c][f.table[0].page[c][i]], refs[i]);
    }
    advance(&f, 2, 1); /* begins a page of its own: no copy */
    assert_int_equal(f.step->n_copies, 0);
    for (uint32_t s = 0; s < 3; s++)
        restart(&f, s);
    assert_all_free(&f);
    end(&f);
}

/* The page in part is copied for whoever comes to write first; for the last one it is its own. */
static void test_copy_before_write(void **state)
{
    (void)state;
    for (uint32_t order = 0; order < 6; order++) {
        static const uint32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                              {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        fixture f;
        begin(&f, 500, 64, 64);
        advance(&f, 0, 45);
        assert_true(share_on(&f, 1, 0, 45, f.step));
        assert_true(share_on(&f, 2, 1, 33, f.step)); /* of one that has shared itself */
        for (uint32_t i = 0; i < 3; i++) {
            advance(&f, orders[order][i], 1);
            assert_int_equal(f.step->n_copies, i < 2 ? GM_CLASSES : 0);
            advance(&f, orders[order][i], 1); /* not again */
            assert_int_equal(f.step->n_copies, 0);
        }
        for (uint32_t i = 0; i < 3; i++)
            restart(&f, orders[order][i]);
        assert_all_free(&f);
        end(&f);
    }
}

/* The one that shares goes on when the one that computed is gone, and needs no copy then. */
static void test_share_outlives_the_donor(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 500, 40, 64);
    advance(&f, 0, 50);
    assert_true(share_on(&f, 1, 0, 49, f.step));
    restart(&f, 0);
    advance(&f, 0, 64); /* and its slot is used again */
    for (uint32_t i = 0; i < 60; i++) {
        advance(&f, 1, 1);
        assert_int_equal(f.step->n_copies, 0);
    }
    restart(&f, 1);
    restart(&f, 0);
    assert_all_free(&f);
    end(&f);
}

/* Positions whose window has gone back to the pool cannot be gone back to, page by page. */
static void test_share_and_truncate_need_the_window(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 2, 31, 32, 33, 64, 65, 1000};
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        fixture f;
        begin(&f, 500, windows[w], 7);
        while (f.n_pos[0] < 203)
            advance(&f, 0, 7);
        uint32_t n_shared = 0;
        for (uint32_t n = 1; n <= 203; n++) {
            n_shared += share_on(&f, 1, 0, n, f.step);
            restart(&f, 1);
        }
        /* The last step began at 196: its window's first page is the first to be had. */
        const uint32_t seen = first_of(&f, GM_CLASS_LOCAL, 196) / GM_PAGE_LEN * GM_PAGE_LEN;
        const uint32_t least = seen ? seen + windows[w] - 1 : 1;
        assert_int_equal(n_shared, 203 - least + 1);
        for (uint32_t n = 204; n-- > 0;)
            assert_int_equal(truncate_on(&f, 0, n, f.step), n >= least || n == 0);
        restart(&f, 0);
        assert_all_free(&f);
        end(&f);
    }
}

/* What is forgotten of shared pages stays with the others; what is written after is new. */
static void test_truncate(void **state)
{
    (void)state;
    fixture f;
    begin(&f, 500, 200, 64);
    advance(&f, 0, 64);
    advance(&f, 0, 60);
    assert_true(share_on(&f, 1, 0, 124, f.step));
    assert_true(truncate_on(&f, 0, 124, f.step)); /* nothing */
    assert_int_equal(f.step->n_edits, 0);
    assert_true(truncate_on(&f, 0, 40, f.step));
    assert_int_equal(f.step->n_edits, 2 * GM_CLASSES);
    advance(&f, 0, 64);
    assert_int_equal(f.step->n_copies, GM_CLASSES);
    assert_true(truncate_on(&f, 1, 96, f.step));
    advance(&f, 1, 1);
    assert_int_equal(f.step->n_copies, 0);
    assert_true(truncate_on(&f, 1, 0, f.step));
    assert_true(truncate_on(&f, 0, 0, f.step));
    assert_all_free(&f);
    end(&f);
}

/* Too little room for edits or for copies: refused, and nothing has changed (which
 * the calls themselves watch). */
static void test_refusals_change_nothing(void **state)
{
    (void)state;
    for (uint32_t edits = 0; edits < 2 * TABLE; edits++) {
        for (uint32_t copies = 0; copies <= GM_CLASSES; copies++) {
            fixture f;
            gm_step *tight = NULL;
            const gm_step_limits limits = {.edits = edits, .copies = copies};
            assert_int_equal(gm_step_alloc(&tight, &limits, NULL), GM_OK);
            begin(&f, 500, 64, 64);
            advance(&f, 0, 64);
            advance(&f, 0, 40);
            assert_int_equal(share_on(&f, 1, 0, 104, tight), edits >= 4 * GM_CLASSES);
            if (f.n_pos[1] == 0) assert_true(share_on(&f, 1, 0, 104, f.step));
            /* a copy and two new pages in each class */
            assert_int_equal(advance_on(&f, 1, 64, tight), edits >= 6 && copies >= 2);
            assert_false(truncate_on(&f, 0, 100, tight));
            restart(&f, 0);
            restart(&f, 1);
            assert_all_free(&f);
            end(&f);
            gm_step_free(tight);
        }
    }
}

/* Slots that go on, share, go back, are abandoned and end at random, in a pool that is too small
 * for all of them and in steps that are sometimes too small. */
static void test_random_walk_with_sharing(void **state)
{
    (void)state;
    static const uint32_t windows[] = {0, 1, 8, 33, 64, 200};
    gm_step *tight = NULL;
    const gm_step_limits limits = {.edits = 3, .copies = 1};
    assert_int_equal(gm_step_alloc(&tight, &limits, NULL), GM_OK);
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        uint32_t n_did[5] = {0}, n_refused[5] = {0};
        fixture f;
        begin_with(&f, 1, 500, windows[w], 64);
        for (uint64_t i = 0; i < 3000; i++) {
            const uint64_t x = tiny_random(99 + windows[w], i), y = tiny_random(x, 0);
            const uint32_t slot = (uint32_t)(x % SLOTS), other = (uint32_t)((x >> 4) % SLOTS);
            const uint32_t n = (x >> 8) % 2 ? 1 : (uint32_t)(1 + (x >> 9) % 64);
            /* mostly near the end, where the window is still there */
            const uint32_t had = f.n_pos[slot], back = (uint32_t)(y % (y >> 32 & 3 ? 20 : 500));
            gm_step *const step = (x >> 16) % 8 ? f.step : tight;
            const uint32_t what = (uint32_t)((x >> 20) % 16);
            bool did = true;
            uint32_t kind = 0;
            if (what < 9) {
                did = had + n <= f.n_ctx && advance_on(&f, slot, n, step);
            } else if (what < 10 && had + n <= f.n_ctx) {
                did = extend(&f, slot, had, n, step), kind = 1; /* abandoned */
            } else if (what < 13 && slot != other && had) {
                restart(&f, other);
                did = share_on(&f, other, slot, had - (back < had ? back : 0), step), kind = 2;
            } else if (what < 15) {
                did = truncate_on(&f, slot, back < had ? had - back : 0, step), kind = 3;
            } else {
                restart(&f, slot), kind = 4;
            }
            if (did)
                n_did[kind]++;
            else
                n_refused[kind]++;
        }
        for (uint32_t k = 0; k < 4; k++)
            assert_true(n_did[k] > 50 && n_refused[k] > 1);
        for (uint32_t s = 0; s < SLOTS; s++)
            restart(&f, s);
        assert_all_free(&f);
        end(&f);
    }
    gm_step_free(tight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visible_positions),
        cmocka_unit_test(test_full_contexts_always_fit),
        cmocka_unit_test(test_random_walk),
        cmocka_unit_test(test_local_pages_come_back),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_share_counts_pages),
        cmocka_unit_test(test_copy_before_write),
        cmocka_unit_test(test_share_outlives_the_donor),
        cmocka_unit_test(test_share_and_truncate_need_the_window),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_refusals_change_nothing),
        cmocka_unit_test(test_random_walk_with_sharing),
    };
    return cmocka_run_group_tests_name("t_kv", tests, NULL, NULL);
}
