/* SPDX-License-Identifier: MIT */
/* From -m to events. The order is that of a user's mistakes: the command line is
 * checked first, then the prompt is read, then the model is opened, so that nobody
 * waits for a model to be told of a typing error. */

#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bar.h"
#include "bundled.h"
#include "interrupt.h"

/* ---- options ------------------------------------------------------------------------- */

const gm_argrow gm_model_rows[] = {
    {.letter = 'm',
     .name = "model",
     .value = "MODEL",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_model_args, path),
     .help = "a GGUF file (the first part of a split one), or a\n"
             "Hugging Face folder (default: the small model that\n"
             "comes with gemmule)"},
    {0},
};

const gm_argrow gm_engine_rows[] = {
    {.name = "ctx",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(gm_engine_args, ctx),
     .whole = {2, UINT32_MAX},
     .help = "tokens of prompt and answer together (default: what\n"
             "the model was made for, at most 4096)"},
    {.name = "backend",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, backend),
     .help = "what computes; gemmule --version lists them\n"
             "(default: auto, the best here; logits: ref)"},
    {.name = "device",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, device),
     .help = "of the vulkan backend: a number, or a part of the\n"
             "device's name (default: the best that is there)"},
    {.name = "threads",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(gm_engine_args, threads),
     .whole = {1, 1024},
     .help = "that compute (default: one a physical core)"},
    {.name = "kv-type",
     .value = "TYPE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, kv_type),
     .choices = "f32, f16, q8_0",
     .help = "of the KV cache: f32, f16 or q8_0 (default: f16, and\n"
             "f32 with a ref backend)"},
    {.name = "isa",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, isa),
     .choices = "c, avx2, avx512",
     .help = "use vector instructions up to these: c (none), avx2\n"
             "or avx512 (default: all that the CPU has)"},
    {0},
};

const gm_argrow gm_text_rows[] = {
    {.name = "no-bos",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_text_args, no_bos),
     .help = "do not put the beginning-of-text token first"},
    {.name = "no-special",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_text_args, no_special),
     .help = "take <start_of_turn> and its kind for plain text,\n"
             "not for control tokens"},
    {0},
};

const gm_argrow gm_general_rows[] = {
    {.name = "json",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_general_args, json),
     .help = "print one JSON object on one line"},
    {.letter = 'v',
     .name = "verbose",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_general_args, verbose),
     .help = "say more"},
    {.letter = 'h',
     .name = "help",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_general_args, help),
     .help = "show this"},
    {0},
};

int gm_engine_args_check(const gm_command *cmd, const gm_engine_args *args)
{
    const char *const name = args->backend;
    bool found = !name || strcmp(name, "auto") == 0;
    gm_bytes known = {0};
    gm_bytes_put(&known, "auto", 4);
    for (size_t i = 0; gm_backend_name(i, NULL); i++) {
        const char *const one = gm_backend_name(i, NULL);
        found = found || strcmp(name, one) == 0;
        gm_bytes_put(&known, ", ", 2);
        gm_bytes_put(&known, one, strlen(one));
    }
    const int code = found ? GM_EXIT_OK
                           : gm_args_refuse(cmd, "--backend is %.80s, expected one of %.*s", name,
                                            (int)known.len, known.p);
    gm_bytes_free(&known);
    return code;
}

gm_engine_opts gm_engine_args_opts(const gm_engine_args *args)
{
    gm_engine_opts opts = gm_engine_opts_default();
    opts.n_ctx = (uint32_t)args->ctx.whole;
    opts.n_threads = (uint32_t)args->threads.whole;
    opts.backend = args->backend;
    opts.device = args->device;
    opts.kv_type = args->kv_type;
    opts.isa = args->isa;
    return opts;
}

uint32_t gm_text_flags(const gm_text_args *args)
{
    return (args->no_bos ? 0 : GM_TOKENIZE_BOS) | (args->no_special ? 0 : GM_TOKENIZE_SPECIAL);
}

/* ---- the prompt ---------------------------------------------------------------------- */

/* More than any context has room for; stops the endless files of /dev. */
#define TEXT_MAX (1u << 30)

static int read_all(int fd, const char *name, gm_bytes *out)
{
    char chunk[65536];
    for (;;) {
        const ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0) return GM_EXIT_OK;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gm_say_failed("%s: %s", name, strerror(errno));
        gm_bytes_put(out, chunk, (size_t)n);
        if (out->len > TEXT_MAX)
            return gm_say_failed("%s: has more than %u bytes, expected a text", name, TEXT_MAX);
    }
}

int gm_text_read(const char *path, gm_bytes *out)
{
    const bool dash = strcmp(path, "-") == 0;
    const int fd = dash ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return gm_say_failed("%s: %s", path, strerror(errno));
    const int code = read_all(fd, dash ? "standard input" : path, out);
    if (!dash) close(fd);
    return code;
}

int gm_prompt_read(const gm_command *cmd, const gm_words *words, gm_bytes *out)
{
    const bool dash = words->n == 1 && strcmp(words->at[0], "-") == 0;
    if (words->n == 0 && isatty(STDIN_FILENO)) {
        return gm_args_refuse(cmd, "there is no prompt: write it behind the options or pipe it "
                                   "to standard input");
    }
    if (words->n == 0 || dash) return gm_text_read("-", out);
    for (size_t i = 0; i < words->n; i++) {
        if (i) gm_bytes_put(out, " ", 1);
        gm_bytes_put(out, words->at[i], strlen(words->at[i]));
    }
    return GM_EXIT_OK;
}

/* ---- a model at work ----------------------------------------------------------------- */

int gm_session_open(gm_session *s, const gm_model_args *args)
{
    if (!args->path) s->bundled = gm_bundled_find();
    s->path = args->path ? args->path : s->bundled;
    if (!s->path) return GM_EXIT_FAILED;
    gm_err err = {0};
    if (gm_model_open(&s->model, s->path, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    s->info.size = sizeof s->info;
    gm_model_describe(s->model, &s->info);
    return GM_EXIT_OK;
}

int gm_session_start(gm_session *s, const gm_engine_args *args)
{
    gm_bar bar;
    gm_err err = {0};
    s->opts = gm_engine_args_opts(args);
    gm_engine_opts opts = s->opts;
    opts.progress = gm_bar_tell;
    opts.progress_ctx = &bar;
    gm_bar_begin(&bar, "loading");
    const gm_status status = gm_engine_open(&s->engine, s->model, &opts, &err);
    if (gm_bar_end(&bar)) return GM_EXIT_INTERRUPTED;
    if (status != GM_OK) return gm_say_failed("%s", err.msg);
    s->opts.backend = gm_engine_backend(s->engine);
    return GM_EXIT_OK;
}

void gm_session_say_backend(const gm_session *s)
{
    const char *const why = gm_engine_why(s->engine);
    gm_say_fact("backend", "%s%s%s%s", gm_engine_backend(s->engine), why[0] ? " (" : "", why,
                why[0] ? ")" : "");
}

void gm_session_measure(gm_session *s)
{
    gm_err err = {0};
    if (s->roof.size) return;
    s->roof.size = sizeof s->roof;
    if (gm_backend_describe(&s->opts, 1, &s->roof, &err) != GM_OK)
        gm_say_note("the roof is not known: %s", err.msg);
}

int gm_session_tokenize(gm_session *s, const gm_bytes *text, uint32_t flags)
{
    gm_err err = {0};
    if (gm_model_tokenize(s->model, text->p, text->len, flags, &s->ids, &err) == GM_OK)
        return GM_EXIT_OK;
    return gm_say_failed("%s", err.msg);
}

int gm_session_ask(gm_session *s, const gm_request_opts *opts)
{
    gm_err err = {0};
    const gm_status status = gm_request_open(&s->request, s->engine, opts, &err);
    if (status != GM_OK) {
        return gm_say_failed("%s%s", err.msg,
                             status == GM_E_TOOBIG ? " (--ctx sets the context)" : "");
    }
    gm_interrupt_hold(s->request);
    s->hash = 0;
    if (s->info.note[0] && !s->noted) gm_say_note("%s", s->info.note);
    s->noted = true;
    return GM_EXIT_OK;
}

int gm_session_next(gm_session *s, gm_event *ev)
{
    gm_err err = {0};
    if (gm_request_next(s->request, ev, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    if (ev->kind == GM_EVENT_TOKEN) s->hash = (s->hash ^ ev->hash) * 1099511628211ull;
    return GM_EXIT_OK;
}

int gm_session_end(gm_session *s)
{
    const bool interrupted = gm_interrupt_release();
    gm_request_cancel(s->request); /* does nothing to one that is over */
    gm_request_close(s->before);
    s->before = s->request;
    s->request = NULL;
    return interrupted ? GM_EXIT_INTERRUPTED : GM_EXIT_OK;
}

void gm_session_close(gm_session *s)
{
    if (s->request) gm_session_end(s);
    gm_request_close(s->before);
    gm_engine_close(s->engine);
    gm_ids_deinit(&s->ids);
    gm_model_close(s->model);
    free(s->bundled);
    *s = (gm_session){0};
}

json_t *gm_session_json_token(const gm_session *s, int32_t id)
{
    size_t len = 0;
    const char *const piece = gm_model_piece(s->model, id, &len);
    return gm_need(json_pack("{s:i, s:o}", "id", (int)id, "piece", gm_outjson_text(piece, len)));
}

void gm_session_out_piece(const gm_session *s, int32_t id)
{
    size_t len = 0;
    const char *const piece = gm_model_piece(s->model, id, &len);
    gm_out_printf("\"");
    gm_out_escaped(piece, len);
    gm_out_printf("\"\n");
}
