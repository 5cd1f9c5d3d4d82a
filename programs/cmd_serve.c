/* SPDX-License-Identifier: MIT */
/* The server. The port is opened first, so that whoever asks is told that the model
 * is loading; then the model. SIGHUP reads the keys again; SIGTERM and Ctrl-C end it
 * when what runs has finished, a second one at once. */

#include "commands.h"

#include <ctype.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "interrupt.h"
#include "server/server.h"
#include "session.h"

typedef struct listen_args {
    const char *host, *key, *key_file, *tls_cert, *tls_key, *cors, *name;
    gm_argnum port;
} listen_args;

typedef struct load_args {
    gm_argnum parallel, queue, timeout, memory;
    const char *cache_dir;
} load_args;

typedef struct serve_opts {
    gm_model_args model;
    gm_engine_args engine;
    listen_args listen;
    load_args load;
    gm_general_args general;
} serve_opts;

#define DEFAULT_PARALLEL 8
#define DEFAULT_QUEUE    64
#define DEFAULT_TIMEOUT  600
#define GIVE_BACK_S      10 /* how often unused memory goes back to the system */

static const gm_argrow listen_rows[] = {
    {.name = "host",
     .value = "ADDRESS",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(listen_args, host),
     .help = "address to listen on (default: 127.0.0.1, this machine\n"
             "only; 0.0.0.0: everybody who can reach it)"},
    {.name = "port",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(listen_args, port),
     .whole = {0, 65535},
     .help = "port to listen on (default: 8006; 0: any that is free)"},
    {.name = "model-name",
     .value = "NAME",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(listen_args, name),
     .help = "name of the model for clients (default: the file's own)"},
    {.name = "api-key",
     .value = "KEY",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(listen_args, key),
     .help = "key that requests must bring; other users of this\n"
             "machine can see it in the list of processes"},
    {.name = "api-key-file",
     .value = "FILE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(listen_args, key_file),
     .help = "file of keys, one a line; read again on SIGHUP"},
    {.name = "tls-cert",
     .value = "FILE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(listen_args, tls_cert),
     .help = "PEM certificate: serve HTTPS"},
    {.name = "tls-key",
     .value = "FILE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(listen_args, tls_key),
     .help = "PEM key of the certificate"},
    {.name = "cors",
     .value = "ORIGIN",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(listen_args, cors),
     .help = "let pages of this origin ask from a browser; *: of any\n"
             "(default: none)"},
    {0},
};

static const gm_argrow load_rows[] = {
    {.name = "parallel",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(load_args, parallel),
     .whole = {1, 1024},
     .help = "answers made at once (default: 8)"},
    {.name = "queue",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(load_args, queue),
     .whole = {1, 100000},
     .help = "requests that may wait beyond these; then 429\n"
             "(default: 64)"},
    {.name = "timeout",
     .value = "SECONDS",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(load_args, timeout),
     .whole = {1, 86400},
     .help = "longest time for a request, and for those that run to\n"
             "finish after SIGTERM (default: 600)"},
    {.name = "memory",
     .value = "MB",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(load_args, memory),
     .whole = {1, UINT32_MAX},
     .help = "limit for weights, KV cache, kept beginnings and scratch\n"
             "together (default: what --parallel and --ctx need)"},
    {.name = "cache-dir",
     .value = "FOLDER",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(load_args, cache_dir),
     .help = "folder that keeps what was computed for prompts across\n"
             "restarts; as private as the prompts are"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(serve_opts, model)},
    {"Engine", gm_engine_rows, offsetof(serve_opts, engine)},
    {"Port", listen_rows, offsetof(serve_opts, listen)},
    {"Load", load_rows, offsetof(serve_opts, load)},
    {"Output", gm_general_rows + 2, offsetof(serve_opts, general)},
    {0},
};

/* ---- the log ----------------------------------------------------------------------------- */

_Static_assert(GM_SERVER_LINE_MAX < GM_LINE_MAX, "no line of the log is cut");
static void log_line(void *ctx, const char *line)
{
    (void)ctx;
    gm_say_line("%s", line);
}

/* ---- the life of a server ---------------------------------------------------------------- */

static gm_server_opts server_opts(const serve_opts *o)
{
    const listen_args *const l = &o->listen;
    gm_server_opts s = gm_server_opts_default();
    if (l->host) s.host = l->host;
    if (l->port.given) s.port = (uint16_t)l->port.whole;
    s.api_key = l->key;
    s.api_key_file = l->key_file;
    s.tls_cert = l->tls_cert;
    s.tls_key = l->tls_key;
    s.cors = l->cors;
    s.model_name = l->name;
    s.timeout_s = o->load.timeout.given ? (double)o->load.timeout.whole : DEFAULT_TIMEOUT;
    s.log = log_line;
    return s;
}

/* What /health shows meanwhile. A signal to stop ends the loading too. */
static int tell_loading(void *ctx, uint64_t done, uint64_t total)
{
    const int sig = gm_interrupt_next(0);
    gm_server_loading(ctx, done, total);
    return sig == SIGTERM || sig == SIGINT;
}

/* Opens the model, and an engine for as many answers as asked for. */
static int load(gm_session *s, gm_server *server, const serve_opts *o)
{
    gm_err err = {0};
    const int code = gm_session_open(s, &o->model);
    if (code != GM_EXIT_OK) return code;
    s->opts = gm_engine_args_opts(&o->engine, &o->general);
    s->opts.n_slots = o->load.parallel.given ? (uint32_t)o->load.parallel.whole : DEFAULT_PARALLEL;
    s->opts.max_queue = o->load.queue.given ? (uint32_t)o->load.queue.whole : DEFAULT_QUEUE;
    s->opts.cache = 1;
    s->opts.cache_dir = o->load.cache_dir;
    s->opts.memory = 1000000 * o->load.memory.whole;
    gm_engine_opts opts = s->opts;
    opts.progress = opts.checking = opts.trying = tell_loading;
    opts.progress_ctx = server;
    const gm_status status = gm_engine_open(&s->engine, s->model, &opts, &err);
    if (status == GM_OK || status == GM_E_CANCEL) return GM_EXIT_OK;
    if (status == GM_E_NOMEM && o->load.memory.given)
        return gm_say_failed("%s; --memory allows %llu MB", err.msg,
                             (unsigned long long)o->load.memory.whole);
    return gm_say_failed("%s", err.msg);
}

/* Whoever cannot write its line serves all the same. */
static void say_ready(const gm_server *s, const gm_session *session, const serve_opts *o)
{
    if (session->info.note[0]) gm_say_note("%s", session->info.note);
    const char *const host = o->listen.host ? o->listen.host : "127.0.0.1";
    const bool v6 = strchr(host, ':') != NULL; /* a URL has it in brackets */
    gm_engine_stats stats = {.size = sizeof stats};
    char weights[16], kv[16], backend[GM_SESSION_BACKEND_LEN];
    gm_engine_stat(session->engine, &stats);
    printf("gemmule: %s on %s://%s%s%s:%u, %u tokens a request, %u at once, backend %s, "
           "weights %s, KV cache %s\n",
           gm_server_model(s), o->listen.tls_cert ? "https" : "http", v6 ? "[" : "", host,
           v6 ? "]" : "", gm_server_port(s), gm_engine_ctx(session->engine), stats.n_slots,
           gm_session_backend(session, backend), gm_size_text(session->info.weight_size, weights),
           gm_size_text(stats.kv_size, kv));
    if (fflush(stdout) == 0) return;
    gm_say_note("standard output cannot be written: %s; serving on port %u", strerror(errno),
                gm_server_port(s));
    if (!freopen("/dev/null", "w", stdout)) gm_say_note("/dev/null: %s", strerror(errno));
}

/* The C library keeps what large bodies took, hundreds of megabytes, unless it is asked. */
#if defined(__GLIBC__)
static void give_memory_back(void)
{
    malloc_trim(0);
}
#else
static void give_memory_back(void)
{
}
#endif

static void serve_until_told(gm_server *s, double timeout_s)
{
    gm_err err = {0};
    int sig = 0;
    while ((sig = gm_interrupt_next(GIVE_BACK_S)) == 0 || sig == SIGHUP) {
        if (sig == 0) {
            give_memory_back();
            continue;
        }
        if (gm_server_reload(s, &err) == GM_OK)
            gm_say_note("the keys were read again");
        else
            gm_say_note("the keys stay as they were: %s", err.msg);
    }
    gm_server_stop(s);
    if (!gm_server_wait(s, 0)) {
        gm_say_note("stopping: what runs has %.0f seconds to finish; a second signal ends it now",
                    timeout_s);
    }
    for (double waited = 0; waited < timeout_s && !gm_server_wait(s, 0); waited += 0.05) {
        const int again = gm_interrupt_next(0.05);
        if (again == SIGTERM || again == SIGINT) return;
    }
}

static int check_listen(const gm_command *self, const listen_args *l)
{
    if (!l->tls_cert != !l->tls_key)
        return gm_args_refuse(self, "TLS needs both a certificate and its key: --tls-%s FILE",
                              l->tls_cert ? "key" : "cert");
    if (l->key && !*l->key) return gm_args_refuse(self, "--api-key is empty, expected a key");
    if (l->key &&
        (isblank((unsigned char)*l->key) || isblank((unsigned char)l->key[strlen(l->key) - 1])))
        return gm_args_refuse(self,
                              "--api-key begins or ends with a blank, which no header brings");
    if (l->name && !*l->name) return gm_args_refuse(self, "--model-name is empty, expected a name");
    return GM_EXIT_OK;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const serve_opts *const o = opts;
    gm_session session = {0};
    gm_server *server = NULL;
    gm_err err = {0};
    int code = gm_args_no_words(self, words, "expected options only, and a model behind -m");
    if (code == GM_EXIT_OK) code = gm_engine_args_check(self, &o->engine);
    if (code == GM_EXIT_OK) code = check_listen(self, &o->listen);
    if (code != GM_EXIT_OK) return code;
    gm_interrupt_hand();
    gm_say_at_once(); /* nobody's answer waits for who reads the log */
    const gm_server_opts so = server_opts(o);
    if (gm_server_open(&server, &so, &err) != GM_OK) return gm_say_failed("%s", err.msg);
    if (gm_server_is_public(server))
        gm_say_note("whoever reaches %s may ask: there is no --api-key and no --api-key-file",
                    so.host);
    code = load(&session, server, o);
    if (session.engine) {
        gm_server_start(server, session.model, session.engine);
        say_ready(server, &session, o);
        serve_until_told(server, so.timeout_s);
    }
    gm_server_close(server);
    gm_session_close(&session);
    return code;
}

const gm_command gm_cmd_serve = {
    .name = "serve",
    .summary = "answer programs over HTTP, as OpenAI's API does",
    .about =
        "POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize; GET /v1/models,\n"
        "/health, /metrics, /props: docs/HTTP.md has every field. Many are answered at once, and\n"
        "each as if it were alone. The port is open while the model loads; a line on standard\n"
        "output says when it is ready, and a line of JSON on standard error tells of every "
        "request.\n"
        "SIGTERM and Ctrl-C finish what runs, twice they end it; SIGHUP reads the keys again.",
    .examples = "gemmule serve\n"
                "gemmule serve --parallel 32 --ctx 8192 --api-key-file keys.txt",
    .groups = groups,
    .opts_size = sizeof(serve_opts),
    .until_told = true,
    .run = run,
};
