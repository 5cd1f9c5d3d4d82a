/* SPDX-License-Identifier: MIT */
#include "engine/kv.h"

static uint32_t pages_for(uint64_t positions)
{
    return (uint32_t)((positions + GM_PAGE_LEN - 1) / GM_PAGE_LEN);
}

uint32_t gm_kvpool_need(const gm_kvpool *p, uint32_t class, uint32_t n, uint32_t chunk)
{
    const uint32_t all = pages_for(n);
    if (class == GM_CLASS_GLOBAL) return all;
    /* A window and a chunk may each begin in the middle of a page: one page more. Without a window
     * no layer is local, and there are no local pages. */
    const uint32_t local = p->window ? pages_for((uint64_t)p->window + chunk) + 1 : 0;
    return local < all ? local : all;
}

void gm_kvpool_plan(gm_kvpool *p, uint32_t n_seqs, uint32_t n_ctx, uint32_t window, uint32_t chunk)
{
    p->window = window;
    p->table_len = pages_for(n_ctx);
    for (uint32_t c = 0; c < GM_CLASSES; c++)
        p->n_pages[c] = gm_kvpool_need(p, c, n_ctx, chunk) * n_seqs;
}

gm_status gm_kvpool_init(gm_kvpool *p, gm_arena *arena, gm_err *err)
{
    for (int c = 0; c < GM_CLASSES; c++) {
        GM_TRY(gm_arena_alloc(arena, &p->free[c], p->n_pages[c], sizeof *p->free[c],
                              "the page pool", err));
        GM_TRY(gm_arena_alloc(arena, &p->refs[c], p->n_pages[c], sizeof *p->refs[c],
                              "the page pool", err));
        for (uint32_t i = 0; i < p->n_pages[c]; i++)
            p->free[c][i] = p->n_pages[c] - 1 - i;
        p->n_free[c] = p->n_pages[c];
    }
    return GM_OK;
}

gm_status gm_kvtable_init(gm_kvtable *t, const gm_kvpool *p, gm_arena *arena, gm_err *err)
{
    for (int c = 0; c < GM_CLASSES; c++) {
        GM_TRY(gm_arena_alloc(arena, &t->page[c], p->table_len, sizeof *t->page[c], "a page table",
                              err));
        for (uint32_t i = 0; i < p->table_len; i++)
            t->page[c][i] = GM_NO_PAGE;
    }
    return gm_arena_alloc(arena, &t->keep, p->table_len, sizeof *t->keep, "a page table", err);
}

void gm_kvpool_visible(const gm_kvpool *p, gm_step_row *row)
{
    const uint32_t back = row->pos + 1 < p->window ? row->pos : p->window - 1;
    row->first[GM_CLASS_GLOBAL] = 0;
    row->first[GM_CLASS_LOCAL] = p->window ? row->pos - back : 0;
    row->last[GM_CLASS_GLOBAL] = row->last[GM_CLASS_LOCAL] = row->pos;
}

static uint32_t page_take(gm_kvpool *p, uint32_t class)
{
    const uint32_t page = p->free[class][--p->n_free[class]];
    p->refs[class][page] = 1;
    return page;
}

static void page_release(gm_kvpool *p, uint32_t class, uint32_t page)
{
    if (--p->refs[class][page] == 0) p->free[class][p->n_free[class]++] = page;
}

static bool stays(const gm_kvtable *t, uint32_t class, uint32_t i)
{
    return class == GM_CLASS_LOCAL && t->keep[i];
}

static void page_drop(gm_kvpool *p, gm_kvtable *t, uint32_t class, uint32_t i)
{
    if (t->page[class][i] == GM_NO_PAGE) return;
    page_release(p, class, t->page[class][i]);
    t->page[class][i] = GM_NO_PAGE;
}

/* Drops entries [first, end) of a table; the backend forgets them too. */
static void drop(gm_kvpool *p, gm_kvtable *t, uint32_t class, uint32_t first, uint32_t end,
                 uint32_t slot, gm_step *step)
{
    for (uint32_t i = first; i < end; i++) {
        page_drop(p, t, class, i);
        gm_step_put_edit(step, &(gm_page_edit){slot, class, i, GM_NO_PAGE});
    }
}

/* The first entry of a class that the row at pos, or any after it, can see. */
static uint32_t first_seen(const gm_kvpool *p, uint32_t class, uint32_t pos)
{
    gm_step_row row = {.pos = pos};
    gm_kvpool_visible(p, &row);
    return row.first[class] / GM_PAGE_LEN;
}

static bool has_room(const gm_step *s, uint32_t edits, uint32_t copies)
{
    return s->limits.edits - s->n_edits >= edits && s->limits.copies - s->n_copies >= copies;
}

/* What extend will do in one class. */
typedef struct change {
    uint32_t drop_end; /* entries before this go back                           */
    uint32_t n;        /* entries after                                         */
    bool copies;       /* the page that pos lies in is shared: a copy replaces it */
} change;

static change change_of(const gm_kvpool *p, const gm_kvtable *t, uint32_t class, uint32_t pos,
                        uint32_t n)
{
    const uint32_t seen = first_seen(p, class, pos), at = pos / GM_PAGE_LEN;
    change c = {.drop_end = t->first[class], .n = t->n[class]};
    if (p->n_pages[class] == 0) return c;
    if (seen > c.drop_end) c.drop_end = seen < t->n[class] ? seen : t->n[class];
    if (pages_for((uint64_t)pos + n) > c.n) c.n = pages_for((uint64_t)pos + n);
    c.copies = at >= c.drop_end && at < t->n[class] && p->refs[class][t->page[class][at]] > 1;
    return c;
}

/* Pages of a class that come free when entries are dropped that nobody else holds. */
static uint32_t freed_by(const gm_kvpool *p, const gm_kvtable *t, uint32_t class, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t i = t->first[class]; i < end; i++)
        n += !stays(t, class, i) && p->refs[class][t->page[class][i]] == 1;
    return n;
}

bool gm_kvpool_extend(gm_kvpool *p, gm_kvtable *t, uint32_t slot, uint32_t pos, uint32_t n,
                      gm_step *step)
{
    change todo[GM_CLASSES];
    uint32_t edits = 0, copies = 0;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        const change ch = todo[c] = change_of(p, t, c, pos, n);
        const uint32_t need = ch.n - t->n[c] + ch.copies;
        if (need > p->n_free[c] + freed_by(p, t, c, ch.drop_end)) return false;
        edits += ch.drop_end - t->first[c] + need;
        copies += ch.copies;
    }
    if (!has_room(step, edits, copies)) return false;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (; t->first[c] < todo[c].drop_end; t->first[c]++) {
            if (!stays(t, c, t->first[c])) drop(p, t, c, t->first[c], t->first[c] + 1, slot, step);
        }
        if (todo[c].copies) {
            uint32_t *const at = &t->page[c][pos / GM_PAGE_LEN];
            const uint32_t copy = page_take(p, c);
            gm_step_put_copy(step, &(gm_page_copy){c, *at, copy});
            page_release(p, c, *at);
            *at = copy;
            gm_step_put_edit(step, &(gm_page_edit){slot, c, pos / GM_PAGE_LEN, copy});
        }
        for (; t->n[c] < todo[c].n; t->n[c]++) {
            t->page[c][t->n[c]] = page_take(p, c);
            gm_step_put_edit(step, &(gm_page_edit){slot, c, t->n[c], t->page[c][t->n[c]]});
        }
    }
    return true;
}

bool gm_kvpool_holds(const gm_kvpool *p, const gm_kvtable *t, uint32_t n)
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        const uint32_t seen = first_seen(p, c, n), end = pages_for(n);
        if (p->n_pages[c] == 0 || seen >= end) continue;
        if (t->n[c] < end) return false;
        for (uint32_t i = seen; i < end; i++) {
            if (t->page[c][i] == GM_NO_PAGE) return false;
        }
    }
    return true;
}

uint32_t gm_kvpool_longest(const gm_kvpool *p, const gm_kvtable *t, uint32_t n)
{
    while (n && !gm_kvpool_holds(p, t, n))
        n = (n - 1) / GM_PAGE_LEN * GM_PAGE_LEN;
    return n;
}

void gm_kvpool_mark(const gm_kvpool *p, gm_kvtable *t, uint32_t n)
{
    for (uint32_t i = first_seen(p, GM_CLASS_LOCAL, n); i < pages_for(n) && i < p->table_len; i++)
        t->keep[i] = 1;
}

void gm_kvpool_unmark(gm_kvpool *p, gm_kvtable *t)
{
    memset(t->keep, 0, p->table_len);
    for (uint32_t i = 0; i < t->first[GM_CLASS_LOCAL]; i++)
        page_drop(p, t, GM_CLASS_LOCAL, i);
}

bool gm_kvpool_share(gm_kvpool *p, gm_kvtable *to, const gm_kvtable *from, uint32_t slot,
                     uint32_t n, gm_step *step)
{
    if (!gm_kvpool_holds(p, from, n) || !has_room(step, GM_CLASSES * pages_for(n), 0)) return false;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        if (p->n_pages[c] == 0) continue;
        to->first[c] = first_seen(p, c, n);
        to->n[c] = pages_for(n);
        if (to->first[c] > to->n[c]) to->first[c] = to->n[c];
        for (uint32_t i = 0; i < to->n[c]; i++) {
            const bool used = i >= to->first[c];
            if (from->page[c][i] == GM_NO_PAGE || !(used || stays(from, c, i))) continue;
            if (c == GM_CLASS_LOCAL && from->keep[i]) to->keep[i] = 1;
            to->page[c][i] = from->page[c][i];
            p->refs[c][to->page[c][i]]++;
            if (used) gm_step_put_edit(step, &(gm_page_edit){slot, c, i, to->page[c][i]});
        }
    }
    return true;
}

bool gm_kvpool_seat(const gm_kvpool *p, const gm_kvtable *t, uint32_t slot, gm_step *step)
{
    if (!has_room(step, GM_CLASSES * p->table_len, 0)) return false;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = t->first[c]; i < t->n[c]; i++)
            gm_step_put_edit(step, &(gm_page_edit){slot, c, i, t->page[c][i]});
    }
    return true;
}

bool gm_kvpool_truncate(gm_kvpool *p, gm_kvtable *t, uint32_t slot, uint32_t n, gm_step *step)
{
    if (!gm_kvpool_holds(p, t, n) || !has_room(step, GM_CLASSES * p->table_len, 0)) return false;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        if (p->n_pages[c] == 0) continue;
        const uint32_t end = pages_for(n);
        drop(p, t, c, end, t->n[c], slot, step);
        t->n[c] = end;
        if (t->first[c] > end) t->first[c] = end;
    }
    return true;
}

uint32_t gm_kvpool_put(gm_kvpool *p, gm_kvtable *t, uint32_t class, uint32_t index)
{
    t->page[class][index] = page_take(p, class);
    if (t->n[class] <= index) t->n[class] = index + 1;
    if (class == GM_CLASS_LOCAL) t->keep[index] = 1;
    return t->page[class][index];
}

void gm_kvpool_release(gm_kvpool *p, gm_kvtable *t)
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = 0; i < t->n[c]; i++)
            page_drop(p, t, c, i);
        t->first[c] = t->n[c] = 0;
    }
}
