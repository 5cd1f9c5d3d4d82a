/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_ENGINE_H
#define GM_ENGINE_ENGINE_H

/* The engine: one thread that owns a runner, the KV pages and the sequences, and
 * turns requests into tokens. Clients meet it in two places only: the queue of new
 * requests and each request's ring of events, both under `lock`. */

#include "engine/place.h"
#include "engine/seq.h"
#include "engine/store.h"

/* Whose an output is, and the position of the token that it tells of. */
typedef struct gm_outof {
    gm_request *seq;
    uint32_t pos;
} gm_outof;

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
    gm_step *step;
    gm_request **slot;  /* [n_slots] the sequence in each, or NULL         */
    gm_outof *out_of;   /* [limits.outs] whose each of the step's outputs is */
    uint32_t slot_next; /* where the scheduler begins, one further each turn */
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

/* sched.c: fills e->step from the sequences that can go on; false when there is none. */
bool gm_sched_fill(gm_engine *e);
/* Learns from the time that the step took. */
void gm_sched_learn(gm_engine *e, double us);

/* recover.c: opens the lost device again, with everything that was on it but for the KV cache: every
 * sequence that runs is to be computed again, from its tokens. The lock is given up meanwhile. Where it
 * fails, it may be tried once more; GM_E_CANCEL when nobody waits for it. */
gm_status gm_recover(gm_engine *e, gm_err *err);

#endif
