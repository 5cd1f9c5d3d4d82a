/* SPDX-License-Identifier: MIT */
/* The likeliest next tokens: a request of one token, of which only the candidates
 * are shown. */

#include "commands.h"

#include <inttypes.h>
#include <math.h>

#include "session.h"

#define DEFAULT_TOP 10

typedef struct prompt_args {
    gm_text_args text;
    gm_arglist tokens;
    gm_argnum top;
} prompt_args;

typedef struct logits_opts {
    gm_model_args model;
    gm_engine_args engine;
    prompt_args prompt;
    gm_general_args general;
} logits_opts;

static const gm_argrow logits_rows[] = {
    {.name = "tokens",
     .value = "IDS",
     .kind = GM_ARG_IDS,
     .offset = offsetof(prompt_args, tokens),
     .help = "the prompt as token ids with commas between them,\n"
             "exactly these: 2,5,7"},
    {.name = "top",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(prompt_args, top),
     .whole = {1, UINT32_MAX},
     .help = "how many tokens to show, at most all (default: 10)"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(logits_opts, model)},
    {"Engine", gm_engine_rows, offsetof(logits_opts, engine)},
    {"Text", gm_text_rows, offsetof(logits_opts, prompt) + offsetof(prompt_args, text)},
    {"What to show", logits_rows, offsetof(logits_opts, prompt)},
    {"Output", gm_general_rows, offsetof(logits_opts, general)},
    {0},
};

static void print_table(const gm_session *s, const gm_event *ev)
{
    gm_out_printf("%7s  %10s  %8s  %s\n", "id", "logprob", "share", "piece");
    for (uint32_t i = 0; i < ev->n_top; i++) {
        const gm_candidate *const c = &ev->top[i];
        gm_out_printf("%7d  %10.6f  %7.3f%%  ", (int)c->id, (double)c->logprob,
                      100 * exp((double)c->logprob));
        gm_session_out_piece(s, c->id);
    }
}

static void print_json(const gm_session *s, const gm_event *ev)
{
    json_t *const top = gm_need(json_array());
    for (uint32_t i = 0; i < ev->n_top; i++) {
        json_t *const one = gm_session_json_token(s, ev->top[i].id);
        if (json_object_set_new(one, "logprob", gm_outjson_real((double)ev->top[i].logprob)) != 0)
            gm_need(NULL);
        gm_outjson_append(top, one);
    }
    gm_out_json(json_pack("{s:o}", "top", top));
}

/* One token is drawn, for the candidates that come with it. */
static int show(gm_session *s, const logits_opts *o, const gm_ids *ids)
{
    const uint64_t top = o->prompt.top.given ? o->prompt.top.whole : DEFAULT_TOP;
    gm_request_opts opts = gm_request_opts_default(s->model);
    opts.ids = ids->at;
    opts.n_ids = ids->n;
    opts.max_tokens = 1;
    opts.n_top = top < s->info.n_vocab ? (uint32_t)top : s->info.n_vocab;
    opts.flags = o->general.verbose ? GM_REQUEST_HASH : 0;
    int code = gm_session_ask(s, &opts);
    gm_event ev = {0};
    if (code == GM_EXIT_OK) code = gm_session_next(s, &ev);
    if (code != GM_EXIT_OK) return code;
    if (ev.kind != GM_EVENT_TOKEN) return gm_session_end(s);
    if (o->general.json)
        print_json(s, &ev);
    else
        print_table(s, &ev);
    gm_out_flush();
    if (o->general.verbose) {
        gm_say_fact("model", "%s", s->path);
        gm_session_say_backend(s);
        gm_say_fact("prompt tokens", "%" PRIu32, ev.n_prompt);
        gm_say_fact("logits hash", "%016" PRIx64, ev.hash);
    }
    return gm_session_end(s);
}

/* What was not asked for: the exact backend, because who asks for logits wants the truth, and a
 * context as long as the prompt needs. A user's own is kept, to be refused if it is too short. */
static gm_engine_args fill_in(const gm_session *s, const gm_engine_args *args, size_t n_ids)
{
    gm_engine_args fitted = *args;
    if (!args->backend) fitted.backend = "ref";
    const uint64_t need = n_ids ? n_ids + 1 : 2;
    if (!args->ctx.given) fitted.ctx.whole = need < s->info.n_ctx ? need : s->info.n_ctx;
    return fitted;
}

static int logits(gm_session *s, const logits_opts *o, const gm_bytes *text)
{
    const gm_arglist *const tokens = &o->prompt.tokens;
    int code = gm_session_open(s, &o->model);
    if (code == GM_EXIT_OK && !tokens->n)
        code = gm_session_tokenize(s, text, gm_text_flags(&o->prompt.text));
    if (code != GM_EXIT_OK) return code;
    const gm_ids given = {.at = tokens->at, .n = tokens->n};
    const gm_ids *const ids = tokens->n ? &given : &s->ids;
    const gm_engine_args engine = fill_in(s, &o->engine, ids->n);
    code = gm_session_start(s, &engine, &o->general);
    return code == GM_EXIT_OK ? show(s, o, ids) : code;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const logits_opts *const o = opts;
    gm_session s = {0};
    gm_bytes text = {0};
    int code = gm_engine_args_check(self, &o->engine);
    if (code == GM_EXIT_OK && o->prompt.tokens.n && words->n)
        code = gm_args_refuse(self, "--tokens is the prompt; there are words beside it");
    if (code == GM_EXIT_OK && o->prompt.tokens.n == 0)
        code = gm_prompt_read(self, words, &o->model, &text);
    if (code == GM_EXIT_OK) code = logits(&s, o, &text);
    gm_bytes_free(&text);
    gm_session_close(&s);
    return code;
}

const gm_command gm_cmd_logits = {
    .name = "logits",
    .summary = "show the likeliest next tokens of a prompt",
    .words = "[PROMPT ...]",
    .about =
        "The prompt is the words given, with blanks between them, or else all of standard input; a "
        "-\n"
        "behind the words adds standard input, below an empty line,\n"
        "byte for byte, as in gemmule tokenize; or the ids of --tokens. Shown are the natural\n"
        "logarithm of each token's probability and the probability itself, before temperature\n"
        "and penalties, computed exactly by the slow ref backend unless --backend says otherwise.\n"
        "--json prints {\"top\":[{\"id\":5,\"piece\":\"x\",\"logprob\":-1.5},...]}.",
    .examples = "gemmule logits \"Once upon a\"\n"
                "gemmule logits --tokens 2,5,7 --top 3 --json",
    .groups = groups,
    .opts_size = sizeof(logits_opts),
    .run = run,
};
