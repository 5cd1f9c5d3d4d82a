/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_STATE_H
#define GM_SERVER_STATE_H

/* The server as its own parts see it. */

#include "server/crew.h"
#include "server/keys.h"
#include "server/loop.h"
#include "server/metrics.h"
#include "server/watcher.h"

#define GM_SERVER_BODY_MAX     (16u << 20)  /* bytes of a request's body                  */
#define GM_SERVER_BODY_LARGE   (64u << 10)  /* that others do not wait for                */
#define GM_SERVER_BODIES_MAX   (256u << 20) /* bytes of all bodies that wait to be read   */
#define GM_SERVER_REPLY_SMALL  (64u << 10)  /* bytes of a reply that does not count       */
#define GM_SERVER_REPLIES_MAX  (256u << 20) /* bytes of all others that are not sent yet  */
#define GM_SERVER_VALUES_MAX   300000       /* values in a body: each takes about 100 bytes */
#define GM_SERVER_HEAD_MAX     (32u << 10)  /* bytes of its headers, with what is noted of each */
#define GM_SERVER_POOL         (66u << 10)  /* for them, a reply that repeats them, and a reply */
#define GM_SERVER_CONNECTIONS  1000         /* at once, if there may be so many files     */
#define GM_SERVER_FILES        48           /* that are kept for everything else          */
#define GM_SERVER_MAX_CHOICES  128          /* answers to one request, all prompts of it  */
#define GM_SERVER_LOGPROBS_MAX 500000       /* in one reply: each takes about 70 bytes     */

struct gm_server {
    gm_server_opts opts;
    uint16_t port;
    int listen_fd;          /* -1 once it is closed */
    uint32_t n_connections; /* at once */
    bool loopback;          /* only this machine can reach it */
    gm_loop loop;
    gm_strbuf tls_cert, tls_key;
    gm_keys keys;
    gm_crew workers, porter, reaper; /* the porter reads large bodies, one after the other */
    gm_watcher watcher;
    gm_metrics metrics;
    double start_s;
    int64_t created; /* Unix time */

    /* set by gm_server_start, before `ready` */
    const gm_model *model;
    gm_engine *engine;
    gm_model_info info;
    char model_name[256];
    char fingerprint[64];

    atomic_int ready, stopping;
    _Atomic uint64_t load_done, load_total;

    pthread_mutex_t lock;
    pthread_cond_t idle;
    _Atomic size_t n_body;      /* bytes of bodies */
    _Atomic size_t n_replies;   /* bytes of replies */
    _Atomic size_t replies_max; /* of them          */
    uint32_t n_under_way;       /* exchanges from a worker's hands to the reaper's */
};

/* http.c: opens the port; the daemon's functions. */
gm_status gm_http_open(gm_server *s, gm_err *err);
void gm_http_close(gm_server *s);

/* record.c: the log line of a finished exchange. */
void gm_record_put(const gm_exchange *x, unsigned status, double seconds);

#endif
