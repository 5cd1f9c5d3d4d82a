/* SPDX-License-Identifier: MIT */
/* Files as they are in circulation: each quirk is built into a small model, whose
 * log-probabilities must be those of the same model without it, bit for bit. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "fixtures/forward.h"
#include "fixtures/tinymodel.h"
#include "text/tokenizer.h"

/* Longer than the window of 8, so that local and global layers differ. */
static const int32_t PROMPT[] = {2, 105, 44, 107, 61, 200, 19, 60, 33, 44, 106, 107, 90, 5};
enum { N = sizeof PROMPT / sizeof *PROMPT };

static float *logprobs(const tiny *t)
{
    return tiny_logprobs(t, "model.gguf", PROMPT, N);
}

static size_t n_values(const tiny *t)
{
    return (size_t)N * t->shape.n_rows;
}

/* Compares the model as it is now with log-probabilities from before, and frees these. */
static void assert_same(const tiny *t, float *before)
{
    float *const now = logprobs(t);
    assert_memory_equal(now, before, n_values(t) * sizeof *now);
    free(now);
    free(before);
}

static void assert_differs(const tiny *t, const float *before)
{
    float *const now = logprobs(t);
    const double worst = worst_difference(now, before, n_values(t));
    free(now);
    if (!(worst > 1e-4 && worst < INFINITY)) fail_msg("the difference is %g", worst);
}

/* ---- the vocabulary's size ------------------------------------------------------------- */

enum { PIECES = 262144, ROWS = 262208 };

/* Logits of both models agree on the rows that both have; log-probabilities are shifted by the
 * weight of the rows that only one has. */
static void assert_same_logits(const float *a, const float *b)
{
    for (uint32_t j = 1; j < PIECES; j++) {
        const double da = (double)a[j] - (double)a[0], db = (double)b[j] - (double)b[0];
        if (!(fabs(da - db) < 1e-5)) fail_msg("row %u: %g and %g", j, da, db);
    }
}

static void test_262144_pieces_and_262208_rows(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 262143};
    const tiny_shape shape = {.n_layer = 1, .n_vocab = PIECES, .embed = GM_QTYPE_Q8_0};
    tiny_shape padded_shape = shape, listed_shape = shape;
    padded_shape.n_rows = ROWS;
    listed_shape.n_vocab = ROWS;
    tiny plain, padded, listed;
    tiny_init(&plain, &shape);
    tiny_init(&padded, &padded_shape);
    tiny_init(&listed, &listed_shape);
    gm_model *const a = tiny_open(&plain, "plain.gguf");
    gm_model *const b = tiny_open(&padded, "padded.gguf");
    gm_model *const c = tiny_open(&listed, "listed.gguf");
    assert_int_equal(gm_vocab_len(a->vocab), PIECES);
    assert_int_equal(gm_vocab_len(b->vocab), ROWS);
    assert_int_equal(gm_vocab_len(c->vocab), ROWS);
    assert_int_equal(gm_vocab_hash(a->vocab), gm_vocab_hash(b->vocab));
    assert_int_equal(gm_vocab_kind(b->vocab, ROWS - 1), GM_PIECE_UNUSED);
    size_t len = 0;
    assert_memory_equal(gm_model_piece(b, ROWS - 1, &len), "[PAD262207]", 11);
    assert_int_equal(len, 11);
    gm_model_piece(b, ROWS, &len);
    assert_int_equal(len, 0);
    gm_model_piece(a, PIECES, &len);
    assert_int_equal(len, 0);

    float *const of_a = forward_logprobs(a, ids, 2, &(forward_opts){"ref", 0});
    float *const of_b = forward_logprobs(b, ids, 2, &(forward_opts){"ref", 0});
    float *const of_c = forward_logprobs(c, ids, 2, &(forward_opts){"ref", 0});
    assert_same_logits(of_a + PIECES, of_b + ROWS);
    assert_memory_equal(of_b, of_c, (size_t)2 * ROWS * sizeof *of_b);
    free(of_a);
    free(of_b);
    free(of_c);
    gm_model_close(a);
    gm_model_close(b);
    gm_model_close(c);
    tiny_deinit(&plain);
    tiny_deinit(&padded);
    tiny_deinit(&listed);
}

/* ---- Google's QAT files ---------------------------------------------------------------- */

static void test_qat_file(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.matrix = GM_QTYPE_Q4_0, .embed = GM_QTYPE_F16});
    tiny_drop_key(&t, "general.name");
    int32_t kinds[500];
    for (size_t i = 0; i < 500; i++)
        kinds[i] = GM_PIECE_NORMAL;
    tiny_array(&t, "tokenizer.ggml.token_type", GM_META_I32, kinds, 500);
    gm_model *const m = tiny_open(&t, "qat.gguf");
    static const int32_t controls[] = {0, 1, 2, 3, 4, 105, 106};
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        assert_int_equal(gm_vocab_kind(m->vocab, controls[i]), GM_PIECE_CONTROL);
    assert_int_equal(gm_vocab_kind(m->vocab, 248), GM_PIECE_BYTE);
    assert_int_equal(gm_vocab_kind(m->vocab, 494), GM_PIECE_NORMAL);
    assert_true(gm_vocab_is_end(m->vocab, 106));
    assert_string_equal(m->name, "");

    /* Control pieces are found in text that may have them, and only there. */
    gm_ids ids = {0};
    gm_err err = {0};
    const char *const turn = "<start_of_turn>";
    assert_int_equal(gm_model_tokenize(m, turn, 15, GM_TOKENIZE_SPECIAL, &ids, &err), GM_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.at[0], 105);
    ids.n = 0;
    assert_int_equal(gm_model_tokenize(m, turn, 15, 0, &ids, &err), GM_OK);
    assert_true(ids.n > 1);
    gm_ids_deinit(&ids);
    gm_model_close(m);

    float *const before = logprobs(&t);
    for (size_t i = 0; i < t.n_tensors; i++)
        tiny_expand(&t, &t.tensors[i]);
    assert_same(&t, before);
    tiny_deinit(&t);
}

static void test_eos_1_or_106(void **state)
{
    (void)state;
    for (int unsloth = 0; unsloth < 2; unsloth++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){0});
        tiny_u32(&t, "tokenizer.ggml.eos_token_id", unsloth ? 106 : 1);
        gm_model *const m = tiny_open(&t, "eos.gguf");
        for (int32_t id = 0; id < 500; id++)
            assert_int_equal(gm_vocab_is_end(m->vocab, id), id == 1 || id == 106);
        gm_model_close(m);
        tiny_deinit(&t);
    }
}

static void test_absent_add_space_prefix(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    gm_err err = {0};
    gm_ids with = {0}, without = {0};
    gm_model *m = tiny_open(&t, "space.gguf");
    assert_int_equal(gm_model_tokenize(m, "p7 p8", 5, 0, &with, &err), GM_OK);
    gm_model_close(m);
    tiny_drop_key(&t, "tokenizer.ggml.add_space_prefix");
    m = tiny_open(&t, "space.gguf");
    assert_int_equal(gm_model_tokenize(m, "p7 p8", 5, 0, &without, &err), GM_OK);
    gm_model_close(m);
    assert_int_equal(with.n, without.n);
    assert_memory_equal(with.at, without.at, with.n * sizeof *with.at);
    gm_ids_deinit(&with);
    gm_ids_deinit(&without);
    tiny_deinit(&t);
}

/* ---- Ollama's files -------------------------------------------------------------------- */

static void test_missing_rope_factor(void **state)
{
    (void)state;
    static const uint32_t layers[] = {34, 48, 62};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){.n_layer = layers[i], .n_vocab = 220});
        float *const before = logprobs(&t);
        tiny_f32(&t, "gemma3.rope.scaling.factor", 1);
        assert_differs(&t, before);
        tiny_f32(&t, "gemma3.rope.scaling.factor", 8);
        assert_same(&t, before);
        tiny_deinit(&t);
    }
    static const uint32_t small[] = {18, 26};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){.n_layer = small[i], .n_vocab = 220});
        float *const before = logprobs(&t);
        tiny_f32(&t, "gemma3.rope.scaling.factor", 1);
        assert_same(&t, before);
        tiny_deinit(&t);
    }
}

static void test_soft_cap_of_30(void **state)
{
    (void)state;
    static const uint32_t layers[] = {18, 26, 3};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){.n_layer = layers[i], .n_vocab = 220});
        float *const before = logprobs(&t);
        tiny_f32(&t, "gemma3.final_logit_softcapping", 30);
        if (layers[i] == 3) {
            float *const now = logprobs(&t);
            assert_true(worst_difference(now, before, n_values(&t)) > 0);
            free(now);
            free(before);
        } else {
            assert_same(&t, before);
        }
        tiny_deinit(&t);
    }
}

static void test_vision_in_the_same_file(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    float *const before = logprobs(&t);
    tiny_u32(&t, "gemma3.vision.block_count", 27);
    tiny_u32(&t, "gemma3.vision.embedding_length", 1152);
    tiny_f32(&t, "gemma3.vision.attention.layer_norm_epsilon", 1e-6);
    tiny_u32(&t, "gemma3.mm.tokens_per_image", 256);
    tiny_add_tensor(&t, "v.blk.0.attn_q.weight", GM_QTYPE_F16, 24, 24);
    tiny_add_tensor(&t, "v.blk.0.attn_q.bias", GM_QTYPE_F32, 0, 24);
    tiny_add_tensor(&t, "v.post_layernorm.weight", GM_QTYPE_F32, 0, 24);
    tiny_add_tensor(&t, "mm.mm_soft_emb_norm.weight", GM_QTYPE_F32, 0, 24);
    tiny_add_tensor(&t, "mm.mm_input_projection.weight", GM_QTYPE_BF16, 24, 32);
    gm_model *const m = tiny_open(&t, "vision.gguf");
    assert_int_equal(m->file->n_skipped, 5);
    assert_int_equal(m->file->size_skipped, 24 * 24 * 2 + 3 * 24 * 4 + 24 * 32 * 2);
    gm_model_info info = {.size = sizeof info};
    gm_model_describe(m, &info);
    uint64_t text = 0;
    for (size_t i = 0; i < t.n_tensors - 5; i++)
        text += t.tensors[i].size;
    assert_int_equal(info.weight_size, text);
    gm_model_close(m);
    assert_same(&t, before);
    tiny_deinit(&t);
}

static void test_rope_keys(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_layer = 7});
    float *const before = logprobs(&t);
    tiny_f32(&t, "gemma3.rope.freq_base_swa", 10000);
    float *const explicit = logprobs(&t);
    assert_memory_equal(before, explicit, n_values(&t) * sizeof *before);
    free(explicit);
    tiny_f32(&t, "gemma3.rope.freq_base_swa", 20);
    assert_differs(&t, before);
    tiny_drop_key(&t, "gemma3.rope.freq_base_swa");
    tiny_drop_key(&t, "gemma3.rope.freq_base");
    assert_differs(&t, before);
    tiny_f32(&t, "gemma3.rope.local.freq_base", 10000);
    tiny_f32(&t, "gemma3.rope.global.freq_base", 1000000);
    assert_same(&t, before);
    tiny_deinit(&t);
}

/* ---- other spellings of the same model ------------------------------------------------- */

/* Rows of q, then k, then v in one tensor. */
static void fuse(tiny *t, uint32_t l)
{
    char name[4][64];
    static const char *const what[] = {"attn_q", "attn_k", "attn_v", "attn_qkv"};
    uint64_t rows = 0;
    for (int i = 0; i < 4; i++) {
        snprintf(name[i], sizeof name[i], "blk.%u.%s.weight", l, what[i]);
        if (i < 3) rows += tiny_tensor(t, name[i])->shape[0];
    }
    const gm_qtype type = tiny_tensor(t, name[0])->type->id;
    gm_tensor *const fused = tiny_add_tensor(t, name[3], type, rows, t->shape.n_embd);
    uint8_t *data = NULL;
    assert_int_equal(gm_arena_alloc(&t->arena, &data, fused->size, 1, "weights", NULL), GM_OK);
    fused->data = data;
    for (int i = 0; i < 3; i++) {
        const gm_tensor *const part = tiny_tensor(t, name[i]);
        memcpy(data, part->data, part->size);
        data += part->size;
    }
    for (int i = 0; i < 3; i++)
        tiny_drop_tensor(t, name[i]);
}

static void test_fused_attn_qkv(void **state)
{
    (void)state;
    static const gm_qtype types[] = {GM_QTYPE_F32, GM_QTYPE_Q8_0, GM_QTYPE_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny t;
        tiny_init(&t, &(tiny_shape){.matrix = types[i]});
        float *const before = logprobs(&t);
        for (uint32_t l = 0; l < 3; l++)
            fuse(&t, l);
        assert_same(&t, before);
        tiny_deinit(&t);
    }
    /* One layer fused and the others not. */
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    float *const before = logprobs(&t);
    fuse(&t, 1);
    assert_same(&t, before);
    tiny_deinit(&t);
}

static void test_separate_output_tensor(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){0});
    float *const before = logprobs(&t);
    gm_tensor *const output = tiny_add_tensor(&t, "output.weight", GM_QTYPE_F32, 500, 32);
    assert_differs(&t, before);
    output->data = tiny_tensor(&t, "token_embd.weight")->data;
    assert_same(&t, before);
    tiny_deinit(&t);
}

/* A head of its own type over an embedding of another. */
static void test_separate_output_of_another_type(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.embed = GM_QTYPE_Q4_0});
    tiny_add_tensor(&t, "output.weight", GM_QTYPE_Q8_0, 500, 32);
    float *const before = logprobs(&t);
    tiny_expand(&t, tiny_tensor(&t, "output.weight"));
    tiny_expand(&t, tiny_tensor(&t, "token_embd.weight"));
    assert_same(&t, before);
    tiny_deinit(&t);
}

static void test_pattern_spellings(void **state)
{
    (void)state;
    static const char *const key = "gemma3.attention.sliding_window_pattern";
    static const uint8_t list[7] = {1, 1, 1, 1, 1, 0, 1};
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_layer = 7});
    float *const before = logprobs(&t);
    tiny_u32(&t, key, 6);
    float *const number = logprobs(&t);
    assert_memory_equal(before, number, n_values(&t) * sizeof *before);
    free(number);
    tiny_u32(&t, key, 2);
    assert_differs(&t, before);
    tiny_array(&t, key, GM_META_BOOL, list, 7);
    assert_same(&t, before);

    /* Without a window every layer is global. */
    tiny_u32(&t, key, 1);
    float *const global = logprobs(&t);
    tiny_drop_key(&t, key);
    assert_differs(&t, global);
    tiny_drop_key(&t, "gemma3.attention.sliding_window");
    assert_same(&t, global);
    tiny_deinit(&t);
}

static void test_missing_head_counts(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_head = 4, .n_kv_head = 4, .head_dim = 8, .n_embd = 32});
    float *const before = logprobs(&t);
    tiny_drop_key(&t, "gemma3.attention.head_count_kv");
    tiny_drop_key(&t, "gemma3.attention.key_length");
    tiny_drop_key(&t, "gemma3.attention.value_length");
    assert_same(&t, before);
    tiny_deinit(&t);
}

/* 62 layers: the scale is that of n_embd / n_head. */
static void test_scale_of_27b(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_layer = 62, .n_embd = 96, .n_head = 4, .n_vocab = 220});
    float *const before = logprobs(&t);
    tiny_f32(&t, "gemmule.attention.query_scale_dim", 16);
    assert_differs(&t, before);
    tiny_f32(&t, "gemmule.attention.query_scale_dim", 24);
    assert_same(&t, before);
    tiny_deinit(&t);
}

/* ---- one model in several files -------------------------------------------------------- */

/* Every n-th tensor goes into part i of n; all metadata are in the first. */
static void write_part(const tiny *t, uint16_t no, uint16_t count)
{
    char name[64];
    snprintf(name, sizeof name, "split-%05u-of-%05u.gguf", no + 1u, count + 0u);
    tiny part = {.shape = t->shape};
    for (size_t i = 0; i < t->meta.n && no == 0; i++)
        tiny_key(&part, &t->meta.at[i]);
    const gm_metaval numbers[] = {
        {.key = GM_STR("split.no"), .type = GM_META_U16, .n = 1, .u = no},
        {.key = GM_STR("split.count"), .type = GM_META_U16, .n = 1, .u = count},
        {.key = GM_STR("split.tensors.count"),
         .type = GM_META_I32,
         .n = 1,
         .i = (int64_t)t->n_tensors},
    };
    for (size_t i = 0; i < 3; i++)
        tiny_key(&part, &numbers[i]);
    for (size_t i = no; i < t->n_tensors; i += count) {
        const gm_tensor *const w = &t->tensors[i];
        gm_tensor *const copy = tiny_add_tensor(&part, w->name, GM_QTYPE_F32, 0, 1);
        const char *const kept = copy->name;
        *copy = *w;
        copy->name = kept;
    }
    tiny_write(&part, name);
    tiny_deinit(&part);
}

static void test_split_model(void **state)
{
    (void)state;
    tiny t;
    gm_err err = {0};
    gm_model *m = NULL;
    tiny_init(&t, &(tiny_shape){.matrix = GM_QTYPE_Q8_0});
    for (uint16_t no = 0; no < 3; no++)
        write_part(&t, no, 3);
    if (gm_model_open(&m, tiny_path("split-00001-of-00003.gguf"), &err) != GM_OK)
        fail_msg("%s", err.msg);
    float *const parts = forward_logprobs(m, PROMPT, N, &(forward_opts){"ref", 0});
    gm_model_close(m);
    assert_same(&t, parts);

    assert_int_equal(gm_model_open(&m, tiny_path("split-00002-of-00003.gguf"), &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "split-00001-of-00003.gguf"));
    assert_int_equal(remove(tiny_path("split-00003-of-00003.gguf")), 0);
    assert_int_equal(gm_model_open(&m, tiny_path("split-00001-of-00003.gguf"), &err), GM_E_IO);
    assert_non_null(strstr(err.msg, "split-00003-of-00003.gguf"));
    assert_null(m);
    tiny_deinit(&t);
}

/* ---- the same model as a Hugging Face folder -------------------------------------------- */

/* What llama.cpp's converter makes of an open folder: GGUF's keys, one added to norm weights. */
static void convert(tiny *t, const gm_tensorfile *f)
{
    *t = (tiny){0};
    for (size_t i = 0; i < f->meta.n; i++) {
        if (!gm_str_starts(f->meta.at[i].key, GM_STR("gemmule."))) tiny_key(t, &f->meta.at[i]);
    }
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const gm_tensor *const w = &f->tensors[i];
        gm_tensor *const copy = tiny_add_tensor(t, w->name, GM_QTYPE_F32, 0, 1);
        const char *const name = copy->name;
        *copy = *w;
        copy->name = name;
        if (w->n_dims != 1) continue;
        tiny_expand(t, copy);
        for (uint64_t j = 0; j < w->shape[0]; j++)
            ((float *)(uintptr_t)copy->data)[j] += 1;
    }
}

static void test_folder_and_gguf_agree(void **state)
{
    (void)state;
    static const char *const folders[] = {"gqa4", "multimodal", "scaled", "sharded", "untied"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[64];
        gm_err err = {0};
        gm_model *m = NULL;
        tiny t;
        snprintf(path, sizeof path, "tests/golden/%s", folders[i]);
        if (gm_model_open(&m, path, &err) != GM_OK) fail_msg("%s", err.msg);
        convert(&t, m->file);
        gm_model *const gguf = tiny_open(&t, "converted.gguf");
        assert_true(m->config.norm_offset == 1 && gguf->config.norm_offset == 0);
        assert_int_equal(gm_vocab_hash(m->vocab), gm_vocab_hash(gguf->vocab));
        float *const a = forward_logprobs(m, PROMPT, N, &(forward_opts){"ref", 0});
        float *const b = forward_logprobs(gguf, PROMPT, N, &(forward_opts){"ref", 0});
        const double worst = worst_difference(a, b, (size_t)N * gm_vocab_len(m->vocab));
        if (!(worst < 1e-5)) fail_msg("%s: the difference is %g", path, worst);
        free(a);
        free(b);
        gm_model_close(gguf);
        gm_model_close(m);
        tiny_deinit(&t);
    }
}

/* ---- number formats -------------------------------------------------------------------- */

static tiny_shape wide(gm_qtype type)
{
    return (tiny_shape){.n_layer = 2,
                        .n_embd = 256,
                        .n_ffn = 256,
                        .n_head = 4,
                        .n_kv_head = 1,
                        .head_dim = 64,
                        .n_vocab = 220,
                        .matrix = type,
                        .embed = type};
}

/* A file of a format, and the same with its values written out as f32. */
static void test_every_type_equals_its_values(void **state)
{
    (void)state;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const tiny_shape shape = wide(gm_qtype_at(i)->id);
        tiny t;
        tiny_init(&t, &shape);
        float *const before = logprobs(&t);
        for (size_t j = 0; j < n_values(&t); j++)
            if (!isfinite(before[j])) fail_msg("%s: %g", gm_qtype_at(i)->name, (double)before[j]);
        for (size_t j = 0; j < t.n_tensors; j++)
            tiny_expand(&t, &t.tensors[j]);
        assert_same(&t, before);
        tiny_deinit(&t);
    }
}

/* Every tensor its own type, as K files with fallbacks and imatrix files have it. */
static void test_mixed_types(void **state)
{
    (void)state;
    static const tiny_shape shape = {.n_layer = 2,
                                     .n_embd = 256,
                                     .n_ffn = 512,
                                     .n_head = 4,
                                     .n_kv_head = 2,
                                     .head_dim = 64,
                                     .n_vocab = 220};
    tiny t, mixed = {.shape = shape};
    tiny_init(&t, &shape);
    for (size_t i = 0; i < t.meta.n; i++)
        tiny_key(&mixed, &t.meta.at[i]);
    for (size_t i = 0, k = 3; i < t.n_tensors; i++) {
        const gm_tensor *const w = &t.tensors[i];
        const bool matrix = w->n_dims == 2;
        if (matrix) k = gm_qtype_at(k + 1) ? k + 1 : 0;
        tiny_add_tensor(&mixed, w->name, matrix ? gm_qtype_at(k)->id : GM_QTYPE_F32,
                        matrix ? w->shape[0] : 0, gm_tensor_cols(w));
    }
    mixed.shape.n_rows = 220;
    const gm_tensor *const gate = tiny_tensor(&mixed, "blk.0.ffn_gate.weight");
    assert_ptr_not_equal(gate->type, tiny_tensor(&mixed, "blk.0.ffn_up.weight")->type);
    float *const before = logprobs(&mixed);
    for (size_t j = 0; j < mixed.n_tensors; j++)
        tiny_expand(&mixed, &mixed.tensors[j]);
    assert_same(&mixed, before);
    tiny_deinit(&mixed);
    tiny_deinit(&t);
}

/* int8 activations are near the exact ones, and neither depends on how the prompt is cut. */
static void test_int8_is_near_and_steps_do_not_show(void **state)
{
    (void)state;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const tiny_shape shape = wide(gm_qtype_at(i)->id);
        tiny t;
        tiny_init(&t, &shape);
        gm_model *const m = tiny_open(&t, "int8.gguf");
        static const char *const backends[] = {"ref", "ref-int8"};
        float *whole[2];
        for (int b = 0; b < 2; b++) {
            whole[b] = forward_logprobs(m, PROMPT, N, &(forward_opts){backends[b], 0});
            float *const cut = forward_logprobs(m, PROMPT, N, &(forward_opts){backends[b], 3});
            assert_memory_equal(cut, whole[b], n_values(&t) * sizeof *cut);
            free(cut);
        }
        const double worst = worst_difference(whole[0], whole[1], n_values(&t));
        const bool quantised = gm_qtype_at(i)->unpack != NULL;
        if (!(worst < (quantised ? 0.5 : 1e-3) && (!quantised || worst > 0)))
            fail_msg("%s: ref and ref-int8 differ by %g", gm_qtype_at(i)->name, worst);
        free(whole[0]);
        free(whole[1]);
        gm_model_close(m);
        tiny_deinit(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_262144_pieces_and_262208_rows),
        cmocka_unit_test(test_qat_file),
        cmocka_unit_test(test_eos_1_or_106),
        cmocka_unit_test(test_absent_add_space_prefix),
        cmocka_unit_test(test_missing_rope_factor),
        cmocka_unit_test(test_soft_cap_of_30),
        cmocka_unit_test(test_vision_in_the_same_file),
        cmocka_unit_test(test_rope_keys),
        cmocka_unit_test(test_fused_attn_qkv),
        cmocka_unit_test(test_separate_output_tensor),
        cmocka_unit_test(test_separate_output_of_another_type),
        cmocka_unit_test(test_pattern_spellings),
        cmocka_unit_test(test_missing_head_counts),
        cmocka_unit_test(test_scale_of_27b),
        cmocka_unit_test(test_split_model),
        cmocka_unit_test(test_folder_and_gguf_agree),
        cmocka_unit_test(test_every_type_equals_its_values),
        cmocka_unit_test(test_mixed_types),
        cmocka_unit_test(test_int8_is_near_and_steps_do_not_show),
    };
    return cmocka_run_group_tests_name("t_quirks", tests, tiny_setup, tiny_teardown);
}
