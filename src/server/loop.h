/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_LOOP_H
#define GM_SERVER_LOOP_H

/* The thread that runs libmicrohttpd's daemon: every callback of it is called from here. */

#include <microhttpd.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "gemmule.h"

typedef struct gm_loop {
    struct MHD_Daemon *daemon;
    int daemon_fd, wake_fd;
    bool has_thread;
    pthread_t thread;
    uint32_t n_idle_runs;  /* in a row, in which nothing came and nothing was done */
    bool worked;           /* something was done in this run */
    atomic_uint n_breaths; /* times it waited though the library wanted to go on */
    atomic_bool refusing, leaving;
    sem_t refused;
} gm_loop;

/* Runs a daemon that was started with MHD_USE_EPOLL and no thread of its own. The loop stops it, also
 * where this fails. */
gm_status gm_loop_init(gm_loop *l, struct MHD_Daemon *daemon, gm_err *err);
/* A request went on, or a reply. The loop's thread. */
void gm_loop_note(gm_loop *l);
/* After a connection was resumed. Any thread. */
void gm_loop_wake(const gm_loop *l);
/* Takes no more connections; those that are there go on. Its socket is the caller's to close. Once. */
void gm_loop_refuse(gm_loop *l);
/* Ends the thread, then the daemon and its connections. All-zero is fine. */
void gm_loop_deinit(gm_loop *l);

#endif
