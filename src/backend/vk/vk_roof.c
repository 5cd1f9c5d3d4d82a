/* SPDX-License-Identifier: MIT */
/* The most that the device reads: a buffer larger than any cache, over and over in one submit, so that
 * handing it over does not count. And the most that it fetches, where its memory is its own. */

#include <math.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/clock.h"

#define ROOF_SIZE   (1ull << 30)
#define SMALL_SIZE  (64ull << 20) /* where the CPU is the device */
#define ROOF_READS  8
#define UP_SIZE     (64ull << 20)
#define UP_COPIES   8u
#define ROOF_GROUPS 1056 /* enough for the largest GPU that was measured (docs/VULKAN.md) */

static gm_status list_reads(gm_backend *be, uint64_t size, gm_vk_list *list, gm_err *err)
{
    gm_vk_dispatch d = {.indirect = -1, .grid = {ROOF_GROUPS, 1, 1}};
    const uint32_t lanes = 256;
    const struct gm_vk_roof push = {
        .src = be->roof.addr, .dst = be->roof.addr, .n = (uint32_t)(size / 16)};
    GM_TRY(gm_vk_pipes_want(&be->pipes, "roof", GM_VK_NO_TYPE, &lanes, &d.pipe, err));
    memcpy(d.push, &push, sizeof push);
    d.n_push = sizeof push;
    for (int i = 0; i < ROOF_READS; i++)
        GM_TRY(gm_vk_list_add(list, &d, err));
    return gm_vk_pipes_compile(&be->pipes, be->workers, err);
}

/* Runs a recording a few times; the best time counts. */
static gm_status time_best(gm_backend *be, VkCommandBuffer cmd, double *best, gm_err *err)
{
    *best = (double)INFINITY;
    for (int i = 0; i < 3; i++) {
        uint64_t value = 0;
        const double start = gm_clock_s();
        GM_TRY(gm_vk_submit(&be->dev, cmd, &value, err));
        GM_TRY(gm_vk_wait(&be->dev, value, err));
        *best = fmin(*best, gm_clock_s() - start);
    }
    return GM_OK;
}

static gm_status time_reads(gm_backend *be, const gm_vk_list *list, double *best, gm_err *err)
{
    const gm_vk_recording r = {.pipes = &be->pipes, .list = list};
    VkCommandBuffer cmd = NULL;
    gm_status status = gm_vk_record(&be->dev, &r, &cmd, err);
    if (status == GM_OK) status = time_best(be, cmd, best, err);
    gm_vk_record_free(&be->dev, cmd);
    return status;
}

/* How fast weights could come, if nobody had to lay them out. */
static gm_status measure_up(gm_backend *be, gm_roof *out, gm_err *err)
{
    gm_vk_dev *const d = &be->dev;
    gm_vk_buf stage = {0};
    gm_vk_copy copies[UP_COPIES];
    /* Each to a place of its own. */
    const uint32_t most = (uint32_t)(be->roof.size / UP_SIZE),
                   n = most < UP_COPIES ? most : UP_COPIES;
    VkCommandBuffer cmd = NULL;
    double best = 0;
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_vk_buf_alloc(d, &stage, UP_SIZE, GM_VK_STAGING, "the roof", err));
    memset(stage.map, 1, UP_SIZE);
    for (uint32_t i = 0; i < n; i++)
        copies[i] = (gm_vk_copy){&stage, &be->roof, 0, i * UP_SIZE, UP_SIZE};
    GM_TRY_DONE(gm_vk_record_alloc(d, &cmd, err));
    GM_TRY_DONE(gm_vk_record_copies(d, cmd, copies, n, err));
    GM_TRY_DONE(time_best(be, cmd, &best, err));
    be->up_bytes_s = (double)(n * UP_SIZE) / best;
    out->up_bytes_s = be->up_bytes_s;
done:
    gm_vk_record_free(d, cmd);
    gm_vk_buf_free(d, &stage);
    return status;
}

gm_status gm_vk_measure_roof(gm_backend *be, uint64_t host_size, gm_roof *out, gm_err *err)
{
    (void)host_size;
    const bool cpu = be->dev.props.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const uint64_t size = cpu ? SMALL_SIZE : ROOF_SIZE;
    gm_vk_list list = {0};
    double best = 0;
    *out = (gm_roof){.up_bytes_s = be->up_bytes_s};
    if (!be->roof.buffer) {
        GM_TRY(gm_vk_buf_alloc(&be->dev, &be->roof, size, GM_VK_LOCAL, "the roof", err));
        GM_TRY(gm_vk_fill_now(&be->dev, &be->roof, 0, err));
    }
    gm_status status = list_reads(be, size, &list, err);
    if (status == GM_OK) status = time_reads(be, &list, &best, err);
    if (status == GM_OK) out->read_bytes_s = (double)(size * ROOF_READS) / best;
    gm_vk_list_deinit(&list);
    if (status == GM_OK && !be->roof.map && be->up_bytes_s == 0) /* once: nothing changes it */
        status = measure_up(be, out, err);
    return status;
}
