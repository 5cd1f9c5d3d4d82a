/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "backend/vk/vk.h"
#include "base/mem.h"

/* Adds a dispatch to the row of its like. */
static void add(const gm_exec *ex, const gm_vk_dispatch *d, double us, gm_vk_prof_row *rows,
                size_t cap, size_t *n)
{
    const gm_vk_pipe *const pipe = &ex->be->pipes.at[d->pipe];
    size_t i = 0;
    while (i < *n && (rows[i].name != pipe->shader->name ||
                      memcmp(rows[i].grid, d->grid, sizeof d->grid) != 0 ||
                      memcmp(rows[i].spec, pipe->spec, sizeof pipe->spec) != 0))
        i++;
    if (i == cap) return;
    if (i == *n) {
        rows[i] = (gm_vk_prof_row){.name = pipe->shader->name};
        memcpy(rows[i].grid, d->grid, sizeof d->grid);
        memcpy(rows[i].spec, pipe->spec, sizeof pipe->spec);
        ++*n;
    }
    rows[i].n++;
    rows[i].us += us;
}

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
                               .grids = &ex->slice[0].step,
                               .grids_off = ex->grids_off,
                               .times = t->times,
                               .whole = t->whole,
                               .flow = &ex->slice[0].flow,
                               .values = &ex->scratch,
                               .values_off = ex->values_off,
                               .values_size = ex->values_size};
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

gm_status gm_vk_profile(gm_exec *ex, gm_vk_prof_row *rows, size_t cap, size_t *n, gm_err *err)
{
    gm_vk_list list = {0};
    gm_vk_timed timed = {0};
    gm_status status = GM_OK;
    *n = 0;
    GM_TRY_DONE(gm_vk_list_plan(ex, 0, &list, err));
    GM_TRY_DONE(gm_vk_timed_open(&timed, ex, &list, err));
    GM_TRY_DONE(gm_vk_timed_run(&timed, ex, err));
    for (size_t i = 0; i < list.n; i++)
        add(ex, &list.at[i], gm_vk_timed_us(&timed, ex, i), rows, cap, n);
done:
    gm_vk_timed_close(&timed, ex);
    gm_vk_list_deinit(&list);
    return status;
}
