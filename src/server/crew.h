/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_CREW_H
#define GM_SERVER_CREW_H

/* A few threads that take exchanges from a queue, first come first served. */

#include "server/exchange.h"

#define GM_CREW_MAX 4

typedef struct gm_crew {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    gm_exchange *first, *last;
    bool stopping;
    void (*work)(gm_exchange *x);
    pthread_t threads[GM_CREW_MAX];
    uint32_t n;
} gm_crew;

gm_status gm_crew_init(gm_crew *c, uint32_t n, void (*work)(gm_exchange *x), gm_err *err);
void gm_crew_put(gm_crew *c, gm_exchange *x);
/* Finishes what is in the queue. All-zero is fine. */
void gm_crew_deinit(gm_crew *c);

#endif
