/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "file/gguf.h"
#include "gemmule_tools.h"

#define GOLDEN "tests/golden/"

/* ---- a file with a value of every type --------------------------------------------------- */

static char path[256];

static const gm_metaval *numbers(void)
{
    static const uint8_t raw[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 255};
    static const float floats[2] = {1e-6f, -0.5f};
    static const gm_str words[2] = {{"a\nb", 3}, {"\xff\xc2\x9b", 3}};
    static gm_metaval list[] = {
        {.type = GM_META_STR, .n = 1, .s = {"llama", 5}},
        {.type = GM_META_U8, .n = 1, .u = 255},
        {.type = GM_META_I8, .n = 1, .i = -128},
        {.type = GM_META_U64, .n = 1, .u = UINT64_MAX},
        {.type = GM_META_I64, .n = 1, .i = INT64_MIN},
        {.type = GM_META_F32, .n = 1, .f = 0.1f},
        {.type = GM_META_F64, .n = 1, .f = 0.1},
        {.type = GM_META_BOOL, .n = 1, .u = 1},
        {.type = GM_META_ARRAY, .elem = GM_META_I8, .n = 10},
        {.type = GM_META_ARRAY, .elem = GM_META_F32, .n = 2},
        {.type = GM_META_ARRAY, .elem = GM_META_STR, .n = 2},
        {.type = GM_META_ARRAY, .elem = GM_META_U32, .n = 0},
        {.type = GM_META_STR, .n = 1, .s = {"\t\\\x01 \xc3\xa9", 6}},
    };
    list[8].raw = raw;
    list[9].raw = (const uint8_t *)floats;
    list[10].strs = words;
    list[11].raw = raw;
    return list;
}

/* What is shown of each, type and value. */
static const char *const SHOWN[][2] = {
    {"string", "llama"},
    {"u8", "255"},
    {"i8", "-128"},
    {"u64", "18446744073709551615"},
    {"i64", "-9223372036854775808"},
    {"f32", "0.1"},
    {"f64", "0.1"},
    {"bool", "true"},
    {"array of i8", "[0, 1, 2, 3, 4, 5, 6, 7, ...]"},
    {"array of f32", "[1e-06, -0.5]"},
    {"array of string", "[\"a\\nb\", \"\xef\xbf\xbd\\u009b\"]"},
    {"array of u32", "[]"},
    {"string", "\\t\\\\\\u0001 \xc3\xa9"},
};
#define N_SHOWN (sizeof SHOWN / sizeof SHOWN[0])

/* Every value above, a long text, a long text of wide characters, and one tensor. */
static int file_write(void **state)
{
    (void)state;
    static const char *const keys[] = {"general.architecture",
                                       "k1",
                                       "k2",
                                       "k3",
                                       "k4",
                                       "k5",
                                       "k6",
                                       "k7",
                                       "k8",
                                       "k9",
                                       "k10",
                                       "k11",
                                       "k12"};
    static char longest[1000], wide[999];
    memset(longest, 'x', sizeof longest);
    for (size_t i = 0; i < sizeof wide; i++)
        wide[i] = "\xe2\x96\x81"[i % 3];
    gm_meta meta = {0};
    for (size_t i = 0; i < N_SHOWN; i++) {
        gm_metaval v = numbers()[i];
        v.key = gm_str_c(keys[i]);
        assert_int_equal(gm_meta_add(&meta, &v, NULL), GM_OK);
    }
    const gm_metaval texts[] = {
        {.key = GM_STR("long"), .type = GM_META_STR, .n = 1, .s = {longest, sizeof longest}},
        {.key = GM_STR("wide"), .type = GM_META_STR, .n = 1, .s = {wide, sizeof wide}},
    };
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(gm_meta_add(&meta, &texts[i], NULL), GM_OK);
    const gm_tensor tensor = {.name = "odd.weight",
                              .type = gm_qtype_find(GM_QTYPE_F32),
                              .n_dims = 2,
                              .shape = {3, 5},
                              .size = 60};
    const gm_tensors tensors = {.at = &tensor, .n = 1};
    const uint8_t data[64] = {0};

    const char *const tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/gemmule-inspect-XXXXXX", tmp ? tmp : "/tmp");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *const out = fdopen(fd, "wb");
    assert_non_null(out);
    assert_int_equal(gm_gguf_write_header(out, &meta, &tensors, path, NULL), GM_OK);
    assert_int_equal(fwrite(data, 1, 60 + gm_gguf_pad(60), out), 64);
    assert_int_equal(fclose(out), 0);
    gm_meta_deinit(&meta);
    return 0;
}

static int file_remove(void **state)
{
    (void)state;
    return unlink(path);
}

static gm_modelfile *opened(const char *name)
{
    gm_modelfile *f = NULL;
    gm_err err = {0};
    if (gm_modelfile_open(&f, name, &err) != GM_OK) fail_msg("%s", err.msg);
    return f;
}

static gm_model *opened_model(const char *name)
{
    gm_model *m = NULL;
    gm_err err = {0};
    if (gm_model_open(&m, name, &err) != GM_OK) fail_msg("%s", err.msg);
    return m;
}

/* ---- tests ------------------------------------------------------------------------------- */

static void test_values(void **state)
{
    (void)state;
    gm_modelfile *const f = opened(path);
    assert_string_equal(gm_modelfile_format(f), "GGUF v3");
    for (size_t i = 0; i < N_SHOWN; i++) {
        gm_keyinfo k = {.size = sizeof k};
        assert_int_equal(gm_modelfile_key(f, i, &k), GM_OK);
        assert_string_equal(k.type, SHOWN[i][0]);
        assert_string_equal(k.value, SHOWN[i][1]);
        assert_int_equal(k.n, numbers()[i].n);
    }
    gm_modelfile_close(f);
}

static void test_long_values_are_cut(void **state)
{
    (void)state;
    gm_modelfile *const f = opened(path);
    gm_keyinfo k = {.size = sizeof k};
    assert_int_equal(gm_modelfile_key(f, N_SHOWN, &k), GM_OK);
    assert_int_equal(strlen(k.value), sizeof k.value - 1);
    assert_string_equal(k.value + sizeof k.value - 5, "x...");
    assert_int_equal(gm_modelfile_key(f, N_SHOWN + 1, &k), GM_OK);
    assert_int_equal(strspn(k.value, "\xe2\x96\x81") % 3, 0);
    assert_string_equal(k.value + strspn(k.value, "\xe2\x96\x81"), "...");
    assert_int_equal(gm_modelfile_key(f, N_SHOWN + 2, &k), GM_E_ARG);
    gm_modelfile_close(f);
}

/* A caller built against a shorter struct gets no more than it has room for. */
static void test_short_structs(void **state)
{
    (void)state;
    gm_modelfile *const f = opened(path);
    gm_keyinfo k;
    memset(&k, 0x55, sizeof k);
    k.size = offsetof(gm_keyinfo, type);
    assert_int_equal(gm_modelfile_key(f, 1, &k), GM_OK);
    assert_memory_equal(k.key, "k1", 2);
    assert_int_equal(k.value[0], 0x55);
    gm_tensorinfo t;
    memset(&t, 0x55, sizeof t);
    t.size = offsetof(gm_tensorinfo, bytes);
    assert_int_equal(gm_modelfile_tensor(f, 0, &t), GM_OK);
    assert_string_equal(t.name, "odd.weight");
    assert_int_equal(t.bytes, 0x5555555555555555);
    gm_modelfile_close(f);
}

static void test_tensors(void **state)
{
    (void)state;
    gm_modelfile *const f = opened(path);
    gm_tensorinfo t = {.size = sizeof t};
    assert_int_equal(gm_modelfile_tensor(f, 0, &t), GM_OK);
    assert_string_equal(t.type, "f32");
    assert_int_equal(t.n_dims, 2);
    assert_int_equal(t.shape[0], 3);
    assert_int_equal(t.shape[1], 5);
    assert_int_equal(t.bytes, 60);
    assert_int_equal(gm_modelfile_tensor(f, 1, &t), GM_E_ARG);
    uint64_t bytes = 1;
    assert_int_equal(gm_modelfile_skipped(f, &bytes), 0);
    assert_int_equal(bytes, 0);
    gm_modelfile_close(f);
}

static void test_vision_is_counted(void **state)
{
    (void)state;
    gm_modelfile *const f = opened(GOLDEN "multimodal");
    uint64_t bytes = 0;
    assert_true(gm_modelfile_skipped(f, &bytes) > 0);
    assert_true(bytes > 0);
    assert_true(gm_modelfile_skipped(f, NULL) > 0);
    assert_string_equal(gm_modelfile_format(f), "Hugging Face safetensors");
    gm_modelfile_close(f);
}

static void test_refusals(void **state)
{
    (void)state;
    gm_modelfile *f = NULL;
    gm_err err = {0};
    assert_int_not_equal(gm_modelfile_open(&f, GOLDEN "nothing", &err), GM_OK);
    assert_null(f);
    assert_non_null(strstr(err.msg, GOLDEN "nothing"));
    gm_modelfile_close(NULL);
    gm_text_free(NULL);
}

/* The number is what an engine takes: global layers by the context, local ones by the window. */
static void test_kv_size(void **state)
{
    (void)state;
    gm_model *const m = opened_model(GOLDEN "gqa4");
    const gm_engine_opts opts = {.size = sizeof opts, .n_ctx = 1024};
    gm_engine *e = NULL;
    assert_int_equal(gm_engine_open(&e, m, &opts, NULL), GM_OK);
    uint64_t held = 0;
    for (uint32_t c = 0; c < GM_CLASSES; c++)
        held += e->place.pool.n_pages[c] * e->place.runner.ops->kv_page_size(e->place.runner.kv, c);
    assert_int_equal(gm_model_kv_size(m, 1024), held);
    gm_engine_close(e);

    const uint64_t a = gm_model_kv_size(m, 640), b = gm_model_kv_size(m, 832);
    const uint64_t c = gm_model_kv_size(m, 1024);
    assert_true(b > a);
    assert_int_equal(c - b, b - a);
    const uint64_t padded = (m->config.head_dim + 31) / 32 * 32;
    const uint64_t global_cell = 2ull * m->config.n_kv_head * padded * sizeof(uint16_t);
    assert_int_equal(b - a, 192 * global_cell); /* one of its six layers is global */
    gm_model_close(m);
}

static void test_plan_text(void **state)
{
    (void)state;
    gm_model *const m = opened_model(GOLDEN "gqa4");
    char *text = NULL;
    assert_int_equal(gm_model_plan_text(m, &text, NULL), GM_OK);
    assert_non_null(strstr(text, "input_rows token_embd.weight"));
    assert_non_null(strstr(text, "blk.5.ffn_down.weight"));
    assert_int_equal(text[strlen(text) - 1], '\n');
    gm_text_free(text);
    gm_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_long_values_are_cut),
        cmocka_unit_test(test_short_structs),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_vision_is_counted),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_kv_size),
        cmocka_unit_test(test_plan_text),
    };
    return cmocka_run_group_tests_name("t_inspect", tests, file_write, file_remove);
}
