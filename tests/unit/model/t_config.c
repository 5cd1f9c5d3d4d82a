/* SPDX-License-Identifier: MIT */
/* The numbers of a file: defaults, published mistakes, and what is refused. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "file/hf.h"
#include "fixtures/tinymodel.h"

typedef struct fixture {
    tiny t;
    gm_config c;
    gm_arena arena;
    gm_err err;
} fixture;

static void begin(fixture *f, const tiny_shape *shape)
{
    *f = (fixture){0};
    tiny_init(&f->t, shape);
    f->t.meta.file = "model.gguf";
}

static gm_status read(fixture *f)
{
    gm_arena_deinit(&f->arena);
    f->err = (gm_err){0};
    return gm_config_read(&f->c, &f->t.meta, &f->arena, &f->err);
}

static void read_ok(fixture *f)
{
    if (read(f) != GM_OK) fail_msg("%s", f->err.msg);
}

static void end(fixture *f)
{
    gm_arena_deinit(&f->arena);
    tiny_deinit(&f->t);
}

static void assert_near(float x, double y)
{
    if (!(fabs((double)x - y) <= 1e-6 * fabs(y))) fail_msg("%.9g is not %.9g", (double)x, y);
}

/* ---- sizes ----------------------------------------------------------------------------- */

static void test_every_number_comes_from_the_file(void **state)
{
    (void)state;
    fixture f;
    begin(&f, &(tiny_shape){.n_layer = 7,
                            .n_embd = 48,
                            .n_ffn = 80,
                            .n_head = 6,
                            .n_kv_head = 3,
                            .head_dim = 10,
                            .n_ctx = 777,
                            .window = 13});
    tiny_f32(&f.t, "gemma3.attention.layer_norm_rms_epsilon", 0.25);
    tiny_f32(&f.t, "gemma3.rope.freq_base_swa", 500);
    tiny_f32(&f.t, "gemma3.rope.scaling.factor", 4);
    tiny_str(&f.t, "gemma3.rope.scaling.type", "linear");
    tiny_f32(&f.t, "gemma3.final_logit_softcapping", 12.5);
    read_ok(&f);
    assert_int_equal(f.c.n_layer, 7);
    assert_int_equal(f.c.n_embd, 48);
    assert_int_equal(f.c.n_ffn, 80);
    assert_int_equal(f.c.n_head, 6);
    assert_int_equal(f.c.n_kv_head, 3);
    assert_int_equal(f.c.head_dim, 10);
    assert_int_equal(f.c.n_ctx, 777);
    assert_int_equal(f.c.window, 13);
    assert_near(f.c.eps, 0.25);
    assert_near(f.c.attn_scale, 1 / sqrt(10));
    assert_near(f.c.softcap, 12.5);
    assert_true(f.c.norm_offset == 0);
    assert_near(f.c.rope[GM_CLASS_LOCAL].theta, 500);
    assert_near(f.c.rope[GM_CLASS_LOCAL].factor, 1);
    assert_near(f.c.rope[GM_CLASS_GLOBAL].theta, 1e6);
    assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, 4);
    end(&f);
}

static void test_what_is_missing_has_a_default(void **state)
{
    (void)state;
    fixture f;
    begin(&f, &(tiny_shape){.n_embd = 48, .n_head = 6});
    tiny_drop_key(&f.t, "gemma3.attention.head_count_kv");
    tiny_drop_key(&f.t, "gemma3.attention.key_length");
    tiny_drop_key(&f.t, "gemma3.attention.value_length");
    tiny_drop_key(&f.t, "gemma3.attention.layer_norm_rms_epsilon");
    tiny_drop_key(&f.t, "gemma3.rope.freq_base");
    read_ok(&f);
    assert_int_equal(f.c.n_kv_head, 6);
    assert_int_equal(f.c.head_dim, 8);
    assert_near(f.c.eps, 1e-6);
    assert_near(f.c.rope[GM_CLASS_GLOBAL].theta, 10000);
    assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, 1);
    assert_near(f.c.rope[GM_CLASS_LOCAL].theta, 10000);
    assert_true(f.c.softcap == 0);
    end(&f);
}

/* Integers of any width are the same number. */
static void test_integers_of_other_widths(void **state)
{
    (void)state;
    fixture f;
    begin(&f, &(tiny_shape){0});
    tiny_key(&f.t, &(gm_metaval){
                       .key = GM_STR("gemma3.block_count"), .type = GM_META_U64, .n = 1, .u = 5});
    tiny_key(&f.t,
             &(gm_metaval){
                 .key = GM_STR("gemma3.context_length"), .type = GM_META_I16, .n = 1, .i = 300});
    tiny_key(&f.t,
             &(gm_metaval){
                 .key = GM_STR("gemma3.rope.freq_base"), .type = GM_META_F64, .n = 1, .f = 2e6});
    read_ok(&f);
    assert_int_equal(f.c.n_layer, 5);
    assert_int_equal(f.c.n_ctx, 300);
    assert_near(f.c.rope[GM_CLASS_GLOBAL].theta, 2e6);
    end(&f);
}

/* ---- published sizes ------------------------------------------------------------------- */

/* Section 1 of the facts: layers, global layers, scale, factor, for each size. */
static void test_published_sizes(void **state)
{
    (void)state;
    static const struct size {
        uint32_t n_layer, n_embd, n_head, n_kv_head, head_dim, n_global;
        double scale, factor;
    } sizes[] = {
        {18, 640, 4, 1, 256, 3, 0.0625, 1},           {26, 1152, 4, 1, 256, 4, 0.0625, 1},
        {34, 2560, 8, 4, 256, 5, 0.0625, 8},          {48, 3840, 16, 8, 256, 8, 0.0625, 8},
        {62, 5376, 32, 16, 128, 10, 0.0771516749, 8},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct size *const s = &sizes[i];
        fixture f;
        begin(&f, &(tiny_shape){.n_layer = s->n_layer});
        tiny_u32(&f.t, "gemma3.embedding_length", s->n_embd);
        tiny_u32(&f.t, "gemma3.attention.head_count", s->n_head);
        tiny_u32(&f.t, "gemma3.attention.head_count_kv", s->n_kv_head);
        tiny_u32(&f.t, "gemma3.attention.key_length", s->head_dim);
        tiny_u32(&f.t, "gemma3.attention.value_length", s->head_dim);
        if (s->factor != 1) tiny_f32(&f.t, "gemma3.rope.scaling.factor", s->factor);
        read_ok(&f);
        assert_near(f.c.attn_scale, s->scale);
        assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, s->factor);
        uint32_t n_global = 0;
        for (uint32_t l = 0; l < s->n_layer; l++) {
            const bool global = f.c.layer_class[l] == GM_CLASS_GLOBAL;
            assert_int_equal(global, l % 6 == 5);
            n_global += global;
        }
        assert_int_equal(n_global, s->n_global);
        end(&f);
    }
}

/* The rope factor that Ollama's 4B, 12B and 27B lack, and that no other size has. */
static void test_missing_factor(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_layer;
        double factor;
    } rows[] = {{18, 1}, {26, 1}, {33, 1}, {34, 8}, {35, 1}, {48, 8}, {62, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        begin(&f, &(tiny_shape){.n_layer = rows[i].n_layer});
        read_ok(&f);
        assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, rows[i].factor);
        assert_near(f.c.rope[GM_CLASS_LOCAL].factor, 1);
        /* What the file says is what holds; 0 is what converters write for none. */
        tiny_f32(&f.t, "gemma3.rope.scaling.factor", 0);
        read_ok(&f);
        assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, 1);
        tiny_f32(&f.t, "gemma3.rope.scaling.factor", 2);
        read_ok(&f);
        assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, 2);
        /* A file that says there is no scaling has none, whatever else it says. */
        tiny_str(&f.t, "gemma3.rope.scaling.type", "none");
        read_ok(&f);
        assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, 1);
        tiny_drop_key(&f.t, "gemma3.rope.scaling.factor");
        read_ok(&f);
        assert_near(f.c.rope[GM_CLASS_GLOBAL].factor, 1);
        end(&f);
    }
}

static void test_ollama_rope_keys(void **state)
{
    (void)state;
    fixture f;
    begin(&f, &(tiny_shape){0});
    tiny_drop_key(&f.t, "gemma3.rope.freq_base");
    tiny_f32(&f.t, "gemma3.rope.local.freq_base", 10001);
    tiny_f32(&f.t, "gemma3.rope.global.freq_base", 1000001);
    read_ok(&f);
    assert_near(f.c.rope[GM_CLASS_LOCAL].theta, 10001);
    assert_near(f.c.rope[GM_CLASS_GLOBAL].theta, 1000001);
    /* The usual keys outrank them. */
    tiny_f32(&f.t, "gemma3.rope.freq_base_swa", 20000);
    tiny_f32(&f.t, "gemma3.rope.freq_base", 2000000);
    read_ok(&f);
    assert_near(f.c.rope[GM_CLASS_LOCAL].theta, 20000);
    assert_near(f.c.rope[GM_CLASS_GLOBAL].theta, 2000000);
    end(&f);
}

static void test_soft_cap(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_layer;
        double file, cap;
    } rows[] = {{18, 30, 0}, {26, 30, 0}, {26, 20, 20}, {32, 30, 30}, {3, 30, 30}, {26, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        begin(&f, &(tiny_shape){.n_layer = rows[i].n_layer});
        tiny_f32(&f.t, "gemma3.final_logit_softcapping", rows[i].file);
        read_ok(&f);
        assert_true((double)f.c.softcap == rows[i].cap);
        end(&f);
    }
}

static void test_attention_scale(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_layer, n_embd, n_head, head_dim;
        double dim;
    } rows[] = {{62, 96, 4, 16, 24}, {61, 96, 4, 16, 16}, {62, 64, 4, 16, 16}, {3, 96, 4, 16, 16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        begin(&f, &(tiny_shape){.n_layer = rows[i].n_layer,
                                .n_embd = rows[i].n_embd,
                                .n_head = rows[i].n_head,
                                .head_dim = rows[i].head_dim});
        read_ok(&f);
        assert_near(f.c.attn_scale, 1 / sqrt(rows[i].dim));
        tiny_f32(&f.t, "gemmule.attention.query_scale_dim", 9);
        read_ok(&f);
        assert_near(f.c.attn_scale, 1 / 3.0);
        end(&f);
    }
}

/* ---- which layers are local ------------------------------------------------------------ */

/* 'l' and 'g' for each layer. */
static void assert_classes(const gm_config *c, const char *expected)
{
    assert_int_equal(strlen(expected), c->n_layer);
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const char class = c->layer_class[l] == GM_CLASS_LOCAL ? 'l' : 'g';
        if (class != expected[l]) fail_msg("layer %u is %c, expected %s", l, class, expected);
    }
}

static void test_patterns(void **state)
{
    (void)state;
    static const char *const key = "gemma3.attention.sliding_window_pattern";
    static const uint8_t list[9] = {1, 0, 0, 1, 1, 1, 1, 0, 1};
    fixture f;
    begin(&f, &(tiny_shape){.n_layer = 9});
    read_ok(&f);
    assert_classes(&f.c, "lllllglll");
    tiny_u32(&f.t, key, 3);
    read_ok(&f);
    assert_classes(&f.c, "llgllgllg");
    tiny_u32(&f.t, key, 1);
    read_ok(&f);
    assert_classes(&f.c, "ggggggggg");
    tiny_u32(&f.t, key, 0);
    read_ok(&f);
    assert_classes(&f.c, "lllllllll");
    tiny_u32(&f.t, key, 100);
    read_ok(&f);
    assert_classes(&f.c, "lllllllll");
    tiny_array(&f.t, key, GM_META_BOOL, list, 9);
    read_ok(&f);
    assert_classes(&f.c, "lggllllgl");
    tiny_drop_key(&f.t, "gemma3.attention.sliding_window");
    read_ok(&f);
    assert_classes(&f.c, "ggggggggg");
    tiny_u32(&f.t, "gemma3.attention.sliding_window", 0);
    read_ok(&f);
    assert_classes(&f.c, "ggggggggg");
    end(&f);
}

/* ---- sampling -------------------------------------------------------------------------- */

static void test_sampling(void **state)
{
    (void)state;
    fixture f;
    begin(&f, &(tiny_shape){0});
    read_ok(&f);
    assert_near(f.c.sampling.temperature, 1);
    assert_near(f.c.sampling.top_p, 0.95);
    assert_true(f.c.sampling.min_p == 0);
    assert_int_equal(f.c.sampling.top_k, 64);
    tiny_f32(&f.t, "general.sampling.temp", 0.5);
    tiny_f32(&f.t, "general.sampling.top_p", 0.75);
    tiny_f32(&f.t, "general.sampling.min_p", 0.125);
    tiny_u32(&f.t, "general.sampling.top_k", 7);
    read_ok(&f);
    assert_near(f.c.sampling.temperature, 0.5);
    assert_near(f.c.sampling.top_p, 0.75);
    assert_near(f.c.sampling.min_p, 0.125);
    assert_int_equal(f.c.sampling.top_k, 7);
    /* What the law has no meaning for is not taken over. */
    tiny_f32(&f.t, "general.sampling.temp", -1);
    tiny_f32(&f.t, "general.sampling.top_p", 1.5);
    tiny_f32(&f.t, "general.sampling.min_p", -0.5);
    read_ok(&f);
    assert_near(f.c.sampling.temperature, 1);
    assert_near(f.c.sampling.top_p, 0.95);
    assert_true(f.c.sampling.min_p == 0);
    end(&f);
}

/* What a folder's generation_config.json says arrives too. */
static void test_sampling_of_a_folder(void **state)
{
    (void)state;
    static const char json[] = "{\"temperature\": 0.5, \"top_k\": 9, \"top_p\": 0.25}";
    fixture f;
    gm_tensorfile folder = {0};
    begin(&f, &(tiny_shape){0});
    assert_int_equal(gm_hf_generation_parse(&folder, (const uint8_t *)json, sizeof json - 1,
                                            "generation_config.json", NULL),
                     GM_OK);
    for (size_t i = 0; i < folder.meta.n; i++)
        tiny_key(&f.t, &folder.meta.at[i]);
    read_ok(&f);
    assert_near(f.c.sampling.temperature, 0.5);
    assert_near(f.c.sampling.top_p, 0.25);
    assert_int_equal(f.c.sampling.top_k, 9);
    end(&f);
    gm_meta_deinit(&folder.meta);
    gm_arena_deinit(&folder.arena);
}

/* ---- what is refused ------------------------------------------------------------------- */

static void assert_sentence(const fixture *f, gm_status status, gm_status expected,
                            const char *thing, const char *expectation)
{
    if (status != expected || !strstr(f->err.msg, "model.gguf") || !strstr(f->err.msg, thing) ||
        !strstr(f->err.msg, expectation))
        fail_msg("status %d, \"%s\": expected %d, \"%s\" and \"%s\"", status, f->err.msg, expected,
                 thing, expectation);
    assert_int_equal(f->err.code, expected);
}

static void test_bad_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool is_float;
        double x;
        const char *expectation;
    } rows[] = {
        {"gemma3.block_count", false, 0, "expected 1 to"},
        {"gemma3.block_count", false, 1025, "expected 1 to 1024"},
        {"gemma3.block_count", false, UINT32_MAX, "expected 1 to 1024"},
        {"gemma3.block_count", true, 3, "expected an integer"},
        {"gemma3.embedding_length", false, 0, "expected 1 to"},
        {"gemma3.embedding_length", false, UINT32_MAX, "expected 1 to"},
        {"gemma3.feed_forward_length", false, 0, "expected 1 to"},
        {"gemma3.feed_forward_length", false, UINT32_MAX, "expected 1 to"},
        {"gemma3.context_length", false, 0, "expected 2 to"},
        {"gemma3.context_length", false, 1, "expected 2 to 16777216"},
        {"gemma3.context_length", false, UINT32_MAX, "expected 2 to"},
        {"gemma3.attention.head_count", false, 0, "expected 1 to"},
        {"gemma3.attention.head_count", false, 100000, "expected 1 to"},
        {"gemma3.attention.layer_norm_rms_epsilon", true, 0, "expected a positive number"},
        {"gemma3.attention.layer_norm_rms_epsilon", true, -1, "expected a positive number"},
        {"gemma3.attention.layer_norm_rms_epsilon", true, NAN, "expected a finite f32"},
        {"gemma3.rope.freq_base", true, 0, "expected a positive number"},
        {"gemma3.rope.freq_base", true, INFINITY, "expected a finite f32"},
        {"gemma3.rope.freq_base_swa", true, -10000, "expected a positive number"},
        {"gemma3.rope.local.freq_base", true, -1, "expected a positive number"},
        {"gemma3.rope.global.freq_base", true, -1, "expected a positive number"},
        {"gemma3.attention.sliding_window", true, 1, "expected an integer"},
        {"gemma3.attention.sliding_window_pattern", true, 1, "expected an integer"},
        {"gemmule.attention.query_scale_dim", true, 0, "expected a positive number"},
        {"general.sampling.temp", true, NAN, "expected a finite f32"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        begin(&f, &(tiny_shape){0});
        if (rows[i].is_float)
            tiny_f32(&f.t, rows[i].key, rows[i].x);
        else
            tiny_u32(&f.t, rows[i].key, (uint32_t)rows[i].x);
        assert_sentence(&f, read(&f), GM_E_FORMAT, rows[i].key, rows[i].expectation);
        end(&f);
    }
}

/* Gemma 2 had one. */
static void test_soft_cap_of_scores_is_refused(void **state)
{
    (void)state;
    static const double caps[] = {0, 50};
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        begin(&f, &(tiny_shape){0});
        tiny_f32(&f.t, "gemma3.attn_logit_softcapping", caps[i]);
        if (caps[i] == 0)
            assert_int_equal(read(&f), GM_OK);
        else
            assert_sentence(&f, read(&f), GM_E_UNSUP, "gemma3.attn_logit_softcapping", "is 50");
        end(&f);
    }
}

static void test_missing_numbers_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "general.architecture",       "gemma3.block_count",    "gemma3.embedding_length",
        "gemma3.feed_forward_length", "gemma3.context_length", "gemma3.attention.head_count",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        fixture f;
        begin(&f, &(tiny_shape){0});
        tiny_drop_key(&f.t, keys[i]);
        assert_sentence(&f, read(&f), GM_E_FORMAT, keys[i], "is missing, expected");
        end(&f);
    }
}

static void test_heads_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_head, n_kv_head, key, value;
        const char *thing, *expectation;
    } rows[] = {
        {4, 3, 16, 16, "4 heads share 3", "expected a number that divides them"},
        {4, 8, 16, 16, "4 heads share 8", "expected a number that divides them"},
        {4, 0, 16, 16, "4 heads share 0", "expected a number that divides them"},
        {4, 2, 15, 15, "15 key", "expected the same even number up to 1024"},
        {4, 2, 0, 0, "0 key", "expected the same even number up to 1024"},
        {4, 2, 16, 8, "16 key and 8 value", "expected the same even number"},
        {4, 2, 2048, 2048, "2048 key", "up to 1024"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        begin(&f, &(tiny_shape){0});
        tiny_u32(&f.t, "gemma3.attention.head_count", rows[i].n_head);
        tiny_u32(&f.t, "gemma3.attention.head_count_kv", rows[i].n_kv_head);
        tiny_u32(&f.t, "gemma3.attention.key_length", rows[i].key);
        tiny_u32(&f.t, "gemma3.attention.value_length", rows[i].value);
        assert_sentence(&f, read(&f), GM_E_FORMAT, rows[i].thing, rows[i].expectation);
        end(&f);
    }
}

static void test_other_bad_values_are_refused(void **state)
{
    (void)state;
    static const uint8_t two[2] = {1, 0};
    static const int32_t ints[3] = {1, 0, 1};
    fixture f;
    begin(&f, &(tiny_shape){0});

    static const char *const pattern = "gemma3.attention.sliding_window_pattern";
    tiny_array(&f.t, pattern, GM_META_BOOL, two, 2);
    assert_sentence(&f, read(&f), GM_E_FORMAT, "has 2 entries", "expected 3 of type bool");
    tiny_array(&f.t, pattern, GM_META_I32, ints, 3);
    assert_sentence(&f, read(&f), GM_E_FORMAT, "of type i32", "expected 3 of type bool");
    tiny_str(&f.t, pattern, "6");
    assert_sentence(&f, read(&f), GM_E_FORMAT, pattern, "expected an integer");
    tiny_drop_key(&f.t, pattern);

    tiny_str(&f.t, "gemma3.rope.scaling.type", "yarn");
    assert_sentence(&f, read(&f), GM_E_UNSUP, "yarn", "expected linear");
    tiny_drop_key(&f.t, "gemma3.rope.scaling.type");
    tiny_f32(&f.t, "gemma3.rope.scaling.factor", -8);
    assert_sentence(&f, read(&f), GM_E_FORMAT, "factor is -8", "expected 0 to");
    tiny_drop_key(&f.t, "gemma3.rope.scaling.factor");
    tiny_f32(&f.t, "gemma3.final_logit_softcapping", -1);
    assert_sentence(&f, read(&f), GM_E_FORMAT, "is -1", "expected 0 or more");
    tiny_drop_key(&f.t, "gemma3.final_logit_softcapping");

    static const char *const others[] = {"gemma2", "gemma", "llama", "gemma-embedding", ""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tiny_str(&f.t, "general.architecture", others[i]);
        assert_sentence(&f, read(&f), GM_E_UNSUP, others[i], "expected gemma3");
    }
    tiny_str(&f.t, "general.architecture", "clip");
    assert_sentence(&f, read(&f), GM_E_UNSUP, "clip", "vision tower");
    tiny_u32(&f.t, "general.architecture", 3);
    assert_sentence(&f, read(&f), GM_E_FORMAT, "general.architecture", "expected string");
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_comes_from_the_file),
        cmocka_unit_test(test_what_is_missing_has_a_default),
        cmocka_unit_test(test_integers_of_other_widths),
        cmocka_unit_test(test_published_sizes),
        cmocka_unit_test(test_missing_factor),
        cmocka_unit_test(test_ollama_rope_keys),
        cmocka_unit_test(test_soft_cap),
        cmocka_unit_test(test_attention_scale),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_sampling_of_a_folder),
        cmocka_unit_test(test_bad_numbers_are_refused),
        cmocka_unit_test(test_soft_cap_of_scores_is_refused),
        cmocka_unit_test(test_missing_numbers_are_refused),
        cmocka_unit_test(test_heads_that_do_not_fit_are_refused),
        cmocka_unit_test(test_other_bad_values_are_refused),
    };
    return cmocka_run_group_tests_name("t_config", tests, NULL, NULL);
}
