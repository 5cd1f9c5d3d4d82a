/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_METRICS_H
#define GM_SERVER_METRICS_H

/* Counts of what the server did, in the text format that Prometheus reads. Any
 * thread; all-zero is a fresh one. */

#include <stdatomic.h>

#include "server/exchange.h"

#define GM_HISTOGRAM_BOUNDS 16

typedef struct gm_histogram {
    _Atomic uint64_t buckets[GM_HISTOGRAM_BOUNDS + 1]; /* the last: above all bounds */
    _Atomic uint64_t sum_us;
} gm_histogram;

typedef struct gm_metrics {
    gm_histogram first_token, next_token, queue, request; /* seconds                         */
    _Atomic uint64_t by_status[6];                        /* exchanges: 0: none sent, 2: 2xx */
    _Atomic uint64_t n_full;                              /* refused because the queue was   */
    _Atomic uint64_t n_cancelled, n_late;                 /* clients that left; out of time  */
} gm_metrics;

/* A token: wait_s is what passed before its prompt was begun, last_s the decode_s of the token
 * before it (0: it is the first). */
void gm_metrics_token(gm_metrics *m, const gm_event *ev, double wait_s, double last_s);
/* An exchange that is over. */
void gm_metrics_exchange(gm_metrics *m, const gm_exchange *x, double seconds);

/* Everything, with the engine's counts and the machine's readings. */
void gm_metrics_render(gm_server *s, gm_strbuf *out);

#endif
