/* SPDX-License-Identifier: MIT */
/* One answer. Text is written as soon as it is there; --json keeps it until the
 * end. What -v says comes after the answer, so that it never mixes with it. */

#include "commands.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "session.h"

typedef struct prompt_args {
    bool raw;
    const char *system;
    gm_text_args text;
} prompt_args;

typedef struct sampling_args {
    gm_argnum temp, top_k, top_p, min_p, repeat, frequency, presence, seed;
    gm_arglist bias;
} sampling_args;

typedef struct end_args {
    gm_argnum max_tokens;
    gm_arglist stop;
} end_args;

typedef struct run_opts {
    gm_model_args model;
    gm_engine_args engine;
    prompt_args prompt;
    sampling_args sampling;
    end_args end;
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

static const gm_argrow sampling_rows[] = {
    {.name = "temp",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(sampling_args, temp),
     .real = {0, 100},
     .help = "temperature; 0 takes the likeliest token\n"
             "(default: the model file's, else 1)"},
    {.name = "top-k",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(sampling_args, top_k),
     .whole = {0, UINT32_MAX},
     .help = "draw from the N likeliest tokens; 0: from all\n"
             "(default: the model file's, else 64)"},
    {.name = "top-p",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(sampling_args, top_p),
     .real = {0, 1},
     .help = "draw from the likeliest that have this share\n"
             "together; 1: off (default: the file's, else 0.95)"},
    {.name = "min-p",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(sampling_args, min_p),
     .real = {0, 1},
     .help = "leave out tokens under this part of the likeliest\n"
             "one's share; 0: off (default: the file's, else 0)"},
    {.name = "repeat-penalty",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(sampling_args, repeat),
     .real = {0.01, 100},
     .help = "divides the logits of tokens that were there;\n"
             "1: off (default: 1)"},
    {.name = "frequency-penalty",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(sampling_args, frequency),
     .real = {-100, 100},
     .help = "taken off a token's logit for each time that the\n"
             "answer has it (default: 0)"},
    {.name = "presence-penalty",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(sampling_args, presence),
     .real = {-100, 100},
     .help = "taken off once if the answer has it (default: 0)"},
    {.name = "logit-bias",
     .value = "ID=X",
     .kind = GM_ARG_BIASES,
     .offset = offsetof(sampling_args, bias),
     .real = {-1000, 1000},
     .help = "add X to the logit of token ID; may be repeated"},
    {.name = "seed",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(sampling_args, seed),
     .whole = {0, INT64_MAX},
     .help = "the same seed gives the same answer\n"
             "(default: random; -v and --json show it)"},
    {0},
};

static const gm_argrow end_rows[] = {
    {.name = "max-tokens",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(end_args, max_tokens),
     .whole = {1, UINT32_MAX},
     .help = "end after N tokens (default: when the model ends\n"
             "or the context is full)"},
    {.name = "stop",
     .value = "TEXT",
     .kind = GM_ARG_TEXTS,
     .offset = offsetof(end_args, stop),
     .help = "end before this text; may be repeated"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(run_opts, model)},
    {"Engine", gm_engine_rows, offsetof(run_opts, engine)},
    {"Prompt", prompt_rows, offsetof(run_opts, prompt)},
    {"Prompt with --raw", gm_text_rows, offsetof(run_opts, prompt) + offsetof(prompt_args, text)},
    {"How tokens are drawn", sampling_rows, offsetof(run_opts, sampling)},
    {"Where the answer ends", end_rows, offsetof(run_opts, end)},
    {"Output", gm_general_rows, offsetof(run_opts, general)},
    {0},
};

/* ---- the request ----------------------------------------------------------------------- */

static void set_real(float *to, const gm_argnum *num)
{
    if (num->given) *to = (float)num->real;
}

static void apply_options(const run_opts *o, gm_request_opts *request)
{
    const sampling_args *const a = &o->sampling;
    gm_sampling *const s = &request->sampling;
    set_real(&s->temperature, &a->temp);
    set_real(&s->top_p, &a->top_p);
    set_real(&s->min_p, &a->min_p);
    set_real(&s->repeat_penalty, &a->repeat);
    set_real(&s->frequency_penalty, &a->frequency);
    set_real(&s->presence_penalty, &a->presence);
    if (a->top_k.given) s->top_k = (uint32_t)a->top_k.whole;
    s->bias = a->bias.at;
    s->n_bias = (uint32_t)a->bias.n;
    request->max_tokens = (uint32_t)o->end.max_tokens.whole;
    request->stop = o->end.stop.at;
    request->n_stop = (uint32_t)o->end.stop.n;
    request->flags = o->general.verbose ? GM_REQUEST_HASH : 0;
}

/* A seed of nobody's choice has 32 bits: short enough to be typed again. */
static int choose_seed(const gm_argnum *given, uint64_t *seed)
{
    uint32_t random = 0;
    *seed = given->whole;
    if (given->given) return GM_EXIT_OK;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return gm_say_failed("the system has no random number; --seed gives one");
    *seed = random;
    return GM_EXIT_OK;
}

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

/* ---- the answer ------------------------------------------------------------------------ */

typedef struct answer {
    bool keep;     /* for --json */
    gm_bytes text; /* where kept */
    char last;     /* byte of the text */
} answer;

static void answer_put(answer *a, const gm_event *ev)
{
    if (ev->len == 0) return;
    a->last = ev->text[ev->len - 1];
    if (a->keep) {
        gm_bytes_put(&a->text, ev->text, ev->len);
    } else {
        gm_out_bytes(ev->text, ev->len);
        gm_out_flush();
    }
}

static const char *reason_name(int32_t reason)
{
    return reason == GM_END_STOP ? "stop" : reason == GM_END_LENGTH ? "length" : "cancel";
}

static void print_json(const gm_session *s, const answer *a, const gm_event *end, uint64_t seed)
{
    gm_out_json(json_pack("{s:o, s:o, s:I, s:I, s:s, s:I}", "model",
                          gm_outjson_text(s->path, strlen(s->path)), "text",
                          gm_outjson_text(a->text.p, a->text.len), "tokens",
                          (json_int_t)end->n_answer, "prompt_tokens", (json_int_t)end->n_prompt,
                          "finish_reason", reason_name(end->reason), "seed", (json_int_t)seed));
}

/* The first token of an answer comes out of the prompt's last step and is not counted as decode. */
static void say_facts(const gm_session *s, const gm_event *end, uint64_t seed)
{
    const uint32_t n_decoded = end->n_answer ? end->n_answer - 1 : 0;
    gm_say_fact("model", "%s", s->path);
    gm_say_fact("backend", "%s", gm_engine_backend(s->engine));
    gm_say_fact("seed", "%" PRIu64, seed);
    gm_say_fact("prompt tokens", "%" PRIu32, end->n_prompt);
    gm_say_fact("answer tokens", "%" PRIu32 " (%s)", end->n_answer, reason_name(end->reason));
    if (end->prefill_s > 0) gm_say_fact("prefill tok/s", "%.1f", end->n_prompt / end->prefill_s);
    if (end->decode_s > 0) gm_say_fact("decode tok/s", "%.1f", n_decoded / end->decode_s);
    gm_say_fact("logits hash", "%016" PRIx64, s->hash);
}

static int stream(gm_session *s, const run_opts *o, uint64_t seed, answer *a)
{
    gm_event ev = {0};
    int code = GM_EXIT_OK;
    while (code == GM_EXIT_OK && ev.kind != GM_EVENT_END) {
        code = gm_session_next(s, &ev);
        if (code == GM_EXIT_OK) answer_put(a, &ev);
    }
    if (!a->keep && a->last != '\n') gm_out_bytes("\n", 1);
    if (a->keep && code == GM_EXIT_OK) print_json(s, a, &ev, seed);
    gm_out_flush();
    if (code != GM_EXIT_OK) return code;
    if (o->general.verbose) say_facts(s, &ev, seed);
    return gm_session_end(s);
}

static int answer_prompt(gm_session *s, const run_opts *o, const gm_bytes *text)
{
    uint64_t seed = 0;
    int code = gm_session_open(s, &o->model);
    if (code == GM_EXIT_OK) code = make_prompt(s, &o->prompt, text);
    if (code == GM_EXIT_OK) code = choose_seed(&o->sampling.seed, &seed);
    if (code == GM_EXIT_OK) code = gm_session_start(s, &o->engine);
    if (code != GM_EXIT_OK) return code;

    gm_request_opts request = gm_request_opts_default(s->model);
    apply_options(o, &request);
    request.sampling.seed = seed;
    request.ids = s->ids.at;
    request.n_ids = s->ids.n;
    answer a = {.keep = o->general.json};
    code = gm_session_ask(s, &request);
    if (code == GM_EXIT_OK) code = stream(s, o, seed, &a);
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
    for (size_t i = 0; i < o->end.stop.n; i++) {
        if (((const char **)o->end.stop.at)[i][0] == '\0')
            return gm_args_refuse(self, "--stop is empty, expected a text");
    }
    return GM_EXIT_OK;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const run_opts *const o = opts;
    gm_session s = {0};
    gm_bytes text = {0};
    int code = check_options(self, o);
    if (code == GM_EXIT_OK) code = gm_engine_args_check(self, &o->engine);
    if (code == GM_EXIT_OK) code = gm_prompt_read(self, words, &text);
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
        "The prompt is the words given, with blanks between them, or else all of standard input.\n"
        "Standard output has the answer as it is made and always ends with a newline; everything\n"
        "else goes to standard error. Ctrl-C ends the answer.\n"
        "--json prints, at the end, {\"model\":..,\"text\":..,\"tokens\":..,\"prompt_tokens\":..,\n"
        "\"finish_reason\":\"stop\"|\"length\"|\"cancel\",\"seed\":..}.",
    .examples =
        "gemmule run -m tiny.gguf \"Tell me a story\" --max-tokens 50\n"
        "echo \"Say hello\" | gemmule run -m tiny.gguf --temp 0 --max-tokens 50 -v\n"
        "gemmule run -m tiny.gguf --raw \"Once upon a time\" --seed 7 --max-tokens 50 --json",
    .groups = groups,
    .opts_size = sizeof(run_opts),
    .run = run,
};
