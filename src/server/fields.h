/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_FIELDS_H
#define GM_SERVER_FIELDS_H

/* The fields of a request's body: one table for all endpoints, of what is honoured
 * and what is refused. docs/HTTP.md has a row for each of its rows, which a test
 * compares. A field that is not in the table is refused by name. */

#include <jansson.h>
#include <stdbool.h>

#include "gemmule.h"

enum {
    GM_IN_CHAT = 1,
    GM_IN_COMPLETIONS = 2,
    GM_IN_TOKENIZE = 4,
    GM_IN_DETOKENIZE = 8,
};

#define GM_ASK_STOPS  16   /* stop strings of a request       */
#define GM_ASK_STOP   1024 /* bytes of a stop string         */
#define GM_ASK_BIASES 300  /* logit biases of a request       */
#define GM_ASK_TOP    20   /* candidates to report            */

/* The name of a field within another, "messages[0].role", as an error has it. What is too long is
 * cut between two characters. */
typedef struct gm_path {
    char text[128];
} gm_path;
void gm_path_set(gm_path *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a body asks for. Pointers go into the body. */
typedef struct gm_ask {
    const json_t *messages, *prompt, *tokens, *content, *stop, *logit_bias, *metadata,
        *stream_options;
    const char *model, *user, *safety_identifier, *cache_key;
    gm_sampling sampling;
    int64_t max_tokens, max_completion_tokens; /* -1: not given, like all whole numbers here */
    int64_t n, best_of, top_k, n_logprobs, n_top_logprobs;
    const json_t *seed;
    bool stream, echo, logprobs, ignore_eos, add_special, parse_special, with_pieces;

    /* made of the above by gm_ask_read */
    bool include_usage;
    uint32_t n_top; /* candidates to report */
    json_int_t seed_number;
    uint32_t n_stops, n_biases;
    const char *stops[GM_ASK_STOPS];
    gm_bias biases[GM_ASK_BIASES];
    gm_path path; /* of what is wrong within a field */
} gm_ask;

typedef enum gm_fieldkind {
    GM_FIELD_WHOLE = 1, /* int64_t within min and max           */
    GM_FIELD_REAL,      /* float within min and max             */
    GM_FIELD_FLAG,      /* bool                                 */
    GM_FIELD_TEXT,      /* const char * without NUL characters  */
    GM_FIELD_VALUE,     /* const json_t *: read further on      */
    GM_FIELD_REFUSED,   /* must be null, or one of `anyway`     */
} gm_fieldkind;

typedef struct gm_field {
    const char *name;
    uint32_t in; /* GM_IN_* */
    gm_fieldkind kind;
    size_t offset; /* in gm_ask */
    double min, max;
    const char *anyway; /* a JSON array of the one or two values that ask for what happens anyway;
                           no comma is in them */
} gm_field;

/* The table; NULL past the last row. */
const gm_field *gm_field_at(size_t i);

/* A whole number, also where it is written as a real one (1.0); false for anything else. */
bool gm_whole_read(const json_t *v, json_int_t *out);

/* Reads the body of an endpoint. m gives the sampling's defaults. On failure *param is the field's
 * name or path, which lives as long as body and a, or NULL. */
gm_status gm_ask_read(gm_ask *a, const json_t *body, uint32_t in, const gm_model *m,
                      const char **param, gm_err *err);

#endif
