/* SPDX-License-Identifier: MIT */
#include "server/server.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/origin.h"
#include "server/state.h"

gm_server_opts gm_server_opts_default(void)
{
    return (gm_server_opts){.host = "127.0.0.1", .port = 8006, .timeout_s = 600, .ping_s = 10};
}

static uint32_t connections_allowed(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return GM_SERVER_CONNECTIONS;
    if (files.rlim_cur >= GM_SERVER_CONNECTIONS + GM_SERVER_FILES) return GM_SERVER_CONNECTIONS;
    return files.rlim_cur > GM_SERVER_FILES + 10 ? (uint32_t)files.rlim_cur - GM_SERVER_FILES : 10;
}

static gm_status server_init(gm_server *s, gm_err *err)
{
    const gm_server_opts *const o = &s->opts;
    if (!o->tls_cert != !o->tls_key)
        return gm_fail(err, GM_E_ARG, 0, "TLS needs both a certificate and its key");
    GM_TRY(gm_origin_check(o->cors, err));
    GM_TRY(gm_keys_init(&s->keys, o->api_key, o->api_key_file, err));
    if (o->tls_cert) {
        GM_TRY(gm_keys_read_file(o->tls_cert, &s->tls_cert, err));
        GM_TRY(gm_keys_read_file(o->tls_key, &s->tls_key, err));
    }
    s->n_connections = connections_allowed();
    s->replies_max = GM_SERVER_REPLIES_MAX;
    GM_TRY(gm_watcher_init(&s->watcher, o->ping_s, s->n_connections / 10 * 9, err));
    return gm_http_open(s, err);
}

gm_status gm_server_open(gm_server **out, const gm_server_opts *opts, gm_err *err)
{
    *out = NULL;
    gm_server *s = NULL;
    GM_TRY(gm_mem_alloc(&s, 1, sizeof *s, "a server", err));
    s->opts = *opts;
    s->listen_fd = -1;
    s->start_s = gm_clock_s();
    s->created = time(NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const gm_status status = server_init(s, err);
    if (status == GM_OK)
        *out = s;
    else
        gm_server_close(s);
    return status;
}

uint16_t gm_server_port(const gm_server *s)
{
    return s->port;
}

bool gm_server_is_public(const gm_server *s)
{
    return !s->loopback && !s->opts.api_key && !s->opts.api_key_file;
}

const char *gm_server_model(const gm_server *s)
{
    return s->model_name;
}

void gm_server_loading(gm_server *s, uint64_t done, uint64_t total)
{
    atomic_store(&s->load_total, total);
    atomic_store(&s->load_done, done);
}

void gm_server_start(gm_server *s, const gm_model *m, gm_engine *e)
{
    s->model = m;
    s->engine = e;
    s->info.size = sizeof s->info;
    gm_model_describe(m, &s->info);
    const char *const name = s->opts.model_name ? s->opts.model_name : s->info.name;
    gm_err safe = {0}; /* a file's name for itself is any bytes; gm_fail makes a text of them */
    gm_fail(&safe, GM_OK, 0, "%.255s", *name ? name : "gemma-3");
    snprintf(s->model_name, sizeof s->model_name, "%.255s", safe.msg);
    snprintf(s->fingerprint, sizeof s->fingerprint, "fp_gemmule_%s_%s", gm_version(),
             gm_engine_backend(e));
    atomic_store(&s->ready, 1);
}

gm_status gm_server_reload(gm_server *s, gm_err *err)
{
    return gm_keys_reload(&s->keys, err);
}

void gm_server_stop(gm_server *s)
{
    if (atomic_exchange(&s->stopping, 1)) return;
    gm_loop_refuse(&s->loop);
    close(s->listen_fd);
    s->listen_fd = -1;
}

bool gm_server_wait(gm_server *s, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&s->lock);
    int rc = 0;
    while (s->n_under_way && rc == 0)
        rc = pthread_cond_timedwait(&s->idle, &s->lock, &until);
    const bool idle = s->n_under_way == 0;
    pthread_mutex_unlock(&s->lock);
    return idle;
}

void gm_server_close(gm_server *s)
{
    if (!s) return;
    if (s->loop.daemon) {
        gm_server_stop(s);
        /* Those that run are told why they end; then the line is cut. Only what a worker has begun
         * to read goes on, and ends: libmicrohttpd cannot be stopped under it. */
        if (!gm_server_wait(s, 0)) {
            gm_watcher_cancel(&s->watcher, false);
            while (!gm_server_wait(s, 2))
                gm_watcher_cancel(&s->watcher, true);
        }
    }
    gm_http_close(s);
    gm_watcher_deinit(&s->watcher);
    gm_keys_deinit(&s->keys);
    gm_strbuf_deinit(&s->tls_cert);
    gm_strbuf_deinit(&s->tls_key);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    gm_mem_free(s);
}
