/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_CONSOLE_H
#define GM_PROGRAMS_CONSOLE_H

/* Where a conversation's messages come from. At a terminal there is a prompt, keys to
 * edit the line with, and a history; a message may have several lines, when a line
 * ends in a backslash or text with newlines is pasted. A pipe or a file is read line
 * by line, with nothing printed; there too a backslash at the end joins the next. */

#include <histedit.h>
#include <stdbool.h>

#include "history.h"
#include "output.h"

/* What gm_console_read has met. */
typedef enum gm_heard {
    GM_HEARD_MESSAGE = 1,
    GM_HEARD_INTERRUPT, /* Ctrl-C at an empty prompt; with something typed, it only takes that back */
    GM_HEARD_END,
    GM_HEARD_FAILURE, /* which has been said */
} gm_heard;

/* All-zero is a closed one. */
typedef struct gm_console {
    bool terminal; /* standard input and output are one */
    bool paste;    /* the terminal is asked to mark what is pasted */
    bool going_on; /* the line to be read belongs to the message before it */
    bool interrupted;
    EditLine *editor; /* at a terminal only, as is the history */
    gm_history history;
} gm_console;

/* Looks where the messages will come from; in_file says whether the history is kept. The console
 * stays where it is until it is closed. Answers an exit code. */
int gm_console_open(gm_console *c, bool in_file);
/* The next message, whose bytes replace those of *out, with a NUL behind them; never only white
 * space. */
gm_heard gm_console_read(gm_console *c, gm_bytes *out);
void gm_console_close(gm_console *c);

#endif
