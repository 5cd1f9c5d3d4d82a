/* SPDX-License-Identifier: MIT */
#include "backend/tickets.h"

gm_status gm_tickets_put(gm_tickets *t, gm_exec *ex, const gm_step *step, gm_ticket *out,
                         gm_err *err)
{
    if (t->n_run - t->n_waited >= GM_TICKETS)
        return gm_fail(err, GM_E_ARG, 0, "step: %d steps are under way already", GM_TICKETS);
    t->at[t->n_run % GM_TICKETS].ex = ex;
    t->at[t->n_run % GM_TICKETS].step = step;
    *out = ++t->n_run;
    return GM_OK;
}

gm_status gm_tickets_take(gm_tickets *t, gm_ticket ticket, gm_exec **ex, const gm_step **step,
                          gm_err *err)
{
    if (ticket != t->n_waited + 1 || ticket > t->n_run)
        return gm_fail(err, GM_E_ARG, 0, "step: waited for out of order");
    *ex = t->at[t->n_waited % GM_TICKETS].ex;
    *step = t->at[t->n_waited % GM_TICKETS].step;
    t->n_waited++;
    return GM_OK;
}
