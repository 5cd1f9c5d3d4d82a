/* SPDX-License-Identifier: MIT */
/* Hang-ups come from an epoll set of the watcher's own, in which an exchange is known
 * by a serial number: an event may be read after its exchange has gone, and another
 * may lie at the same address by then. Times are looked at on every round, of which
 * there are at least ten a second.
 *
 * A client that will send no more may have left or may wait for its answer: TCP says
 * the same of both, and those who wait are too few to compute on for all who left. */

#include "server/watcher.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/generation.h"
#include "server/state.h"

#define ROUND_MS  100
#define IDLE_S    120.0 /* a connection may be kept without a request          */
#define ARRIVAL_S 60.0  /* a request may take to arrive, from its first line on */
#define TAKE_S    5.0   /* a client may take to read why its time was up, or anything in a crowd */
#define UNREAD_S  60.0  /* a whole reply may lie there and nothing of it be read */
#define YOUNG_S   1.0   /* a connection is, and is not closed for another one  */
#define LOOK_S    1.0   /* between two looks at who has left in the middle of a request */

/* ---- one round --------------------------------------------------------------------------- */

static void tell(gm_exchange *x, atomic_int *what)
{
    atomic_store(what, 1);
    gm_exchange_wake(x);
}

/* The flag first, then the look at `worked`: the worker does the same the other way round, so one
 * of the two cancels. */
static void cancel(gm_exchange *x, atomic_int *why)
{
    tell(x, why);
    if (atomic_load(&x->worked) && x->gen) gm_generation_cancel(x->gen);
}

static void notice_hang_up(gm_watcher *w, uint64_t serial)
{
    gm_exchange *x = w->exchanges;
    while (x && x->serial != serial)
        x = x->watched_after;
    if (x) cancel(x, &x->gone);
}

/* Nobody may keep others out by doing nothing: in a crowd, who has done so longest has to go. This
 * is looked at when somebody comes, and on every round: where there are as many as may be, nobody
 * comes in, and those who were too young to go then would stay. */
static void thin_crowd(gm_watcher *w)
{
    if (w->n_links < w->crowd) return;
    gm_link *oldest = NULL;
    for (gm_link *l = w->links; l; l = l->after) {
        if (!l->busy && (!oldest || l->since_s < oldest->since_s)) oldest = l;
    }
    if (!oldest || gm_clock_s() - oldest->since_s < YOUNG_S) return;
    shutdown(oldest->fd, SHUT_RDWR);
    oldest->busy = true; /* leaving */
}

/* Whether it is high time that the client reads. While its connection sleeps there is nothing for
 * it; else libmicrohttpd has bytes that it cannot send, and asks for no more. */
static bool is_unread(const gm_watcher *w, gm_exchange *x, double now)
{
    if (now > x->deadline_s + TAKE_S) return true;
    if (w->n_links >= w->crowd) return now > x->taken_s + TAKE_S;
    return atomic_load(&x->whole) && now > x->taken_s + UNREAD_S;
}

/* Whether all that its client sent has been read, and no more will come. */
static bool is_at_end(const gm_link *l)
{
    char byte;
    return recv(l->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Where a client's last bytes and its end come at once, libmicrohttpd reads the bytes, is not told of
 * the end again, and waits for the rest of the request. What has just been read may be a whole request
 * that is about to be answered, so those that began a moment ago are left alone. */
static void look_for_leavers(gm_watcher *w, double now)
{
    if (now < w->look_at_s) return;
    w->look_at_s = now + LOOK_S;
    for (const gm_link *l = w->links; l; l = l->after) {
        if (!l->busy && now - l->since_s > LOOK_S && is_at_end(l)) shutdown(l->fd, SHUT_RDWR);
    }
}

static void look_at_times(gm_watcher *w)
{
    const double now = gm_clock_s();
    for (gm_exchange *x = w->exchanges; x; x = x->watched_after) {
        const bool lively = atomic_exchange(&x->lively, 0);
        if (lively || atomic_load(&x->asleep)) x->taken_s = now;
        if (lively) x->ping_at_s = now + w->ping_s;
        if (now > x->deadline_s && !atomic_load(&x->late)) cancel(x, &x->late);
        if (is_unread(w, x, now)) shutdown(x->fd, SHUT_RDWR);
        if (now > x->ping_at_s) {
            x->ping_at_s = now + w->ping_s;
            tell(x, &x->ping);
        }
    }
    for (const gm_link *l = w->links; l; l = l->after) {
        if (!l->busy && now - l->since_s > (l->reading ? ARRIVAL_S : IDLE_S))
            shutdown(l->fd, SHUT_RDWR);
    }
    look_for_leavers(w, now);
    thin_crowd(w);
}

static void *watcher_main(void *arg)
{
    gm_watcher *const w = arg;
    struct epoll_event events[64];
    for (;;) {
        const int n = epoll_wait(w->epoll, events, 64, ROUND_MS);
        pthread_mutex_lock(&w->lock);
        bool stop = false;
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == 0)
                stop = true;
            else
                notice_hang_up(w, events[i].data.u64);
        }
        if (!stop) look_at_times(w);
        pthread_mutex_unlock(&w->lock);
        if (stop) return NULL;
    }
}

/* ---- exchanges --------------------------------------------------------------------------- */

void gm_watcher_add(gm_watcher *w, gm_exchange *x)
{
    pthread_mutex_lock(&w->lock);
    x->serial = ++w->serial;
    x->taken_s = gm_clock_s();
    x->ping_at_s = x->taken_s + w->ping_s;
    x->watched_after = w->exchanges;
    if (x->watched_after) x->watched_after->watched_before = x;
    w->exchanges = x;
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = x->serial};
    epoll_ctl(w->epoll, EPOLL_CTL_ADD, x->fd, &ev);
    pthread_mutex_unlock(&w->lock);
}

void gm_watcher_remove(gm_watcher *w, gm_exchange *x)
{
    pthread_mutex_lock(&w->lock);
    if (x->serial) {
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, x->fd, NULL);
        if (x->watched_after) x->watched_after->watched_before = x->watched_before;
        if (x->watched_before)
            x->watched_before->watched_after = x->watched_after;
        else
            w->exchanges = x->watched_after;
        x->serial = 0;
    }
    pthread_mutex_unlock(&w->lock);
}

void gm_watcher_cancel(gm_watcher *w, bool hang_up)
{
    pthread_mutex_lock(&w->lock);
    for (gm_exchange *x = w->exchanges; x; x = x->watched_after)
        cancel(x, hang_up ? &x->gone : &x->late);
    for (const gm_link *l = w->links; hang_up && l; l = l->after)
        shutdown(l->fd, SHUT_RDWR);
    pthread_mutex_unlock(&w->lock);
}

/* ---- connections ------------------------------------------------------------------------- */

gm_link *gm_watcher_open(gm_watcher *w, int fd)
{
    gm_link *l = NULL;
    if (gm_mem_alloc(&l, 1, sizeof *l, "a connection", NULL) != GM_OK) return NULL;
    l->fd = fd;
    l->since_s = gm_clock_s();
    pthread_mutex_lock(&w->lock);
    thin_crowd(w);
    l->after = w->links;
    if (l->after) l->after->before = l;
    w->links = l;
    w->n_links++;
    pthread_mutex_unlock(&w->lock);
    return l;
}

void gm_watcher_close(gm_watcher *w, gm_link *l)
{
    if (!l) return;
    pthread_mutex_lock(&w->lock);
    if (l->after) l->after->before = l->before;
    if (l->before)
        l->before->after = l->after;
    else
        w->links = l->after;
    w->n_links--;
    pthread_mutex_unlock(&w->lock);
    gm_mem_free(l);
}

void gm_watcher_mark(gm_watcher *w, gm_link *l, int state)
{
    if (!l) return;
    pthread_mutex_lock(&w->lock);
    l->since_s = gm_clock_s();
    l->reading = state == GM_LINK_READING;
    l->busy = state == GM_LINK_BUSY;
    pthread_mutex_unlock(&w->lock);
}

uint32_t gm_watcher_links(gm_watcher *w)
{
    pthread_mutex_lock(&w->lock);
    const uint32_t n = w->n_links;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* ---- opening and closing ----------------------------------------------------------------- */

gm_status gm_watcher_init(gm_watcher *w, double ping_s, uint32_t crowd, gm_err *err)
{
    pthread_mutex_init(&w->lock, NULL);
    w->crowd = crowd;
    w->ping_s = ping_s;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 0};
    if (w->epoll < 0 || w->stop_fd < 0 ||
        epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->stop_fd, &ev) != 0 ||
        pthread_create(&w->thread, NULL, watcher_main, w) != 0)
        return gm_fail(err, GM_E_IO, 0, "server: the watcher's thread cannot be started");
    w->has_thread = true;
    return GM_OK;
}

void gm_watcher_deinit(gm_watcher *w)
{
    if (w->has_thread) {
        eventfd_write(w->stop_fd, 1);
        pthread_join(w->thread, NULL);
    }
    if (w->ping_s > 0) {
        if (w->epoll >= 0) close(w->epoll);
        if (w->stop_fd >= 0) close(w->stop_fd);
        pthread_mutex_destroy(&w->lock);
    }
    *w = (gm_watcher){0};
}
