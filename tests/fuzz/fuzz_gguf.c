/* SPDX-License-Identifier: MIT */
/* A GGUF file. A second "GGUF" in the input begins the second part of a split model. */
#include "file/gguf.h"
#include "fuzz/fuzz.h"

/* Where the second part begins; size where there is none. */
static size_t second_part(const uint8_t *data, size_t size)
{
    for (size_t i = 4; i + 4 <= size; i++) {
        if (gm_gguf_is(data + i, size - i)) return i;
    }
    return size;
}

/* Reads every value the way its users do. */
static void read_values(const gm_meta *meta)
{
    for (size_t i = 0; i < meta->n; i++) {
        const gm_metaval *const v = &meta->at[i];
        double sum = 0;
        for (uint64_t k = 0; v->type == GM_META_ARRAY && k < v->n; k++)
            sum += v->elem == GM_META_STR ? (double)v->strs[k].len : gm_meta_elem(v, k);
        FUZZ_CHECK(gm_metatype_name(v->type) && (v->n == 1 || v->type == GM_META_ARRAY));
        if (v->key.len >= 64 || (v->key.len && memchr(v->key.p, 0, v->key.len))) continue;
        char key[64] = "";
        uint32_t u = 0;
        float f = 0;
        bool b = false;
        gm_str s = {0};
        gm_err err = {0};
        if (v->key.len) memcpy(key, v->key.p, v->key.len);
        (void)fuzz_ok(gm_meta_u32(meta, key, &u, NULL, &err), &err);
        (void)fuzz_ok(gm_meta_f32(meta, key, &f, NULL, &err), &err);
        (void)fuzz_ok(gm_meta_bool(meta, key, &b, NULL, &err), &err);
        (void)fuzz_ok(gm_meta_str(meta, key, &s, NULL, &err), &err);
        (void)sum;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_err err = {0};
    gm_tensorfile *const f = fuzz_file();
    const size_t cut = second_part(data, size);
    if (fuzz_ok(gm_gguf_parse(f, data, cut, "fuzz", &err), &err)) {
        read_values(&f->meta);
        if (cut == size || fuzz_ok(gm_gguf_parse(f, data + cut, size - cut, "part 2", &err), &err))
            fuzz_tensors_check(f, data, size);
    }
    gm_tensorfile_close(f);
    return 0;
}
