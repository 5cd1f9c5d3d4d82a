/* SPDX-License-Identifier: MIT */
/* A thread of its own waits for the signal, which is blocked everywhere else. A
 * handler could run on the engine's thread while this one frees the request it is
 * about to cancel; here a lock is enough to exclude that. */

#include "interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "args.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gm_request *request;
static bool held, seen, surviving;
static bool handed;      /* signals go to gm_interrupt_next      */
static unsigned pending; /* those that it has not given out yet  */
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static int ending; /* SIGTERM or SIGHUP, once work that will end by itself has been told to */

/* Signals to wait for. One that whoever started us has chosen to ignore (nohup) stays ignored. */
static void fill_set(sigset_t *set)
{
    static const int ends[] = {SIGTERM, SIGHUP};
    struct sigaction now;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(set, ends[i]);
    }
}

static void *watch(void *arg)
{
    (void)arg;
    sigset_t set;
    fill_set(&set);
    for (int sig = 0; sigwait(&set, &sig) == 0;) {
        pthread_mutex_lock(&lock);
        if (handed) {
            pending |= 1u << sig;
            pthread_cond_signal(&arrived);
            pthread_mutex_unlock(&lock);
            continue;
        }
        const bool may_go_on = sig == SIGINT ? surviving || held : held && !request;
        if (!may_go_on || (seen && !surviving)) _exit(128 + sig);
        if (sig != SIGINT) ending = sig;
        seen = true;
        if (request) gm_request_cancel(request);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

bool gm_interrupt_watch(void)
{
    sigset_t set;
    pthread_t thread;
    fill_set(&set);
    return pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 &&
           pthread_create(&thread, NULL, watch, NULL) == 0 && pthread_detach(thread) == 0;
}

void gm_interrupt_survive(void)
{
    pthread_mutex_lock(&lock);
    surviving = true;
    pthread_mutex_unlock(&lock);
}

void gm_interrupt_hand(void)
{
    pthread_mutex_lock(&lock);
    handed = true;
    pthread_mutex_unlock(&lock);
}

int gm_interrupt_next(double seconds)
{
    static const int order[] = {SIGINT, SIGTERM, SIGHUP};
    struct timespec until;
    int sig = 0, rc = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    const double at = (double)until.tv_nsec * 1e-9 + (seconds < 1e6 ? seconds : 1e6);
    until.tv_sec += (time_t)at;
    until.tv_nsec = (long)((at - (double)(time_t)at) * 1e9);
    pthread_mutex_lock(&lock);
    while (!pending && rc == 0)
        rc = pthread_cond_timedwait(&arrived, &lock, &until);
    for (size_t i = 0; i < sizeof order / sizeof *order && !sig; i++) {
        if (pending & 1u << order[i]) sig = order[i];
    }
    if (sig) pending &= ~(1u << sig);
    pthread_mutex_unlock(&lock);
    return sig;
}

void gm_interrupt_hold(gm_request *r)
{
    pthread_mutex_lock(&lock);
    request = r;
    held = true;
    seen = false;
    pthread_mutex_unlock(&lock);
}

bool gm_interrupt_release(void)
{
    pthread_mutex_lock(&lock);
    request = NULL;
    held = false;
    const bool was_seen = seen;
    if (ending) _exit(128 + ending);
    pthread_mutex_unlock(&lock);
    return was_seen;
}

bool gm_interrupt_seen(void)
{
    pthread_mutex_lock(&lock);
    const bool was_seen = seen;
    pthread_mutex_unlock(&lock);
    return was_seen;
}
