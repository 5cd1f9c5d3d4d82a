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

/* The text in a block of exactly its size, so that a read past the end is seen. */
static gm_status parse(gm_tensorfile *f, const char *json, gm_err *err)
{
    const size_t n = strlen(json);
    uint8_t *const bytes = malloc(n ? n : 1);
    assert_non_null(bytes);
    memcpy(bytes, json, n);
    const gm_status s = gm_hf_config_parse(f, bytes, n, "config.json", err);
    free(bytes);
    return s;
}

static gm_tensorfile *parsed(const char *json)
{
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    if (parse(f, json, &err) != GM_OK) fail_msg("%s: %s", json, err.msg);
    return f;
}

static void expect_u32(const gm_tensorfile *f, const char *key, uint32_t expected)
{
    uint32_t v = expected + 1;
    bool found = false;
    assert_int_equal(gm_meta_u32(&f->meta, key, &v, &found, NULL), GM_OK);
    if (!found || v != expected)
        fail_msg("%s is %u (found %d), expected %u", key, v, found, expected);
}

static void expect_f32(const gm_tensorfile *f, const char *key, double expected)
{
    float v = 0;
    bool found = false;
    assert_int_equal(gm_meta_f32(&f->meta, key, &v, &found, NULL), GM_OK);
    if (!found || v != (float)expected)
        fail_msg("%s is %g (found %d), expected %g", key, (double)v, found, expected);
}

static void expect_str(const gm_tensorfile *f, const char *key, const char *expected)
{
    gm_str v = GM_STR("");
    assert_int_equal(gm_meta_str(&f->meta, key, &v, NULL, NULL), GM_OK);
    assert_true(gm_str_eq(v, gm_str_c(expected)));
}

static void expect_bool(const gm_tensorfile *f, const char *key, bool expected)
{
    bool v = !expected;
    assert_int_equal(gm_meta_bool(&f->meta, key, &v, NULL, NULL), GM_OK);
    assert_int_equal(v, expected);
}

/* pattern: one letter a layer, L local, G global. */
static void expect_layers(const gm_tensorfile *f, const char *pattern)
{
    const gm_metaval *const v = gm_meta_find(&f->meta, "gemma3.attention.sliding_window_pattern");
    assert_non_null(v);
    assert_int_equal(v->type, GM_META_ARRAY);
    assert_int_equal(v->elem, GM_META_BOOL);
    assert_int_equal(v->n, strlen(pattern));
    for (uint64_t i = 0; i < v->n; i++)
        assert_true((gm_meta_elem(v, i) != 0) == (pattern[i] == 'L'));
}

static void test_defaults(void **state)
{
    (void)state;
    gm_tensorfile *const f = parsed("{\"model_type\": \"gemma3_text\"}");
    expect_str(f, "general.architecture", "gemma3");
    expect_u32(f, "gemma3.context_length", 131072);
    expect_u32(f, "gemma3.embedding_length", 2304);
    expect_u32(f, "gemma3.block_count", 26);
    expect_u32(f, "gemma3.feed_forward_length", 9216);
    expect_u32(f, "gemma3.attention.head_count", 8);
    expect_u32(f, "gemma3.attention.head_count_kv", 4);
    expect_u32(f, "gemma3.attention.key_length", 256);
    expect_u32(f, "gemma3.attention.value_length", 256);
    expect_f32(f, "gemma3.attention.layer_norm_rms_epsilon", 1e-6);
    expect_u32(f, "gemma3.attention.sliding_window", 4096);
    expect_f32(f, "gemma3.rope.freq_base", 1e6);
    expect_f32(f, "gemma3.rope.freq_base_swa", 1e4);
    expect_f32(f, "gemma3.rope.scaling.factor", 1);
    assert_null(gm_meta_find(&f->meta, "gemma3.rope.scaling.type"));
    expect_layers(f, "LLLLLGLLLLLGLLLLLGLLLLLGLL");
    assert_null(gm_meta_find(&f->meta, "gemma3.final_logit_softcapping"));
    expect_f32(f, "gemmule.norm_offset", 1);
    expect_f32(f, "gemmule.attention.query_scale_dim", 256);
    expect_bool(f, "gemmule.tied_embeddings", true);
    assert_null(gm_meta_find(&f->meta, "tokenizer.ggml.eos_token_id"));
    assert_null(gm_meta_find(&f->meta, "general.name"));
    gm_tensorfile_close(f);
}

/* As published for 27B: text_config with only what differs from the defaults. */
static void test_nested_v4(void **state)
{
    (void)state;
    gm_tensorfile *const f = parsed(
        "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"model_type\": \"gemma3\","
        " \"eos_token_id\": [1, 106], \"vision_config\": {\"hidden_size\": 1152},"
        " \"text_config\": {\"model_type\": \"gemma3_text\", \"head_dim\": 128,"
        "  \"hidden_size\": 5376, \"intermediate_size\": 21504, \"num_attention_heads\": 32,"
        "  \"num_hidden_layers\": 7, \"num_key_value_heads\": 16, \"query_pre_attn_scalar\": 168,"
        "  \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"},"
        "  \"final_logit_softcapping\": 30.0, \"eos_token_id\": 5, \"sliding_window\": 1024}}");
    expect_u32(f, "gemma3.embedding_length", 5376);
    expect_u32(f, "gemma3.attention.key_length", 128);
    expect_u32(f, "gemma3.attention.sliding_window", 1024);
    expect_f32(f, "gemmule.attention.query_scale_dim", 168);
    expect_str(f, "gemma3.rope.scaling.type", "linear");
    expect_f32(f, "gemma3.rope.scaling.factor", 8);
    expect_layers(f, "LLLLLGL");
    expect_u32(f, "tokenizer.ggml.eos_token_id", 1);
    assert_null(gm_meta_find(&f->meta, "gemma3.final_logit_softcapping"));
    gm_tensorfile_close(f);
}

static void test_v5(void **state)
{
    (void)state;
    gm_tensorfile *const f = parsed(
        "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 3, \"_name_or_path\": \"x/y\","
        " \"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\"],"
        " \"final_logit_softcapping\": 30, \"eos_token_id\": 106, \"tie_word_embeddings\": false,"
        " \"attn_logit_softcapping\": null, \"attention_bias\": false,"
        " \"rope_parameters\": {"
        "  \"full_attention\": {\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 5e5},"
        "  \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 20000}}}");
    expect_f32(f, "gemma3.rope.freq_base", 5e5);
    expect_f32(f, "gemma3.rope.freq_base_swa", 2e4);
    expect_f32(f, "gemma3.rope.scaling.factor", 4);
    expect_str(f, "gemma3.rope.scaling.type", "linear");
    expect_layers(f, "GLG");
    expect_f32(f, "gemma3.final_logit_softcapping", 30);
    expect_u32(f, "tokenizer.ggml.eos_token_id", 106);
    expect_bool(f, "gemmule.tied_embeddings", false);
    expect_str(f, "general.name", "x/y");
    gm_tensorfile_close(f);
}

static void test_rope_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        double base, base_swa, factor;
    } CASES[] = {
        {"\"rope_theta\": 7e5, \"rope_local_base_freq\": 9e3, \"rope_scaling\": null", 7e5, 9e3, 1},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", 1e6, 1e4, 2},
        {"\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"yarn\", \"factor\": 3}", 1e6,
         1e4, 3},
        {"\"rope_scaling\": {\"rope_type\": \"default\", \"factor\": 3}", 1e6, 1e4, 1},
        {"\"rope_parameters\": {\"rope_theta\": 3e5, \"rope_type\": \"linear\", \"factor\": 8}",
         3e5, 1e4, 8},
        {"\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 3e4}}", 1e6, 3e4, 1},
        {"\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 1}}",
         1e6, 1e4, 1},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2},"
         " \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}",
         1e6, 1e4, 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char json[512];
        snprintf(json, sizeof json, "{\"model_type\": \"gemma3_text\", %s}", CASES[i].json);
        gm_tensorfile *const f = parsed(json);
        expect_f32(f, "gemma3.rope.freq_base", CASES[i].base);
        expect_f32(f, "gemma3.rope.freq_base_swa", CASES[i].base_swa);
        expect_f32(f, "gemma3.rope.scaling.factor", CASES[i].factor);
        gm_tensorfile_close(f);
    }
}

static void test_patterns(void **state)
{
    (void)state;
    gm_tensorfile *f = parsed("{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 5,"
                              " \"sliding_window_pattern\": 2}");
    expect_layers(f, "LGLGL");
    gm_tensorfile_close(f);
    f = parsed("{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 4,"
               " \"_sliding_window_pattern\": 3, \"layer_types\": null}");
    expect_layers(f, "LLGL");
    gm_tensorfile_close(f);
    f = parsed("{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 3,"
               " \"sliding_window_pattern\": 1}");
    expect_layers(f, "GGG");
    gm_tensorfile_close(f);
}

/* Every refusal: what is in the file, and words that the sentence must have. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *json, *words, *more;
        gm_status code;
    } CASES[] = {
        {"", "config.json", "empty", GM_E_FORMAT},
        {"{", "config.json", "not valid JSON", GM_E_FORMAT},
        {"[1]", "config.json", "no object", GM_E_FORMAT},
        {"{\"model_type\": \"gemma3_text\"} x", "config.json", "not valid JSON", GM_E_FORMAT},
        {"{\"model_type\": 1, \"model_type\": 1}", "config.json", "duplicate", GM_E_FORMAT},
        {"{}", "model_type is nothing", "gemma3_text", GM_E_FORMAT},
        {"{\"model_type\": 3}", "model_type is 3", "string", GM_E_FORMAT},
        {"{\"model_type\": \"llama\"}", "\"llama\"", "gemma3_text", GM_E_UNSUP},
        {"{\"model_type\": \"gemma3n\", \"text_config\": {}}", "\"gemma3n\"", "gemma3", GM_E_UNSUP},
        {"{\"model_type\": \"gemma3\"}", "text_config is nothing", "object", GM_E_FORMAT},
        {"{\"model_type\": \"gemma3\", \"text_config\": 4}", "text_config is 4", "object",
         GM_E_FORMAT},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma2\"}}",
         "text_config.model_type is \"gemma2\"", "gemma3_text", GM_E_FORMAT},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"head_dim\": \"a\"}}",
         "text_config.head_dim is \"a\"", "2 to 1024", GM_E_FORMAT},
#define FLAT(body, words, more, code) \
    {"{\"model_type\": \"gemma3_text\", " body "}", words, more, code}
        FLAT("\"hidden_activation\": \"relu\"", "\"relu\"", "gelu_pytorch_tanh", GM_E_UNSUP),
        FLAT("\"attention_bias\": true", "attention_bias is true", "false", GM_E_UNSUP),
        FLAT("\"attention_bias\": 1", "attention_bias is 1", "true or false", GM_E_FORMAT),
        FLAT("\"use_bidirectional_attention\": true", "use_bidirectional_attention", "false",
             GM_E_UNSUP),
        FLAT("\"attn_logit_softcapping\": 50.0", "attn_logit_softcapping", "null", GM_E_UNSUP),
        FLAT("\"quantization_config\": {\"bits\": 4}", "quantised Hugging Face checkpoints", "BF16",
             GM_E_UNSUP),
        FLAT("\"hidden_size\": 0", "hidden_size is 0", "1 to 1048576", GM_E_FORMAT),
        FLAT("\"hidden_size\": -5", "hidden_size is -5", "1 to", GM_E_FORMAT),
        FLAT("\"hidden_size\": 640.5", "hidden_size is 640.5", "integer", GM_E_FORMAT),
        FLAT("\"hidden_size\": null", "hidden_size is null", "integer", GM_E_FORMAT),
        FLAT("\"hidden_size\": [1]", "hidden_size is an array", "integer", GM_E_FORMAT),
        FLAT("\"hidden_size\": 4294967936", "hidden_size is 4294967936", "integer", GM_E_FORMAT),
        FLAT("\"hidden_size\": 99999999999999999999", "config.json", "integer", GM_E_FORMAT),
        FLAT("\"hidden_size\": 1048577", "hidden_size", "1 to 1048576", GM_E_FORMAT),
        FLAT("\"intermediate_size\": 4194305", "intermediate_size", "1 to 4194304", GM_E_FORMAT),
        FLAT("\"num_hidden_layers\": 1025", "num_hidden_layers", "1 to 1024", GM_E_FORMAT),
        FLAT("\"num_attention_heads\": 1025", "num_attention_heads", "1 to 1024", GM_E_FORMAT),
        FLAT("\"num_key_value_heads\": 0", "num_key_value_heads", "1 to 1024", GM_E_FORMAT),
        FLAT("\"num_key_value_heads\": 3", "num_attention_heads is 8", "the 3", GM_E_FORMAT),
        FLAT("\"head_dim\": 127", "head_dim is 127", "even", GM_E_FORMAT),
        FLAT("\"head_dim\": 1026", "head_dim is 1026", "2 to 1024", GM_E_FORMAT),
        FLAT("\"sliding_window\": null", "sliding_window is null", "integer", GM_E_FORMAT),
        FLAT("\"sliding_window\": 0", "sliding_window is 0", "1 to", GM_E_FORMAT),
        FLAT("\"max_position_embeddings\": 2147483648", "max_position_embeddings", "2 to 16777216",
             GM_E_FORMAT),
        FLAT("\"vocab_size\": 4194305", "vocab_size", "1 to 4194304", GM_E_FORMAT),
        FLAT("\"rms_norm_eps\": 0", "rms_norm_eps is 0", "number", GM_E_FORMAT),
        FLAT("\"rms_norm_eps\": \"1e-6\"", "rms_norm_eps is \"1e-6\"", "number", GM_E_FORMAT),
        FLAT("\"query_pre_attn_scalar\": -1", "query_pre_attn_scalar is -1", "number", GM_E_FORMAT),
        FLAT("\"rope_theta\": 0.5", "rope_theta is 0.5", "number", GM_E_FORMAT),
        FLAT("\"rope_local_base_freq\": true", "rope_local_base_freq is true", "number",
             GM_E_FORMAT),
        FLAT("\"rope_scaling\": 8", "rope_scaling is 8", "object", GM_E_FORMAT),
        FLAT("\"rope_scaling\": {\"rope_type\": \"yarn\"}", "rope_scaling.rope_type is \"yarn\"",
             "default or linear", GM_E_UNSUP),
        FLAT("\"rope_scaling\": {\"type\": \"dynamic\"}", "rope_scaling.type is \"dynamic\"",
             "default or linear", GM_E_UNSUP),
        FLAT("\"rope_scaling\": {\"rope_type\": \"linear\"}", "rope_scaling.factor is nothing",
             "factor", GM_E_FORMAT),
        FLAT("\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0}",
             "rope_scaling.factor is 0", "number", GM_E_FORMAT),
        FLAT("\"rope_parameters\": {\"full_attention\": 3}", "rope_parameters.full_attention is 3",
             "object", GM_E_FORMAT),
        FLAT("\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\", "
             "\"factor\": 8}}",
             "rope_parameters.sliding_attention.factor is 8", "expected 1", GM_E_UNSUP),
        FLAT("\"layer_types\": 3", "layer_types is 3", "array", GM_E_FORMAT),
        FLAT("\"layer_types\": [\"full_attention\"]", "has 1 entries", "26 layers", GM_E_FORMAT),
        FLAT("\"num_hidden_layers\": 1, \"layer_types\": [\"chunked_attention\"]",
             "\"chunked_attention\"", "sliding_attention or full_attention", GM_E_FORMAT),
        FLAT("\"num_hidden_layers\": 1, \"layer_types\": [7]", "is 7", "full_attention",
             GM_E_FORMAT),
        FLAT("\"sliding_window_pattern\": 0", "sliding_window_pattern is 0", "1 to", GM_E_FORMAT),
        FLAT("\"final_logit_softcapping\": -30", "final_logit_softcapping is -30", "number",
             GM_E_FORMAT),
        FLAT("\"tie_word_embeddings\": \"no\"", "tie_word_embeddings is \"no\"", "true or false",
             GM_E_FORMAT),
        FLAT("\"eos_token_id\": -1", "eos_token_id is -1", "token id", GM_E_FORMAT),
        FLAT("\"eos_token_id\": [\"a\"]", "eos_token_id is \"a\"", "token id", GM_E_FORMAT),
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        gm_tensorfile *const f = fresh();
        gm_err err = {0};
        const gm_status s = parse(f, CASES[i].json, &err);
        if (s != CASES[i].code || !strstr(err.msg, CASES[i].words) ||
            !strstr(err.msg, CASES[i].more) || !strstr(err.msg, "config.json"))
            fail_msg("%s: status %d, \"%s\"", CASES[i].json, s, err.msg);
        gm_tensorfile_close(f);
    }
}

/* jansson stops at a nesting of 2048: an error, not a full stack. */
static void test_deep_nesting(void **state)
{
    (void)state;
    const size_t n = 100000;
    uint8_t *const deep = malloc(n);
    assert_non_null(deep);
    memset(deep, '[', n);
    gm_tensorfile *const f = fresh();
    gm_err err = {0};
    assert_int_equal(gm_hf_config_parse(f, deep, n, "config.json", &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "depth"));
    gm_tensorfile_close(f);
    free(deep);
}

static gm_status generation(gm_tensorfile *f, const char *json, gm_err *err)
{
    return gm_hf_generation_parse(f, (const uint8_t *)json, strlen(json), "generation_config.json",
                                  err);
}

static void test_generation(void **state)
{
    (void)state;
    gm_tensorfile *f = fresh();
    gm_err err = {0};
    assert_int_equal(generation(f,
                                "{\"do_sample\": true, \"top_k\": 64, \"top_p\": 0.95,"
                                " \"temperature\": null, \"eos_token_id\": [1, 106]}",
                                &err),
                     GM_OK);
    expect_u32(f, "general.sampling.top_k", 64);
    expect_f32(f, "general.sampling.top_p", 0.95);
    assert_null(gm_meta_find(&f->meta, "general.sampling.temp"));
    gm_tensorfile_close(f);

    f = fresh();
    assert_int_equal(generation(f, "{\"temperature\": 1}", &err), GM_OK);
    expect_f32(f, "general.sampling.temp", 1);
    assert_int_equal(f->meta.n, 1);
    assert_int_equal(generation(f, "{\"temperature\": 100}", &err), GM_OK);
    assert_int_equal(generation(f, "{\"temperature\": 100.5}", &err), GM_E_FORMAT);
    assert_int_equal(generation(f, "{\"temperature\": -1}", &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "temperature is -1"));
    assert_int_equal(generation(f, "{\"top_k\": 1.5}", &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "top_k is 1.5"));
    assert_int_equal(generation(f, "{\"top_p\": 1.5}", &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "top_p is 1.5"));
    assert_int_equal(generation(f, "nothing", &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "generation_config.json"));
    gm_tensorfile_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_nested_v4),
        cmocka_unit_test(test_v5),           cmocka_unit_test(test_rope_spellings),
        cmocka_unit_test(test_patterns),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deep_nesting), cmocka_unit_test(test_generation),
    };
    return cmocka_run_group_tests_name("t_hf_config", tests, NULL, NULL);
}
