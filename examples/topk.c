/* SPDX-License-Identifier: MIT */
/* The tokens that a model finds likeliest after a text.
 *
 *     cc topk.c -o topk $(pkg-config --cflags --libs gemmule) -lm
 *     ./topk gemma-3-1b-it.gguf "The capital of France is"
 */

#include <gemmule.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static void show(const gm_model *m, const gm_event *ev)
{
    for (uint32_t i = 0; i < ev->n_top; i++) {
        size_t len;
        const char *const piece = gm_model_piece(m, ev->top[i].id, &len);
        printf("%6.2f %%  %6d  ", 100 * exp(ev->top[i].logprob), (int)ev->top[i].id);
        fwrite(piece, 1, len, stdout);
        putchar('\n');
    }
}

/* A request for one token, drawn only because candidates come with a token. The text is not a
 * conversation, so it is tokenized as it is, after the token that begins every text. */
static gm_status ask(const gm_model *m, gm_engine *e, const char *text, gm_err *err)
{
    gm_ids ids = {0};
    gm_request *r = NULL;
    gm_event ev;

    gm_status status = gm_model_tokenize(m, text, strlen(text), GM_TOKENIZE_BOS, &ids, err);
    if (status == GM_OK) {
        gm_request_opts opts = gm_request_opts_default(m);
        opts.ids = ids.at;
        opts.n_ids = ids.n;
        opts.max_tokens = 1;
        opts.n_top = 10;
        status = gm_request_open(&r, e, &opts, err);
    }
    if (status == GM_OK) status = gm_request_next(r, &ev, err);
    if (status == GM_OK) show(m, &ev);

    gm_request_close(r);
    gm_ids_deinit(&ids);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: topk MODEL TEXT\n");
        return 2;
    }
    gm_err err;
    gm_model *m = NULL;
    gm_engine *e = NULL;
    gm_status status = gm_model_open(&m, argv[1], &err);
    if (status == GM_OK) status = gm_engine_open(&e, m, NULL, &err);
    if (status == GM_OK) status = ask(m, e, argv[2], &err);
    gm_engine_close(e);
    gm_model_close(m);
    if (status == GM_OK) return 0;
    fprintf(stderr, "topk: %s\n", err.msg);
    return 1;
}
