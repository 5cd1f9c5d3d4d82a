/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/hf.h"

#define SP "\xE2\x96\x81"

static const char CONFIG[] = "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 1}";
static const char UNTIED[] = "{\"model_type\": \"gemma3_text\", \"tie_word_embeddings\": false}";
static const char TOKENIZER[] =
    "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SP
    "\"}, \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 0, \"b\": 1},"
    " \"merges\": []}}";

static char dir[256];

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const void *data, size_t n)
{
    FILE *const out = fopen(path_of(name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* A safetensors file of tensors of two F32 each, named in a list that ends with NULL. */
static void put_tensors(const char *file, const char *const *names)
{
    char header[2048] = "{", bytes[4096];
    size_t n = 0;
    for (; names[n]; n++) {
        const size_t len = strlen(header);
        snprintf(header + len, sizeof header - len,
                 "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [%zu, %zu]}",
                 n ? ", " : "", names[n], 8 * n, 8 * n + 8);
    }
    strncat(header, "}", sizeof header - strlen(header) - 1);
    const uint64_t len = strlen(header);
    memset(bytes, 7, sizeof bytes);
    memcpy(bytes, &len, 8);
    memcpy(bytes + 8, header, len);
    put(file, bytes, 8 + len + 8 * n);
}

static const char *const WEIGHTS[] = {"model.norm.weight", "lm_head.weight",
                                      "model.embed_tokens.weight", NULL};

static int folder_clear(void **state)
{
    (void)state;
    DIR *const d = opendir(dir);
    if (!d) return 0;
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] != '.') unlink(path_of(e->d_name));
    }
    closedir(d);
    return 0;
}

/* A whole small folder. */
static int folder_fill(void **state)
{
    folder_clear(state);
    put_text("config.json", CONFIG);
    put_text("tokenizer.json", TOKENIZER);
    put_tensors("model.safetensors", WEIGHTS);
    return 0;
}

static gm_tensorfile *opened(const char *path)
{
    gm_tensorfile *f = NULL;
    gm_err err = {0};
    if (gm_tensorfile_open(&f, path, &err) != GM_OK) fail_msg("%s", err.msg);
    return f;
}

static void expect_refusal(gm_status code, const char *words, const char *more)
{
    gm_tensorfile *f = NULL;
    gm_err err = {0};
    const gm_status s = gm_tensorfile_open(&f, dir, &err);
    if (s != code || !strstr(err.msg, words) || !strstr(err.msg, more) || !strstr(err.msg, dir))
        fail_msg("status %d, \"%s\", expected \"%s\" and \"%s\"", s, err.msg, words, more);
    assert_null(f);
}

static void expect_str(const gm_tensorfile *f, const char *key, const char *expected)
{
    gm_str v = GM_STR("");
    assert_int_equal(gm_meta_str(&f->meta, key, &v, NULL, NULL), GM_OK);
    assert_true(gm_str_eq(v, gm_str_c(expected)));
}

/* ---- tests --------------------------------------------------------------------------- */

static void test_single(void **state)
{
    (void)state;
    put_text("generation_config.json", "{\"top_k\": 64}");
    char slash[300];
    snprintf(slash, sizeof slash, "%s//", dir);
    gm_tensorfile *const f = opened(slash);
    assert_string_equal(f->format, "Hugging Face safetensors");
    expect_str(f, "general.name", strrchr(dir, '/') + 1);
    expect_str(f, "general.architecture", "gemma3");
    assert_non_null(gm_meta_find(&f->meta, "general.sampling.top_k"));
    assert_int_equal(gm_meta_find(&f->meta, "tokenizer.ggml.tokens")->n, 2);
    /* The embedding is tied, so the stored head is left out. */
    assert_int_equal(f->n_tensors, 2);
    assert_null(gm_tensorfile_find(f, "output.weight"));
    const gm_tensor *const t = gm_tensorfile_find(f, "token_embd.weight");
    assert_non_null(t);
    assert_int_equal(t->data[0], 7);
    gm_tensorfile_close(f);
}

static void test_untied(void **state)
{
    (void)state;
    put_text("config.json", UNTIED);
    gm_tensorfile *const f = opened(dir);
    assert_non_null(gm_tensorfile_find(f, "output.weight"));
    gm_tensorfile_close(f);
    put_tensors("model.safetensors", (const char *const[]){"model.norm.weight", NULL});
    expect_refusal(GM_E_FORMAT, "tie_word_embeddings false", "lm_head.weight");
}

static void test_added_and_chat(void **state)
{
    (void)state;
    put_text("tokenizer_config.json",
             "{\"chat_template\": \"one\", \"added_tokens_decoder\":"
             " {\"3\": {\"content\": \"<image_soft_token>\", \"special\": true}}}");
    gm_tensorfile *f = opened(dir);
    assert_int_equal(gm_meta_find(&f->meta, "tokenizer.ggml.tokens")->n, 4);
    expect_str(f, "tokenizer.chat_template", "one");
    gm_tensorfile_close(f);
    put_text("chat_template.json", "{\"chat_template\": \"two\"}");
    f = opened(dir);
    expect_str(f, "tokenizer.chat_template", "two");
    gm_tensorfile_close(f);
    put_text("chat_template.jinja", "three");
    f = opened(dir);
    expect_str(f, "tokenizer.chat_template", "three");
    gm_tensorfile_close(f);
    put_text("chat_template.json", "{\"chat_template\": 3}");
    expect_refusal(GM_E_FORMAT, "chat_template.json", "chat_template is 3");
}

static void test_missing(void **state)
{
    (void)state;
    unlink(path_of("model.safetensors"));
    expect_refusal(GM_E_IO, "model.safetensors or", "model.safetensors.index.json");
    unlink(path_of("tokenizer.json"));
    expect_refusal(GM_E_IO, "tokenizer.model", "tokenizer.json");
    unlink(path_of("config.json"));
    expect_refusal(GM_E_IO, "config.json", "a Hugging Face folder");
}

/* tokenizer.model outranks tokenizer.json; a broken optional file is not a missing one. */
static void test_broken(void **state)
{
    (void)state;
    put_text("tokenizer.model", "version https://git-lfs.github.com/spec/v1");
    expect_refusal(GM_E_FORMAT, "tokenizer.model", "no SentencePiece model");
    unlink(path_of("tokenizer.model"));
    assert_int_equal(mkdir(path_of("tokenizer.model"), 0700), 0);
    expect_refusal(GM_E_IO, "tokenizer.model", "folder");
    assert_int_equal(rmdir(path_of("tokenizer.model")), 0);
    put_text("generation_config.json", "");
    expect_refusal(GM_E_FORMAT, "generation_config.json", "empty");
    unlink(path_of("generation_config.json"));
    put_text("tokenizer_config.json", "[]");
    expect_refusal(GM_E_FORMAT, "tokenizer_config.json", "object");
    unlink(path_of("tokenizer_config.json"));
    put_text("model.safetensors", "");
    expect_refusal(GM_E_FORMAT, "model.safetensors", "expected a safetensors file");
}

static int shards_fill(void **state)
{
    folder_fill(state);
    unlink(path_of("model.safetensors"));
    put_tensors("model-00001-of-00002.safetensors",
                (const char *const[]){"model.embed_tokens.weight", "vision_tower.x", NULL});
    put_tensors("model-00002-of-00002.safetensors",
                (const char *const[]){"model.norm.weight", NULL});
    return 0;
}

#define INDEX     "model.safetensors.index.json"
#define MAP(body) "{\"metadata\": {\"total_size\": 24}, \"weight_map\": {" body "}}"

static void test_shards(void **state)
{
    (void)state;
    put_text(INDEX, MAP("\"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\","
                        "\"vision_tower.x\": \"model-00001-of-00002.safetensors\","
                        "\"model.norm.weight\": \"model-00002-of-00002.safetensors\""));
    gm_tensorfile *const f = opened(dir);
    assert_int_equal(f->n_tensors, 2);
    assert_int_equal(f->n_maps, 2);
    assert_int_equal(f->n_skipped, 1);
    assert_string_equal(f->tensors[0].name, "token_embd.weight");
    assert_string_equal(f->tensors[1].name, "output_norm.weight");
    gm_tensorfile_close(f);
}

static void test_shard_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *index, *words, *more;
        gm_status code;
    } CASES[] = {
        {"{", INDEX, "not valid JSON", GM_E_FORMAT},
        {"{}", INDEX, "weight_map is nothing", GM_E_FORMAT},
        {"{\"weight_map\": []}", INDEX, "weight_map is an array", GM_E_FORMAT},
        {MAP(""), INDEX, "weight_map is empty", GM_E_FORMAT},
        {MAP("\"model.norm.weight\": 3"), INDEX, "plain name", GM_E_FORMAT},
        {MAP("\"model.norm.weight\": \"\""), INDEX, "plain name", GM_E_FORMAT},
        {MAP("\"model.norm.weight\": \"..\""), INDEX, "plain name", GM_E_FORMAT},
        {MAP("\"model.norm.weight\": \"../x.safetensors\""), "\"../x.safetensors\"", "plain name",
         GM_E_FORMAT},
        {MAP("\"model.norm.weight\": \"/etc/passwd\""), "\"/etc/passwd\"", "plain name",
         GM_E_FORMAT},
        {MAP("\"model.norm.weight\": \"model-00003-of-00002.safetensors\""),
         "model-00003-of-00002.safetensors", "cannot be opened", GM_E_IO},
        {MAP("\"model.norm.weight\": \"model-00001-of-00002.safetensors\""), "model.norm.weight",
         "is not there", GM_E_FORMAT},
        {MAP("\"model.norm.weight\": \"model-00002-of-00002.safetensors\","
             "\"score.weight\": \"model-00002-of-00002.safetensors\""),
         "score.weight", "is not there", GM_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        put_text(INDEX, CASES[i].index);
        expect_refusal(CASES[i].code, CASES[i].words, CASES[i].more);
    }
    /* The same tensor in two shards. */
    put_tensors("model-00001-of-00002.safetensors", (const char *const[]){"norm.weight", NULL});
    put_text(INDEX, MAP("\"norm.weight\": \"model-00001-of-00002.safetensors\","
                        "\"model.norm.weight\": \"model-00002-of-00002.safetensors\""));
    expect_refusal(GM_E_FORMAT, "model-00002-of-00002.safetensors", "twice");
}

int main(void)
{
    const char *const tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/gm_hf_XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) {
        perror(dir);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_single, folder_fill),
        cmocka_unit_test_setup(test_untied, folder_fill),
        cmocka_unit_test_setup(test_added_and_chat, folder_fill),
        cmocka_unit_test_setup(test_missing, folder_fill),
        cmocka_unit_test_setup(test_broken, folder_fill),
        cmocka_unit_test_setup(test_shards, shards_fill),
        cmocka_unit_test_setup(test_shard_refusals, shards_fill),
    };
    const int failed = cmocka_run_group_tests_name("t_hf_folder", tests, NULL, folder_clear);
    rmdir(dir);
    return failed;
}
