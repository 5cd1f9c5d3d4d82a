/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <time.h>

#include "base/workers.h"

#define MAX_WORKERS 5
#define MANY        23 /* workers, more than any machine for tests has cores */

static gm_workers *crew_of(uint32_t n)
{
    gm_err err = {0};
    gm_workers *w = NULL;
    if (gm_workers_open(&w, n, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_int_equal(gm_workers_n(w), n);
    return w;
}

/* What the jobs share. Nothing in it but the tasks is atomic: the barriers alone must order it. */
typedef struct scene {
    gm_workers *crew;
    uint32_t n_meetings;
    uint32_t at[MANY]; /* meetings each worker has passed */
    uint32_t n_late;   /* workers seen in the wrong place, counted by worker 0 */
    gm_tasks tasks;
    uint32_t n_tasks, run;
    bool by_shares; /* run is how many parts, not how many tasks */
    uint8_t taken[3000];
    uint32_t n_jobs[MANY];
} scene;

static void job_meets(void *ctx, uint32_t index)
{
    scene *const s = ctx;
    const uint32_t n = gm_workers_n(s->crew);
    for (uint32_t i = 1; i <= s->n_meetings; i++) {
        s->at[index] = i;
        gm_workers_meet(s->crew);
        for (uint32_t j = 0; index == i % n && j < n; j++)
            s->n_late += s->at[j] != i;
        gm_workers_meet(s->crew);
    }
}

/* Whoever looks after a meeting sees what everyone wrote before it, and nothing of what follows. */
static void test_meetings_order_memory(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MAX_WORKERS; n++) {
        scene s = {.crew = crew_of(n), .n_meetings = 500};
        gm_workers_run(s.crew, job_meets, &s);
        gm_workers_close(s.crew);
        assert_int_equal(s.n_late, 0);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(s.at[i], 500);
    }
}

static void job_takes(void *ctx, uint32_t index)
{
    scene *const s = ctx;
    uint32_t first = 0;
    s->n_jobs[index]++;
    uint32_t (*const take)(gm_tasks *, uint32_t, uint32_t, uint32_t *) =
        s->by_shares ? gm_tasks_share : gm_tasks_take;
    for (uint32_t n; (n = take(&s->tasks, s->n_tasks, s->run, &first));) {
        for (uint32_t i = 0; i < n; i++)
            s->taken[first + i]++;
    }
}

static void each_task_is_taken_once(bool by_shares)
{
    static const uint32_t runs[] = {1, 2, 7, 3001};
    static const uint32_t tasks[] = {0, 1, 6, 7, 8, 2999, 3000};
    for (uint32_t n = 1; n <= MAX_WORKERS; n++) {
        scene s = {.crew = crew_of(n), .by_shares = by_shares};
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
            for (size_t j = 0; j < sizeof tasks / sizeof *tasks; j++) {
                memset(s.taken, 0, sizeof s.taken);
                atomic_store(&s.tasks.next, 0);
                s.run = runs[i];
                s.n_tasks = tasks[j];
                gm_workers_run(s.crew, job_takes, &s);
                for (uint32_t t = 0; t < 3000; t++)
                    assert_int_equal(s.taken[t], t < tasks[j]);
            }
        }
        gm_workers_close(s.crew);
    }
}

static void test_each_task_is_taken_once(void **state)
{
    (void)state;
    each_task_is_taken_once(false);
    each_task_is_taken_once(true);
}

/* Every worker runs every job once, at once or after the crew has gone to sleep. */
static void test_many_jobs(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MAX_WORKERS; n++) {
        scene s = {.crew = crew_of(n)};
        for (uint32_t i = 1; i <= 1000; i++) {
            gm_workers_run(s.crew, job_takes, &s);
            for (uint32_t j = 0; j < n; j++)
                assert_int_equal(s.n_jobs[j], i);
            if (i % 250 == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
        gm_workers_close(s.crew);
    }
}

static void test_more_workers_than_cores(void **state)
{
    (void)state;
    scene s = {.crew = crew_of(MANY), .n_meetings = 50, .n_tasks = 3000, .run = 1};
    gm_workers_run(s.crew, job_meets, &s);
    gm_workers_run(s.crew, job_takes, &s);
    gm_workers_close(s.crew);
    assert_int_equal(s.n_late, 0);
    for (uint32_t i = 0; i < 3000; i++)
        assert_int_equal(s.taken[i], 1);
}

static void test_open_and_close(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_workers *w = NULL;
    gm_workers_close(NULL);
    for (uint32_t n = 1; n <= MAX_WORKERS; n++)
        gm_workers_close(crew_of(n)); /* without a job */
    assert_int_equal(gm_workers_open(&w, 0, &err), GM_OK);
    assert_true(gm_workers_n(w) >= 1);
    gm_workers_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meetings_order_memory),
        cmocka_unit_test(test_each_task_is_taken_once),
        cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_more_workers_than_cores),
        cmocka_unit_test(test_open_and_close),
    };
    return cmocka_run_group_tests_name("t_workers", tests, NULL, NULL);
}
