/* SPDX-License-Identifier: MIT */
/* How fast a model runs here. Each test is measured by the library and gives a row,
 * which is printed as soon as it is there, for a table may take minutes. A row has
 * what was done in a second, what the machine could do at best, measured in
 * between, and the share; a share above 100% means that one of the two is wrong,
 * so it is shown as it is. Weights that a cache holds are not read from memory, whose
 * roof then says nothing and is left out. */

#include "commands.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bar.h"
#include "interrupt.h"
#include "machine.h"
#include "session.h"

typedef struct test_args {
    gm_arglist prompt, depth, batch; /* of uint32_t */
    gm_argnum decode, reps;
    bool check, kernels;
} test_args;

typedef struct bench_opts {
    gm_model_args model;
    gm_engine_args engine;
    test_args test;
    bool csv;
    gm_general_args general;
} bench_opts;

static const gm_argrow test_rows[] = {
    {.letter = 'p',
     .name = "prompt",
     .value = "LIST",
     .kind = GM_ARG_WHOLES,
     .offset = offsetof(test_args, prompt),
     .whole = {0, UINT32_MAX},
     .help = "prefill: tokens of the prompt; 0: none (default: 512)"},
    {.letter = 'n',
     .name = "decode",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(test_args, decode),
     .whole = {0, UINT32_MAX},
     .help = "decode: tokens of each sequence; 0: none (default: 64)"},
    {.letter = 'd',
     .name = "depth",
     .value = "LIST",
     .kind = GM_ARG_WHOLES,
     .offset = offsetof(test_args, depth),
     .whole = {0, UINT32_MAX},
     .help = "tokens that are there before either (default: 0)"},
    {.letter = 'b',
     .name = "batch",
     .value = "LIST",
     .kind = GM_ARG_WHOLES,
     .offset = offsetof(test_args, batch),
     .whole = {1, 512},
     .help = "decode: sequences at once (default: 1)"},
    {.letter = 'r',
     .name = "reps",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(test_args, reps),
     .whole = {1, 64},
     .help = "times to measure, after one to warm up; the median\n"
             "counts (default: 5)"},
    {.name = "check",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(test_args, check),
     .help = "compare the log-probabilities of the last token with\n"
             "ref-int8's, of a GPU with cpu's, and show the largest\n"
             "difference (slow)"},
    {.name = "kernels",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(test_args, kernels),
     .help = "on a GPU, show what each kind of kernel takes, run one\n"
             "after the other, and what it reads of memory"},
    {0},
};

static const gm_argrow csv_rows[] = {
    {.name = "csv",
     .kind = GM_ARG_FLAG,
     .help = "print lines of comma-separated values; behind those of\n"
             "a file that is there (>>) without the columns' names"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(bench_opts, model)},
    {"Engine", GM_ENGINE_ROWS_NO_CTX, offsetof(bench_opts, engine)},
    {"What to measure (a LIST has commas: 128,512)", test_rows, offsetof(bench_opts, test)},
    {"Format", csv_rows, offsetof(bench_opts, csv)},
    {"Output", gm_general_rows, offsetof(bench_opts, general)},
    {0},
};

typedef struct bench {
    const bench_opts *opts;
    gm_session session;
    gm_engine_opts engine;
    gm_backend_info backend;
    char why[GM_WHY_LEN]; /* that backend */
    char machine[80];     /* what the CPU calls itself                                  */
    char type[40];        /* of the layers' matrices, and of the embedding if it differs */
    json_t *rows;         /* with --json, until the end                                 */
} bench;

#define KERNELS 64 /* kinds of them in a row */

/* One row. */
typedef struct row {
    const gm_bench_opts *opts;
    gm_bench_result r;
    char name[64];
    double share; /* of the roof; NaN where that is not known */
    gm_kernel_row kernels[KERNELS];
    uint32_t n_kernels;
} row;

/* ---- what is measured ------------------------------------------------------------------ */

/* "q4_0", or "q4_0+q8_0" where the embedding has another type than most of the rest. */
static int find_type(bench *b)
{
    gm_modelfile *f = NULL;
    gm_err err = {0};
    if (gm_modelfile_open(&f, b->session.path, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    struct {
        const char *name;
        uint64_t bytes;
    } types[32] = {{"none", 0}};
    size_t most = 0;
    const char *embed = NULL;
    gm_tensorinfo t = {.size = sizeof t};
    for (size_t i = 0; gm_modelfile_tensor(f, i, &t) == GM_OK; i++) {
        size_t k = 1;
        if (strcmp(t.name, "token_embd.weight") == 0) {
            embed = t.type;
            continue;
        }
        while (k + 1 < sizeof types / sizeof *types && types[k].name && types[k].name != t.type)
            k++;
        types[k].name = t.type;
        types[k].bytes += t.bytes;
        if (types[k].bytes > types[most].bytes) most = k;
    }
    const bool differs = embed && strcmp(embed, types[most].name) != 0;
    snprintf(b->type, sizeof b->type, "%s%s%s", types[most].name, differs ? "+" : "",
             differs ? embed : "");
    gm_modelfile_close(f);
    return GM_EXIT_OK;
}

static int look_around(bench *b)
{
    gm_err err = {0};
    b->engine = gm_engine_args_opts(&b->opts->engine, &b->opts->general);
    b->engine.backend = gm_backend_choose(b->session.model, &b->engine, b->why);
    b->backend.size = sizeof b->backend;
    if (gm_backend_describe(&b->engine, b->opts->general.verbose, &b->backend, &err) != GM_OK)
        return gm_say_failed("%s", err.msg);
    gm_machine_name(b->machine);
    return find_type(b);
}

/* ---- rows ------------------------------------------------------------------------------ */

static void name_test(const gm_bench_opts *o, char name[64])
{
    char deep[16] = "", wide[16] = "";
    if (o->depth) snprintf(deep, sizeof deep, " @%" PRIu32, o->depth);
    if (o->batch > 1) snprintf(wide, sizeof wide, " x%" PRIu32, o->batch);
    snprintf(name, 64, "%s %" PRIu32 "%s%s", o->prompt ? "prefill" : "decode",
             o->prompt ? o->prompt : o->decode, deep, wide);
}

static void print_head(const bench *b)
{
    char size[16];
    const gm_backend_info *const on = &b->backend;
    gm_out_printf("%s, %s %s; %s ", b->session.path,
                  gm_size_text(b->session.info.weight_size, size), b->type, on->name);
    if (on->device[0])
        gm_out_printf("on %s", on->device);
    else
        gm_out_printf("%s, %" PRIu32 " thread%s", on->isa, on->n_threads,
                      on->n_threads == 1 ? "" : "s");
    gm_out_printf(", KV cache %s; %s\n", on->kv_type, b->machine);
    gm_out_printf("%-24s %9s %15s %8s %7s %7s  %-16s  %s\n", "test", "tok/s", "speed", "roof",
                  "share", "spread", "logits hash", "check");
}

static void print_row(const row *w)
{
    const gm_bench_result *const r = &w->r;
    const bool prefill = w->opts->prompt;
    char share[16] = "-", roof[16] = "-", check[16] = "-";
    if (!isnan(w->share)) {
        snprintf(share, sizeof share, "%.1f%%", 100 * w->share);
        snprintf(roof, sizeof roof, "%.1f", prefill ? r->roof_gop_s : r->roof_gb_s);
    }
    if (r->check >= 0) snprintf(check, sizeof check, "%.3g", r->check);
    gm_out_printf("%-24s %9.1f %9.1f %-5s %8s %7s %6.1f%%  %016" PRIx64 "  %s\n", w->name, r->tok_s,
                  prefill ? r->gop_s : r->gb_s, prefill ? "Gop/s" : "GB/s", roof, share,
                  100 * r->spread, r->hash, check);
}

static double kernels_us(const row *w)
{
    double us = 0;
    for (uint32_t i = 0; i < w->n_kernels; i++)
        us += w->kernels[i].us;
    return us;
}

static double kernel_gb_s(const gm_kernel_row *k)
{
    return k->us > 0 ? k->bytes / k->us * 1e-3 : 0;
}

static void print_kernels(const row *w)
{
    const double all = kernels_us(w);
    const uint32_t batch = w->opts->batch;
    if (!w->n_kernels) return;
    gm_out_printf("  %-28s %-22s %5s %11s %7s %8s\n", "kernels of a step", "", "n", "us", "share",
                  "GB/s");
    for (uint32_t i = 0; i < w->n_kernels; i++) {
        const gm_kernel_row *const k = &w->kernels[i];
        char speed[16] = "-";
        const double gb_s = kernel_gb_s(k);
        if (k->bytes > 0) snprintf(speed, sizeof speed, gb_s < 10 ? "%.2f" : "%.1f", gb_s);
        gm_out_printf("  %-28s %-22s %5" PRIu32 " %11.1f %6.1f%% %8s\n", k->what, k->kernel, k->n,
                      k->us, all > 0 ? 100 * k->us / all : 0, speed);
    }
    gm_out_printf("  %-28s %-22s %5s %11.1f\n", "one after the other", "", "", all);
    if (!w->opts->prompt)
        gm_out_printf("  %-28s %-22s %5s %11.1f\n", "as they run, with the host", "", "",
                      1e6 * batch / w->r.tok_s);
}

/* A name in quotes, which has quotes and commas of its own. */
static void print_csv_text(const char *text)
{
    gm_out_bytes("\"", 1);
    for (const char *p = text; *p; p++)
        gm_out_bytes(*p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
    gm_out_bytes("\",", 2);
}

/* Not once more behind what --csv >> FILE has written before. */
static void print_csv_head(void)
{
    struct stat st;
    const bool appends = fcntl(STDOUT_FILENO, F_GETFL) & O_APPEND;
    if (appends && fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) return;
    gm_out_printf("commit,machine,model,type,bytes,backend,isa,device,driver,threads,kv_type,test,"
                  "prompt,decode,depth,batch,reps,tok_s,gb_s,gop_s,roof_gb_s,roof_gop_s,share,"
                  "spread,hash,check\n");
}

/* Nothing where it was not measured. */
static void print_csv_measured(double x)
{
    if (x > 0) gm_out_printf("%.6g", x);
    gm_out_bytes(",", 1);
}

static void print_csv(const bench *b, const row *w)
{
    const gm_bench_result *const r = &w->r;
    const gm_bench_opts *const o = w->opts;
    const double measured[] = {r->tok_s, r->gb_s, r->gop_s, r->roof_gb_s, r->roof_gop_s, w->share};
    char check[32] = "";
    if (r->check >= 0) snprintf(check, sizeof check, "%.6g", r->check);
    gm_out_printf("%s,", GM_COMMIT);
    print_csv_text(b->machine);
    print_csv_text(b->session.path);
    gm_out_printf("%s,%" PRIu64 ",%s,%s,", b->type, b->session.info.weight_size, b->backend.name,
                  b->backend.isa);
    print_csv_text(b->backend.device);
    print_csv_text(b->backend.driver);
    gm_out_printf("%" PRIu32 ",%s,%s,", r->n_threads, b->backend.kv_type, w->name);
    gm_out_printf("%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",", o->prompt,
                  o->decode, o->depth, o->batch, o->reps);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        print_csv_measured(measured[i]);
    gm_out_printf("%.6g,%016" PRIx64 ",%s\n", r->spread, r->hash, check);
}

/* Null where it was not measured. */
static json_t *measured_json(double x)
{
    return gm_outjson_real(x > 0 ? x : (double)NAN);
}

static json_t *row_json(const row *w)
{
    const gm_bench_result *const r = &w->r;
    const gm_bench_opts *const o = w->opts;
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, r->hash);
    return gm_need(json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "test",
        w->name, "prompt", (json_int_t)o->prompt, "decode", (json_int_t)o->decode, "depth",
        (json_int_t)o->depth, "batch", (json_int_t)o->batch, "reps", (json_int_t)o->reps, "tok_s",
        gm_outjson_real(r->tok_s), "gb_s", measured_json(r->gb_s), "gop_s", measured_json(r->gop_s),
        "roof_gb_s", measured_json(r->roof_gb_s), "roof_gop_s", measured_json(r->roof_gop_s),
        "share", gm_outjson_real(w->share), "spread", gm_outjson_real(r->spread), "hash", hash,
        "check", gm_outjson_real(r->check < 0 ? (double)NAN : r->check)));
}

static json_t *kernels_json(const row *w)
{
    json_t *const all = gm_need(json_array());
    for (uint32_t i = 0; i < w->n_kernels; i++) {
        const gm_kernel_row *const k = &w->kernels[i];
        gm_outjson_append(
            all, gm_need(json_pack("{s:s, s:s, s:I, s:o, s:o}", "what", k->what, "kernel",
                                   k->kernel, "n", (json_int_t)k->n, "us", gm_outjson_real(k->us),
                                   "gb_s", measured_json(kernel_gb_s(k)))));
    }
    return all;
}

static void print_json(bench *b)
{
    gm_out_json(json_pack(
        "{s:s, s:o, s:o, s:s, s:I, s:s, s:s, s:s, s:s, s:I, s:s, s:o}", "commit", GM_COMMIT,
        "machine", gm_outjson_text(b->machine, strlen(b->machine)), "model",
        gm_outjson_text(b->session.path, strlen(b->session.path)), "type", b->type, "bytes",
        (json_int_t)b->session.info.weight_size, "backend", b->backend.name, "isa", b->backend.isa,
        "device", b->backend.device, "driver", b->backend.driver, "threads",
        (json_int_t)b->backend.n_threads, "kv_type", b->backend.kv_type, "tests", b->rows));
    b->rows = NULL;
}

/* What a step of the test did on the device, on average. */
static void say_counts(const row *w)
{
    const gm_device_counts *const c = &w->r.device;
    const double n = (double)w->r.n_steps;
    char held[16];
    if (!c->submits) return;
    if (w->r.warm_s > 0)
        gm_say_fact("warm-up", "%.1f s of work, for the GPU's clock (%s)", w->r.warm_s, w->name);
    char plain[48] = "";
    if (w->r.up_gb_s > 0) snprintf(plain, sizeof plain, "; a plain copy: %.1f", w->r.up_gb_s);
    gm_say_fact("load", "%.1f GB/s of the file%s", w->r.load_gb_s, plain);
    const gm_load_times *const t = &w->r.load_times;
    gm_say_fact(
        "load, where",
        "%.0f ms for the device's memory (not counted), %.0f for the stage; then threads were "
        "%.0f %% laying out, %.0f %% waiting for each other, %.0f %% for the bus",
        1e3 * t->memory_s, 1e3 * t->stage_s, 100 * t->layout, 100 * t->others, 100 * t->bus);
    for (uint32_t i = 0; i < GM_DEVICE_HEAPS; i++) {
        if (c->held[i])
            gm_say_fact("device memory", "%s in heap %" PRIu32, gm_size_text(c->held[i], held), i);
    }
    gm_say_fact("device, a step",
                "%.1f submits, %.1f dispatches, %.1f barriers, %.0f bytes up, %.0f down, "
                "%" PRIu64 " allocations, %" PRIu64 " recordings (%s)",
                (double)c->submits / n, (double)c->dispatches / n, (double)c->barriers / n,
                (double)c->bytes_up / n, (double)c->bytes_down / n, c->allocs, c->recordings,
                w->name);
    if (w->r.host_us > 0)
        gm_say_fact("host, a step", "%.0f us from an answer to the next step handed over (%s)",
                    w->r.host_us, w->name);
}

/* ---- tests ----------------------------------------------------------------------------- */

/* Once the model is loaded, Ctrl-C need not wait for the measurement. */
static int tell_load(void *bar, uint64_t done, uint64_t total)
{
    const int cancel = gm_bar_tell(bar, done, total);
    if (done == total) gm_interrupt_release();
    return cancel;
}

static void take_kernel(void *ctx, const gm_kernel_row *k)
{
    row *const w = ctx;
    if (w->n_kernels < KERNELS) w->kernels[w->n_kernels++] = *k;
}

static void print(bench *b, const row *w)
{
    if (b->opts->general.json) {
        json_t *const one = row_json(w);
        if (b->opts->test.kernels) json_object_set_new(one, "kernels", kernels_json(w));
        gm_outjson_append(b->rows, one);
    } else if (b->opts->csv) {
        print_csv(b, w);
    } else {
        print_row(w);
        print_kernels(w);
    }
}

static int run_test(bench *b, const gm_bench_opts *o)
{
    row w = {.opts = o, .r = {.size = sizeof w.r}};
    gm_err err = {0};
    gm_bar bar;
    name_test(o, w.name);
    gm_bench_opts opts = *o;
    opts.engine.progress = tell_load;
    opts.engine.trying = gm_bar_tell_tries;
    opts.engine.checking = gm_bar_tell_checks;
    opts.engine.progress_ctx = &bar;
    if (b->opts->test.kernels) {
        opts.kernel = take_kernel;
        opts.kernel_ctx = &w;
    }
    gm_bar_begin(&bar, w.name);
    gm_bar_show(&bar);
    const gm_status status = gm_bench_run(b->session.model, &opts, &w.r, &err);
    const bool interrupted = gm_bar_end(&bar);
    if (interrupted) return GM_EXIT_INTERRUPTED;
    if (status != GM_OK) return gm_say_failed("%s (%s)", err.msg, w.name);
    const double roof = o->prompt                        ? w.r.roof_gop_s
                        : gm_session_cached(&b->session) ? 0
                                                         : w.r.roof_gb_s;
    w.share = roof > 0 ? (o->prompt ? w.r.gop_s : w.r.gb_s) / roof : (double)NAN;
    print(b, &w);
    if (b->opts->general.verbose) say_counts(&w);
    gm_out_flush();
    return GM_EXIT_OK;
}

typedef struct list {
    const uint32_t *at;
    size_t n;
} list;

static list list_or(const gm_arglist *given, const uint32_t *otherwise)
{
    return given->n ? (list){given->at, given->n} : (list){otherwise, 1};
}

/* Prompts at every depth, then decoding at every depth and with every number of sequences. */
static int run_tests(bench *b)
{
    static const uint32_t none = 0, one = 1, some = 512;
    const test_args *const t = &b->opts->test;
    const list prompt = list_or(&t->prompt, &some), depth = list_or(&t->depth, &none);
    const list batch = list_or(&t->batch, &one);
    gm_bench_opts o = gm_bench_opts_default();
    o.engine = b->engine;
    o.check = t->check;
    if (t->reps.given) o.reps = (uint32_t)t->reps.whole;
    const uint32_t decode = t->decode.given ? (uint32_t)t->decode.whole : o.decode;
    int code = GM_EXIT_OK;
    o.decode = 0;
    for (size_t i = 0; i < prompt.n * depth.n && code == GM_EXIT_OK; i++) {
        o.prompt = prompt.at[i / depth.n];
        o.depth = depth.at[i % depth.n];
        if (o.prompt) code = run_test(b, &o);
    }
    o.prompt = 0;
    o.decode = decode;
    for (size_t i = 0; i < depth.n * batch.n && code == GM_EXIT_OK; i++) {
        o.depth = depth.at[i / batch.n];
        o.batch = batch.at[i % batch.n];
        if (o.decode) code = run_test(b, &o);
    }
    return code;
}

static void say_facts(const bench *b)
{
    gm_say_fact("model", "%s (%s)", b->session.path, b->session.info.name);
    if (b->why[0]) gm_say_fact("backend", "%s (%s)", b->backend.name, b->why);
    if (b->backend.device[0]) gm_say_fact("device", "%s, %s", b->backend.device, b->backend.driver);
    gm_say_fact("commit", "%s", GM_COMMIT);
    if (b->backend.read_gb_s > 0) gm_say_fact("read roof", "%.1f GB/s", b->backend.read_gb_s);
    if (b->backend.int8_gop_s > 0) gm_say_fact("int8 roof", "%.1f Gop/s", b->backend.int8_gop_s);
}

static int bench_model(bench *b)
{
    int code = gm_session_open(&b->session, &b->opts->model);
    if (code == GM_EXIT_OK) code = look_around(b);
    if (code != GM_EXIT_OK) return code;
    if (b->opts->general.verbose) say_facts(b);
    if (b->opts->general.json)
        b->rows = gm_need(json_array());
    else if (b->opts->csv)
        print_csv_head();
    else
        print_head(b);
    gm_out_flush();
    code = run_tests(b);
    if (code == GM_EXIT_OK && b->rows) print_json(b);
    return code;
}

static bool measures_nothing(const test_args *t)
{
    bool prompts = t->prompt.n == 0;
    for (size_t i = 0; i < t->prompt.n; i++)
        prompts = prompts || ((const uint32_t *)t->prompt.at)[i];
    return !prompts && t->decode.given && t->decode.whole == 0;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    bench b = {.opts = opts};
    int code = gm_engine_args_check(self, &b.opts->engine);
    if (code == GM_EXIT_OK)
        code = gm_args_no_words(self, words, "expected options only, and a model behind -m");
    if (code == GM_EXIT_OK && b.opts->csv && b.opts->general.json)
        code = gm_args_refuse(self, "--csv and --json are two formats, expected one");
    if (code == GM_EXIT_OK && b.opts->csv && b.opts->test.kernels)
        code = gm_args_refuse(self, "--csv has no place for --kernels, --json has");
    if (code == GM_EXIT_OK && measures_nothing(&b.opts->test))
        code = gm_args_refuse(self, "-p 0 and -n 0 leave nothing to measure");
    if (code == GM_EXIT_OK) code = bench_model(&b);
    json_decref(b.rows);
    gm_session_close(&b.session);
    return code;
}

const gm_command gm_cmd_bench = {
    .name = "bench",
    .summary = "measure how fast a model runs here",
    .words = "[-m MODEL]",
    .about =
        "Each row is one test: \"prefill 512 @1024\" reads 512 tokens behind 1024, and\n"
        "\"decode 64 @1024 x8\" makes 64 tokens for each of 8 sequences that begin 1024 deep.\n"
        "tok/s counts the tokens of all sequences. GB/s are bytes of weights and KV cache read,\n"
        "Gop/s operations of products; roof is the most that this machine reached of either,\n"
        "measured in between, and left out where a cache holds the weights. The spread is\n"
        "(slowest - fastest) / median. The same computation has the same logits hash. A GPU works\n"
        "for 2 s before it is measured: the clock of an idle one is slow.\n"
        "docs/PERF.md says more.\n"
        "--json prints "
        "{\"commit\":..,\"machine\":..,..,\"tests\":[{\"test\":..,\"tok_s\":..,..},..]}.",
    .examples = "gemmule bench\n"
                "gemmule bench -p 0 -d 0,512 -b 1,4 -r 2 --kv-type q8_0\n"
                "gemmule bench -p 32 -n 8 -r 2 --check --csv",
    .groups = groups,
    .opts_size = sizeof(bench_opts),
    .run = run,
};
