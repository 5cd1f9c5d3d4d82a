/* SPDX-License-Identifier: MIT */
/* gemmule's log-probabilities against transformers' own: of every model in this folder at every
 * position (README.md says what each covers), and of the bundled model at the last positions of
 * some prompts. The first have random weights that are stored as floats; the second is q8_0, and
 * transformers was given the same file with its weights expanded (training/golden.py). */

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "fixtures/forward.h"

/* Where golden folders are, and how far a log-probability may be off. */
typedef struct source {
    const char *folder;
    const char *model; /* of all of them; NULL: each has its own */
    double exact, cpu; /* bounds of the backends ref and cpu     */
    bool is_small;     /* ref can go through it several times    */
    size_t n_least;    /* golden folders in it                   */
} source;

static const source sources[] = {
    /* The goldens' own rounding is up to 2e-5. Weights that are floats are multiplied with
     * activations that are floats, so both backends have the same bound. */
    {"tests/golden", NULL, 1e-4, 1e-4, true, 8},
    /* The cpu backend rounds the inputs of q8_0 products to int8, and the worst of the whole
     * vocabulary counts, tokens of e^-20 too: 0.11 to 0.15 for these prompts. */
    {"models/golden", "models/gemmule-mini.gguf", 2e-3, 0.25, false, 4},
};

typedef struct golden {
    const source *from;
    char path[300];
    gm_model *model;
    int32_t ids[1024];
    uint32_t n_ids, n, n_vocab;
    float *logprobs; /* [n, n_vocab], of the last n positions */
} golden;

static FILE *open_in(const golden *g, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", g->path, name);
    FILE *const f = fopen(path, "rb");
    if (!f) fail_msg("%s is missing", path);
    return f;
}

static int setup(void **state)
{
    golden *const g = *state;
    gm_err err = {0};
    const char *const path = g->from->model ? g->from->model : g->path;
    if (gm_model_open(&g->model, path, &err) != GM_OK) fail_msg("%s", err.msg);
    FILE *f = open_in(g, "shape.txt");
    assert_int_equal(fscanf(f, "%u %u", &g->n, &g->n_vocab), 2);
    fclose(f);
    f = open_in(g, "tokens.txt");
    while (g->n_ids < sizeof g->ids / sizeof *g->ids && fscanf(f, "%d", &g->ids[g->n_ids]) == 1)
        g->n_ids++;
    assert_true(feof(f));
    fclose(f);
    assert_in_range(g->n, 1, g->n_ids);
    g->logprobs = malloc((size_t)g->n * g->n_vocab * sizeof *g->logprobs);
    f = open_in(g, "logprobs.bin");
    assert_int_equal(fread(g->logprobs, sizeof(float), (size_t)g->n * g->n_vocab, f),
                     (size_t)g->n * g->n_vocab);
    fclose(f);
    assert_int_equal(gm_vocab_len(g->model->vocab), g->n_vocab);
    return 0;
}

static int teardown(void **state)
{
    golden *const g = *state;
    gm_model_close(g->model);
    free(g->logprobs);
    return 0;
}

static void check(const golden *g, const forward_opts *opts)
{
    const double bound = strcmp(opts->backend, "ref") == 0 ? g->from->exact : g->from->cpu;
    float *const ours = forward_logprobs(g->model, g->ids, g->n_ids, opts);
    const double worst = worst_difference(ours + (size_t)(g->n_ids - g->n) * g->n_vocab,
                                          g->logprobs, (size_t)g->n * g->n_vocab);
    free(ours);
    print_message("%s: worst difference of a log-probability %.2g (%s, chunks of %u)\n", g->path,
                  worst, opts->backend, opts->chunk ? opts->chunk : g->n_ids);
    if (!(worst <= bound)) fail_msg("%s: %g is more than %g", g->path, worst, bound);
}

/* The whole prompt in one step, and in chunks that cross page borders at odd places. */
static void test_matches_transformers(void **state)
{
    const golden *const g = *state;
    check(*state, &(forward_opts){"ref", 0});
    if (g->from->is_small) check(*state, &(forward_opts){"ref", 7});
    if (g->from->is_small) check(*state, &(forward_opts){"ref", 1});
    check(*state, &(forward_opts){"cpu", 0});
    check(*state, &(forward_opts){"cpu", 7});
}

#define MAX_GOLDENS 64
static golden goldens[MAX_GOLDENS];
static struct CMUnitTest tests[MAX_GOLDENS];

/* Appends a test for each golden folder of a source; answers how many there are then, 0 where they
 * are too few. */
static size_t add_tests(const source *from, size_t n)
{
    const size_t n_before = n;
    DIR *const dir = opendir(from->folder);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e && n < MAX_GOLDENS;
         e = readdir(dir)) {
        struct stat st;
        char shape[512];
        golden *const g = &goldens[n];
        snprintf(shape, sizeof shape, "%s/%s/shape.txt", from->folder, e->d_name);
        if (e->d_name[0] == '.' || stat(shape, &st) != 0) continue;
        g->from = from;
        snprintf(g->path, sizeof g->path, "%s/%s", from->folder, e->d_name);
        tests[n++] = (struct CMUnitTest){.name = strrchr(g->path, '/') + 1,
                                         .test_func = test_matches_transformers,
                                         .setup_func = setup,
                                         .teardown_func = teardown,
                                         .initial_state = g};
    }
    if (dir) closedir(dir);
    return n - n_before < from->n_least ? 0 : n;
}

int main(void)
{
    size_t n = 0;
    for (const source *s = sources; s < sources + sizeof sources / sizeof *sources; s++) {
        n = add_tests(s, n);
        if (n == 0) return fprintf(stderr, "%s: golden folders are missing\n", s->folder), 1;
    }
    return _cmocka_run_group_tests("t_golden", tests, n, NULL, NULL);
}
