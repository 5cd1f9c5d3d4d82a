/* SPDX-License-Identifier: MIT */
/* gemmule's log-probabilities against transformers' own, at every position of
 * every model in this folder (README.md says what each covers). */

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "fixtures/forward.h"

#define FOLDER "tests/golden"
#define BOUND  1e-4 /* of a log-probability; the goldens' own rounding is up to 2e-5 */

typedef struct golden {
    char path[300];
    gm_model *model;
    int32_t ids[256];
    uint32_t n, n_vocab;
    float *logprobs; /* [n, n_vocab] */
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
    if (gm_model_open(&g->model, g->path, &err) != GM_OK) fail_msg("%s", err.msg);
    FILE *f = open_in(g, "shape.txt");
    assert_int_equal(fscanf(f, "%u %u", &g->n, &g->n_vocab), 2);
    fclose(f);
    assert_true(g->n <= sizeof g->ids / sizeof *g->ids);
    f = open_in(g, "tokens.txt");
    for (uint32_t i = 0; i < g->n; i++)
        assert_int_equal(fscanf(f, "%d", &g->ids[i]), 1);
    fclose(f);
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
    float *const ours = forward_logprobs(g->model, g->ids, g->n, opts);
    const double worst = worst_difference(ours, g->logprobs, (size_t)g->n * g->n_vocab);
    free(ours);
    print_message("%s: worst difference of a log-probability %.2g (%s, chunks of %u)\n", g->path,
                  worst, opts->backend, opts->chunk ? opts->chunk : g->n);
    if (!(worst <= BOUND)) fail_msg("%s: %g is more than %g", g->path, worst, BOUND);
}

/* The whole prompt in one step, and in chunks that cross page borders at odd places. */
static void test_matches_transformers(void **state)
{
    check(*state, &(forward_opts){"ref", 0});
    check(*state, &(forward_opts){"ref", 7});
    check(*state, &(forward_opts){"ref", 1});
    check(*state, &(forward_opts){"cpu", 0});
    check(*state, &(forward_opts){"cpu", 7});
}

int main(void)
{
    static golden goldens[64];
    struct CMUnitTest tests[64];
    size_t n = 0;
    DIR *const dir = opendir(FOLDER);
    if (!dir) return fprintf(stderr, "%s cannot be opened\n", FOLDER), 1;
    for (const struct dirent *e = readdir(dir); e && n < 64; e = readdir(dir)) {
        struct stat st;
        char config[512];
        snprintf(config, sizeof config, "%s/%s/config.json", FOLDER, e->d_name);
        if (e->d_name[0] == '.' || stat(config, &st) != 0) continue;
        snprintf(goldens[n].path, sizeof goldens[n].path, "%s/%s", FOLDER, e->d_name);
        tests[n] = (struct CMUnitTest){.name = strrchr(goldens[n].path, '/') + 1,
                                       .test_func = test_matches_transformers,
                                       .setup_func = setup,
                                       .teardown_func = teardown,
                                       .initial_state = &goldens[n]};
        n++;
    }
    closedir(dir);
    if (n < 8) return fprintf(stderr, "%s has %zu models, expected 8 or more\n", FOLDER, n), 1;
    return _cmocka_run_group_tests("t_golden", tests, n, NULL, NULL);
}
