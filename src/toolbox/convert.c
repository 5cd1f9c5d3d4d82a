/* SPDX-License-Identifier: MIT */
/* A conversion is planned whole before anything is written: the source is opened
 * as a model, so that every tensor is known to be there in its right shape, each
 * gets a type, and the size of the result is a sum.
 *
 * The weights themselves are seen once, a chunk of rows at a time: expanded to
 * floats, looked at (a NaN in a model is found here, not by its users), and written
 * in the new type. A tensor that has the type already is copied as it is. Chunks
 * are small enough for the cache and pages of the source are given back behind
 * them, so that memory depends on the number of workers and not on the model.
 *
 * Norms become f32. Hugging Face stores them around 0, GGUF around 1, and the norm
 * of queries also takes up what an attention scale differs from the one that
 * readers derive: (w + offset) * ratio. */

#include "toolbox/convert.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/fp16.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "quant/quantise.h"
#include "toolbox/importance.h"

#define CHUNK (64 << 10) /* values: 256 KiB of floats, which an L2 cache holds */

struct gm_convert {
    gm_convert_opts opts;
    gm_model *model;
    gm_mix mix;
    gm_meta meta;
    gm_tensor *tensors;   /* of the result; those of model->file in the same order */
    uint64_t *units;      /* bytes of a row of the result                          */
    const float **weight; /* importance of columns, its mean 1; NULL: all alike     */
    gm_convert_info info;
    gm_modelwrite job;
    const char *path;
    gm_arena arena;
};

gm_convert_opts gm_convert_opts_default(void)
{
    return (gm_convert_opts){.size = sizeof(gm_convert_opts), .type = "balanced"};
}

/* ---- weights ------------------------------------------------------------------------------- */

/* The bits of the largest magnitude; more than those of infinity for a NaN. Integers, because the
 * order of bits is that of numbers, and signed ones, because every x86-64 compares four at once. */
static int32_t largest_bits(const float *x, size_t n)
{
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t bits = (int32_t)(gm_f32_bits(x[i]) & 0x7FFFFFFFu);
        most = bits > most ? bits : most;
    }
    return most;
}

/* Refuses values that are no numbers or that the type cannot hold, with the place of the first. */
static gm_status check_values(const gm_convert *c, const gm_tensor *t, const gm_qtype_info *type,
                              const float *x, uint64_t row, size_t n, gm_err *err)
{
    const float limit = gm_quantise_limit(type);
    if (largest_bits(x, n) <= (int32_t)gm_f32_bits(limit)) return GM_OK;
    size_t i = 0;
    while (fabsf(x[i]) <= limit)
        i++;
    const uint64_t cols = gm_tensor_cols(t);
    return gm_fail(err, GM_E_FORMAT, 0,
                   "%s: tensor %s has the value %g in row %" PRIu64 ", column %" PRIu64
                   ", expected numbers of at most %g, which is what %s holds",
                   c->model->file->path, t->name, (double)x[i], row + i / cols, i % cols,
                   (double)limit, type->name);
}

static bool is_query_norm(const char *name)
{
    return gm_str_ends(gm_str_c(name), GM_STR(".attn_q_norm.weight"));
}

static void change_norm(const gm_convert *c, const gm_tensor *t, float *x, size_t n)
{
    const float ratio = is_query_norm(t->name) ? gm_convert_query_ratio(&c->model->config) : 1;
    for (size_t i = 0; i < n; i++)
        x[i] = (x[i] + c->model->config.norm_offset) * ratio;
}

static gm_status fill_rows(const gm_convert *c, uint32_t tensor, uint64_t row, size_t n_rows,
                           float *x, uint8_t *out, gm_err *err)
{
    const gm_tensor *const from = &c->model->file->tensors[tensor];
    const gm_qtype_info *const type = c->tensors[tensor].type;
    const uint64_t row_size = gm_tensor_row_size(from);
    const size_t cols = (size_t)gm_tensor_cols(from), n = n_rows * cols;
    const uint8_t *const data = from->data + row * row_size;
    const gm_quantiser how = c->opts.plain ? GM_QUANTISE_NEAREST : GM_QUANTISE_FIT;
    gm_qtype_expand(from->type, data, n, x);
    if (from->n_dims == 1) change_norm(c, from, x, n);
    GM_TRY(check_values(c, from, type, x, row, n, err));
    if (from->type == type && from->n_dims > 1)
        memcpy(out, data, n_rows * row_size);
    else
        gm_quantise_rows(type, how, x, n_rows, cols, c->weight[tensor], out);
    gm_mapfile_forget(data, n_rows * row_size);
    return GM_OK;
}

static size_t chunk_rows(uint64_t cols)
{
    return cols < CHUNK ? (size_t)(CHUNK / cols) : 1;
}

static gm_status fill(void *ctx, const gm_slice *s, gm_err *err)
{
    const gm_convert *const c = ctx;
    const uint64_t unit = c->units[s->tensor];
    const size_t n_rows = (size_t)(s->size / unit);
    const size_t chunk = chunk_rows(gm_tensor_cols(&c->tensors[s->tensor]));
    for (size_t i = 0; i < n_rows; i += chunk) {
        const size_t n = n_rows - i < chunk ? n_rows - i : chunk;
        GM_TRY(fill_rows(c, s->tensor, s->off / unit + i, n, s->scratch, s->out + i * unit, err));
    }
    return GM_OK;
}

/* ---- the plan ------------------------------------------------------------------------------ */

/* The importance of a tensor's columns, brought to a mean of 1 and lifted by a hundredth, so that a
 * column that the text never used is not given up. */
static gm_status weight_make(gm_convert *c, uint32_t i, gm_err *err)
{
    const gm_tensor *const t = &c->tensors[i];
    const uint64_t cols = gm_tensor_cols(t);
    const float *const from = gm_importance_find(c->opts.importance, t->name, cols);
    double mean = 0;
    for (uint64_t k = 0; from && k < cols; k++)
        mean += (double)from[k] / (double)cols;
    if (!from || !(mean > 0 && isfinite(mean))) return GM_OK;
    float *w = NULL;
    GM_TRY(gm_arena_alloc(&c->arena, &w, cols, sizeof *w, "importance of columns", err));
    for (uint64_t k = 0; k < cols; k++)
        w[k] = (float)((double)from[k] / mean) + 0.01f;
    c->weight[i] = w;
    return GM_OK;
}

static bool is_head(const gm_convert *c, const gm_tensor *t)
{
    return t->name == c->model->tensors[c->model->head].name;
}

static gm_status plan_tensor(gm_convert *c, uint32_t i, gm_err *err)
{
    const gm_tensor *const from = &c->model->file->tensors[i];
    gm_tensor *const t = &c->tensors[i];
    bool fallback = false;
    *t = *from;
    t->data = NULL;
    t->type = gm_mix_type(&c->mix, from, c->model->config.n_layer, is_head(c, from), &fallback);
    uint64_t size = 0;
    if (!gm_qtype_row_size(t->type, gm_tensor_cols(t), &c->units[i]) ||
        !gm_size_mul(c->units[i], gm_tensor_rows(t), &size)) {
        return gm_fail(err, GM_E_TOOBIG, 0, "%s: tensor %s is too large", c->model->file->path,
                       from->name);
    }
    t->size = size;
    const uint64_t chunk = chunk_rows(gm_tensor_cols(t)) * gm_tensor_cols(t) * sizeof(float);
    if (chunk > c->job.scratch_size) c->job.scratch_size = (size_t)chunk;
    c->info.n_fallback += fallback;
    c->info.n_again += from->type->unpack && from->type != t->type;
    c->info.source_size += from->size;
    return weight_make(c, i, err);
}

static gm_status plan_tensors(gm_convert *c, gm_err *err)
{
    const uint32_t n = c->model->file->n_tensors;
    uint64_t n_weights = 0, size = 0;
    GM_TRY(gm_arena_alloc(&c->arena, &c->tensors, n, sizeof *c->tensors, "tensors", err));
    GM_TRY(gm_arena_alloc(&c->arena, &c->units, n, sizeof *c->units, "units of tensors", err));
    GM_TRY(gm_arena_alloc(&c->arena, &c->weight, n, sizeof *c->weight, "importance", err));
    for (uint32_t i = 0; i < n; i++) {
        GM_TRY(plan_tensor(c, i, err));
        n_weights += gm_tensor_rows(&c->tensors[i]) * gm_tensor_cols(&c->tensors[i]);
        size += c->tensors[i].size;
    }
    c->job.path = c->path;
    c->job.meta = &c->meta;
    c->job.tensors = c->tensors;
    c->job.units = c->units;
    c->job.n = n;
    c->job.n_threads = c->opts.n_threads;
    c->job.force = c->opts.force != 0;
    c->job.fill = fill;
    c->job.ctx = c;
    c->job.progress = c->opts.progress;
    c->job.progress_ctx = c->opts.progress_ctx;
    c->info.n_tensors = n;
    c->info.n_skipped = c->model->file->n_skipped;
    c->info.result_size = gm_modelwrite_size(&c->job);
    c->info.bits = 8 * (double)size / (double)n_weights;
    return GM_OK;
}

/* ---- the target ---------------------------------------------------------------------------- */

/* The target must not be a file that the source consists of. */
static gm_status check_apart(const gm_convert *c, gm_err *err)
{
    struct stat st;
    if (stat(c->path, &st) != 0) return GM_OK;
    const gm_tensorfile *const f = c->model->file;
    for (uint32_t i = 0; i < f->n_maps; i++) {
        if (f->maps[i].dev != (uint64_t)st.st_dev || f->maps[i].ino != (uint64_t)st.st_ino)
            continue;
        return gm_fail(err, GM_E_IO, 0, "%s: is part of the source, expected another name",
                       c->path);
    }
    return GM_OK;
}

static gm_status look_at_disk(gm_convert *c, gm_err *err)
{
    const char *const slash = strrchr(c->path, '/');
    gm_strbuf folder = {0};
    struct statvfs fs;
    gm_strbuf_put(&folder, slash ? (gm_str){c->path, (size_t)(slash - c->path) + 1} : GM_STR("."));
    gm_status status = gm_strbuf_status(&folder, err);
    if (status == GM_OK && statvfs(folder.p, &fs) != 0) {
        status =
            gm_fail(err, GM_E_IO, errno, "%s: cannot be written: %s", c->path, strerror(errno));
    } else if (status == GM_OK) {
        c->info.disk_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    }
    gm_strbuf_deinit(&folder);
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static gm_status convert_plan(gm_convert *c, const char *source, const char *path, gm_err *err)
{
    GM_TRY(gm_arena_copy(&c->arena, gm_str_c(path), &c->path, err));
    GM_TRY(gm_mix_find(&c->mix, c->opts.type, c->opts.head_type, err));
    GM_TRY(gm_model_open(&c->model, source, err));
    GM_TRY(check_apart(c, err));
    GM_TRY(gm_modelwrite_check(c->path, c->opts.force != 0, err));
    GM_TRY(look_at_disk(c, err));
    GM_TRY(gm_convert_meta(&c->meta, c->model, &c->mix, &c->arena, err));
    return plan_tensors(c, err);
}

gm_status gm_convert_open(gm_convert **out, const char *source, const char *path,
                          const gm_convert_opts *opts, gm_err *err)
{
    *out = NULL;
    gm_convert *c = NULL;
    GM_TRY(gm_mem_alloc(&c, 1, sizeof *c, "a conversion", err));
    c->opts = gm_convert_opts_default();
    if (opts) memcpy(&c->opts, opts, opts->size < sizeof c->opts ? opts->size : sizeof c->opts);
    gm_status status = GM_OK;
    if (!source || !path || !path[0] || !c->opts.type)
        status = gm_fail(err, GM_E_ARG, 0, "convert: a source, a target and a type are needed");
    else
        status = convert_plan(c, source, path, err);
    if (status == GM_OK)
        *out = c;
    else
        gm_convert_close(c);
    return status;
}

void gm_convert_describe(const gm_convert *c, gm_convert_info *info)
{
    const uint32_t size = info->size < sizeof *info ? info->size : (uint32_t)sizeof *info;
    memcpy(info, &c->info, size);
    info->size = size;
}

gm_status gm_convert_run(gm_convert *c, gm_err *err)
{
    return gm_modelwrite_run(&c->job, err);
}

void gm_convert_close(gm_convert *c)
{
    if (!c) return;
    gm_meta_deinit(&c->meta);
    gm_model_close(c->model);
    gm_arena_deinit(&c->arena);
    gm_mem_free(c);
}
