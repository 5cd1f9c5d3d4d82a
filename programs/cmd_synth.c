/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <errno.h>
#include <stdio.h>

#include "bar.h"
#include "gemmule_tools.h"
#include "session.h"

typedef struct synth_opts {
    const char *size, *type, *head_type;
    gm_argnum seed;
    bool force, help;
} synth_opts;

static const gm_argrow synth_rows[] = {
    {.name = "size",
     .value = "SIZE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(synth_opts, size),
     .help = "tiny, narrow, 270m, 1b, 4b, 12b or 27b (default: tiny)"},
    {.name = "type",
     .value = "TYPE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(synth_opts, type),
     .help = "type of the layers' matrices: f32, bf16, q8_0, q4_0,\n"
             "q4_k and others (default: q8_0); rows that its blocks do\n"
             "not divide take one that fits (q6_k in 270m: q8_0)"},
    {.name = "head-type",
     .value = "TYPE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(synth_opts, head_type),
     .help = "type of the embedding (default: the same as --type)"},
    {.name = "seed",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(synth_opts, seed),
     .whole = {0, INT64_MAX},
     .help = "other numbers, other weights (default: 0)"},
    {.name = "force",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(synth_opts, force),
     .help = "replace OUT.gguf if it is there"},
    {.letter = 'h',
     .name = "help",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(synth_opts, help),
     .help = "show this"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Options", synth_rows, 0},
    {0},
};

/* ---- the command ----------------------------------------------------------------------- */

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    (void)self;
    const synth_opts *const o = opts;
    gm_bar bar;
    gm_synth_opts synth = gm_synth_opts_default();
    if (o->size) synth.shape = o->size;
    if (o->type) synth.type = o->type;
    synth.head_type = o->head_type;
    synth.seed = o->seed.whole;
    synth.force = o->force;
    synth.progress = gm_bar_tell;
    synth.progress_ctx = &bar;

    gm_err err = {0};
    gm_bar_begin(&bar, "writing");
    const gm_status status = gm_synth_write(words->at[0], &synth, &err);
    const bool interrupted = gm_bar_end(&bar);
    if (status == GM_E_CANCEL && interrupted) {
        gm_say_failed("stopped; nothing was written");
        return GM_EXIT_INTERRUPTED;
    }
    if (status != GM_OK) {
        const bool usage = status == GM_E_ARG;
        gm_say_failed("%s%s", err.msg,
                      usage              ? " (see gemmule synth --help)"
                      : err.os == EEXIST ? " (--force)"
                                         : "");
        return usage ? GM_EXIT_USAGE : GM_EXIT_FAILED;
    }
    char size[16];
    fprintf(stderr, "wrote %s, %s; to see what it says: gemmule run -m %s --max-tokens 50 Hello\n",
            words->at[0], gm_size_text(bar.total, size), words->at[0]);
    return GM_EXIT_OK;
}

const gm_command gm_cmd_synth = {
    .name = "synth",
    .summary = "make a model of random weights, for tests and measurements",
    .words = "OUT.gguf",
    .about =
        "The file is a whole Gemma 3 of the size asked for: right shapes, control tokens and byte\n"
        "pieces, but random weights, so that its words mean nothing. The same options give the\n"
        "same bytes on every machine.",
    .examples = "gemmule synth tiny.gguf\n"
                "gemmule synth speed.gguf --size 270m --type q4_0 --head-type q8_0",
    .groups = groups,
    .opts_size = sizeof(synth_opts),
    .n_words = 1,
    .run = run,
};
