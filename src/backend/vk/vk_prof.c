/* SPDX-License-Identifier: MIT */
/* How long kernels take. Those of a step that is timed have a barrier before each, waiting ones too: a
 * time of its own is one that no other kernel is part of, so that the sum is more than the step takes. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/mem.h"

#define TIMES 5 /* that the kernels are run; the least of each counts */

/* What values hold before kernels that are timed one by one: some may be without those that write what
 * they read, which nobody is to wait for. */
#define WRITTEN 0

/* ---- lists with times -------------------------------------------------------------------------- */

gm_status gm_vk_timed_open(gm_vk_timed *t, gm_exec *ex, const gm_vk_list *list, gm_err *err)
{
    gm_vk_dev *const d = &ex->be->dev;
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = t->whole ? 2 : (uint32_t)list->n + 1};
    t->n = t->whole ? 1 : list->n;
    GM_TRY(gm_mem_alloc(&t->ticks, t->n + 1, sizeof *t->ticks, "timestamps", err));
    GM_TRY(
        gm_vk_check(d->vk.vkCreateQueryPool(d->device, &info, NULL, &t->times), "timestamps", err));
    const gm_vk_recording r = {.pipes = &ex->be->pipes,
                               .list = list,
                               .grids = &ex->slice[t->slice].step,
                               .grids_off = ex->grids_off,
                               .times = t->times,
                               .whole = t->whole,
                               .fronts = ex->flows ? NULL : &ex->counters,
                               .fronts_at = ex->fronts,
                               .flow = &ex->slice[t->slice].flow,
                               .values = &ex->scratch,
                               .values_off = ex->values_off,
                               .values_size = ex->values_size,
                               .values_word = t->whole ? GM_VK_UNWRITTEN : WRITTEN};
    return gm_vk_record(d, &r, &t->cmd, err);
}

gm_status gm_vk_timed_run(gm_vk_timed *t, gm_exec *ex, gm_err *err)
{
    gm_vk_dev *const d = &ex->be->dev;
    uint64_t value = 0;
    GM_TRY(gm_vk_submit(d, t->cmd, &value, err));
    GM_TRY(gm_vk_wait(d, value, err));
    const VkResult got = d->vk.vkGetQueryPoolResults(
        d->device, t->times, 0, (uint32_t)t->n + 1, (t->n + 1) * sizeof *t->ticks, t->ticks,
        sizeof *t->ticks, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    return gm_vk_check(got, "timestamps", err);
}

double gm_vk_timed_us(const gm_vk_timed *t, const gm_exec *ex, size_t i)
{
    return (double)(t->ticks[i + 1] - t->ticks[i]) * (double)ex->be->dev.timestamp_ns * 1e-3;
}

void gm_vk_timed_close(gm_vk_timed *t, gm_exec *ex)
{
    gm_vk_dev *const d = &ex->be->dev;
    gm_vk_record_free(d, t->cmd);
    d->vk.vkDestroyQueryPool(d->device, t->times, NULL);
    gm_mem_free(t->ticks);
    *t = (gm_vk_timed){0};
}

/* ---- kinds of kernels -------------------------------------------------------------------------- */

/* What kernels do that are neither products nor attention. */
static const struct {
    const char *pipeline, *what;
} others[] = {
    {"apply", "changes of slots"},
    {"embed", "embedding"},
    {"norm", "norms"},
    {"rope", "heads of q and k"},
    {"rows", "copies and rounding"},
    {"halves", "input as float16"},
    {"draw", "draw"},
};

/* Appends "attn_q" of "blk.3.attn_q.weight". */
static void append_name(char *what, size_t cap, const char *tensor)
{
    const char *const end = strstr(tensor, ".weight"), *from = tensor;
    const size_t len = strlen(what);
    for (const char *p = tensor; *p && p != end; p++)
        from = *p == '.' ? p + 1 : from;
    const int n = end ? (int)(end - from) : (int)strlen(from);
    snprintf(what + len, cap - len, "%s%.*s", len ? ", " : "", n, from);
}

static void describe(const gm_exec *ex, const gm_vk_dispatch *d, gm_kernel_row *row)
{
    const gm_vk_pipe *const pipe = &ex->be->pipes.at[d->pipe];
    *row = (gm_kernel_row){.kernel = pipe->shader->name};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(pipe->shader->pipeline, others[i].pipeline) == 0)
            snprintf(row->what, sizeof row->what, "%s", others[i].what);
    if (d->attends)
        snprintf(row->what, sizeof row->what, "attention, %s",
                 d->attends->attn.class == GM_CLASS_LOCAL ? "local" : "global");
    for (uint32_t i = 0; i < d->n_weights; i++)
        append_name(row->what, sizeof row->what, d->weights[i]->name);
    const size_t len = strlen(row->what);
    if (d->norms) snprintf(row->what + len, sizeof row->what - len, ", norms");
}

/* Each weight once; and of a step of answers what each row sees of the cache. */
static double bytes_read(const gm_exec *ex, const gm_vk_dispatch *d, const gm_step *s)
{
    double bytes = 0, cells = 0;
    for (uint32_t i = 0; i < d->n_weights; i++)
        bytes += (double)d->weights[i]->size;
    for (uint32_t i = 0; d->attends && s->n_segs == s->n_rows && i < s->n_rows; i++) {
        const gm_step_row *const r = &gm_step_rows(s)[i];
        const uint32_t class = d->attends->attn.class;
        cells += r->last[class] - r->first[class] + 1.0;
    }
    return d->attends ? cells * (double)ex->kv->layer_size / GM_PAGE_LEN : bytes;
}

static void add(const gm_kernel_row *one, gm_kernel_row *rows, uint32_t cap, uint32_t *n)
{
    uint32_t i = 0;
    while (i < *n && (rows[i].kernel != one->kernel || strcmp(rows[i].what, one->what) != 0))
        i++;
    if (i == cap) return;
    if (i == *n) {
        rows[(*n)++] = *one;
    } else {
        rows[i].us += one->us;
        rows[i].bytes += one->bytes;
    }
    rows[i].n++;
}

/* The step lies in its slice, and runs there as often as one likes. */
static gm_status time_kernels(gm_exec *ex, gm_vk_kind kind, gm_vk_list *list, gm_vk_timed *timed,
                              double *us, gm_err *err)
{
    GM_TRY(gm_vk_list_plan(ex, timed->slice, kind, list, err));
    for (size_t i = 0; i < list->n; i++) {
        list->at[i].barrier = true;
        list->at[i].waits = false;
        us[i] = (double)INFINITY;
    }
    gm_vk_list_flow(ex, timed->slice, list);
    GM_TRY(gm_vk_timed_open(timed, ex, list, err));
    for (int k = 0; k < TIMES; k++) {
        GM_TRY(gm_vk_timed_run(timed, ex, err));
        for (size_t i = 0; i < list->n; i++)
            us[i] = fmin(us[i], gm_vk_timed_us(timed, ex, i));
    }
    return gm_vk_check_late(ex, timed->slice, err);
}

gm_status gm_vk_profile(gm_exec *ex, const gm_step *s, gm_kernel_row *rows, uint32_t cap,
                        uint32_t *n, gm_err *err)
{
    gm_vk_list list = {0};
    gm_vk_timed timed = {0};
    gm_ticket ticket = 0;
    gm_result r;
    double *us = NULL;
    gm_status status = GM_OK;
    *n = 0;
    if (ex->be->dev.timestamp_ns <= 0)
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %s has no clock for kernels",
                       ex->be->dev.props.deviceName);
    timed.slice = (uint32_t)(ex->be->n_run % GM_TICKETS);
    GM_TRY(gm_vk_run(ex, s, &ticket, err));
    GM_TRY(gm_vk_answer(ex->be, ticket, &r, err));
    const gm_vk_kind kind = gm_vk_kind_of(ex, s);
    const size_t n_kernels = ex->slice[timed.slice].script[kind].n_dispatches;
    GM_TRY(gm_mem_alloc(&us, n_kernels, sizeof *us, "timestamps", err));
    GM_TRY_DONE(time_kernels(ex, kind, &list, &timed, us, err));
    for (size_t i = 0; i < list.n; i++) {
        gm_kernel_row one;
        describe(ex, &list.at[i], &one);
        one.us = us[i];
        one.bytes = bytes_read(ex, &list.at[i], s);
        add(&one, rows, cap, n);
    }
done:
    gm_vk_timed_close(&timed, ex);
    gm_vk_list_deinit(&list);
    gm_mem_free(us);
    return status;
}
