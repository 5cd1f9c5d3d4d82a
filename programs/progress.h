/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_PROGRESS_H
#define GM_PROGRAMS_PROGRESS_H

/* A bar on standard error, where that is a terminal, for work that is counted in
 * bytes and that Ctrl-C stops. */

#include <stdbool.h>
#include <stdint.h>

typedef struct gm_bar {
    bool shown; /* standard error is a terminal */
    double start_s, drawn_s;
    uint64_t total;
} gm_bar;

gm_bar gm_bar_begin(void);

/* A gm_progress_fn whose ctx is a gm_bar: draws, and says stop after a Ctrl-C. */
int gm_bar_tell(void *ctx, uint64_t done, uint64_t total);

/* Seconds since it began. */
double gm_bar_seconds(const gm_bar *b);

/* Clears the line, before anything else is said. */
void gm_bar_erase(const gm_bar *b);

#endif
