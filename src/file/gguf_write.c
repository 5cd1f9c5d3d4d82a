/* SPDX-License-Identifier: MIT */
#include "file/gguf.h"

#include <errno.h>
#include <inttypes.h>

#include "base/fp16.h"
#include "base/mem.h"

/* Where the header goes; nowhere, to know its size. The first failure latches and later writes do nothing, so that the layout
 * below reads as a list of fields. */
typedef struct writer {
    FILE *out;
    const char *name;
    uint64_t size; /* written so far */
    gm_status status;
    gm_err *err;
} writer;

static void put(writer *w, const void *bytes, size_t size)
{
    if (w->status != GM_OK || size == 0) return;
    errno = 0;
    if (w->out && fwrite(bytes, 1, size, w->out) != size) {
        w->status =
            gm_fail(w->err, GM_E_IO, errno, "%s: cannot be written: %s", w->name, strerror(errno));
    }
    w->size += size;
}

static void put_u32(writer *w, uint32_t v)
{
    put(w, &v, sizeof v);
}

static void put_u64(writer *w, uint64_t v)
{
    put(w, &v, sizeof v);
}

static void put_str(writer *w, gm_str s)
{
    put_u64(w, s.len);
    put(w, s.p, s.len);
}

static void put_array(writer *w, const gm_metaval *v)
{
    put_u32(w, v->elem);
    put_u64(w, v->n);
    if (v->elem == GM_META_STR) {
        for (uint64_t i = 0; i < v->n; i++)
            put_str(w, v->strs[i]);
    } else {
        put(w, v->raw, (size_t)v->n * gm_metatype_size(v->elem));
    }
}

static void put_value(writer *w, const gm_metaval *v)
{
    put_str(w, v->key);
    put_u32(w, v->type);
    if (v->type == GM_META_ARRAY) {
        put_array(w, v);
    } else if (v->type == GM_META_STR) {
        put_str(w, v->s);
    } else if (v->type == GM_META_F32) {
        put_u32(w, gm_f32_bits((float)v->f));
    } else {
        /* The low bytes of an integer are the integer; u, i and f share theirs. */
        put(w, &v->u, gm_metatype_size(v->type));
    }
}

static void put_tensor(writer *w, const gm_tensor *t, uint64_t off)
{
    put_str(w, gm_str_c(t->name));
    put_u32(w, t->n_dims);
    for (uint32_t i = t->n_dims; i-- > 0;)
        put_u64(w, t->shape[i]);
    put_u32(w, (uint32_t)t->type->id);
    put_u64(w, off);
}

/* Refuses what a reader could not read back. */
static gm_status check_meta(const gm_meta *meta, const char *name, gm_err *err)
{
    for (size_t i = 0; i < meta->n; i++) {
        const gm_metaval *const v = &meta->at[i];
        const uint32_t type = v->type == GM_META_ARRAY ? v->elem : v->type;
        if (type == GM_META_STR || gm_metatype_size(type) != 0) continue;
        return gm_fail(err, GM_E_ARG, 0, "%s: key %.*s has %s type %" PRIu32 " (%s)", name,
                       GM_STR_ARG(v->key), v->type == GM_META_ARRAY ? "element" : "value", type,
                       gm_metatype_name(type));
    }
    uint32_t align = GM_GGUF_ALIGNMENT;
    GM_TRY(gm_meta_u32(meta, "general.alignment", &align, NULL, err));
    if (align == GM_GGUF_ALIGNMENT) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0,
                   "%s: key general.alignment is %" PRIu32 ", expected %d as files are written",
                   name, align, GM_GGUF_ALIGNMENT);
}

static void put_header(writer *w, const gm_meta *meta, const gm_tensors *tensors)
{
    static const uint8_t zeros[GM_GGUF_ALIGNMENT] = {0};
    put(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, tensors->n);
    put_u64(w, meta->n);
    for (size_t i = 0; i < meta->n; i++)
        put_value(w, &meta->at[i]);
    uint64_t off = 0;
    for (uint32_t i = 0; i < tensors->n; i++) {
        put_tensor(w, &tensors->at[i], off);
        off += tensors->at[i].size + gm_gguf_pad(tensors->at[i].size);
    }
    put(w, zeros, gm_gguf_pad(w->size));
}

gm_status gm_gguf_write_header(FILE *out, const gm_meta *meta, const gm_tensors *tensors,
                               const char *name, gm_err *err)
{
    GM_TRY(check_meta(meta, name, err));
    writer w = {.out = out, .name = name, .err = err};
    put_header(&w, meta, tensors);
    return w.status;
}

uint64_t gm_gguf_header_size(const gm_meta *meta, const gm_tensors *tensors)
{
    writer w = {0};
    put_header(&w, meta, tensors);
    return w.size;
}

size_t gm_gguf_pad(uint64_t size)
{
    return (size_t)(-size % GM_GGUF_ALIGNMENT);
}

uint32_t gm_gguf_file_type(gm_qtype type)
{
    static const uint8_t numbers[] = {
        [GM_QTYPE_F32] = 0,   [GM_QTYPE_F16] = 1,     [GM_QTYPE_BF16] = 32,   [GM_QTYPE_Q8_0] = 7,
        [GM_QTYPE_Q4_0] = 2,  [GM_QTYPE_Q4_1] = 3,    [GM_QTYPE_Q5_0] = 8,    [GM_QTYPE_Q5_1] = 9,
        [GM_QTYPE_Q2_K] = 10, [GM_QTYPE_Q3_K] = 11,   [GM_QTYPE_Q4_K] = 14,   [GM_QTYPE_Q5_K] = 16,
        [GM_QTYPE_Q6_K] = 18, [GM_QTYPE_IQ4_NL] = 25, [GM_QTYPE_IQ4_XS] = 30,
    };
    return numbers[type];
}
