/* SPDX-License-Identifier: MIT */
/* The options that decide an answer, for every command that gives one: the rows,
 * and the way from them to a request. What was not given stays as the model file
 * has it. */

#include "sampling.h"

#include <sys/random.h>

#include "output.h"

const gm_argrow gm_sampling_rows[] = {
    {.name = "temp",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(gm_sampling_args, temp),
     .real = {0, GM_TEMPERATURE_MAX},
     .help = "temperature; 0 takes the likeliest token\n"
             "(default: the model file's, else 1)"},
    {.name = "top-k",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(gm_sampling_args, top_k),
     .whole = {0, UINT32_MAX},
     .help = "draw from the N likeliest tokens; 0: from all\n"
             "(default: the model file's, else 64)"},
    {.name = "top-p",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(gm_sampling_args, top_p),
     .real = {0, 1},
     .help = "draw from the likeliest that have this share\n"
             "together; 1: off (default: the file's, else 0.95)"},
    {.name = "min-p",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(gm_sampling_args, min_p),
     .real = {0, 1},
     .help = "leave out tokens under this part of the likeliest\n"
             "one's share; 0: off (default: the file's, else 0)"},
    {.name = "repeat-penalty",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(gm_sampling_args, repeat),
     .real = {0.01, 100},
     .help = "divides the logits of tokens that were there;\n"
             "1: off (default: 1)"},
    {.name = "frequency-penalty",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(gm_sampling_args, frequency),
     .real = {-100, 100},
     .help = "taken off a token's logit for each time that the\n"
             "answer has it (default: 0)"},
    {.name = "presence-penalty",
     .value = "X",
     .kind = GM_ARG_REAL,
     .offset = offsetof(gm_sampling_args, presence),
     .real = {-100, 100},
     .help = "taken off once if the answer has it (default: 0)"},
    {.name = "logit-bias",
     .value = "ID=X",
     .kind = GM_ARG_BIASES,
     .offset = offsetof(gm_sampling_args, bias),
     .real = {-1000, 1000},
     .help = "add X to the logit of token ID; up to 1024 of them"},
    {.name = "seed",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(gm_sampling_args, seed),
     .whole = {0, INT64_MAX},
     .help = "the same seed gives the same answer\n"
             "(default: random; -v and --json show it)"},
    {0},
};

const gm_argrow gm_end_rows[] = {
    {.name = "max-tokens",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(gm_end_args, max_tokens),
     .whole = {1, UINT32_MAX},
     .help = "end after N tokens (default: when the model ends\n"
             "or the context is full)"},
    {.name = "stop",
     .value = "TEXT",
     .kind = GM_ARG_TEXTS,
     .offset = offsetof(gm_end_args, stop),
     .help = "end before this text; may be repeated"},
    {0},
};

int gm_end_args_check(const gm_command *cmd, const gm_end_args *args)
{
    for (size_t i = 0; i < args->stop.n; i++) {
        if (((const char **)args->stop.at)[i][0] == '\0')
            return gm_args_refuse(cmd, "--stop is empty, expected a text");
    }
    return GM_EXIT_OK;
}

static void set_real(float *to, const gm_argnum *num)
{
    if (num->given) *to = (float)num->real;
}

void gm_sampling_args_apply(const gm_sampling_args *args, gm_sampling *s)
{
    set_real(&s->temperature, &args->temp);
    set_real(&s->top_p, &args->top_p);
    set_real(&s->min_p, &args->min_p);
    set_real(&s->repeat_penalty, &args->repeat);
    set_real(&s->frequency_penalty, &args->frequency);
    set_real(&s->presence_penalty, &args->presence);
    if (args->top_k.given) s->top_k = (uint32_t)args->top_k.whole;
    s->bias = args->bias.at;
    s->n_bias = (uint32_t)args->bias.n;
}

void gm_end_args_apply(const gm_end_args *args, gm_request_opts *request)
{
    request->max_tokens = (uint32_t)args->max_tokens.whole;
    request->stop = args->stop.at;
    request->n_stop = (uint32_t)args->stop.n;
}

/* A seed of nobody's choice has 32 bits: short enough to be typed again. */
int gm_sampling_args_seed(const gm_sampling_args *args, uint64_t *seed)
{
    uint32_t random = 0;
    *seed = args->seed.whole;
    if (args->seed.given) return GM_EXIT_OK;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return gm_say_failed("the system has no random number; --seed gives one");
    *seed = random;
    return GM_EXIT_OK;
}
