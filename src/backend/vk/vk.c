/* SPDX-License-Identifier: MIT */
#include "backend/vk/vk.h"

#include "backend/backends.h"
#include "base/mem.h"

static void vk_close(gm_backend *be)
{
    if (!be) return;
    gm_vk_buf_free(&be->dev, &be->roof);
    gm_vk_kept_save(be);
    gm_vk_pipes_deinit(&be->pipes);
    gm_mem_free(be->choices.at);
    gm_vk_dev_close(&be->dev);
    gm_workers_close(be->workers);
    gm_mem_free(be);
}

static gm_status vk_open(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    *out = NULL;
    gm_backend *be = NULL;
    gm_status status = GM_OK;
    GM_TRY(gm_mem_alloc(&be, 1, sizeof *be, "the vulkan backend", err));
    be->abandon = cfg->abandon;
    be->piece_work = GM_VK_PIECE_WORK;
    GM_TRY_DONE(gm_workers_open(&be->workers, cfg->n_threads, err));
    GM_TRY_DONE(gm_vk_dev_open(&be->dev, cfg->device, err));
    GM_TRY_DONE(gm_vk_kept_open(be, cfg, err));
    be->pipes.exact = cfg->exact;
    GM_TRY_DONE(gm_vk_tune(be, cfg->exact, err));
    if (cfg->choices)
        GM_TRY_DONE(gm_vk_choices_load(be, cfg->choices, err));
    else if (!cfg->untuned)
        gm_vk_choices_read(be);
done:
    if (status == GM_OK)
        *out = be;
    else
        vk_close(be);
    return status;
}

static void vk_describe(const gm_backend *be, gm_backend_facts *out)
{
    *out = (gm_backend_facts){.n_threads = gm_workers_n(be->workers),
                              .isa = "spir-v",
                              .device = be->dev.props.deviceName,
                              .driver = be->dev.driver,
                              .is_gpu = be->dev.props.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU,
                              .room = gm_vk_dev_room(&be->dev),
                              .id = be->kept.id,
                              .key = be->kept.key,
                              .load_bytes_s = be->load_bytes_s,
                              .load_times = be->load_times,
                              .counts = be->dev.count,
                              .half_cols = be->tuning.fragments ? GM_VK_CHUNK : 0};
}

static void vk_kernels(gm_backend *be, gm_strbuf *out)
{
    gm_vk_pipes_list_asked(&be->pipes, out);
}

/* Bytes that an op reads at a hundred bytes a nanosecond: placement compares, nothing more. */
static gm_status vk_cost(const gm_backend *be, const gm_plan *p, const gm_op *op, uint32_t rows,
                         double *us, gm_err *err)
{
    (void)be, (void)err;
    double bytes = op->out ? 4.0 * p->vals[op->out].cols * rows : 0;
    const uint32_t n = op->kind == GM_OP_GATE_UP_GELU ? 2 : op->kind == GM_OP_MATMUL ? 1 : 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (double)p->weights.at[op->weight[i]].size * (1 + rows / 64.0);
    *us = 2 + bytes * 1e-5;
    return GM_OK;
}

const gm_backend_ops gm_backend_vulkan = {
    .name = "vulkan",
    .about = "any GPU with Vulkan 1.3, the whole token on the device",
    .overlaps = true,
    .kv_type = GM_QTYPE_F16,
    .device_at = gm_vk_device_at,
    .open = vk_open,
    .close = vk_close,
    .describe = vk_describe,
    .kernels = vk_kernels,
    .cost = vk_cost,
    .roof = gm_vk_measure_roof,
    .size_of = gm_vk_size_of,
    .load = gm_vk_load,
    .unload = gm_vk_unload,
    .kv_size_of = gm_vk_kv_size_of,
    .kv_open = gm_vk_kv_open,
    .kv_close = gm_vk_kv_close,
    .kv_page_size = gm_vk_kv_page_size,
    .kv_copy = gm_vk_kv_copy,
    .tune = gm_vk_try_plan,
    .exec_size_of = gm_vk_exec_size_of,
    .lower = gm_vk_lower,
    .drop = gm_vk_drop,
    .run = gm_vk_run,
    .wait = gm_vk_answer,
    .profile = gm_vk_profile,
};
