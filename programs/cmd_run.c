/* SPDX-License-Identifier: MIT */
/* One answer. Text is written as soon as it is there; --json keeps it until the
 * end. What -v says comes after the answer, so that it never mixes with it. */

#include "commands.h"

#include <string.h>

#include "answer.h"
#include "sampling.h"
#include "session.h"

typedef struct prompt_args {
    bool raw;
    const char *system;
    gm_text_args text;
} prompt_args;

typedef struct run_opts {
    gm_model_args model;
    gm_engine_args engine;
    prompt_args prompt;
    gm_sampling_args sampling;
    gm_end_args end;
    gm_general_args general;
} run_opts;

static const gm_argrow prompt_rows[] = {
    {.name = "system",
     .value = "TEXT",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(prompt_args, system),
     .help = "instructions that come before the prompt"},
    {.name = "raw",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(prompt_args, raw),
     .help = "go on with the prompt as it is, without the chat\n"
             "format; the next two are for this only"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(run_opts, model)},
    {"Engine", gm_engine_rows, offsetof(run_opts, engine)},
    {"Prompt", prompt_rows, offsetof(run_opts, prompt)},
    {"Prompt with --raw", gm_text_rows, offsetof(run_opts, prompt) + offsetof(prompt_args, text)},
    {"How tokens are drawn", gm_sampling_rows, offsetof(run_opts, sampling)},
    {"Where the answer ends", gm_end_rows, offsetof(run_opts, end)},
    {"Output", gm_general_rows, offsetof(run_opts, general)},
    {0},
};

/* ---- the request ----------------------------------------------------------------------- */

static int make_prompt(gm_session *s, const prompt_args *args, const gm_bytes *text)
{
    const gm_message messages[] = {
        {"system", args->system, args->system ? strlen(args->system) : 0},
        {"user", text->p, text->len},
    };
    const size_t first = args->system ? 0 : 1;
    gm_err err = {0};
    if (args->raw) return gm_session_tokenize(s, text, gm_text_flags(&args->text));
    if (gm_model_chat(s->model, messages + first, 2 - first, &s->ids, &err) == GM_OK)
        return GM_EXIT_OK;
    return gm_say_failed("%s", err.msg);
}

static int answer_prompt(gm_session *s, const run_opts *o, const gm_bytes *text)
{
    gm_answer a = {.json = o->general.json};
    int code = gm_session_open(s, &o->model);
    if (code == GM_EXIT_OK) code = make_prompt(s, &o->prompt, text);
    if (code == GM_EXIT_OK) code = gm_sampling_args_seed(&o->sampling, &a.seed);
    if (code == GM_EXIT_OK) code = gm_session_start(s, &o->engine, &o->general);
    if (code != GM_EXIT_OK) return code;

    gm_request_opts request = gm_request_opts_default(s->model);
    gm_sampling_args_apply(&o->sampling, &request.sampling);
    gm_end_args_apply(&o->end, &request);
    request.sampling.seed = a.seed;
    request.ids = s->ids.at;
    request.n_ids = s->ids.n;
    request.flags = o->general.verbose ? GM_REQUEST_HASH : 0;
    code = gm_answer_stream(&a, s, &request);
    gm_answer_say_cut(&a, s, "");
    if (o->general.verbose && a.end.kind == GM_EVENT_END) gm_answer_say_facts(&a, s);
    gm_bytes_free(&a.text);
    return code;
}

/* ---- the command ----------------------------------------------------------------------- */

/* Mistakes that no table can see. */
static int check_options(const gm_command *self, const run_opts *o)
{
    const prompt_args *const p = &o->prompt;
    if (p->raw && p->system) return gm_args_refuse(self, "--system is chat and --raw is not");
    if (!p->raw && (p->text.no_bos || p->text.no_special))
        return gm_args_refuse(self, "--no-bos and --no-special go with --raw");
    return gm_end_args_check(self, &o->end);
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const run_opts *const o = opts;
    gm_session s = {0};
    gm_bytes text = {0};
    int code = check_options(self, o);
    if (code == GM_EXIT_OK) code = gm_engine_args_check(self, &o->engine);
    if (code == GM_EXIT_OK) code = gm_prompt_read(self, words, &o->model, &text);
    if (code == GM_EXIT_OK && text.len == 0 && !o->prompt.raw)
        code = gm_args_refuse(self, "the prompt is empty");
    if (code == GM_EXIT_OK) code = answer_prompt(&s, o, &text);
    gm_bytes_free(&text);
    gm_session_close(&s);
    return code;
}

const gm_command gm_cmd_run = {
    .name = "run",
    .summary = "answer one prompt",
    .words = "[PROMPT ...]",
    .about =
        "The prompt is the words given, with blanks between them, or else all of standard input; a "
        "-\n"
        "behind the words adds standard input, below an empty line.\n"
        "Standard output has the answer as it is made and always ends with a newline; everything\n"
        "else goes to standard error. Ctrl-C ends the answer.\n"
        "--json prints, at the end, {\"model\":..,\"text\":..,\"tokens\":..,\"prompt_tokens\":..,\n"
        "\"finish_reason\":\"stop\"|\"length\"|\"cancel\",\"seed\":..,\"cached_tokens\":..,\n"
        "\"prefill\":{\"seconds\":..,\"tok_s\":..},\"decode\":{\"seconds\":..,\"tok_s\":..}}.",
    .examples = "gemmule run \"Tell me a story about a fox and a lantern\"\n"
                "gemmule inspect | gemmule run \"What is this?\" - --max-tokens 50\n"
                "echo \"Say hello\" | gemmule run --temp 0 --max-tokens 50 -v\n"
                "gemmule run --raw \"Once upon a time\" --seed 7 --max-tokens 50 --json",
    .groups = groups,
    .opts_size = sizeof(run_opts),
    .run = run,
};
