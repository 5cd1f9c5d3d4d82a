/* SPDX-License-Identifier: MIT */
#include "toolbox/synth.h"
#include "toolbox/modelwrite.h"

gm_synth_opts gm_synth_opts_default(void)
{
    return (gm_synth_opts){.size = sizeof(gm_synth_opts), .shape = "tiny", .type = "q8_0"};
}

gm_noise gm_synth_noise(const gm_synth_list *list, uint32_t index, uint64_t seed)
{
    return (gm_noise){
        .type = list->tensors[index].type,
        .law = list->laws[index],
        .key = gm_noise_key(seed, index),
    };
}

typedef struct streams {
    const gm_synth_list *list;
    uint64_t seed;
} streams;

static gm_status fill(void *ctx, const gm_slice *slice, gm_err *err)
{
    (void)err;
    const streams *const s = ctx;
    const gm_noise noise = gm_synth_noise(s->list, slice->tensor, s->seed);
    gm_noise_fill(&noise, slice->off, slice->size, slice->out);
    return GM_OK;
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
    uint64_t *units = NULL;
    GM_TRY(gm_arena_alloc(arena, &units, list.n, sizeof *units, "units of tensors", err));
    for (uint32_t i = 0; i < list.n; i++) /* whole blocks, whole words of the counter */
        units[i] = 8 * (uint64_t)list.tensors[i].type->block_size;
    streams s = {&list, o->seed};
    const gm_modelwrite job = {
        .path = path,
        .meta = &meta,
        .tensors = list.tensors,
        .units = units,
        .n = list.n,
        .force = o->force != 0,
        .fill = fill,
        .ctx = &s,
        .progress = o->progress,
        .progress_ctx = o->progress_ctx,
    };
    return gm_modelwrite_run(&job, err);
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
