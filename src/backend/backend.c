/* SPDX-License-Identifier: MIT */
#include "backend/backend.h"

#include <string.h>

#include "backend/backends.h"

/* Best first: "auto" is the first. */
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
