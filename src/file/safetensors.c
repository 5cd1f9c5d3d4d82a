/* SPDX-License-Identifier: MIT */

/* One safetensors file:
 *
 *     8 bytes   n, little-endian
 *     n bytes   JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end)}, ...}
 *     the rest  data; offsets count from here
 *
 * Text tensors become views under GGUF's names. Data of an odd-length header are
 * not aligned, which no reader of a gm_tensor may rely on anyway. */

#include <stdio.h>
#include <stdlib.h>

#include "base/fp16.h"
#include "base/mem.h"
#include "file/hf.h"
#include "file/hf_json.h"

/* The format's own limit on n. */
#define HEADER_MAX 100000000u
#define LAYER_MAX  1024u

/* ---- names --------------------------------------------------------------------------- */

typedef struct rename_row {
    gm_str hf;
    const char *gguf;
} rename_row;

#define ROW(hf, gguf)              \
    {                              \
        {hf, sizeof(hf) - 1}, gguf \
    }

static const rename_row TOP[] = {
    ROW("embed_tokens.weight", "token_embd.weight"),
    ROW("norm.weight", "output_norm.weight"),
    ROW("lm_head.weight", "output.weight"),
};

static const rename_row LAYER[] = {
    ROW("input_layernorm.weight", "attn_norm.weight"),
    ROW("self_attn.q_proj.weight", "attn_q.weight"),
    ROW("self_attn.k_proj.weight", "attn_k.weight"),
    ROW("self_attn.v_proj.weight", "attn_v.weight"),
    ROW("self_attn.o_proj.weight", "attn_output.weight"),
    ROW("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ROW("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ROW("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ROW("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    ROW("mlp.gate_proj.weight", "ffn_gate.weight"),
    ROW("mlp.up_proj.weight", "ffn_up.weight"),
    ROW("mlp.down_proj.weight", "ffn_down.weight"),
    ROW("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
};

static const char *row_find(const rename_row *rows, size_t n, gm_str name)
{
    for (size_t i = 0; i < n; i++) {
        if (gm_str_eq(rows[i].hf, name)) return rows[i].gguf;
    }
    return NULL;
}

static bool prefix_strip(gm_str *s, gm_str prefix)
{
    if (!gm_str_starts(*s, prefix)) return false;
    *s = (gm_str){s->p + prefix.len, s->len - prefix.len};
    return true;
}

/* Takes "17." off the front: a layer's number as Python writes it. */
static bool layer_take(gm_str *s, uint32_t *layer)
{
    size_t i = 0;
    uint32_t v = 0;
    for (; i < s->len && s->p[i] >= '0' && s->p[i] <= '9' && v < LAYER_MAX; i++)
        v = v * 10 + (uint32_t)(s->p[i] - '0');
    if (i == 0 || i == s->len || s->p[i] != '.' || v >= LAYER_MAX) return false;
    if (i > 1 && s->p[0] == '0') return false;
    *s = (gm_str){s->p + i + 1, s->len - i - 1};
    *layer = v;
    return true;
}

gm_hf_name gm_hf_tensor_name(gm_str hf, char out[GM_HF_NAME_MAX])
{
    out[0] = '\0';
    if (gm_tensorfile_is_vision(hf)) return GM_HF_NAME_VISION;
    if (gm_str_ends(hf, GM_STR(".inv_freq"))) return GM_HF_NAME_IGNORED;
    prefix_strip(&hf, GM_STR("model."));
    prefix_strip(&hf, GM_STR("language_model."));
    prefix_strip(&hf, GM_STR("model."));

    const char *gguf = row_find(TOP, sizeof TOP / sizeof TOP[0], hf);
    if (gguf) {
        snprintf(out, GM_HF_NAME_MAX, "%s", gguf);
        return GM_HF_NAME_TEXT;
    }
    uint32_t layer = 0;
    if (prefix_strip(&hf, GM_STR("layers.")) && layer_take(&hf, &layer))
        gguf = row_find(LAYER, sizeof LAYER / sizeof LAYER[0], hf);
    if (!gguf) return GM_HF_NAME_UNKNOWN;
    snprintf(out, GM_HF_NAME_MAX, "blk.%u.%s", layer, gguf);
    return GM_HF_NAME_TEXT;
}

/* ---- the header ---------------------------------------------------------------------- */

typedef struct entry {
    const char *hf; /* the name in the file */
    json_t *info;
    uint64_t begin, end;
} entry;

typedef struct reader {
    gm_tensorfile *f;
    const char *name;
    const uint8_t *data; /* what offsets count from */
    uint64_t size;
    entry *entries; /* gm_mem memory, sorted by offset */
    size_t n;
} reader;

static gm_status offsets_read(const reader *r, entry *e, gm_err *err)
{
    const json_t *const offsets = json_object_get(e->info, "data_offsets");
    const json_t *const begin = json_array_get(offsets, 0);
    const json_t *const end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: tensor %.80s has no data_offsets, expected [begin, end]", r->name,
                       e->hf);
    }
    const json_int_t b = json_integer_value(begin);
    const json_int_t z = json_integer_value(end);
    if (b < 0 || z < b || (uint64_t)z > r->size) {
        return gm_fail(
            err, GM_E_FORMAT, 0,
            "%s: tensor %.80s has the data_offsets [%lld, %lld], expected a range within "
            "the file's %llu bytes of data",
            r->name, e->hf, (long long)b, (long long)z, (unsigned long long)r->size);
    }
    e->begin = (uint64_t)b;
    e->end = (uint64_t)z;
    return GM_OK;
}

static int entry_cmp(const void *a, const void *b)
{
    const entry *const x = a;
    const entry *const y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static gm_status entries_read(reader *r, json_t *header, gm_err *err)
{
    const char *key;
    json_t *info;
    GM_TRY(gm_mem_alloc(&r->entries, json_object_size(header), sizeof *r->entries,
                        "the list of tensors", err));
    json_object_foreach(header, key, info)
    {
        if (strcmp(key, "__metadata__") == 0) continue;
        entry *const e = &r->entries[r->n++];
        *e = (entry){.hf = key, .info = info};
        GM_TRY(offsets_read(r, e, err));
    }
    qsort(r->entries, r->n, sizeof *r->entries, entry_cmp);
    for (size_t i = 1; i < r->n; i++) {
        if (r->entries[i].begin >= r->entries[i - 1].end) continue;
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: tensor %.80s begins at %llu, inside tensor %.80s, which ends at %llu",
                       r->name, r->entries[i].hf, (unsigned long long)r->entries[i].begin,
                       r->entries[i - 1].hf, (unsigned long long)r->entries[i - 1].end);
    }
    return GM_OK;
}

/* ---- the tensors --------------------------------------------------------------------- */

static gm_status dtype_read(const reader *r, const entry *e, gm_tensor *t, gm_err *err)
{
    static const struct {
        gm_str name;
        gm_qtype type;
    } DTYPE[] = {
        {{"BF16", 4}, GM_QTYPE_BF16},
        {{"F16", 3}, GM_QTYPE_F16},
        {{"F32", 3}, GM_QTYPE_F32},
    };
    const json_t *const j = json_object_get(e->info, "dtype");
    const gm_str dtype = json_is_string(j) ? gm_json_text(j) : GM_STR("missing");
    for (size_t i = 0; i < sizeof DTYPE / sizeof DTYPE[0]; i++) {
        if (gm_str_eq(dtype, DTYPE[i].name)) t->type = gm_qtype_find(DTYPE[i].type);
    }
    if (t->type) return GM_OK;
    return gm_fail(err, GM_E_UNSUP, 0,
                   "%s: tensor %.80s has dtype %.*s, which is not supported; expected BF16, F16 or "
                   "F32",
                   r->name, e->hf, GM_STR_ARG(dtype));
}

/* Reads the shape and checks that it takes exactly the bytes that the offsets give. */
static gm_status shape_read(const reader *r, const entry *e, gm_tensor *t, gm_err *err)
{
    const json_t *const shape = json_object_get(e->info, "shape");
    const size_t n = json_array_size(shape);
    if (n < 1 || n > GM_TENSOR_DIMS) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: tensor %.80s has a shape of %zu dimensions, expected 1 to %d", r->name,
                       e->hf, n, GM_TENSOR_DIMS);
    }
    uint64_t size = t->type->block_size;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        const json_t *const dim = json_array_get(shape, i);
        const json_int_t v = json_integer_value(dim);
        ok = json_is_integer(dim) && v > 0 && gm_size_mul(size, (uint64_t)v, &size);
        t->shape[i] = (uint64_t)v;
    }
    t->n_dims = (uint32_t)n;
    t->size = e->end - e->begin;
    if (ok && size == t->size) return GM_OK;
    return gm_fail(
        err, GM_E_FORMAT, 0,
        "%s: tensor %.80s has %llu bytes of data, expected the product of its shape, all "
        "of it positive, times %u",
        r->name, e->hf, (unsigned long long)t->size, t->type->block_size);
}

static gm_status tensor_add(const reader *r, const entry *e, const char *gguf, gm_err *err)
{
    gm_tensor t = {.data = r->data + e->begin};
    GM_TRY(dtype_read(r, e, &t, err));
    GM_TRY(shape_read(r, e, &t, err));
    GM_TRY(gm_arena_copy(&r->f->arena, gm_str_c(gguf), &t.name, err));
    return gm_tensorfile_add(r->f, &t, err);
}

static gm_status tensors_add(const reader *r, gm_err *err)
{
    for (size_t i = 0; i < r->n; i++) {
        const entry *const e = &r->entries[i];
        char gguf[GM_HF_NAME_MAX];
        switch (gm_hf_tensor_name(gm_str_c(e->hf), gguf)) {
        case GM_HF_NAME_TEXT: GM_TRY(tensor_add(r, e, gguf, err)); break;
        case GM_HF_NAME_VISION:
            r->f->n_skipped++;
            r->f->size_skipped += e->end - e->begin;
            break;
        case GM_HF_NAME_IGNORED: break;
        case GM_HF_NAME_UNKNOWN:
            return gm_fail(err, GM_E_UNSUP, 0,
                           "%s: tensor %.120s is unknown, expected only tensors of Gemma 3",
                           r->name, e->hf);
        }
    }
    return GM_OK;
}

/* Bytes behind the last tensor mean that the header's length, and so every place, is wrong. */
static gm_status rest_refuse(const reader *r, gm_err *err)
{
    const uint64_t end = r->n ? r->entries[r->n - 1].end : 0;
    if (end == r->size) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0,
                   "%s: its tensors end at byte %llu of the data, expected its end, byte %llu",
                   r->name, (unsigned long long)end, (unsigned long long)r->size);
}

/* Two names of one file, or the same name in two shards, may mean the same tensor. */
static gm_status twins_refuse(const reader *r, gm_err *err)
{
    const gm_tensorfile *const f = r->f;
    gm_str *names = NULL;
    GM_TRY(gm_mem_alloc(&names, f->n_tensors, sizeof *names, "names of tensors", err));
    for (uint32_t i = 0; i < f->n_tensors; i++)
        names[i] = gm_str_c(f->tensors[i].name);
    const gm_str *const twin = gm_names_find_twin(names, f->n_tensors);
    gm_status status = GM_OK;
    if (twin) {
        status = gm_fail(err, GM_E_FORMAT, 0, "%s: tensor %.*s (in GGUF's words) is there twice",
                         r->name, GM_STR_ARG(*twin));
    }
    gm_mem_free(names);
    return status;
}

gm_status gm_safetensors_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                               gm_err *err)
{
    const uint64_t n = size >= 8 ? gm_read_u64(data) : 0;
    if (size < 8 || n > size - 8 || n > HEADER_MAX) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: is %zu bytes long and says that its header is %llu, expected a "
                       "safetensors file",
                       name, size, (unsigned long long)n);
    }
    json_t *header = NULL;
    gm_status status = GM_OK;
    reader r = {.f = f, .name = name, .data = data + 8 + n, .size = size - 8 - n};
    GM_TRY(gm_json_parse(&header, data + 8, (size_t)n, 0, name, err));
    GM_TRY_DONE(entries_read(&r, header, err));
    GM_TRY_DONE(tensors_add(&r, err));
    GM_TRY_DONE(twins_refuse(&r, err));
    GM_TRY_DONE(rest_refuse(&r, err));
done:
    gm_mem_free(r.entries);
    json_decref(header);
    return status;
}
