/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_SEQ_H
#define GM_ENGINE_SEQ_H

/* A sequence: one request while the engine works on it.
 *
 * The public gm_request is split in two by who may touch it. The sequence part
 * belongs to the engine thread from the moment it is taken until it is let go.
 * The mailbox (ring, end, failure) is shared and guarded by the engine's lock;
 * only whole events go through it. */

#include <pthread.h>
#include <stdatomic.h>

#include "engine/kv.h"
#include "engine/stops.h"
#include "model/model.h"
#include "plan/draw.h"
#include "text/detok.h"

#define GM_SEQ_RING 32 /* events a client may be behind before its sequence is parked */

/* What a file of the cache has of a beginning. */
typedef struct gm_filed {
    uint64_t name;   /* of the file, 0: there is none              */
    uint64_t size;   /* its bytes                                  */
    uint32_t n;      /* tokens in it                               */
    uint8_t *pages;  /* [table_len], bit c: the page of class c is in it */
    int64_t used_ns; /* when it was written, or what it has was used; since 1970 */
} gm_filed;

/* Tokens and the pages that hold them. A request has one while it runs, and leaves it behind. */
typedef struct gm_beginning gm_beginning;
struct gm_beginning {
    gm_beginning *next;      /* among the kept, longest unused first       */
    const gm_request *owner; /* whose end is its end too, or NULL          */
    gm_arena arena;
    int32_t *ids; /* [n_prompt + what may be answered]          */
    uint32_t n;   /* how many are in the KV cache               */
    bool saved;   /* it is on disk, or that was tried           */
    gm_filed filed;
    gm_kvtable table;
};
/* A beginning without tokens or pages, with room for n tokens and a table of the pool's. On failure
 * what there is of it is to be freed. */
gm_status gm_beginning_open(gm_beginning **out, const gm_kvpool *pool, uint32_t n, gm_err *err);
void gm_beginning_free(gm_beginning *b); /* NULL is fine; the pages have been given back */

/* One event in the ring, with room for its text and candidates. */
typedef struct gm_mail {
    gm_event ev; /* text and top point into the two below */
    gm_strbuf text;
    gm_candidate *top; /* [n_top] */
} gm_mail;

struct gm_request {
    gm_engine *engine;
    gm_arena arena;
    gm_request *next; /* in the engine's queue */

    /* set at open, constant after */
    uint32_t n_prompt, max_answer, n_top, flags;
    gm_draw draw;
    gm_bias *bias;
    uint32_t n_bias;
    uint32_t n_ring;
    void (*wake)(void *ctx);
    void *wake_ctx;
    const void *group; /* whose answer it is; its own address where it is nobody else's */
    double open_s;

    /* engine thread */
    gm_beginning *begin;       /* until it is let go                            */
    int32_t *ids;              /* begin's: the engine appends                   */
    uint32_t need[GM_CLASSES]; /* pages that it may come to hold          */
    uint32_t slot;
    uint32_t n_ids;    /* known: prompt and answer                     */
    uint32_t n_done;   /* of these, how many are in the KV cache       */
    uint32_t n_cached; /* tokens of the prompt that another request had computed */
    bool begun;        /* the slot has its draw parameters             */
    bool aside;        /* it had a slot, and waits for its reader      */
    bool lost;         /* its step was lost, and no event came since   */
    gm_detok detok;
    gm_stops stops;
    gm_strbuf piece;             /* text of the token at hand                    */
    uint32_t *order;             /* [n_vocab] scratch for candidates, or NULL    */
    double start_s, prefilled_s; /* taken from the queue; first token drawn; 0: not yet */
    double put_s;                /* the last event                               */

    /* mailbox, under the engine's lock */
    pthread_cond_t news;
    gm_mail *ring;           /* [n_ring] */
    uint32_t n_put, n_taken; /* events since the start; the one being read is not taken yet */
    bool reading;            /* the client holds ring[n_taken] */
    gm_event end;            /* kind GM_EVENT_END once over */
    gm_err failed;
    bool let_go; /* the engine will not touch this again */

    atomic_int cancelled;
};

/* Checks and copies the options; neither the engine's lock nor its thread is involved. */
gm_status gm_seq_open(gm_request **out, gm_engine *e, const gm_request_opts *opts, gm_err *err);
/* What of it open would refuse. */
gm_status gm_seq_check(const gm_engine *e, const gm_request_opts *opts, gm_draw *draw, gm_err *err);
void gm_seq_free(gm_request *r);

/* Puts a request at the end of a queue. Under the lock. */
void gm_queue_put(gm_request **queue, gm_request *r);

/* The client is told that there is news. Under the lock. */
void gm_seq_tell(gm_request *r);

/* Bytes that one token can add to the text at most. */
size_t gm_seq_longest(const gm_vocab *v);

/* Room for events, of which one is enough to go on. Under the lock. */
uint32_t gm_seq_room(const gm_request *r);
static inline bool gm_seq_has_room(const gm_request *r)
{
    return gm_seq_room(r) > 0;
}

/* Whether more than the next token is to be computed of it. */
static inline bool gm_seq_is_behind(const gm_request *r)
{
    return r->n_done < r->n_prompt || r->n_done + 1 < r->n_ids;
}

/* What a drawn token means for the sequence. */
typedef struct gm_seq_news {
    int32_t token;
    float logprob;
    uint32_t n_top;
    const gm_candidate *top; /* from the backend, or NULL      */
    const float *logits;     /* for more candidates and hash   */
} gm_seq_news;

/* Whether it wants no answer, and has all that it wants of the prompt. */
bool gm_seq_is_read(const gm_request *r);

/* Puts the event of a token of the prompt into the ring. Under the lock, with room made sure of. */
void gm_seq_prompt(gm_request *r, const gm_vocab *v, const gm_seq_news *news);

/* Puts the event of a token into the ring; answers the reason why the answer is over, or 0. The
 * caller holds the lock and has made sure of room. */
int32_t gm_seq_token(gm_request *r, const gm_vocab *v, const gm_seq_news *news);

/* An event's counts and times, as they are now. Under the lock. */
void gm_seq_count(const gm_request *r, gm_event *ev);

/* Ends the sequence for that reason; text held back goes with the end. Under the lock. */
void gm_seq_end(gm_request *r, int32_t reason);
void gm_seq_fail(gm_request *r, const gm_err *err);

#endif
