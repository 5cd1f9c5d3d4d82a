/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fp16.h"
#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"
#include "toolbox/convert.h"
#include "toolbox/importance.h"
#include "toolbox/synth.h"

#define LEN(array) (sizeof(array) / sizeof *(array))

static gm_err err;

#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

static const int32_t ids[] = {2, 17, 240, 99, 3, 201, 17, 17, 260, 30, 41};

static gm_convert_opts opts_of(const char *type)
{
    gm_convert_opts o = gm_convert_opts_default();
    o.type = type;
    o.force = 1;
    return o;
}

static gm_status convert(const char *source, const char *path, const gm_convert_opts *o)
{
    gm_convert *c = NULL;
    err = (gm_err){0};
    gm_status status = gm_convert_open(&c, source, path, o, &err);
    if (status == GM_OK) status = gm_convert_run(c, &err);
    gm_convert_close(c);
    return status;
}

static void nothing_is_left(void)
{
    glob_t found;
    assert_int_equal(glob(tiny_path("*.part"), 0, NULL, &found), GLOB_NOMATCH);
    globfree(&found);
}

/* Refused with these words, and no file appears. */
static void refused(const char *source, const gm_convert_opts *o, gm_status code, const char *words)
{
    char path[256];
    snprintf(path, sizeof path, "%s", tiny_path("refused.gguf"));
    unlink(path);
    assert_int_equal(convert(source, path, o), code);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, words)) fail_msg("\"%s\" is not in: %s", words, err.msg);
    assert_int_equal(access(path, F_OK), -1);
    nothing_is_left();
}

static gm_model *converted(const char *source, const char *type, const char *name)
{
    gm_model *m = NULL;
    const gm_convert_opts o = opts_of(type);
    char path[256];
    snprintf(path, sizeof path, "%s", tiny_path(name));
    OK(convert(source, path, &o));
    OK(gm_model_open(&m, path, &err));
    return m;
}

static double difference(const gm_model *a, const gm_model *b)
{
    const forward_opts ref = {"ref", 0};
    const uint32_t n = LEN(ids), n_vocab = gm_vocab_len(a->vocab);
    assert_int_equal(n_vocab, gm_vocab_len(b->vocab));
    float *const x = forward_logprobs(a, ids, n, &ref), *const y =
                                                            forward_logprobs(b, ids, n, &ref);
    const double worst = worst_difference(x, y, (size_t)n * n_vocab);
    free(x);
    free(y);
    return worst;
}

/* ---- what comes out is the same model -------------------------------------------------------- */

static void f32_of_a_gguf_is_the_same_bits(void **state)
{
    (void)state;
    static const gm_qtype from[] = {GM_QTYPE_BF16, GM_QTYPE_Q8_0, GM_QTYPE_Q4_0, GM_QTYPE_F16};
    for (size_t i = 0; i < LEN(from); i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){.matrix = from[i], .embed = from[i]});
        gm_model *const a = tiny_open(&t, "source.gguf");
        gm_model *const b = converted(tiny_path("source.gguf"), "f32", "f32.gguf");
        assert_true(difference(a, b) == 0);
        assert_true(gm_vocab_hash(a->vocab) == gm_vocab_hash(b->vocab));
        gm_model_close(a);
        gm_model_close(b);
        tiny_deinit(&t);
    }
}

/* Of a folder it is the same up to the rounding of norms, which are stored around 1 and not 0. */
static void folders_keep_their_meaning(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "tests/golden/gqa4",      "tests/golden/scaled",      "tests/golden/scale_27b",
        "tests/golden/sharded",   "tests/golden/multimodal",  "tests/golden/untied",
        "tests/golden/softcap",   "tests/golden/layer_types", "tests/golden/eps",
        "tests/golden/one_layer",
    };
    for (size_t i = 0; i < LEN(folders); i++) {
        gm_model *a = NULL;
        OK(gm_model_open(&a, folders[i], &err));
        gm_model *const b = converted(folders[i], "f32", "folder.gguf");
        const double worst = difference(a, b);
        if (!(worst < 1e-5)) fail_msg("%s: %g", folders[i], worst);
        assert_true(gm_vocab_hash(a->vocab) == gm_vocab_hash(b->vocab));
        assert_true(b->config.norm_offset == 0);
        assert_null(gm_meta_find(&b->file->meta, "gemmule.attention.query_scale_dim"));
        gm_model_close(a);
        gm_model_close(b);
    }
}

static void every_type_can_be_made_and_run(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_layer = 9, .n_embd = 256, .n_ffn = 512, .head_dim = 64});
    gm_model *const a = tiny_open(&t, "source.gguf");
    for (size_t i = 0; gm_convert_type(i, NULL); i++) {
        const char *const type = gm_convert_type(i, NULL);
        gm_model *const b = converted(tiny_path("source.gguf"), type, "typed.gguf");
        const double worst = difference(a, b);
        if (!isfinite(worst)) fail_msg("%s", type);
        if (strcmp(type, "f32") == 0) assert_true(worst == 0);
        gm_model_close(b);
    }
    gm_model_close(a);
    tiny_deinit(&t);
}

static void a_type_that_is_there_is_copied(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.matrix = GM_QTYPE_Q4_0, .embed = GM_QTYPE_Q8_0});
    gm_model *const a = tiny_open(&t, "source.gguf");
    gm_convert_opts o = opts_of("q4_0");
    o.head_type = "q8_0";
    OK(convert(tiny_path("source.gguf"), tiny_path("copy.gguf"), &o));
    gm_model *b = NULL;
    OK(gm_model_open(&b, tiny_path("copy.gguf"), &err));
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        assert_int_equal(a->tensors[i].size, b->tensors[i].size);
        assert_memory_equal(a->tensors[i].data, b->tensors[i].data, (size_t)a->tensors[i].size);
    }
    gm_model_close(a);
    gm_model_close(b);
    tiny_deinit(&t);
}

/* 64 rows of the embedding that no piece is listed for: other readers want a piece for each. */
static void rows_without_pieces_get_them(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_vocab = 500, .n_rows = 564});
    gm_model_close(tiny_open(&t, "source.gguf"));
    gm_model *const b = converted(tiny_path("source.gguf"), "f16", "padded.gguf");
    assert_int_equal(gm_meta_find(&b->file->meta, "tokenizer.ggml.tokens")->n, 564);
    assert_int_equal(gm_meta_find(&b->file->meta, "tokenizer.ggml.token_type")->n, 564);
    gm_model_close(b);
    tiny_deinit(&t);
}

static void the_ratio_of_scales_is_folded(void **state)
{
    (void)state;
    gm_model *a = NULL;
    OK(gm_model_open(&a, "tests/golden/softcap", &err));
    const float ratio = gm_convert_query_ratio(&a->config);
    assert_true(ratio != 1);
    gm_model *const b = converted("tests/golden/softcap", "f32", "ratio.gguf");
    const gm_tensor *const from = gm_tensorfile_find(a->file, "blk.0.attn_q_norm.weight");
    const gm_tensor *const to = gm_tensorfile_find(b->file, "blk.0.attn_q_norm.weight");
    float w = 0;
    gm_qtype_expand(from->type, from->data, 1, &w);
    assert_true(gm_read_f32(to->data) == (w + 1) * ratio);
    gm_model_close(a);
    gm_model_close(b);
}

/* ---- types ----------------------------------------------------------------------------------- */

static uint32_t count_of(const char *shape, const char *mix_name, gm_qtype type)
{
    gm_arena arena = {0};
    gm_synth_list list;
    const gm_synth_shape *s = NULL;
    gm_mix mix;
    const gm_qtype_info *const f32 = gm_qtype_find(GM_QTYPE_F32);
    OK(gm_synth_shape_find(&s, shape, &err));
    OK(gm_synth_list_make(&list, s, f32, f32, &arena, &err));
    OK(gm_mix_find(&mix, mix_name, NULL, &err));
    uint32_t n = 0;
    for (uint32_t i = 0; i < list.n; i++) {
        bool fallback;
        n += gm_mix_type(&mix, &list.tensors[i], s->n_layer, i == 0, &fallback)->id == type;
    }
    gm_arena_deinit(&arena);
    return n;
}

/* The numbers of tensors that llama.cpp's files have. */
static void mixes_are_llamas(void **state)
{
    (void)state;
    assert_int_equal(count_of("4b", "q4_k_m", GM_QTYPE_Q4_K), 204);
    assert_int_equal(count_of("4b", "q4_k_m", GM_QTYPE_Q6_K), 35);
    assert_int_equal(count_of("4b", "q4_k_m", GM_QTYPE_F32), 205);
    assert_int_equal(count_of("1b", "Q4_K_M", GM_QTYPE_Q5_0), 117);
    assert_int_equal(count_of("1b", "q4_k_m", GM_QTYPE_Q8_0), 14);
    assert_int_equal(count_of("1b", "q4_k_m", GM_QTYPE_Q4_K), 39);
    assert_int_equal(count_of("1b", "q4_k_m", GM_QTYPE_Q6_K), 13);
    assert_int_equal(count_of("270m", "q4_k_m", GM_QTYPE_Q5_0), 81);
    assert_int_equal(count_of("270m", "q4_k_m", GM_QTYPE_Q6_K), 9);
    assert_int_equal(count_of("4b", "q5_k_m", GM_QTYPE_Q5_K), 204);
    assert_int_equal(count_of("4b", "q4_0", GM_QTYPE_Q6_K), 1);
    assert_int_equal(count_of("4b", "q8_0", GM_QTYPE_Q8_0), 239);
}

static void unknown_types_are_refused(void **state)
{
    (void)state;
    gm_convert_opts o = opts_of("q9");
    refused("tests/golden/gqa4", &o, GM_E_ARG, "expected one of: q4_k_m");
    o = opts_of("q4_0");
    o.head_type = "balanced";
    refused("tests/golden/gqa4", &o, GM_E_ARG, "the head's type");
}

/* ---- importance ------------------------------------------------------------------------------ */

static void importance_is_used(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_embd = 256, .n_ffn = 256, .head_dim = 64});
    gm_model *const a = tiny_open(&t, "source.gguf");
    const char *const name = "blk.1.ffn_down.weight";
    gm_importance *imp = NULL;
    float *values = NULL;
    OK(gm_importance_make(&imp, 1, &err));
    OK(gm_importance_add(imp, name, 256, &values, &err));
    for (int i = 0; i < 256; i++)
        values[i] = i % 4 ? 1.0f : 400.0f;
    double heavy[2] = {0, 0};
    for (int with = 0; with < 2; with++) {
        gm_convert_opts o = opts_of("q4_k");
        if (with) o.importance = imp;
        OK(convert(tiny_path("source.gguf"), tiny_path("weighted.gguf"), &o));
        gm_model *b = NULL;
        OK(gm_model_open(&b, tiny_path("weighted.gguf"), &err));
        const gm_tensor *const x = gm_tensorfile_find(a->file, name);
        const gm_tensor *const y = gm_tensorfile_find(b->file, name);
        float p[256], q[256];
        for (uint64_t r = 0; r < gm_tensor_rows(x); r++) {
            gm_qtype_expand(x->type, x->data + r * gm_tensor_row_size(x), 256, p);
            gm_qtype_expand(y->type, y->data + r * gm_tensor_row_size(y), 256, q);
            for (int i = 0; i < 256; i += 4)
                heavy[with] += ((double)p[i] - (double)q[i]) * ((double)p[i] - (double)q[i]);
        }
        gm_model_close(b);
    }
    assert_true(heavy[1] < 0.8 * heavy[0]);
    gm_importance_free(imp);
    gm_model_close(a);
    tiny_deinit(&t);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void values_that_are_no_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *type, *words;
        float value;
    } cases[] = {
        {"blk.1.ffn_up.weight", "q8_0", "blk.1.ffn_up.weight has the value nan in row 2, column 5",
         NAN},
        {"blk.2.attn_v.weight", "f32", "has the value -inf in row 2, column 5", -INFINITY},
        {"token_embd.weight", "bf16", "has the value inf", INFINITY},
        {"blk.0.attn_q.weight", "f16", "expected numbers of at most 65504, which is what f16 holds",
         70000},
        {"blk.0.attn_q.weight", "q4_0", "which is what q4_0 holds", -1e9f},
    };
    for (size_t i = 0; i < LEN(cases); i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){0});
        gm_tensor *const w = tiny_tensor(&t, cases[i].tensor);
        tiny_expand(&t, w);
        const size_t at = (size_t)(2 * gm_tensor_cols(w) + 5);
        memcpy((uint8_t *)(uintptr_t)w->data + 4 * at, &cases[i].value, 4);
        const gm_convert_opts o = opts_of(cases[i].type);
        refused(tiny_write(&t, "bad.gguf"), &o, GM_E_FORMAT, cases[i].words);
        tiny_deinit(&t);
    }
}

static void other_shapes_and_missing_tensors(void **state)
{
    (void)state;
    const gm_convert_opts o = opts_of("q8_0");
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    tiny_tensor(&t, "blk.1.ffn_up.weight")->shape[0] = 32;
    tiny_tensor(&t, "blk.1.ffn_up.weight")->size /= 2;
    refused(tiny_write(&t, "bad.gguf"), &o, GM_E_FORMAT, "is [32, 32], expected [64, 32]");
    tiny_drop_tensor(&t, "blk.1.ffn_up.weight");
    refused(tiny_write(&t, "bad.gguf"), &o, GM_E_FORMAT, "blk.1.ffn_up.weight is missing");
    tiny_deinit(&t);
}

static void targets_that_are_taken(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    gm_model_close(tiny_open(&t, "source.gguf"));
    gm_convert_opts o = opts_of("q8_0");
    assert_int_equal(convert(tiny_path("source.gguf"), tiny_path("source.gguf"), &o), GM_E_IO);
    assert_non_null(strstr(err.msg, "is part of the source"));
    o.force = 0;
    OK(convert(tiny_path("source.gguf"), tiny_path("once.gguf"), &o));
    assert_int_equal(convert(tiny_path("source.gguf"), tiny_path("once.gguf"), &o), GM_E_IO);
    assert_int_equal(err.os, EEXIST);
    assert_int_equal(convert(tiny_path("source.gguf"), "/nowhere/x.gguf", &o), GM_E_IO);
    tiny_deinit(&t);
}

static int no_more(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    return --*(int *)ctx == 0;
}

/* One thread alone is told of every slice; of several, the caller's is told of its own, which may be
 * none, and of the end. */
static void a_cancel_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_threads;
        int calls;
    } at[] = {{1, 3}, {2, 1}};
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    for (size_t i = 0; i < LEN(at); i++) {
        gm_convert_opts o = opts_of("q8_0");
        int left = at[i].calls;
        o.n_threads = at[i].n_threads;
        o.progress = no_more;
        o.progress_ctx = &left;
        refused(tiny_write(&t, "source.gguf"), &o, GM_E_CANCEL, "was cancelled");
        assert_int_equal(left, 0);
    }
    tiny_deinit(&t);
}

static void the_size_is_foreseen(void **state)
{
    (void)state;
    gm_convert *c = NULL;
    gm_convert_info info = {.size = sizeof info};
    const gm_convert_opts o = opts_of("q5_k_m");
    OK(gm_convert_open(&c, "tests/golden/multimodal", tiny_path("sized.gguf"), &o, &err));
    gm_convert_describe(c, &info);
    OK(gm_convert_run(c, &err));
    gm_convert_close(c);
    gm_mapfile map;
    OK(gm_mapfile_open(&map, tiny_path("sized.gguf"), &err));
    assert_int_equal(info.result_size, map.size);
    assert_true(info.n_skipped > 0 && info.n_fallback > 0 && info.n_again == 0);
    assert_true(info.disk_free > 0 && info.bits > 4);
    gm_mapfile_close(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_of_a_gguf_is_the_same_bits),
        cmocka_unit_test(folders_keep_their_meaning),
        cmocka_unit_test(every_type_can_be_made_and_run),
        cmocka_unit_test(a_type_that_is_there_is_copied),
        cmocka_unit_test(rows_without_pieces_get_them),
        cmocka_unit_test(the_ratio_of_scales_is_folded),
        cmocka_unit_test(mixes_are_llamas),
        cmocka_unit_test(unknown_types_are_refused),
        cmocka_unit_test(importance_is_used),
        cmocka_unit_test(values_that_are_no_numbers),
        cmocka_unit_test(other_shapes_and_missing_tensors),
        cmocka_unit_test(targets_that_are_taken),
        cmocka_unit_test(a_cancel_leaves_nothing),
        cmocka_unit_test(the_size_is_foreseen),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
