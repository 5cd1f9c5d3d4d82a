/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_WATCHER_H
#define GM_SERVER_WATCHER_H

/* The thread that looks after what nobody else sees: libmicrohttpd does not notice
 * that the client of a suspended connection has left, nor that a request arrives a
 * byte a minute, nor that its client left in the middle of one, nor that an answer takes
 * too long. */

#include "server/exchange.h"

/* A connection, from accept to close. */
typedef struct gm_link gm_link;
struct gm_link {
    int fd;
    double since_s;        /* when it began to be idle, or its request to arrive  */
    bool reading;          /* a request is arriving                               */
    bool busy;             /* it is being answered: the exchange has its own time */
    gm_exchange *exchange; /* the request at hand, or NULL; I/O thread */
    gm_link *before, *after;
};

typedef struct gm_watcher {
    pthread_mutex_t lock;
    int epoll, stop_fd;
    bool has_thread;
    pthread_t thread;
    uint64_t serial;
    gm_exchange *exchanges; /* being answered       */
    gm_link *links;         /* every connection     */
    uint32_t n_links;
    double ping_s;
    double look_at_s; /* when it next looks for those who left in the middle of a request */
    uint32_t crowd;
} gm_watcher;

/* Where there are `crowd` connections, those that have done nothing for longest have to go. */
gm_status gm_watcher_init(gm_watcher *w, double ping_s, uint32_t crowd, gm_err *err);
void gm_watcher_deinit(gm_watcher *w); /* all-zero is fine */

/* An exchange is being answered, and no more. I/O thread. */
void gm_watcher_add(gm_watcher *w, gm_exchange *x);
void gm_watcher_remove(gm_watcher *w, gm_exchange *x);
/* Cancels every answer, as if its time were up; with `hang_up`, closes every connection too. */
void gm_watcher_cancel(gm_watcher *w, bool hang_up);

/* Connections. open answers NULL for lack of memory. I/O thread. */
gm_link *gm_watcher_open(gm_watcher *w, int fd);
void gm_watcher_close(gm_watcher *w, gm_link *l);
enum { GM_LINK_IDLE, GM_LINK_READING, GM_LINK_BUSY };
void gm_watcher_mark(gm_watcher *w, gm_link *l, int state);

uint32_t gm_watcher_links(gm_watcher *w);

#endif
