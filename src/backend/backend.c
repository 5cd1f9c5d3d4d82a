/* SPDX-License-Identifier: MIT */
#include "backend/backend.h"

#include <inttypes.h>
#include <string.h>

#include "backend/backends.h"

/* "auto" is the first, where nothing better is found (engine/place.c). */
static const gm_backend_ops *const table[] = {&gm_backend_cpu, &gm_backend_vulkan, &gm_backend_ref,
                                              &gm_backend_ref_int8};

const gm_backend_ops *gm_backend_at(size_t i)
{
    return i < sizeof table / sizeof *table ? table[i] : NULL;
}

const gm_backend_ops *gm_backend_find(const char *name)
{
    if (strcmp(name, "auto") == 0) return table[0];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i]->name, name) == 0) return table[i];
    }
    return NULL;
}

gm_status gm_backend_no_device(const gm_backend_cfg *cfg, const char *name, gm_err *err)
{
    if (!cfg->device) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0, "backend: %s has no device %.80s: it runs on the processor",
                   name, cfg->device);
}

gm_status gm_backend_no_device_at(uint32_t index, gm_device_info *out, gm_err *err)
{
    (void)out;
    return gm_fail(err, GM_E_ARG, 0,
                   "backend: there is no device %" PRIu32 ": this is the processor", index);
}

gm_status gm_backend_no_exec_size(gm_backend *be, const gm_plan *p, const gm_kv_desc *kv,
                                  gm_bucket most, uint64_t *bytes, gm_err *err)
{
    (void)be, (void)p, (void)kv, (void)most, (void)err;
    *bytes = 0;
    return GM_OK;
}

void gm_backend_no_kernels(gm_backend *be, gm_strbuf *out)
{
    (void)be, (void)out;
}

gm_status gm_backend_no_tune(gm_backend *be, const gm_tune_model *m, const gm_tune_how *how,
                             gm_err *err)
{
    (void)be, (void)m, (void)how, (void)err;
    return GM_OK;
}

gm_status gm_backend_no_profile(gm_exec *ex, const gm_step *s, gm_kernel_row *rows, uint32_t cap,
                                uint32_t *n, gm_err *err)
{
    (void)ex, (void)s, (void)rows, (void)cap;
    *n = 0;
    return gm_fail(err, GM_E_UNSUP, 0, "backend: only vulkan times its kernels");
}
