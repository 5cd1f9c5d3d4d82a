/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_WORKERS_H
#define GM_BASE_WORKERS_H

/* The thread pool. A crew of n workers, of which the caller is worker 0, enters a
 * function together and leaves it together; inside, they meet at barriers and take
 * tasks from counters. One wake-up serves a whole step of a model: whoever waits
 * spins for a moment before it sleeps, because a step has hundreds of barriers a few
 * microseconds apart. */

#include <stdatomic.h>
#include <stdint.h>

#include "base/status.h"

typedef struct gm_workers gm_workers;

/* Starts n - 1 threads; 0 means one worker a physical core. */
gm_status gm_workers_open(gm_workers **out, uint32_t n, gm_err *err);
void gm_workers_close(gm_workers *w);

uint32_t gm_workers_n(const gm_workers *w);

/* Every worker runs job(ctx, index); returns when all have. One caller at a time. */
typedef void gm_job(void *ctx, uint32_t index);
void gm_workers_run(gm_workers *w, gm_job *job, void *ctx);

/* Inside a job: waits until every worker of the crew is here. */
void gm_workers_meet(gm_workers *w);

/* A counter from which workers take tasks 0, 1, 2 .. in runs. All-zero is fresh; reset it while no
 * worker takes from it. */
typedef struct gm_tasks {
    atomic_uint next;
} gm_tasks;

/* Takes up to `run` tasks below n: the first goes to *first, the answer is how many. */
static inline uint32_t gm_tasks_take(gm_tasks *t, uint32_t n, uint32_t run, uint32_t *first)
{
    *first = atomic_fetch_add_explicit(&t->next, run, memory_order_relaxed);
    if (*first >= n) return 0;
    return n - *first < run ? n - *first : run;
}

/* The same by shares: takes one of `parts` equal parts of what is left below n. Runs are long at first
 * and single tasks in the end, so workers are done at about the same time. */
static inline uint32_t gm_tasks_share(gm_tasks *t, uint32_t n, uint32_t parts, uint32_t *first)
{
    uint32_t run = 0;
    *first = atomic_load_explicit(&t->next, memory_order_relaxed);
    do {
        if (*first >= n) return 0;
        run = (n - *first + parts - 1) / parts;
    } while (!atomic_compare_exchange_weak_explicit(&t->next, first, *first + run,
                                                    memory_order_relaxed, memory_order_relaxed));
    return run;
}

#endif
