/* SPDX-License-Identifier: MIT */
#include "file/gguf.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/fp16.h"
#include "base/mem.h"

/* A GGUF file is
 *
 *     "GGUF"  version u32  n_tensors u64  n_keys u64
 *     n_keys    x { key string, type u32, value }
 *     n_tensors x { name string, n_dims u32, dims u64[n_dims], type u32, offset u64 }
 *     padding to the alignment
 *     data, in which the offsets count
 *
 * with strings as u64 length and bytes, arrays as u32 type, u64 count and the
 * elements. Every read goes through one cursor, which either has the bytes or
 * writes the sentence, so no line below can step past the end. Before anything
 * is allocated by a count, the count is held against the bytes that are left:
 * memory stays within a small multiple of the file's size.
 *
 * The tensor table is read whole before any of it counts, since offsets mean
 * nothing until its end is known. llama.cpp wants the data in the table's order
 * without gaps; here any order will do as long as no two tensors share a byte. */

#define HEADER_SIZE     24
#define KEY_SIZE_MIN    13 /* an empty key, its type, a one-byte value            */
#define TENSOR_SIZE_MIN 32 /* an empty name, n_dims, one dimension, type, offset  */
#define STR_SIZE_MIN    8
#define NAME_LEN_MAX    127

/* The bytes still unread, and what they belong to, for the sentence when they run out. */
typedef struct cursor {
    const uint8_t *p, *end;
    const char *file;
    const char *kind; /* "key" or "tensor"              */
    uint64_t index;   /* which one, from 0              */
    gm_str name;      /* "its name" until that was read */
    gm_err *err;
} cursor;

static size_t cursor_left(const cursor *c)
{
    return (size_t)(c->end - c->p);
}

static gm_status take(cursor *c, uint64_t size, const uint8_t **out)
{
    if (size > cursor_left(c)) {
        return gm_fail(c->err, GM_E_FORMAT, 0,
                       "%s: ends inside %s %" PRIu64 " (%.*s): it goes on for %" PRIu64
                       " bytes and %zu are left",
                       c->file, c->kind, c->index, GM_STR_ARG(c->name), size, cursor_left(c));
    }
    *out = c->p;
    c->p += size;
    return GM_OK;
}

static gm_status take_u32(cursor *c, uint32_t *out)
{
    const uint8_t *p = NULL;
    GM_TRY(take(c, sizeof *out, &p));
    *out = gm_read_u32(p);
    return GM_OK;
}

static gm_status take_u64(cursor *c, uint64_t *out)
{
    const uint8_t *p = NULL;
    GM_TRY(take(c, sizeof *out, &p));
    *out = gm_read_u64(p);
    return GM_OK;
}

static gm_status take_str(cursor *c, gm_str *out)
{
    uint64_t len = 0;
    const uint8_t *p = NULL;
    GM_TRY(take_u64(c, &len));
    GM_TRY(take(c, len, &p));
    *out = (gm_str){(const char *)p, (size_t)len};
    return GM_OK;
}

/* Begins the i-th key or tensor, which opens with its name. */
static gm_status take_name(cursor *c, uint64_t i, gm_str *out)
{
    c->index = i;
    c->name = GM_STR("its name");
    GM_TRY(take_str(c, out));
    c->name = *out;
    return GM_OK;
}

/* Refuses a number of keys or tensors that the rest of the file cannot hold. */
static gm_status check_count(const cursor *c, uint64_t n, size_t size_min)
{
    if (n <= cursor_left(c) / size_min) return GM_OK;
    return gm_fail(c->err, GM_E_FORMAT, 0,
                   "%s: claims %" PRIu64 " %ss, and the %zu bytes left hold at most %zu", c->file,
                   n, c->kind, cursor_left(c), cursor_left(c) / size_min);
}

static gm_status refuse_value(const cursor *c, gm_status code, const char *what, uint32_t type)
{
    return gm_fail(c->err, code, 0, "%s: key %.*s has %s %" PRIu32 " (%s), expected 0 to 12%s",
                   c->file, GM_STR_ARG(c->name), what, type, gm_metatype_name(type),
                   type == GM_META_ARRAY ? " but for 9: arrays in arrays are not supported" : "");
}

static gm_status take_array(cursor *c, gm_arena *arena, gm_metaval *v)
{
    GM_TRY(take_u32(c, &v->elem));
    GM_TRY(take_u64(c, &v->n));
    if (v->elem == GM_META_ARRAY) return refuse_value(c, GM_E_UNSUP, "element type", v->elem);
    const size_t size = v->elem == GM_META_STR ? STR_SIZE_MIN : gm_metatype_size(v->elem);
    if (size == 0) return refuse_value(c, GM_E_FORMAT, "element type", v->elem);
    if (v->n > cursor_left(c) / size) {
        return gm_fail(c->err, GM_E_FORMAT, 0,
                       "%s: key %.*s claims %" PRIu64
                       " elements of %s, and the %zu bytes left hold at most %zu",
                       c->file, GM_STR_ARG(c->name), v->n, gm_metatype_name(v->elem),
                       cursor_left(c), cursor_left(c) / size);
    }
    if (v->elem != GM_META_STR) return take(c, v->n * size, &v->raw);

    gm_str *strs = NULL;
    GM_TRY(gm_arena_alloc(arena, &strs, v->n, sizeof *strs, "an array of strings", c->err));
    for (uint64_t i = 0; i < v->n; i++)
        GM_TRY(take_str(c, &strs[i]));
    v->strs = strs;
    return GM_OK;
}

static gm_status take_value(cursor *c, gm_arena *arena, gm_metaval *v)
{
    GM_TRY(take_u32(c, &v->type));
    if (v->type == GM_META_ARRAY) return take_array(c, arena, v);
    v->n = 1;
    if (v->type == GM_META_STR) return take_str(c, &v->s);
    const size_t size = gm_metatype_size(v->type);
    if (size == 0) return refuse_value(c, GM_E_FORMAT, "value type", v->type);
    const uint8_t *raw = NULL;
    GM_TRY(take(c, size, &raw));
    gm_metaval_set(v, v->type, raw);
    return GM_OK;
}

/* A line of the tensor table. t has no name until the tensor is listed; its type is NULL and its
 * size 0 for a vision tensor of a type that is not supported. */
typedef struct entry {
    gm_str name;
    gm_tensor t;
    uint64_t off; /* in the data */
} entry;

/* One file on its way into f. */
typedef struct part {
    gm_tensorfile *f;
    const uint8_t *data;
    size_t size;
    cursor c;
    uint64_t n_keys, n_entries;
    gm_meta *meta;   /* f's for the first part, else `unkept`       */
    gm_arena *arena; /* likewise f's or `scratch`: arrays of strings */
    gm_meta unkept;
    gm_arena scratch; /* freed when the part is done                 */
    uint32_t align;
    entry *entries;
} part;

static gm_status read_header(part *p)
{
    cursor *const c = &p->c;
    if (!gm_gguf_is(p->data, p->size)) {
        return gm_fail(c->err, GM_E_FORMAT, 0,
                       "%s: is no GGUF file: its %zu bytes do not begin with \"GGUF\"", c->file,
                       p->size);
    }
    if (p->size < HEADER_SIZE) {
        return gm_fail(c->err, GM_E_FORMAT, 0,
                       "%s: is %zu bytes long, expected at least the %d of a GGUF header", c->file,
                       p->size, HEADER_SIZE);
    }
    const uint32_t version = gm_read_u32(p->data + 4);
    if (version == 1) {
        return gm_fail(c->err, GM_E_UNSUP, 0,
                       "%s: is GGUF version 1, which is long out of use; expected 2 or 3", c->file);
    }
    if (version != 0 && (version & 0xFFFF) == 0) {
        return gm_fail(c->err, GM_E_UNSUP, 0,
                       "%s: is a big-endian GGUF file (version %" PRIu32
                       "), expected a little-endian one",
                       c->file, version >> 24);
    }
    if (version != 2 && version != 3) {
        return gm_fail(c->err, GM_E_UNSUP, 0, "%s: is GGUF version %" PRIu32 ", expected 2 or 3",
                       c->file, version);
    }
    p->n_entries = gm_read_u64(p->data + 8);
    p->n_keys = gm_read_u64(p->data + 16);
    c->p = p->data + HEADER_SIZE;
    c->end = p->data + p->size;
    if (!p->f->format) p->f->format = version == 2 ? "GGUF v2" : "GGUF v3";
    return GM_OK;
}

static gm_status check_keys(part *p)
{
    gm_str *keys = NULL;
    const size_t n = p->meta->n;
    GM_TRY(gm_arena_alloc(&p->scratch, &keys, n, sizeof *keys, "a list of keys", p->c.err));
    for (size_t i = 0; i < n; i++)
        keys[i] = p->meta->at[i].key;
    const gm_str *const twin = gm_names_find_twin(keys, n);
    if (!twin) return GM_OK;
    return gm_fail(p->c.err, GM_E_FORMAT, 0, "%s: key %.*s is there twice, expected once",
                   p->c.file, GM_STR_ARG(*twin));
}

static gm_status read_keys(part *p)
{
    p->c.kind = "key";
    GM_TRY(check_count(&p->c, p->n_keys, KEY_SIZE_MIN));
    for (uint64_t i = 0; i < p->n_keys; i++) {
        gm_metaval v = {0};
        GM_TRY(take_name(&p->c, i, &v.key));
        GM_TRY(take_value(&p->c, p->arena, &v));
        GM_TRY(gm_meta_add(p->meta, &v, p->c.err));
    }
    GM_TRY(check_keys(p));

    p->align = GM_GGUF_ALIGNMENT;
    GM_TRY(gm_meta_u32(p->meta, "general.alignment", &p->align, NULL, p->c.err));
    if (p->align == 0 || (p->align & (p->align - 1)) != 0) {
        return gm_fail(p->c.err, GM_E_FORMAT, 0,
                       "%s: key general.alignment is %" PRIu32 ", expected a power of two",
                       p->c.file, p->align);
    }
    return GM_OK;
}

static gm_status read_entry_name(part *p, uint64_t i, gm_str *name)
{
    GM_TRY(take_name(&p->c, i, name));
    if (name->len == 0 || name->len > NAME_LEN_MAX) {
        return gm_fail(p->c.err, GM_E_FORMAT, 0,
                       "%s: tensor %" PRIu64 " (%.*s) has a name of %zu bytes, expected 1 to %d",
                       p->c.file, i, GM_STR_ARG(*name), name->len, NAME_LEN_MAX);
    }
    if (memchr(name->p, 0, name->len)) {
        return gm_fail(p->c.err, GM_E_FORMAT, 0,
                       "%s: tensor %" PRIu64 " (%.*s) has a zero byte in its name", p->c.file, i,
                       GM_STR_ARG(*name));
    }
    return GM_OK;
}

/* Reads the dimensions, which the file has contiguous first and a gm_tensor contiguous last. */
static gm_status read_shape(part *p, gm_tensor *t)
{
    GM_TRY(take_u32(&p->c, &t->n_dims));
    if (t->n_dims == 0 || t->n_dims > GM_TENSOR_DIMS) {
        return gm_fail(p->c.err, GM_E_FORMAT, 0,
                       "%s: tensor %.*s has %" PRIu32 " dimensions, expected 1 to %d", p->c.file,
                       GM_STR_ARG(p->c.name), t->n_dims, GM_TENSOR_DIMS);
    }
    for (uint32_t i = t->n_dims; i-- > 0;) {
        GM_TRY(take_u64(&p->c, &t->shape[i]));
        if (t->shape[i] == 0) {
            return gm_fail(p->c.err, GM_E_FORMAT, 0,
                           "%s: tensor %.*s has a dimension of 0, expected 1 or more", p->c.file,
                           GM_STR_ARG(p->c.name));
        }
    }
    return GM_OK;
}

/* Sets type and size from the type's number. */
static gm_status set_type(const part *p, gm_tensor *t, uint32_t type)
{
    const cursor *const c = &p->c;
    t->type = gm_qtype_find(type);
    if (!t->type) {
        if (gm_tensorfile_is_vision(c->name)) return GM_OK;
        return gm_fail(c->err, GM_E_UNSUP, 0,
                       "%s: tensor %.*s has type %s (%" PRIu32 "), which is not supported", c->file,
                       GM_STR_ARG(c->name), gm_qtype_name(type), type);
    }
    const uint64_t cols = gm_tensor_cols(t);
    if (cols % t->type->block_len != 0) {
        return gm_fail(c->err, GM_E_FORMAT, 0,
                       "%s: tensor %.*s has rows of %" PRIu64
                       " values, expected a multiple of %" PRIu32 ", the block of %s",
                       c->file, GM_STR_ARG(c->name), cols, t->type->block_len, t->type->name);
    }
    bool fits = gm_qtype_row_size(t->type, cols, &t->size);
    for (uint32_t i = 0; fits && i + 1 < t->n_dims; i++)
        fits = gm_size_mul(t->size, t->shape[i], &t->size);
    if (fits) return GM_OK;
    return gm_fail(c->err, GM_E_FORMAT, 0,
                   "%s: tensor %.*s has dimensions whose product passes 64 bits", c->file,
                   GM_STR_ARG(c->name));
}

static gm_status read_table(part *p)
{
    cursor *const c = &p->c;
    c->kind = "tensor";
    GM_TRY(check_count(c, p->n_entries, TENSOR_SIZE_MIN));
    GM_TRY(gm_arena_alloc(&p->scratch, &p->entries, p->n_entries, sizeof *p->entries,
                          "a tensor table", c->err));
    for (uint64_t i = 0; i < p->n_entries; i++) {
        entry *const e = &p->entries[i];
        uint32_t type = 0;
        GM_TRY(read_entry_name(p, i, &e->name));
        GM_TRY(read_shape(p, &e->t));
        GM_TRY(take_u32(c, &type));
        GM_TRY(take_u64(c, &e->off));
        GM_TRY(set_type(p, &e->t, type));
        if (e->off % p->align != 0) {
            return gm_fail(c->err, GM_E_FORMAT, 0,
                           "%s: tensor %.*s begins at byte %" PRIu64
                           " of the data, expected a multiple of %" PRIu32,
                           c->file, GM_STR_ARG(e->name), e->off, p->align);
        }
    }
    return GM_OK;
}

static gm_status check_names(part *p)
{
    gm_str *names = NULL;
    GM_TRY(gm_arena_alloc(&p->scratch, &names, p->n_entries, sizeof *names, "a list of names",
                          p->c.err));
    for (uint64_t i = 0; i < p->n_entries; i++)
        names[i] = p->entries[i].name;
    const gm_str *const twin = gm_names_find_twin(names, (size_t)p->n_entries);
    if (!twin) return GM_OK;
    return gm_fail(p->c.err, GM_E_FORMAT, 0, "%s: tensor %.*s is there twice, expected once",
                   p->c.file, GM_STR_ARG(*twin));
}

/* Bytes that a tensor surely has: of an unknown type, one. */
static uint64_t entry_size(const entry *e)
{
    return e->t.size ? e->t.size : 1;
}

/* Finds each tensor's bytes, now that the place of the data is known. */
static gm_status place_data(part *p)
{
    uint64_t begin = 0;
    /* A size in memory and a 32-bit alignment: the sum fits. */
    (void)gm_size_align((uint64_t)(p->c.p - p->data), p->align, &begin);
    const uint64_t room = p->size > begin ? p->size - begin : 0;
    for (uint64_t i = 0; i < p->n_entries; i++) {
        entry *const e = &p->entries[i];
        if (e->off > room || entry_size(e) > room - e->off) {
            return gm_fail(p->c.err, GM_E_FORMAT, 0,
                           "%s: tensor %.*s has %" PRIu64 " bytes from byte %" PRIu64
                           " of the data, which ends at byte %" PRIu64 ": is the file cut short?",
                           p->c.file, GM_STR_ARG(e->name), entry_size(e), e->off, room);
        }
        e->t.data = p->data + begin + e->off;
    }
    return GM_OK;
}

static int entry_cmp(const void *a, const void *b)
{
    const entry *const x = *(const entry *const *)a;
    const entry *const y = *(const entry *const *)b;
    return (x->off > y->off) - (x->off < y->off);
}

static gm_status check_overlap(part *p)
{
    const entry **order = NULL;
    const size_t n = (size_t)p->n_entries;
    GM_TRY(gm_arena_alloc(&p->scratch, &order, n, sizeof *order, "an order of tensors", p->c.err));
    for (size_t i = 0; i < n; i++)
        order[i] = &p->entries[i];
    if (n > 1) qsort(order, n, sizeof *order, entry_cmp);
    for (size_t i = 1; i < n; i++) {
        const uint64_t end = order[i - 1]->off + entry_size(order[i - 1]);
        if (end <= order[i]->off) continue;
        return gm_fail(p->c.err, GM_E_FORMAT, 0,
                       "%s: tensors %.*s and %.*s overlap: one ends at byte %" PRIu64
                       " of the data, the other begins at byte %" PRIu64,
                       p->c.file, GM_STR_ARG(order[i - 1]->name), GM_STR_ARG(order[i]->name), end,
                       order[i]->off);
    }
    return GM_OK;
}

/* Hands the text model's tensors to f, in the table's order. */
static gm_status list_tensors(part *p)
{
    for (uint64_t i = 0; i < p->n_entries; i++) {
        entry *const e = &p->entries[i];
        if (gm_tensorfile_is_vision(e->name)) {
            p->f->n_skipped++;
            p->f->size_skipped += e->t.size;
            continue;
        }
        GM_TRY(gm_arena_copy(&p->f->arena, e->name, &e->t.name, p->c.err));
        GM_TRY(gm_tensorfile_add(p->f, &e->t, p->c.err));
    }
    return GM_OK;
}

static gm_status part_parse(part *p)
{
    GM_TRY(gm_arena_copy(p->arena, gm_str_c(p->c.file), &p->meta->file, p->c.err));
    GM_TRY(read_header(p));
    GM_TRY(read_keys(p));
    GM_TRY(gm_gguf_split_check(p->f, p->meta, p->c.err));
    GM_TRY(read_table(p));
    GM_TRY(check_names(p));
    GM_TRY(place_data(p));
    GM_TRY(check_overlap(p));
    GM_TRY(list_tensors(p));
    p->f->n_parts++;
    return GM_OK;
}

bool gm_gguf_is(const uint8_t *data, size_t size)
{
    return size >= 4 && memcmp(data, "GGUF", 4) == 0;
}

gm_status gm_gguf_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                        gm_err *err)
{
    const bool first = f->n_parts == 0;
    part p = {.f = f, .data = data, .size = size, .c = {.file = name, .err = err}};
    p.meta = first ? &f->meta : &p.unkept;
    p.arena = first ? &f->arena : &p.scratch;
    const gm_status status = part_parse(&p);
    gm_meta_deinit(&p.unkept);
    gm_arena_deinit(&p.scratch);
    return status;
}
