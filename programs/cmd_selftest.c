/* SPDX-License-Identifier: MIT */
/* A line for each op and type as soon as all its sizes of steps were tried: their worst difference.
 * What is wrong has a line of its own, with the kernels that ran; -v has one for every try. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bar.h"
#include "commands.h"
#include "output.h"
#include "session.h"

typedef struct what_args {
    const char *backend, *device, *type;
} what_args;

typedef struct selftest_opts {
    what_args what;
    gm_general_args general;
} selftest_opts;

static const gm_argrow what_rows[] = {
    {.name = "device",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(what_args, device),
     .help = "which GPU: a number, or a part of its name, as\n"
             "gemmule devices has them (default: the best)"},
    {.name = "backend",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(what_args, backend),
     .help = "another backend than vulkan: cpu tries this\n"
             "processor's kernels"},
    {.name = "type",
     .value = "TYPE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(what_args, type),
     .help = "only weights and KV caches of this number format:\n"
             "q4_0, q4_k, f16 ... (default: all of them)"},
    {0},
};

static const gm_arggroup groups[] = {
    {"What is tried", what_rows, offsetof(selftest_opts, what)},
    {"Output", gm_general_rows, offsetof(selftest_opts, general)},
    {0},
};

/* The tries of one op and type so far. */
typedef struct line {
    char op[32], type[16];
    uint32_t rows_first, rows_last;
    double worst, bound;
    bool ok;
} line;

typedef struct selftest {
    const selftest_opts *opts;
    gm_bar bar;
    line line;
    json_t *tries;
    bool interrupted;
} selftest;

static const char bar_text[] = "trying kernels";

/* Lines and the bar share a terminal: it goes while one is printed. */
static void bar_away(selftest *t)
{
    t->interrupted = gm_bar_end(&t->bar) || t->interrupted;
}

static void bar_back(selftest *t)
{
    gm_out_flush();
    gm_bar_begin(&t->bar, bar_text);
}

static void print_head(selftest *t)
{
    if (t->tries) return;
    bar_away(t);
    gm_out_printf("%-14s %-7s %-10s %9s %9s\n", "op", "type", "rows", "worst", "bound");
    bar_back(t);
}

static void print_line(selftest *t)
{
    const line *const l = &t->line;
    char rows[32];
    if (t->tries) return;
    snprintf(rows, sizeof rows, "%" PRIu32 " to %" PRIu32, l->rows_first, l->rows_last);
    bar_away(t);
    gm_out_printf("%-14s %-7s %-10s %9.2g %9.2g  %s\n", l->op, l->type, rows, l->worst, l->bound,
                  l->ok ? "ok" : "WRONG");
    bar_back(t);
}

static void print_try(selftest *t, const gm_selftest_row *row)
{
    bar_away(t);
    gm_out_printf("  %s of %s, %" PRIu32 " rows a step: ", row->op, row->type, row->rows);
    if (row->why[0])
        gm_out_printf("%s\n", row->why);
    else
        gm_out_printf("%.2g%s; %s\n", row->worst, row->ok ? "" : ", WRONG",
                      row->kernels[0] ? row->kernels : "its kernels have no names");
    bar_back(t);
}

static json_t *kernels_json(const char *words)
{
    json_t *const all = gm_need(json_array());
    while (*words) {
        const size_t n = strcspn(words, " ");
        gm_outjson_append(all, gm_outjson_text(words, n));
        words += n + (words[n] == ' ');
    }
    return all;
}

static json_t *try_json(const gm_selftest_row *row)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:b, s:s}", "op", row->op, "type", row->type,
                     "rows", (json_int_t)row->rows, "kernels", kernels_json(row->kernels), "worst",
                     gm_outjson_real(row->worst), "bound", gm_outjson_real(row->bound), "ok",
                     (int)row->ok, "why", row->why);
}

static int tell_row(void *ctx, const gm_selftest_row *row)
{
    selftest *const t = ctx;
    line *const l = &t->line;
    if (t->tries) gm_outjson_append(t->tries, try_json(row));
    if (strcmp(l->op, row->op) != 0 || strcmp(l->type, row->type) != 0) {
        if (l->op[0])
            print_line(t);
        else
            print_head(t);
        *l = (line){.rows_first = row->rows, .bound = row->bound, .ok = true};
        snprintf(l->op, sizeof l->op, "%s", row->op);
        snprintf(l->type, sizeof l->type, "%s", row->type);
    }
    l->rows_last = row->rows;
    if (row->worst > l->worst) {
        l->worst = row->worst;
        l->bound = row->bound;
    }
    l->ok = l->ok && row->ok;
    if (!t->tries && (!row->ok || t->opts->general.verbose)) print_try(t, row);
    return t->interrupted;
}

static int end(selftest *t, const gm_selftest_result *r)
{
    print_line(t);
    bar_away(t);
    if (t->tries)
        gm_out_json(json_pack("{s:o, s:b, s:I, s:I, s:O}", "device",
                              gm_outjson_text(r->device, strlen(r->device)), "ok", r->n_failed == 0,
                              "n", (json_int_t)r->n, "n_failed", (json_int_t)r->n_failed, "tries",
                              t->tries));
    else
        gm_out_printf("%" PRIu32 " of %" PRIu32 " tries were right on %s\n", r->n - r->n_failed,
                      r->n, r->device[0] ? r->device : "this processor");
    return r->n_failed ? GM_EXIT_FAILED : GM_EXIT_OK;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const selftest_opts *const o = opts;
    const gm_engine_args engine = {.backend = o->what.backend, .device = o->what.device};
    selftest t = {.opts = o, .tries = o->general.json ? gm_need(json_array()) : NULL};
    gm_selftest_result result = {.size = sizeof result};
    gm_err err = {0};
    int code = gm_args_no_words(self, words, "expected options only");
    if (code == GM_EXIT_OK) code = gm_engine_args_check(self, &engine);
    if (code != GM_EXIT_OK) return code;
    gm_selftest_opts s = gm_selftest_opts_default();
    s.engine = gm_engine_args_opts(&engine, &o->general);
    s.engine.progress = gm_bar_tell_checks;
    s.engine.progress_ctx = &t.bar;
    s.type = o->what.type;
    s.row = tell_row;
    s.row_ctx = &t;
    bar_back(&t);
    const gm_status status = gm_selftest_run(&s, &result, &err);
    if (status == GM_OK) {
        code = end(&t, &result);
    } else {
        bar_away(&t);
        code = t.interrupted ? GM_EXIT_INTERRUPTED : gm_say_failed("%s", err.msg);
    }
    json_decref(t.tries);
    return code;
}

const gm_command gm_cmd_selftest = {
    .name = "selftest",
    .summary = "try every kernel of a GPU beside the exact reference",
    .about =
        "A driver's compiler may be wrong on one machine and right on all others. This runs every\n"
        "op that models are made of on the device, in every number format and size of step, with\n"
        "the driver that is here, and compares the results with those of the ref backends. A line\n"
        "has the worst difference, in parts of a row's largest value, and what is allowed.\n"
        "\n"
        "The first time that a model is run on a device, and after a new driver or build, a small\n"
        "part of this is done by itself: a device that fails it is not used. Exit status: 0 all\n"
        "right, 1 something is wrong.",
    .examples = "gemmule selftest\n"
                "gemmule selftest --device 0 --type q4_0 -v\n"
                "gemmule selftest --backend cpu",
    .groups = groups,
    .opts_size = sizeof(selftest_opts),
    .run = run,
};
