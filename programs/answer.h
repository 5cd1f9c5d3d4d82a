/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_ANSWER_H
#define GM_PROGRAMS_ANSWER_H

/* One answer on its way out: written as it is made, or for --json kept until the
 * end. Standard output then has the answer and a newline, or one object on one
 * line. */

#include "session.h"

/* All-zero, but for the first three, before the answer begins. */
typedef struct gm_answer {
    bool json; /* instead of text                                        */
    bool keep; /* the text, which json does anyway                       */
    uint64_t seed;
    gm_bytes text; /* where it is kept; free it with gm_bytes_free           */
    gm_event end;  /* the last event; its pointers are not valid any more    */
    bool cut;      /* the context was full before the answer's end           */
    bool hashed;   /* a hash of its logits was asked for                     */
    uint64_t hash;
    char last; /* byte of the text                                       */
} gm_answer;

/* Asks, and gives out the answer until it ends. Answers an exit code: GM_EXIT_INTERRUPTED after a
 * Ctrl-C, when the answer is there as far as it came. No request is left open. */
int gm_answer_stream(gm_answer *a, gm_session *s, const gm_request_opts *opts);

/* Says of an answer that was cut that it was, why, and what helps: the advice, or --ctx. */
void gm_answer_say_cut(const gm_answer *a, const gm_session *s, const char *advice);

/* What -v says: facts that belong to every answer, and how fast this one was beside the roof, which
 * the first call measures (gm_session_measure). */
void gm_answer_say_facts(const gm_answer *a, gm_session *s);
/* Only how fast, with shares of the roof once it was measured, and the hash of the logits where it was asked for. */
void gm_answer_say_speed(const gm_answer *a, const gm_session *s);

#endif
