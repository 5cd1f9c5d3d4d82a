/* SPDX-License-Identifier: MIT */
/* A line for each thing that a model computes, as soon as its ways were tried: the usual one's time,
 * the best one's, and which it is. -v has a line for every way. */

#include <inttypes.h>
#include <string.h>

#include "bar.h"
#include "commands.h"
#include "output.h"
#include "session.h"

typedef struct how_args {
    const char *device;
    gm_argnum ways, seconds;
    bool show, reset;
} how_args;

typedef struct tune_opts {
    gm_model_args model;
    how_args how;
    gm_general_args general;
} tune_opts;

static const gm_argrow how_rows[] = {
    {.name = "device",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(how_args, device),
     .help = "which GPU: a number, or a part of its name, as\n"
             "gemmule devices has them (default: the best)"},
    {.name = "ways",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(how_args, ways),
     .whole = {1, 64},
     .help = "try at most so many for each product, the usual one\n"
             "first, and what was found before (default: all)"},
    {.name = "seconds",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(how_args, seconds),
     .whole = {1, 86400},
     .help = "begin no other size of step after that time (default:\n"
             "try them all)"},
    {.name = "show",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(how_args, show),
     .help = "print what was found before, for any model, and try\n"
             "nothing: lines that --tune FILE of other commands\n"
             "reads"},
    {.name = "reset",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(how_args, reset),
     .help = "forget what was found before, and try nothing"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(tune_opts, model)},
    {"What is tried", how_rows, offsetof(tune_opts, how)},
    {"Output", gm_general_rows, offsetof(tune_opts, general)},
    {0},
};

typedef struct tune {
    const tune_opts *opts;
    gm_session session;
    gm_bar bar;
    json_t *rows; /* with --json */
    bool headed, interrupted;
    uint32_t n_forgotten;
} tune;

/* Lines and the bar share a terminal: it goes while one is printed. */
static void bar_away(tune *t)
{
    t->interrupted = gm_bar_end(&t->bar) || t->interrupted;
}

static void bar_back(tune *t)
{
    gm_out_flush();
    gm_bar_begin(&t->bar, "trying kernels");
}

static void print_row(tune *t, const gm_tune_row *row)
{
    const gm_tune_try *const usual = &row->tries[0], *const best = &row->tries[row->chosen];
    bar_away(t);
    if (!t->headed)
        gm_out_printf("%-40s %5s %9s %9s  %s\n", "product", "ways", "usual us", "best us",
                      "chosen");
    t->headed = true;
    gm_out_printf("%-40s %5" PRIu32 " %9.1f %9.1f  %s\n", row->what, row->n_tries, usual->us,
                  best->us, row->chosen ? best->kernel : "the usual one");
    for (uint32_t i = 0; i < row->n_tries && t->opts->general.verbose; i++)
        gm_out_printf("%-40s %5s %9s %9.1f  %s\n", "", "", "", row->tries[i].us,
                      row->tries[i].kernel);
    bar_back(t);
}

/* As a file has it that --tune reads, with tabs. */
static void print_kept(tune *t, const gm_tune_row *row)
{
    const gm_tune_try *const usual = &row->tries[0], *const kept = &row->tries[row->n_tries - 1];
    if (!t->headed) gm_out_printf("# product\tkernel\tus\tusual us\n");
    t->headed = true;
    gm_out_printf("%s\t%s\t%.3f\t%.3f\n", row->what, kept->kernel, kept->us, usual->us);
}

static json_t *row_json(const gm_tune_row *row)
{
    json_t *const tries = gm_need(json_array());
    for (uint32_t i = 0; i < row->n_tries; i++)
        gm_outjson_append(tries, json_pack("{s:s, s:o}", "kernel", row->tries[i].kernel, "us",
                                           gm_outjson_real(row->tries[i].us)));
    return json_pack("{s:s, s:I, s:o}", "product", row->what, "chosen", (json_int_t)row->chosen,
                     "tries", tries);
}

static int tell_row(void *ctx, const gm_tune_row *row)
{
    tune *const t = ctx;
    if (t->rows)
        gm_outjson_append(t->rows, row_json(row));
    else if (t->opts->how.show)
        print_kept(t, row);
    else
        print_row(t, row);
    return t->interrupted;
}

static int end(tune *t, const gm_tune_result *r)
{
    const how_args *const how = &t->opts->how;
    const char *const device = r->device[0] ? r->device : "this processor";
    bar_away(t);
    if (t->rows)
        gm_out_json(json_pack("{s:o, s:I, s:I, s:O}", "device",
                              gm_outjson_text(device, strlen(device)), "n", (json_int_t)r->n,
                              "n_changed", (json_int_t)r->n_changed, "products", t->rows));
    else if (how->reset && !t->n_forgotten)
        gm_out_printf("nothing was kept about %s\n", device);
    else if (how->reset)
        gm_out_printf("what was found about %s is forgotten\n", device);
    else if (how->show && !r->n)
        gm_out_printf("# nothing is kept about %s: gemmule tune finds it\n", device);
    else
        gm_out_printf("%s%" PRIu32 " of %" PRIu32 " products are faster than usual on %s\n",
                      how->show ? "# " : "", r->n_changed, r->n, device);
    return GM_EXIT_OK;
}

/* The table is there also where its answers could not be kept. */
static int end_badly(tune *t, const gm_tune_result *r, const char *why)
{
    bar_away(t);
    if (t->interrupted) return GM_EXIT_INTERRUPTED;
    if (r->n) end(t, r);
    return gm_say_failed("%s", why);
}

/* What there is to forget is counted before. */
static gm_status tune_run(tune *t, gm_tune_opts *o, gm_tune_result *result, gm_err *err)
{
    if (t->opts->how.reset) {
        const gm_status status = gm_tune_run(NULL, o, result, err);
        if (status != GM_OK) return status;
        t->n_forgotten = result->n;
        o->forget = 1;
    }
    o->row = tell_row;
    return gm_tune_run(t->session.model, o, result, err);
}

static int tune_model(tune *t)
{
    const how_args *const how = &t->opts->how;
    const gm_engine_args engine = {.device = how->device};
    gm_tune_result result = {.size = sizeof result};
    gm_tune_opts o = gm_tune_opts_default();
    gm_err err = {0};
    const bool tries = !how->show && !how->reset;
    if (tries) {
        const int code = gm_session_open(&t->session, &t->opts->model);
        if (code != GM_EXIT_OK) return code;
    }
    o.engine = gm_engine_args_opts(&engine, &t->opts->general);
    o.engine.progress = gm_bar_tell;
    o.engine.trying = gm_bar_tell_tries;
    o.engine.checking = gm_bar_tell_checks;
    o.engine.progress_ctx = &t->bar;
    o.max_ways = (uint32_t)how->ways.whole;
    o.seconds = (uint32_t)how->seconds.whole;
    o.row_ctx = t;
    gm_bar_begin(&t->bar, "loading");
    if (tune_run(t, &o, &result, &err) != GM_OK) return end_badly(t, &result, err.msg);
    if (tries && !o.engine.device_dir)
        return end_badly(t, &result,
                         "nothing was kept: neither XDG_CACHE_HOME nor HOME says where");
    return end(t, &result);
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const tune_opts *const o = opts;
    tune t = {.opts = o, .rows = o->general.json ? gm_need(json_array()) : NULL};
    int code = gm_args_no_words(self, words, "expected options only, and a model behind -m");
    if (code == GM_EXIT_OK && o->how.show && o->how.reset)
        code = gm_args_refuse(self, "--show and --reset are two things, expected one");
    if (code == GM_EXIT_OK && o->how.device && !*o->how.device)
        code = gm_args_refuse(self, "--device is empty, expected a number or a part of a name");
    if (code == GM_EXIT_OK) code = tune_model(&t);
    json_decref(t.rows);
    gm_session_close(&t.session);
    return code;
}

const gm_command gm_cmd_tune = {
    .name = "tune",
    .summary = "find the fastest kernels of a GPU for a model",
    .words = "[-m MODEL]",
    .about =
        "A product of a model's weights can be computed in many ways that give the same bits:\n"
        "other sizes of workgroups, more of them or more work in each, loads further ahead, tiles\n"
        "of matrices. This measures them on the GPU, with the model's own weights and every size\n"
        "of step, and keeps what was fastest for this device, driver and build; run, chat, serve\n"
        "and bench take it from there.\n"
        "\n"
        "The first time that a model is run on a GPU, some of it is done by itself, in a few\n"
        "seconds; --tune off, of those commands, neither tries nor uses anything of it. Ctrl-C\n"
        "ends it, and what sizes of step were done is kept. A product that is \"waiting\" begins\n"
        "before the kernel before it ends: its times are those of a step's first 48 kernels.\n"
        "\n"
        "To decide yourself, write what --show prints to a file, put another kernel of -v's into\n"
        "a line, and give it to them: --tune FILE.",
    .examples = "gemmule tune --ways 2 --seconds 1\n"
                "gemmule tune --show >kernels\n"
                "gemmule tune --reset",
    .groups = groups,
    .opts_size = sizeof(tune_opts),
    .run = run,
};
