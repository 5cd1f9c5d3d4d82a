/* SPDX-License-Identifier: MIT */
#include "file/tensorfile.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/fp16.h"
#include "base/mem.h"
#include "file/gguf.h"
#include "file/hf.h"

/* Files that people try to open and that are no models, known by how they begin. */
static const struct lookalike {
    gm_str begin;
    const char *what;
} lookalikes[] = {
    {{"version https://git-lfs", 23}, "a Git LFS pointer: fetch the file it stands for"},
    {{"PK\003\004", 4}, "a zip archive or a PyTorch checkpoint"},
    {{"<!", 2}, "a web page"},
    {{"<html", 5}, "a web page"},
    {{"tjgg", 4}, "a GGML file from before GGUF"},
    {{"{", 1}, "JSON: open the folder that holds it"},
};

/* A safetensors file is the length of a JSON object, and then the object. */
static bool is_safetensors(const gm_mapfile *m)
{
    return m->size > 8 && m->data[8] == '{' && gm_read_u64(m->data) <= m->size - 8;
}

static const char *guess_what(const gm_mapfile *m)
{
    if (m->size == 0) return "empty";
    if (is_safetensors(m)) return "one safetensors file: open the folder that holds it";
    const gm_str bytes = {(const char *)m->data, m->size};
    for (size_t i = 0; i < sizeof lookalikes / sizeof lookalikes[0]; i++) {
        if (gm_str_starts(bytes, lookalikes[i].begin)) return lookalikes[i].what;
    }
    return "of no known format";
}

/* Refuses what is no GGUF file, in words that say what to do about it. */
static gm_status file_check(const char *path, gm_err *err)
{
    gm_mapfile m = {0};
    GM_TRY(gm_mapfile_open(&m, path, err));
    gm_status status = GM_OK;
    if (!gm_gguf_is(m.data, m.size)) {
        status = gm_fail(err, GM_E_FORMAT, 0,
                         "%s: expected a GGUF file or a Hugging Face folder; this is %s", path,
                         guess_what(&m));
    }
    gm_mapfile_close(&m);
    return status;
}

static gm_status open_any(gm_tensorfile *f, const char *path, gm_err *err)
{
    struct stat st;
    GM_TRY(gm_arena_copy(&f->arena, gm_str_c(path), &f->path, err));
    f->meta.file = f->path;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return gm_hf_open(f, path, err);
    GM_TRY(file_check(path, err));
    return gm_gguf_open(f, path, err);
}

gm_status gm_tensorfile_open(gm_tensorfile **out, const char *path, gm_err *err)
{
    *out = NULL;
    gm_tensorfile *f = NULL;
    GM_TRY(gm_mem_alloc(&f, 1, sizeof *f, "an open model file", err));
    const gm_status status = open_any(f, path, err);
    if (status != GM_OK) {
        gm_tensorfile_close(f);
        return status;
    }
    *out = f;
    return GM_OK;
}

void gm_tensorfile_close(gm_tensorfile *f)
{
    if (!f) return;
    for (uint32_t i = 0; i < f->n_maps; i++)
        gm_mapfile_close(&f->maps[i]);
    gm_mem_free(f->maps);
    gm_mem_free(f->tensors);
    gm_meta_deinit(&f->meta);
    gm_arena_deinit(&f->arena);
    gm_mem_free(f);
}

const gm_tensor *gm_tensorfile_find(const gm_tensorfile *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
    }
    return NULL;
}

gm_status gm_tensorfile_map(gm_tensorfile *f, const char *path, gm_mapfile *view, gm_err *err)
{
    *view = (gm_mapfile){0};
    GM_TRY(gm_mem_grow(&f->maps, &f->cap_maps, (size_t)f->n_maps + 1, sizeof *f->maps,
                       "the list of maps", err));
    GM_TRY(gm_mapfile_open(view, path, err));
    f->maps[f->n_maps++] = *view;
    return GM_OK;
}

gm_status gm_tensorfile_add(gm_tensorfile *f, const gm_tensor *t, gm_err *err)
{
    if (f->n_tensors == UINT32_MAX) {
        return gm_fail(err, GM_E_TOOBIG, 0, "%s: has more than %u tensors", f->meta.file,
                       UINT32_MAX);
    }
    GM_TRY(gm_mem_grow(&f->tensors, &f->cap_tensors, (size_t)f->n_tensors + 1, sizeof *f->tensors,
                       "the list of tensors", err));
    f->tensors[f->n_tensors++] = *t;
    return GM_OK;
}

static int name_cmp(const void *a, const void *b)
{
    const gm_str *const x = a;
    const gm_str *const y = b;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->len ? memcmp(x->p, y->p, x->len) : 0;
}

const gm_str *gm_names_find_twin(gm_str *names, size_t n)
{
    if (n < 2) return NULL;
    qsort(names, n, sizeof *names, name_cmp);
    for (size_t i = 1; i < n; i++) {
        if (gm_str_eq(names[i - 1], names[i])) return &names[i];
    }
    return NULL;
}

bool gm_tensorfile_is_vision(gm_str name)
{
    static const gm_str prefixes[] = {
        {"v.", 2},
        {"mm.", 3},
        {"vision_tower.", 13},
        {"vision_model.", 13},
        {"multi_modal_projector.", 22},
    };
    const gm_str model = GM_STR("model.");
    if (gm_str_starts(name, model)) name = (gm_str){name.p + model.len, name.len - model.len};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (gm_str_starts(name, prefixes[i])) return true;
    }
    return false;
}
