/* SPDX-License-Identifier: MIT */
/* Barriers are of all buffers: a chain of kernels gains nothing from naming them, and drivers turn both
 * into the same flush. Which dispatches need one follows from the ranges that they touch, so
 * neighbours without a hazard overlap. The validation layers see nothing of what goes through device
 * addresses; gm_vk_list_find_hazard is what checks instead. */

#include "backend/vk/vk_record.h"

#include <string.h>

#include "backend/vk/vk_params.h"
#include "base/mem.h"

gm_status gm_vk_list_add(gm_vk_list *l, const gm_vk_dispatch *d, gm_err *err)
{
    GM_TRY(gm_mem_grow(&l->at, &l->cap, l->n + 1, sizeof *l->at, "dispatches", err));
    l->at[l->n++] = *d;
    return GM_OK;
}

void gm_vk_list_deinit(gm_vk_list *l)
{
    gm_mem_free(l->at);
    *l = (gm_vk_list){0};
}

static bool clash(const gm_vk_dispatch *a, const gm_vk_dispatch *b)
{
    for (uint32_t i = 0; i < a->n_ranges; i++) {
        for (uint32_t j = 0; j < b->n_ranges; j++) {
            const gm_vk_range *const x = &a->ranges[i], *const y = &b->ranges[j];
            if ((x->write || y->write) && x->addr < y->addr + y->size &&
                y->addr < x->addr + x->size)
                return true;
        }
    }
    return false;
}

/* Whether dispatch i clashes with one since the barrier before it, `from` being the first. */
static bool is_hazard(const gm_vk_list *l, size_t from, size_t i)
{
    for (size_t j = from; j < i; j++) {
        if (clash(&l->at[j], &l->at[i])) return true;
    }
    return false;
}

/* Whether dispatch i may wait for the one before instead: that is then behind all others since the
 * last barrier, because it waits itself, or has the barrier. */
static bool can_wait(const gm_vk_list *l, size_t i)
{
    const gm_vk_dispatch *const before = i ? &l->at[i - 1] : NULL;
    return before && l->at[i].flow && before->n_done && (before->waits || before->barrier);
}

void gm_vk_list_place_barriers(gm_vk_list *l)
{
    size_t from = 0;
    for (size_t i = 0; i < l->n; i++) {
        const bool hazard = is_hazard(l, from, i);
        l->at[i].waits = hazard && can_wait(l, i);
        l->at[i].barrier = hazard && !l->at[i].waits;
        if (l->at[i].barrier) from = i;
    }
}

uint32_t gm_vk_list_place_flow(gm_vk_list *l, uint64_t counters, uint64_t late, uint32_t patience)
{
    uint64_t next = counters;
    for (size_t i = 0; i < l->n; i++) {
        gm_vk_dispatch *const d = &l->at[i];
        struct gm_vk_flow f = {.late = late, .patience = patience};
        if (!d->flow) continue;
        if (d->waits) {
            f.before = next - GM_VK_FLOW_SIZE;
            f.n_before = l->at[i - 1].n_done;
        }
        for (uint32_t back = 1; d->waits && back <= 2 && back <= i; back++) {
            if (!l->at[i - back].n_held || (back == 2 && !l->at[i - 1].waits)) continue;
            f.hold = next - back * GM_VK_FLOW_SIZE + GM_VK_FLOW_INNER;
            f.n_hold = l->at[i - back].n_held;
        }
        if (d->n_done) {
            f.done = next;
            next += GM_VK_FLOW_SIZE;
        }
        memcpy(d->push + d->flow, &f, sizeof f);
    }
    return (uint32_t)((next - counters) / GM_VK_FLOW_SIZE);
}

size_t gm_vk_list_find_hazard(const gm_vk_list *l)
{
    size_t from = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->at[i].barrier) from = i;
        if (l->at[i].waits && can_wait(l, i)) continue;
        if (is_hazard(l, from, i)) return i;
    }
    return l->n;
}

uint32_t gm_vk_list_cut(const gm_vk_list *l, double most, size_t *ends)
{
    uint32_t n = 0;
    double work = 0;
    for (size_t i = 0; i < l->n; i++) {
        const double more = l->at[i].work;
        if (work > 0 && more > 0 && work + more > most) {
            ends[n++] = i;
            work = 0;
        }
        work += more;
    }
    ends[n++] = l->n;
    return n;
}

#define COMPUTE VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
#define ALL     VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT

/* Between kernels only their memory is named: a barrier for all memory also empties caches that
 * nobody wrote past, which took 4.8 us instead of 2.1 on an H200. */
static const VkMemoryBarrier2 between_kernels = {
    .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
    .srcStageMask = COMPUTE,
    .srcAccessMask = VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT,
    .dstStageMask = COMPUTE,
    .dstAccessMask = VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT,
};

/* The step before may still run. */
static const VkMemoryBarrier2 before_all = {
    .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
    .srcStageMask = ALL,
    .srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT,
    .dstStageMask = ALL,
    .dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT,
};

/* The host reads what was written. */
static const VkMemoryBarrier2 after_all = {
    .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
    .srcStageMask = ALL,
    .srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT,
    .dstStageMask = ALL | VK_PIPELINE_STAGE_2_HOST_BIT,
    .dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT,
};

static void barrier(gm_vk_dev *d, VkCommandBuffer cmd, const VkMemoryBarrier2 *what)
{
    const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                   .memoryBarrierCount = 1,
                                   .pMemoryBarriers = what};
    d->vk.vkCmdPipelineBarrier2(cmd, &info);
}

static void put(gm_vk_dev *d, const gm_vk_recording *r, VkCommandBuffer cmd,
                const gm_vk_dispatch *x)
{
    const gm_vk_pipes *const p = r->pipes;
    if (x->barrier) barrier(d, cmd, &between_kernels);
    d->vk.vkCmdBindPipeline(cmd, VK_PIPELINE_BIND_POINT_COMPUTE, p->at[x->pipe].pipeline);
    d->vk.vkCmdPushConstants(cmd, p->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, x->n_push, x->push);
    if (x->indirect >= 0)
        d->vk.vkCmdDispatchIndirect(cmd, r->grids->buffer,
                                    r->grids_off + 16ull * (uint32_t)x->indirect);
    else
        d->vk.vkCmdDispatch(cmd, x->grid[0], x->grid[1], x->grid[2]);
}

gm_status gm_vk_record_alloc(gm_vk_dev *d, VkCommandBuffer *out, gm_err *err)
{
    const VkCommandBufferAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = d->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1,
    };
    return gm_vk_check(d->vk.vkAllocateCommandBuffers(d->device, &info, out), "a recording", err);
}

void gm_vk_record_free(gm_vk_dev *d, VkCommandBuffer cmd)
{
    if (cmd) d->vk.vkFreeCommandBuffers(d->device, d->pool, 1, &cmd);
}

static const VkCommandBufferBeginInfo begin = {.sType =
                                                   VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};

static void stamp(gm_vk_dev *d, const gm_vk_recording *r, VkCommandBuffer cmd, size_t i)
{
    if (r->times) d->vk.vkCmdWriteTimestamp2(cmd, COMPUTE, r->times, (uint32_t)i);
}

gm_status gm_vk_record(gm_vk_dev *d, const gm_vk_recording *r, VkCommandBuffer *out, gm_err *err)
{
    GM_TRY(gm_vk_record_alloc(d, out, err));
    GM_TRY(gm_vk_check(d->vk.vkBeginCommandBuffer(*out, &begin), "a recording", err));
    if (r->times)
        d->vk.vkCmdResetQueryPool(*out, r->times, 0, r->whole ? 2 : (uint32_t)r->list->n + 1);
    barrier(d, *out, &before_all);
    if (r->fronts && r->fronts->addr + r->fronts->size > r->fronts_at) {
        d->vk.vkCmdFillBuffer(*out, r->fronts->buffer, r->fronts_at - r->fronts->addr,
                              VK_WHOLE_SIZE, 0);
        barrier(d, *out, &before_all);
    }
    if (r->flow && r->flow->size) {
        d->vk.vkCmdFillBuffer(*out, r->flow->buffer, 0, VK_WHOLE_SIZE, 0);
        d->vk.vkCmdFillBuffer(*out, r->values->buffer, r->values_off, r->values_size,
                              r->values_word);
        barrier(d, *out, &before_all);
    }
    stamp(d, r, *out, 0);
    for (size_t i = 0; i < r->list->n; i++) {
        put(d, r, *out, &r->list->at[i]);
        if (!r->whole) stamp(d, r, *out, i + 1);
    }
    if (r->whole) stamp(d, r, *out, 1);
    barrier(d, *out, &after_all);
    d->count.recordings++;
    return gm_vk_check(d->vk.vkEndCommandBuffer(*out), "a recording", err);
}

gm_status gm_vk_record_copies(gm_vk_dev *d, VkCommandBuffer cmd, const gm_vk_copy *copies, size_t n,
                              gm_err *err)
{
    GM_TRY(gm_vk_check(d->vk.vkBeginCommandBuffer(cmd, &begin), "a recording", err));
    for (size_t i = 0; i < n; i++) {
        const gm_vk_copy *const c = &copies[i];
        const VkBufferCopy region = {c->from_off, c->to_off, c->size};
        if (c->size) d->vk.vkCmdCopyBuffer(cmd, c->from->buffer, c->to->buffer, 1, &region);
    }
    barrier(d, cmd, &after_all);
    return gm_vk_check(d->vk.vkEndCommandBuffer(cmd), "a recording", err);
}

static gm_status run_now(gm_vk_dev *d, VkCommandBuffer cmd, gm_err *err)
{
    uint64_t value = 0;
    GM_TRY(gm_vk_submit(d, cmd, &value, err));
    return gm_vk_wait(d, value, err);
}

gm_status gm_vk_copy_now(gm_vk_dev *d, const gm_vk_copy *copies, size_t n, gm_err *err)
{
    VkCommandBuffer cmd = NULL;
    GM_TRY(gm_vk_record_alloc(d, &cmd, err));
    gm_status status = gm_vk_record_copies(d, cmd, copies, n, err);
    if (status == GM_OK) status = run_now(d, cmd, err);
    gm_vk_record_free(d, cmd);
    return status;
}

gm_status gm_vk_fill_now(gm_vk_dev *d, const gm_vk_buf *b, uint32_t word, gm_err *err)
{
    VkCommandBuffer cmd = NULL;
    GM_TRY(gm_vk_record_alloc(d, &cmd, err));
    gm_status status = gm_vk_check(d->vk.vkBeginCommandBuffer(cmd, &begin), "a recording", err);
    if (status == GM_OK) {
        d->vk.vkCmdFillBuffer(cmd, b->buffer, 0, VK_WHOLE_SIZE, word);
        status = gm_vk_check(d->vk.vkEndCommandBuffer(cmd), "a recording", err);
    }
    if (status == GM_OK) status = run_now(d, cmd, err);
    gm_vk_record_free(d, cmd);
    return status;
}
