/* SPDX-License-Identifier: MIT */
#include "bar.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "session.h"

typedef struct compare_args {
    const char *text;
} compare_args;

typedef struct compare_opts {
    compare_args text;
    gm_engine_args engine;
    gm_general_args general;
} compare_opts;

/* A perplexity that no text gives which is like what the model has learnt from. */
#define ALARMING 1000

static const gm_argrow compare_rows[] = {
    {.name = "text",
     .value = "FILE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(compare_args, text),
     .help = "what both models read, - for standard input\n"
             "(default: a short story that is built in)"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Text", compare_rows, offsetof(compare_opts, text)},
    {"Engine", gm_engine_rows, offsetof(compare_opts, engine)},
    {"Output", gm_general_rows, offsetof(compare_opts, general)},
    {0},
};

/* Two models, and their names. */
typedef struct pair {
    const char *path[2];
    gm_model *model[2];
} pair;

/* ---- output ---------------------------------------------------------------------------- */

static void print_row(const char *name, const char *a, const char *b)
{
    gm_out_printf("%-14s %16s %16s\n", name, a, b);
}

static void print_sides(const gm_compare_side side[2])
{
    char a[32], b[32], size[16];
    snprintf(a, sizeof a, "%s", gm_size_text(side[0].bytes, size));
    snprintf(b, sizeof b, "%s", gm_size_text(side[1].bytes, size));
    print_row("", "A", "B");
    print_row("weights", a, b);
    snprintf(a, sizeof a, "%.3f", side[0].bits);
    snprintf(b, sizeof b, "%.3f", side[1].bits);
    print_row("bits a weight", a, b);
    snprintf(a, sizeof a, "%.4f", side[0].perplexity);
    snprintf(b, sizeof b, "%.4f", side[1].perplexity);
    print_row("perplexity", a, b);
}

static void print_table(const pair *p, const gm_compare_result *r)
{
    gm_out_printf("A  %s\nB  %s\n\n", p->path[0], p->path[1]);
    print_sides(r->side);
    gm_out_printf("\nB beside A, over %" PRIu32 " tokens\n", r->n_tokens);
    gm_out_printf("%-14s %+.3f%% +- %.3f%%\n", "perplexity", 100 * (r->ppl_ratio - 1),
                  100 * r->ppl_error);
    gm_out_printf("%-14s mean %.6f +- %.6f, 99%% of tokens below %.6f, worst %.6f\n",
                  "KL divergence", r->kl_mean, r->kl_error, r->kl_p99, r->kl_worst);
    gm_out_printf("%-14s %.2f%% of tokens\n", "same top token", 100 * r->same_top);
    gm_out_printf("%-14s mean difference %.6f\n", "logprob", r->logprob_diff);
    gm_out_printf(r->n_worst ? "\nTensors that differ most, by relative RMSE\n"
                             : "\nNo tensor differs.\n");
    for (uint32_t i = 0; i < r->n_worst; i++) {
        const gm_compare_tensor *const t = &r->worst[i];
        gm_out_printf("%.6f  %-6s %-6s  %s\n", t->error, t->type[0], t->type[1], t->name);
    }
}

static json_t *side_json(const char *path, const gm_compare_side *s)
{
    return gm_need(json_pack("{s:o, s:I, s:o, s:o}", "model", gm_outjson_text(path, strlen(path)),
                             "bytes", (json_int_t)s->bytes, "bits", gm_outjson_real(s->bits),
                             "perplexity", gm_outjson_real(s->perplexity)));
}

static void print_json(const pair *p, const gm_compare_result *r)
{
    json_t *const worst = gm_need(json_array());
    for (uint32_t i = 0; i < r->n_worst; i++) {
        const gm_compare_tensor *const t = &r->worst[i];
        gm_outjson_append(
            worst, gm_need(json_pack("{s:o, s:[s, s], s:o}", "tensor",
                                     gm_outjson_text(t->name, strlen(t->name)), "types", t->type[0],
                                     t->type[1], "rmse", gm_outjson_real(t->error))));
    }
    gm_out_json(
        json_pack("{s:o, s:o, s:I, s:{s:o, s:o}, s:{s:o, s:o, s:o, s:o}, s:o, s:o, s:o}", "a",
                  side_json(p->path[0], &r->side[0]), "b", side_json(p->path[1], &r->side[1]),
                  "tokens", (json_int_t)r->n_tokens, "ppl", "ratio", gm_outjson_real(r->ppl_ratio),
                  "error", gm_outjson_real(r->ppl_error), "kl", "mean", gm_outjson_real(r->kl_mean),
                  "error", gm_outjson_real(r->kl_error), "p99", gm_outjson_real(r->kl_p99), "worst",
                  gm_outjson_real(r->kl_worst), "same_top", gm_outjson_real(r->same_top),
                  "logprob_diff", gm_outjson_real(r->logprob_diff), "tensors", worst));
}

/* ---- comparing ------------------------------------------------------------------------- */

static int compare(const pair *p, const compare_opts *o, const gm_bytes *text)
{
    gm_bar bar;
    gm_compare_opts c = gm_compare_opts_default();
    c.engine = gm_engine_args_opts(&o->engine, &o->general);
    if (o->text.text) {
        c.text = text->len ? text->p : "";
        c.len = text->len;
    }
    c.progress = gm_bar_tell;
    c.progress_ctx = &bar;
    gm_compare_result r = {.size = sizeof r};
    gm_err err = {0};
    gm_bar_begin(&bar, "comparing");
    const gm_status status = gm_compare_run(p->model[0], p->model[1], &c, &r, &err);
    gm_bar_end(&bar);
    if (status == GM_E_CANCEL) return GM_EXIT_INTERRUPTED;
    if (status != GM_OK) return gm_say_failed("%s", err.msg);
    if (o->general.json)
        print_json(p, &r);
    else
        print_table(p, &r);
    gm_out_flush();
    if (!o->text.text && r.side[0].perplexity > ALARMING) {
        gm_say_note(
            "A expects little of the text that is built in; with --text FILE both read what "
            "they are for");
    }
    if (o->general.verbose) gm_say_fact("seconds", "%.1f", gm_bar_seconds(&bar));
    return GM_EXIT_OK;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const compare_opts *const o = opts;
    pair p = {0};
    gm_bytes text = {0};
    gm_err err = {0};
    int code = gm_engine_args_check(self, &o->engine);
    if (code == GM_EXIT_OK && o->text.text) code = gm_text_read(o->text.text, &text);
    for (int i = 0; i < 2 && code == GM_EXIT_OK; i++) {
        p.path[i] = words->at[i];
        if (gm_model_open(&p.model[i], p.path[i], &err) != GM_OK)
            code = gm_say_failed("%s", err.msg);
    }
    if (code == GM_EXIT_OK) code = compare(&p, o, &text);
    gm_model_close(p.model[0]);
    gm_model_close(p.model[1]);
    gm_bytes_free(&text);
    return code;
}

const gm_command gm_cmd_compare = {
    .name = "compare",
    .summary = "say how far a model is from another of the same shape",
    .words = "A B",
    .about =
        "A is the original, B what was made of it: GGUF files or Hugging Face folders of any "
        "type.\n"
        "Both read a text. Perplexity is how many tokens each hesitates between, on average; the\n"
        "KL divergence says how much B's probabilities differ from A's, whatever the text, and is\n"
        "the number to choose a type by. What follows +- is the standard error: a difference\n"
        "smaller than two of them is chance, and a longer text tells more. Tensors are compared\n"
        "value by value. The text is read in windows of --ctx tokens.\n"
        "--json prints {\"a\":{\"perplexity\":..,..},\"b\":{..},\"kl\":{\"mean\":..,..},..}.",
    .examples = "gemmule synth big.gguf --type bf16\n"
                "gemmule convert big.gguf small.gguf --type q4_0\n"
                "gemmule compare big.gguf small.gguf\n"
                "gemmule inspect big.gguf | gemmule compare big.gguf small.gguf --text - --json",
    .groups = groups,
    .opts_size = sizeof(compare_opts),
    .n_words = 2,
    .run = run,
};
