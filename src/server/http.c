/* SPDX-License-Identifier: MIT */
/* libmicrohttpd's side: one thread with epoll serves every connection. It must never
 * wait: bodies are read by workers, answers are freed by the reaper, and a
 * connection whose bytes are not there yet is suspended until somebody wakes it.
 *
 *     headers -> checked (route, key, size)      head_arrived
 *     body    -> gathered                         handle
 *     all     -> a worker, asleep                 dispatch
 *     woken   -> reply, or stream, or asleep      advance, give_stream
 *     over    -> log line, reaper                 completed */

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/generation.h"
#include "server/origin.h"
#include "server/router.h"
#include "server/state.h"

/* A stream's bytes that the kernel may hold for a reader: when they are full, it is slow. */
#define SEND_BUFFER (64 << 10)
#define BLOCK       8192 /* bytes that libmicrohttpd asks for at once */
#define BACKLOG     512
#define DROPPED_MAX (64u << 20) /* bytes of a refused body that are still read */

/* ---- replies ----------------------------------------------------------------------------- */

static const char *header(const gm_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, name);
}

/* A response that a header cannot be added to is no more. */
static void put(struct MHD_Response **r, const char *name, const char *value)
{
    if (!*r || MHD_add_response_header(*r, name, value) == MHD_YES) return;
    MHD_destroy_response(*r);
    *r = NULL;
}

static void put_cors(const gm_exchange *x, struct MHD_Response **r)
{
    const char *const allowed = x->server->opts.cors, *const origin = header(x, "Origin");
    if (!allowed || !origin) return;
    put(r, "Vary", "Origin");
    if (strcmp(allowed, "*") != 0 && strcmp(allowed, origin) != 0) return;
    put(r, "Access-Control-Allow-Origin", allowed);
    put(r, "Access-Control-Expose-Headers", "x-request-id, retry-after");
    if (strcmp(x->method, "OPTIONS") != 0) return;
    const char *const asked = header(x, "Access-Control-Request-Headers");
    put(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    put(r, "Access-Control-Max-Age", "600");
    if (asked) put(r, "Access-Control-Allow-Headers", asked);
}

static enum MHD_Result send_response(gm_exchange *x, unsigned status, struct MHD_Response *r)
{
    put(&r, "x-request-id", x->id);
    put_cors(x, &r);
    if (atomic_load(&x->server->stopping)) put(&r, "Connection", "close");
    if (!r) return MHD_NO;
    x->status = status;
    const enum MHD_Result rc = MHD_queue_response(x->conn, status, r);
    MHD_destroy_response(r);
    return rc;
}

/* libmicrohttpd asks for more of a reply. A buffer would do, but then nobody would know whether the
 * client reads. */
static ssize_t give_reply(void *cls, uint64_t pos, char *buf, size_t max)
{
    gm_exchange *const x = cls;
    const gm_strbuf *const body = &x->reply.body;
    const size_t left = body->len - (size_t)pos, n = left < max ? left : max;
    memcpy(buf, body->p + pos, n);
    atomic_store(&x->lively, 1);
    gm_loop_note(&x->server->loop);
    return (ssize_t)n;
}

/* libmicrohttpd says that a request is over, upon which the exchange may be freed, when it has done
 * with its response. */
static enum MHD_Result send_reply(gm_exchange *x)
{
    const gm_reply *const reply = &x->reply;
    if (reply->body.failed) return MHD_NO;
    atomic_store(&x->whole, 1);
    struct MHD_Response *r =
        MHD_create_response_from_callback(reply->body.len, BLOCK, give_reply, x, NULL);
    if (reply->body.len) put(&r, "Content-Type", reply->type ? reply->type : "application/json");
    if (reply->allow) put(&r, "Allow", reply->allow);
    if (reply->ask_key) put(&r, "WWW-Authenticate", "Bearer");
    if (reply->retry_s) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", reply->retry_s);
        put(&r, "Retry-After", seconds);
    }
    /* OpenAI's clients would ask twice more for what took all its time. */
    if (reply->status == MHD_HTTP_GATEWAY_TIMEOUT) put(&r, "x-should-retry", "false");
    return send_response(x, reply->status, r);
}

/* ---- streams ----------------------------------------------------------------------------- */

/* Ends a stream that goes nowhere. An error of the reader would close the connection and not give
 * it back while an older one is idle (libmicrohttpd's epoll loop looks at the oldest only); a write
 * that fails gives it back at once. */
static ssize_t hang_up(const gm_exchange *x, char *buf)
{
    shutdown(x->fd, SHUT_RDWR);
    *buf = '\n';
    return 1;
}

/* libmicrohttpd asks for more of a stream. */
static ssize_t give_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    gm_exchange *const x = cls;
    (void)pos;
    if (atomic_load(&x->gone)) return hang_up(x, buf);
    if (x->out_at == x->out.len) {
        gm_strbuf_clear(&x->out);
        x->out_at = 0;
        atomic_store(&x->news, 0);
        gm_generation_pump(x);
        if (x->out.failed || atomic_load(&x->gone)) return hang_up(x, buf);
        atomic_store(&x->whole, x->gen->finished);
    }
    const size_t left = x->out.len - x->out_at, n = left < max ? left : max;
    if (n == 0 && x->gen->finished) return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        gm_exchange_sleep(x);
        return 0;
    }
    memcpy(buf, x->out.p + x->out_at, n);
    x->out_at += n;
    atomic_store(&x->lively, 1);
    gm_loop_note(&x->server->loop);
    return (ssize_t)n;
}

static enum MHD_Result send_stream(gm_exchange *x)
{
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, give_stream, x, NULL);
    put(&r, "Content-Type", "text/event-stream; charset=utf-8");
    put(&r, "Cache-Control", "no-cache");
    put(&r, "X-Accel-Buffering", "no");
    return send_response(x, MHD_HTTP_OK, r);
}

/* ---- workers ----------------------------------------------------------------------------- */

/* Whether \\u and four digits stand there for half of a character: 'D' and 8 to B, or C to F. */
static bool is_half(gm_str at, const char *digits)
{
    return at.len >= 6 && at.p[0] == '\\' && at.p[1] == 'u' && (at.p[2] | 0x20) == 'd' &&
           strchr(digits, at.p[3]) && at.p[3];
}

/* JavaScript cuts texts between the halves of a character, which JSON can say and UTF-8 cannot: a
 * half without the other becomes U+FFFD. Answers how many values there are, nearly: what begins or
 * separates them. They take more memory than their text. */
static size_t mend_body(gm_strbuf *body)
{
    size_t n = 0;
    bool quoted = false;
    for (size_t i = 0; i < body->len; i++) {
        const gm_str at = {body->p + i, body->len - i}, behind = {at.p + 6, at.len - 6};
        if (*at.p == '"') quoted = !quoted;
        n += !quoted && strchr("[{,", *at.p) && *at.p;
        if (!quoted || *at.p != '\\') continue;
        const bool first = is_half(at, "89abAB");
        if (first && at.len >= 12 && is_half(behind, "cdefCDEF"))
            i += 11;
        else if (first || is_half(at, "cdefCDEF"))
            memcpy(body->p + i + 2, "fffd", 4);
        else
            i++;
    }
    return n;
}

/* Why jansson did not take a body. */
static void refuse_body(gm_exchange *x, const json_error_t *why)
{
    const enum json_error_code code = json_error_code(why);
    if (code == json_error_out_of_memory) {
        gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "there is not enough memory");
        return;
    }
    const bool is_json = code == json_error_duplicate_key || code == json_error_numeric_overflow;
    gm_reply_error(x, MHD_HTTP_BAD_REQUEST, NULL, "the body %s: %s at line %d, column %d",
                   is_json ? "cannot be taken" : "is not JSON", why->text, why->line, why->column);
}

/* Reads the body and begins what it asks for. Who waits for an answer keeps nothing of a prompt, and
 * who has got one nothing at all. */
static void read_body(gm_exchange *x)
{
    json_error_t why = {0};
    const bool many = mend_body(&x->body) > GM_SERVER_VALUES_MAX;
    const gm_str body = gm_strbuf_str(&x->body);
    if (!many)
        x->json = json_loadb(body.p ? body.p : "", body.len,
                             JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    gm_exchange_forget_body(x);
    if (many)
        gm_reply_error(x, MHD_HTTP_CONTENT_TOO_LARGE, NULL, "the body has more than %d values",
                       GM_SERVER_VALUES_MAX);
    else if (x->json)
        x->route->answer(x);
    else
        refuse_body(x, &why);
    if (x->gen) {
        json_object_del(x->json, "messages");
        json_object_del(x->json, "prompt");
    } else {
        json_decref(x->json);
        x->json = NULL;
    }
}

/* Bodies of those who have left, or whose time is up, would be read for nobody. */
static void work(gm_exchange *x)
{
    if (atomic_load(&x->gone) || atomic_load(&x->late)) {
        const gm_lateness l = gm_exchange_lateness(x, false);
        gm_exchange_forget_body(x);
        gm_reply_error(x, l.status, NULL, "%s", l.why);
    } else if (x->body.len > GM_SERVER_BODY_LARGE && gm_exchange_is_crowded(x)) {
        gm_exchange_forget_body(x); /* read for nothing */
        gm_reply_crowded(x);
    } else {
        read_body(x);
        if (!gm_exchange_keep(x, x->reply.body.len)) gm_reply_crowded(x);
    }
    atomic_store(&x->worked, 1);
    if (x->gen && (atomic_load(&x->gone) || atomic_load(&x->late))) gm_generation_cancel(x->gen);
    gm_exchange_wake(x);
    gm_exchange_drop(x);
}

static void reap(gm_exchange *x)
{
    gm_server *const s = x->server;
    const bool counted = x->put;
    gm_exchange_free(x);
    if (!counted) return;
    pthread_mutex_lock(&s->lock);
    if (--s->n_under_way == 0) pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

static void dispatch(gm_exchange *x)
{
    gm_server *const s = x->server;
    pthread_mutex_lock(&s->lock);
    s->n_under_way++;
    pthread_mutex_unlock(&s->lock);
    x->put = true;
    atomic_fetch_add(&x->holders, 1);
    gm_watcher_mark(&s->watcher, x->link, GM_LINK_BUSY);
    gm_watcher_add(&s->watcher, x);
    gm_crew_put(x->body.len > GM_SERVER_BODY_LARGE ? &s->porter : &s->workers, x);
    gm_exchange_sleep(x);
}

/* ---- requests ---------------------------------------------------------------------------- */

static void refuse_unready(gm_exchange *x)
{
    const gm_server *const s = x->server;
    x->reply.retry_s = 2;
    if (atomic_load(&s->stopping)) {
        gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "the server is stopping");
        return;
    }
    const uint64_t total = atomic_load(&s->load_total), done = atomic_load(&s->load_done);
    gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "the model is loading: %.0f %%",
                   total ? 100.0 * (double)done / (double)total : 0.0);
}

/* The path of a request's target, which may name the server too (RFC 9112, 3.2.2). */
static const char *path_of(const char *url)
{
    const char *const scheme = strstr(url, "://");
    if (url[0] == '/' || !scheme) return url;
    const char *const path = strchr(scheme + 3, '/');
    return path ? path : "/";
}

/* How often a request has a header. */
typedef struct header_count {
    const char *name;
    unsigned n;
} header_count;

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    header_count *const c = cls;
    (void)kind, (void)value;
    c->n += strcasecmp(key, c->name) == 0;
    return MHD_YES;
}

static unsigned times(const gm_exchange *x, const char *name)
{
    header_count c = {name, 0};
    MHD_get_connection_values(x->conn, MHD_HEADER_KIND, count_header, &c);
    return c.n;
}

/* Somebody before us may have gone by the other one of two headers. */
static bool is_ambiguous(const gm_exchange *x)
{
    return times(x, "Content-Length") + times(x, "Transfer-Encoding") > 1 || times(x, "Host") > 1;
}

static bool has_key(gm_exchange *x)
{
    const gm_admission is = gm_keys_admit(&x->server->keys, header(x, "Authorization"));
    if (is == GM_ADMITTED) return true;
    x->reply.ask_key = true;
    gm_reply_error(x, MHD_HTTP_UNAUTHORIZED, NULL, "%s",
                   is == GM_NO_KEY ? "a key is needed: Authorization: Bearer KEY"
                                   : "this key is not known");
    return false;
}

static bool is_json(gm_exchange *x)
{
    const char *const type = header(x, "Content-Type");
    const char *const coding = header(x, "Content-Encoding");
    if (coding && strcasecmp(coding, "identity") != 0) {
        gm_reply_error(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL,
                       "Content-Encoding is %.40s, expected none: the body must come as it is",
                       coding);
        return false;
    }
    const size_t len = type ? strcspn(type, "; \t") : 0;
    if (len == strlen("application/json") && strncasecmp(type, "application/json", len) == 0)
        return true;
    gm_reply_error(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL,
                   "Content-Type is %.60s, expected application/json", type ? type : "missing");
    return false;
}

/* What the headers take of a connection's memory: libmicrohttpd notes 64 bytes of each. */
static size_t head_size(const gm_exchange *x)
{
    const enum MHD_ValueKind all = MHD_HEADER_KIND | MHD_COOKIE_KIND | MHD_GET_ARGUMENT_KIND;
    return MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size +
           64 * (size_t)MHD_get_connection_values(x->conn, all, NULL, NULL);
}

/* The headers are there. What is wrong with them is said now; a body that comes is still taken, so
 * that the connection can be kept, unless it is too long. */
static enum MHD_Result head_arrived(gm_exchange *x, const char *url, const char *method)
{
    gm_server *const s = x->server;
    snprintf(x->method, sizeof x->method, "%s", method);
    gm_strbuf_put(&x->path, gm_str_c(path_of(url)));
    if (x->path.failed) return MHD_NO;
    x->route = gm_router_find(x);
    const char *const length = header(x, "Content-Length");
    const char *const coding = header(x, "Transfer-Encoding");
    if (coding && strcasecmp(coding, "chunked") != 0) { /* where such a body ends is not known */
        gm_reply_error(x, MHD_HTTP_NOT_IMPLEMENTED, NULL,
                       "Transfer-Encoding is %.40s, expected chunked", coding);
        return send_reply(x);
    }
    if (is_ambiguous(x)) {
        gm_reply_error(x, MHD_HTTP_BAD_REQUEST, NULL,
                       "there are two of Host, or of Content-Length and Transfer-Encoding, "
                       "expected one");
        return send_reply(x);
    }
    const char *const host = header(x, "Host"), *const origin = header(x, "Origin");
    if (!x->route) {
    } else if (head_size(x) > GM_SERVER_HEAD_MAX) {
        gm_reply_error(x, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, NULL,
                       "the headers take %zu bytes, with 64 for each, expected at most %u",
                       head_size(x), GM_SERVER_HEAD_MAX);
    } else if (!gm_origin_admit(s, host, origin)) {
        const char *const cors = s->opts.cors;
        gm_reply_error(x, MHD_HTTP_FORBIDDEN, NULL,
                       "Host is %.60s and Origin %.60s: without --api-key only names of this "
                       "machine are answered, and pages of it%s%.100s",
                       host ? host : "missing", origin ? origin : "missing",
                       cors ? " or of " : " or of what --cors says", cors ? cors : "");
    } else if (!x->route->open && !has_key(x)) {
    } else if (!x->route->early && (!atomic_load(&s->ready) || atomic_load(&s->stopping))) {
        refuse_unready(x);
    } else if (strcmp(x->method, "POST") == 0) {
        is_json(x);
    }
    if (!length || strlen(length) < 8 || strtoull(length, NULL, 10) <= GM_SERVER_BODY_MAX)
        return MHD_YES;
    gm_reply_error(x, MHD_HTTP_CONTENT_TOO_LARGE, NULL,
                   "the body has %.20s bytes, expected at most %u", length, GM_SERVER_BODY_MAX);
    /* One who sends all the same can read the answer only behind that. */
    const bool sends = !header(x, "Expect") && strtoull(length, NULL, 10) <= DROPPED_MAX;
    return sends ? MHD_YES : send_reply(x);
}

/* All of the request is there, or a sleeper was woken. */
static enum MHD_Result advance(gm_exchange *x)
{
    atomic_store(&x->news, 0);
    if (atomic_load(&x->gone)) return MHD_NO;
    if (!x->reply.status && x->put && x->gen) {
        if (x->gen->ask.stream) return send_stream(x);
        gm_generation_pump(x);
        if (atomic_load(&x->gone)) return MHD_NO; /* an end that was met may be due to that */
        if (!x->reply.status) gm_exchange_sleep(x);
    } else if (!x->reply.status && strcmp(x->route->method, "POST") == 0) {
        dispatch(x); /* from here on it is the worker's */
        return MHD_YES;
    } else if (!x->reply.status) {
        x->route->answer(x);
    }
    return x->reply.status ? send_reply(x) : MHD_YES;
}

static enum MHD_Result take_body(gm_exchange *x, const char *data, size_t n)
{
    const size_t len = x->body.len;
    if (x->reply.status) { /* refused already: it is read and forgotten */
        x->n_dropped += n;
        return x->n_dropped <= DROPPED_MAX ? MHD_YES : MHD_NO;
    }
    const size_t all = atomic_fetch_add(&x->server->n_body, n) + n;
    x->n_counted += n;
    if (n <= GM_SERVER_BODY_MAX - len) gm_strbuf_put(&x->body, (gm_str){data, n});
    if (x->body.failed || all > GM_SERVER_BODIES_MAX)
        gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "there is not enough memory");
    else if (x->body.len == len)
        gm_reply_error(x, MHD_HTTP_CONTENT_TOO_LARGE, NULL, "the body has more than %u bytes",
                       GM_SERVER_BODY_MAX);
    return MHD_YES;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *conn, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **con_cls)
{
    gm_server *const s = cls;
    gm_exchange *const x = *con_cls;
    (void)conn, (void)version;
    gm_loop_note(&s->loop);
    if (!x || x->status) return MHD_NO; /* no memory for it, or its first line was refused */
    if (!x->seen) {
        x->seen = true;
        return head_arrived(x, url, method);
    }
    if (*size == 0) return advance(x);
    const enum MHD_Result rc = take_body(x, data, *size);
    *size = 0;
    return rc;
}

/* ---- connections ------------------------------------------------------------------------- */

/* What a target takes of a connection's memory, as head_size counts: 64 bytes for each argument. */
static size_t target_size(const char *uri)
{
    size_t n_args = 0;
    for (const char *at = strchr(uri, '?'); at; at = strchr(at + 1, '&'))
        n_args++;
    return strlen(uri) + 64 * n_args;
}

/* libmicrohttpd would go on to note a query's arguments, of which a byte takes up to 64: where it has
 * no memory for them, it sends nothing and does not say that the request is over. A reply cannot be
 * queued yet; over TLS the client is only hung up on. */
static void refuse_target(gm_exchange *x, size_t size)
{
    char head[256];
    x->status = MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE;
    gm_reply_error(x, x->status, NULL,
                   "the request's target takes %zu bytes, with 64 for each argument, "
                   "expected at most %u",
                   size, GM_SERVER_HEAD_MAX);
    const gm_str body = gm_strbuf_str(&x->reply.body);
    const int len = snprintf(head, sizeof head,
                             "HTTP/1.1 %u Request Header Fields Too Large\r\n"
                             "Connection: close\r\nContent-Type: application/json\r\n"
                             "Content-Length: %zu\r\nx-request-id: %s\r\n\r\n",
                             x->status, body.len, x->id);
    const bool plain = !x->server->tls_cert.len && !x->reply.body.failed;
    if (plain && send(x->fd, head, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE) == len)
        send(x->fd, body.p, body.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(x->fd, SHUT_RDWR);
}

/* The first line of a request: here its exchange begins. */
static void *line_arrived(void *cls, const char *uri, struct MHD_Connection *conn)
{
    gm_server *const s = cls;
    gm_exchange *x = NULL;
    if (gm_mem_alloc(&x, 1, sizeof *x, "a request", NULL) != GM_OK) return NULL;
    x->server = s;
    x->conn = conn;
    x->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    x->link = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    x->start_s = gm_clock_s();
    x->deadline_s = x->start_s + s->opts.timeout_s;
    gm_exchange_name(x, "req");
    atomic_store(&x->holders, 1);
    gm_watcher_mark(&s->watcher, x->link, GM_LINK_READING);
    if (x->link) x->link->exchange = x;
    const size_t size = target_size(uri);
    if (size > GM_SERVER_HEAD_MAX) refuse_target(x, size);
    return x;
}

static void completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                      enum MHD_RequestTerminationCode why)
{
    gm_server *const s = cls;
    gm_exchange *const x = *con_cls;
    (void)conn;
    if (!x) return;
    *con_cls = NULL;
    if (x->link) x->link->exchange = NULL;
    gm_watcher_remove(&s->watcher, x);
    gm_watcher_mark(&s->watcher, x->link, GM_LINK_IDLE);
    const double seconds = gm_clock_s() - x->start_s;
    /* A client may hang up as soon as it has the last byte, which the watcher sees too. */
    atomic_store(&x->gone, why != MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (x->status || x->seen) {
        if (x->gen) gm_generation_tally_wait(x);
        gm_metrics_exchange(&s->metrics, x, seconds);
        gm_record_put(x, x->status, seconds);
    }
    gm_exchange_drop(x);
}

static void connection_changed(void *cls, struct MHD_Connection *conn, void **context,
                               enum MHD_ConnectionNotificationCode what)
{
    gm_server *const s = cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const int fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *context = gm_watcher_open(&s->watcher, fd);
        return;
    }
    gm_link *const l = *context;
    void *left = l ? l->exchange : NULL; /* what nobody was told the end of */
    completed(s, conn, &left, MHD_REQUEST_TERMINATED_WITH_ERROR);
    gm_watcher_close(&s->watcher, l);
    *context = NULL;
}

/* ---- the port ---------------------------------------------------------------------------- */

static int listen_on(const struct addrinfo *a)
{
    const int one = 1, buffer = SEND_BUFFER;
    const int fd =
        socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int os = errno;
    close(fd);
    errno = os;
    return -1;
}

static gm_status open_port(gm_server *s, gm_err *err)
{
    char port[8];
    snprintf(port, sizeof port, "%u", s->opts.port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    const int rc = getaddrinfo(s->opts.host, port, &hints, &found);
    if (rc) {
        return gm_fail(err, rc == EAI_MEMORY ? GM_E_NOMEM : GM_E_IO, 0, "host %.80s: %s",
                       s->opts.host, gai_strerror(rc));
    }
    for (const struct addrinfo *a = found; a && s->listen_fd < 0; a = a->ai_next)
        s->listen_fd = listen_on(a);
    const int os = errno;
    freeaddrinfo(found);
    if (s->listen_fd < 0) {
        return gm_fail(err, GM_E_IO, os, "port %s of %.80s cannot be listened on: %s", port,
                       s->opts.host, strerror(os));
    }
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len = sizeof at;
    memset(&at, 0, sizeof at);
    getsockname(s->listen_fd, &at.any, &len);
    s->loopback = at.any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&at.v6.sin6_addr)
                                               : ntohl(at.v4.sin_addr.s_addr) >> 24 == 127;
    s->port = ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
    return GM_OK;
}

gm_status gm_http_open(gm_server *s, gm_err *err)
{
    GM_TRY(open_port(s, err));
    GM_TRY(gm_crew_init(&s->workers, 2, work, err));
    GM_TRY(gm_crew_init(&s->porter, 1, work, err));
    GM_TRY(gm_crew_init(&s->reaper, 1, reap, err));
    const bool tls = s->tls_cert.len > 0;
    const struct MHD_OptionItem options[] = {
        {MHD_OPTION_LISTEN_SOCKET, s->listen_fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, s->n_connections, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, GM_SERVER_POOL, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)completed, s},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)connection_changed, s},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)line_arrived, s},
        {tls ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, s->tls_cert.p},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, s->tls_key.p},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_Daemon *const daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (tls ? MHD_USE_TLS : 0), 0,
                         NULL, NULL, handle, s, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (daemon) return gm_loop_init(&s->loop, daemon, err);
    const gm_status status = errno == ENOMEM ? GM_E_NOMEM : GM_E_IO;
    if (tls)
        return gm_fail(
            err, status, errno,
            "the server cannot be started; is %.80s a PEM certificate and %.80s its key?",
            s->opts.tls_cert, s->opts.tls_key);
    return gm_fail(err, status, errno, "the server cannot be started: %s", strerror(errno));
}

void gm_http_close(gm_server *s)
{
    gm_loop_deinit(&s->loop);
    if (s->listen_fd >= 0) close(s->listen_fd);
    s->listen_fd = -1;
    gm_crew_deinit(&s->workers);
    gm_crew_deinit(&s->porter);
    gm_crew_deinit(&s->reaper);
}
