/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_TICKETS_H
#define GM_BACKEND_TICKETS_H

/* Steps that were handed over and not yet waited for, for backends that compute when
 * they are waited for. All-zero has none. */

#include "backend/backend.h"

typedef struct gm_tickets {
    gm_ticket n_run, n_waited; /* handed out, and answered */
    struct {
        gm_exec *ex;
        const gm_step *step;
    } at[GM_TICKETS];
} gm_tickets;

/* Keeps a step; refuses one more than GM_TICKETS. */
gm_status gm_tickets_put(gm_tickets *t, gm_exec *ex, const gm_step *step, gm_ticket *out,
                         gm_err *err);

/* Gives the step of a ticket, which must be the oldest. */
gm_status gm_tickets_take(gm_tickets *t, gm_ticket ticket, gm_exec **ex, const gm_step **step,
                          gm_err *err);

#endif
