/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/gguf.h"

/* ---- a folder of files for each test ------------------------------------------------- */

typedef struct folder {
    char path[512];
    char *file[16]; /* to be removed again */
    size_t n;
} folder;

static int folder_make(void **state)
{
    folder *const d = calloc(1, sizeof *d);
    const char *const tmp = getenv("TMPDIR");
    if (!d) return -1;
    *state = d;
    snprintf(d->path, sizeof d->path, "%s/t_tensorfile.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(d->path) ? 0 : -1;
}

static int folder_remove(void **state)
{
    folder *const d = *state;
    for (size_t i = 0; i < d->n; i++) {
        unlink(d->file[i]);
        free(d->file[i]);
    }
    const int rc = rmdir(d->path);
    free(d);
    return rc;
}

/* The path of a file in the folder, remembered so that it is removed. */
static const char *file_path(folder *d, const char *name)
{
    assert_true(d->n < sizeof d->file / sizeof d->file[0]);
    const size_t size = strlen(d->path) + strlen(name) + 2;
    char *const path = malloc(size);
    assert_non_null(path);
    snprintf(path, size, "%s/%s", d->path, name);
    d->file[d->n++] = path;
    return path;
}

static const char *file_write(folder *d, const char *name, const void *bytes, size_t size)
{
    const char *const path = file_path(d, name);
    FILE *const out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    return path;
}

/* Writes a GGUF file with those keys and f32 vectors of 5 values by those names (NULL ends). */
static const char *gguf_write(folder *d, const char *name, const gm_meta *meta,
                              const char *const *tensors)
{
    static const uint8_t data[32] = {1, 2, 3};
    gm_tensor list[8];
    uint32_t n = 0;
    for (; tensors[n]; n++)
        list[n] = (gm_tensor){tensors[n], gm_qtype_find(GM_QTYPE_F32), 1, {5}, data, 20};
    const char *const path = file_path(d, name);
    FILE *const out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(gm_gguf_write_header(out, meta, &(gm_tensors){.at = list, .n = n}, path, NULL),
                     GM_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(fwrite(data, 1, 32, out), 32);
    assert_int_equal(fclose(out), 0);
    return path;
}

/* A part of a split model: its name, what it says of itself, its tensors. */
static const char *part_write(folder *d, const char *name, uint32_t no, uint32_t count,
                              uint32_t total, const char *const *tensors)
{
    gm_metaval values[] = {
        {.key = GM_STR("split.no"), .type = GM_META_U16, .n = 1, .u = no},
        {.key = GM_STR("split.count"), .type = GM_META_U16, .n = 1, .u = count},
        {.key = GM_STR("split.tensors.count"), .type = GM_META_I32, .n = 1, .i = total},
        {.key = GM_STR("general.name"), .type = GM_META_STR, .n = 1, .s = gm_str_c(name)},
    };
    const gm_meta meta = {.at = values, .n = 4};
    return gguf_write(d, name, &meta, tensors);
}

static void refused(const char *path, gm_status code, const char *file, const char *part)
{
    gm_err err = {0};
    gm_tensorfile *f = (gm_tensorfile *)&err;
    const gm_status status = gm_tensorfile_open(&f, path, &err);
    if (!strstr(err.msg, file) || !strstr(err.msg, part))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", err.msg, file, part);
    assert_int_equal(status, code);
    assert_null(f);
}

static gm_tensorfile *opened(const char *path)
{
    gm_err err = {0};
    gm_tensorfile *f = NULL;
    if (gm_tensorfile_open(&f, path, &err) != GM_OK) fail_msg("refused: %s", err.msg);
    return f;
}

/* ---- one file ------------------------------------------------------------------------ */

static void gguf_file_is_opened(void **state)
{
    folder *const d = *state;
    const char *const path = gguf_write(d, "one.gguf", &(gm_meta){0},
                                        (const char *const[]){"a.weight", "v.x", "b", NULL});
    gm_tensorfile *const f = opened(path);
    assert_string_equal(f->path, path);
    assert_string_equal(f->format, "GGUF v3");
    assert_string_equal(f->meta.file, path);
    assert_int_equal(f->n_parts, 1);
    assert_int_equal(f->n_tensors, 2);
    assert_int_equal(f->n_skipped, 1);
    assert_int_equal(f->size_skipped, 20);
    assert_string_equal(gm_tensorfile_find(f, "b")->name, "b");
    assert_int_equal(gm_tensorfile_find(f, "b")->data[2], 3);
    assert_null(gm_tensorfile_find(f, "a"));
    assert_null(gm_tensorfile_find(f, "v.x"));
    gm_tensorfile_close(f);
    gm_tensorfile_close(NULL);
}

static void other_files_are_refused_by_their_looks(void **state)
{
    static const struct look {
        const char *name, *bytes;
        size_t size;
        const char *sentence;
    } looks[] = {
        {"empty.gguf", "", 0, "this is empty"},
        {"model.safetensors", "\x02\0\0\0\0\0\0\0{}", 10,
         "one safetensors file: open the folder that holds it"},
        {"pointer.gguf", "version https://git-lfs.github.com/spec/v1\n", 43, "a Git LFS pointer"},
        {"pytorch_model.bin", "PK\003\004....", 8, "a zip archive or a PyTorch checkpoint"},
        {"page.gguf", "<!DOCTYPE html>", 15, "a web page"},
        {"page2.gguf", "<html>", 6, "a web page"},
        {"old.bin", "tjgg\1\0\0\0", 8, "a GGML file from before GGUF"},
        {"config.json", "{\"a\": 1}", 8, "JSON: open the folder that holds it"},
        {"noise", "GGU", 3, "of no known format"},
    };
    folder *const d = *state;
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        const char *const path = file_write(d, looks[i].name, looks[i].bytes, looks[i].size);
        refused(path, GM_E_FORMAT, looks[i].name, looks[i].sentence);
        refused(path, GM_E_FORMAT, looks[i].name, "expected a GGUF file or a Hugging Face folder");
    }
}

static void what_cannot_be_read_is_refused(void **state)
{
    folder *const d = *state;
    const char *const missing = file_path(d, "missing.gguf");
    refused(missing, GM_E_IO, "missing.gguf", strerror(ENOENT));
    const char *const fifo = file_path(d, "fifo.gguf");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refused(fifo, GM_E_IO, "fifo.gguf", "not a regular file");
}

static void empty_folder_is_refused(void **state)
{
    const folder *const d = *state;
    gm_err err = {0};
    gm_tensorfile *f = NULL;
    assert_int_not_equal(gm_tensorfile_open(&f, d->path, &err), GM_OK);
    assert_null(f);
    assert_non_null(strstr(err.msg, d->path));
}

static void cut_file_is_refused(void **state)
{
    folder *const d = *state;
    const char *const path =
        gguf_write(d, "cut.gguf", &(gm_meta){0}, (const char *const[]){"a", NULL});
    assert_int_equal(truncate(path, 64 + 19), 0);
    refused(path, GM_E_FORMAT, "cut.gguf", "tensor a has 20 bytes from byte 0 of the data");
}

/* ---- several files ------------------------------------------------------------------- */

#define P1 "m-00001-of-00003.gguf"
#define P2 "m-00002-of-00003.gguf"
#define P3 "m-00003-of-00003.gguf"

static const char *const TENSORS_AB[] = {"a", "b", NULL};
static const char *const TENSORS_C[] = {"c", NULL};
static const char *const TENSORS_D[] = {"mm.d", NULL};
static const char *const TENSORS_A[] = {"a", NULL};

static void parts_make_one_model(void **state)
{
    folder *const d = *state;
    const char *const first = part_write(d, P1, 0, 3, 4, TENSORS_AB);
    const char *const second = part_write(d, P2, 1, 3, 0, TENSORS_C);
    part_write(d, P3, 2, 3, 0, TENSORS_D);
    gm_tensorfile *const f = opened(first);
    assert_int_equal(f->n_parts, 3);
    assert_int_equal(f->n_maps, 3);
    assert_int_equal(f->n_tensors, 3);
    assert_int_equal(f->n_skipped, 1);
    assert_int_equal(gm_tensorfile_find(f, "c")->data[1], 2);
    assert_int_equal(f->meta.n, 4);
    assert_true(gm_str_eq(gm_meta_find(&f->meta, "general.name")->s, GM_STR(P1)));
    gm_tensorfile_close(f);

    refused(second, GM_E_FORMAT, P2, "is part 2 of 3 of a split model, expected the first");
    refused(second, GM_E_FORMAT, P2, first);
}

static void missing_part_is_refused(void **state)
{
    folder *const d = *state;
    const char *const first = part_write(d, P1, 0, 3, 4, TENSORS_AB);
    part_write(d, P2, 1, 3, 0, TENSORS_C);
    refused(first, GM_E_IO, P3, strerror(ENOENT));
    file_write(d, P3, "", 0);
    refused(first, GM_E_FORMAT, P3, "is no GGUF file: its 0 bytes");
}

static void part_of_another_model_is_refused(void **state)
{
    folder *const d = *state;
    const char *const first = part_write(d, P1, 0, 3, 4, TENSORS_AB);
    part_write(d, P2, 1, 4, 0, TENSORS_C);
    refused(first, GM_E_FORMAT, P2, "says it is part 2 of 4, expected part 2 of 3");
    part_write(d, P2, 2, 3, 0, TENSORS_C);
    refused(first, GM_E_FORMAT, P2, "says it is part 3 of 3, expected part 2 of 3");
    gguf_write(d, P2, &(gm_meta){0}, TENSORS_C);
    refused(first, GM_E_FORMAT, P2, "says it is part 1 of 1, expected part 2 of 3");
}

static void parts_must_add_up(void **state)
{
    folder *const d = *state;
    const char *const first = part_write(d, P1, 0, 3, 5, TENSORS_AB);
    part_write(d, P2, 1, 3, 0, TENSORS_C);
    part_write(d, P3, 2, 3, 0, TENSORS_D);
    refused(first, GM_E_FORMAT, P1,
            "its 3 parts have 4 tensors, expected 5 by key split.tensors.count");
    part_write(d, P3, 2, 3, 0, TENSORS_A);
    refused(first, GM_E_FORMAT, P1, "tensor a is in two parts");
}

static void renamed_first_part_is_refused(void **state)
{
    folder *const d = *state;
    refused(part_write(d, "renamed.gguf", 0, 3, 4, TENSORS_AB), GM_E_FORMAT, "renamed.gguf",
            "is part 1 of 3, expected a name that ends in -00001-of-00003.gguf");
    refused(part_write(d, "later.gguf", 1, 3, 4, TENSORS_AB), GM_E_FORMAT, "later.gguf",
            "is part 2 of 3 of a split model, expected the first part");
}

/* ---- for the readers ----------------------------------------------------------------- */

static void vision_is_known_by_name(void **state)
{
    (void)state;
    static const char *const vision[] = {
        "v.blk.0.attn_q.weight",
        "mm.mm_input_projection.weight",
        "vision_tower.vision_model.post_layernorm.bias",
        "model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight",
        "multi_modal_projector.mm_input_projection_weight",
        "model.multi_modal_projector.mm_soft_emb_norm.weight",
    };
    static const char *const text[] = {
        "",       "v",         "blk.0.attn_v.weight",
        "mm",     "model.",    "language_model.model.layers.0.mlp.up_proj.weight",
        "model.", "lm_head.v", "model.layers.0.self_attn.v_proj.weight",
    };
    for (size_t i = 0; i < sizeof vision / sizeof vision[0]; i++)
        assert_true(gm_tensorfile_is_vision(gm_str_c(vision[i])));
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++)
        assert_false(gm_tensorfile_is_vision(gm_str_c(text[i])));
}

static void twins_are_found(void **state)
{
    (void)state;
    gm_str names[] = {GM_STR("b"), GM_STR(""), GM_STR("ab"), GM_STR("a"), GM_STR("a\0")};
    assert_null(gm_names_find_twin(NULL, 0));
    assert_null(gm_names_find_twin(names, 1));
    assert_null(gm_names_find_twin(names, 5));
    gm_str again[] = {GM_STR("ab"), GM_STR("b"), GM_STR("c"), GM_STR("ab")};
    assert_true(gm_str_eq(*gm_names_find_twin(again, 4), GM_STR("ab")));
}

static void maps_and_tensors_are_kept(void **state)
{
    folder *const d = *state;
    gm_tensorfile *f = NULL;
    assert_int_equal(gm_mem_alloc(&f, 1, sizeof *f, "a test", NULL), GM_OK);
    for (int i = 0; i < 3; i++) {
        const char name[] = {(char)('0' + i), '\0'};
        gm_mapfile view;
        const char *const path = file_write(d, name, name, 1);
        assert_int_equal(gm_tensorfile_map(f, path, &view, NULL), GM_OK);
        assert_int_equal(view.data[0], '0' + i);
    }
    gm_mapfile none;
    assert_int_equal(gm_tensorfile_map(f, d->path, &none, NULL), GM_E_IO);
    assert_null(none.data);
    assert_int_equal(f->n_maps, 3);
    const gm_tensor t = {.name = "t", .type = gm_qtype_find(GM_QTYPE_F32), .n_dims = 1};
    for (uint32_t i = 0; i < 33; i++)
        assert_int_equal(gm_tensorfile_add(f, &t, NULL), GM_OK);
    assert_int_equal(f->n_tensors, 33);
    assert_ptr_equal(gm_tensorfile_find(f, "t"), f->tensors);
    gm_tensorfile_close(f);
}

#define folder_test(name) cmocka_unit_test_setup_teardown(name, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(gguf_file_is_opened),
        folder_test(other_files_are_refused_by_their_looks),
        folder_test(what_cannot_be_read_is_refused),
        folder_test(empty_folder_is_refused),
        folder_test(cut_file_is_refused),
        folder_test(parts_make_one_model),
        folder_test(missing_part_is_refused),
        folder_test(part_of_another_model_is_refused),
        folder_test(parts_must_add_up),
        folder_test(renamed_first_part_is_refused),
        cmocka_unit_test(vision_is_known_by_name),
        cmocka_unit_test(twins_are_found),
        folder_test(maps_and_tensors_are_kept),
    };
    return cmocka_run_group_tests_name("t_tensorfile", tests, NULL, NULL);
}
