/* SPDX-License-Identifier: MIT */
#include "toolbox/reader.h"

#include <inttypes.h>

#include "base/mem.h"
#include "text/tokenizer.h"

/* Few enough that Ctrl-C, which is noticed between steps, does not wait long; enough that taking
 * weights apart costs little beside multiplying them. */
#define MOST_ROWS 64u
/* 16 rows of the inputs of all products of the 27B, the most that anybody asks for. */
#define STEP_SIZE ((uint64_t)256 << 20)

static gm_status put_id(gm_ids *ids, int32_t id, gm_err *err)
{
    GM_TRY(gm_mem_grow(&ids->at, &ids->cap, ids->n + 1, sizeof *ids->at, "tokens", err));
    ids->at[ids->n++] = id;
    return GM_OK;
}

static gm_status cut(gm_pages *p, const gm_ids *text, int32_t bos, gm_err *err)
{
    for (size_t i = 0; i < text->n; i++) {
        if (p->ids.n % p->window == 0 && bos != GM_NO_TOKEN) GM_TRY(put_id(&p->ids, bos, err));
        GM_TRY(put_id(&p->ids, text->at[i], err));
    }
    if (p->ids.n < 2 || p->ids.n > UINT32_MAX) {
        return gm_fail(err, GM_E_FORMAT, 0, "text: it has %zu tokens, expected 2 to %" PRIu32,
                       p->ids.n, UINT32_MAX);
    }
    return GM_OK;
}

gm_status gm_pages_init(gm_pages *p, const gm_model *m, gm_str text, uint32_t window, gm_err *err)
{
    gm_ids ids = {0};
    p->window = window;
    gm_status status = gm_tokenizer_encode(m->vocab, text, 0, &ids, err);
    if (status == GM_OK) {
        const bool begins = gm_vocab_adds_bos(m->vocab);
        status = cut(p, &ids, begins ? gm_vocab_special(m->vocab)->bos : GM_NO_TOKEN, err);
    }
    gm_ids_deinit(&ids);
    return status;
}

void gm_pages_deinit(gm_pages *p)
{
    gm_ids_deinit(&p->ids);
}

uint32_t gm_pages_chunk(const gm_pages *p, uint32_t at, uint32_t most)
{
    const uint32_t left = (uint32_t)p->ids.n - at, page = p->window - at % p->window;
    const uint32_t n = left < page ? left : page;
    return n < most ? n : most;
}

uint32_t gm_pages_steps(const gm_pages *p, uint32_t most)
{
    uint32_t steps = 0;
    for (uint32_t at = 0, n; (n = gm_pages_chunk(p, at, most)); at += n)
        steps++;
    return steps;
}

int32_t gm_pages_target(const gm_pages *p, uint32_t at)
{
    const bool last = at + 1 == p->ids.n || (at + 1) % p->window == 0;
    return last ? GM_NO_TOKEN : p->ids.at[at + 1];
}

uint32_t gm_reader_rows(uint64_t row_size)
{
    uint32_t rows = MOST_ROWS;
    while (rows > 1 && rows > STEP_SIZE / row_size)
        rows /= 2;
    return rows;
}

gm_status gm_reader_init(gm_reader *r, const gm_model *m, const gm_engine_opts *opts,
                         const gm_place_cfg *cfg, gm_err *err)
{
    gm_place_cfg c = *cfg;
    c.outs = c.rows;
    GM_TRY(gm_place_init(&r->place, m, opts, &c, err));
    GM_TRY(gm_place_step(&r->place, &r->step, err));
    return gm_kvtable_init(&r->table, &r->place.pool, &r->arena, err);
}

void gm_reader_deinit(gm_reader *r)
{
    gm_step_free(r->step);
    gm_place_deinit(&r->place);
    gm_arena_deinit(&r->arena);
    *r = (gm_reader){0};
}

static bool put_rows(gm_reader *r, const gm_pages *p, uint32_t at, uint32_t n, uint32_t want)
{
    gm_step *const s = r->step;
    const uint32_t pos = at % p->window;
    gm_step_clear(s);
    if (!gm_kvpool_extend(&r->place.pool, &r->table, 0, pos, n, s)) return false;
    if (!gm_place_put_rows(&r->place, s, 0, &p->ids.at[at], pos, n)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!gm_step_put_out(s, &(gm_step_out){.row = i, .want = want, .mask = GM_NO_MASK}))
            return false;
    }
    return true;
}

gm_status gm_reader_read(gm_reader *r, const gm_pages *p, uint32_t at, uint32_t n, uint32_t want,
                         gm_result *out, gm_err *err)
{
    gm_ticket t = 0;
    if (at % p->window == 0) gm_kvpool_release(&r->place.pool, &r->table);
    if (!put_rows(r, p, at, n, want))
        return gm_fail(err, GM_E_ARG, 0, "text: a step has no room for %" PRIu32 " tokens", n);
    GM_TRY(gm_runner_submit(&r->place.runner, r->step, &t, err));
    return gm_runner_collect(&r->place.runner, t, out, err);
}
