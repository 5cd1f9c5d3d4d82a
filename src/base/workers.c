/* SPDX-License-Identifier: MIT */
/* Waiting has two gears, wherever it is done: a worker spins for a moment, because
 * the others are usually a few microseconds away, and then sleeps. Whoever is being
 * waited for may have lost its core to another process; one that spins on would
 * keep a core from it, and would itself be put aside as a glutton when its turn
 * comes. A sleeper is woken with preference. docs/PERF.md has the numbers.
 *
 * Whoever changes what others wait for looks for sleepers afterwards, and a sleeper
 * is counted before it looks for the last time; so either sees the other. */

#include "base/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/mem.h"

#define SPINS 4000 /* about 200 us: PERF.md, attempt 9 */

typedef struct worker {
    gm_workers *crew;
    pthread_t thread;
    uint32_t index;
} worker;

struct gm_workers {
    uint32_t n;
    uint32_t n_started; /* threads, without the caller */
    worker *at;         /* [n - 1] */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint n_asleep;
    atomic_uint job_no; /* grows with each job */
    atomic_bool stop;
    gm_job *job;
    void *ctx;
    bool guarded;       /* the caller is, and so are the workers in its job */
    atomic_uint n_left; /* workers still in the job */
    char apart[64];     /* what workers write and what they watch lie in different cache lines */
    atomic_uint n_here; /* workers at the barrier */
    char apart_too[64];
    atomic_uint meeting; /* barriers passed */
};

/* Waits until *at is no longer `value`. */
static void await_change(gm_workers *w, const atomic_uint *at, uint32_t value)
{
    for (uint32_t spin = 0; spin < SPINS; spin++) {
        if (atomic_load(at) != value) return;
        __builtin_ia32_pause();
    }
    pthread_mutex_lock(&w->lock);
    atomic_fetch_add(&w->n_asleep, 1);
    while (atomic_load(at) == value)
        pthread_cond_wait(&w->wake, &w->lock);
    atomic_fetch_sub(&w->n_asleep, 1);
    pthread_mutex_unlock(&w->lock);
}

/* Something that others may wait for has changed. */
static void wake_sleepers(gm_workers *w)
{
    if (atomic_load(&w->n_asleep) == 0) return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* Waits for a job newer than `seen`; false when it is time to go. */
static bool await_job(gm_workers *w, uint32_t seen)
{
    await_change(w, &w->job_no, seen);
    return !atomic_load(&w->stop);
}

static void *worker_main(void *arg)
{
    worker *const me = arg;
    gm_workers *const w = me->crew;
    for (uint32_t seen = 0; await_job(w, seen); seen++) {
        const bool before = gm_guard_set(w->guarded);
        w->job(w->ctx, me->index);
        gm_guard_set(before);
        if (atomic_fetch_sub(&w->n_left, 1) == 1) wake_sleepers(w);
    }
    return NULL;
}

static void announce(gm_workers *w)
{
    atomic_fetch_add(&w->job_no, 1);
    wake_sleepers(w);
}

void gm_workers_run(gm_workers *w, gm_job *job, void *ctx)
{
    w->job = job;
    w->ctx = ctx;
    w->guarded = gm_guard_is_on();
    atomic_store(&w->n_left, w->n - 1);
    if (w->n > 1) announce(w);
    job(ctx, 0);
    for (uint32_t left; (left = atomic_load(&w->n_left));)
        await_change(w, &w->n_left, left);
}

void gm_workers_meet(gm_workers *w)
{
    if (w->n == 1) return;
    const uint32_t meeting = atomic_load(&w->meeting);
    if (atomic_fetch_add(&w->n_here, 1) + 1 == w->n) {
        atomic_store(&w->n_here, 0);
        atomic_fetch_add(&w->meeting, 1);
        wake_sleepers(w);
        return;
    }
    await_change(w, &w->meeting, meeting);
}

uint32_t gm_workers_n(const gm_workers *w)
{
    return w->n;
}

/* Processors that do not share a core with a lower-numbered one, of those this process may use. */
static uint32_t physical_cores(void)
{
    cpu_set_t usable;
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) return 1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &usable)) continue;
        char path[96];
        size_t first = cpu;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list",
                 cpu);
        FILE *const f = fopen(path, "r");
        if (f && fscanf(f, "%zu", &first) != 1) first = cpu;
        if (f) fclose(f);
        n += first == cpu || !CPU_ISSET(first, &usable);
    }
    return n ? n : 1;
}

static gm_status start_threads(gm_workers *w, gm_err *err)
{
    GM_TRY(gm_mem_alloc(&w->at, w->n, sizeof *w->at, "workers", err));
    for (; w->n_started + 1 < w->n; w->n_started++) {
        worker *const me = &w->at[w->n_started];
        *me = (worker){.crew = w, .index = w->n_started + 1};
        const int os = pthread_create(&me->thread, NULL, worker_main, me);
        if (os) return gm_fail(err, GM_E_IO, os, "workers: thread %u cannot be started", me->index);
    }
    return GM_OK;
}

gm_status gm_workers_open(gm_workers **out, uint32_t n, gm_err *err)
{
    *out = NULL;
    gm_workers *w = NULL;
    GM_TRY(gm_mem_alloc(&w, 1, sizeof *w, "workers", err));
    w->n = n ? n : physical_cores();
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    const gm_status status = start_threads(w, err);
    if (status == GM_OK)
        *out = w;
    else
        gm_workers_close(w);
    return status;
}

void gm_workers_close(gm_workers *w)
{
    if (!w) return;
    atomic_store(&w->stop, true);
    announce(w);
    for (uint32_t i = 0; i < w->n_started; i++)
        pthread_join(w->at[i].thread, NULL);
    gm_mem_free(w->at);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    gm_mem_free(w);
}
