/* SPDX-License-Identifier: MIT */
#include "file/meta.h"

#include <float.h>
#include <math.h>

#include "base/fp16.h"
#include "base/mem.h"

typedef enum metakind { KIND_NONE, KIND_UINT, KIND_INT, KIND_FLOAT, KIND_BOOL } metakind;

/* kind and size are 0 where a value is not one number. */
static const struct metatype {
    const char *name;
    metakind kind;
    uint8_t size;
} types[] = {
    [GM_META_U8] = {"u8", KIND_UINT, 1},      [GM_META_I8] = {"i8", KIND_INT, 1},
    [GM_META_U16] = {"u16", KIND_UINT, 2},    [GM_META_I16] = {"i16", KIND_INT, 2},
    [GM_META_U32] = {"u32", KIND_UINT, 4},    [GM_META_I32] = {"i32", KIND_INT, 4},
    [GM_META_F32] = {"f32", KIND_FLOAT, 4},   [GM_META_BOOL] = {"bool", KIND_BOOL, 1},
    [GM_META_STR] = {"string", KIND_NONE, 0}, [GM_META_ARRAY] = {"array", KIND_NONE, 0},
    [GM_META_U64] = {"u64", KIND_UINT, 8},    [GM_META_I64] = {"i64", KIND_INT, 8},
    [GM_META_F64] = {"f64", KIND_FLOAT, 8},
};
#define N_TYPES (sizeof types / sizeof types[0])

static metakind type_kind(uint32_t type)
{
    return type < N_TYPES ? types[type].kind : KIND_NONE;
}

size_t gm_metatype_size(uint32_t type)
{
    return type < N_TYPES ? types[type].size : 0;
}

const char *gm_metatype_name(uint32_t type)
{
    return type < N_TYPES ? types[type].name : "unknown";
}

gm_status gm_meta_add(gm_meta *m, const gm_metaval *v, gm_err *err)
{
    GM_TRY(gm_mem_grow(&m->at, &m->cap, m->n + 1, sizeof *m->at, "metadata", err));
    m->at[m->n++] = *v;
    return GM_OK;
}

void gm_meta_deinit(gm_meta *m)
{
    gm_mem_free(m->at);
    *m = (gm_meta){0};
}

const gm_metaval *gm_meta_find(const gm_meta *m, const char *key)
{
    const gm_str wanted = gm_str_c(key);
    for (size_t i = 0; i < m->n; i++) {
        if (gm_str_eq(m->at[i].key, wanted)) return &m->at[i];
    }
    return NULL;
}

void gm_metaval_set(gm_metaval *v, uint32_t type, const uint8_t *raw)
{
    const size_t size = gm_metatype_size(type);
    uint64_t bits = 0;
    memcpy(&bits, raw, size);
    v->type = type;
    v->n = 1;
    /* An f64 needs no line: v->u and v->f share their bytes. */
    v->u = bits;
    if (type == GM_META_F32) v->f = (double)gm_f32_from_bits((uint32_t)bits);
    if (type_kind(type) == KIND_BOOL) v->u = bits != 0;
    if (type_kind(type) == KIND_INT) {
        const uint64_t sign = UINT64_C(1) << (8 * size - 1);
        v->i = (int64_t)((bits ^ sign) - sign);
    }
}

/* A value of any fixed-size type as a number. Integers past 2^53 are rounded. */
static double value_number(const gm_metaval *v)
{
    switch (type_kind(v->type)) {
    case KIND_FLOAT: return v->f;
    case KIND_INT: return (double)v->i;
    default: return (double)v->u;
    }
}

double gm_meta_elem(const gm_metaval *v, uint64_t i)
{
    gm_metaval elem;
    gm_metaval_set(&elem, v->elem, v->raw + i * gm_metatype_size(v->elem));
    return value_number(&elem);
}

static const gm_metaval *value_find(const gm_meta *m, const char *key, bool *found)
{
    const gm_metaval *const v = gm_meta_find(m, key);
    if (found) *found = v != NULL;
    return v;
}

static gm_status refuse_type(const gm_meta *m, const gm_metaval *v, const char *expected,
                             gm_err *err)
{
    const bool array = v->type == GM_META_ARRAY;
    return gm_fail(err, GM_E_FORMAT, 0, "%s: key %.*s has type %s%s, expected %s", m->file,
                   GM_STR_ARG(v->key), array ? "array of " : "",
                   gm_metatype_name(array ? v->elem : v->type), expected);
}

gm_status gm_meta_u32(const gm_meta *m, const char *key, uint32_t *out, bool *found, gm_err *err)
{
    const gm_metaval *const v = value_find(m, key, found);
    if (!v) return GM_OK;
    const metakind kind = type_kind(v->type);
    if (kind != KIND_UINT && kind != KIND_INT) return refuse_type(m, v, "an integer", err);
    const double x = value_number(v);
    if (x < 0 || x > (double)UINT32_MAX) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: key %s is %.0f, expected 0 to %u", m->file, key, x,
                       UINT32_MAX);
    }
    *out = (uint32_t)x;
    return GM_OK;
}

gm_status gm_meta_f32(const gm_meta *m, const char *key, float *out, bool *found, gm_err *err)
{
    const gm_metaval *const v = value_find(m, key, found);
    if (!v) return GM_OK;
    const metakind kind = type_kind(v->type);
    if (kind == KIND_NONE || kind == KIND_BOOL) return refuse_type(m, v, "a number", err);
    const double x = value_number(v);
    if (!(fabs(x) <= (double)FLT_MAX)) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: key %s is %g, expected a finite f32", m->file, key,
                       x);
    }
    *out = (float)x;
    return GM_OK;
}

gm_status gm_meta_bool(const gm_meta *m, const char *key, bool *out, bool *found, gm_err *err)
{
    const gm_metaval *const v = value_find(m, key, found);
    if (!v) return GM_OK;
    if (v->type != GM_META_BOOL) return refuse_type(m, v, "bool", err);
    *out = v->u != 0;
    return GM_OK;
}

gm_status gm_meta_str(const gm_meta *m, const char *key, gm_str *out, bool *found, gm_err *err)
{
    const gm_metaval *const v = value_find(m, key, found);
    if (!v) return GM_OK;
    if (v->type != GM_META_STR) return refuse_type(m, v, "string", err);
    *out = v->s;
    return GM_OK;
}
