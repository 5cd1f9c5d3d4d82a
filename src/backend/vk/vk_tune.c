/* SPDX-License-Identifier: MIT */
/* What suits the device. How the lanes of a subgroup hold the results of a cooperative matrix is no
 * one's promise, and the kernel that scales them reads less if it knows: so it is looked at once, by
 * a kernel that asks the device. */

#include <string.h>

#include "backend/vk/vk.h"

/* The bits of a result's number that its row depends on, and those that its column does. */
static void find_bits(const uint32_t *places, uint32_t lanes, gm_vk_tuning *out)
{
    const uint32_t each = 256 / lanes;
    out->row_bits = out->col_bits = 0;
    for (uint32_t i = 0; i < 256; i++) {
        for (uint32_t bit = 1; bit < each; bit <<= 1) {
            const uint32_t differs = places[i] ^ places[i ^ bit];
            if (differs >> 4) out->row_bits |= bit;
            if (differs & 15) out->col_bits |= bit;
        }
    }
}

static gm_status look_at_places(gm_backend *be, const char *pipeline, const gm_vk_buf *to,
                                gm_err *err)
{
    const uint32_t spec[] = {be->tuning.subgroup, be->tuning.subgroup, be->tuning.matrix_depth, 31,
                             31};
    const struct gm_vk_places push = {to->addr};
    gm_vk_dispatch d = {.indirect = -1, .grid = {1, 1, 1}, .n_push = sizeof push};
    gm_vk_list list = {0};
    const gm_vk_recording r = {.pipes = &be->pipes, .list = &list};
    VkCommandBuffer cmd = NULL;
    uint64_t value = 0;
    gm_status status = GM_OK;
    memcpy(d.push, &push, sizeof push);
    GM_TRY(gm_vk_pipes_want(&be->pipes, pipeline, GM_VK_NO_TYPE, spec, &d.pipe, err));
    GM_TRY(gm_vk_pipes_compile(&be->pipes, be->workers, err));
    GM_TRY_DONE(gm_vk_list_add(&list, &d, err));
    GM_TRY_DONE(gm_vk_record(&be->dev, &r, &cmd, err));
    GM_TRY_DONE(gm_vk_submit(&be->dev, cmd, &value, err));
    GM_TRY_DONE(gm_vk_wait(&be->dev, value, err));
done:
    gm_vk_record_free(&be->dev, cmd);
    gm_vk_list_deinit(&list);
    return status;
}

static gm_status find_places(gm_backend *be, gm_err *err)
{
    gm_vk_buf places = {0};
    GM_TRY(gm_vk_buf_alloc(&be->dev, &places, 256 * 4, GM_VK_RESULT, "places of results", err));
    const gm_status status = look_at_places(be, "places", &places, err);
    if (status == GM_OK)
        find_bits((const uint32_t *)(const void *)places.map, be->tuning.subgroup, &be->tuning);
    gm_vk_buf_free(&be->dev, &places);
    return status;
}

/* Whether lanes hold matrices of float16 as matmul_fragment.comp takes them to: of weights and of columns
 * the same values, in the same order. */
static bool holds_fragments(const uint32_t *places)
{
    for (uint32_t lane = 0; lane < 32; lane++) {
        const uint32_t *const a = places + 16 * lane, *const b = a + 8, *const c = a + 12;
        const uint32_t g = lane / 4, t = lane % 4;
        for (uint32_t i = 0; i < 8; i++) {
            if (a[i] != (g + i / 4 * 8) * 16 + b[i % 4] % 16) return false;
        }
        for (uint32_t i = 0; i < 4; i++) {
            if (b[i] / 16 != g || c[i] != (g + i / 2 * 8) * 16 + 2 * t + i % 2) return false;
        }
    }
    return true;
}

static gm_status find_fragments(gm_backend *be, gm_err *err)
{
    gm_vk_buf places = {0};
    GM_TRY(gm_vk_buf_alloc(&be->dev, &places, 32 * 16 * 4, GM_VK_RESULT, "places of values", err));
    const gm_status status = look_at_places(be, "places_half", &places, err);
    be->tuning.fragments = be->tuning.fragment_mma =
        status == GM_OK && holds_fragments((const uint32_t *)(const void *)places.map);
    gm_vk_buf_free(&be->dev, &places);
    return status;
}

gm_status gm_vk_tune(gm_backend *be, bool exact, gm_err *err)
{
    const gm_vk_dev *const d = &be->dev;
    /* A card with memory of its own has more of it to wait for, and registers to wait in. */
    const bool wide = d->props.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    const bool has_32 = d->subgroup_min <= 32 && d->subgroup_max >= 32;
    const uint32_t depth = has_32 ? d->matrix_depth : 0;
    be->tuning = (gm_vk_tuning){
        .matrix_depth = depth,
        .subgroup = has_32 ? 32 : d->subgroup_max,
        .max_shared = d->props.limits.maxComputeSharedMemorySize,
        .words_under_way = wide ? 40 : 20,
        .tile_from = depth ? 8 : UINT32_MAX,
        .half_from = d->has_halves && has_32 && !exact ? 65 : UINT32_MAX,
        .half_tiles = wide ? 256 : 0,
        .split_wgs = wide ? 256 : 64,
        .norm_units = wide ? 64 : 16,
        .one_front = wide, /* docs/PERF.md, 103 */
        .front_turns = wide ? 12 : 4,
        .row_bits = 31,
        .col_bits = 31,
    };
    if (d->has_half_columns && has_32 && !exact) GM_TRY(find_fragments(be, err));
    return depth ? find_places(be, err) : GM_OK;
}
