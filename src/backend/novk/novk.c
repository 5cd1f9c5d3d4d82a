/* SPDX-License-Identifier: MIT */
/* Stands in for the Vulkan backend in builds without it (make VULKAN=0): it is listed, and says why
 * it cannot be opened. What follows a failed open is called with NULL; nothing else of it ever is. */

#include "backend/backends.h"

static gm_status refuse(gm_err *err)
{
    return gm_fail(err, GM_E_UNSUP, 0, "vulkan: this build has no Vulkan backend (VULKAN=0)");
}

static gm_status novk_open(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    (void)cfg;
    *out = NULL;
    return refuse(err);
}

static gm_status novk_device_at(uint32_t index, gm_device_info *out, gm_err *err)
{
    (void)index, (void)out;
    return refuse(err);
}

static void novk_close(gm_backend *be)
{
    (void)be;
}

static void novk_unload(gm_wset *w)
{
    (void)w;
}

static void novk_kv_close(gm_kvmem *kv)
{
    (void)kv;
}

static void novk_drop(gm_exec *ex)
{
    (void)ex;
}

static gm_status novk_kv_size_of(const gm_kv_desc *d, uint64_t *bytes, gm_err *err)
{
    (void)d;
    *bytes = 0;
    return refuse(err);
}

const gm_backend_ops gm_backend_vulkan = {
    .name = "vulkan",
    .about = "not in this build",
    .kv_type = GM_QTYPE_F16,
    .device_at = novk_device_at,
    .open = novk_open,
    .close = novk_close,
    .unload = novk_unload,
    .kv_size_of = novk_kv_size_of,
    .kv_close = novk_kv_close,
    .drop = novk_drop,
};
