/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_GENERATION_H
#define GM_SERVER_GENERATION_H

/* What the engine does for one exchange: a request for each choice, and the way
 * from their events to a stream or to one object. Of those requests one waits in the
 * engine's queue at a time, so that many choices keep nobody waiting longer than one
 * would. A worker opens it; the I/O thread
 * pumps it whenever there is news and the client can take more; the watcher may
 * cancel it; the reaper closes it.
 *
 * Chat and completions are two dialects: what they share is here and in openai.c,
 * what differs is in the table of functions that each of them gives. */

#include "server/exchange.h"
#include "server/fields.h"
#include "server/logprobs.h"

typedef struct gm_choice {
    _Atomic(gm_request *) request; /* NULL until it is its turn; who cancels may look any time */
    double open_s;                 /* when that was */
    uint32_t index;
    uint32_t prompt; /* which of the prompts                                      */
    bool begun;      /* what comes before the first token is known, and sent      */
    bool ended;
    gm_event end;          /* its counts; the text is in `text`                         */
    gm_strbuf text;        /* of a whole reply                                          */
    gm_logprobs logprobs;  /* that were not sent yet                                    */
    size_t n_drawn, n_out; /* bytes of the tokens' text, and of what came out of it     */
    gm_utf8_part drawn;    /* and behind the former the beginning of a character        */
    gm_event tallied;      /* the last event that is in the tally: its counts           */
} gm_choice;

/* What the answers to a prompt have in common. */
typedef struct gm_prompt {
    gm_ids ids;
    gm_text text;         /* as echo shows it                                           */
    uint32_t same;        /* the first of the prompts that is equal: it has all below   */
    bool begun, told;     /* the first of its tokens came; all of them did              */
    gm_logprobs logprobs; /* of its tokens, where they are wanted                       */
} gm_prompt;

typedef struct gm_dialect {
    const char *prompt;         /* the field that has what is asked                      */
    const char *object, *chunk; /* the "object" of a whole reply and of a stream's chunk */
    /* Adds one token's. */
    void (*logprobs_add)(gm_exchange *x, const gm_event *ev, gm_logprobs *to);
    /* Elements of "choices": what a stream's choice begins with (maybe nothing is written), what it has
     * in every chunk, and one of a whole reply. They have what c->logprobs has let out; the first and
     * the whole one also what the prompt has. */
    void (*first)(gm_exchange *x, gm_choice *c, gm_strbuf *out);
    void (*delta)(gm_exchange *x, gm_choice *c, gm_str text, const char *finish, gm_strbuf *out);
    void (*whole)(gm_exchange *x, gm_choice *c, gm_strbuf *out);
} gm_dialect;

struct gm_generation {
    const gm_dialect *dialect;
    gm_ask ask;
    uint32_t flags;     /* GM_REQUEST_*                    */
    int64_t created;    /* Unix time                       */
    gm_prompt *prompts; /* [n_prompts]                  */
    uint32_t n_prompts;
    gm_choice *choices; /* [n_prompts * ask.n]            */
    uint32_t n_choices, n_opened, n_ended;
    uint64_t seed;
    size_t n_bytes;    /* that are kept for the reply   */
    gm_text token;     /* scratch: a token's bytes       */
    gm_strbuf scratch; /* and the text that they make */
    bool finished;     /* of a stream: [DONE] is out     */
};

/* Reads the body into x->gen->ask, with no prompt yet; false after filling x->reply. */
bool gm_generation_read(gm_exchange *x, const gm_dialect *dialect, uint32_t in, const char *id);
/* Room for n prompts. */
bool gm_generation_prompts(gm_exchange *x, uint32_t n);
/* Hands the prompts to the engine. On failure fills x->reply. */
void gm_generation_start(gm_exchange *x);

/* What the answers to a choice's prompt, and to those that are equal, have in common. */
gm_prompt *gm_generation_prompt(const gm_generation *g, const gm_choice *c);

/* Takes events: into x->out where it streams, else into the choices and, at the end, x->reply. */
void gm_generation_pump(gm_exchange *x);
/* Its time is up, or its client has left: the tally gets how long it waited. Answers whether anything
 * was begun. */
bool gm_generation_tally_wait(gm_exchange *x);
/* The engine is to stop. Any thread, once x->worked is set. */
void gm_generation_cancel(gm_generation *g);
/* Waits for the engine to let go; NULL is fine. */
void gm_generation_close(gm_generation *g);

#endif
