/* SPDX-License-Identifier: MIT */
/* The file is written anew after each message, not at the end, since a terminal that
 * is closed leaves no time for it; a thousand lines are written faster than a key is
 * felt. It is read again before, under a lock, so that chats side by side keep each
 * other's lines. libedit has the format, in which a message of several lines is one. */

#include "history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "userdir.h"

#define LINES_MAX 1000

static void drop_file(gm_history *h, const char *why)
{
    gm_say_note("%s: %s, so what you type is not kept (--no-history: never)",
                h->path ? h->path : "the history", why);
    free(h->path);
    h->path = NULL;
}

void gm_history_open(gm_history *h, bool in_file)
{
    HistEvent ev;
    h->lines = gm_need(history_init());
    history(h->lines, &ev, H_SETSIZE, LINES_MAX);
    history(h->lines, &ev, H_SETUNIQUE, 1);
    if (!in_file) return;
    h->path = gm_userdir_path("XDG_STATE_HOME", "/.local/state", "/gemmule/history");
    if (!h->path) {
        drop_file(h, "neither XDG_STATE_HOME nor HOME names a folder");
        return;
    }
    gm_userdir_make(h->path);
    struct stat st;
    const bool is_new = stat(h->path, &st) != 0 || (S_ISREG(st.st_mode) && st.st_size == 0);
    errno = 0;
    if (!is_new && history(h->lines, &ev, H_LOAD, h->path) < 0)
        drop_file(h, errno ? strerror(errno) : "this is no history file");
}

/* Adds the text to the file's lines, which become ours; false when the file cannot be kept. */
static bool add_in_file(const gm_history *h, const char *text)
{
    HistEvent ev;
    FILE *const file = fopen(h->path, "a+");
    if (!file || flock(fileno(file), LOCK_EX) != 0) {
        if (file) fclose(file);
        return false;
    }
    struct stat st;
    if (fstat(fileno(file), &st) == 0 && st.st_size > 0) {
        history(h->lines, &ev, H_CLEAR);
        history(h->lines, &ev, H_LOAD, h->path);
    }
    history(h->lines, &ev, H_ENTER, text);
    const bool written = ftruncate(fileno(file), 0) == 0 &&
                         history(h->lines, &ev, H_SAVE_FP, file) >= 0 && !ferror(file);
    return fclose(file) == 0 && written;
}

void gm_history_add(gm_history *h, const char *text)
{
    HistEvent ev;
    if (h->path && add_in_file(h, text)) return;
    if (h->path) drop_file(h, strerror(errno));
    history(h->lines, &ev, H_ENTER, text);
}

void gm_history_close(gm_history *h)
{
    if (h->lines) history_end(h->lines);
    free(h->path);
    *h = (gm_history){0};
}
