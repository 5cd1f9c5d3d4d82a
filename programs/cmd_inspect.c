/* SPDX-License-Identifier: MIT */
/* What is in a model file. The file is opened twice: as a file, which shows
 * anything that can be read, and as a model, which says whether and in how much
 * memory it would run. Tensors of the layers are shown once for all layers where
 * they are alike, because a thousand lines tell a reader less than twenty. */

#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundled.h"
#include "gemmule_tools.h"
#include "session.h"

typedef struct inspect_opts {
    gm_model_args model;
    bool plan;
    gm_general_args general;
} inspect_opts;

static const gm_argrow inspect_rows[] = {
    {.name = "plan",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(inspect_opts, plan),
     .help = "show the steps of the forward pass instead;\n"
             "with --json beside the rest"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(inspect_opts, model)},
    {"What to show", inspect_rows, 0},
    {"Output", gm_general_rows, offsetof(inspect_opts, general)},
    {0},
};

/* Tensors that are alike but for their layer, or one tensor. */
typedef struct kind {
    gm_tensorinfo first;
    uint64_t count, bytes;
} kind;

typedef struct report {
    const char *path; /* the one given, or bundled */
    char *bundled;
    gm_modelfile *file;
    gm_model *model; /* NULL when it cannot be run */
    gm_model_info info;
    gm_err why; /* it cannot be run */
    char *plan;
    size_t n_tensors;
    uint64_t n_params, bytes;
    kind *kinds; /* the tensors */
    size_t n_kinds;
    kind *types; /* the same by type */
    size_t n_types;
} report;

/* ---- gathering ------------------------------------------------------------------------- */

/* "blk.12.attn_q.weight" -> ".attn_q.weight"; NULL for what belongs to no layer. */
static const char *after_layer(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0) return NULL;
    const size_t digits = strspn(name + 4, "0123456789");
    return digits && name[4 + digits] == '.' ? name + 4 + digits : NULL;
}

static bool same_kind(const gm_tensorinfo *a, const gm_tensorinfo *b)
{
    const char *const x = after_layer(a->name), *const y = after_layer(b->name);
    return x && y && strcmp(x, y) == 0 && strcmp(a->type, b->type) == 0 && a->n_dims == b->n_dims &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

static bool same_type(const gm_tensorinfo *a, const gm_tensorinfo *b)
{
    return strcmp(a->type, b->type) == 0;
}

/* Rows looked back for one that is alike; a layer has about thirteen tensors. The bound keeps a
 * file of a million odd names from taking forever. */
#define LOOK_BACK 64

static void count_in(kind **kinds, size_t *n, const gm_tensorinfo *t,
                     bool (*same)(const gm_tensorinfo *, const gm_tensorinfo *))
{
    size_t i = *n;
    const size_t first = *n > LOOK_BACK ? *n - LOOK_BACK : 0;
    while (i > first && !same(&(*kinds)[i - 1].first, t))
        i--;
    if (i == first) {
        *kinds = gm_need(reallocarray(*kinds, *n + 1, sizeof **kinds));
        (*kinds)[*n] = (kind){.first = *t};
        i = ++*n;
    }
    (*kinds)[i - 1].count++;
    (*kinds)[i - 1].bytes += t->bytes;
}

static uint64_t tensor_len(const gm_tensorinfo *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

static void gather_tensors(report *r)
{
    gm_tensorinfo t = {.size = sizeof t};
    for (; gm_modelfile_tensor(r->file, r->n_tensors, &t) == GM_OK; r->n_tensors++) {
        r->n_params += tensor_len(&t);
        r->bytes += t.bytes;
        count_in(&r->kinds, &r->n_kinds, &t, same_kind);
        count_in(&r->types, &r->n_types, &t, same_type);
    }
}

static int gather(report *r, const char *path, bool plan)
{
    gm_err err = {0};
    if (!path) r->bundled = gm_bundled_find();
    r->path = path ? path : r->bundled;
    if (!r->path) return GM_EXIT_FAILED;
    if (gm_modelfile_open(&r->file, r->path, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    gather_tensors(r);
    r->info.size = sizeof r->info;
    if (gm_model_open(&r->model, r->path, &r->why) == GM_OK) gm_model_describe(r->model, &r->info);
    if (!plan) return GM_EXIT_OK;
    if (!r->model) return gm_say_failed("%s", r->why.msg);
    if (gm_model_plan_text(r->model, &r->plan, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    return GM_EXIT_OK;
}

static void report_free(report *r)
{
    free(r->kinds);
    free(r->types);
    gm_text_free(r->plan);
    gm_model_close(r->model);
    gm_modelfile_close(r->file);
    free(r->bundled);
}

/* Contexts to show the memory of: the usual ones below the model's, then its own. The i-th, 0 past
 * the last. */
static uint32_t context_at(const report *r, size_t i)
{
    static const uint32_t usual[] = {4096, 8192, 32768};
    size_t n = 0;
    while (n < sizeof usual / sizeof usual[0] && usual[n] < r->info.n_ctx)
        n++;
    return i < n ? usual[i] : i == n ? r->info.n_ctx : 0;
}

/* ---- as text --------------------------------------------------------------------------- */

#define VALUE_COLUMNS 60 /* of a key's value, unless -v */

/* Bytes of the first n characters. */
static size_t head_len(const char *text, size_t n)
{
    size_t i = 0;
    for (; text[i]; i++) {
        const bool is_first = ((unsigned char)text[i] & 0xc0) != 0x80;
        if (is_first && n-- == 0) break;
    }
    return i;
}

/* "u32", "array of string x2048" */
static const char *type_text(const gm_keyinfo *k, char text[64])
{
    if (k->n == 1)
        snprintf(text, 64, "%s", k->type);
    else
        snprintf(text, 64, "%s x%" PRIu64, k->type, k->n);
    return text;
}

static void print_value(const char *value, bool whole)
{
    size_t cut = whole ? strlen(value) : head_len(value, VALUE_COLUMNS);
    const bool is_cut = value[cut] != '\0';
    while (is_cut && cut > 0 && value[cut - 1] == '.')
        cut--;
    gm_out_printf("%.*s%s\n", (int)cut, value, is_cut ? "..." : "");
}

static void print_keys(const report *r, bool verbose)
{
    gm_keyinfo k = {.size = sizeof k};
    char type[64];
    size_t n = 0, key_width = 0, type_width = 0;
    for (; gm_modelfile_key(r->file, n, &k) == GM_OK; n++) {
        const size_t len = strlen(type_text(&k, type));
        if (len > type_width) type_width = len;
        if (k.key_len > key_width && k.key_len <= 48) key_width = k.key_len;
    }
    gm_out_printf("\nKeys (%zu):\n", n);
    for (size_t i = 0; gm_modelfile_key(r->file, i, &k) == GM_OK; i++) {
        gm_out_printf("  ");
        gm_out_escaped(k.key, k.key_len);
        gm_out_printf("%*s  %-*s  ", k.key_len < key_width ? (int)(key_width - k.key_len) : 0, "",
                      (int)type_width, type_text(&k, type));
        print_value(k.value, verbose);
    }
}

static const char *shape_text(const gm_tensorinfo *t, char text[96])
{
    size_t len = 0;
    for (uint32_t d = 0; d < t->n_dims && len < 96; d++)
        len += (size_t)snprintf(text + len, 96 - len, "%s%" PRIu64, d ? ", " : "[", t->shape[d]);
    if (len < 95) snprintf(text + len, 96 - len, "]");
    return text;
}

static void print_tensor(const gm_tensorinfo *t, uint64_t count, uint64_t bytes)
{
    char shape[96], size[16], times[24] = "";
    const char *const rest = count > 1 ? after_layer(t->name) : NULL;
    const size_t len = rest ? strlen(rest) + 5 : strlen(t->name);
    if (count > 1) snprintf(times, sizeof times, "x%" PRIu64, count);
    gm_out_printf("  %s", rest ? "blk.*" : "");
    gm_out_escaped(rest ? rest : t->name, strlen(rest ? rest : t->name));
    gm_out_printf("%*s  %-6s  %-16s %5s %9s\n", len < 32 ? (int)(32 - len) : 0, "", t->type,
                  shape_text(t, shape), times, gm_size_text(bytes, size));
}

static void print_tensors(const report *r, bool verbose)
{
    char size[16];
    gm_out_printf("\nTypes:\n");
    for (size_t i = 0; i < r->n_types; i++) {
        gm_out_printf("  %-6s  %6" PRIu64 " tensors  %9s\n", r->types[i].first.type,
                      r->types[i].count, gm_size_text(r->types[i].bytes, size));
    }
    gm_out_printf("\nTensors (%zu%s):\n", r->n_tensors,
                  verbose || r->n_kinds == r->n_tensors ? "" : "; -v shows each");
    gm_tensorinfo t = {.size = sizeof t};
    if (verbose) {
        for (size_t i = 0; gm_modelfile_tensor(r->file, i, &t) == GM_OK; i++)
            print_tensor(&t, 1, t.bytes);
        return;
    }
    for (size_t i = 0; i < r->n_kinds; i++)
        print_tensor(&r->kinds[i].first, r->kinds[i].count, r->kinds[i].bytes);
}

static void print_memory(const report *r)
{
    char weights[16], kv[16], sum[16];
    gm_size_text(r->info.weight_size, weights);
    gm_out_printf("\nMemory needed:\n  %8s  %9s  %9s  %9s\n", "context", "weights", "KV cache",
                  "in all");
    for (size_t i = 0; context_at(r, i); i++) {
        const uint64_t bytes = gm_model_kv_size(r->model, context_at(r, i));
        gm_out_printf("  %8" PRIu32 "  %9s  %9s  %9s\n", context_at(r, i), weights,
                      gm_size_text(bytes, kv), gm_size_text(bytes + r->info.weight_size, sum));
    }
}

static void print_head(const report *r)
{
    char size[16];
    uint64_t skipped = 0;
    const uint32_t n_skipped = gm_modelfile_skipped(r->file, &skipped);
    gm_out_printf("file     %s\nformat   %s\n", r->path, gm_modelfile_format(r->file));
    if (r->model) {
        gm_out_printf("model    %s", r->info.arch);
        if (r->info.name[0]) gm_out_printf(" \"");
        gm_out_escaped(r->info.name, strlen(r->info.name));
        gm_out_printf("%s, %" PRIu32 " layers, vocabulary of %" PRIu32 ", context of %" PRIu32 "\n",
                      r->info.name[0] ? "\"" : "", r->info.n_layer, r->info.n_vocab, r->info.n_ctx);
        if (r->info.note[0]) gm_out_printf("note     %s\n", r->info.note);
    } else {
        gm_out_printf("model    cannot be run: %s\n", r->why.msg);
    }
    gm_out_printf("tensors  %zu, %.1f M parameters, %s\n", r->n_tensors, (double)r->n_params / 1e6,
                  gm_size_text(r->bytes, size));
    if (n_skipped) {
        gm_out_printf("skipped  %" PRIu32 " tensors for images, %s\n", n_skipped,
                      gm_size_text(skipped, size));
    }
}

static void print_text(const report *r, bool verbose)
{
    print_head(r);
    print_keys(r, verbose);
    print_tensors(r, verbose);
    if (r->model) print_memory(r);
}

/* ---- as JSON --------------------------------------------------------------------------- */

static json_t *json_text(const char *text)
{
    return gm_outjson_text(text, strlen(text));
}

static json_t *json_keys(const report *r)
{
    json_t *const keys = gm_need(json_array());
    gm_keyinfo k = {.size = sizeof k};
    for (size_t i = 0; gm_modelfile_key(r->file, i, &k) == GM_OK; i++) {
        gm_outjson_append(keys, json_pack("{s:o, s:s, s:I, s:o}", "name",
                                          gm_outjson_text(k.key, k.key_len), "type", k.type, "n",
                                          (json_int_t)k.n, "value", json_text(k.value)));
    }
    return keys;
}

static json_t *json_tensors(const report *r)
{
    json_t *const tensors = gm_need(json_array());
    gm_tensorinfo t = {.size = sizeof t};
    for (size_t i = 0; gm_modelfile_tensor(r->file, i, &t) == GM_OK; i++) {
        json_t *const shape = gm_need(json_array());
        for (uint32_t d = 0; d < t.n_dims; d++)
            gm_outjson_append(shape, json_integer((json_int_t)t.shape[d]));
        gm_outjson_append(tensors,
                          json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(t.name), "type",
                                    t.type, "shape", shape, "bytes", (json_int_t)t.bytes));
    }
    return tensors;
}

static json_t *json_types(const report *r)
{
    json_t *const types = gm_need(json_array());
    for (size_t i = 0; i < r->n_types; i++) {
        gm_outjson_append(types, json_pack("{s:s, s:I, s:I}", "type", r->types[i].first.type,
                                           "tensors", (json_int_t)r->types[i].count, "bytes",
                                           (json_int_t)r->types[i].bytes));
    }
    return types;
}

/* What a model that runs has to say. */
static json_t *json_model(const report *r)
{
    json_t *const kv = gm_need(json_array());
    for (size_t i = 0; context_at(r, i); i++) {
        gm_outjson_append(kv, json_pack("{s:I, s:I}", "ctx", (json_int_t)context_at(r, i), "bytes",
                                        (json_int_t)gm_model_kv_size(r->model, context_at(r, i))));
    }
    return gm_need(json_pack("{s:s, s:o, s:o, s:I, s:I, s:I, s:{s:I, s:o}}", "arch", r->info.arch,
                             "name", json_text(r->info.name), "note", json_text(r->info.note),
                             "layers", (json_int_t)r->info.n_layer, "vocabulary",
                             (json_int_t)r->info.n_vocab, "context", (json_int_t)r->info.n_ctx,
                             "memory", "weights", (json_int_t)r->info.weight_size, "kv", kv));
}

static void print_json(const report *r)
{
    uint64_t skipped = 0;
    const uint32_t n_skipped = gm_modelfile_skipped(r->file, &skipped);
    json_t *const all = gm_need(json_pack(
        "{s:o, s:s, s:b, s:I, s:I, s:{s:I, s:I}, s:o, s:o, s:o}", "file", json_text(r->path),
        "format", gm_modelfile_format(r->file), "runs", r->model != NULL, "parameters",
        (json_int_t)r->n_params, "bytes", (json_int_t)r->bytes, "skipped", "tensors",
        (json_int_t)n_skipped, "bytes", (json_int_t)skipped, "types", json_types(r), "keys",
        json_keys(r), "tensors", json_tensors(r)));
    int failed = r->model ? json_object_set_new(all, "model", json_model(r))
                          : json_object_set_new(all, "why", json_text(r->why.msg));
    if (r->plan) failed |= json_object_set_new(all, "plan", json_text(r->plan));
    if (failed) gm_need(NULL);
    gm_out_json(all);
}

/* ---- the command ----------------------------------------------------------------------- */

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const inspect_opts *const o = opts;
    report r = {0};
    if (words->n && o->model.path)
        return gm_args_refuse(self, "there are a FILE and -m, expected one model");
    const int code = gather(&r, words->n ? words->at[0] : o->model.path, o->plan);
    if (code == GM_EXIT_OK && o->general.json)
        print_json(&r);
    else if (code == GM_EXIT_OK && o->plan)
        gm_out_bytes(r.plan, strlen(r.plan));
    else if (code == GM_EXIT_OK)
        print_text(&r, o->general.verbose);
    report_free(&r);
    return code;
}

const gm_command gm_cmd_inspect = {
    .name = "inspect",
    .summary = "show what is in a model file and what memory it needs",
    .words = "[FILE]",
    .about =
        "FILE is a GGUF file or a Hugging Face folder, whose keys and tensors are shown under\n"
        "the names that GGUF has for them; without one it is the model that comes with gemmule.\n"
        "A file that can be read but not run is shown too,\n"
        "with the reason. Tensors that are alike in several layers share a line; -v shows each,\n"
        "and longer values. Sizes are in powers of 1000.",
    .examples = "gemmule inspect\n"
                "gemmule inspect --plan",
    .groups = groups,
    .opts_size = sizeof(inspect_opts),
    .n_words = 1,
    .may_lack_it = true,
    .run = run,
};
