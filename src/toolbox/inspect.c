/* SPDX-License-Identifier: MIT */
/* Looking into a model file. Everything shown is turned into text here, once, so
 * that bytes of a file can neither break a terminal nor a line: control characters
 * are written as C escapes, bytes that are not UTF-8 as U+FFFD, and what is too
 * long ends in "...". Memory is not counted by a formula of its own: the engine's
 * page plan and the backend's kv_size_of say what an engine would take. */

#include "gemmule_tools.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/place.h"

struct gm_modelfile {
    gm_tensorfile *file;
};

gm_status gm_modelfile_open(gm_modelfile **out, const char *path, gm_err *err)
{
    *out = NULL;
    gm_modelfile *f = NULL;
    GM_TRY(gm_mem_alloc(&f, 1, sizeof *f, "an open model file", err));
    const gm_status status = gm_tensorfile_open(&f->file, path, err);
    if (status == GM_OK)
        *out = f;
    else
        gm_modelfile_close(f);
    return status;
}

void gm_modelfile_close(gm_modelfile *f)
{
    if (!f) return;
    gm_tensorfile_close(f->file);
    gm_mem_free(f);
}

const char *gm_modelfile_format(const gm_modelfile *f)
{
    return f->file->format;
}

/* ---- values as text -------------------------------------------------------------------- */

#define SHOWN_ELEMENTS 8 /* of an array: enough to recognise it */

/* Text of a bounded length: what does not fit any more is left out and "..." says so. */
typedef struct clip {
    char *p;
    size_t len, cap;
    bool cut;
} clip;

static void clip_put(clip *c, const char *text, size_t n)
{
    c->cut = c->cut || n > c->cap - c->len - sizeof "...";
    if (c->cut) return;
    memcpy(c->p + c->len, text, n);
    c->len += n;
}

static void clip_end(clip *c)
{
    memcpy(c->p + c->len, c->cut ? "..." : "", c->cut ? sizeof "..." : 1);
}

static void clip_char(clip *c, uint32_t cp, const char *bytes, size_t n)
{
    char escape[8];
    if (cp == '\n') {
        clip_put(c, "\\n", 2);
    } else if (cp == '\t') {
        clip_put(c, "\\t", 2);
    } else if (cp == '\\') {
        clip_put(c, "\\\\", 2);
    } else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) {
        clip_put(c, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04" PRIx32, cp & 0xffu));
    } else {
        clip_put(c, bytes, n);
    }
}

static void clip_text(clip *c, gm_str s)
{
    for (size_t i = 0, n = 0; i < s.len && !c->cut; i += n ? n : 1) {
        uint32_t cp = 0;
        n = gm_utf8_read(s.p + i, s.len - i, &cp);
        if (n)
            clip_char(c, cp, s.p + i, n);
        else
            clip_put(c, GM_UTF8_REPLACEMENT_STR, 3);
    }
}

static void clip_number(clip *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void clip_number(clip *c, const char *fmt, ...)
{
    char text[64];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    clip_put(c, text, (size_t)n);
}

static void clip_scalar(clip *c, const gm_metaval *v)
{
    switch (v->type) {
    case GM_META_U8:
    case GM_META_U16:
    case GM_META_U32:
    case GM_META_U64: clip_number(c, "%" PRIu64, v->u); break;
    case GM_META_I8:
    case GM_META_I16:
    case GM_META_I32:
    case GM_META_I64: clip_number(c, "%" PRId64, v->i); break;
    case GM_META_F32: clip_number(c, "%.7g", v->f); break;
    case GM_META_F64: clip_number(c, "%.15g", v->f); break;
    case GM_META_BOOL: clip_number(c, "%s", v->u ? "true" : "false"); break;
    case GM_META_STR: clip_text(c, v->s); break;
    default: break;
    }
}

static void clip_element(clip *c, const gm_metaval *v, uint64_t i)
{
    if (v->elem == GM_META_STR) {
        clip_put(c, "\"", 1);
        clip_text(c, v->strs[i]);
        clip_put(c, "\"", 1);
        return;
    }
    gm_metaval one = {.n = 1};
    gm_metaval_set(&one, v->elem, v->raw + i * gm_metatype_size(v->elem));
    clip_scalar(c, &one);
}

static void clip_array(clip *c, const gm_metaval *v)
{
    clip_put(c, "[", 1);
    for (uint64_t i = 0; i < v->n && i < SHOWN_ELEMENTS; i++) {
        if (i) clip_put(c, ", ", 2);
        clip_element(c, v, i);
    }
    clip_put(c, v->n > SHOWN_ELEMENTS ? ", ...]" : "]", v->n > SHOWN_ELEMENTS ? 6 : 1);
}

static const char *type_name(const gm_metaval *v)
{
    static const char *const arrays[] = {
        [GM_META_U8] = "array of u8",      [GM_META_I8] = "array of i8",
        [GM_META_U16] = "array of u16",    [GM_META_I16] = "array of i16",
        [GM_META_U32] = "array of u32",    [GM_META_I32] = "array of i32",
        [GM_META_F32] = "array of f32",    [GM_META_BOOL] = "array of bool",
        [GM_META_STR] = "array of string", [GM_META_ARRAY] = "array of array",
        [GM_META_U64] = "array of u64",    [GM_META_I64] = "array of i64",
        [GM_META_F64] = "array of f64",
    };
    if (v->type != GM_META_ARRAY) return gm_metatype_name(v->type);
    return v->elem < sizeof arrays / sizeof arrays[0] ? arrays[v->elem] : "array";
}

gm_status gm_modelfile_key(const gm_modelfile *f, size_t i, gm_keyinfo *info)
{
    const gm_meta *const meta = &f->file->meta;
    if (i >= meta->n) return GM_E_ARG;
    const gm_metaval *const v = &meta->at[i];
    gm_keyinfo full = {.size = info->size,
                       .key = v->key.p,
                       .key_len = v->key.len,
                       .type = type_name(v),
                       .n = v->n};
    clip text = {.p = full.value, .cap = sizeof full.value};
    if (v->type == GM_META_ARRAY)
        clip_array(&text, v);
    else
        clip_scalar(&text, v);
    clip_end(&text);
    memcpy(info, &full, info->size < sizeof full ? info->size : sizeof full);
    return GM_OK;
}

/* ---- tensors and memory ---------------------------------------------------------------- */

gm_status gm_modelfile_tensor(const gm_modelfile *f, size_t i, gm_tensorinfo *info)
{
    if (i >= f->file->n_tensors) return GM_E_ARG;
    const gm_tensor *const t = &f->file->tensors[i];
    gm_tensorinfo full = {.size = info->size,
                          .n_dims = t->n_dims,
                          .name = t->name,
                          .type = t->type->name,
                          .bytes = t->size};
    memcpy(full.shape, t->shape, sizeof full.shape);
    memcpy(info, &full, info->size < sizeof full ? info->size : sizeof full);
    return GM_OK;
}

uint32_t gm_modelfile_skipped(const gm_modelfile *f, uint64_t *bytes)
{
    if (bytes) *bytes = f->file->size_skipped;
    return f->file->n_skipped;
}

uint64_t gm_model_kv_size(const gm_model *m, uint32_t n_ctx)
{
    gm_engine_opts opts = gm_engine_opts_default();
    opts.n_ctx = n_ctx;
    uint64_t bytes = 0;
    return gm_place_kv_size(m, &opts, &bytes, NULL) == GM_OK ? bytes : UINT64_MAX;
}

gm_status gm_model_plan_text(const gm_model *m, char **text, gm_err *err)
{
    *text = NULL;
    gm_strbuf out = {0};
    gm_plan_print(&m->plan, &out);
    const gm_status status = gm_strbuf_status(&out, err);
    if (status == GM_OK)
        *text = out.p;
    else
        gm_strbuf_deinit(&out);
    return status;
}

void gm_text_free(char *text)
{
    gm_mem_free(text);
}
