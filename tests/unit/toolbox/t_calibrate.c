/* SPDX-License-Identifier: MIT */
/* Importance beside sums that are made here, and what it does for quantising. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/tinymodel.h"
#include "toolbox/importance.h"

#define TEXT "A tap is where it is; what comes out of it is counted, column by column."

static gm_err err;
static tiny t;
static gm_model *model; /* three layers, the FFN as wide as nothing else */

static int model_open(void **state)
{
    if (tiny_setup(state) != 0) return 1;
    tiny_init(&t, &(tiny_shape){.n_ffn = 96, .seed = 5});
    model = tiny_open(&t, "calibrated.gguf");
    return 0;
}

static int model_close(void **state)
{
    gm_model_close(model);
    tiny_deinit(&t);
    return tiny_teardown(state);
}

static gm_calibrate_opts opts_of(const char *backend, uint32_t window)
{
    gm_calibrate_opts o = gm_calibrate_opts_default();
    o.text = TEXT;
    o.len = sizeof TEXT - 1;
    o.engine.backend = backend;
    o.engine.n_ctx = window;
    return o;
}

static gm_importance *calibrated(const gm_model *m, const char *backend, uint32_t window)
{
    gm_importance *imp = NULL;
    const gm_calibrate_opts o = opts_of(backend, window);
    if (gm_calibrate(&imp, m, &o, &err) != GM_OK) fail_msg("%s", err.msg);
    return imp;
}

static const float *values_of(const gm_importance *imp, const char *name, uint32_t n)
{
    const float *const values = gm_importance_find(imp, name, n);
    if (!values) fail_msg("%s has no entry of %u columns", name, (unsigned)n);
    return values;
}

static void near(double a, double b, double relative)
{
    if (fabs(a - b) > relative * fabs(b)) fail_msg("%.9g, expected %.9g", a, b);
}

static const float *weights_of(const char *name)
{
    return (const float *)(const void *)tiny_tensor(&t, name)->data;
}

/* ---- tests ------------------------------------------------------------------------------- */

static void every_product_has_its_columns(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t n;
    } want[] = {{"attn_q", 32},   {"attn_k", 32}, {"attn_v", 32},  {"attn_output", 64},
                {"ffn_gate", 32}, {"ffn_up", 32}, {"ffn_down", 96}};
    gm_importance *const imp = calibrated(model, "ref", 0);
    assert_int_equal(imp->count, 3 * 7 + 1);
    for (uint32_t l = 0; l < 3; l++) {
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", (unsigned)l, want[i].name);
            const float *const values = values_of(imp, name, want[i].n);
            for (uint32_t c = 0; c < want[i].n; c++)
                assert_true(values[c] > 0 && isfinite(values[c]));
        }
    }
    values_of(imp, "token_embd.weight", 32);
    assert_memory_equal(values_of(imp, "blk.1.attn_q.weight", 32),
                        values_of(imp, "blk.1.attn_v.weight", 32), 32 * sizeof(float));
    assert_memory_equal(values_of(imp, "blk.1.ffn_up.weight", 32),
                        values_of(imp, "blk.1.ffn_gate.weight", 32), 32 * sizeof(float));
    assert_memory_not_equal(values_of(imp, "blk.1.attn_q.weight", 32),
                            values_of(imp, "blk.2.attn_q.weight", 32), 32 * sizeof(float));
    gm_importance_free(imp);
}

/* The first layer sees the embedding, normed: that can be summed here. */
static void first_layer_by_hand(void **state)
{
    (void)state;
    const float *const embed = weights_of("token_embd.weight");
    const float *const norm = weights_of("blk.0.attn_norm.weight");
    const uint32_t window = 13;
    gm_ids ids = {0};
    double sums[32] = {0};
    uint32_t n = 0;
    assert_int_equal(gm_model_tokenize(model, TEXT, sizeof TEXT - 1, 0, &ids, &err), GM_OK);
    for (size_t i = 0; i < ids.n; n++) {
        const int32_t id = n % window == 0 ? 2 : ids.at[i++];
        const float *const x = embed + (size_t)id * 32;
        double size = 0; /* the mean square; what the norm divides by makes no difference */
        for (int c = 0; c < 32; c++)
            size += pow((double)x[c] * (double)norm[c], 2) / 32;
        for (int c = 0; c < 32; c++)
            sums[c] += pow((double)x[c] * (double)norm[c], 2) / size;
    }
    gm_ids_deinit(&ids);
    gm_importance *const imp = calibrated(model, "ref", window);
    const float *const values = values_of(imp, "blk.0.attn_k.weight", 32);
    for (int c = 0; c < 32; c++)
        near((double)values[c], sums[c] / n, 1e-5);
    gm_importance_free(imp);
}

/* However large it is, a token counts once: the columns of each tensor have a mean of 1. */
static void tokens_count_alike(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (int b = 0; b < 2; b++) {
        gm_importance *const imp = calibrated(model, backends[b], 0);
        assert_true(imp->count > 0);
        for (uint32_t i = 0; i < imp->count; i++) {
            const gm_importance_entry *const e = &imp->at[i];
            double sum = 0;
            for (uint32_t c = 0; c < e->n_cols; c++)
                sum += (double)e->values[c];
            near(sum / e->n_cols, 1, 1e-5);
        }
        gm_importance_free(imp);
    }
}

/* More tokens than a step has rows. */
static void backends_agree(void **state)
{
    (void)state;
    static char text[1300];
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < sizeof text; i += 3)
        text[i] = (char)('a' + i % 26);
    gm_calibrate_opts o = opts_of("ref", 0);
    o.text = text;
    o.len = sizeof text;
    gm_importance *ref = NULL, *cpu = NULL;
    assert_int_equal(gm_calibrate(&ref, model, &o, &err), GM_OK);
    o.engine.backend = "cpu";
    o.engine.kv_type = "f32";
    assert_int_equal(gm_calibrate(&cpu, model, &o, &err), GM_OK);
    assert_int_equal(ref->count, cpu->count);
    for (uint32_t i = 0; i < ref->count; i++) {
        assert_string_equal(ref->at[i].name, cpu->at[i].name);
        for (uint32_t c = 0; c < ref->at[i].n_cols; c++)
            near((double)cpu->at[i].values[c], (double)ref->at[i].values[c], 1e-3);
    }
    gm_importance_free(ref);
    gm_importance_free(cpu);
}

/* Squared error of a model's weights beside the original's, each column as much as it matters. */
static double weighted_error(const gm_model *m, const gm_importance *imp)
{
    double sum = 0;
    for (uint32_t i = 0; i < imp->count; i++) {
        const gm_importance_entry *const e = &imp->at[i];
        const gm_tensor *const a = gm_tensorfile_find(model->file, e->name);
        const gm_tensor *const b = gm_tensorfile_find(m->file, e->name);
        float x[96], y[96];
        for (uint64_t r = 0; r < gm_tensor_rows(a); r++) {
            gm_qtype_expand(a->type, a->data + r * gm_tensor_row_size(a), e->n_cols, x);
            gm_qtype_expand(b->type, b->data + r * gm_tensor_row_size(b), e->n_cols, y);
            for (uint32_t c = 0; c < e->n_cols; c++)
                sum += (double)e->values[c] * pow((double)x[c] - (double)y[c], 2);
        }
    }
    return sum;
}

static double error_of(const gm_importance *given, const gm_importance *judge, const char *name)
{
    gm_convert_opts o = gm_convert_opts_default();
    gm_convert *c = NULL;
    gm_model *m = NULL;
    char path[256];
    snprintf(path, sizeof path, "%s", tiny_path(name));
    o.type = "q4_0";
    o.head_type = "q4_0";
    o.importance = given;
    if (gm_convert_open(&c, model->file->path, path, &o, &err) || gm_convert_run(c, &err) ||
        gm_model_open(&m, path, &err))
        fail_msg("%s", err.msg);
    const double error = weighted_error(m, judge);
    gm_convert_close(c);
    gm_model_close(m);
    return error;
}

static void quantising_with_it_loses_less(void **state)
{
    (void)state;
    gm_importance *const imp = calibrated(model, "cpu", 0);
    const double without = error_of(NULL, imp, "without.gguf");
    const double with = error_of(imp, imp, "with.gguf");
    assert_true(with < without);
    gm_importance_free(imp);
}

/* A fused attn_qkv is one tensor of the file, and gets one entry. */
static void fused_tensors(void **state)
{
    (void)state;
    tiny fused;
    tiny_init(&fused, &(tiny_shape){.n_layer = 1});
    tiny_drop_tensor(&fused, "blk.0.attn_q.weight");
    tiny_drop_tensor(&fused, "blk.0.attn_k.weight");
    tiny_drop_tensor(&fused, "blk.0.attn_v.weight");
    tiny_add_tensor(&fused, "blk.0.attn_qkv.weight", GM_QTYPE_F32, 64 + 2 * 32, 32);
    gm_model *const m = tiny_open(&fused, "fused.gguf");
    gm_importance *const imp = calibrated(m, "ref", 0);
    assert_int_equal(imp->count, 6);
    values_of(imp, "blk.0.attn_qkv.weight", 32);
    gm_importance_free(imp);
    gm_model_close(m);
    tiny_deinit(&fused);
}

static int stop_at_once(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done > 0 && done <= total);
    ++*(int *)ctx;
    return 1;
}

static void refused(const gm_model *m, const gm_calibrate_opts *o, gm_status code,
                    const char *words)
{
    gm_importance *imp = NULL;
    assert_int_equal(gm_calibrate(&imp, m, o, &err), code);
    assert_null(imp);
    if (!strstr(err.msg, words)) fail_msg("\"%s\" is not in: %s", words, err.msg);
}

static void refusals(void **state)
{
    (void)state;
    int told = 0;
    gm_calibrate_opts o = opts_of("cpu", 0);
    o.progress = stop_at_once;
    o.progress_ctx = &told;
    refused(model, &o, GM_E_CANCEL, "cancelled");
    assert_int_equal(told, 1);
    o = opts_of("cpu", 0);
    o.len = 0;
    refused(model, &o, GM_E_FORMAT, "it has 0 tokens");
    refused(model,
            &(gm_calibrate_opts){.size = sizeof o,
                                 .text = "x",
                                 .len = 1,
                                 .engine = {.size = sizeof o.engine, .backend = "abacus"}},
            GM_E_ARG, "abacus");
    o = opts_of("cpu", 513);
    refused(model, &o, GM_E_ARG, "513 positions");
    tiny broken;
    tiny_init(&broken, &(tiny_shape){.n_layer = 1});
    gm_tensor *const norm = tiny_tensor(&broken, "blk.0.ffn_norm.weight");
    memset((void *)(uintptr_t)norm->data, 0xff, sizeof(float));
    gm_model *const m = tiny_open(&broken, "nan.gguf");
    o = opts_of("ref", 0);
    refused(m, &o, GM_E_FORMAT, "column 0 of what tensor blk.0.ffn_gate.weight");
    gm_model_close(m);
    tiny_deinit(&broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_product_has_its_columns),
        cmocka_unit_test(first_layer_by_hand),
        cmocka_unit_test(tokens_count_alike),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(quantising_with_it_loses_less),
        cmocka_unit_test(fused_tensors),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("t_calibrate", tests, model_open, model_close);
}
