/* SPDX-License-Identifier: MIT */
/* One pass over argv with the command's rows beside it. A value is checked the
 * moment it is read, strictly: a number has nothing before or behind it and lies in
 * its row's range, so that a slip of the finger is named and never becomes another
 * number. Lists grow by one; a command line is short. */

#include "args.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hint.h"
#include "output.h"

int gm_args_refuse(const gm_command *cmd, const char *fmt, ...)
{
    char what[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    gm_say_failed("%s: %s (see gemmule %s --help)", cmd->name, what, cmd->name);
    return GM_EXIT_USAGE;
}

/* ---- values ---------------------------------------------------------------------------- */

/* Digits only, nothing before or after them, within [min, max]. */
static bool read_whole(const char *text, size_t len, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (__builtin_mul_overflow(n, 10u, &n)) return false;
        if (__builtin_add_overflow(n, (uint64_t)(text[i] - '0'), &n)) return false;
    }
    *out = n;
    return len > 0 && n >= min && n <= max;
}

static bool read_real(const char *text, double min, double max, double *out)
{
    char *end = NULL;
    if (isspace((unsigned char)text[0])) return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= min && *out <= max;
}

static void list_add(gm_arglist *list, const void *element, size_t size)
{
    list->at = gm_need(reallocarray(list->at, list->n + 1, size));
    memcpy((char *)list->at + list->n++ * size, element, size);
}

/* Numbers of 32 bits with commas between them. */
static bool read_wholes(const char *text, uint64_t min, uint64_t max, gm_arglist *list)
{
    for (const char *p = text;; p++) {
        const size_t len = strcspn(p, ",");
        uint64_t whole = 0;
        if (!read_whole(p, len, min, max, &whole)) return false;
        const uint32_t one = (uint32_t)whole;
        list_add(list, &one, sizeof one);
        p += len;
        if (*p == '\0') return true;
    }
}

static bool read_text(const gm_argrow *row, const char *text, const char **out)
{
    *out = text;
    for (const char *const *one = row->choices; one && *one; one++) {
        if (strcasecmp(*one, text) != 0) continue;
        *out = *one;
        return true;
    }
    return !row->choices;
}

static bool read_bias(const gm_argrow *row, const char *text, gm_arglist *biases)
{
    const size_t len = strcspn(text, "=");
    uint64_t id = 0;
    double value = 0;
    if (text[len] == '\0' || !read_whole(text, len, 0, INT32_MAX, &id) ||
        !read_real(text + len + 1, row->real.min, row->real.max, &value))
        return false;
    const gm_bias bias = {(int32_t)id, (float)value};
    list_add(biases, &bias, sizeof bias);
    return true;
}

/* Stores the value of one option; false when it is not what the row asks for. */
static bool value_read(const gm_argrow *row, const char *text, void *field)
{
    gm_argnum *const num = field;
    switch (row->kind) {
    case GM_ARG_FLAG: *(bool *)field = true; return true;
    case GM_ARG_TEXT: return read_text(row, text, field);
    case GM_ARG_TEXTS: list_add(field, &text, sizeof text); return true;
    case GM_ARG_WHOLE:
        num->given = true;
        return read_whole(text, strlen(text), row->whole.min, row->whole.max, &num->whole);
    case GM_ARG_REAL:
        num->given = true;
        return read_real(text, row->real.min, row->real.max, &num->real);
    case GM_ARG_IDS: return read_wholes(text, 0, INT32_MAX, field);
    case GM_ARG_WHOLES: return read_wholes(text, row->whole.min, row->whole.max, field);
    case GM_ARG_BIASES: return read_bias(row, text, field);
    }
    return false;
}

static int value_refuse(const gm_command *cmd, const gm_argrow *row, const char *text)
{
    char expected[160] = "token ids with commas between them, as in 2,5,7";
    if (row->kind == GM_ARG_WHOLE) {
        snprintf(expected, sizeof expected, "a whole number from %" PRIu64 " to %" PRIu64,
                 row->whole.min, row->whole.max);
    } else if (row->kind == GM_ARG_WHOLES) {
        snprintf(expected, sizeof expected,
                 "whole numbers from %" PRIu64 " to %" PRIu64 " with commas between them",
                 row->whole.min, row->whole.max);
    } else if (row->kind == GM_ARG_TEXT) {
        size_t n = (size_t)snprintf(expected, sizeof expected, "one of");
        for (const char *const *one = row->choices; *one && n < sizeof expected; one++)
            n += (size_t)snprintf(expected + n, sizeof expected - n, "%s %s",
                                  one == row->choices ? "" : ",", *one);
    } else if (row->kind == GM_ARG_REAL) {
        snprintf(expected, sizeof expected, "a number from %g to %g", row->real.min, row->real.max);
    } else if (row->kind == GM_ARG_BIASES) {
        snprintf(expected, sizeof expected,
                 "a token id, =, and a number from %g to %g, as in 106=-5", row->real.min,
                 row->real.max);
    }
    return gm_args_refuse(cmd, "--%s is %.80s, expected %s", row->name, text, expected);
}

/* ---- the command line ------------------------------------------------------------------ */

typedef struct parser {
    const gm_command *cmd;
    int argc, at;
    char **argv;
    char *opts;
    gm_words *words;
    bool help; /* was asked for: the rest of the line does not matter */
} parser;

/* The row of an option spelled arg[0..len), NULL when there is none; *field is where its value goes. */
static const gm_argrow *row_find(const parser *p, const char *arg, size_t len, void **field)
{
    for (const gm_arggroup *g = p->cmd->groups; g->title; g++) {
        for (const gm_argrow *row = g->rows; row->name; row++) {
            *field = p->opts + g->offset + row->offset;
            if (arg[1] != '-'
                    ? row->letter && arg[1] == row->letter
                    : strlen(row->name) == len - 2 && memcmp(arg + 2, row->name, len - 2) == 0)
                return row;
        }
    }
    return NULL;
}

#define MAX_NAMES 64

/* Names what may have been meant: an option, or what the command takes without one. */
static int option_refuse(const gm_command *cmd, const char *arg)
{
    char name[40], names[MAX_NAMES][40];
    const char *at[MAX_NAMES];
    size_t n = 0;
    for (const gm_arggroup *g = cmd->groups; g->title; g++) {
        for (const gm_argrow *row = g->rows; row->name && n + 1 < MAX_NAMES; row++) {
            snprintf(names[n], sizeof names[n], "--%s", row->name);
            at[n] = names[n];
            n++;
        }
    }
    const char *const words = cmd->words ? cmd->words : "";
    const char *const first = words + strcspn(words, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    snprintf(names[n], sizeof names[n], "%.*s", (int)strcspn(first, " ]"), first);
    at[n] = names[n];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
    const char *const meant = gm_hint_find(name, at, n + 1);
    if (meant == at[n])
        return gm_args_refuse(cmd, "unknown option %.80s; %s needs none before it", arg, meant);
    if (meant) return gm_args_refuse(cmd, "unknown option %.80s; did you mean %s?", arg, meant);
    return gm_args_refuse(cmd, "unknown option %.80s", arg);
}

static int parse_option(parser *p, const char *arg)
{
    const bool is_long = arg[1] == '-';
    const size_t len = is_long ? strcspn(arg, "=") : 2;
    void *field = NULL;
    const gm_argrow *const row = row_find(p, arg, len, &field);
    if (!row || (!is_long && row->kind == GM_ARG_FLAG && arg[2])) return option_refuse(p->cmd, arg);
    const char *value = arg[len] ? arg + len + is_long : NULL;
    if (row->kind == GM_ARG_FLAG) {
        if (value) return gm_args_refuse(p->cmd, "--%s takes no value", row->name);
        p->help = row->letter == 'h';
    } else if (!value) {
        if (p->at == p->argc)
            return gm_args_refuse(p->cmd, "--%s needs a value: %s", row->name, row->value);
        value = p->argv[p->at++];
    }
    return value_read(row, value, field) ? GM_EXIT_OK : value_refuse(p->cmd, row, value);
}

static int parse_all(parser *p)
{
    bool options = true;
    int code = GM_EXIT_OK;
    while (p->at < p->argc && code == GM_EXIT_OK && !p->help) {
        const char *const arg = p->argv[p->at++];
        if (!options || arg[0] != '-' || arg[1] == '\0')
            p->words->at[p->words->n++] = arg;
        else if (strcmp(arg, "--") == 0)
            options = false;
        else
            code = parse_option(p, arg);
    }
    return code;
}

/* What the command cannot do without. */
static int check_needs(const parser *p)
{
    const size_t n = p->words->n;
    const size_t need = p->cmd->n_words;
    if (need == 0 || n == need || (n == 0 && p->cmd->may_lack_it)) return GM_EXIT_OK;
    if (n == 0)
        return gm_args_refuse(p->cmd, "%s %s missing", p->cmd->words, need == 1 ? "is" : "are");
    return gm_args_refuse(p->cmd, "%zu word%s given, expected %zu: %s", n, n == 1 ? " is" : "s are",
                          need, p->cmd->words);
}

int gm_args_no_words(const gm_command *cmd, const gm_words *words, const char *expected)
{
    if (words->n == 0) return GM_EXIT_OK;
    return gm_args_refuse(cmd, "there is a word, %.80s; %s", words->at[0], expected);
}

int gm_args_parse(const gm_command *cmd, int argc, char **argv, void *opts, gm_words *words,
                  bool *help)
{
    words->at = gm_need(calloc((size_t)argc + 1, sizeof *words->at));
    parser p = {.cmd = cmd, .argc = argc, .argv = argv, .opts = opts, .words = words};
    const int code = parse_all(&p);
    *help = p.help;
    return code != GM_EXIT_OK || p.help ? code : check_needs(&p);
}

void gm_args_free(const gm_command *cmd, void *opts, gm_words *words)
{
    for (const gm_arggroup *g = cmd->groups; g->title; g++) {
        for (const gm_argrow *row = g->rows; row->name; row++) {
            const bool is_list = row->kind == GM_ARG_TEXTS || row->kind == GM_ARG_IDS ||
                                 row->kind == GM_ARG_WHOLES || row->kind == GM_ARG_BIASES;
            gm_arglist *const list = (void *)((char *)opts + g->offset + row->offset);
            if (is_list) free(list->at);
        }
    }
    free(words->at);
}

/* ---- help ------------------------------------------------------------------------------ */

#define HELP_COLUMN 32

/* The lines of text, each behind `indent` blanks; the first where the cursor is. */
static void print_lines(const char *text, int indent)
{
    for (const char *p = text; *p;) {
        const int len = (int)strcspn(p, "\n");
        gm_out_printf("%*s%.*s\n", p == text ? 0 : indent, "", len, p);
        p += len + (p[len] == '\n');
    }
}

static void print_row(const gm_argrow *row)
{
    char spelling[80];
    const char letter[] = {'-', row->letter, ',', ' ', '\0'};
    const int n = snprintf(spelling, sizeof spelling, "  %s--%s%s%s", row->letter ? letter : "    ",
                           row->name, row->value ? " " : "", row->value ? row->value : "");
    gm_out_printf("%-*s%s", HELP_COLUMN, spelling, n < HELP_COLUMN ? "" : "  ");
    print_lines(row->help, HELP_COLUMN);
}

void gm_args_help(const gm_command *cmd)
{
    gm_out_printf("gemmule %s: %s\n\nUsage: gemmule %s [options]%s%s\n\n", cmd->name, cmd->summary,
                  cmd->name, cmd->words ? " " : "", cmd->words ? cmd->words : "");
    print_lines(cmd->about, 0);
    for (const gm_arggroup *g = cmd->groups; g->title; g++) {
        gm_out_printf("\n%s:\n", g->title);
        for (const gm_argrow *row = g->rows; row->name; row++)
            print_row(row);
    }
    gm_out_printf("\nExamples:\n  ");
    print_lines(cmd->examples, 2);
    gm_out_printf("\nExit status: 0 %s, 1 refused or failed, 2 a mistake on the command line%s.\n",
                  cmd->until_told ? "ended by a signal" : "done",
                  cmd->until_told ? "" : ",\n130 stopped by Ctrl-C");
}
