/* SPDX-License-Identifier: MIT */
/* Clients that could keep others out, or the server from stopping: those that do not read, that send
 * much, that are many, that stop in the middle. Where the server goes by the clock, its notes of when
 * something began are moved instead of waiting; where a worker has to be busy, it is held. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "fixtures/served.h"
#include "fixtures/tinymodel.h"
#include "server/generation.h"
#include "server/state.h"

#define HOUR_S 3600.0

static void nap(double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

/* ---- connections ------------------------------------------------------------------------- */

/* Waits until the server has n of something, for a minute at most. */
static void await(uint32_t (*count)(void), uint32_t n)
{
    for (int i = 0; count() != n && i < 60000; i++)
        nap(0.001);
    assert_int_equal(count(), n);
}

static uint32_t links(void)
{
    return gm_watcher_links(&served.server->watcher);
}

static uint32_t under_way(void)
{
    pthread_mutex_lock(&served.server->lock);
    const uint32_t n = served.server->n_under_way;
    pthread_mutex_unlock(&served.server->lock);
    return n;
}

/* Replies of which all is there. */
static uint32_t whole_replies(void)
{
    gm_watcher *const w = &served.server->watcher;
    uint32_t n = 0;
    pthread_mutex_lock(&w->lock);
    for (gm_exchange *x = w->exchanges; x; x = x->watched_after)
        n += atomic_load(&x->whole) != 0;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* Every connection has been idle for so long. */
static void age_links(gm_watcher *w, double seconds)
{
    pthread_mutex_lock(&w->lock);
    for (gm_link *l = w->links; l; l = l->after)
        l->since_s = gm_clock_s() - seconds;
    pthread_mutex_unlock(&w->lock);
}

static bool is_shut(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* Newcomers do not cost each other, only who has been there for a while. The watcher's thread is not
 * there: nothing happens but what a new connection does. */
static void test_newcomers_stay(void **state)
{
    (void)state;
    enum { CROWD = 3, N = 6 };
    gm_watcher w = {.crowd = CROWD};
    int fds[N][2];
    gm_link *at[N];
    pthread_mutex_init(&w.lock, NULL);
    for (int i = 0; i < N; i++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds[i]), 0);
    for (int i = 0; i < N - 1; i++) {
        age_links(&w, -HOUR_S);
        at[i] = gm_watcher_open(&w, fds[i][0]);
    }
    for (int i = 0; i < N - 1; i++)
        assert_false(is_shut(fds[i][1]));
    age_links(&w, -HOUR_S);
    at[0]->since_s = gm_clock_s() - 3;
    at[1]->since_s = gm_clock_s() - 2;
    gm_watcher_mark(&w, at[2], GM_LINK_BUSY);
    at[2]->since_s = gm_clock_s() - 4;
    at[N - 1] = gm_watcher_open(&w, fds[N - 1][0]);
    for (int i = 0; i < N; i++)
        assert_int_equal(is_shut(fds[i][1]), i == 0);
    for (int i = 0; i < N; i++) {
        gm_watcher_close(&w, at[i]);
        close(fds[i][0]);
        close(fds[i][1]);
    }
    pthread_mutex_destroy(&w.lock);
}

/* A server that believes that there may be so many open files. */
static void open_with_files(rlim_t n)
{
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    const struct rlimit few = {n < before.rlim_max ? n : before.rlim_max, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    served_open(NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void test_connections_follow_files(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = {{50, 10}, {64, 16}, {500, 452}, {1048, 1000}, {1500, 1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_with_files(cases[i][0]);
        assert_int_equal(served.server->n_connections, cases[i][1]);
        gm_server_close(served.server);
    }
}

/* As many idle connections as there may be, all of them new, and as many again that wait to be
 * let in: whoever comes then is answered all the same. */
static void test_idle_burst(void **state)
{
    (void)state;
    enum { N = 16 };
    int fds[2 * N];
    open_with_files(GM_SERVER_FILES + N);
    for (int i = 0; i < 2 * N; i++)
        fds[i] = served_connect();
    served_expect("GET", "/health", "", "\"status\":\"ok\"");
    assert_true(links() <= N);
    for (int i = 0; i < 2 * N; i++)
        close(fds[i]);
    gm_server_close(served.server);
}

/* ---- workers that are held -------------------------------------------------------------- */

static void (*work)(gm_exchange *x);
static atomic_size_t read_up_to;

/* Longer bodies wait until they are allowed. */
static void work_held(gm_exchange *x)
{
    while (x->body.len > atomic_load(&read_up_to))
        nap(0.001);
    work(x);
}

static void hold(gm_crew *c)
{
    pthread_mutex_lock(&c->lock);
    work = c->work;
    c->work = work_held;
    pthread_mutex_unlock(&c->lock);
}

/* The workers of the server that was opened do not read bodies that have more bytes. */
static void hold_over(size_t n)
{
    atomic_store(&read_up_to, n);
    hold(&served.server->workers);
    hold(&served.server->porter);
}

/* A body that has so many MiB, most of them blanks. */
static char *large_body(size_t n_mib)
{
    static const char end[] = "{\"prompt\":\"p7\",\"max_tokens\":3}";
    const size_t size = n_mib << 20;
    char *const body = malloc(size);
    assert_non_null(body);
    memset(body, ' ', size);
    memcpy(body + size - sizeof end, end, sizeof end);
    return body;
}

/* ---- who does not read ------------------------------------------------------------------- */

/* The time of what is being answered was up so long ago. */
static void age_answers(double seconds)
{
    gm_watcher *const w = &served.server->watcher;
    pthread_mutex_lock(&w->lock);
    for (gm_exchange *x = w->exchanges; x; x = x->watched_after)
        x->deadline_s = gm_clock_s() - seconds;
    pthread_mutex_unlock(&w->lock);
}

static void test_reader_asleep(void **state)
{
    (void)state;
    served_open(NULL);
    const int fd = served_ask("POST", "/v1/completions",
                              "{\"prompt\":\"p7\",\"max_tokens\":2000,\"ignore_eos\":true,"
                              "\"logprobs\":20,\"stream\":true}");
    served_await("gemmule_requests_parked 1\n");
    gm_server_stop(served.server);
    assert_false(gm_server_wait(served.server, 0));
    age_answers(HOUR_S);
    assert_true(gm_server_wait(served.server, 30));
    close(fd);
    gm_server_close(served.server);
}

/* Whoever has something to read has not done so for this long. */
static void age_readers(double seconds)
{
    gm_watcher *const w = &served.server->watcher;
    pthread_mutex_lock(&w->lock);
    for (gm_exchange *x = w->exchanges; x; x = x->watched_after) {
        if (!atomic_load(&x->asleep)) x->taken_s = gm_clock_s() - seconds;
    }
    pthread_mutex_unlock(&w->lock);
}

/* Nobody reads until there are at most n connections left. */
static void await_hang_ups(double seconds, uint32_t n)
{
    for (int i = 0; i < 60000 && links() > n; i++, nap(0.001))
        age_readers(seconds);
    assert_true(links() <= n);
}

/* A connection on which a reply of some megabytes waits to be read. */
static int ask_much(void)
{
    static char body[40000];
    static const char begin[] = "{\"with_pieces\":true,\"content\":\"", end[] = "\"}";
    memset(body, 'p', sizeof body - 1);
    memcpy(body, begin, sizeof begin - 1);
    memcpy(body + sizeof body - sizeof end, end, sizeof end);
    return served_ask("POST", "/tokenize", body);
}

/* Replies that are there and are not read: for a while in any case, and for less where there are so
 * many that nobody else comes in. Who waits for an answer stays. */
static void test_reply_unread(void **state)
{
    (void)state;
    enum { N = 16 };
    int fds[N];
    char *const body = large_body(2);
    open_with_files(GM_SERVER_FILES + N);
    fds[0] = ask_much();
    await(whole_replies, 1);
    age_readers(30);
    nap(0.3); /* some rounds */
    assert_int_equal(links(), 1);
    await_hang_ups(HOUR_S, 0);
    close(fds[0]);
    hold_over(1000);
    fds[0] = served_ask("POST", "/v1/completions", body);
    for (int i = 1; i < N; i++)
        fds[i] = ask_much();
    await(under_way, N);
    atomic_store(&read_up_to, GM_SERVER_BODY_LARGE);
    await_hang_ups(30, served.server->watcher.crowd - 1);
    served_expect("GET", "/health", "", "\"status\":\"ok\"");
    atomic_store(&read_up_to, SIZE_MAX);
    served_read(fds[0], "HTTP/1.1 200");
    for (int i = 0; i < N; i++)
        close(fds[i]);
    gm_server_close(served.server);
    free(body);
}

/* ---- large heads ------------------------------------------------------------------------- */

/* The status of a request that has so many more headers, of so many bytes each. */
static int status_of(size_t n_headers, size_t len)
{
    static char head[96 << 10];
    int status = 0;
    const int fd = served_connect();
    size_t at = (size_t)snprintf(
        head, sizeof head, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (size_t i = 0; i < n_headers; i++, at += len) {
        memset(head + at, 'x', len);
        head[at + 1] = ':';
        memcpy(head + at + len - 2, "\r\n", 2);
    }
    memcpy(head + at, "\r\n", 2);
    at += 2;
    assert_int_equal(send(fd, head, at, MSG_NOSIGNAL), at);
    served_read(fd, NULL);
    close(fd);
    assert_int_equal(sscanf(served.reply, "HTTP/1.1 %d ", &status), 1);
    assert_int_equal(status == 431, strstr(served.reply, "\"request_too_large\"") != NULL);
    return status;
}

/* Whatever the number and length of headers, there is an answer: 200 up to some size, then 431. */
static void test_large_heads(void **state)
{
    (void)state;
    static const size_t cases[][4] = {
        /* n, n, len, len */
        {1, 1, 32000, 33500},
        {9, 9, 3500, 3700},
        {430, 470, 8, 8},
        {1, 9, 7000, 7000},
    };
    served_open(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int last = 200, n_refused = 0;
        assert_int_equal(status_of(cases[i][0], cases[i][2]), 200);
        for (size_t n = cases[i][0]; n <= cases[i][1]; n++) {
            for (size_t len = cases[i][2]; len <= cases[i][3]; len += 17) {
                const int status = status_of(n, len);
                assert_true(status == 431 || (status == 200 && last == 200));
                last = status;
                n_refused += status == 431;
            }
        }
        assert_true(n_refused > 0);
    }
    gm_server_close(served.server);
}

/* The status of a request whose query has so many arguments, of so many bytes each; 0: none came. */
static int status_of_query(size_t n, size_t len)
{
    static const char behind[] = " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    static char head[96 << 10];
    int status = 0;
    const int fd = served_connect();
    size_t at = (size_t)snprintf(head, sizeof head, "GET /health?");
    for (size_t i = 0; i < n; i++, at += len) {
        memset(head + at, 'q', len);
        head[at + len - 1] = '&';
    }
    memcpy(head + at, behind, sizeof behind - 1);
    at += sizeof behind - 1;
    assert_int_equal(send(fd, head, at, MSG_NOSIGNAL), at);
    served_read(fd, NULL);
    close(fd);
    await(links, 0);
    sscanf(served.reply, "HTTP/1.1 %d ", &status);
    assert_int_equal(status == 431, strstr(served.reply, "\"request_too_large\"") != NULL);
    return status;
}

/* The same of queries. libmicrohttpd loses count of a request whose arguments it has no memory for;
 * under AddressSanitizer this would leave exchanges behind. */
static void test_large_queries(void **state)
{
    (void)state;
    static const size_t cases[][3] = {
        /* n, len, status */
        {400, 2, 200},   {480, 2, 200},   {520, 2, 431},   {1000, 2, 431}, {1100, 2, 431},
        {15000, 2, 431}, {1, 32000, 200}, {1, 33000, 431}, {4, 9000, 431},
    };
    served_open(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int status = status_of_query(cases[i][0], cases[i][1]);
        if (status != (int)cases[i][2])
            fail_msg("%zu arguments of %zu bytes: %d", cases[i][0], cases[i][1], status);
    }
    gm_server_close(served.server);
}

/* ---- large bodies ------------------------------------------------------------------------ */

/* Some are there and wait to be read, others have arrived by half: a small request is answered. */
static void test_large_bodies(void **state)
{
    (void)state;
    enum { N = 3 };
    char *const body = large_body(2);
    int whole[N], half[N];
    served_open(NULL);
    hold_over(GM_SERVER_BODY_LARGE);
    for (int i = 0; i < N; i++) {
        whole[i] = served_ask("POST", "/v1/completions", body);
        half[i] = served_ask_part("POST", "/v1/completions", body, strlen(body) / 2);
    }
    await(under_way, N);
    served_expect("POST", "/v1/completions", "{\"prompt\":\"p7\",\"max_tokens\":3}",
                  "HTTP/1.1 200");
    atomic_store(&read_up_to, SIZE_MAX);
    for (int i = 0; i < N; i++) {
        served_read(whole[i], "HTTP/1.1 200");
        close(whole[i]);
        close(half[i]);
    }
    gm_server_close(served.server);
    free(body);
}

/* The server has so many connections, none of which is old enough for its time to be up. */
static void await_links(uint32_t n)
{
    for (int i = 0; links() != n && i < 60000; i++, nap(0.001))
        age_links(&served.server->watcher, 10);
    assert_int_equal(links(), n);
}

/* Clients that send a part of a request and leave at once are noticed, wherever they stopped, and
 * their bytes do not count any more. Who sends slowly stays. */
static void test_leavers(void **state)
{
    (void)state;
    enum { N = 20 };
    static const char *const parts[] = {"POST /v1", "POST /v1/completions HTTP/1.1\r\nHost: loc"};
    char *const body = large_body(2);
    const size_t half = strlen(body) / 2;
    served_open(NULL);
    const int stays = served_ask_part("POST", "/v1/completions", body, half);
    for (int i = 0; i < N; i++) {
        close(served_ask_part("POST", "/v1/completions", body, half));
        for (int k = 0; k < 2; k++) {
            const int fd = served_connect();
            assert_true(send(fd, parts[k], strlen(parts[k]), MSG_NOSIGNAL) > 0);
            close(fd);
        }
    }
    await_links(1);
    for (int i = 0; atomic_load(&served.server->n_body) > half && i < 60000; i++)
        nap(0.001); /* for the reaper */
    assert_true(atomic_load(&served.server->n_body) <= half);
    for (size_t at = half, n = strlen(body); at < n;)
        at += (size_t)send(stays, body + at, n - at, MSG_NOSIGNAL);
    served_read(stays, "HTTP/1.1 200");
    close(stays);
    gm_server_close(served.server);
    free(body);
}

/* ---- requests that are never started ----------------------------------------------------- */

static uint32_t late(void)
{
    gm_watcher *const w = &served.server->watcher;
    uint32_t n = 0;
    pthread_mutex_lock(&w->lock);
    for (gm_exchange *x = w->exchanges; x; x = x->watched_after)
        n += atomic_load(&x->late) != 0;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* A body that nobody has read when its time is up. */
static void test_late_unread(void **state)
{
    (void)state;
    char *const body = large_body(2);
    served_open(NULL);
    hold_over(GM_SERVER_BODY_LARGE);
    const int fd = served_ask("POST", "/v1/completions", body);
    await(under_way, 1);
    age_answers(1);
    await(late, 1);
    atomic_store(&read_up_to, SIZE_MAX);
    served_read(fd, "it was never started");
    assert_non_null(strstr(served.reply, "HTTP/1.1 504"));
    close(fd);
    gm_server_close(served.server);
    free(body);
}

/* The watcher sets a flag and then cancels what it finds: who sees an end before the flag is told the
 * same. Answers how many were cancelled. */
static uint32_t cancelled(void)
{
    gm_watcher *const w = &served.server->watcher;
    uint32_t n = 0;
    pthread_mutex_lock(&w->lock);
    for (gm_exchange *x = w->exchanges; x; x = x->watched_after) {
        if (!atomic_load(&x->worked) || !x->gen) continue; /* the latter comes first */
        gm_generation_cancel(x->gen);
        n++;
    }
    pthread_mutex_unlock(&w->lock);
    return n;
}

static void test_late_in_the_queue(void **state)
{
    (void)state;
    const int32_t ids[] = {2, 7};
    gm_request_opts o = gm_request_opts_default(served.model);
    gm_request *slow = NULL; /* has the only slot, and does not read */
    o.ids = ids;
    o.n_ids = 2;
    o.flags = GM_REQUEST_IGNORE_END;
    pthread_mutex_lock(&served.engine->lock);
    served.engine->patience_s = HOUR_S;
    pthread_mutex_unlock(&served.engine->lock);
    served_open(NULL);
    assert_int_equal(gm_request_open(&slow, served.engine, &o, &served.err), GM_OK);
    const int fd = served_ask("POST", "/v1/completions", "{\"prompt\":\"p7\"}");
    served_await("gemmule_requests_queued 1\n");
    await(cancelled, 1);
    served_read(fd, "it was never started");
    assert_non_null(strstr(served.reply, "HTTP/1.1 504"));
    close(fd);
    gm_request_close(slow);
    gm_server_close(served.server);
}

/* ---- stopping ---------------------------------------------------------------------------- */

static atomic_int n_read, n_unread, is_closed;

/* Only of a body that was read it is known how many answers were wanted. */
static void count_read(void *ctx, const char *line)
{
    (void)ctx;
    atomic_fetch_add(strstr(line, "\"choices\":") ? &n_read : &n_unread, 1);
}

static void *close_server(void *arg)
{
    gm_server_close(arg);
    atomic_store(&is_closed, 1);
    return NULL;
}

/* A close that finds a worker busy hangs up on its client and waits for the worker, since the
 * connection is in its hands. What waits for the worker is not read any more. */
static void test_close_waits_for_workers(void **state)
{
    (void)state;
    enum { N = 3 };
    char *const body = large_body(2);
    int fds[N];
    pthread_t closer;
    gm_server_opts o = served_opts();
    o.log = count_read;
    served_open(&o);
    hold_over(GM_SERVER_BODY_LARGE);
    for (int i = 0; i < N; i++)
        fds[i] = served_ask("POST", "/v1/completions", body);
    await(under_way, N);
    assert_int_equal(pthread_create(&closer, NULL, close_server, served.server), 0);
    served_read(fds[0], NULL); /* until it is hung up on */
    nap(0.2);                  /* for a close that does not wait */
    assert_false(atomic_load(&is_closed));
    atomic_store(&read_up_to, SIZE_MAX);
    pthread_join(closer, NULL);
    assert_int_equal(atomic_load(&n_read), 0);
    assert_int_equal(atomic_load(&n_unread), N);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    free(body);
}

/* ---- half a handshake -------------------------------------------------------------------- */

static double cpu_s(clockid_t clock)
{
    struct timespec t;
    assert_int_equal(clock_gettime(clock, &t), 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A client that stops in the middle of a TLS message, or leaves there, keeps nobody busy. */
static void test_half_handshake(void **state)
{
    (void)state;
    static const char beginning[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01};
    char cert[512], key[512], command[2048];
    snprintf(cert, sizeof cert, "%s", tiny_path("cert.pem"));
    snprintf(key, sizeof key, "%s", tiny_path("key.pem"));
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
             "-subj /CN=localhost -keyout '%s' -out '%s' 2>/dev/null",
             key, cert);
    if (system(command) != 0) {
        print_message("skip: openssl is not there to make a certificate\n");
        skip();
    }
    gm_server_opts o = served_opts();
    o.tls_cert = cert;
    o.tls_key = key;
    served_open(&o);
    clockid_t clock;
    assert_int_equal(pthread_getcpuclockid(served.server->loop.thread, &clock), 0);
    for (size_t n = 1; n <= sizeof beginning; n += sizeof beginning - 1) {
        const int fd = served_connect();
        await(links, 1);
        assert_int_equal(send(fd, beginning, n, MSG_NOSIGNAL), n);
        nap(0.05); /* it has arrived */
        const double began_s = gm_clock_s(), before_s = cpu_s(clock);
        nap(0.5);
        const double busy_s = cpu_s(clock) - before_s, passed_s = gm_clock_s() - began_s;
        printf("%zu bytes: busy for %.3f of %.3f s\n", n, busy_s, passed_s);
        assert_true(busy_s < passed_s / 4);
        close(fd);
        await(links, 0);
    }
    gm_server_close(served.server);
    unlink(cert);
    unlink(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newcomers_stay),    cmocka_unit_test(test_connections_follow_files),
        cmocka_unit_test(test_idle_burst),        cmocka_unit_test(test_reader_asleep),
        cmocka_unit_test(test_reply_unread),      cmocka_unit_test(test_large_heads),
        cmocka_unit_test(test_large_queries),     cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_leavers),           cmocka_unit_test(test_late_unread),
        cmocka_unit_test(test_late_in_the_queue), cmocka_unit_test(test_close_waits_for_workers),
        cmocka_unit_test(test_half_handshake),
    };
    return cmocka_run_group_tests_name("t_siege", tests, served_setup, served_teardown);
}
