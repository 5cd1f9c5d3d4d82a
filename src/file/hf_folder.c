/* SPDX-License-Identifier: MIT */

/* The files of a Hugging Face folder, in the order in which they are read. A key
 * that is there already stays (hf_meta.h), so what is read first outranks the
 * rest:
 *
 *     config.json                                     required
 *     generation_config.json                          sampling defaults
 *     chat_template.jinja, else chat_template.json    else the one of tokenizer_config.json
 *     tokenizer.model, else tokenizer.json            required
 *     tokenizer_config.json                           added tokens
 *     model.safetensors, else model.safetensors.index.json and the shards it names
 *
 * JSON is mapped, parsed and let go; weights and tokenizer.model stay mapped,
 * since views point into them. */

#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "file/hf.h"
#include "file/hf_json.h"
#include "file/hf_meta.h"

/* More shards than any model of this family needs. */
#define SHARDS_MAX 1024u

typedef struct folder {
    gm_tensorfile *f;
    gm_str path;
    gm_strbuf file; /* the path of the file at hand */
} folder;

/* Puts the path of a file of the folder into d->file. */
static gm_status path_join(folder *d, gm_str name, gm_err *err)
{
    gm_strbuf_clear(&d->file);
    gm_strbuf_put(&d->file, d->path);
    if (!gm_str_ends(d->path, GM_STR("/"))) gm_strbuf_putc(&d->file, '/');
    gm_strbuf_put(&d->file, name);
    return gm_strbuf_status(&d->file, err);
}

typedef gm_status (*parse_fn)(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                              gm_err *err);

enum {
    FILE_OPTIONAL = 1, /* absent is fine                                        */
    FILE_KEEP = 2,     /* stays mapped until f is closed, views point into it   */
};

/* Maps a file of the folder and gives it to parse; *found (may be NULL): whether it is there. */
static gm_status file_read(folder *d, const char *name, parse_fn parse, unsigned flags, bool *found,
                           gm_err *err)
{
    gm_mapfile map = {0};
    gm_err e = {0};
    if (found) *found = false;
    GM_TRY(path_join(d, gm_str_c(name), err));
    gm_status status = flags & FILE_KEEP ? gm_tensorfile_map(d->f, d->file.p, &map, &e)
                                         : gm_mapfile_open(&map, d->file.p, &e);
    if (status == GM_E_IO && e.os == ENOENT && flags & FILE_OPTIONAL) return GM_OK;
    if (status != GM_OK) return gm_fail(err, status, e.os, "%s", e.msg);
    if (found) *found = true;
    status = parse(d->f, map.data, map.size, d->file.p, err);
    if (!(flags & FILE_KEEP)) gm_mapfile_close(&map);
    return status;
}

/* ---- chat template and tokenizer ----------------------------------------------------- */

static gm_status jinja_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                             gm_err *err)
{
    (void)name;
    return gm_hf_put_str(f, "tokenizer.chat_template", (gm_str){(const char *)data, size}, err);
}

static gm_status chat_json_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                 const char *name, gm_err *err)
{
    json_t *root = NULL;
    GM_TRY(gm_json_parse(&root, data, size, 0, name, err));
    gm_str text = {0};
    gm_status status = gm_json_str(&(gm_json){root, name, ""}, "chat_template", &text, err);
    if (status == GM_OK && text.p) status = gm_hf_put_str(f, "tokenizer.chat_template", text, err);
    json_decref(root);
    return status;
}

static gm_status tokenizer_read(folder *d, gm_err *err)
{
    bool found = false;
    const unsigned keep = FILE_OPTIONAL | FILE_KEEP;
    GM_TRY(file_read(d, "tokenizer.model", gm_sp_model_parse, keep, &found, err));
    if (!found) {
        GM_TRY(file_read(d, "tokenizer.json", gm_hf_tokenizer_parse, FILE_OPTIONAL, &found, err));
    }
    if (!found) {
        return gm_fail(err, GM_E_IO, ENOENT,
                       "%s: has no vocabulary, expected tokenizer.model or tokenizer.json",
                       d->f->path);
    }
    return file_read(d, "tokenizer_config.json", gm_hf_tokenizer_config_parse, FILE_OPTIONAL, NULL,
                     err);
}

/* ---- shards -------------------------------------------------------------------------- */

typedef struct shard {
    const char *name; /* of the index's JSON                           */
    uint32_t first;   /* its tensors are f->tensors[first .. last)     */
    uint32_t last;
} shard;

typedef struct shards {
    shard *at; /* gm_mem memory */
    size_t n, cap;
} shards;

static bool is_plain_name(gm_str s)
{
    return s.len > 0 && s.len <= 255 && !memchr(s.p, '/', s.len) && !gm_str_eq(s, GM_STR(".")) &&
           !gm_str_eq(s, GM_STR(".."));
}

static const shard *shard_find(const shards *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++) {
        if (strcmp(all->at[i].name, name) == 0) return &all->at[i];
    }
    return NULL;
}

/* Lists the shards that the weight map names, each once. */
static gm_status shards_list(shards *all, json_t *map, const char *index, gm_err *err)
{
    const char *tensor;
    json_t *j;
    json_object_foreach(map, tensor, j)
    {
        const gm_str name = json_is_string(j) ? gm_json_text(j) : GM_STR("");
        if (!is_plain_name(name)) {
            return gm_fail(err, GM_E_FORMAT, 0,
                           "%s: tensor %.80s is said to be in \"%.*s\", expected the plain name of "
                           "a file in this folder",
                           index, tensor, GM_STR_ARG(name));
        }
        if (shard_find(all, name.p)) continue;
        if (all->n == SHARDS_MAX) {
            return gm_fail(err, GM_E_TOOBIG, 0, "%s: names more than %u files", index, SHARDS_MAX);
        }
        GM_TRY(gm_mem_grow(&all->at, &all->cap, all->n + 1, sizeof *all->at, "the list of shards",
                           err));
        all->at[all->n++] = (shard){.name = name.p};
    }
    if (all->n) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0, "%s: its weight_map is empty, expected tensors", index);
}

static bool shard_has(const gm_tensorfile *f, const shard *s, const char *gguf)
{
    for (uint32_t i = s->first; i < s->last; i++) {
        if (strcmp(f->tensors[i].name, gguf) == 0) return true;
    }
    return false;
}

/* Every text tensor of the weight map must be in the shard that it names. */
static gm_status shards_check(const gm_tensorfile *f, const shards *all, json_t *map,
                              const char *index, gm_err *err)
{
    const char *tensor;
    json_t *j;
    json_object_foreach(map, tensor, j)
    {
        char gguf[GM_HF_NAME_MAX];
        const gm_hf_name kind = gm_hf_tensor_name(gm_str_c(tensor), gguf);
        if (kind == GM_HF_NAME_VISION || kind == GM_HF_NAME_IGNORED) continue;
        const char *const name = json_string_value(j);
        if (kind == GM_HF_NAME_TEXT && shard_has(f, shard_find(all, name), gguf)) continue;
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: tensor %.80s is said to be in %.80s, and is not there", index, tensor,
                       name);
    }
    return GM_OK;
}

static gm_status index_read(folder *d, const char *index, json_t *root, shards *all, gm_err *err)
{
    const json_t *map = NULL;
    const gm_json o = {root, index, ""};
    GM_TRY(gm_json_object(&o, "weight_map", &map, err));
    if (!map) return gm_json_refuse(&o, "weight_map", NULL, "an object", err);
    json_t *const weight_map = (json_t *)(uintptr_t)map;
    GM_TRY(shards_list(all, weight_map, index, err));
    for (size_t i = 0; i < all->n; i++) {
        all->at[i].first = d->f->n_tensors;
        GM_TRY(file_read(d, all->at[i].name, gm_safetensors_parse, FILE_KEEP, NULL, err));
        all->at[i].last = d->f->n_tensors;
    }
    return shards_check(d->f, all, weight_map, index, err);
}

/* Reads model.safetensors.index.json; *found says whether it is there. */
static gm_status shards_read(folder *d, bool *found, gm_err *err)
{
    static const char INDEX[] = "model.safetensors.index.json";
    gm_mapfile map = {0};
    gm_err e = {0};
    json_t *root = NULL;
    shards all = {0};
    const char *index = NULL;
    *found = false;
    GM_TRY(path_join(d, GM_STR(INDEX), err));
    GM_TRY(gm_arena_copy(&d->f->arena, gm_strbuf_str(&d->file), &index, err));
    gm_status status = gm_mapfile_open(&map, index, &e);
    if (status == GM_E_IO && e.os == ENOENT) return GM_OK;
    if (status != GM_OK) return gm_fail(err, status, e.os, "%s", e.msg);
    *found = true;
    GM_TRY_DONE(gm_json_parse(&root, map.data, map.size, 0, index, err));
    GM_TRY_DONE(index_read(d, index, root, &all, err));
done:
    json_decref(root);
    gm_mem_free(all.at);
    gm_mapfile_close(&map);
    return status;
}

/* ---- weights ------------------------------------------------------------------------- */

/* transformers uses the embedding for the output where config.json says that they are tied, even
 * if an lm_head is stored; where they are not, there has to be one. */
static gm_status head_settle(gm_tensorfile *f, gm_err *err)
{
    bool tied = true;
    GM_TRY(gm_meta_bool(&f->meta, "gemmule.tied_embeddings", &tied, NULL, err));
    const gm_tensor *const head = gm_tensorfile_find(f, "output.weight");
    if (!tied && !head) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: config.json has tie_word_embeddings false, expected a tensor "
                       "lm_head.weight, and there is none",
                       f->path);
    }
    if (!tied || !head) return GM_OK;
    const size_t at = (size_t)(head - f->tensors);
    memmove(f->tensors + at, f->tensors + at + 1, (f->n_tensors - at - 1) * sizeof *f->tensors);
    f->n_tensors--;
    return GM_OK;
}

static gm_status weights_read(folder *d, gm_err *err)
{
    bool found = false;
    const unsigned keep = FILE_OPTIONAL | FILE_KEEP;
    GM_TRY(file_read(d, "model.safetensors", gm_safetensors_parse, keep, &found, err));
    if (!found) GM_TRY(shards_read(d, &found, err));
    if (!found) {
        return gm_fail(err, GM_E_IO, ENOENT,
                       "%s: has no weights, expected model.safetensors or "
                       "model.safetensors.index.json",
                       d->f->path);
    }
    return head_settle(d->f, err);
}

/* ---- the folder ---------------------------------------------------------------------- */

/* The last part of the path, where that is a name. */
static gm_status name_put(folder *d, gm_err *err)
{
    gm_str s = d->path;
    while (s.len && s.p[s.len - 1] == '/')
        s.len--;
    size_t begin = s.len;
    while (begin && s.p[begin - 1] != '/')
        begin--;
    const gm_str name = {s.p + begin, s.len - begin};
    return is_plain_name(name) ? gm_hf_put_str(d->f, "general.name", name, err) : GM_OK;
}

static gm_status folder_read(folder *d, gm_err *err)
{
    bool found = false;
    GM_TRY(name_put(d, err));
    GM_TRY(file_read(d, "config.json", gm_hf_config_parse, FILE_OPTIONAL, &found, err));
    if (!found) {
        return gm_fail(err, GM_E_IO, ENOENT,
                       "%s: is a folder without config.json, expected a Hugging Face folder",
                       d->path.p);
    }
    GM_TRY(
        file_read(d, "generation_config.json", gm_hf_generation_parse, FILE_OPTIONAL, NULL, err));
    GM_TRY(file_read(d, "chat_template.jinja", jinja_parse, FILE_OPTIONAL, NULL, err));
    GM_TRY(file_read(d, "chat_template.json", chat_json_parse, FILE_OPTIONAL, NULL, err));
    GM_TRY(tokenizer_read(d, err));
    return weights_read(d, err);
}

gm_status gm_hf_open(gm_tensorfile *f, const char *path, gm_err *err)
{
    folder d = {.f = f, .path = gm_str_c(path)};
    f->format = "Hugging Face safetensors";
    if (!f->path) GM_TRY(gm_arena_copy(&f->arena, d.path, &f->path, err));
    if (!f->meta.file) f->meta.file = f->path;
    const gm_status status = folder_read(&d, err);
    gm_strbuf_deinit(&d.file);
    return status;
}
