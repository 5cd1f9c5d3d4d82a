/* SPDX-License-Identifier: MIT */
/* Why not the daemon's own thread: the library cannot be told to accept no more while that thread
 * runs. It then takes the socket out of the epoll set twice, and aborts (0.9.75). Here it is told
 * between two runs. */
#include "server/loop.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.h"

#define IDLE_RUNS 100
#define BREATH_MS 5

static unsigned connections(const gm_loop *l)
{
    return MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
}

/* Where there are as many connections as are allowed and one ends, a run ends too, and the next one
 * is the first to look at those that wait. */
static void run_daemon(const gm_loop *l)
{
    unsigned before;
    do {
        before = connections(l);
        MHD_run(l->daemon);
    } while (connections(l) < before);
}

/* A client that leaves in the middle of a TLS handshake's message has the library ask for another run
 * at once, for ever: where nothing has happened for IDLE_RUNS of them, there is time to breathe. A run
 * that goes on with what was read before, or writes what the kernel takes, has nothing come either,
 * but it has done something. */
static void wait_for_work(gm_loop *l)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    struct pollfd on[] = {{.fd = l->daemon_fd, .events = POLLIN},
                          {.fd = l->wake_fd, .events = POLLIN}};
    const bool timed = MHD_get_timeout(l->daemon, &ms) == MHD_YES;
    if (timed && l->n_idle_runs >= IDLE_RUNS && ms < BREATH_MS) {
        ms = BREATH_MS;
        atomic_fetch_add(&l->n_breaths, 1);
    }
    const int n = poll(on, 2, !timed ? -1 : ms < INT_MAX ? (int)ms : INT_MAX);
    l->n_idle_runs = n > 0 || l->worked ? 0 : l->n_idle_runs + 1;
    l->worked = false;
    eventfd_t times;
    if (on[1].revents) eventfd_read(l->wake_fd, &times);
}

static void *loop_main(void *arg)
{
    gm_loop *const l = arg;
    while (!atomic_load(&l->leaving)) {
        if (atomic_exchange(&l->refusing, false)) {
            MHD_quiesce_daemon(l->daemon);
            sem_post(&l->refused);
        }
        run_daemon(l);
        wait_for_work(l);
    }
    return NULL;
}

gm_status gm_loop_init(gm_loop *l, struct MHD_Daemon *daemon, gm_err *err)
{
    l->daemon = daemon;
    l->daemon_fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    sem_init(&l->refused, 0, 0);
    l->wake_fd = eventfd(0, EFD_CLOEXEC);
    const int os = l->wake_fd < 0 ? errno : pthread_create(&l->thread, NULL, loop_main, l);
    if (os) return gm_fail(err, GM_E_IO, os, "server: the thread of connections cannot be started");
    l->has_thread = true;
    return GM_OK;
}

void gm_loop_note(gm_loop *l)
{
    l->worked = true;
}

void gm_loop_wake(const gm_loop *l)
{
    eventfd_write(l->wake_fd, 1);
}

void gm_loop_refuse(gm_loop *l)
{
    if (!l->has_thread) {
        MHD_quiesce_daemon(l->daemon);
        return;
    }
    atomic_store(&l->refusing, true);
    gm_loop_wake(l);
    while (sem_wait(&l->refused) != 0) /* a signal */
        ;
}

void gm_loop_deinit(gm_loop *l)
{
    if (!l->daemon) return;
    if (l->has_thread) {
        atomic_store(&l->leaving, true);
        gm_loop_wake(l);
        pthread_join(l->thread, NULL);
    }
    MHD_stop_daemon(l->daemon);
    if (l->wake_fd >= 0) close(l->wake_fd);
    sem_destroy(&l->refused);
    *l = (gm_loop){0};
}
