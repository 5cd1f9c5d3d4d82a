/* SPDX-License-Identifier: MIT */
/* Sleeping and waking without a lock. `asleep` is set only after the connection is
 * suspended, and whoever swaps it back to 0 resumes it: so every suspend has one
 * resume, after it. `news` is set before `asleep` is looked at by a waker, and looked
 * at after `asleep` is set by the sleeper: so one of the two sees the other. A lock
 * would not do: the engine wakes while it holds its own, and the I/O thread asks the
 * engine for events.
 *
 * Until the worker is done nobody resumes: libmicrohttpd could find the client gone, and
 * end the connection in the worker's hands. It is the worker who wakes then. */

#include "server/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/mem.h"
#include "server/generation.h"
#include "server/state.h"

#define PARAM_MAX 60 /* characters of a field's name that an error repeats, like its sentence */

void gm_exchange_name(gm_exchange *x, const char *kind)
{
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof random, 0) < 0) random[0] = (uint64_t)(uintptr_t)x;
    snprintf(x->id, sizeof x->id, "%s-%016llx%08llx", kind, (unsigned long long)random[0],
             (unsigned long long)random[1] & 0xFFFFFFFF);
}

void gm_exchange_wake(void *exchange)
{
    gm_exchange *const x = exchange;
    atomic_store(&x->news, 1);
    if (!atomic_load(&x->worked) || !atomic_exchange(&x->asleep, 0)) return;
    MHD_resume_connection(x->conn);
    gm_loop_wake(&x->server->loop);
}

void gm_exchange_sleep(gm_exchange *x)
{
    MHD_suspend_connection(x->conn);
    atomic_store(&x->asleep, 1);
    if (atomic_load(&x->news)) gm_exchange_wake(x);
}

gm_lateness gm_exchange_lateness(const gm_exchange *x, bool begun)
{
    if (atomic_load(&x->server->stopping))
        return (gm_lateness){MHD_HTTP_SERVICE_UNAVAILABLE, "the server is stopping"};
    return (gm_lateness){MHD_HTTP_GATEWAY_TIMEOUT,
                         begun
                             ? "the time for this request is up (--timeout)"
                             : "the time for this request is up (--timeout): it was never started"};
}

void gm_exchange_drop(gm_exchange *x)
{
    if (atomic_fetch_sub(&x->holders, 1) == 1) gm_crew_put(&x->server->reaper, x);
}

void gm_exchange_forget_body(gm_exchange *x)
{
    gm_strbuf_deinit(&x->body);
    atomic_fetch_sub(&x->server->n_body, x->n_counted);
    x->n_counted = 0;
}

bool gm_exchange_keep(gm_exchange *x, size_t n)
{
    const size_t counted = n > GM_SERVER_REPLY_SMALL ? n : 0, more = counted - x->n_kept;
    const size_t all = atomic_fetch_add(&x->server->n_replies, more) + more;
    x->n_kept = counted;
    return counted == 0 || all <= x->server->replies_max || all == counted;
}

bool gm_exchange_is_crowded(const gm_exchange *x)
{
    return atomic_load(&x->server->n_replies) >= x->server->replies_max;
}

void gm_exchange_free(gm_exchange *x)
{
    if (!x) return;
    gm_exchange_keep(x, 0);
    gm_generation_close(x->gen);
    json_decref(x->json);
    gm_strbuf_deinit(&x->path);
    gm_exchange_forget_body(x);
    gm_strbuf_deinit(&x->reply.body);
    gm_strbuf_deinit(&x->out);
    gm_mem_free(x);
}

/* ---- replies --------------------------------------------------------------------------- */

static int put_bytes(const char *p, size_t n, void *out)
{
    gm_strbuf_put(out, (gm_str){p, n});
    return ((gm_strbuf *)out)->failed == GM_OK ? 0 : -1;
}

bool gm_json_put(gm_strbuf *out, json_t *value)
{
    const int rc =
        value ? json_dump_callback(value, put_bytes, out, JSON_COMPACT | JSON_REAL_PRECISION(9))
              : -1;
    json_decref(value);
    return rc == 0;
}

json_t *gm_json_cut(const char *text, size_t n)
{
    size_t len = 0;
    while (n-- && text[len]) {
        do
            len++;
        while ((text[len] & 0xC0) == 0x80);
    }
    return json_stringn(text, len);
}

/* OpenAI's word for a status. */
static const char *error_type(unsigned status)
{
    switch (status) {
    case MHD_HTTP_UNAUTHORIZED: return "authentication_error";
    case MHD_HTTP_TOO_MANY_REQUESTS: return "rate_limit_error";
    case MHD_HTTP_SERVICE_UNAVAILABLE: return "overloaded_error";
    case MHD_HTTP_GATEWAY_TIMEOUT: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static const char *error_code(unsigned status)
{
    switch (status) {
    case MHD_HTTP_UNAUTHORIZED: return "invalid_api_key";
    case MHD_HTTP_FORBIDDEN: return "forbidden";
    case MHD_HTTP_NOT_FOUND: return "not_found";
    case MHD_HTTP_METHOD_NOT_ALLOWED: return "method_not_allowed";
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
    case MHD_HTTP_CONTENT_TOO_LARGE: return "request_too_large";
    case MHD_HTTP_UNSUPPORTED_MEDIA_TYPE: return "unsupported_media_type";
    case MHD_HTTP_TOO_MANY_REQUESTS: return "queue_full";
    case MHD_HTTP_SERVICE_UNAVAILABLE: return "unavailable";
    case MHD_HTTP_GATEWAY_TIMEOUT: return "timeout";
    default: return NULL;
    }
}

json_t *gm_error_json(unsigned status, const char *code, const char *param, const char *message)
{
    return json_pack("{s:{s:s, s:s, s:o, s:s?}}", "error", "message", message, "type",
                     error_type(status), "param",
                     param ? gm_json_cut(param, PARAM_MAX) : json_null(), "code",
                     code ? code : error_code(status));
}

static void reply_error(gm_exchange *x, unsigned status, const char *param, const char *message)
{
    x->reply.status = status;
    snprintf(x->tally.error, sizeof x->tally.error, "%.199s", message);
    gm_strbuf_clear(&x->reply.body);
    if (!gm_json_put(&x->reply.body, gm_error_json(status, x->reply.code, param, message)))
        x->reply.body.failed = GM_E_NOMEM; /* then it is not even said */
}

void gm_reply_error(gm_exchange *x, unsigned status, const char *param, const char *fmt, ...)
{
    gm_err err = {0}; /* its sentences are safe to show */
    char message[sizeof err.msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    gm_fail(&err, GM_E_ARG, 0, "%s", message);
    reply_error(x, status, param, err.msg);
}

void gm_reply_crowded(gm_exchange *x)
{
    gm_strbuf_deinit(&x->reply.body);
    gm_exchange_keep(x, 0);
    x->reply.retry_s = 1;
    gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, GM_CROWDED, x->server->replies_max);
}

unsigned gm_error_status(gm_status code)
{
    switch (code) {
    case GM_E_ARG:
    case GM_E_TOOBIG:
    case GM_E_UNSUP: return MHD_HTTP_BAD_REQUEST;
    case GM_E_BUSY: return MHD_HTTP_TOO_MANY_REQUESTS;
    case GM_E_NOMEM:
    case GM_E_LOST:
    case GM_E_DEVMEM: return MHD_HTTP_SERVICE_UNAVAILABLE;
    case GM_E_CANCEL: return MHD_HTTP_SERVICE_UNAVAILABLE;
    default: return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

void gm_reply_failure(gm_exchange *x, const char *param, const gm_err *err)
{
    const unsigned status = gm_error_status(err->code);
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
        x->reply.retry_s = 1;
    if (err->code == GM_E_TOOBIG) x->reply.code = "context_length_exceeded";
    reply_error(x, status, param, err->msg);
}

void gm_reply_json(gm_exchange *x, json_t *value)
{
    x->reply.status = MHD_HTTP_OK;
    gm_strbuf_clear(&x->reply.body);
    if (!gm_json_put(&x->reply.body, value))
        gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "there is not enough memory");
}
