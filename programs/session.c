/* SPDX-License-Identifier: MIT */
/* From -m to events. The order is that of a user's mistakes: the command line is
 * checked first, then the prompt is read, then the model is opened, so that nobody
 * waits for a model to be told of a typing error. */

#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bar.h"
#include "bundled.h"
#include "interrupt.h"
#include "machine.h"
#include "userdir.h"

/* ---- options ------------------------------------------------------------------------- */

const gm_argrow gm_model_rows[] = {
    {.letter = 'm',
     .name = "model",
     .value = "MODEL",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_model_args, path),
     .help = "a GGUF file (the first part of a split one), or a\n"
             "Hugging Face folder (default: the small model that\n"
             "comes with gemmule)"},
    {0},
};

const gm_argrow gm_engine_rows[] = {
    {.name = "ctx",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(gm_engine_args, ctx),
     .whole = {2, UINT32_MAX},
     .help = "size of the context: tokens of prompt and answer\n"
             "together (default: what the model was made for, at\n"
             "most 4096)"},
    {.name = "backend",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, backend),
     .help = "what runs the model: CPU, GPU or an exact reference;\n"
             "gemmule --version lists them (default: auto, the best\n"
             "here; logits: ref)"},
    {.name = "device",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, device),
     .help = "which GPU, of the vulkan backend: a number, or a part\n"
             "of its name (default: the best that is there)"},
    {.name = "threads",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(gm_engine_args, threads),
     .whole = {1, 1024},
     .help = "number of threads that compute (default: one for each\n"
             "physical core)"},
    {.name = "kv-type",
     .value = "TYPE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, kv_type),
     .choices = (const char *const[]){"f32", "f16", "q8_0", NULL},
     .help = "number format of the KV cache: f32, f16 or q8_0\n"
             "(default: f16, and f32 with a ref backend)"},
    {.name = "isa",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, isa),
     .choices = (const char *const[]){"c", "avx2", "avx512", NULL},
     .help = "use vector instructions up to these: c (none), avx2\n"
             "or avx512 (default: all that the CPU has)"},
    {.name = "tune",
     .value = "WHAT",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(gm_engine_args, tune),
     .help = "auto: a model's first run on a GPU tries for a few\n"
             "seconds which kernels are fastest, and keeps it; off:\n"
             "the usual ones; a file: those that it names, in lines\n"
             "of gemmule tune --show, else the usual ones (default:\n"
             "auto)"},
    {.name = "exact",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_engine_args, exact),
     .help = "compute prompts with the bits that one token after\n"
             "the other has, as a CPU always does; slower on GPUs\n"
             "that have float16 matrices"},
    {0},
};

const gm_argrow gm_text_rows[] = {
    {.name = "no-bos",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_text_args, no_bos),
     .help = "do not put the beginning-of-text token first"},
    {.name = "no-special",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_text_args, no_special),
     .help = "take <start_of_turn> and its kind for plain text,\n"
             "not for control tokens"},
    {0},
};

const gm_argrow gm_general_rows[] = {
    {.name = "json",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_general_args, json),
     .help = "print one JSON object on one line"},
    {.letter = 'v',
     .name = "verbose",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_general_args, verbose),
     .help = "say more: what was used, tokens, speed"},
    {.letter = 'h',
     .name = "help",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(gm_general_args, help),
     .help = "show this"},
    {0},
};

int gm_threads_check(const gm_command *cmd, const gm_argnum *threads)
{
    const uint32_t n = gm_machine_processors();
    if (threads->whole <= 4 * (uint64_t)n) return GM_EXIT_OK;
    return gm_args_refuse(cmd,
                          "--threads is %" PRIu64 ", expected at most %" PRIu32
                          ", four for each of the machine's %" PRIu32 " processors",
                          threads->whole, 4 * n, n);
}

/* Other programs' switches have values that would be files here. */
static int check_tune(const gm_command *cmd, const char *tune)
{
    if (!tune || strcmp(tune, "auto") == 0 || strcmp(tune, "off") == 0) return GM_EXIT_OK;
    if (!*tune) return gm_args_refuse(cmd, "--tune is empty, expected auto, off or a file");
    if (access(tune, R_OK) == 0) return GM_EXIT_OK;
    return gm_say_failed("%s: cannot be opened: %s; --tune expects auto, off or a file", tune,
                         strerror(errno));
}

static int check_backend(const gm_command *cmd, const char *name)
{
    bool found = !name || strcmp(name, "auto") == 0;
    gm_bytes known = {0};
    gm_bytes_put(&known, "auto", 4);
    for (size_t i = 0; gm_backend_name(i, NULL); i++) {
        const char *const one = gm_backend_name(i, NULL);
        found = found || strcmp(name, one) == 0;
        gm_bytes_put(&known, ", ", 2);
        gm_bytes_put(&known, one, strlen(one));
    }
    const int code = found ? GM_EXIT_OK
                           : gm_args_refuse(cmd, "--backend is %.80s, expected one of %.*s", name,
                                            (int)known.len, known.p);
    gm_bytes_free(&known);
    return code;
}

int gm_engine_args_check(const gm_command *cmd, const gm_engine_args *args)
{
    int code = gm_threads_check(cmd, &args->threads);
    if (code == GM_EXIT_OK) code = check_backend(cmd, args->backend);
    if (code == GM_EXIT_OK && args->device && !*args->device)
        code = gm_args_refuse(cmd, "--device is empty, expected a number or a part of a name");
    return code == GM_EXIT_OK ? check_tune(cmd, args->tune) : code;
}

void gm_session_note(void *ctx, const char *text)
{
    (void)ctx;
    gm_bar_clear();
    gm_say_note("%s", text);
}

gm_engine_opts gm_engine_args_opts(const gm_engine_args *args, const gm_general_args *general)
{
    gm_engine_opts opts = gm_engine_opts_default();
    opts.n_ctx = (uint32_t)args->ctx.whole;
    opts.n_threads = (uint32_t)args->threads.whole;
    opts.backend = args->backend;
    opts.device = args->device;
    opts.kv_type = args->kv_type;
    opts.isa = args->isa;
    opts.exact = args->exact;
    opts.untuned = args->tune && strcmp(args->tune, "off") == 0;
    if (args->tune && !opts.untuned && strcmp(args->tune, "auto") != 0) opts.choices = args->tune;
    opts.device_dir = gm_userdir_cache();
    opts.note = gm_session_note;
    opts.verbose = general->verbose;
    return opts;
}

uint32_t gm_text_flags(const gm_text_args *args)
{
    return (args->no_bos ? 0 : GM_TOKENIZE_BOS) | (args->no_special ? 0 : GM_TOKENIZE_SPECIAL);
}

/* ---- the prompt ---------------------------------------------------------------------- */

/* More than any context has room for; stops the endless files of /dev. */
#define TEXT_MAX (1u << 30)

static int read_all(int fd, const char *name, gm_bytes *out)
{
    char chunk[65536];
    for (;;) {
        const ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0) return GM_EXIT_OK;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gm_say_failed("%s: %s", name, strerror(errno));
        gm_bytes_put(out, chunk, (size_t)n);
        if (out->len > TEXT_MAX)
            return gm_say_failed("%s: has more than %u bytes, expected a text", name, TEXT_MAX);
    }
}

int gm_text_read(const char *path, gm_bytes *out)
{
    const bool dash = strcmp(path, "-") == 0;
    const int fd = dash ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return gm_say_failed("%s: %s", path, strerror(errno));
    const int code = read_all(fd, dash ? "standard input" : path, out);
    if (!dash) close(fd);
    return code;
}

/* Whether there is text that nobody will read: in a file from its beginning on, or already in a
 * pipe. One that stays silent is not waited for. */
static bool stdin_has_text(void)
{
    struct stat st;
    int n = 0;
    if (fstat(STDIN_FILENO, &st) != 0) return false;
    if (S_ISREG(st.st_mode)) return st.st_size > 0 && lseek(STDIN_FILENO, 0, SEEK_CUR) == 0;
    return S_ISFIFO(st.st_mode) && ioctl(STDIN_FILENO, FIONREAD, &n) == 0 && n > 0;
}

/* A file's name, or that of a Hugging Face folder; a sentence may end in .gguf too. */
static bool names_model(const char *word)
{
    const size_t len = strlen(word);
    char *config = NULL;
    if (len > 5 && strcasecmp(word + len - 5, ".gguf") == 0)
        return !strchr(word, ' ') || access(word, F_OK) == 0;
    if (asprintf(&config, "%s/config.json", word) < 0) gm_need(NULL);
    const bool folder = access(config, F_OK) == 0;
    free(config);
    return folder;
}

/* Other programs take the model as their first word. */
static int check_first(const gm_command *cmd, const gm_words *words, const gm_model_args *model)
{
    if (model->path || words->n == 0) return GM_EXIT_OK;
    const char *const word = words->at[0];
    if (names_model(word))
        return gm_args_refuse(cmd, "%.200s: is this the model? It goes behind -m", word);
    if (strncmp(word, "gemma", 5) == 0 && strchr(word, ':') && !strpbrk(word, " \n"))
        gm_say_note("%.80s is read as part of the prompt; a model is a file, behind -m", word);
    return GM_EXIT_OK;
}

int gm_prompt_read(const gm_command *cmd, const gm_words *words, const gm_model_args *model,
                   gm_bytes *out)
{
    const bool dash = words->n && strcmp(words->at[words->n - 1], "-") == 0;
    const size_t n = words->n - dash;
    const int code = check_first(cmd, words, model);
    if (code != GM_EXIT_OK) return code;
    if (words->n == 0 && isatty(STDIN_FILENO)) {
        return gm_args_refuse(cmd, "there is no prompt: write it behind the options or pipe it "
                                   "to standard input");
    }
    for (size_t i = 0; i < n; i++) {
        if (i) gm_bytes_put(out, " ", 1);
        gm_bytes_put(out, words->at[i], strlen(words->at[i]));
    }
    if (n && dash) gm_bytes_put(out, "\n\n", 2);
    if (n == 0 || dash) return gm_text_read("-", out);
    if (stdin_has_text())
        gm_say_note("standard input is not read, since there are words; a - behind them adds it");
    return GM_EXIT_OK;
}

/* ---- a model at work ----------------------------------------------------------------- */

int gm_session_open(gm_session *s, const gm_model_args *args)
{
    if (!args->path) s->bundled = gm_bundled_find();
    s->path = args->path ? args->path : s->bundled;
    if (!s->path) return GM_EXIT_FAILED;
    if (s->path[0] == '\0') return gm_say_failed("-m is empty, expected a model's path");
    gm_err err = {0};
    if (gm_model_open(&s->model, s->path, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    s->info.size = sizeof s->info;
    gm_model_describe(s->model, &s->info);
    return GM_EXIT_OK;
}

bool gm_session_cached(const gm_session *s)
{
    return s->info.weight_size <= gm_machine_cache();
}

int gm_session_start(gm_session *s, const gm_engine_args *args, const gm_general_args *general)
{
    gm_bar bar;
    gm_err err = {0};
    s->opts = gm_engine_args_opts(args, general);
    gm_engine_opts opts = s->opts;
    opts.progress = gm_bar_tell;
    opts.trying = gm_bar_tell_tries;
    opts.checking = gm_bar_tell_checks;
    opts.progress_ctx = &bar;
    gm_bar_begin(&bar, "loading");
    const gm_status status = gm_engine_open(&s->engine, s->model, &opts, &err);
    if (gm_bar_end(&bar)) return GM_EXIT_INTERRUPTED;
    if (status != GM_OK) return gm_say_failed("%s", err.msg);
    s->opts.backend = gm_engine_backend(s->engine);
    return GM_EXIT_OK;
}

const char *gm_session_backend(const gm_session *s, char text[GM_SESSION_BACKEND_LEN])
{
    const char *const name = gm_engine_backend(s->engine);
    const char *const device = gm_engine_device(s->engine), *const why = gm_engine_why(s->engine);
    if (device[0])
        snprintf(text, GM_SESSION_BACKEND_LEN, "%s on %s", name, device);
    else if (why[0])
        snprintf(text, GM_SESSION_BACKEND_LEN, "%s (%s)", name, why);
    else
        snprintf(text, GM_SESSION_BACKEND_LEN, "%s", name);
    return text;
}

void gm_session_say_backend(const gm_session *s)
{
    char text[GM_SESSION_BACKEND_LEN];
    gm_say_fact("backend", "%s", gm_session_backend(s, text));
}

void gm_session_measure(gm_session *s)
{
    gm_err err = {0};
    gm_bar bar;
    if (s->roof.size) return;
    s->roof.size = sizeof s->roof;
    gm_bar_begin(&bar, "measuring the memory's speed");
    gm_bar_show(&bar);
    const gm_status status = gm_backend_describe(&s->opts, 1, &s->roof, &err);
    gm_bar_end(&bar);
    if (status != GM_OK) gm_say_note("the roof is not known: %s", err.msg);
}

int gm_session_tokenize(gm_session *s, const gm_bytes *text, uint32_t flags)
{
    gm_err err = {0};
    if (gm_model_tokenize(s->model, text->p, text->len, flags, &s->ids, &err) == GM_OK)
        return GM_EXIT_OK;
    return gm_say_failed("%s", err.msg);
}

int gm_session_ask(gm_session *s, const gm_request_opts *opts)
{
    gm_err err = {0};
    const gm_status status = gm_request_open(&s->request, s->engine, opts, &err);
    if (status != GM_OK) {
        return gm_say_failed("%s%s", err.msg,
                             status == GM_E_TOOBIG ? " (--ctx sets the context)" : "");
    }
    gm_interrupt_hold(s->request);
    s->hash = 0;
    if (s->info.note[0] && !s->noted) gm_say_note("%s", s->info.note);
    s->noted = true;
    return GM_EXIT_OK;
}

int gm_session_next(gm_session *s, gm_event *ev)
{
    gm_err err = {0};
    if (gm_request_next(s->request, ev, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    if (ev->kind == GM_EVENT_TOKEN) s->hash = (s->hash ^ ev->hash) * 1099511628211ull;
    return GM_EXIT_OK;
}

int gm_session_end(gm_session *s)
{
    const bool interrupted = gm_interrupt_release();
    gm_request_cancel(s->request); /* does nothing to one that is over */
    gm_request_close(s->before);
    s->before = s->request;
    s->request = NULL;
    return interrupted ? GM_EXIT_INTERRUPTED : GM_EXIT_OK;
}

void gm_session_close(gm_session *s)
{
    if (s->request) gm_session_end(s);
    gm_request_close(s->before);
    gm_engine_close(s->engine);
    gm_ids_deinit(&s->ids);
    gm_model_close(s->model);
    free(s->bundled);
    *s = (gm_session){0};
}

json_t *gm_session_json_token(const gm_session *s, int32_t id)
{
    size_t len = 0;
    const char *const piece = gm_model_piece(s->model, id, &len);
    return gm_need(json_pack("{s:i, s:o}", "id", (int)id, "piece", gm_outjson_text(piece, len)));
}

void gm_session_out_piece(const gm_session *s, int32_t id)
{
    size_t len = 0;
    const char *const piece = gm_model_piece(s->model, id, &len);
    gm_out_printf("\"");
    gm_out_escaped(piece, len);
    gm_out_printf("\"\n");
}
