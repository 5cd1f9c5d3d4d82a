/* SPDX-License-Identifier: MIT */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "interrupt.h"
#include "output.h"

#define BAR_WIDTH 30

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

gm_bar gm_bar_begin(void)
{
    return (gm_bar){.shown = isatty(STDERR_FILENO), .start_s = now_s()};
}

int gm_bar_tell(void *ctx, uint64_t done, uint64_t total)
{
    gm_bar *const b = ctx;
    const double now = now_s();
    b->total = total;
    if (b->shown && total && now - b->drawn_s >= 0.1) {
        char bytes[16], speed[16];
        const double share = (double)done / (double)total;
        const int filled = (int)(share * BAR_WIDTH);
        b->drawn_s = now;
        fprintf(stderr, "\r[%.*s%*s] %3.0f%% %s %s/s\033[K", filled,
                "==============================", BAR_WIDTH - filled, "", 100 * share,
                gm_size_text(done, bytes),
                gm_size_text((uint64_t)((double)done / (now - b->start_s + 1e-9)), speed));
    }
    return !gm_interrupt_seen();
}

double gm_bar_seconds(const gm_bar *b)
{
    return now_s() - b->start_s;
}

void gm_bar_erase(const gm_bar *b)
{
    if (b->shown) fputs("\r\033[K", stderr);
}
