/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_SERVER_H
#define GM_SERVER_SERVER_H

/* The OpenAI API over HTTP, in front of an engine.
 *
 *     gm_server_open(&s, &opts, &err);       the port is open; requests are answered with 503
 *     gm_server_start(s, model, engine);     from here on they are served
 *     gm_server_stop(s);                     no new ones; those that run are let finish
 *     gm_server_wait(s, seconds);            until nothing runs
 *     gm_server_close(s);                    cancels what is left; before the engine is closed
 *
 * The server uses the library as any program does: through gemmule.h. It never
 * prints; what it has to say goes to the log callback, a line at a time. */

#include <stdbool.h>

#include "gemmule.h"

#define GM_SERVER_LINE_MAX 4095 /* bytes of a line of the log */

typedef struct gm_server gm_server;

typedef struct gm_server_opts {
    const char *host; /* a name or an address to listen on                            */
    uint16_t port;    /* 0: any that is free                                          */
    const char *api_key, *api_key_file; /* who may ask; both NULL: everybody                 */
    const char *tls_cert, *tls_key;     /* PEM files; both NULL: plain HTTP                  */
    const char *cors;                   /* the origin whose pages may ask; NULL: none        */
    const char *model_name;             /* NULL: what the model file calls itself            */
    double timeout_s;                   /* of one request, from its first byte to its last   */
    double ping_s;            /* a stream that has had nothing for this long gets a comment      */
    const char *monitor_root; /* where sys/ is looked for; NULL: the system's                */
    /* One line without its end, of at most GM_SERVER_LINE_MAX bytes; any thread; or NULL. Everybody
     * waits for it. */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
} gm_server_opts;
gm_server_opts gm_server_opts_default(void);

/* Opens the port. Strings are borrowed until close. */
gm_status gm_server_open(gm_server **out, const gm_server_opts *opts, gm_err *err);

/* The port that it listens on. */
uint16_t gm_server_port(const gm_server *s);

/* Whether everybody may ask who can reach it: others than this machine can, and there are no keys. */
bool gm_server_is_public(const gm_server *s);

/* While the model loads: what /health says. Any thread. */
void gm_server_loading(gm_server *s, uint64_t done, uint64_t total);

/* The model is there; both must outlive the server. */
void gm_server_start(gm_server *s, const gm_model *m, gm_engine *e);
/* The name under which it answers; valid until close. */
const char *gm_server_model(const gm_server *s);

/* Reads the file of keys again. On failure those before go on. */
gm_status gm_server_reload(gm_server *s, gm_err *err);

/* The port is closed; what runs goes on. */
void gm_server_stop(gm_server *s);
/* Waits until no request is under way; false when that takes longer. */
bool gm_server_wait(gm_server *s, double seconds);
void gm_server_close(gm_server *s); /* NULL is fine */

#endif
