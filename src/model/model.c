/* SPDX-License-Identifier: MIT */
#include "model/model.h"

#include "base/mem.h"

static gm_status read_names(gm_model *m, gm_err *err)
{
    gm_str name = {0};
    bool synthetic = false;
    GM_TRY(gm_meta_str(&m->file->meta, "general.name", &name, NULL, err));
    GM_TRY(gm_meta_bool(&m->file->meta, "gemmule.synthetic", &synthetic, NULL, err));
    GM_TRY(gm_arena_copy(&m->arena, name, &m->name, err));
    m->note = synthetic ? "this model's weights are random: its words mean nothing" : "";
    return GM_OK;
}

/* file -> numbers -> weights -> vocabulary -> plan */
static gm_status load(gm_model *m, const char *path, gm_err *err)
{
    GM_TRY(gm_tensorfile_open(&m->file, path, err));
    GM_TRY(gm_config_read(&m->config, &m->file->meta, &m->arena, err));
    GM_TRY(gm_model_bind(m, err));
    const uint64_t n_rows = gm_tensor_rows(&m->tensors[m->embed]);
    GM_TRY(gm_vocab_open(&m->vocab, &m->file->meta, n_rows, err));
    GM_TRY(read_names(m, err));
    m->plan.weights = (gm_tensors){.at = m->tensors, .n = m->n_tensors, .mapped = true};
    gm_gemma3_plan(&m->plan, m);
    return gm_plan_finish(&m->plan, err);
}

gm_status gm_model_open(gm_model **out, const char *path, gm_err *err)
{
    *out = NULL;
    gm_model *m = NULL;
    GM_TRY(gm_mem_alloc(&m, 1, sizeof *m, "a model", err));
    const gm_status status = load(m, path, err);
    if (status == GM_OK)
        *out = m;
    else
        gm_model_close(m);
    return status;
}

void gm_model_close(gm_model *m)
{
    if (!m) return;
    gm_plan_deinit(&m->plan);
    gm_vocab_close(m->vocab);
    gm_arena_deinit(&m->arena);
    gm_tensorfile_close(m->file);
    gm_mem_free(m);
}
