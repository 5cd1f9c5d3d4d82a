/* SPDX-License-Identifier: MIT */
/* What is not a Gemma 3 model is refused, with one sentence that names the file,
 * the thing, what was found and what was expected. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/fp16.h"
#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"

/* ---- sentences ------------------------------------------------------------------------- */

typedef struct expected {
    gm_status status;
    const char *thing, *expectation;
} expected;

static void assert_refused(const char *path, const expected *e)
{
    gm_err err = {0};
    gm_model *m = (gm_model *)&err;
    const gm_status status = gm_model_open(&m, path, &err);
    const char *const file = strrchr(path, '/') + 1;
    if (status != e->status || !strstr(err.msg, file) || !strstr(err.msg, e->thing) ||
        !strstr(err.msg, e->expectation))
        fail_msg("status %d, \"%s\": expected %d, \"%s\", \"%s\"", status, err.msg, e->status,
                 e->thing, e->expectation);
    assert_null(m);
    assert_int_equal(err.code, status);
    assert_null(strpbrk(err.msg, "\r\n"));
    if (strlen(err.msg) + 1 >= sizeof err.msg) fail_msg("cut: %s", err.msg);
    assert_int_equal(gm_model_open(&m, path, NULL), status); /* nobody listens: the same */
}

/* ---- the model is wrong ---------------------------------------------------------------- */

static void no_embedding(tiny *t)
{
    tiny_drop_tensor(t, "token_embd.weight");
}

static void no_output_norm(tiny *t)
{
    tiny_drop_tensor(t, "output_norm.weight");
}

static void no_v(tiny *t)
{
    tiny_drop_tensor(t, "blk.2.attn_v.weight");
}

static void no_q_norm(tiny *t)
{
    tiny_drop_tensor(t, "blk.0.attn_q_norm.weight");
}

static void reshape(tiny *t, const char *name, uint64_t rows, uint64_t cols)
{
    tiny_drop_tensor(t, name);
    tiny_add_tensor(t, name, GM_QTYPE_F32, rows, cols);
}

static void q_too_tall(tiny *t)
{
    reshape(t, "blk.1.attn_q.weight", 65, 32);
}

static void q_transposed(tiny *t)
{
    reshape(t, "blk.1.attn_q.weight", 32, 64);
}

static void down_is_up(tiny *t)
{
    reshape(t, "blk.0.ffn_down.weight", 64, 32);
}

static void norm_too_long(tiny *t)
{
    reshape(t, "blk.0.post_ffw_norm.weight", 0, 33);
}

static void norm_is_a_matrix(tiny *t)
{
    reshape(t, "blk.0.attn_norm.weight", 1, 32);
}

static void matrix_is_a_vector(tiny *t)
{
    reshape(t, "blk.0.ffn_up.weight", 0, 64 * 32);
}

static void matrix_has_three_dimensions(tiny *t)
{
    gm_tensor *const w = tiny_tensor(t, "blk.0.ffn_up.weight");
    w->n_dims = 3;
    w->shape[0] = 2;
    w->shape[1] = 32;
    w->shape[2] = 32;
}

static void embedding_is_a_vector(tiny *t)
{
    reshape(t, "token_embd.weight", 0, 500 * 32);
}

static void embedding_too_wide(tiny *t)
{
    reshape(t, "token_embd.weight", 500, 33);
}

static void embedding_too_short(tiny *t)
{
    reshape(t, "token_embd.weight", 499, 32);
}

static void output_too_short(tiny *t)
{
    tiny_add_tensor(t, "output.weight", GM_QTYPE_F32, 499, 32);
}

static void quantised_norm(tiny *t)
{
    tiny_drop_tensor(t, "blk.1.ffn_norm.weight");
    tiny_add_tensor(t, "blk.1.ffn_norm.weight", GM_QTYPE_Q8_0, 0, 32);
}

static void layer_too_many(tiny *t)
{
    tiny_u32(t, "gemma3.block_count", 2);
}

static void layer_too_few(tiny *t)
{
    tiny_u32(t, "gemma3.block_count", 4);
}

static void bias(tiny *t)
{
    tiny_add_tensor(t, "blk.0.attn_q.bias", GM_QTYPE_F32, 0, 64);
}

static void stranger(tiny *t)
{
    tiny_add_tensor(t, "rope_freqs.weight", GM_QTYPE_F32, 0, 8);
}

static void fused_and_not(tiny *t)
{
    tiny_add_tensor(t, "blk.0.attn_qkv.weight", GM_QTYPE_F32, 128, 32);
}

static void fused_too_short(tiny *t)
{
    tiny_drop_tensor(t, "blk.0.attn_q.weight");
    tiny_add_tensor(t, "blk.0.attn_qkv.weight", GM_QTYPE_F32, 127, 32);
}

static void other_architecture(tiny *t)
{
    tiny_str(t, "general.architecture", "gemma2");
}

static void vision_tower(tiny *t)
{
    tiny_str(t, "general.architecture", "clip");
}

static void absurd_layers(tiny *t)
{
    tiny_u32(t, "gemma3.block_count", 4000000000u);
}

static void more_heads(tiny *t)
{
    tiny_u32(t, "gemma3.attention.head_count", 8);
}

static void no_tokenizer(tiny *t)
{
    tiny_drop_key(t, "tokenizer.ggml.model");
}

static void other_tokenizer(tiny *t)
{
    tiny_str(t, "tokenizer.ggml.model", "gpt2");
}

static void no_pieces(tiny *t)
{
    tiny_drop_key(t, "tokenizer.ggml.tokens");
}

static void no_scores(tiny *t)
{
    tiny_drop_key(t, "tokenizer.ggml.scores");
}

static void few_scores(tiny *t)
{
    static const float scores[3];
    tiny_array(t, "tokenizer.ggml.scores", GM_META_F32, scores, 3);
}

static void eos_out_of_range(tiny *t)
{
    tiny_u32(t, "tokenizer.ggml.eos_token_id", 500);
}

static void name_is_a_number(tiny *t)
{
    tiny_u32(t, "general.name", 5);
}

static void synthetic_is_text(tiny *t)
{
    tiny_str(t, "gemmule.synthetic", "yes");
}

static void lone_part(tiny *t)
{
    tiny_u32(t, "split.no", 1);
    tiny_u32(t, "split.count", 2);
}

static void long_names(tiny *t)
{
    char name[128];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    tiny_add_tensor(t, name, GM_QTYPE_F32, 0, 8);
}

static const struct wrong {
    void (*spoil)(tiny *t);
    expected e;
} wrongs[] = {
    {no_embedding, {GM_E_FORMAT, "token_embd.weight is missing", "expected [500, 32]"}},
    {no_output_norm, {GM_E_FORMAT, "output_norm.weight is missing", "expected [32]"}},
    {no_v, {GM_E_FORMAT, "blk.2.attn_v.weight is missing", "expected [32, 32]"}},
    {no_q_norm, {GM_E_FORMAT, "blk.0.attn_q_norm.weight is missing", "expected [16]"}},
    {q_too_tall, {GM_E_FORMAT, "blk.1.attn_q.weight is [65, 32]", "expected [64, 32]"}},
    {q_transposed, {GM_E_FORMAT, "blk.1.attn_q.weight is [32, 64]", "expected [64, 32]"}},
    {down_is_up, {GM_E_FORMAT, "blk.0.ffn_down.weight is [64, 32]", "expected [32, 64]"}},
    {norm_too_long, {GM_E_FORMAT, "blk.0.post_ffw_norm.weight is [33]", "expected [32]"}},
    {norm_is_a_matrix, {GM_E_FORMAT, "blk.0.attn_norm.weight is [1, 32]", "expected [32]"}},
    {matrix_is_a_vector, {GM_E_FORMAT, "blk.0.ffn_up.weight is [2048]", "expected [64, 32]"}},
    {matrix_has_three_dimensions,
     {GM_E_FORMAT, "blk.0.ffn_up.weight is [2, 32, 32]", "expected [64, 32]"}},
    {embedding_is_a_vector, {GM_E_FORMAT, "token_embd.weight is [16000]", "expected [500, 32]"}},
    {embedding_too_wide, {GM_E_FORMAT, "token_embd.weight is [500, 33]", "expected [500, 32]"}},
    {embedding_too_short, {GM_E_FORMAT, "500 pieces and the embedding 499 rows", "expected"}},
    {output_too_short, {GM_E_FORMAT, "output.weight is [499, 32]", "expected [500, 32]"}},
    {quantised_norm, {GM_E_UNSUP, "blk.1.ffn_norm.weight has type q8_0", "expected f32, f16"}},
    {layer_too_many, {GM_E_UNSUP, "blk.2.attn_norm.weight is no part", "of 2 layers"}},
    {layer_too_few, {GM_E_FORMAT, "blk.3.attn_norm.weight is missing", "expected [32]"}},
    {bias, {GM_E_UNSUP, "blk.0.attn_q.bias is no part", "a Gemma 3 model of 3 layers"}},
    {stranger, {GM_E_UNSUP, "rope_freqs.weight is no part", "a Gemma 3 model of 3 layers"}},
    {fused_and_not, {GM_E_UNSUP, "blk.0.attn_q.weight is no part", "of 3 layers"}},
    {fused_too_short, {GM_E_FORMAT, "blk.0.attn_qkv.weight is [127, 32]", "expected [128, 32]"}},
    {other_architecture, {GM_E_UNSUP, "architecture is gemma2", "expected gemma3"}},
    {vision_tower, {GM_E_UNSUP, "architecture is clip", "expected gemma3 (this file is a vision"}},
    {absurd_layers, {GM_E_FORMAT, "gemma3.block_count is 4000000000", "expected 1 to 1024"}},
    {more_heads, {GM_E_FORMAT, "blk.0.attn_q.weight is [64, 32]", "expected [128, 32]"}},
    {no_tokenizer, {GM_E_FORMAT, "tokenizer.ggml.model is missing", "expected \"llama\""}},
    {other_tokenizer, {GM_E_UNSUP, "tokenizer.ggml.model is \"gpt2\"", "expected \"llama\""}},
    {no_pieces, {GM_E_FORMAT, "tokenizer.ggml.tokens is missing", "expected an array of string"}},
    {no_scores, {GM_E_FORMAT, "tokenizer.ggml.scores is missing", "expected an array of f32"}},
    {few_scores, {GM_E_FORMAT, "tokenizer.ggml.scores has 3 elements", "expected 500"}},
    {eos_out_of_range, {GM_E_FORMAT, "eos_token_id is 500", "expected an id below 500"}},
    {name_is_a_number, {GM_E_FORMAT, "general.name has type u32", "expected string"}},
    {synthetic_is_text, {GM_E_FORMAT, "gemmule.synthetic has type string", "expected bool"}},
    {lone_part, {GM_E_FORMAT, "part 2 of 2", "expected the first"}},
    {long_names, {GM_E_UNSUP, "xxxxxxxx is no part", "of 3 layers"}},
};

static void test_wrong_models_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){0});
        wrongs[i].spoil(&t);
        assert_refused(tiny_write(&t, "wrong.gguf"), &wrongs[i].e);
        tiny_deinit(&t);
    }
}

/* ---- the bytes are wrong --------------------------------------------------------------- */

/* A file in memory on its way to be spoilt. */
typedef struct image {
    uint8_t *bytes;
    size_t size;
} image;

/* The table's entry of a tensor, behind its name: n_dims u32, dims u64[], type u32, offset u64. */
static uint8_t *entry_of(const image *f, const char *name)
{
    const size_t len = strlen(name);
    for (size_t i = 24; i + len < f->size; i++) {
        if (gm_read_u64(f->bytes + i - 8) == len && memcmp(f->bytes + i, name, len) == 0)
            return f->bytes + i + len;
    }
    fail_msg("there is no tensor %s", name);
    return NULL;
}

static void put_u32(uint8_t *at, uint32_t x)
{
    memcpy(at, &x, sizeof x);
}

static void put_u64(uint8_t *at, uint64_t x)
{
    memcpy(at, &x, sizeof x);
}

#define MATRIX "blk.0.attn_k.weight" /* two dimensions: type at 20, offset at 24 */

static void cut_last_byte(image *f)
{
    f->size -= 1;
}

static void cut_half(image *f)
{
    f->size /= 2;
}

static void cut_in_table(image *f)
{
    f->size = (size_t)(entry_of(f, MATRIX) - f->bytes) + 10;
}

static void cut_in_keys(image *f)
{
    f->size = 100;
}

static void cut_in_header(image *f)
{
    f->size = 20;
}

static void cut_all(image *f)
{
    f->size = 0;
}

static void other_magic(image *f)
{
    f->bytes[0] = 'g';
}

static void version_1(image *f)
{
    put_u32(f->bytes + 4, 1);
}

static void version_4(image *f)
{
    put_u32(f->bytes + 4, 4);
}

static void big_endian(image *f)
{
    put_u32(f->bytes + 4, 0x03000000);
}

static void absurd_tensors(image *f)
{
    put_u64(f->bytes + 8, UINT64_MAX);
}

static void absurd_keys(image *f)
{
    put_u64(f->bytes + 16, UINT64_C(1) << 40);
}

static void overlap(image *f)
{
    put_u64(entry_of(f, MATRIX) + 24, gm_read_u64(entry_of(f, "blk.0.attn_v.weight") + 24));
}

static void unaligned(image *f)
{
    put_u64(entry_of(f, MATRIX) + 24, 1);
}

static void past_the_end(image *f)
{
    put_u64(entry_of(f, MATRIX) + 24, UINT64_MAX - 31);
}

static void unknown_type(image *f)
{
    put_u32(entry_of(f, MATRIX) + 20, 16);
}

static void unheard_type(image *f)
{
    put_u32(entry_of(f, MATRIX) + 20, 9999);
}

static void block_does_not_divide(image *f)
{
    put_u32(entry_of(f, MATRIX) + 20, GM_QTYPE_Q4_K);
}

static void five_dimensions(image *f)
{
    put_u32(entry_of(f, MATRIX), 5);
}

static void no_rows(image *f)
{
    put_u64(entry_of(f, MATRIX) + 12, 0);
}

static void absurd_rows(image *f)
{
    put_u64(entry_of(f, MATRIX) + 12, UINT64_C(1) << 61);
}

static void twice(image *f)
{
    uint8_t *const name = entry_of(f, "blk.0.attn_v.weight") - 8;
    *name = 'k';
}

static const struct broken {
    void (*spoil)(image *f);
    expected e;
} brokens[] = {
    {cut_last_byte, {GM_E_FORMAT, "tensor output_norm.weight", "ends at byte"}},
    {cut_half, {GM_E_FORMAT, "tensor", "which ends at byte"}},
    {cut_in_table, {GM_E_FORMAT, "claims 41 tensors", "hold at most"}},
    {cut_in_keys, {GM_E_FORMAT, "claims", "hold at most"}},
    {cut_in_header, {GM_E_FORMAT, "is 20 bytes long", "expected at least the 24"}},
    {cut_all, {GM_E_FORMAT, "this is empty", "expected a GGUF file"}},
    {other_magic, {GM_E_FORMAT, "no known format", "expected a GGUF file"}},
    {version_1, {GM_E_UNSUP, "version 1", "expected 2 or 3"}},
    {version_4, {GM_E_UNSUP, "version 4", "expected 2 or 3"}},
    {big_endian, {GM_E_UNSUP, "big-endian", "expected a little-endian"}},
    {absurd_tensors, {GM_E_FORMAT, "claims 18446744073709551615 tensors", "hold at most"}},
    {absurd_keys, {GM_E_FORMAT, "claims 1099511627776 keys", "hold at most"}},
    {overlap, {GM_E_FORMAT, "overlap", "begins at byte"}},
    {unaligned, {GM_E_FORMAT, MATRIX " begins at byte 1", "expected a multiple of 32"}},
    {past_the_end, {GM_E_FORMAT, MATRIX " has 4096 bytes from byte", "ends at byte"}},
    {unknown_type, {GM_E_UNSUP, MATRIX " has type iq2_xxs (16)", "not supported"}},
    {unheard_type, {GM_E_UNSUP, MATRIX " has type unknown (9999)", "not supported"}},
    {block_does_not_divide, {GM_E_FORMAT, MATRIX " has rows of 32", "multiple of 256"}},
    {five_dimensions, {GM_E_FORMAT, MATRIX " has 5 dimensions", "expected 1 to 4"}},
    {no_rows, {GM_E_FORMAT, MATRIX " has a dimension of 0", "expected 1 or more"}},
    {absurd_rows, {GM_E_FORMAT, MATRIX " has dimensions", "passes 64 bits"}},
    {twice, {GM_E_FORMAT, MATRIX " is there twice", "expected once"}},
};

static void test_broken_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof brokens / sizeof *brokens; i++) {
        tiny t;
        image f;
        tiny_init(&t, &(tiny_shape){0});
        f.bytes = tiny_bytes(&t, &f.size);
        brokens[i].spoil(&f);
        assert_refused(tiny_write_bytes("broken.gguf", f.bytes, f.size), &brokens[i].e);
        free(f.bytes);
        tiny_deinit(&t);
    }
}

/* Cut anywhere, the file is refused or, in the padding at its end, whole. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    tiny t;
    size_t size = 0;
    tiny_init(&t, &(tiny_shape){.n_layer = 1, .n_vocab = 120});
    uint8_t *const bytes = tiny_bytes(&t, &size);
    for (size_t at = 0; at < size; at += at < 6000 ? 13 : 997) {
        gm_err err = {0};
        gm_model *m = NULL;
        const char *const path = tiny_write_bytes("cut.gguf", bytes, at);
        if (gm_model_open(&m, path, &err) == GM_OK) fail_msg("%zu of %zu bytes are fine", at, size);
        if (!strstr(err.msg, "cut.gguf")) fail_msg("%s", err.msg);
    }
    free(bytes);
    tiny_deinit(&t);
}

/* ---- long paths ------------------------------------------------------------------------ */

static void test_sentences_are_whole_under_long_names(void **state)
{
    (void)state;
    char name[201];
    memset(name, 'f', 200);
    memcpy(name + 195, ".gguf", 6);
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    gm_model_close(tiny_open(&t, name));
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        tiny spoilt;
        tiny_init(&spoilt, &(tiny_shape){0});
        wrongs[i].spoil(&spoilt);
        assert_refused(tiny_write(&spoilt, name), &wrongs[i].e);
        tiny_deinit(&spoilt);
    }
    tiny_deinit(&t);
}

static void test_what_is_no_file(void **state)
{
    (void)state;
    assert_refused(tiny_path("nowhere.gguf"), &(expected){GM_E_IO, "nowhere.gguf", "No such file"});
    gm_model *m = NULL;
    gm_err err = {0};
    assert_int_not_equal(gm_model_open(&m, "tests/unit", &err), GM_OK);
    assert_non_null(strstr(err.msg, "config.json"));
    assert_null(m);
    gm_model_close(NULL);
}

/* ---- what is bound --------------------------------------------------------------------- */

/* Norms may be any plain float. */
static void test_norms_of_half_precision(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 9, 30};
    static const gm_qtype types[] = {GM_QTYPE_F16, GM_QTYPE_BF16};
    for (size_t i = 0; i < 2; i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){0});
        tiny_drop_tensor(&t, "blk.1.ffn_norm.weight");
        tiny_add_tensor(&t, "blk.1.ffn_norm.weight", types[i], 0, 32);
        float *const before = tiny_logprobs(&t, "half.gguf", ids, 3);
        tiny_expand(&t, tiny_tensor(&t, "blk.1.ffn_norm.weight"));
        float *const after = tiny_logprobs(&t, "half.gguf", ids, 3);
        assert_memory_equal(before, after, 3 * 500 * sizeof *before);
        free(before);
        free(after);
        tiny_deinit(&t);
    }
}

/* Tensors are views of the file: nothing is copied, and order does not matter. */
static void test_any_order_of_tensors(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 9, 30};
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    float *const before = tiny_logprobs(&t, "order.gguf", ids, 3);
    for (size_t i = 0; i < t.n_tensors / 2; i++) {
        const gm_tensor w = t.tensors[i];
        t.tensors[i] = t.tensors[t.n_tensors - 1 - i];
        t.tensors[t.n_tensors - 1 - i] = w;
    }
    float *const after = tiny_logprobs(&t, "order.gguf", ids, 3);
    assert_memory_equal(before, after, 3 * 500 * sizeof *before);
    free(before);
    free(after);
    gm_model *const m = tiny_open(&t, "order.gguf");
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const uint8_t *const map = m->file->maps[0].data;
        assert_true(m->tensors[i].data > map);
        assert_true(m->tensors[i].data + m->tensors[i].size <= map + m->file->maps[0].size);
    }
    gm_model_close(m);
    tiny_deinit(&t);
}

static void test_description(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_layer = 5, .n_ctx = 99});
    gm_model *m = tiny_open(&t, "describe.gguf");
    gm_model_info info = {.size = sizeof info};
    gm_model_describe(m, &info);
    assert_int_equal(info.size, sizeof info);
    assert_int_equal(info.n_layer, 5);
    assert_int_equal(info.n_vocab, 500);
    assert_int_equal(info.n_ctx, 99);
    assert_string_equal(info.name, "tiny");
    assert_string_equal(info.arch, "gemma3");
    assert_string_equal(info.note, "");
    /* A caller with an older, shorter struct gets no byte more. */
    struct {
        gm_model_info info;
    } old;
    memset(&old, 0x55, sizeof old);
    old.info.size = offsetof(gm_model_info, n_ctx);
    gm_model_describe(m, &old.info);
    assert_int_equal(old.info.n_vocab, 500);
    assert_int_equal(old.info.n_ctx, 0x55555555);
    gm_model_close(m);
    tiny_bool(&t, "gemmule.synthetic", true);
    m = tiny_open(&t, "describe.gguf");
    gm_model_describe(m, &info);
    assert_non_null(strstr(info.note, "random"));
    gm_model_close(m);
    tiny_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_models_are_refused),
        cmocka_unit_test(test_broken_files_are_refused),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_sentences_are_whole_under_long_names),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_norms_of_half_precision),
        cmocka_unit_test(test_any_order_of_tensors),
        cmocka_unit_test(test_description),
    };
    return cmocka_run_group_tests_name("t_weights", tests, tiny_setup, tiny_teardown);
}
