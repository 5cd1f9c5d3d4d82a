/* SPDX-License-Identifier: MIT */
/* A thread of its own waits for the signal, which is blocked everywhere else. A
 * handler could run on the engine's thread while this one frees the request it is
 * about to cancel; here a lock is enough to exclude that. */

#include "interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "args.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gm_request *request;
static bool held, seen, surviving, guarded;

/* Ctrl-C, and what asks a process to end. */
static sigset_t watched(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

/* Ends as if nobody had waited for the signal. */
static void end_by(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
}

static void *watch(void *arg)
{
    (void)arg;
    const sigset_t set = watched();
    for (int sig = 0; sigwait(&set, &sig) == 0;) {
        pthread_mutex_lock(&lock);
        if (sig != SIGINT && !guarded) end_by(sig);
        if (!surviving && (!held || seen)) _exit(GM_EXIT_INTERRUPTED);
        seen = true;
        if (request) gm_request_cancel(request);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

bool gm_interrupt_watch(void)
{
    const sigset_t set = watched();
    pthread_t thread;
    return pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 &&
           pthread_create(&thread, NULL, watch, NULL) == 0 && pthread_detach(thread) == 0;
}

void gm_interrupt_survive(void)
{
    pthread_mutex_lock(&lock);
    surviving = true;
    pthread_mutex_unlock(&lock);
}

void gm_interrupt_guard(void)
{
    gm_interrupt_survive();
    pthread_mutex_lock(&lock);
    guarded = true;
    pthread_mutex_unlock(&lock);
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
