/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mapfile.h"
#include "fixtures/forward.h"
#include "toolbox/synth.h"

#define LEN(array) (sizeof(array) / sizeof *(array))

static gm_err err;
static char folder[256], target[300];

#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

static int make_folder(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/t_synth.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(target, sizeof target, "%s/model.gguf", folder);
    return 0;
}

/* Fails where a test left anything behind. */
static int remove_folder(void **state)
{
    (void)state;
    unlink(target);
    return rmdir(folder);
}

static gm_synth_opts tiny(const char *type)
{
    gm_synth_opts o = gm_synth_opts_default();
    o.shape = "tiny";
    o.type = type;
    o.force = 1;
    return o;
}

static void refused(const char *path, const gm_synth_opts *o, gm_status code, const char *words)
{
    err = (gm_err){0};
    assert_int_equal(gm_synth_write(path, o, &err), code);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, words)) fail_msg("\"%s\" is not in: %s", words, err.msg);
}

static gm_synth_list list_of(const char *shape, const char *type, const char *head, gm_arena *arena)
{
    gm_synth_list list;
    const gm_synth_shape *s = NULL;
    OK(gm_synth_shape_find(&s, shape, &err));
    OK(gm_synth_list_make(&list, s, gm_qtype_find_name(gm_str_c(type)),
                          gm_qtype_find_name(gm_str_c(head)), arena, &err));
    return list;
}

static const gm_tensor *tensor_of(const gm_synth_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(list->tensors[i].name, name) == 0) return &list->tensors[i];
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* ---- shapes and types ---------------------------------------------------------------------- */

/* The published parameter counts. */
static void test_shapes_have_gemmas_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t embd, layers, norms;
        uint32_t n_tensors;
    } want[] = {
        {"270m", 167772160, 100270080, 55936, 236},
        {"1b", 301989888, 697761792, 134272, 340},
        {"4b", 671088640, 3208642560, 368128, 444},
        {"12b", 1006632960, 10758389760, 765696, 626},
        {"27b", 1409286144, 25598361600, 1354496, 808},
    };
    for (size_t i = 0; i < LEN(want); i++) {
        gm_arena arena = {0};
        const gm_synth_list list = list_of(want[i].name, "bf16", "f16", &arena);
        uint64_t layers = 0, norms = 0;
        for (uint32_t t = 1; t < list.n; t++) {
            const gm_tensor *const at = &list.tensors[t];
            const uint64_t len = gm_tensor_rows(at) * gm_tensor_cols(at);
            assert_int_equal(at->type->id, at->n_dims == 1 ? GM_QTYPE_F32 : GM_QTYPE_BF16);
            assert_int_equal(at->size, len * (at->n_dims == 1 ? 4 : 2));
            *(at->n_dims == 1 ? &norms : &layers) += len;
        }
        assert_int_equal(list.n, want[i].n_tensors);
        assert_int_equal(list.tensors[0].size, 2 * want[i].embd);
        assert_int_equal(list.tensors[0].type->id, GM_QTYPE_F16);
        assert_int_equal(layers, want[i].layers);
        assert_int_equal(norms, want[i].norms);
        gm_arena_deinit(&arena);
    }
}

static void test_short_rows_fall_back(void **state)
{
    (void)state;
    static const char *const types[][2] = {
        {"q2_k", "q4_0"}, {"q3_k", "q4_0"}, {"q4_k", "q5_0"},     {"q5_k", "q5_1"},
        {"q6_k", "q8_0"}, {"q8_0", "q8_0"}, {"iq4_xs", "iq4_nl"}, {"f16", "f16"},
    };
    for (size_t i = 0; i < LEN(types); i++) {
        gm_arena arena = {0};
        const gm_synth_list list = list_of("1b", types[i][0], types[i][0], &arena);
        static const char *const narrow[] = {"token_embd.weight",     "blk.25.attn_q.weight",
                                             "blk.0.attn_k.weight",   "blk.0.attn_v.weight",
                                             "blk.0.ffn_gate.weight", "blk.7.ffn_up.weight"};
        for (size_t k = 0; k < LEN(narrow); k++)
            assert_string_equal(tensor_of(&list, narrow[k])->type->name, types[i][1]);
        assert_string_equal(tensor_of(&list, "blk.3.attn_output.weight")->type->name, types[i][0]);
        assert_string_equal(tensor_of(&list, "blk.3.ffn_down.weight")->type->name, types[i][0]);
        gm_arena_deinit(&arena);
    }
    const gm_qtype_info *got = NULL;
    assert_int_equal(gm_synth_type_fit(&got, gm_qtype_find(GM_QTYPE_Q4_K), 48, &err), GM_E_ARG);
    assert_null(got);
    assert_string_equal(err.msg,
                        "synth: a row of 48 values cannot be q4_k, expected a multiple of 32");
    OK(gm_synth_type_fit(&got, gm_qtype_find(GM_QTYPE_Q4_K), 512, &err));
    assert_int_equal(got->id, GM_QTYPE_Q4_K);
}

/* ---- the vocabulary ------------------------------------------------------------------------ */

/* True where merging can make the piece: it is one character or the sum of two such pieces. */
static bool can_merge(const gm_vocab *v, gm_str piece)
{
    for (size_t i = 1; i < piece.len; i++) {
        const gm_str left = {piece.p, i}, right = {piece.p + i, piece.len - i};
        if (gm_vocab_find_merged(v, left) >= 0 && gm_vocab_find_merged(v, right) >= 0) return true;
    }
    return false;
}

static void check_vocab(const char *shape_name, uint32_t n, uint32_t first_char)
{
    gm_arena arena = {0};
    gm_synth_vocab made;
    gm_meta meta;
    gm_vocab *v = NULL;
    const gm_synth_shape *shape = NULL;
    OK(gm_synth_shape_find(&shape, shape_name, &err));
    OK(gm_synth_vocab_make(&made, shape, &arena, &err));
    OK(gm_synth_meta_make(&meta, shape, &made, gm_qtype_find(GM_QTYPE_F32), 0, &arena, &err));
    assert_int_equal(made.n, n);
    assert_int_equal(gm_synth_vocab_len(shape), n);
    OK(gm_vocab_open(&v, &meta, n, &err));
    for (uint32_t i = 0; i < n; i++) {
        const gm_str piece = gm_vocab_piece(v, (int32_t)i);
        if (gm_vocab_find(v, piece) != (int32_t)i)
            fail_msg("piece %u is there twice: %.*s", i, GM_STR_ARG(piece));
        if (i >= 494 && i < first_char && !can_merge(v, piece))
            fail_msg("piece %u cannot be merged: %.*s", i, GM_STR_ARG(piece));
        assert_int_equal(gm_vocab_kind(v, (int32_t)i), made.kinds[i]);
    }
    gm_vocab_close(v);
    gm_arena_deinit(&arena);
}

static void test_pieces_are_distinct_and_reachable(void **state)
{
    (void)state;
    check_vocab("tiny", 2048, 2048 - 95);
    check_vocab("27b", 262144, 236743);
}

static void test_ids_are_gemmas(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        int32_t kind;
        float score;
        const char *piece;
    } want[] = {
        {0, 3, -1000, "<pad>"},
        {1, 3, -1000, "<eos>"},
        {2, 3, -1000, "<bos>"},
        {3, 3, -1000, "<unk>"},
        {4, 3, -1000, "<mask>"},
        {5, 4, -1000, "[multimodal]"},
        {6, 3, -1000, "<unused0>"},
        {104, 3, -1000, "<unused98>"},
        {105, 3, -1000, "<start_of_turn>"},
        {106, 3, -1000, "<end_of_turn>"},
        {107, 4, -1000, "\n"},
        {109, 4, -1000, "\n\n\n"},
        {138, 4, -1000, "  "},
        {167, 4, -1000, "                               "},
        {168, 4, -1000, "<table>"},
        {184, 4, -1000, "<h1>"},
        {203, 4, -1000, "<s>"},
        {212, 4, -1000, "</s>"},
        {237, 4, -1000, "</footer>"},
        {238, 6, 0, "<0x00>"},
        {248, 6, 0, "<0x0A>"},
        {493, 6, 0, "<0xFF>"},
        {494, 1, 0, GM_SPACE_STR "t"},
        {495, 1, -1, GM_SPACE_STR "a"},
        {236743, 1, -236249, GM_SPACE_STR},
        {236744, 1, -236250, "e"},
        {255968, 4, -1000, "\t"},
        {255999, 3, -1000, "<start_of_image>"},
        {256000, 3, -1000, "<end_of_image>"},
        {256001, 3, -1000, "<unused99>"},
        {262143, 3, -1000, "<unused6241>"},
    };
    gm_arena arena = {0};
    gm_synth_vocab v;
    const gm_synth_shape *shape = NULL;
    OK(gm_synth_shape_find(&shape, "270M", &err));
    OK(gm_synth_vocab_make(&v, shape, &arena, &err));
    for (size_t i = 0; i < LEN(want); i++) {
        const gm_str piece = v.pieces[want[i].id];
        if (!gm_str_eq(piece, gm_str_c(want[i].piece)))
            fail_msg("piece %u is %.*s", want[i].id, GM_STR_ARG(piece));
        assert_int_equal(v.kinds[want[i].id], want[i].kind);
        assert_true(v.scores[want[i].id] == want[i].score);
    }
    gm_arena_deinit(&arena);
}

/* ---- the weights --------------------------------------------------------------------------- */

/* The words of docs/SYNTH.md: pinned so that another program can be held to them. */
static void test_words_are_the_documents(void **state)
{
    (void)state;
    gm_arena arena = {0};
    const gm_synth_list list = list_of("tiny", "q8_0", "q8_0", &arena);
    const gm_noise s = gm_synth_noise(&list, 0, 0);
    uint8_t block[34 * 8];
    gm_noise_fill(&s, 0, sizeof block, block);
    uint64_t word = 0;
    memcpy(&word, block + 8, sizeof word);
    assert_int_equal(s.key, 0xE220A8397B1DCDAF);
    assert_int_equal(word, 0xB382A305F4414F5E);
    gm_arena_deinit(&arena);
}

static void test_any_part_can_be_made_alone(void **state)
{
    (void)state;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const gm_qtype_info *const type = gm_qtype_at(i);
        const size_t unit = 8 * type->block_size, size = 5 * unit + type->block_size;
        const gm_noise s = {type, {0, 0.01}, 42};
        uint8_t *const whole = malloc(size), *const part = malloc(size);
        assert_true(whole && part);
        gm_noise_fill(&s, 0, size, whole);
        gm_noise_fill(&s, 3 * unit, size - 3 * unit, part);
        assert_memory_equal(part, whole + 3 * unit, size - 3 * unit);
        gm_noise_fill(&s, unit, type->block_size, part);
        assert_memory_equal(part, whole + unit, type->block_size);
        free(whole);
        free(part);
    }
}

static void test_weights_keep_their_law(void **state)
{
    (void)state;
    enum { N = 256 * 2048 };
    float *const x = malloc(N * sizeof *x);
    uint8_t *const bytes = malloc(N * sizeof *x);
    assert_true(x && bytes);
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const gm_qtype_info *const type = gm_qtype_at(i);
        for (double variance = 9.0 / 256; variance > 1e-5; variance /= 800) {
            const gm_noise s = {type, {0, variance}, 7 + i};
            gm_noise_fill(&s, 0, N / type->block_len * type->block_size, bytes);
            gm_qtype_expand(type, bytes, N, x);
            double sum = 0, square = 0;
            for (size_t k = 0; k < N; k++) {
                sum += (double)x[k];
                square += (double)x[k] * (double)x[k];
            }
            const double ratio = sqrt(square / N / variance);
            if (!(fabs(ratio - 1) < 0.03)) fail_msg("%s: deviation x %g", type->name, ratio);
            if (!(fabs(sum / N) < 0.02 * sqrt(variance)))
                fail_msg("%s: mean %g at deviation %g", type->name, sum / N, sqrt(variance));
        }
    }
    free(x);
    free(bytes);
}

static void test_norms_lie_around_one(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N];
    const gm_noise s = {gm_qtype_find(GM_QTYPE_F32), {1, 1.0 / 12}, 3};
    gm_noise_fill(&s, 0, sizeof x, (uint8_t *)x);
    float least = 2, most = 0;
    for (size_t i = 0; i < N; i++) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
    }
    assert_true(least >= 0.5f && least < 0.51f);
    assert_true(most <= 1.5f && most > 1.49f);
}

/* ---- the file ------------------------------------------------------------------------------ */

static uint64_t hash_file(const char *path)
{
    gm_mapfile map = {0};
    OK(gm_mapfile_open(&map, path, &err));
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < map.size; i++)
        hash = (hash ^ map.data[i]) * 0x100000001B3u;
    gm_mapfile_close(&map);
    return hash;
}

static uint64_t hash_of(const gm_synth_opts *o)
{
    OK(gm_synth_write(target, o, &err));
    return hash_file(target);
}

static void test_bytes_are_the_same_everywhere(void **state)
{
    (void)state;
    gm_synth_opts o = tiny("q4_0");
    const uint64_t q4_0 = hash_of(&o);
    assert_int_equal(q4_0, 0xB4114E2C82EAC209);
    assert_int_equal(hash_of(&o), q4_0);
    o.seed = 1;
    assert_int_not_equal(hash_of(&o), q4_0);
    o = tiny("q5_k");
    o.head_type = "bf16";
    o.seed = UINT64_MAX;
    assert_int_equal(hash_of(&o), 0xFBEDB8C4E94FEB60);
}

/* Log-probabilities are logits less a number for each row, so their deviation is the logits'. */
static double deviation(const float *x, uint32_t n)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i];
        square += (double)x[i] * (double)x[i];
    }
    return sqrt(square / n - sum / n * (sum / n));
}

static void check_forward(const gm_model *m, const char *type)
{
    static const int32_t ids[] = {2, 105, 700, 1999, 107, 700};
    const uint32_t n_vocab = gm_vocab_len(m->vocab);
    float *const rows = forward_logprobs(m, ids, LEN(ids), &(forward_opts){.backend = "ref"});
    uint32_t n_echo = 0;
    for (size_t r = 0; r < LEN(ids); r++) {
        const float *const row = rows + r * n_vocab;
        const double dev = deviation(row, n_vocab);
        if (!(dev > 2 && dev < 4)) fail_msg("%s: logits deviate by %g", type, dev);
        uint32_t best = 0;
        for (uint32_t i = 0; i < n_vocab; i++) {
            assert_true(isfinite(row[i]));
            if (row[i] > row[best]) best = i;
        }
        n_echo += (int32_t)best == ids[r];
    }
    assert_true(n_echo < LEN(ids) / 2);
    free(rows);
}

static void test_every_type_runs(void **state)
{
    (void)state;
    for (size_t i = 0; gm_qtype_at(i); i++) {
        const char *const type = gm_qtype_at(i)->name;
        const gm_synth_opts o = tiny(type);
        gm_model *m = NULL;
        OK(gm_synth_write(target, &o, &err));
        OK(gm_model_open(&m, target, &err));
        const gm_tensor *const q = gm_tensorfile_find(m->file, "blk.6.attn_q.weight");
        assert_string_equal(q->type->name, type);
        check_forward(m, type);
        gm_model_close(m);
    }
}

static void test_model_says_what_it_is(void **state)
{
    (void)state;
    gm_synth_opts o = tiny("Q4_K");
    o.head_type = "f16";
    o.seed = 77;
    gm_model *m = NULL;
    OK(gm_synth_write(target, &o, &err));
    OK(gm_model_open(&m, target, &err));
    gm_model_info info = {.size = sizeof info};
    gm_model_describe(m, &info);
    assert_string_equal(info.name, "synthetic gemma-3-tiny");
    assert_non_null(strstr(info.note, "random"));
    assert_int_equal(info.n_vocab, 2048);
    assert_int_equal(info.n_ctx, 2048);
    assert_int_equal(gm_meta_find(&m->file->meta, "gemmule.synth.seed")->u, 77);
    assert_int_equal(gm_meta_find(&m->file->meta, "general.file_type")->u, 14);
    assert_null(gm_meta_find(&m->file->meta, "gemma3.rope.scaling.factor"));
    assert_int_equal(m->config.layer_class[5], GM_CLASS_GLOBAL);
    assert_int_equal(m->config.layer_class[6], GM_CLASS_LOCAL);
    assert_string_equal(gm_tensorfile_find(m->file, "token_embd.weight")->type->name, "f16");
    assert_string_equal(gm_tensorfile_find(m->file, "blk.0.ffn_up.weight")->type->name, "q4_k");
    gm_model_close(m);
}

static void test_text_becomes_longer_pieces(void **state)
{
    (void)state;
    const gm_synth_opts o = tiny("q8_0");
    gm_model *m = NULL;
    OK(gm_synth_write(target, &o, &err));
    OK(gm_model_open(&m, target, &err));
    static const char text[] = "the rain in there is not so\t12 \xF0\x9F\x98\x80";
    gm_ids ids = {0};
    OK(gm_model_tokenize(m, text, strlen(text), 0, &ids, &err));
    assert_true(ids.n < strlen(text) * 2 / 3);
    size_t len = 0;
    assert_memory_equal(gm_model_piece(m, ids.at[ids.n - 1], &len), "<0x80>", 6);
    gm_ids_deinit(&ids);
    gm_model_close(m);
}

/* ---- failure ------------------------------------------------------------------------------- */

static void test_bad_names_are_refused(void **state)
{
    (void)state;
    unlink(target);
    gm_synth_opts o = tiny("q4_0");
    o.shape = "3b";
    refused(target, &o, GM_E_ARG,
            "the size is \"3b\", expected one of: tiny narrow 270m 1b 4b 12b 27b");
    o = tiny("q9_9");
    refused(target, &o, GM_E_ARG, "the type is \"q9_9\", expected one of: f32 f16");
    o = tiny("q4_0");
    o.head_type = "";
    refused(target, &o, GM_E_ARG, "the type is \"\"");
    o = tiny(NULL);
    refused(target, &o, GM_E_ARG, "are needed");
    o = tiny("q4_0");
    refused("", &o, GM_E_ARG, "are needed");
    assert_int_equal(access(target, F_OK), -1);
}

static void test_taken_names_are_refused(void **state)
{
    (void)state;
    FILE *const f = fopen(target, "w");
    assert_non_null(f);
    fputs("mine", f);
    fclose(f);
    gm_synth_opts o = tiny("q4_0");
    o.force = 0;
    refused(target, &o, GM_E_IO, "is there already");
    struct stat st;
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 4);
    o.force = 1;
    OK(gm_synth_write(target, &o, &err));
    refused(folder, &o, GM_E_IO, "directory");
    char path[400];
    snprintf(path, sizeof path, "%s/none/model.gguf", folder);
    refused(path, &o, GM_E_IO, "No such file");
    snprintf(path, sizeof path, "%s/below", target);
    refused(path, &o, GM_E_IO, "Not a directory");
}

typedef struct watch {
    uint64_t calls, cancel_at, last, total;
} watch;

static int watch_progress(void *ctx, uint64_t done, uint64_t total)
{
    watch *const w = ctx;
    w->last = done;
    w->total = total;
    return ++w->calls == w->cancel_at;
}

static void test_progress_reaches_the_end(void **state)
{
    (void)state;
    gm_synth_opts o = tiny("q4_0");
    watch w = {0};
    o.progress = watch_progress;
    o.progress_ctx = &w;
    OK(gm_synth_write(target, &o, &err));
    struct stat st;
    assert_int_equal(stat(target, &st), 0);
    assert_true(w.calls >= 1);
    assert_int_equal(w.last, w.total);
    assert_true(w.total < (uint64_t)st.st_size && w.total > (uint64_t)st.st_size / 2);
}

/* The folder is empty afterwards: rmdir in the teardown says so too. */
static void test_cancel_leaves_nothing(void **state)
{
    (void)state;
    unlink(target);
    gm_synth_opts o = tiny("f32");
    watch w = {.cancel_at = 1};
    o.progress = watch_progress;
    o.progress_ctx = &w;
    refused(target, &o, GM_E_CANCEL, "was cancelled");
    assert_int_equal(w.calls, 1);
    assert_int_equal(access(target, F_OK), -1);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_have_gemmas_sizes),
        cmocka_unit_test(test_short_rows_fall_back),
        cmocka_unit_test(test_pieces_are_distinct_and_reachable),
        cmocka_unit_test(test_ids_are_gemmas),
        cmocka_unit_test(test_words_are_the_documents),
        cmocka_unit_test(test_any_part_can_be_made_alone),
        cmocka_unit_test(test_weights_keep_their_law),
        cmocka_unit_test(test_norms_lie_around_one),
        cmocka_unit_test(test_bytes_are_the_same_everywhere),
        cmocka_unit_test(test_every_type_runs),
        cmocka_unit_test(test_model_says_what_it_is),
        cmocka_unit_test(test_text_becomes_longer_pieces),
        cmocka_unit_test(test_bad_names_are_refused),
        cmocka_unit_test(test_taken_names_are_refused),
        cmocka_unit_test(test_progress_reaches_the_end),
        cmocka_unit_test(test_cancel_leaves_nothing),
    };
    return cmocka_run_group_tests_name("t_synth", tests, make_folder, remove_folder);
}
