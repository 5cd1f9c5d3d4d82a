/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_INTERRUPT_H
#define GM_PROGRAMS_INTERRUPT_H

/* Ctrl-C. It ends the process at once, with exit code 130, except while a command
 * has said that it will end by itself: then the first one is only noted (and
 * cancels a request), and the second ends the process. Of a conversation at a
 * terminal it ends nothing but the answer, however often it is pressed.
 *
 * SIGTERM and SIGHUP end the process at once, except during work that is held without
 * a request: that is cancelled first, so that it can clean up. */

#include <stdbool.h>

#include "gemmule.h"

/* Call once, before any thread is started. False when the system refuses. */
bool gm_interrupt_watch(void);
/* From here on Ctrl-C never ends the process; where nobody holds it, it is forgotten. */
void gm_interrupt_survive(void);

/* From here on the signals do nothing by themselves: gm_interrupt_next gives them out, one at a
 * time, or 0 when none came for so long. */
void gm_interrupt_hand(void);
int gm_interrupt_next(double seconds);

/* From here on Ctrl-C is noted, and cancels r where it is not NULL. */
void gm_interrupt_hold(gm_request *r);
/* No more; answers whether there was one since hold. Call it before r is closed. */
bool gm_interrupt_release(void);
/* Whether there was one since hold; any thread. */
bool gm_interrupt_seen(void);

#endif
