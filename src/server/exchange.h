/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_EXCHANGE_H
#define GM_SERVER_EXCHANGE_H

/* One request over HTTP and its reply, from the first line to the last byte.
 *
 * Who touches it, in order: the I/O thread while the request arrives; a worker,
 * which reads the body and opens what the engine is to do; the I/O thread again,
 * which turns events into bytes as the client takes them; and the reaper, which
 * frees it. Meanwhile its connection sleeps: it is suspended, and woken by the
 * worker, by the engine or by the watcher (gm_exchange_wake, any thread). */

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/strbuf.h"
#include "server/server.h"

typedef struct gm_route gm_route;
typedef struct gm_generation gm_generation;
typedef struct gm_exchange gm_exchange;

/* What is sent back at once. */
typedef struct gm_reply {
    unsigned status;   /* 0: there is none yet     */
    const char *type;  /* NULL: application/json   */
    const char *allow; /* of a 405 and of OPTIONS  */
    unsigned retry_s;  /* Retry-After; 0: none     */
    bool ask_key;      /* WWW-Authenticate         */
    const char *code;  /* of an error; NULL: that of its status */
    gm_strbuf body;
} gm_reply;

/* For the log line and the metrics. */
typedef struct gm_tally {
    uint32_t n_prompt, n_cached, n_answer, n_choices;
    double queue_s, first_s; /* seconds in the queue; when the first token came, 0: none  */
    const char *finish;      /* "stop", "length", "cancel", "error" or NULL               */
    char error[200];
} gm_tally;

struct gm_exchange {
    gm_server *server;
    struct MHD_Connection *conn;
    int fd;
    const gm_route *route;
    char method[12];
    gm_strbuf path;   /* without the query                            */
    const char *rest; /* of the path, behind the route's; "" where none */
    gm_strbuf body;
    size_t n_counted;     /* bytes of it in the server's sum */
    size_t n_kept;        /* bytes of the reply in the server's sum of those */
    size_t n_dropped;     /* bytes of a body that nobody wants            */
    unsigned status;      /* that was sent; 0: none                       */
    struct gm_link *link; /* its connection, for the watcher           */
    bool seen;            /* the handler has seen the headers             */
    bool put;             /* a worker has been given it                   */
    char id[40];          /* "chatcmpl-..." of a generation, else "req-..." */
    json_t *json;         /* the body, where it was read                  */
    gm_reply reply;
    gm_generation *gen;
    gm_tally tally;

    double start_s, open_s, deadline_s; /* its first line; handed to the engine; its last moment */
    double ping_at_s; /* when it needs a comment, unless bytes are given out before        */
    double taken_s;   /* when the watcher last saw that its client was not what it waits for */
    gm_strbuf out;    /* of a stream: bytes not yet taken                   */
    size_t out_at;

    atomic_int asleep; /* suspended, and whoever clears this resumes it      */
    atomic_int news;   /* something happened since this was cleared          */
    atomic_int worked; /* the worker is done with it                         */
    atomic_int gone;   /* the client hung up                                 */
    atomic_int late;   /* the time for it is up                              */
    atomic_int ping;   /* a comment should be sent                           */
    atomic_int lively; /* bytes were given out since the watcher looked      */
    atomic_int whole;  /* there is nothing but for its client to read it     */

    atomic_int holders; /* the connection, a worker: the last one hands it to the reaper */

    gm_exchange *next; /* in a crew's queue            */
    uint64_t serial;   /* the watcher's name for it    */
    gm_exchange *watched_before, *watched_after;
};

/* Gives it a name that no other has, "kind-...": x-request-id and the log line have it. */
void gm_exchange_name(gm_exchange *x, const char *kind);

/* Something happened: a sleeping connection is resumed. Any thread. */
void gm_exchange_wake(void *exchange);
/* What an exchange is answered whose time was up, before or after its work was begun. */
typedef struct gm_lateness {
    unsigned status;
    const char *why;
} gm_lateness;
gm_lateness gm_exchange_lateness(const gm_exchange *x, bool begun);

/* Suspends the connection, unless something happened since `news` was cleared. I/O thread; the
 * caller then returns to libmicrohttpd. */
void gm_exchange_sleep(gm_exchange *x);

/* One holder less. */
void gm_exchange_drop(gm_exchange *x);
void gm_exchange_free(gm_exchange *x);
/* The body is not needed any more. */
void gm_exchange_forget_body(gm_exchange *x);

/* The reply takes this many bytes by now. Where it is not small, and with all others that are not sent
 * yet takes more than there may be, false: then it is to be given up. One that is alone is never. */
bool gm_exchange_keep(gm_exchange *x, size_t n);
/* Whether there is no room for another reply that is not small. Any thread. */
bool gm_exchange_is_crowded(const gm_exchange *x);

/* ---- replies: each may be called once, by whoever has the exchange --------------------- */

/* An OpenAI error object. param is the field's name, of which it has 60 characters, or NULL. */
void gm_reply_error(gm_exchange *x, unsigned status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* There are too many replies that are not sent yet: the sentence has the server's replies_max. */
#define GM_CROWDED                                                                        \
    "replies that their clients have not read may take %zu bytes, and this one does not " \
    "fit beside the others"
void gm_reply_crowded(gm_exchange *x);
/* The same for a failure of the library. */
void gm_reply_failure(gm_exchange *x, const char *param, const gm_err *err);
/* The value, which is freed; NULL counts as a lack of memory. */
void gm_reply_json(gm_exchange *x, json_t *value);

/* An error object as it stands in a stream. code NULL: that of the status. */
json_t *gm_error_json(unsigned status, const char *code, const char *param, const char *message);
/* The HTTP status for a failure of the library. */
unsigned gm_error_status(gm_status code);

/* A JSON string of the text's first n characters. */
json_t *gm_json_cut(const char *text, size_t n);
/* Appends a JSON value, which is freed; false for NULL and a lack of memory. */
bool gm_json_put(gm_strbuf *out, json_t *value);

#endif
