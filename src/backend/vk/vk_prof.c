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

static gm_status run_timed(gm_exec *ex, const gm_vk_list *list, VkQueryPool times, uint64_t *ticks,
                           gm_err *err)
{
    gm_vk_dev *const d = &ex->be->dev;
    const gm_vk_recording r = {&ex->be->pipes, list, &ex->slice[0].step, ex->grids_off, times};
    VkCommandBuffer cmd = NULL;
    uint64_t value = 0;
    gm_status status = gm_vk_record(d, &r, &cmd, err);
    if (status == GM_OK) status = gm_vk_submit(d, cmd, &value, err);
    if (status == GM_OK) status = gm_vk_wait(d, value, err);
    if (status == GM_OK) {
        const VkResult got = d->vk.vkGetQueryPoolResults(
            d->device, times, 0, (uint32_t)list->n + 1, (list->n + 1) * sizeof *ticks, ticks,
            sizeof *ticks, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
        status = gm_vk_check(got, "timestamps", err);
    }
    gm_vk_record_free(d, cmd);
    return status;
}

gm_status gm_vk_profile(gm_exec *ex, gm_vk_prof_row *rows, size_t cap, size_t *n, gm_err *err)
{
    gm_vk_dev *const d = &ex->be->dev;
    gm_vk_list list = {0};
    VkQueryPool times = NULL;
    uint64_t *ticks = NULL;
    gm_status status = GM_OK;
    *n = 0;
    GM_TRY_DONE(gm_vk_list_plan(ex, 0, &list, err));
    GM_TRY_DONE(gm_mem_alloc(&ticks, list.n + 1, sizeof *ticks, "timestamps", err));
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = (uint32_t)list.n + 1};
    GM_TRY_DONE(
        gm_vk_check(d->vk.vkCreateQueryPool(d->device, &info, NULL, &times), "timestamps", err));
    GM_TRY_DONE(run_timed(ex, &list, times, ticks, err));
    for (size_t i = 0; i < list.n; i++) {
        const double us = (double)(ticks[i + 1] - ticks[i]) * (double)d->timestamp_ns * 1e-3;
        add(ex, &list.at[i], us, rows, cap, n);
    }
done:
    d->vk.vkDestroyQueryPool(d->device, times, NULL);
    gm_vk_list_deinit(&list);
    gm_mem_free(ticks);
    return status;
}
