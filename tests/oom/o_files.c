/* SPDX-License-Identifier: MIT */
/* Opening model files of every form while allocations fail. The GGUF files are made here from a
 * Hugging Face folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "file/gguf.h"
#include "model/model.h"
#include "oom/failalloc.h"

#define SOURCE "tests/golden/one_layer"

static char folder[64];
static const char *path; /* what opened() opens */

static gm_status opened(gm_err *err)
{
    gm_model *m = NULL;
    const gm_status status = gm_model_open(&m, path, err);
    assert_true((m != NULL) == (status == GM_OK));
    if (m) {
        gm_model_info info = {.size = sizeof info};
        gm_model_describe(m, &info);
        assert_true(info.n_layer > 0 && info.n_vocab > 0);
    }
    gm_model_close(m);
    return status;
}

/* ---- making files -------------------------------------------------------------------- */

static const char *file(const char *name)
{
    static char buf[128];
    snprintf(buf, sizeof buf, "%s/%s", folder, name);
    return buf;
}

static void write_text(const char *name, const char *text)
{
    FILE *const out = fopen(file(name), "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

/* Writes tensors [first, last) of f, with f's keys where it is the first part. */
static void write_gguf(const char *name, const gm_tensorfile *f, uint32_t first, uint32_t last,
                       uint32_t n_parts)
{
    gm_meta meta = {.file = name};
    for (size_t i = 0; first == 0 && i < f->meta.n; i++)
        assert_int_equal(gm_meta_add(&meta, &f->meta.at[i], NULL), GM_OK);
    const gm_metaval no = {
        .key = GM_STR("split.no"), .type = GM_META_U32, .n = 1, .u = first ? 1 : 0};
    const gm_metaval count = {
        .key = GM_STR("split.count"), .type = GM_META_U32, .n = 1, .u = n_parts};
    assert_int_equal(gm_meta_add(&meta, &no, NULL), GM_OK);
    assert_int_equal(gm_meta_add(&meta, &count, NULL), GM_OK);
    FILE *const out = fopen(file(name), "wb");
    assert_non_null(out);
    const gm_tensors tensors = {.at = f->tensors + first, .n = last - first};
    assert_int_equal(gm_gguf_write_header(out, &meta, &tensors, name, NULL), GM_OK);
    for (uint32_t i = first; i < last; i++) {
        static const char ZEROS[GM_GGUF_ALIGNMENT];
        const size_t size = (size_t)f->tensors[i].size, pad = gm_gguf_pad(size);
        assert_int_equal(fwrite(f->tensors[i].data, 1, size, out), size);
        assert_int_equal(fwrite(ZEROS, 1, pad, out), pad);
    }
    assert_int_equal(fclose(out), 0);
    gm_meta_deinit(&meta);
}

static void link_file(const char *name)
{
    char cwd[512], target[640];
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(target, sizeof target, "%s/" SOURCE "/%s", cwd, name);
    assert_int_equal(symlink(target, file(name)), 0);
}

static const char *const FILES[] = {
    "one.gguf",       "two-00001-of-00002.gguf", "two-00002-of-00002.gguf", "config.json",
    "tokenizer.json", "tokenizer_config.json",   "model.safetensors",       "chat_template.json",
};

/* The folder's vocabulary is tokenizer.json, which is smaller than the model's: the rest is padding. */
static int make_files(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/oom.XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    gm_tensorfile *f = NULL;
    gm_err err = {0};
    if (gm_tensorfile_open(&f, SOURCE, &err) != GM_OK) fail_msg("%s", err.msg);
    write_gguf(FILES[0], f, 0, f->n_tensors, 1);
    write_gguf(FILES[1], f, 0, 3, 2);
    write_gguf(FILES[2], f, 3, f->n_tensors, 2);
    gm_tensorfile_close(f);
    link_file("config.json");
    link_file("model.safetensors");
    write_text("tokenizer.json",
               "{\"added_tokens\":[{\"id\":0,\"content\":\"<bos>\",\"special\":true},"
               "{\"id\":9,\"content\":\"\xE2\x96\x81\xE2\x96\x81\"}],"
               "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
               "\"content\":\"\xE2\x96\x81\"},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
               "\"vocab\":{\"<bos>\":0,\"<eos>\":1,\"a\":2,\"b\":3,\"ab\":4,\"<0x41>\":5},"
               "\"merges\":[[\"a\",\"b\"]]}}");
    write_text("tokenizer_config.json",
               "{\"added_tokens_decoder\":{\"12\":{\"content\":\"<end_of_turn>\"}}}");
    write_text("chat_template.json", "{\"chat_template\":\"{{ bos_token }}\"}");
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++)
        unlink(file(FILES[i]));
    return rmdir(folder);
}

/* ---- the tests ----------------------------------------------------------------------- */

static void sweep(const char *what)
{
    path = what;
    oom_sweep(what, opened);
}

static void gguf(void **state)
{
    (void)state;
    sweep(file("one.gguf"));
}

static void gguf_in_two_parts(void **state)
{
    (void)state;
    sweep(file("two-00001-of-00002.gguf"));
}

static void folder_with_tokenizer_json(void **state)
{
    (void)state;
    sweep(folder);
}

static void folder_with_tokenizer_model(void **state)
{
    (void)state;
    sweep("tests/golden/gqa4");
}

static void folder_of_shards(void **state)
{
    (void)state;
    sweep("tests/golden/sharded");
}

static void folder_with_vision(void **state)
{
    (void)state;
    sweep("tests/golden/multimodal");
}

int main(void)
{
    const struct CMUnitTest o_files[] = {
        cmocka_unit_test(gguf),
        cmocka_unit_test(gguf_in_two_parts),
        cmocka_unit_test(folder_with_tokenizer_json),
        cmocka_unit_test(folder_with_tokenizer_model),
        cmocka_unit_test(folder_of_shards),
        cmocka_unit_test(folder_with_vision),
    };
    return cmocka_run_group_tests(o_files, make_files, remove_files);
}
