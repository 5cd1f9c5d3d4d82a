/* SPDX-License-Identifier: MIT */
#include "file/hf_meta.h"

static gm_status put(gm_tensorfile *f, const char *key, gm_metaval v, gm_err *err)
{
    if (gm_meta_find(&f->meta, key)) return GM_OK;
    v.key = gm_str_c(key);
    return gm_meta_add(&f->meta, &v, err);
}

gm_status gm_hf_put_u32(gm_tensorfile *f, const char *key, uint32_t value, gm_err *err)
{
    return put(f, key, (gm_metaval){.type = GM_META_U32, .n = 1, .u = value}, err);
}

gm_status gm_hf_put_f32(gm_tensorfile *f, const char *key, double value, gm_err *err)
{
    const gm_metaval v = {.type = GM_META_F32, .n = 1, .f = (double)(float)value};
    return put(f, key, v, err);
}

gm_status gm_hf_put_bool(gm_tensorfile *f, const char *key, bool value, gm_err *err)
{
    return put(f, key, (gm_metaval){.type = GM_META_BOOL, .n = 1, .u = value}, err);
}

gm_status gm_hf_put_str(gm_tensorfile *f, const char *key, gm_str value, gm_err *err)
{
    const char *copy = NULL;
    GM_TRY(gm_arena_copy(&f->arena, value, &copy, err));
    return put(f, key, (gm_metaval){.type = GM_META_STR, .n = 1, .s = {copy, value.len}}, err);
}

gm_status gm_hf_put_array(gm_tensorfile *f, const char *key, uint32_t elem, const void *at,
                          uint64_t n, gm_err *err)
{
    gm_metaval v = {.type = GM_META_ARRAY, .elem = elem, .n = n};
    if (elem == GM_META_STR)
        v.strs = at;
    else
        v.raw = at;
    return put(f, key, v, err);
}
