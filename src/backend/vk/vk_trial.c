/* SPDX-License-Identifier: MIT */
/* Trying. A plan is lowered for a size of step as it always is, and then listed again and again, each
 * time with another way for every product in it; of each list only products are kept, a few of each
 * kind and each with a barrier before it, recorded with times in between and run. So a kernel is
 * measured with the weights that it will read, those of several layers in turn, which no cache holds
 * at once, and nothing is built for it. What activations hold does not matter.
 *
 * The clock of a GPU rises while it works. All ways are therefore recorded first and then run in
 * turn, several times over, and the best time of each counts. A way has to be MARGIN better than the
 * usual one, or noise would choose. Then a whole step is run both ways: what gives other logits is
 * not taken.
 *
 * A step of one row may also be run with kernels that wait for each other instead of barriers
 * (inc/flow.glsl). Whether that is faster, and right here, is tried first. Such kernels overlap, so that
 * none has a time of its own: a way is then timed by a step's first layers, all of whose other products
 * are as they were found best so far. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

#define SUBJECTS    32    /* kinds of products in a plan: Gemma 3 has five of a type    */
#define EACH        8     /* products of a kind that are run                            */
#define ROUNDS      5     /* times that each way is run                                 */
#define WARM_S      1.0   /* work before the first time counts, on a GPU                */
#define MARGIN      0.97  /* of the usual way's time that another may take at most      */
#define FLOWING     48    /* kernels that wait for each other which are timed together  */
#define FLOW_MARGIN 0.997 /* of their time, of which a product is a part                */

#define ALL_TRIED "-" /* stands where a way does */

/* A kind of product, and the ways to compute it. */
typedef struct subject {
    gm_vk_product product;
    char what[GM_VK_NAME];
    gm_vk_cut ways[GM_VK_TRIES];
    double us[GM_VK_TRIES];
    uint32_t n_ways, n_run; /* n_run: in the list that is being made */
    uint32_t best;
    bool flows; /* it is timed among kernels that wait for each other */
} subject;

struct gm_vk_trial {
    subject at[SUBJECTS];
    uint32_t n, turn; /* turn: the way that is listed now */
    uint32_t max_ways;
    bool again, chosen; /* chosen: the best ways are listed, to be looked at */
    bool flowing;       /* a whole list: of `only` the way of this turn, of others the best */
    const subject *only;
};
typedef struct gm_vk_trial trial;

/* All sizes of steps. */
typedef struct pass {
    const gm_tune_how *how;
    double warm_s; /* left before times count */
    uint32_t done, total;
} pass;
#define PIECES (ROUNDS + 3) /* that a size is told of as: lowered, compiled, rounds, looked at */

/* ---- what lowering asks ---------------------------------------------------------------------- */

static bool same_cut(const gm_vk_cut *a, const gm_vk_cut *b)
{
    return strcmp(a->pipeline, b->pipeline) == 0 && memcmp(a->spec, b->spec, sizeof a->spec) == 0;
}

static void add_way(subject *s, const gm_vk_cut *way)
{
    for (uint32_t k = 0; k < s->n_ways; k++) {
        if (same_cut(way, &s->ways[k])) return;
    }
    s->ways[s->n_ways] = *way;
    s->us[s->n_ways++] = (double)INFINITY;
}

/* All ways that differ; and what was chosen before, or a run of fewer ways would lose what one of more
 * has found. */
static void find_ways(const trial *t, const gm_vk_tuning *tuning, const gm_vk_choice *known,
                      subject *s)
{
    gm_vk_cut way;
    for (uint32_t i = 0; i < GM_VK_TRIES && s->n_ways < t->max_ways; i++) {
        if (gm_vk_cut_try(tuning, &s->product, i, &way)) add_way(s, &way);
    }
    if (known && gm_vk_cut_find(tuning, &s->product, known->way, &way)) add_way(s, &way);
}

static subject *find_subject(const gm_backend *be, const gm_vk_product *p,
                             const char what[GM_VK_NAME], const gm_vk_choice *known)
{
    trial *const t = be->trial;
    uint32_t i = 0;
    while (i < t->n && strcmp(t->at[i].what, what) != 0)
        i++;
    if (i < t->n) return &t->at[i];
    if (i == SUBJECTS || t->chosen) return NULL;
    subject *const s = &t->at[t->n++];
    *s = (subject){.product = *p};
    memcpy(s->what, what, GM_VK_NAME);
    find_ways(t, &be->tuning, known, s);
    return s;
}

uint32_t gm_vk_trial_cut(gm_backend *be, const gm_vk_product *p, gm_vk_cut *out)
{
    trial *const t = be->trial;
    char what[GM_VK_NAME];
    gm_vk_product_name(p, what);
    const gm_vk_choice *const known = gm_vk_choices_find(&be->choices, what);
    if (!known || !gm_vk_cut_find(&be->tuning, p, known->way, out))
        gm_vk_cut_product(&be->tuning, p, out);
    if (!t || (known && (!t->again || known->pass == be->choices.pass))) return 0;
    subject *const s = find_subject(be, p, what, known);
    if (!s) return 0;
    if (t->chosen || s->flows) *out = s->ways[s->best];
    if (t->flowing && t->only == s) *out = s->ways[t->turn];
    if (t->flowing) return (uint32_t)(s - t->at) + 1;
    if (t->chosen || s->flows || t->turn >= s->n_ways || s->n_ways < 2 || s->n_run == EACH)
        return 0;
    s->n_run++;
    *out = s->ways[t->turn];
    return (uint32_t)(s - t->at) + 1;
}

/* ---- one size of step ------------------------------------------------------------------------ */

/* A list of tried products, recorded. */
typedef struct turn {
    gm_vk_list list;
    gm_vk_timed timed;
    uint32_t n_run[SUBJECTS]; /* products */
} turn;

/* Only what is tried, one after the other; grids are those of a full step. */
static void keep_tried(const gm_exec *ex, gm_vk_list *list)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        gm_vk_dispatch *const d = &list->at[i];
        if (!d->tried) continue;
        if (d->indirect >= 0) {
            const gm_vk_grid *const g = &ex->grids[GM_VK_APART][d->indirect];
            d->indirect = -1;
            d->grid[0] = g->kind == GM_VK_DYN_OUT_X ? ex->bucket.outs : g->x;
            d->grid[1] = g->per ? (ex->bucket.outs + g->per - 1) / g->per : 1;
        }
        d->barrier = true;
        d->waits = false;
        list->at[n++] = *d;
    }
    list->n = n;
    gm_vk_list_flow(ex, 0, list);
}

static gm_status list_turn(gm_exec *ex, trial *t, uint32_t i, turn *out, gm_err *err)
{
    t->turn = i;
    for (uint32_t k = 0; k < t->n; k++)
        t->at[k].n_run = 0;
    GM_TRY(gm_vk_list_plan(ex, 0, GM_VK_APART, &out->list, err));
    for (uint32_t k = 0; k < t->n; k++)
        out->n_run[k] = t->at[k].n_run;
    keep_tried(ex, &out->list);
    return GM_OK;
}

static void note_times(const gm_exec *ex, trial *t, uint32_t i, const turn *from)
{
    double sums[SUBJECTS] = {0};
    for (size_t k = 0; k < from->list.n; k++)
        sums[from->list.at[k].tried - 1] += gm_vk_timed_us(&from->timed, ex, k);
    for (uint32_t k = 0; k < t->n; k++) {
        if (from->n_run[k]) t->at[k].us[i] = fmin(t->at[k].us[i], sums[k] / from->n_run[k]);
    }
}

static gm_status cancelled(gm_err *err)
{
    return gm_fail(err, GM_E_CANCEL, 0, "trying kernels was cancelled");
}

/* Some more of the pass is done. */
static gm_status tell_done(pass *p, uint32_t pieces, gm_err *err)
{
    const gm_progress *const to = &p->how->progress;
    p->done += pieces;
    return to->tell && !to->tell(to->ctx, p->done, p->total) ? cancelled(err) : GM_OK;
}

/* The same, asked for while kernels are compiled. */
static bool goes_on(void *ctx, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return tell_done(ctx, 0, NULL) == GM_OK;
}

static gm_status run_turns(gm_exec *ex, trial *t, turn *turns, uint32_t n, pass *p, gm_err *err)
{
    const double start = gm_clock_s();
    while (gm_clock_s() - start < p->warm_s) {
        GM_TRY(gm_vk_timed_run(&turns[0].timed, ex, err));
        GM_TRY(tell_done(p, 0, err));
    }
    p->warm_s = 0;
    for (uint32_t i = 0; i < n * ROUNDS; i++) {
        GM_TRY(gm_vk_timed_run(&turns[i % n].timed, ex, err));
        note_times(ex, t, i % n, &turns[i % n]);
        GM_TRY(tell_done(p, i % n == n - 1, err));
    }
    return GM_OK;
}

static gm_status time_ways(gm_exec *ex, trial *t, pass *p, gm_err *err)
{
    const struct gm_vk_head head = {.n_rows = ex->bucket.rows, .n_outs = ex->bucket.outs};
    turn turns[GM_VK_TRIES] = {0};
    uint32_t n = 0;
    gm_status status = GM_OK;
    memcpy(ex->slice[0].step.map, &head, sizeof head);
    do
        GM_TRY_DONE(list_turn(ex, t, n, &turns[n], err));
    while (turns[n].list.n && ++n < GM_VK_TRIES);
    GM_TRY_DONE(gm_vk_pipes_compile(&ex->be->pipes, ex->be->workers, err));
    GM_TRY_DONE(tell_done(p, 1, err));
    for (uint32_t i = 0; i < n; i++)
        GM_TRY_DONE(gm_vk_timed_open(&turns[i].timed, ex, &turns[i].list, err));
    if (n) GM_TRY_DONE(run_turns(ex, t, turns, n, p, err));
done:
    for (uint32_t i = 0; i < GM_VK_TRIES; i++) {
        gm_vk_timed_close(&turns[i].timed, ex);
        gm_vk_list_deinit(&turns[i].list);
    }
    return status;
}

/* ---- kernels that wait for each other ---------------------------------------------------------- */

/* A list of a step's first layers. */
static gm_status list_flowing(gm_exec *ex, trial *t, const subject *only, uint32_t way,
                              gm_vk_list *list, gm_err *err)
{
    size_t n = 0;
    t->flowing = true;
    t->only = only;
    t->turn = way;
    const gm_status status = gm_vk_list_plan(ex, 0, GM_VK_APART, list, err);
    t->flowing = false;
    for (uint32_t flowing = 0; n < list->n && flowing < FLOWING; n++)
        flowing += list->at[n].n_done > 0;
    list->n = n;
    return status;
}

/* Which products are among them. */
static gm_status find_flowing(gm_exec *ex, trial *t, gm_err *err)
{
    gm_vk_list list = {0};
    const gm_status status = list_flowing(ex, t, NULL, 0, &list, err);
    for (size_t i = 0; i < list.n && status == GM_OK; i++) {
        if (list.at[i].tried && list.at[i].flow) t->at[list.at[i].tried - 1].flows = true;
    }
    gm_vk_list_deinit(&list);
    return status;
}

/* Runs all lists in turn; us[i] becomes the best time of the i-th, if it is better than what is there. */
static gm_status run_whole(gm_exec *ex, gm_vk_timed *timed, uint32_t n, pass *p, double *us,
                           gm_err *err)
{
    const double start = gm_clock_s();
    do {
        GM_TRY(gm_vk_timed_run(&timed[0], ex, err));
        GM_TRY(tell_done(p, 0, err));
    } while (gm_clock_s() - start < p->warm_s);
    p->warm_s = 0;
    for (uint32_t i = 0; i < n * ROUNDS; i++) {
        GM_TRY(gm_vk_timed_run(&timed[i % n], ex, err));
        GM_TRY(gm_vk_check_late(ex, 0, err));
        us[i % n] = fmin(us[i % n], gm_vk_timed_us(&timed[i % n], ex, 0));
    }
    return tell_done(p, 0, err);
}

static gm_status time_flowing(gm_exec *ex, trial *t, subject *s, pass *p, gm_err *err)
{
    gm_vk_list lists[GM_VK_TRIES] = {0};
    gm_vk_timed timed[GM_VK_TRIES] = {0};
    gm_status status = GM_OK;
    for (uint32_t i = 0; i < s->n_ways; i++)
        GM_TRY_DONE(list_flowing(ex, t, s, i, &lists[i], err));
    GM_TRY_DONE(gm_vk_pipes_compile(&ex->be->pipes, ex->be->workers, err));
    for (uint32_t i = 0; i < s->n_ways; i++) {
        timed[i].whole = true;
        GM_TRY_DONE(gm_vk_timed_open(&timed[i], ex, &lists[i], err));
    }
    GM_TRY_DONE(run_whole(ex, timed, s->n_ways, p, s->us, err));
    for (uint32_t i = 1; i < s->n_ways; i++) {
        if (s->us[i] < s->us[s->best]) s->best = i;
    }
    if (s->us[s->best] > FLOW_MARGIN * s->us[0]) s->best = 0;
done:
    for (uint32_t i = 0; i < GM_VK_TRIES; i++) {
        gm_vk_timed_close(&timed[i], ex);
        gm_vk_list_deinit(&lists[i]);
    }
    return status;
}

static gm_status time_all_flowing(gm_exec *ex, trial *t, pass *p, gm_err *err)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->at[i].flows && t->at[i].n_ways > 1) GM_TRY(time_flowing(ex, t, &t->at[i], p, err));
    }
    return GM_OK;
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* A prompt in the first slot, as long as a step may be and there are pages for. */
static bool put_prompt(const gm_exec *ex, gm_step *s)
{
    static const gm_draw greedy = {.repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
    const gm_kv_desc *const d = &ex->kv->slots.desc;
    uint32_t pages = d->table_len, n = ex->bucket.rows;
    bool ok = gm_step_put_set(s, 0, &greedy, NULL, 0);
    for (int c = 0; c < GM_CLASSES; c++)
        pages = d->n_pages[c] < pages ? d->n_pages[c] : pages;
    n = n < pages * GM_PAGE_LEN ? n : pages * GM_PAGE_LEN;
    for (uint32_t i = 0; i * GM_PAGE_LEN < n; i++) {
        for (uint32_t c = 0; c < GM_CLASSES; c++)
            ok = ok && gm_step_put_edit(s, &(gm_page_edit){0, c, i, i});
    }
    ok = ok && gm_step_put_seg(s, &(gm_step_seg){0, 0, n});
    for (uint32_t i = 0; i < n; i++)
        ok = ok && gm_step_put_row(s, &(gm_step_row){.kind = GM_ROW_ID,
                                                     .src = (i * 7919u + 13) % d->n_vocab,
                                                     .pos = i,
                                                     .last = {i, i}});
    return ok && gm_step_put_out(
                     s, &(gm_step_out){.row = n - 1, .want = GM_WANT_LOGITS, .mask = GM_NO_MASK});
}

/* The slot has a table and a token afterwards, which whoever comes first replaces. */
static gm_status hash_logits(gm_exec *ex, uint64_t *hash, gm_err *err)
{
    const uint32_t rows = ex->bucket.rows;
    const gm_step_limits limits = {.rows = rows,
                                   .segs = 1,
                                   .outs = 1,
                                   .edits = (rows / GM_PAGE_LEN + 1) * GM_CLASSES,
                                   .sets = 1};
    gm_step *step = NULL;
    gm_ticket ticket = 0;
    gm_result r;
    if (!ex->plan->outputs[GM_OUT_LOGITS] || !ex->kv) return GM_OK;
    GM_TRY(gm_step_alloc(&step, &limits, err));
    gm_status status = put_prompt(ex, step) ? GM_OK : gm_fail(err, GM_E_ARG, 0, "trials: no room");
    if (status == GM_OK) status = gm_vk_run(ex, step, &ticket, err);
    if (status == GM_OK) status = gm_vk_answer(ex->be, ticket, &r, err);
    if (status == GM_OK) *hash = gm_hash(r.out[0].logits, ex->n_vocab * sizeof(float), 0);
    gm_step_free(step);
    return status;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static gm_status tell_row(const gm_tune_how *how, const gm_tune_row *row, gm_err *err)
{
    return how->row && how->row(how->ctx, row) ? cancelled(err) : GM_OK;
}

static double us_of(const subject *s, uint32_t i)
{
    return isinf(s->us[i]) ? 0 : s->us[i];
}

static void find_best(subject *s)
{
    for (uint32_t i = 1; i < s->n_ways; i++) {
        if (s->us[i] < s->us[s->best]) s->best = i;
    }
    if (s->us[s->best] > MARGIN * s->us[0]) s->best = 0;
}

static gm_status put_choices(gm_backend *be, const trial *t, gm_err *err)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const subject *const s = &t->at[i];
        gm_vk_choice one = {.us = us_of(s, s->best), .usual_us = us_of(s, 0)};
        memcpy(one.what, s->what, sizeof one.what);
        gm_vk_cut_name(&s->ways[s->best], one.way);
        GM_TRY(gm_vk_choices_put(&be->choices, &one, err));
    }
    return GM_OK;
}

static gm_status tell_rows(const trial *t, const gm_tune_how *how, gm_err *err)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const subject *const s = &t->at[i];
        char names[GM_VK_TRIES][GM_VK_NAME];
        gm_tune_try tries[GM_VK_TRIES];
        for (uint32_t k = 0; k < s->n_ways; k++) {
            gm_vk_cut_name(&s->ways[k], names[k]);
            tries[k] = (gm_tune_try){names[k], us_of(s, k)};
        }
        const gm_tune_row row = {s->what, tries, s->n_ways, s->best};
        if (s->n_ways > 1) GM_TRY(tell_row(how, &row, err));
    }
    return GM_OK;
}

/* The logits of a step in which all is done in the best way. */
static gm_status hash_chosen(gm_backend *be, const gm_tune_model *m, gm_bucket bucket, trial *t,
                             uint64_t *hash, gm_err *err)
{
    gm_exec *ex = NULL;
    t->chosen = true;
    be->trial = t;
    gm_status status = gm_vk_lower(be, m->w, m->kv, m->plan, bucket, &ex, err);
    be->trial = NULL;
    if (status == GM_OK) status = hash_logits(ex, hash, err);
    gm_vk_drop(ex);
    return status;
}

/* What is chosen has to give the bits that the usual ways give, with the driver that is here: one that
 * compiles a kernel wrongly would be fast, too. Nothing is kept before that is seen. */
static gm_status choose(gm_backend *be, const gm_tune_model *m, gm_bucket bucket, trial *t,
                        uint64_t usual, const pass *p, gm_err *err)
{
    uint64_t chosen = usual;
    bool changed = false;
    for (uint32_t i = 0; i < t->n; i++) {
        if (!t->at[i].flows) find_best(&t->at[i]);
        changed = changed || t->at[i].best;
    }
    if (changed) GM_TRY(hash_chosen(be, m, bucket, t, &chosen, err));
    if (chosen != usual) {
        gm_note_tell(&p->how->note,
                     "kernels that were tried on %s for %" PRIu32
                     " rows gave other bits, and are not used",
                     be->dev.props.deviceName, bucket.rows);
        for (uint32_t i = 0; i < t->n; i++)
            t->at[i].best = 0;
    }
    return put_choices(be, t, err);
}

static gm_status put_flow(gm_backend *be, const gm_plan *plan, bool on, const double us[2],
                          gm_err *err)
{
    gm_vk_choice one = {.us = us[on], .usual_us = us[0]};
    gm_vk_flow_name(plan, one.what);
    snprintf(one.way, sizeof one.way, "%s", on ? GM_VK_FLOW_ON : GM_VK_FLOW_OFF);
    return gm_vk_choices_put(&be->choices, &one, err);
}

/* Both ways of a step of one row, of which one has run in the first slice; its bits are known. */
static gm_status compare_flow(gm_exec *ex[2], uint64_t usual, pass *p, double us[2], gm_err *err)
{
    gm_vk_list lists[2] = {0};
    gm_vk_timed timed[2] = {{.whole = true}, {.whole = true}};
    uint64_t hash = usual;
    gm_status status = GM_OK;
    do
        GM_TRY(hash_logits(ex[1], &hash, err));
    while (hash == usual && (ex[1]->be->n_run - 1) % GM_TICKETS != 0);
    if (hash != usual)
        return gm_fail(err, GM_E_UNSUP, 0, "kernels that wait for each other gave other bits");
    for (int i = 0; i < 2; i++) {
        GM_TRY_DONE(gm_vk_list_plan(ex[i], 0, GM_VK_APART, &lists[i], err));
        GM_TRY_DONE(gm_vk_timed_open(&timed[i], ex[i], &lists[i], err));
    }
    GM_TRY_DONE(run_whole(ex[0], timed, 2, p, us, err));
done:
    for (int i = 0; i < 2; i++) {
        gm_vk_timed_close(&timed[i], ex[i]);
        gm_vk_list_deinit(&lists[i]);
    }
    return status;
}

static gm_status tell_flow(const pass *p, const double us[2], bool on, gm_err *err)
{
    const gm_tune_try tries[] = {{GM_VK_FLOW_OFF, us[0]}, {GM_VK_FLOW_ON, us[1]}};
    return tell_row(p->how, &(gm_tune_row){GM_VK_FLOW, tries, 2, on}, err);
}

/* Whether kernels of one row shall wait for each other. *ex, by barriers, becomes what is chosen. */
static gm_status try_flow(gm_backend *be, const gm_tune_model *m, gm_bucket bucket, uint64_t usual,
                          pass *p, gm_exec **ex, gm_err *err)
{
    gm_exec *both[2] = {*ex, NULL};
    double us[2] = {(double)INFINITY, (double)INFINITY};
    gm_err why = {0};
    GM_TRY(put_flow(be, m->plan, true, us, err));
    gm_status status = gm_vk_lower(be, m->w, m->kv, m->plan, bucket, &both[1], &why);
    if (status == GM_OK) status = compare_flow(both, usual, p, us, &why);
    if (status == GM_E_CANCEL) gm_fail(err, status, 0, "%s", why.msg);
    const bool on = status == GM_OK && us[1] < MARGIN * us[0];
    gm_vk_drop(both[!on]);
    *ex = both[on];
    if (status == GM_E_CANCEL) return status;
    if (status != GM_OK) {
        gm_note_tell(&p->how->note, "%s: %s: not used", be->dev.props.deviceName, why.msg);
        us[1] = us[0] = 0;
    }
    GM_TRY(put_flow(be, m->plan, on, us, err));
    return status == GM_OK ? tell_flow(p, us, on, err) : GM_OK;
}

/* What was not seen to be right is not kept, but that a kernel was late is; and what was known before
 * stays where nothing was tried. */
static void restore_flow(gm_backend *be, const char *name, const gm_vk_choice *before,
                         gm_status status)
{
    if (status != GM_OK && status != GM_E_LOST) gm_vk_choices_remove(&be->choices, name);
    if (before->what[0] && !gm_vk_choices_find(&be->choices, name))
        gm_vk_choices_put(&be->choices, before, NULL);
}

static gm_status try_size(gm_backend *be, const gm_tune_model *m, gm_bucket bucket, pass *p,
                          gm_err *err)
{
    const uint32_t end = p->done + PIECES;
    char flow[GM_VK_NAME];
    gm_vk_flow_name(m->plan, flow);
    const gm_vk_choice *const known = gm_vk_choices_find(&be->choices, flow);
    const gm_vk_choice before = known ? *known : (gm_vk_choice){0};
    const bool asks_flow = bucket.rows == 1 && (p->how->again || !known);
    trial *t = NULL;
    gm_exec *ex = NULL;
    uint64_t usual = 0;
    gm_status status = GM_OK;
    GM_TRY(gm_mem_alloc(&t, 1, sizeof *t, "trials", err));
    t->again = p->how->again;
    t->max_ways = p->how->max_ways ? p->how->max_ways : GM_VK_TRIES;
    if (asks_flow) gm_vk_choices_remove(&be->choices, flow);
    GM_TRY_DONE(gm_vk_lower(be, m->w, m->kv, m->plan, bucket, &ex, err));
    do /* lists that are timed as a whole take the step of the first slice */
        GM_TRY_DONE(hash_logits(ex, &usual, err));
    while (ex->flows && usual && (be->n_run - 1) % GM_TICKETS != 0);
    GM_TRY_DONE(tell_done(p, 1, err));
    if (asks_flow && gm_vk_can_flow(ex) && m->plan->outputs[GM_OUT_LOGITS])
        GM_TRY_DONE(try_flow(be, m, bucket, usual, p, &ex, err));
    be->trial = t;
    if (ex->flows) status = find_flowing(ex, t, err);
    if (status == GM_OK) status = time_ways(ex, t, p, err);
    if (status == GM_OK) status = time_all_flowing(ex, t, p, err);
    be->trial = NULL;
    GM_TRY_DONE(status);
    GM_TRY_DONE(choose(be, m, bucket, t, usual, p, err));
    GM_TRY_DONE(tell_rows(t, p->how, err));
    GM_TRY_DONE(tell_done(p, end - p->done, err));
done:
    if (asks_flow) restore_flow(be, flow, &before, status);
    gm_vk_drop(ex);
    gm_mem_free(t);
    return status;
}

static gm_bucket bucket_of(const gm_tune_model *m, uint32_t rows)
{
    return (gm_bucket){rows, rows < m->most.outs ? rows : m->most.outs};
}

/* All products of a plan in all sizes of steps: a name that is kept once every one of them was tried,
 * so that the next start need not look. An engine of one sequence has kernels of its own. */
static void name_all(const gm_tune_model *m, uint32_t n_sizes, char name[GM_VK_NAME])
{
    const uint32_t known[] = {n_sizes, GM_VK_TRIES, m->kv && m->kv->slots.desc.n_slots == 1};
    const uint64_t hash = gm_vk_plan_hash(m->plan, gm_hash(known, sizeof known, 0));
    uint32_t outs = 1; /* as gm_vk_product_name has them */
    while (outs < m->most.outs)
        outs *= 2;
    snprintf(name, GM_VK_NAME, "all of plan %016" PRIx64 ", %" PRIu32 " outputs", hash, outs);
}

/* Sizes of steps that have more than one way: all but those that are computed with float16. */
static uint32_t count_sizes(const gm_backend *be, const gm_tune_model *m)
{
    uint32_t n = 0;
    while (1ull << n <= m->most.rows && 1ull << n < be->tuning.half_from)
        n++;
    return n;
}

/* What is tried first is what matters most: steps of one row, then of two. */
static gm_status try_sizes(gm_backend *be, const gm_tune_model *m, const gm_tune_how *how,
                           gm_err *err)
{
    gm_status status = GM_OK;
    const bool cpu = be->dev.props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const double end = gm_clock_s() + how->seconds;
    const uint32_t n = count_sizes(be, m);
    gm_vk_choice all = {.way = ALL_TRIED};
    pass p = {.how = how, .warm_s = cpu ? 0 : WARM_S, .total = n * PIECES};
    name_all(m, n, all.what);
    be->choices.pass++;
    if (!how->again && gm_vk_choices_find(&be->choices, all.what)) return GM_OK;
    if (!how->again)
        gm_note_tell(&how->note, "kernels are tried on %s, for a few seconds and this once",
                     be->dev.props.deviceName);
    be->pipes.ask = (gm_progress){goes_on, &p};
    uint32_t i = 0;
    for (; i < n && status == GM_OK && gm_clock_s() <= end; i++) {
        gm_err later = {0}; /* whether it could be written is said at the end */
        status = try_size(be, m, bucket_of(m, 1u << i), &p, err);
        if (status == GM_OK) gm_vk_choices_write(be, &later);
    }
    be->pipes.ask = (gm_progress){0};
    GM_TRY(status);
    if (i == n) return gm_vk_choices_put(&be->choices, &all, err);
    if (how->again)
        gm_note_tell(&how->note,
                     "steps of %u rows and more were not tried: the time for it was over", 1u << i);
    return GM_OK;
}

/* Of what was found before, the usual way has only its time. */
static gm_status show(const gm_backend *be, const gm_tune_how *how, gm_err *err)
{
    for (size_t i = 0; i < be->choices.n; i++) {
        const gm_vk_choice *const c = &be->choices.at[i];
        if (strcmp(c->way, ALL_TRIED) == 0) continue;
        const gm_tune_try tries[] = {{"usual", c->usual_us}, {c->way, c->us}};
        const gm_tune_row row = {c->what, tries, 2, c->us < c->usual_us};
        GM_TRY(tell_row(how, &row, err));
    }
    return GM_OK;
}

gm_status gm_vk_try_plan(gm_backend *be, const gm_tune_model *m, const gm_tune_how *how,
                         gm_err *err)
{
    if (how->forget) GM_TRY(gm_vk_choices_forget(be, err));
    if (m && be->choices.given[0] && !gm_vk_choices_concern(&be->choices, m->plan))
        gm_note_tell(&how->note, "%s has kernels for none of the model's products",
                     be->choices.given);
    if (m && how->seconds > 0 && be->dev.timestamp_ns > 0) {
        gm_err why = {0};
        const gm_status status = try_sizes(be, m, how, &why);
        gm_err lost = {0}; /* sizes that were done before it was cancelled are kept, too */
        if (be->choices.n) gm_vk_choices_write(be, how->again ? &lost : NULL);
        const bool fatal = how->again || status == GM_E_LOST || status == GM_E_CANCEL;
        if (status != GM_OK && fatal) return gm_fail(err, status, why.os, "%s", why.msg);
        if (status != GM_OK) gm_note_tell(&how->note, "kernels were not tried: %s", why.msg);
        if (lost.code) return gm_fail(err, lost.code, lost.os, "%s", lost.msg);
    }
    return how->show ? show(be, how, err) : GM_OK;
}
