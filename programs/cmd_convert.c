/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

#include "bar.h"
#include "gemmule_tools.h"
#include "session.h"

typedef struct convert_opts {
    const char *type, *head_type, *text;
    gm_argnum threads;
    bool plain, force, help;
} convert_opts;

static const gm_argrow convert_rows[] = {
    {.name = "type",
     .value = "TYPE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(convert_opts, type),
     .help = "a mix: balanced (the default), q4_k_m, q5_k_m; or one\n"
             "type for all matrices: f32 f16 bf16 q8_0 q6_k q5_k q5_1\n"
             "q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs q3_k q2_k"},
    {.name = "head-type",
     .value = "TYPE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(convert_opts, head_type),
     .help = "one type for the head, which mostly is the embedding\n"
             "too (default: the mix's; q6_k where the type is smaller)"},
    {.name = "calibrate",
     .value = "TEXT",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(convert_opts, text),
     .help = "a text file like what the model will be used for: it\n"
             "is read with SOURCE first, and the columns that it\n"
             "makes much use of keep more of their precision"},
    {.name = "plain",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(convert_opts, plain),
     .help = "round to the nearest instead of searching for the\n"
             "least error: faster, and worse"},
    {.name = "threads",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(convert_opts, threads),
     .whole = {1, 1024},
     .help = "number of threads (default: one for each physical core)"},
    {.name = "force",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(convert_opts, force),
     .help = "replace OUT.gguf if it is there"},
    {.letter = 'h',
     .name = "help",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(convert_opts, help),
     .help = "show this"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Options", convert_rows, 0},
    {0},
};

static int fail(gm_status status, const gm_err *err)
{
    const bool usage = status == GM_E_ARG;
    gm_say_failed("%s%s", err->msg,
                  usage               ? " (see gemmule convert --help)"
                  : err->os == EEXIST ? " (--force)"
                                      : "");
    return usage ? GM_EXIT_USAGE : GM_EXIT_FAILED;
}

/* What will happen, before it does. */
static void say_plan(const gm_convert_info *info, const char *path)
{
    char size[16], room[16], source[16];
    fprintf(stderr, "%s will have %s, %.2f bits a weight, made from %s; the disk has %s free\n",
            path, gm_size_text(info->result_size, size), info->bits,
            gm_size_text(info->source_size, source), gm_size_text(info->disk_free, room));
    if (info->n_fallback)
        gm_say_note(
            "%u matrices have rows that do not fit the type, and get the next one that does",
            info->n_fallback);
    if (info->n_again)
        gm_say_note("%u matrices are quantised already; from the original they would lose less",
                    info->n_again);
    if (info->n_skipped) gm_say_note("%u tensors for images are left out", info->n_skipped);
}

/* What is to be done, and with what. */
typedef struct job {
    const char *source, *path;
    gm_convert_opts opts;
    const gm_bytes *text; /* NULL: none to calibrate with */
    gm_importance *importance;
    gm_bar bar;
} job;

static gm_status calibrate(job *j, gm_err *err)
{
    gm_calibrate_opts o = gm_calibrate_opts_default();
    o.text = j->text->len ? j->text->p : "";
    o.len = j->text->len;
    o.progress = gm_bar_tell;
    o.progress_ctx = &j->bar;
    o.engine.n_threads = j->opts.n_threads;
    gm_model *m = NULL;
    gm_status status = gm_model_open(&m, j->source, err);
    if (status == GM_OK) status = gm_calibrate(&j->importance, m, &o, err);
    gm_model_close(m);
    const double seconds = gm_bar_seconds(&j->bar);
    gm_bar_end(&j->bar);
    if (status == GM_OK) fprintf(stderr, "read the text in %.1f s\n", seconds);
    j->opts.importance = j->importance;
    gm_bar_begin(&j->bar, "writing");
    return status;
}

/* A target that cannot be is refused before the text is read, which may take long. */
static gm_status convert(job *j, gm_convert_info *info, gm_err *err)
{
    gm_convert *c = NULL;
    gm_status status = gm_convert_open(&c, j->source, j->path, &j->opts, err);
    if (status == GM_OK) {
        gm_convert_describe(c, info);
        say_plan(info, j->path);
    }
    if (status == GM_OK && j->text) {
        gm_convert_close(c);
        c = NULL;
        status = calibrate(j, err);
        if (status == GM_OK) status = gm_convert_open(&c, j->source, j->path, &j->opts, err);
    }
    if (status == GM_OK) status = gm_convert_run(c, err);
    gm_convert_close(c);
    return status;
}

static int run_job(job *j)
{
    gm_err err = {0};
    gm_convert_info info = {.size = sizeof info};
    gm_bar_begin(&j->bar, j->text ? "reading" : "writing");
    const gm_status status = convert(j, &info, &err);
    gm_importance_free(j->importance);
    const double seconds = gm_bar_seconds(&j->bar);
    gm_bar_end(&j->bar);
    if (status == GM_E_CANCEL) gm_say_failed("stopped; nothing was written");
    if (status == GM_E_CANCEL) return GM_EXIT_INTERRUPTED;
    if (status != GM_OK) return fail(status, &err);
    char speed[16];
    fprintf(stderr,
            "wrote %s in %.1f s, %s of the source a second; to try it: gemmule chat -m %s\n",
            j->path, seconds, gm_size_text((uint64_t)((double)info.source_size / seconds), speed),
            j->path);
    return GM_EXIT_OK;
}

/* Whoever writes only a type behind the source has meant --type. */
static int check_options(const gm_command *self, const convert_opts *o, const char *path)
{
    for (size_t i = 0; gm_convert_type(i, NULL); i++) {
        if (strcasecmp(gm_convert_type(i, NULL), path) == 0)
            return gm_args_refuse(self, "OUT.gguf is %s, which is a type: --type %s", path, path);
    }
    if (o->text && o->plain)
        return gm_args_refuse(self, "--plain looks at no text, expected it or --calibrate");
    return gm_threads_check(self, &o->threads);
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const convert_opts *const o = opts;
    const int mistake = check_options(self, o, words->at[1]);
    if (mistake != GM_EXIT_OK) return mistake;
    job j = {.source = words->at[0], .path = words->at[1], .opts = gm_convert_opts_default()};
    gm_bytes text = {0};
    int code = o->text ? gm_text_read(o->text, &text) : GM_EXIT_OK;
    if (o->text) j.text = &text;
    if (o->type) j.opts.type = o->type;
    j.opts.head_type = o->head_type;
    j.opts.plain = o->plain;
    j.opts.force = o->force;
    j.opts.n_threads = (uint32_t)o->threads.whole;
    j.opts.progress = gm_bar_tell;
    j.opts.progress_ctx = &j.bar;
    if (code == GM_EXIT_OK) code = run_job(&j);
    gm_bytes_free(&text);
    return code;
}

const gm_command gm_cmd_convert = {
    .name = "convert",
    .summary = "make a GGUF file of another type from a checkpoint",
    .words = "SOURCE OUT.gguf",
    .about =
        "SOURCE is a Hugging Face folder or a GGUF file. The result has everything a program "
        "needs\n"
        "to run it: numbers, vocabulary, chat template. Weights are read a little at a time, so "
        "the\n"
        "model may be larger than memory; what is written appears under its name only when it is\n"
        "whole. From a source that is quantised already, q8_0 or more bits is best.",
    .examples = "gemmule convert gemma-3-4b-it gemma-3-4b-it.gguf\n"
                "gemmule convert gemma-3-27b-it small.gguf --type q4_k_m\n"
                "gemmule convert gemma-3-1b-it small.gguf --type q3_k --calibrate letters.txt",
    .groups = groups,
    .opts_size = sizeof(convert_opts),
    .n_words = 2,
    .run = run,
};
