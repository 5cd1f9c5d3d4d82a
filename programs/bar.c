/* SPDX-License-Identifier: MIT */
#include "bar.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "interrupt.h"
#include "output.h"

#define BAR_WIDTH  30
#define LINE_WIDTH 120 /* that is ever drawn */
#define DRAW_EVERY 0.1 /* seconds */

static atomic_bool on_screen; /* of whichever bar: notes come from any thread */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One less than the window is wide, or the cursor would be in the next line. */
static int window_width(void)
{
    struct winsize w;
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    return known && w.ws_col <= LINE_WIDTH ? w.ws_col - 1 : LINE_WIDTH;
}

static void draw(gm_bar *b, uint64_t done, double now)
{
    char bytes[16], speed[16], line[LINE_WIDTH + 1], sizes[40] = "";
    const double share = (double)done / (double)b->total;
    const int filled = (int)(share * BAR_WIDTH);
    b->drawn = true;
    b->drawn_s = now;
    atomic_store(&on_screen, true);
    if (!b->no_bytes)
        snprintf(sizes, sizeof sizes, " %s %s/s", gm_size_text(done, bytes),
                 gm_size_text((uint64_t)((double)done / (now - b->phase_s + 1e-9)), speed));
    snprintf(line, sizeof line, "%s [%.*s%*s] %3.0f%%%s", b->what, filled,
             "==============================", BAR_WIDTH - filled, "", 100 * share, sizes);
    fprintf(stderr, "\r%.*s\033[K", window_width(), line);
}

static bool can_show(void)
{
    const char *const terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
}

void gm_bar_begin(gm_bar *b, const char *what)
{
    const double now = now_s();
    *b = (gm_bar){.title = what, .what = what, .shown = can_show(), .start_s = now, .phase_s = now};
    gm_interrupt_hold(NULL);
}

void gm_bar_show(gm_bar *b)
{
    if (b->shown) fprintf(stderr, "\r%.*s ...\033[K", window_width() - 4, b->what);
    b->drawn = b->shown;
    if (b->shown) atomic_store(&on_screen, true);
}

void gm_bar_clear(void)
{
    if (atomic_exchange(&on_screen, false)) fputs("\r\033[K", stderr);
}

/* `counted` is told of no bytes. */
static int tell_phase(gm_bar *b, const char *what, bool counted, uint64_t done, uint64_t total)
{
    const double now = now_s();
    if (strcmp(what, b->what) != 0) b->phase_s = now;
    b->what = what;
    b->no_bytes = counted;
    b->total = total;
    if (b->shown && done < total && now - b->drawn_s >= DRAW_EVERY) draw(b, done, now);
    if (b->drawn && done == total) gm_bar_show(b);
    return gm_interrupt_seen();
}

int gm_bar_tell(void *bar, uint64_t done, uint64_t total)
{
    gm_bar *const b = bar;
    return tell_phase(b, b->title, false, done, total);
}

int gm_bar_tell_checks(void *bar, uint64_t done, uint64_t total)
{
    return tell_phase(bar, "checking kernels", true, done, total);
}

int gm_bar_tell_tries(void *bar, uint64_t done, uint64_t total)
{
    return tell_phase(bar, "trying kernels", true, done, total);
}

double gm_bar_seconds(const gm_bar *b)
{
    return now_s() - b->start_s;
}

bool gm_bar_end(gm_bar *b)
{
    if (b->drawn) gm_bar_clear();
    return gm_interrupt_release();
}
