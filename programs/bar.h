/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_BAR_H
#define GM_PROGRAMS_BAR_H

/* A progress bar on standard error, where that is a terminal; elsewhere nothing is
 * shown, nor at a terminal that cannot go back in its line (TERM=dumb), nor of work
 * that is done when it is first told of. While the work lasts, Ctrl-C cancels it.
 *
 *     gm_bar b;
 *     gm_bar_begin(&b, "loading");
 *     opts.progress = gm_bar_tell;  opts.progress_ctx = &b;
 *     status = ...;
 *     if (gm_bar_end(&b)) return GM_EXIT_INTERRUPTED; */

#include <stdbool.h>
#include <stdint.h>

typedef struct gm_bar {
    const char *title, *what; /* what it is of, and what stands before it now */
    bool shown;               /* standard error is a terminal that can show it */
    bool drawn;
    bool no_bytes; /* what it is told of is counted */
    double start_s, drawn_s;
    double phase_s; /* when what it is told of now began */
    uint64_t total; /* as it was told last */
} gm_bar;

/* `what` must live until the end. */
void gm_bar_begin(gm_bar *b, const char *what);
/* Shows "what ...", for work that tells nothing until it has ended. */
void gm_bar_show(gm_bar *b);
/* A gm_progress_fn. */
int gm_bar_tell(void *bar, uint64_t done, uint64_t total);
/* The same of kernels that are checked before a load, and tried after it, under the same bar. */
int gm_bar_tell_checks(void *bar, uint64_t done, uint64_t total);
int gm_bar_tell_tries(void *bar, uint64_t done, uint64_t total);
/* Erases whichever bar is there before a line is written; the next that it is told of draws it again.
 * Any thread. */
void gm_bar_clear(void);
/* Seconds since it began. */
double gm_bar_seconds(const gm_bar *b);
/* Erases the bar; answers whether there was a Ctrl-C. */
bool gm_bar_end(gm_bar *b);

#endif
