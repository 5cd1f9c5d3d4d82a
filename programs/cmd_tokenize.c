/* SPDX-License-Identifier: MIT */
#include "commands.h"
#include "session.h"

typedef struct tokenize_opts {
    gm_model_args model;
    gm_text_args text;
    gm_general_args general;
} tokenize_opts;

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(tokenize_opts, model)},
    {"Text", gm_text_rows, offsetof(tokenize_opts, text)},
    {"Output", gm_general_rows, offsetof(tokenize_opts, general)},
    {0},
};

static void print_table(const gm_session *s)
{
    gm_out_printf("%7s  %s\n", "id", "piece");
    for (size_t i = 0; i < s->ids.n; i++) {
        gm_out_printf("%7d  ", (int)s->ids.at[i]);
        gm_session_out_piece(s, s->ids.at[i]);
    }
}

/* Token by token: as one value of jansson's they would take 500 bytes each. */
static void print_json(const gm_session *s)
{
    gm_out_printf("{\"tokens\":[");
    for (size_t i = 0; i < s->ids.n; i++) {
        if (i) gm_out_printf(",");
        gm_out_json_part(gm_session_json_token(s, s->ids.at[i]));
    }
    gm_out_printf("]}\n");
}

static int tokenize(gm_session *s, const tokenize_opts *o, const gm_bytes *text)
{
    int code = gm_session_open(s, &o->model);
    if (code == GM_EXIT_OK) code = gm_session_tokenize(s, text, gm_text_flags(&o->text));
    if (code != GM_EXIT_OK) return code;
    if (o->general.json)
        print_json(s);
    else
        print_table(s);
    if (o->general.verbose) gm_say_fact("tokens", "%zu", s->ids.n);
    return GM_EXIT_OK;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const tokenize_opts *const o = opts;
    gm_session s = {0};
    gm_bytes text = {0};
    int code = gm_prompt_read(self, words, &o->model, &text);
    if (code == GM_EXIT_OK) code = tokenize(&s, o, &text);
    gm_bytes_free(&text);
    gm_session_close(&s);
    return code;
}

const gm_command gm_cmd_tokenize = {
    .name = "tokenize",
    .summary = "show the tokens of a text",
    .words = "[TEXT ...]",
    .about =
        "The text is the words given, with blanks between them, or else all of standard input; a "
        "-\n"
        "behind the words adds standard input, below an empty line,\n"
        "byte for byte. It is taken as it is, without the chat format, and begins with the\n"
        "beginning-of-text token. --json prints {\"tokens\":[{\"id\":2,\"piece\":\"<bos>\"},...]}.",
    .examples = "gemmule tokenize \"Hello, world\"\n"
                "printf 'one\\ntwo\\n' | gemmule tokenize --no-bos --json",
    .groups = groups,
    .opts_size = sizeof(tokenize_opts),
    .run = run,
};
