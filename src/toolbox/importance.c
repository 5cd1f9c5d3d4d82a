/* SPDX-License-Identifier: MIT */
#include "toolbox/importance.h"

#include "base/mem.h"

gm_status gm_importance_make(gm_importance **out, uint32_t cap, gm_err *err)
{
    *out = NULL;
    gm_importance *imp = NULL;
    GM_TRY(gm_mem_alloc(&imp, 1, sizeof *imp, "importance of weights", err));
    const gm_status status =
        gm_arena_alloc(&imp->arena, &imp->at, cap, sizeof *imp->at, "importance of weights", err);
    if (status == GM_OK) {
        imp->cap = cap;
        *out = imp;
    } else {
        gm_importance_free(imp);
    }
    return status;
}

gm_status gm_importance_add(gm_importance *imp, const char *name, uint32_t n_cols, float **values,
                            gm_err *err)
{
    *values = NULL;
    if (imp->count == imp->cap)
        return gm_fail(err, GM_E_ARG, 0, "importance: has room for %u tensors", imp->cap);
    gm_importance_entry *const e = &imp->at[imp->count];
    GM_TRY(gm_arena_copy(&imp->arena, gm_str_c(name), &e->name, err));
    GM_TRY(gm_arena_alloc(&imp->arena, &e->values, n_cols, sizeof *e->values,
                          "importance of a tensor's columns", err));
    e->n_cols = n_cols;
    *values = e->values;
    imp->count++;
    return GM_OK;
}

const float *gm_importance_find(const gm_importance *imp, const char *name, uint64_t n_cols)
{
    for (uint32_t i = 0; imp && i < imp->count; i++) {
        if (strcmp(imp->at[i].name, name) != 0) continue;
        return imp->at[i].n_cols == n_cols ? imp->at[i].values : NULL;
    }
    return NULL;
}

void gm_importance_free(gm_importance *imp)
{
    if (!imp) return;
    gm_arena_deinit(&imp->arena);
    gm_mem_free(imp);
}
