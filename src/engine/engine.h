/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_ENGINE_H
#define GM_ENGINE_ENGINE_H

/* The engine: one thread that owns a runner, the KV pages and the sequences, and
 * turns requests into tokens. Clients meet it in two places only: the queue of new
 * requests and each request's ring of events, both under `lock`. */

#include "engine/place.h"
#include "engine/seq.h"
#include "engine/store.h"

/* What of a step is a sequence's; of a slot whose sequence has no rows in it, or is gone, all zero. */
typedef struct gm_part {
    gm_request *seq;
    uint32_t n; /* rows                           */
    bool draws; /* the last of them draws the next token */
} gm_part;

/* Which token an output tells of. */
typedef struct gm_outof {
    uint32_t slot, pos;
} gm_outof;

/* A step and whose it is: being filled, or under way. */
typedef struct gm_turn {
    gm_step *step;
    gm_part *part;    /* [n_slots] */
    gm_outof *out_of; /* [limits.outs] of each of the step's outputs */
    gm_ticket ticket;
    gm_status status; /* of handing it over, and what went wrong then */
    gm_err err;
    double start_s; /* when that was */
} gm_turn;

struct gm_engine {
    const gm_model *model;
    gm_engine_opts
        opts; /* all zero but for what lives as long as the engine: gm_store_open's, note */
    uint32_t max_queue; /* 0: any number */
    gm_store store;
    const char *device; /* its name, of the place's arena; "" where there is none */
    bool cache;         /* beginnings are kept after their requests are closed */
    size_t longest;     /* bytes that one token can add to a text */
    double patience_s;  /* that a reader may be behind while others wait for its slot */

    /* engine thread */
    gm_place place;
    gm_turn turns[GM_TICKETS];
    gm_turn *turn;      /* that is filled next                             */
    gm_turn *under_way; /* that was handed over and not yet waited for, or NULL */
    gm_request **slot;  /* [n_slots] the sequence in each, or NULL         */
    uint32_t slot_next; /* where the scheduler begins, one further each turn */
    double answered_s;  /* when the last step was                          */
    double decode_us;   /* what a step of answers alone takes, smoothed    */
    double row_us;      /* what one more row of a prompt adds, smoothed    */
    gm_err lost;        /* by which step the device was lost, until it is opened again */

    /* shared, under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;           /* a request came, room was made, or it is time to stop */
    gm_request *queue;             /* oldest first; with those that were set aside */
    uint32_t n_queued;             /* without those                                */
    gm_beginning *kept;            /* of finished requests; longest unused first */
    uint32_t reserved[GM_CLASSES]; /* pages that running requests may come to hold */
    uint32_t n_active;             /* sequences in slots */
    bool stopping;
    gm_engine_stats stats; /* sums since the start; the rest is filled in when asked for */

    pthread_t thread;
    bool has_thread;
    _Atomic(gm_request *) sole; /* who has the running step alone, or NULL       */
    atomic_int abandon;         /* asks that step to end early                   */
};

/* sched.c: fills e->turn from the sequences that can go on; false when there is none. */
bool gm_sched_fill(gm_engine *e);
/* The same, of what can be told to come behind a step that is under way: the next tokens of those that
 * draw one in it, whatever that will be. False where that is not worth it, or somebody else would have
 * to wait. */
bool gm_sched_fill_ahead(gm_engine *e, const gm_turn *before);
/* Learns from the time that a step took. */
void gm_sched_learn(gm_engine *e, const gm_turn *t, double us);

/* recover.c: opens the lost device again, with everything that was on it but for the KV cache: every
 * sequence that runs is to be computed again, from its tokens. The lock is given up meanwhile. Where it
 * fails, it may be tried once more; GM_E_CANCEL when nobody waits for it. */
gm_status gm_recover(gm_engine *e, gm_err *err);

#endif
