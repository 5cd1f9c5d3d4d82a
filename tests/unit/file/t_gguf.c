/* SPDX-License-Identifier: MIT */
/* GGUF images are built byte by byte with the img_* functions, so that each can be wrong in one
 * place, and parsed from a block of exactly their size, so that AddressSanitizer sees every read
 * past the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "file/gguf.h"

/* ---- building ------------------------------------------------------------------------ */

typedef struct img {
    uint8_t p[4096];
    size_t n;
} img;

static void img_put(img *g, const void *p, size_t n)
{
    assert_true(n <= sizeof g->p - g->n);
    if (n) memcpy(g->p + g->n, p, n);
    g->n += n;
}

static void img_u32(img *g, uint32_t v)
{
    img_put(g, &v, sizeof v);
}

static void img_u64(img *g, uint64_t v)
{
    img_put(g, &v, sizeof v);
}

static void img_str(img *g, const char *s)
{
    img_u64(g, strlen(s));
    img_put(g, s, strlen(s));
}

static void img_header(img *g, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    g->n = 0;
    img_put(g, "GGUF", 4);
    img_u32(g, version);
    img_u64(g, n_tensors);
    img_u64(g, n_keys);
}

static void img_key(img *g, const char *key, uint32_t type)
{
    img_str(g, key);
    img_u32(g, type);
}

static void img_key_u32(img *g, const char *key, uint32_t v)
{
    img_key(g, key, GM_META_U32);
    img_u32(g, v);
}

static void img_key_str(img *g, const char *key, const char *s)
{
    img_key(g, key, GM_META_STR);
    img_str(g, s);
}

/* A tensor of two dimensions. */
static void img_tensor(img *g, const char *name, uint64_t ne0, uint64_t ne1, uint32_t type,
                       uint64_t off)
{
    img_str(g, name);
    img_u32(g, 2);
    img_u64(g, ne0);
    img_u64(g, ne1);
    img_u32(g, type);
    img_u64(g, off);
}

static void img_data(img *g, size_t align, size_t n)
{
    const uint8_t zero = 0;
    while (g->n % align)
        img_put(g, &zero, 1);
    for (size_t i = 0; i < n; i++) {
        const uint8_t byte = (uint8_t)(i + 1);
        img_put(g, &byte, 1);
    }
}

/* ---- parsing ------------------------------------------------------------------------- */

typedef struct parsed {
    gm_tensorfile *f;
    uint8_t *bytes;
    gm_status status;
    gm_err err;
} parsed;

static void parsed_close(parsed *r)
{
    gm_tensorfile_close(r->f);
    free(r->bytes);
}

static parsed parse_bytes(const uint8_t *p, size_t n)
{
    parsed r = {0};
    assert_int_equal(gm_mem_alloc(&r.f, 1, sizeof *r.f, "a test", NULL), GM_OK);
    r.bytes = malloc(n ? n : 1);
    assert_non_null(r.bytes);
    memcpy(r.bytes, p, n);
    r.status = gm_gguf_parse(r.f, n ? r.bytes : NULL, n, "x.gguf", &r.err);
    return r;
}

static parsed parse_ok(const img *g)
{
    parsed r = parse_bytes(g->p, g->n);
    if (r.status != GM_OK) fail_msg("refused: %s", r.err.msg);
    return r;
}

static void expect_sentence(const gm_err *err, const char *file, const char *part)
{
    if (strncmp(err->msg, file, strlen(file)) != 0 || !strstr(err->msg, part))
        fail_msg("\"%s\" lacks \"%s\"", err->msg, part);
}

static void refused(const img *g, gm_status code, const char *part)
{
    parsed r = parse_bytes(g->p, g->n);
    expect_sentence(&r.err, "x.gguf: ", part);
    assert_int_equal(r.status, code);
    assert_int_equal(r.err.code, code);
    parsed_close(&r);
}

/* ---- what is read -------------------------------------------------------------------- */

/* Two tensors whose data lie in the other order and with a gap. */
static void img_small(img *g, uint32_t version)
{
    img_header(g, version, 2, 2);
    img_key_str(g, "general.architecture", "gemma3");
    img_key_u32(g, "gemma3.block_count", 3);
    img_tensor(g, "a.weight", 3, 5, GM_QTYPE_F32, 128);
    img_tensor(g, "b.weight", 64, 2, GM_QTYPE_Q4_0, 0);
    img_data(g, 32, 128 + 60);
}

static void versions_2_and_3_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        img g;
        img_small(&g, version);
        parsed r = parse_ok(&g);
        assert_string_equal(r.f->format, version == 2 ? "GGUF v2" : "GGUF v3");
        assert_string_equal(r.f->meta.file, "x.gguf");
        assert_int_equal(r.f->meta.n, 2);
        gm_str arch = {0};
        assert_int_equal(gm_meta_str(&r.f->meta, "general.architecture", &arch, NULL, NULL), GM_OK);
        assert_true(gm_str_eq(arch, GM_STR("gemma3")));
        assert_int_equal(gm_meta_find(&r.f->meta, "gemma3.block_count")->u, 3);

        assert_int_equal(r.f->n_tensors, 2);
        const gm_tensor *const a = gm_tensorfile_find(r.f, "a.weight");
        const gm_tensor *const b = gm_tensorfile_find(r.f, "b.weight");
        assert_ptr_equal(a, &r.f->tensors[0]);
        assert_int_equal(a->n_dims, 2);
        assert_int_equal(gm_tensor_rows(a), 5);
        assert_int_equal(gm_tensor_cols(a), 3);
        assert_int_equal(a->size, 60);
        assert_int_equal(a->data[0], 129);
        assert_int_equal(b->type->id, GM_QTYPE_Q4_0);
        assert_int_equal(b->size, 72);
        assert_ptr_equal(b->data, a->data - 128);
        parsed_close(&r);
    }
}

static void file_without_tensors_needs_no_padding(void **state)
{
    (void)state;
    img g;
    img_header(&g, 3, 0, 1);
    img_key_u32(&g, "k", 1);
    parsed r = parse_ok(&g);
    assert_int_equal(r.f->n_tensors, 0);
    parsed_close(&r);
    img_header(&g, 3, 0, 0);
    r = parse_ok(&g);
    parsed_close(&r);
}

static void alignment_key_moves_the_data(void **state)
{
    (void)state;
    img g;
    img_header(&g, 3, 1, 1);
    img_key_u32(&g, "general.alignment", 256);
    img_tensor(&g, "a", 8, 1, GM_QTYPE_F16, 256);
    img_data(&g, 256, 256 + 16);
    parsed r = parse_ok(&g);
    assert_ptr_equal(r.f->tensors[0].data, r.bytes + 512);
    parsed_close(&r);
}

static void four_dimensions_are_reversed(void **state)
{
    (void)state;
    img g;
    img_header(&g, 3, 1, 0);
    img_str(&g, "a");
    img_u32(&g, 4);
    for (uint64_t d = 2; d <= 5; d++)
        img_u64(&g, d);
    img_u32(&g, GM_QTYPE_BF16);
    img_u64(&g, 0);
    img_data(&g, 32, 240);
    parsed r = parse_ok(&g);
    const gm_tensor *const t = r.f->tensors;
    assert_int_equal(t->shape[0], 5);
    assert_int_equal(t->shape[3], 2);
    assert_int_equal(gm_tensor_rows(t), 60);
    assert_int_equal(t->size, 240);
    parsed_close(&r);
}

static void vision_is_counted_and_left_out(void **state)
{
    (void)state;
    img g;
    img_header(&g, 3, 4, 0);
    img_tensor(&g, "v.blk.0.attn_q.weight", 8, 2, GM_QTYPE_F32, 0);
    img_tensor(&g, "token_embd.weight", 8, 1, GM_QTYPE_F32, 64);
    img_tensor(&g, "mm.input_projection.weight", 4, 1, GM_QTYPE_F32, 96);
    img_tensor(&g, "v.patch_embd.weight", 7, 1, 16, 128);
    img_data(&g, 32, 129);
    parsed r = parse_ok(&g);
    assert_int_equal(r.f->n_tensors, 1);
    assert_string_equal(r.f->tensors[0].name, "token_embd.weight");
    assert_int_equal(r.f->n_skipped, 3);
    assert_int_equal(r.f->size_skipped, 64 + 16);
    parsed_close(&r);

    g.n--;
    refused(&g, GM_E_FORMAT, "tensor v.patch_embd.weight has 1 bytes from byte 128 of the data");
}

/* ---- writing ------------------------------------------------------------------------- */

/* Writes the header, then every tensor's bytes, into an image. */
static void img_write(img *g, const gm_meta *meta, const gm_tensors *tensors)
{
    static const uint8_t zeros[GM_GGUF_ALIGNMENT];
    FILE *const out = tmpfile();
    assert_non_null(out);
    assert_int_equal(gm_gguf_write_header(out, meta, tensors, "y.gguf", NULL), GM_OK);
    for (uint32_t i = 0; i < tensors->n; i++) {
        const gm_tensor *const t = &tensors->at[i];
        assert_int_equal(fwrite(t->data, 1, t->size, out), t->size);
        fwrite(zeros, 1, gm_gguf_pad(t->size), out);
    }
    rewind(out);
    g->n = fread(g->p, 1, sizeof g->p, out);
    fclose(out);
}

static void values_equal(const gm_metaval *a, const gm_metaval *b)
{
    assert_true(gm_str_eq(a->key, b->key));
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->n, b->n);
    if (a->type == GM_META_STR) {
        assert_true(gm_str_eq(a->s, b->s));
    } else if (a->type != GM_META_ARRAY) {
        assert_int_equal(a->u, b->u);
    } else if (a->elem == GM_META_STR) {
        assert_int_equal(b->elem, GM_META_STR);
        for (uint64_t i = 0; i < a->n; i++)
            assert_true(gm_str_eq(a->strs[i], b->strs[i]));
    } else {
        assert_int_equal(a->elem, b->elem);
        if (a->n) assert_memory_equal(a->raw, b->raw, a->n * gm_metatype_size(a->elem));
    }
}

static void all_value_types_survive_a_round_trip(void **state)
{
    (void)state;
    static const gm_str strs[] = {{"", 0}, {"a\0b", 3}, {"\xE2\x96\x81the", 6}};
    static const uint8_t raw[] = {1, 0, 1, 1, 0x80, 0x3F, 0xFF, 9, 8, 7, 6, 5, 4, 3, 2, 1};
    const gm_metaval values[] = {
        {.key = GM_STR("u8"), .type = GM_META_U8, .n = 1, .u = 200},
        {.key = GM_STR("i8"), .type = GM_META_I8, .n = 1, .i = -100},
        {.key = GM_STR("u16"), .type = GM_META_U16, .n = 1, .u = 65000},
        {.key = GM_STR("i16"), .type = GM_META_I16, .n = 1, .i = -32768},
        {.key = GM_STR("u32"), .type = GM_META_U32, .n = 1, .u = UINT32_MAX},
        {.key = GM_STR("i32"), .type = GM_META_I32, .n = 1, .i = INT32_MIN},
        {.key = GM_STR("f32"), .type = GM_META_F32, .n = 1, .f = (double)1e-6f},
        {.key = GM_STR("yes"), .type = GM_META_BOOL, .n = 1, .u = 1},
        {.key = GM_STR("str"), .type = GM_META_STR, .n = 1, .s = GM_STR("caf\xC3\xA9")},
        {.key = GM_STR("empty"), .type = GM_META_STR, .n = 1, .s = GM_STR("")},
        {.key = GM_STR("u64"), .type = GM_META_U64, .n = 1, .u = UINT64_MAX},
        {.key = GM_STR("i64"), .type = GM_META_I64, .n = 1, .i = INT64_MIN},
        {.key = GM_STR("f64"), .type = GM_META_F64, .n = 1, .f = 0.1},
        {.key = GM_STR("a.u8"), .type = GM_META_ARRAY, .elem = GM_META_U8, .n = 3, .raw = raw},
        {.key = GM_STR("a.i16"), .type = GM_META_ARRAY, .elem = GM_META_I16, .n = 5, .raw = raw},
        {.key = GM_STR("a.f32"), .type = GM_META_ARRAY, .elem = GM_META_F32, .n = 4, .raw = raw},
        {.key = GM_STR("a.bool"), .type = GM_META_ARRAY, .elem = GM_META_BOOL, .n = 3, .raw = raw},
        {.key = GM_STR("a.f64"), .type = GM_META_ARRAY, .elem = GM_META_F64, .n = 2, .raw = raw},
        {.key = GM_STR("a.none"), .type = GM_META_ARRAY, .elem = GM_META_I32, .n = 0, .raw = raw},
        {.key = GM_STR("a.str"), .type = GM_META_ARRAY, .elem = GM_META_STR, .n = 3, .strs = strs},
        {.key = GM_STR("a.s0"), .type = GM_META_ARRAY, .elem = GM_META_STR, .n = 0, .strs = strs},
    };
    const size_t n = sizeof values / sizeof values[0];
    gm_meta meta = {0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(gm_meta_add(&meta, &values[i], NULL), GM_OK);

    uint8_t data[3][200];
    for (int i = 0; i < 3; i++)
        memset(data[i], 'a' + i, sizeof data[i]);
    const gm_tensor tensors[] = {
        {"norm", gm_qtype_find(GM_QTYPE_F32), 1, {7}, data[0], 28},
        {"wide", gm_qtype_find(GM_QTYPE_Q8_0), 2, {3, 32}, data[1], 102},
        {"cube", gm_qtype_find(GM_QTYPE_F16), 3, {2, 3, 5}, data[2], 60},
    };
    img g;
    img_write(&g, &meta, &(gm_tensors){.at = tensors, .n = 3});
    parsed r = parse_ok(&g);
    assert_string_equal(r.f->format, "GGUF v3");
    assert_int_equal(r.f->meta.n, n);
    for (size_t i = 0; i < n; i++)
        values_equal(&values[i], &r.f->meta.at[i]);
    assert_int_equal(r.f->n_tensors, 3);
    for (size_t i = 0; i < 3; i++) {
        const gm_tensor *const t = &r.f->tensors[i];
        assert_string_equal(t->name, tensors[i].name);
        assert_ptr_equal(t->type, tensors[i].type);
        assert_int_equal(t->n_dims, tensors[i].n_dims);
        assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
        assert_int_equal(t->size, tensors[i].size);
        assert_memory_equal(t->data, tensors[i].data, t->size);
    }
    parsed_close(&r);
    gm_meta_deinit(&meta);
}

static void write_refused(gm_metaval v, const char *part)
{
    gm_meta meta = {0};
    gm_err err = {0};
    FILE *const out = tmpfile();
    assert_int_equal(gm_meta_add(&meta, &v, NULL), GM_OK);
    assert_int_equal(gm_gguf_write_header(out, &meta, &(gm_tensors){0}, "y.gguf", &err), GM_E_ARG);
    expect_sentence(&err, "y.gguf: ", part);
    assert_int_equal(ftell(out), 0);
    fclose(out);
    gm_meta_deinit(&meta);
}

static void writer_refuses_what_no_reader_takes(void **state)
{
    (void)state;
    write_refused((gm_metaval){.key = GM_STR("k"), .type = 13}, "key k has value type 13");
    write_refused((gm_metaval){.key = GM_STR("k"), .type = GM_META_ARRAY, .elem = GM_META_ARRAY},
                  "key k has element type 9 (array)");
    write_refused((gm_metaval){.key = GM_STR("general.alignment"), .type = GM_META_U32, .u = 64},
                  "key general.alignment is 64, expected 32");
}

static void write_error_names_the_cause(void **state)
{
    (void)state;
    FILE *const full = fopen("/dev/full", "w");
    if (!full) {
        print_message("/dev/full cannot be opened here: not tried\n");
        skip();
    }
    setvbuf(full, NULL, _IONBF, 0);
    gm_err err = {0};
    const gm_meta meta = {0};
    assert_int_equal(gm_gguf_write_header(full, &meta, &(gm_tensors){0}, "y.gguf", &err), GM_E_IO);
    assert_int_equal(err.os, ENOSPC);
    expect_sentence(&err, "y.gguf: ", strerror(ENOSPC));
    fclose(full);
}

static void padding_reaches_the_alignment(void **state)
{
    (void)state;
    assert_int_equal(gm_gguf_pad(0), 0);
    assert_int_equal(gm_gguf_pad(1), 31);
    assert_int_equal(gm_gguf_pad(32), 0);
    assert_int_equal(gm_gguf_pad((UINT64_C(1) << 40) + 33), 31);
}

/* ---- what is refused ----------------------------------------------------------------- */

static void bad_headers_are_refused(void **state)
{
    (void)state;
    img g = {0};
    refused(&g, GM_E_FORMAT, "is no GGUF file");
    img_put(&g, "GGU", 3);
    refused(&g, GM_E_FORMAT, "is no GGUF file: its 3 bytes");
    img_put(&g, "G", 1);
    refused(&g, GM_E_FORMAT, "do not begin with \"GGUF\"");
    img_header(&g, 3, 0, 0);
    g.n = 23;
    refused(&g, GM_E_FORMAT, "is 23 bytes long, expected at least the 24");
    img_header(&g, 1, 0, 0);
    refused(&g, GM_E_UNSUP, "is GGUF version 1, which is long out of use; expected 2 or 3");
    img_header(&g, 0x03000000, 0, 0);
    refused(&g, GM_E_UNSUP, "is a big-endian GGUF file (version 3)");
    img_header(&g, 4, 0, 0);
    refused(&g, GM_E_UNSUP, "is GGUF version 4, expected 2 or 3");
    img_header(&g, 0, 0, 0);
    refused(&g, GM_E_UNSUP, "is GGUF version 0, expected 2 or 3");
}

static void absurd_counts_are_refused(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 1000000, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        img g;
        img_header(&g, 3, 0, counts[i]);
        refused(&g, GM_E_FORMAT, " keys, and the 0 bytes left hold at most 0");
        img_header(&g, 3, counts[i], 0);
        refused(&g, GM_E_FORMAT, " tensors, and the 0 bytes left hold at most 0");

        img_header(&g, 3, 0, 1);
        img_key(&g, "tokens", GM_META_ARRAY);
        img_u32(&g, GM_META_STR);
        img_u64(&g, counts[i]);
        refused(&g, GM_E_FORMAT, "key tokens claims ");

        img_header(&g, 3, 0, 1);
        img_key(&g, "scores", GM_META_ARRAY);
        img_u32(&g, GM_META_F32);
        img_u64(&g, counts[i]);
        img_put(&g, "abc", 3);
        refused(&g, GM_E_FORMAT, " elements of f32, and the 3 bytes left hold at most 0");

        img_header(&g, 3, 0, 1);
        img_u64(&g, counts[i]);
        img_u64(&g, 0);
        if (counts[i] > 16)
            refused(&g, GM_E_FORMAT, "ends inside key 0 (its name): it goes on for ");
    }
}

static void bad_values_are_refused(void **state)
{
    (void)state;
    img g;
    img_header(&g, 3, 0, 1);
    img_key(&g, "general.name", 13);
    img_u64(&g, 0);
    refused(&g, GM_E_FORMAT, "key general.name has value type 13 (unknown), expected 0 to 12");

    img_header(&g, 3, 0, 1);
    img_key(&g, "tags", GM_META_ARRAY);
    img_u32(&g, 77);
    img_u64(&g, 1);
    img_u64(&g, 0);
    refused(&g, GM_E_FORMAT, "key tags has element type 77 (unknown)");

    img_header(&g, 3, 0, 1);
    img_key(&g, "tags", GM_META_ARRAY);
    img_u32(&g, GM_META_ARRAY);
    img_u64(&g, 1);
    img_u64(&g, 0);
    refused(&g, GM_E_UNSUP, "key tags has element type 9 (array), expected 0 to 12 but for 9");

    img_header(&g, 3, 0, 1);
    img_key(&g, "general.name", GM_META_STR);
    img_u64(&g, 100);
    img_put(&g, "short", 5);
    refused(&g, GM_E_FORMAT,
            "ends inside key 0 (general.name): it goes on for 100 bytes and 5 are left");

    img_header(&g, 3, 0, 3);
    img_key_u32(&g, "a", 1);
    img_key_u32(&g, "b", 1);
    img_key_str(&g, "a", "");
    refused(&g, GM_E_FORMAT, "key a is there twice");
}

static void bad_alignments_are_refused(void **state)
{
    (void)state;
    img g;
    img_header(&g, 3, 0, 1);
    img_key_u32(&g, "general.alignment", 0);
    refused(&g, GM_E_FORMAT, "key general.alignment is 0, expected a power of two");
    img_header(&g, 3, 0, 1);
    img_key_u32(&g, "general.alignment", 48);
    refused(&g, GM_E_FORMAT, "key general.alignment is 48, expected a power of two");
    img_header(&g, 3, 0, 1);
    img_key_str(&g, "general.alignment", "32");
    refused(&g, GM_E_FORMAT, "key general.alignment has type string, expected an integer");
    /* The largest power of two puts the data far past the end. */
    img_header(&g, 3, 1, 1);
    img_key_u32(&g, "general.alignment", UINT32_C(1) << 31);
    img_tensor(&g, "a", 1, 1, GM_QTYPE_F32, 0);
    img_data(&g, 32, 64);
    refused(&g, GM_E_FORMAT, "tensor a has 4 bytes from byte 0 of the data, which ends at byte 0");
}

/* An image with one tensor of that name and 64 bytes of data. */
static img img_named(const char *name, size_t len)
{
    img g;
    img_header(&g, 3, 1, 0);
    img_u64(&g, len);
    img_put(&g, name, len);
    img_u32(&g, 1);
    img_u64(&g, 16);
    img_u32(&g, GM_QTYPE_F32);
    img_u64(&g, 0);
    img_data(&g, 32, 64);
    return g;
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    char name[129];
    memset(name, 'n', sizeof name);
    img g = img_named(name, 127);
    parsed r = parse_ok(&g);
    assert_int_equal(strlen(r.f->tensors[0].name), 127);
    parsed_close(&r);
    g = img_named(name, 128);
    refused(&g, GM_E_FORMAT, "has a name of 128 bytes, expected 1 to 127");
    g = img_named(name, 0);
    refused(&g, GM_E_FORMAT, "tensor 0 () has a name of 0 bytes, expected 1 to 127");
    g = img_named("a\0b", 3);
    refused(&g, GM_E_FORMAT, "has a zero byte in its name");

    img_header(&g, 3, 3, 0);
    img_tensor(&g, "blk.0", 1, 1, GM_QTYPE_F32, 0);
    img_tensor(&g, "blk.1", 1, 1, GM_QTYPE_F32, 32);
    img_tensor(&g, "blk.0", 1, 1, GM_QTYPE_F32, 64);
    img_data(&g, 32, 96);
    refused(&g, GM_E_FORMAT, "tensor blk.0 is there twice");
}

/* One tensor "w" as told, in a file with 256 bytes of data. */
static void tensor_refused(uint64_t ne0, uint64_t ne1, uint32_t type, uint64_t off, gm_status code,
                           const char *part)
{
    img g;
    img_header(&g, 3, 1, 0);
    img_tensor(&g, "w", ne0, ne1, type, off);
    img_data(&g, 32, 256);
    refused(&g, code, part);
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    tensor_refused(0, 4, GM_QTYPE_F32, 0, GM_E_FORMAT, "tensor w has a dimension of 0");
    tensor_refused(4, 0, GM_QTYPE_F32, 0, GM_E_FORMAT, "tensor w has a dimension of 0");
    tensor_refused(UINT64_C(1) << 62, 1, GM_QTYPE_F32, 0, GM_E_FORMAT,
                   "tensor w has dimensions whose product passes 64 bits");
    tensor_refused(UINT64_C(1) << 32, UINT64_C(1) << 33, GM_QTYPE_Q4_0, 0, GM_E_FORMAT,
                   "tensor w has dimensions whose product passes 64 bits");
    tensor_refused(33, 1, GM_QTYPE_Q4_0, 0, GM_E_FORMAT,
                   "tensor w has rows of 33 values, expected a multiple of 32, the block of q4_0");
    tensor_refused(128, 2, GM_QTYPE_Q6_K, 0, GM_E_FORMAT,
                   "tensor w has rows of 128 values, expected a multiple of 256");
    tensor_refused(256, 1, 16, 0, GM_E_UNSUP,
                   "tensor w has type iq2_xxs (16), which is not supported");
    tensor_refused(256, 1, 4000, 0, GM_E_UNSUP, "tensor w has type unknown (4000)");
    tensor_refused(4, 4, GM_QTYPE_F32, 33, GM_E_FORMAT,
                   "tensor w begins at byte 33 of the data, expected a multiple of 32");
    tensor_refused(8, 8, GM_QTYPE_F32, 32, GM_E_FORMAT,
                   "tensor w has 256 bytes from byte 32 of the data, which ends at byte 256");
    tensor_refused(1, 1, GM_QTYPE_F32, 256, GM_E_FORMAT, "tensor w has 4 bytes from byte 256");
    tensor_refused(1, 1, GM_QTYPE_F32, UINT64_MAX - 31, GM_E_FORMAT, "tensor w has 4 bytes from");
    tensor_refused(UINT64_C(1) << 61, 1, GM_QTYPE_F32, 0, GM_E_FORMAT,
                   "tensor w has 9223372036854775808 bytes from byte 0");

    img g;
    for (uint32_t n_dims = 0; n_dims <= 5; n_dims += 5) {
        img_header(&g, 3, 1, 0);
        img_str(&g, "w");
        img_u32(&g, n_dims);
        for (int i = 0; i < 8; i++)
            img_u64(&g, 1);
        refused(&g, GM_E_FORMAT,
                n_dims ? "tensor w has 5 dimensions, expected 1 to 4"
                       : "tensor w has 0 dimensions, expected 1 to 4");
    }
}

static void overlaps_are_refused(void **state)
{
    (void)state;
    img g;
    img_header(&g, 3, 3, 0);
    img_tensor(&g, "late", 8, 1, GM_QTYPE_F32, 64);
    img_tensor(&g, "between", 8, 1, GM_QTYPE_F32, 160);
    img_tensor(&g, "early", 17, 1, GM_QTYPE_F32, 0);
    img_data(&g, 32, 192);
    refused(&g, GM_E_FORMAT, "tensors early and late overlap: one ends at byte 68 of the data");

    img_header(&g, 3, 2, 0);
    img_tensor(&g, "a", 8, 1, GM_QTYPE_F32, 0);
    img_tensor(&g, "v.b", 8, 1, 16, 0);
    img_data(&g, 32, 32);
    refused(&g, GM_E_FORMAT, "overlap");
}

/* ---- parts --------------------------------------------------------------------------- */

static void img_part(img *g, uint32_t no, uint32_t count, const char *tensor)
{
    img_header(g, 3, 1, 2);
    img_key_u32(g, "split.no", no);
    img_key_u32(g, "split.count", count);
    img_tensor(g, tensor, 8, 1, GM_QTYPE_F32, 0);
    img_data(g, 32, 32);
}

static void second_part(uint32_t no, uint32_t count, gm_status code, const char *part)
{
    img first, second;
    img_part(&first, 0, 3, "a");
    img_part(&second, no, count, "b");
    parsed r = parse_ok(&first);
    gm_err err = {0};
    assert_int_equal(gm_gguf_parse(r.f, second.p, second.n, "second.gguf", &err), code);
    if (code != GM_OK) expect_sentence(&err, "second.gguf: ", part);
    assert_int_equal(r.f->meta.n, 2);
    assert_string_equal(r.f->meta.file, "x.gguf");
    assert_int_equal(gm_meta_find(&r.f->meta, "split.no")->u, 0);
    assert_int_equal(r.f->n_tensors, code == GM_OK ? 2 : 1);
    parsed_close(&r);
}

static void parts_come_in_order(void **state)
{
    (void)state;
    second_part(1, 3, GM_OK, "");
    second_part(2, 3, GM_E_FORMAT, "says it is part 3 of 3, expected part 2 of 3");
    second_part(0, 3, GM_E_FORMAT, "says it is part 1 of 3, expected part 2 of 3");
    second_part(1, 2, GM_E_FORMAT, "says it is part 2 of 2, expected part 2 of 3");
    second_part(5, 3, GM_E_FORMAT, "key split.no is 5, expected less than split.count, 3");

    img g;
    img_part(&g, 1, 3, "a");
    refused(&g, GM_E_FORMAT, "is part 2 of 3 of a split model, expected the first part");
    img_part(&g, 0, 65536, "a");
    refused(&g, GM_E_FORMAT, "key split.count is 65536, expected 0 to 65535");
    img_part(&g, 0, 0, "a");
    parsed r = parse_ok(&g);
    parsed_close(&r);
}

/* ---- damage -------------------------------------------------------------------------- */

/* An image with every shape of value and two tensors, nothing after the last one's data. */
static void img_rich(img *g)
{
    img_header(g, 3, 3, 6);
    img_key_str(g, "general.architecture", "gemma3");
    img_key_u32(g, "general.alignment", 64);
    img_key(g, "tokens", GM_META_ARRAY);
    img_u32(g, GM_META_STR);
    img_u64(g, 3);
    img_str(g, "<pad>");
    img_str(g, "");
    img_str(g, "the");
    img_key(g, "scores", GM_META_ARRAY);
    img_u32(g, GM_META_F32);
    img_u64(g, 3);
    img_put(g, "0123456789AB", 12);
    img_key(g, "flag", GM_META_BOOL);
    img_put(g, "\1", 1);
    img_key(g, "big", GM_META_U64);
    img_u64(g, UINT64_MAX);
    img_tensor(g, "token_embd.weight", 32, 3, GM_QTYPE_Q8_0, 0);
    img_tensor(g, "v.position_embd.weight", 3, 3, GM_QTYPE_F32, 128);
    img_tensor(g, "output_norm.weight", 5, 1, GM_QTYPE_F32, 192);
    img_data(g, 64, 192 + 20);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    img g;
    img_rich(&g);
    parsed whole = parse_ok(&g);
    parsed_close(&whole);
    for (size_t n = 0; n < g.n; n++) {
        parsed r = parse_bytes(g.p, n);
        assert_int_equal(r.status, GM_E_FORMAT);
        expect_sentence(&r.err, "x.gguf: ", "");
        parsed_close(&r);
    }
}

/* Any single byte may be anything: the answer is free, the sanitizers' silence is not. */
static void every_damaged_byte_is_survived(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x00, 0x01, 0x09, 0x7F, 0x80, 0xFF};
    img g;
    img_rich(&g);
    for (size_t at = 0; at < g.n; at++) {
        const uint8_t was = g.p[at];
        for (size_t i = 0; i < sizeof bytes; i++) {
            g.p[at] = bytes[i];
            parsed r = parse_bytes(g.p, g.n);
            if (r.status != GM_OK) expect_sentence(&r.err, "x.gguf: ", "");
            for (uint32_t t = 0; r.status == GM_OK && t < r.f->n_tensors; t++) {
                const gm_tensor *const view = &r.f->tensors[t];
                assert_true(view->data >= r.bytes);
                assert_true(view->data + view->size <= r.bytes + g.n);
            }
            parsed_close(&r);
        }
        g.p[at] = was;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_2_and_3_are_read),
        cmocka_unit_test(file_without_tensors_needs_no_padding),
        cmocka_unit_test(alignment_key_moves_the_data),
        cmocka_unit_test(four_dimensions_are_reversed),
        cmocka_unit_test(vision_is_counted_and_left_out),
        cmocka_unit_test(all_value_types_survive_a_round_trip),
        cmocka_unit_test(writer_refuses_what_no_reader_takes),
        cmocka_unit_test(write_error_names_the_cause),
        cmocka_unit_test(padding_reaches_the_alignment),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(absurd_counts_are_refused),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(bad_alignments_are_refused),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(overlaps_are_refused),
        cmocka_unit_test(parts_come_in_order),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_damaged_byte_is_survived),
    };
    return cmocka_run_group_tests_name("t_gguf", tests, NULL, NULL);
}
