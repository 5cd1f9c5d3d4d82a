/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_ROUTER_H
#define GM_SERVER_ROUTER_H

/* Which function answers which path. An endpoint is one route_*.c and one row. */

#include "server/exchange.h"

struct gm_route {
    const char *path;               /* with a '*' at the end: whatever follows is x->rest      */
    const char *method;             /* "GET" (HEAD too) or "POST"                              */
    bool open;                      /* needs no key                                            */
    bool early;                     /* is answered while the model loads                       */
    void (*answer)(gm_exchange *x); /* fills x->reply or x->gen; a worker calls POSTs,
                                       the I/O thread the others                   */
};

/* The route for a path and method; NULL after filling x->reply with 404, 405 or what OPTIONS
 * gets. */
const gm_route *gm_router_find(gm_exchange *x);

void gm_route_chat(gm_exchange *x);
void gm_route_completions(gm_exchange *x);
void gm_route_models(gm_exchange *x);
void gm_route_model(gm_exchange *x);
void gm_route_tokenize(gm_exchange *x);
void gm_route_detokenize(gm_exchange *x);
void gm_route_health(gm_exchange *x);
void gm_route_props(gm_exchange *x);
void gm_route_metrics(gm_exchange *x);

#endif
