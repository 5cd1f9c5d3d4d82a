/* SPDX-License-Identifier: MIT */
#include "bar.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "interrupt.h"
#include "output.h"

#define BAR_WIDTH  30
#define DRAW_EVERY 0.1 /* seconds */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void draw(gm_bar *b, uint64_t done, double now)
{
    char bytes[16], speed[16];
    const double share = (double)done / (double)b->total;
    const int filled = (int)(share * BAR_WIDTH);
    b->drawn = true;
    b->drawn_s = now;
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f%% %s %s/s\033[K", b->what, filled,
            "==============================", BAR_WIDTH - filled, "", 100 * share,
            gm_size_text(done, bytes),
            gm_size_text((uint64_t)((double)done / (now - b->start_s + 1e-9)), speed));
}

void gm_bar_begin(gm_bar *b, const char *what)
{
    *b = (gm_bar){.what = what, .shown = isatty(STDERR_FILENO), .start_s = now_s()};
    gm_interrupt_hold(NULL);
}

int gm_bar_tell(void *bar, uint64_t done, uint64_t total)
{
    gm_bar *const b = bar;
    const double now = now_s();
    b->total = total;
    if (b->shown && done < total && now - b->drawn_s >= DRAW_EVERY) draw(b, done, now);
    if (b->drawn && done == total) fprintf(stderr, "\r%s\033[K", b->what);
    return gm_interrupt_seen();
}

double gm_bar_seconds(const gm_bar *b)
{
    return now_s() - b->start_s;
}

bool gm_bar_end(gm_bar *b)
{
    if (b->drawn) fputs("\r\033[K", stderr);
    return gm_interrupt_release();
}
