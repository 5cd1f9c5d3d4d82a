/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_ARGS_H
#define GM_PROGRAMS_ARGS_H

/* The command line as tables.
 *
 * A command has groups of options; a group has rows, one an option. A row says
 * how the option is spelled, what its value must be, where the value goes (an
 * offset into the command's own struct of options), and what --help says of it.
 * The parser and the help are both made from the rows, so they cannot differ, and
 * a group that several commands share is written once.
 *
 *     --name value, --name=value, -x value, -xvalue; options and words in any order;
 *     after -- everything is a word */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GM_EXIT_OK = 0, GM_EXIT_FAILED = 1, GM_EXIT_USAGE = 2, GM_EXIT_INTERRUPTED = 130 };

/* What an option's value is, and the type of the field that it goes to. */
typedef enum gm_argkind {
    GM_ARG_FLAG = 1, /* no value; bool                                       */
    GM_ARG_TEXT,     /* const char *                                         */
    GM_ARG_TEXTS,    /* gm_arglist of const char *, one for each time given  */
    GM_ARG_WHOLE,    /* gm_argnum.whole, within row.whole                    */
    GM_ARG_REAL,     /* gm_argnum.real, within row.real                      */
    GM_ARG_IDS,      /* gm_arglist of int32_t: "2,5,7"                       */
    GM_ARG_WHOLES,   /* gm_arglist of uint32_t, each within row.whole: "1,8" */
    GM_ARG_BIASES,   /* gm_arglist of gm_bias, one for each time given       */
} gm_argkind;

typedef struct gm_argnum {
    bool given;
    uint64_t whole;
    double real;
} gm_argnum;

typedef struct gm_arglist {
    void *at;
    size_t n;
} gm_arglist;

typedef struct gm_argrow {
    char letter;       /* 'm' for -m; 0 for none          */
    const char *name;  /* "model" for --model             */
    const char *value; /* the value's name in the help    */
    gm_argkind kind;
    size_t offset; /* of the field in the group's struct  */
    struct {
        uint64_t min, max;
    } whole;
    struct {
        double min, max;
    } real;
    const char *const *choices; /* of a GM_ARG_TEXT: all that it may be, in capitals or not, with a
                                   NULL behind them; NULL: anything                             */
    const char *help;           /* one line or several, parted by \n                        */
} gm_argrow;

typedef struct gm_arggroup {
    const char *title;
    const gm_argrow *rows; /* ends with a row that has no name            */
    size_t offset;         /* of the group's struct in the command's      */
} gm_arggroup;

/* The words that are no options. */
typedef struct gm_words {
    const char **at;
    size_t n;
} gm_words;

typedef struct gm_command gm_command;
struct gm_command {
    const char *name;
    const char *summary;       /* one line                                           */
    const char *words;         /* as usage names them: "FILE"; NULL: there are none  */
    const char *about;         /* what a user should know before the options; lines  */
    const char *examples;      /* lines that work as written                         */
    const gm_arggroup *groups; /* ends with a group that has no title                */
    size_t opts_size;          /* of the command's struct of options                 */
    size_t n_words;            /* takes exactly so many; 0: any number               */
    bool may_lack_it;          /* or none                                            */
    bool until_told;           /* Ctrl-C is how it ends: exit status 0               */
    int (*run)(const gm_command *self, const void *opts, const gm_words *words);
};

/* Reads argv[0..argc) into opts (opts_size zero bytes) and words (freed by gm_args_free, with the
 * lists in opts). Answers GM_EXIT_OK; or GM_EXIT_USAGE once the mistake has been said. *help is
 * true when the flag -h was met, after which nothing was looked at. */
int gm_args_parse(const gm_command *cmd, int argc, char **argv, void *opts, gm_words *words,
                  bool *help);
void gm_args_free(const gm_command *cmd, void *opts, gm_words *words);

/* Prints the command's help on standard output. */
void gm_args_help(const gm_command *cmd);

/* Says "gemmule: run: <what> (see gemmule run --help)" and answers GM_EXIT_USAGE. */
int gm_args_refuse(const gm_command *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* For commands that take no words: refuses any, and says what is expected. */
int gm_args_no_words(const gm_command *cmd, const gm_words *words, const char *expected);

#endif
