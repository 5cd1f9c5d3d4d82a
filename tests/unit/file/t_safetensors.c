/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "file/hf.h"

static gm_tensorfile *fresh(void)
{
    gm_tensorfile *f = NULL;
    assert_int_equal(gm_mem_alloc(&f, 1, sizeof *f, "a test's file", NULL), GM_OK);
    return f;
}

/* A file in memory of exactly its size: the header's length, the header, data 0 1 2 ... */
typedef struct image {
    uint8_t *data;
    size_t size;
} image;

static image image_make(const char *header, uint64_t said, size_t n_data)
{
    const size_t n = strlen(header);
    image m = {malloc(8 + n + n_data), 8 + n + n_data};
    assert_non_null(m.data);
    memcpy(m.data, &said, 8);
    memcpy(m.data + 8, header, n);
    for (size_t i = 0; i < n_data; i++)
        m.data[8 + n + i] = (uint8_t)i;
    return m;
}

static gm_status parse(gm_tensorfile *f, const image *m, gm_err *err)
{
    return gm_safetensors_parse(f, m->data, m->size, "model.safetensors", err);
}

static void test_views(void **state)
{
    (void)state;
    /* The header's length is odd, so the data are not aligned; the JSON is padded with spaces. */
    const char *const header =
        "{\"__metadata__\": {\"format\": \"pt\"},"
        " \"model.layers.17.self_attn.q_proj.weight\":"
        "  {\"dtype\": \"F32\", \"shape\": [3, 5], \"data_offsets\": [10, 70]},"
        " \"model.embed_tokens.weight\":"
        "  {\"dtype\": \"BF16\", \"shape\": [5], \"data_offsets\": [0, 10]},"
        " \"model.vision_tower.x\": {\"dtype\": \"F64\", \"shape\": [], \"data_offsets\": [70, "
        "77]},"
        " \"multi_modal_projector.mm_input_projection_weight\":"
        "  {\"dtype\": \"I8\", \"shape\": [1], \"data_offsets\": [77, 78]},"
        " \"model.layers.0.self_attn.rotary_emb.inv_freq\":"
        "  {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [78, 82]},"
        " \"model.norm.weight\":"
        "  {\"dtype\": \"F16\", \"shape\": [1, 1, 2, 1], \"data_offsets\": [90, 94]}}     ";
    const image m = image_make(header, strlen(header), 94);
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    if (parse(f, &m, &err) != GM_OK) fail_msg("%s", err.msg);
    const uint8_t *const data = m.data + 8 + strlen(header);

    assert_int_equal(f->n_tensors, 3);
    assert_string_equal(f->tensors[0].name, "token_embd.weight");
    assert_string_equal(f->tensors[1].name, "blk.17.attn_q.weight");
    assert_string_equal(f->tensors[2].name, "output_norm.weight");
    const gm_tensor *const q = &f->tensors[1];
    assert_int_equal(q->type->id, GM_QTYPE_F32);
    assert_int_equal(q->n_dims, 2);
    assert_int_equal(q->shape[0], 3);
    assert_int_equal(q->shape[1], 5);
    assert_int_equal(q->size, 60);
    assert_ptr_equal(q->data, data + 10);
    assert_true((uintptr_t)q->data % 4 != 0);
    assert_int_equal(f->tensors[0].type->id, GM_QTYPE_BF16);
    assert_int_equal(f->tensors[2].type->id, GM_QTYPE_F16);
    assert_int_equal(f->tensors[2].n_dims, 4);
    assert_int_equal(f->n_skipped, 2);
    assert_int_equal(f->size_skipped, 8);
    gm_tensorfile_close(f);
    free(m.data);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const PREFIX[] = {"", "model.", "language_model.model.",
                                         "model.language_model."};
    static const struct {
        const char *hf, *gguf;
    } NAMES[] = {
        {"embed_tokens.weight", "token_embd.weight"},
        {"norm.weight", "output_norm.weight"},
        {"lm_head.weight", "output.weight"},
        {"layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
        {"layers.1.post_attention_layernorm.weight", "blk.1.post_attention_norm.weight"},
        {"layers.2.pre_feedforward_layernorm.weight", "blk.2.ffn_norm.weight"},
        {"layers.3.post_feedforward_layernorm.weight", "blk.3.post_ffw_norm.weight"},
        {"layers.4.self_attn.q_proj.weight", "blk.4.attn_q.weight"},
        {"layers.5.self_attn.k_proj.weight", "blk.5.attn_k.weight"},
        {"layers.6.self_attn.v_proj.weight", "blk.6.attn_v.weight"},
        {"layers.7.self_attn.o_proj.weight", "blk.7.attn_output.weight"},
        {"layers.8.self_attn.q_norm.weight", "blk.8.attn_q_norm.weight"},
        {"layers.9.self_attn.k_norm.weight", "blk.9.attn_k_norm.weight"},
        {"layers.10.mlp.gate_proj.weight", "blk.10.ffn_gate.weight"},
        {"layers.61.mlp.up_proj.weight", "blk.61.ffn_up.weight"},
        {"layers.1023.mlp.down_proj.weight", "blk.1023.ffn_down.weight"},
    };
    char hf[128], gguf[GM_HF_NAME_MAX];
    for (size_t p = 0; p < sizeof PREFIX / sizeof PREFIX[0]; p++) {
        for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
            snprintf(hf, sizeof hf, "%s%s", PREFIX[p], NAMES[i].hf);
            assert_int_equal(gm_hf_tensor_name(gm_str_c(hf), gguf), GM_HF_NAME_TEXT);
            assert_string_equal(gguf, NAMES[i].gguf);
        }
    }
    assert_int_equal(gm_hf_tensor_name(GM_STR("language_model.lm_head.weight"), gguf),
                     GM_HF_NAME_TEXT);
    assert_string_equal(gguf, "output.weight");
    assert_int_equal(
        gm_hf_tensor_name(GM_STR("vision_tower.vision_model.post_layernorm.bias"), gguf),
        GM_HF_NAME_VISION);
    assert_int_equal(gm_hf_tensor_name(GM_STR("model.rotary_emb.inv_freq"), gguf),
                     GM_HF_NAME_IGNORED);
    static const char *const UNKNOWN[] = {
        "",
        "layers.",
        "layers.0",
        "layers..input_layernorm.weight",
        "layers.01.input_layernorm.weight",
        "layers.1024.input_layernorm.weight",
        "layers.99999999999999999999.input_layernorm.weight",
        "layers.-1.input_layernorm.weight",
        "layers.0.self_attn.q_proj.bias",
        "model.model.model.norm.weight",
        "score.weight",
    };
    for (size_t i = 0; i < sizeof UNKNOWN / sizeof UNKNOWN[0]; i++)
        assert_int_equal(gm_hf_tensor_name(gm_str_c(UNKNOWN[i]), gguf), GM_HF_NAME_UNKNOWN);
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": " offsets "}"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *header, *words;
        gm_status code;
    } CASES[] = {
        {"", "empty", GM_E_FORMAT},
        {"[]", "no object", GM_E_FORMAT},
        {"{\"a\"", "not valid JSON", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0, 8]") ", " T("norm.weight", "F32", "[2]",
                                                             "[8, 16]") "}",
         "duplicate", GM_E_FORMAT},
        {"{\"norm.weight\": 3}", "no data_offsets", GM_E_FORMAT},
        {"{\"norm.weight\": {}}", "no data_offsets", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0]") "}", "no data_offsets", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0, 8, 9]") "}", "no data_offsets", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0, 8.0]") "}", "no data_offsets", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[-8, 0]") "}", "[-8, 0]", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[8, 0]") "}", "[8, 0]", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[33, 41]") "}", "40 bytes of data", GM_E_FORMAT},
        {"{" T("vision_tower.x", "F8", "[2]", "[33, 41]") "}", "40 bytes of data", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0, 9223372036854775808]") "}", "not valid JSON",
         GM_E_FORMAT},
        {"{" T("norm.weight", "F64", "[1]", "[0, 8]") "}", "dtype F64", GM_E_UNSUP},
        {"{" T("norm.weight", "f32", "[2]", "[0, 8]") "}", "dtype f32", GM_E_UNSUP},
        {"{\"norm.weight\": {\"shape\": [2], \"data_offsets\": [0, 8]}}", "dtype missing",
         GM_E_UNSUP},
        {"{" T("norm.weight", "F32", "[]", "[0, 4]") "}", "0 dimensions", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "7", "[0, 4]") "}", "0 dimensions", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[1,1,1,1,1]", "[0, 4]") "}", "5 dimensions", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[0]", "[0, 0]") "}", "0 bytes of data", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[-1, -2]", "[0, 8]") "}", "8 bytes of data", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[\"2\"]", "[0, 8]") "}", "8 bytes of data", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[3]", "[0, 8]") "}", "8 bytes of data", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[4611686018427387904, 2]", "[0, 8]") "}", "8 bytes of data",
         GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0, 8]") ", " T("lm_head.weight", "F32", "[2]",
                                                             "[7, 15]") "}",
         "begins at 7, inside tensor norm.weight", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0, 8]") ", " T("vision_tower.x", "F8", "[2]",
                                                             "[4, 5]") "}",
         "begins at 4, inside tensor norm.weight", GM_E_FORMAT},
        {"{" T("norm.weight", "F32", "[2]", "[0, 8]") ", " T("model.norm.weight", "F32", "[2]",
                                                             "[8, 16]") "}",
         "output_norm.weight (in GGUF's words) is there twice", GM_E_FORMAT},
        {"{" T("layers.0.self_attn.q_proj.bias", "F32", "[2]", "[0, 8]") "}",
         "layers.0.self_attn.q_proj.bias is unknown", GM_E_UNSUP},
        {"{" T("norm.weight", "F32", "[2]", "[0, 8]") "}", "end at byte 8 of the data",
         GM_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const image m = image_make(CASES[i].header, strlen(CASES[i].header), 40);
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        const gm_status s = parse(f, &m, &err);
        if (s != CASES[i].code || !strstr(err.msg, CASES[i].words) ||
            !strstr(err.msg, "model.safetensors"))
            fail_msg("%s: status %d, \"%s\"", CASES[i].header, s, err.msg);
        gm_tensorfile_close(f);
        free(m.data);
    }
}

static void test_truncated(void **state)
{
    (void)state;
    const char *const header = "{" T("norm.weight", "F32", "[2]", "[0, 8]") "}";
    const image whole = image_make(header, strlen(header), 8);
    for (size_t n = 0; n <= whole.size; n++) {
        uint8_t *const cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, whole.data, n);
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        const gm_status s = parse(f, &(image){cut, n}, &err);
        assert_int_equal(s, n == whole.size ? GM_OK : GM_E_FORMAT);
        gm_tensorfile_close(f);
        free(cut);
    }
    free(whole.data);

    static const uint64_t SAID[] = {UINT64_MAX, UINT64_MAX - 7, INT64_MAX, 1u << 31};
    for (size_t i = 0; i < sizeof SAID / sizeof SAID[0]; i++) {
        const image m = image_make(header, SAID[i], 8);
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        assert_int_equal(parse(f, &m, &err), GM_E_FORMAT);
        assert_non_null(strstr(err.msg, "expected a safetensors file"));
        gm_tensorfile_close(f);
        free(m.data);
    }
}

static void test_twins_across_files(void **state)
{
    (void)state;
    const char *const header = "{" T("norm.weight", "F32", "[2]", "[0, 8]") "}";
    const image m = image_make(header, strlen(header), 8);
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    assert_int_equal(parse(f, &m, &err), GM_OK);
    assert_int_equal(parse(f, &m, &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "twice"));
    gm_tensorfile_close(f);
    free(m.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_twins_across_files),
    };
    return cmocka_run_group_tests_name("t_safetensors", tests, NULL, NULL);
}
