/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_HISTORY_H
#define GM_PROGRAMS_HISTORY_H

/* What was typed at the prompt, for the arrow keys now and the next time. It is kept
 * in $XDG_STATE_HOME/gemmule/history, or ~/.local/state/gemmule/history, for the
 * user's eyes only. A file that cannot be kept is said once and is no failure: the
 * lines of this time are remembered in any case. */

#include <histedit.h>
#include <stdbool.h>

/* All-zero is a closed one. */
typedef struct gm_history {
    History *lines;
    char *path; /* NULL where no file is kept */
} gm_history;

/* Makes the folders and reads the file, unless in_file is false. */
void gm_history_open(gm_history *h, bool in_file);
/* Adds what was typed and writes the file. */
void gm_history_add(gm_history *h, const char *text);
void gm_history_close(gm_history *h);

#endif
