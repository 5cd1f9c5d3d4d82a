/* SPDX-License-Identifier: MIT */
/* One answer, printed as it is made.
 *
 *     cc hello.c -o hello $(pkg-config --cflags --libs gemmule)
 *     ./hello gemma-3-1b-it.gguf "Why is the sky blue?"
 */

#include <gemmule.h>

#include <stdio.h>
#include <string.h>

#define MAX_TOKENS 256

/* Each event brings a token and the text that it completes: often a word, sometimes nothing, as
 * when a character takes several tokens. The last event has the rest and the reason for the end. */
static gm_status stream(gm_request *r, gm_err *err)
{
    gm_event ev = {0};
    while (ev.kind != GM_EVENT_END) {
        const gm_status status = gm_request_next(r, &ev, err);
        if (status != GM_OK) return status;
        fwrite(ev.text, 1, ev.len, stdout);
        fflush(stdout);
    }
    putchar('\n');
    if (ev.reason == GM_END_LENGTH)
        fprintf(stderr, "hello: cut after %u tokens\n", (unsigned)ev.n_answer);
    return GM_OK;
}

/* A result is zero where a call failed and closing takes zeros, so one chain and one way out are
 * enough: after a failure, the calls that follow are passed over. */
static gm_status answer(const char *path, const char *text, gm_err *err)
{
    gm_model *m = NULL;
    gm_engine *e = NULL;
    gm_request *r = NULL;
    gm_ids ids = {0};
    const gm_message message = {"user", text, strlen(text)};

    gm_status status = gm_model_open(&m, path, err);
    if (status == GM_OK) status = gm_engine_open(&e, m, NULL, err);
    if (status == GM_OK) status = gm_model_chat(m, &message, 1, &ids, err);
    if (status == GM_OK) {
        gm_request_opts opts = gm_request_opts_default(m);
        opts.ids = ids.at;
        opts.n_ids = ids.n;
        opts.max_tokens = MAX_TOKENS;
        status = gm_request_open(&r, e, &opts, err);
    }
    if (status == GM_OK) status = stream(r, err);

    gm_request_close(r);
    gm_ids_deinit(&ids);
    gm_engine_close(e);
    gm_model_close(m);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: hello MODEL [TEXT]\n");
        return 2;
    }
    gm_err err;
    if (answer(argv[1], argc == 3 ? argv[2] : "Hello", &err) == GM_OK) return 0;
    fprintf(stderr, "hello: %s\n", err.msg);
    return 1;
}
