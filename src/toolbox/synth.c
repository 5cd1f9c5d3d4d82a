/* SPDX-License-Identifier: MIT */
#include "toolbox/synth.h"

gm_synth_opts gm_synth_opts_default(void)
{
    return (gm_synth_opts){.size = sizeof(gm_synth_opts), .shape = "tiny", .type = "q8_0"};
}

static gm_status write_model(const char *path, const gm_synth_opts *o, gm_arena *arena, gm_err *err)
{
    const gm_synth_shape *shape = NULL;
    const gm_qtype_info *type = NULL, *head_type = NULL;
    GM_TRY(gm_synth_shape_find(&shape, o->shape, err));
    GM_TRY(gm_synth_type_find(&type, o->type, err));
    GM_TRY(gm_synth_type_find(&head_type, o->head_type ? o->head_type : o->type, err));

    gm_synth_list list;
    gm_synth_vocab vocab;
    gm_meta meta;
    GM_TRY(gm_synth_list_make(&list, shape, type, head_type, arena, err));
    GM_TRY(gm_synth_vocab_make(&vocab, shape, arena, err));
    GM_TRY(gm_synth_meta_make(&meta, shape, &vocab, type, o->seed, arena, err));
    const gm_synth_job job = {
        .path = path,
        .list = &list,
        .meta = &meta,
        .seed = o->seed,
        .force = o->force != 0,
        .progress = o->progress,
        .progress_ctx = o->progress_ctx,
    };
    return gm_synth_file_write(&job, err);
}

gm_status gm_synth_write(const char *path, const gm_synth_opts *opts, gm_err *err)
{
    gm_synth_opts o = gm_synth_opts_default();
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (!path || !path[0] || !o.shape || !o.type)
        return gm_fail(err, GM_E_ARG, 0, "synth: a path, a size and a type are needed");
    gm_arena arena = {0};
    const gm_status status = write_model(path, &o, &arena, err);
    gm_arena_deinit(&arena);
    return status;
}
