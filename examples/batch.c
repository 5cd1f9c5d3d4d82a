/* SPDX-License-Identifier: MIT */
/* Several answers at once on one engine: with as many slots as questions, each step of the model
 * makes a token of every answer, for little more than the time of one.
 *
 *     cc batch.c -o batch $(pkg-config --cflags --libs gemmule)
 *     ./batch gemma-3-1b-it.gguf "Name a colour." "Name a fruit." "Name a town."
 */

#include <gemmule.h>

#include <stdio.h>
#include <string.h>

#define MAX_QUESTIONS 16
#define MAX_TOKENS    64

/* The options are copied when a request is opened, so the ids may go at once. */
static gm_status ask(gm_request **r, const gm_model *m, gm_engine *e, const char *text, gm_err *err)
{
    gm_ids ids = {0};
    const gm_message message = {"user", text, strlen(text)};
    gm_status status = gm_model_chat(m, &message, 1, &ids, err);
    if (status == GM_OK) {
        gm_request_opts opts = gm_request_opts_default(m);
        opts.ids = ids.at;
        opts.n_ids = ids.n;
        opts.max_tokens = MAX_TOKENS;
        status = gm_request_open(r, e, &opts, err);
    }
    gm_ids_deinit(&ids);
    return status;
}

/* Goes around the requests and takes one event of each until all have ended; prints their texts,
 * each after the number of its question. A program that cannot wait for one request while another
 * has news gives each a thread. */
static gm_status collect(gm_request **r, size_t n, gm_err *err)
{
    gm_event ev[MAX_QUESTIONS] = {{0}};
    size_t n_ended = 0;
    for (size_t i = 0; n_ended < n; i = (i + 1) % n) {
        if (ev[i].kind == GM_EVENT_END) continue;
        const gm_status status = gm_request_next(r[i], &ev[i], err);
        if (status != GM_OK) return status;
        printf("%zu: ", i + 1);
        fwrite(ev[i].text, 1, ev[i].len, stdout);
        if (ev[i].kind == GM_EVENT_END) {
            n_ended++;
            printf("(%u tokens)", (unsigned)ev[i].n_answer);
        }
        putchar('\n');
    }
    return GM_OK;
}

static gm_status answer(const char *path, char **texts, size_t n, gm_err *err)
{
    gm_model *m = NULL;
    gm_engine *e = NULL;
    gm_request *r[MAX_QUESTIONS] = {NULL};
    gm_engine_opts opts = gm_engine_opts_default();
    opts.n_slots = (uint32_t)n;
    opts.n_ctx = 1024;

    gm_status status = gm_model_open(&m, path, err);
    if (status == GM_OK) status = gm_engine_open(&e, m, &opts, err);
    for (size_t i = 0; i < n && status == GM_OK; i++)
        status = ask(&r[i], m, e, texts[i], err);
    if (status == GM_OK) status = collect(r, n, err);

    for (size_t i = 0; i < n; i++)
        gm_request_close(r[i]);
    gm_engine_close(e);
    gm_model_close(m);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > MAX_QUESTIONS) {
        fprintf(stderr, "usage: batch MODEL TEXT..., at most %d texts\n", MAX_QUESTIONS);
        return 2;
    }
    gm_err err;
    if (answer(argv[1], argv + 2, (size_t)(argc - 2), &err) == GM_OK) return 0;
    fprintf(stderr, "batch: %s\n", err.msg);
    return 1;
}
