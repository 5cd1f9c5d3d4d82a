/* SPDX-License-Identifier: MIT */
#include "engine/kv.h"

static uint32_t pages_for(uint64_t positions)
{
    return (uint32_t)((positions + GM_PAGE_LEN - 1) / GM_PAGE_LEN);
}

void gm_kvpool_plan(gm_kvpool *p, uint32_t n_slots, uint32_t n_ctx, uint32_t window, uint32_t chunk)
{
    p->window = window;
    p->table_len = pages_for(n_ctx);
    p->n_pages[GM_CLASS_GLOBAL] = p->table_len * n_slots;
    /* A window and a chunk may each begin in the middle of a page: one page more. Without a window
     * no layer is local, and there are no local pages. */
    const uint32_t local = window ? pages_for((uint64_t)window + chunk) + 1 : 0;
    p->n_pages[GM_CLASS_LOCAL] = (local < p->table_len ? local : p->table_len) * n_slots;
}

gm_status gm_kvpool_init(gm_kvpool *p, gm_arena *arena, gm_err *err)
{
    for (int c = 0; c < GM_CLASSES; c++) {
        GM_TRY(gm_arena_alloc(arena, &p->free[c], p->n_pages[c], sizeof *p->free[c],
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
    return GM_OK;
}

void gm_kvpool_visible(const gm_kvpool *p, gm_step_row *row)
{
    const uint32_t back = row->pos + 1 < p->window ? row->pos : p->window - 1;
    row->first[GM_CLASS_GLOBAL] = 0;
    row->first[GM_CLASS_LOCAL] = p->window ? row->pos - back : 0;
    row->last[GM_CLASS_GLOBAL] = row->last[GM_CLASS_LOCAL] = row->pos;
}

static void give_back(gm_kvpool *p, gm_kvtable *t, uint32_t class, uint32_t index)
{
    p->free[class][p->n_free[class]++] = t->page[class][index];
    t->page[class][index] = GM_NO_PAGE;
}

bool gm_kvpool_extend(gm_kvpool *p, gm_kvtable *t, uint32_t slot, uint32_t pos, uint32_t n,
                      gm_step *step)
{
    gm_step_row next = {.pos = pos};
    gm_kvpool_visible(p, &next);
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        if (p->n_pages[c] == 0) continue;
        for (; t->first[c] < t->n[c] && t->first[c] < next.first[c] / GM_PAGE_LEN; t->first[c]++) {
            if (!gm_step_put_edit(step, &(gm_page_edit){slot, c, t->first[c], GM_NO_PAGE}))
                return false;
            give_back(p, t, c, t->first[c]);
        }
        for (; t->n[c] < pages_for((uint64_t)pos + n); t->n[c]++) {
            if (p->n_free[c] == 0) return false;
            const uint32_t page = p->free[c][p->n_free[c] - 1];
            if (!gm_step_put_edit(step, &(gm_page_edit){slot, c, t->n[c], page})) return false;
            p->n_free[c]--;
            t->page[c][t->n[c]] = page;
        }
    }
    return true;
}

void gm_kvpool_release(gm_kvpool *p, gm_kvtable *t)
{
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = t->first[c]; i < t->n[c]; i++)
            give_back(p, t, c, i);
        t->first[c] = t->n[c] = 0;
    }
}
