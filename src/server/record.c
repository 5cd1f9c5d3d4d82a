/* SPDX-License-Identifier: MIT */
/* The log: one JSON object a line for every exchange, with what an operator asks for
 * afterwards. Texts of prompts and answers are never in it. */

#include <arpa/inet.h>
#include <stdio.h>
#include <time.h>

#include "server/generation.h"
#include "server/state.h"

#define TEXT_MAX 96 /* characters of what a client says: of four such texts 2304 bytes, escaped */

static void put_client(const gm_exchange *x, json_t *line)
{
    char text[INET6_ADDRSTRLEN] = "";
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *const a = info ? info->client_addr : NULL;
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, text,
                  sizeof text);
    if (a && a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, text,
                  sizeof text);
    json_object_set_new(line, "client", json_string(text));
}

static double milli(double seconds)
{
    return (double)(int64_t)(seconds * 1e6) / 1e3;
}

static void put_generation(const gm_exchange *x, json_t *line)
{
    const gm_tally *const t = &x->tally;
    const gm_ask *const a = &x->gen->ask;
    json_object_set_new(line, "stream", json_boolean(a->stream));
    json_object_set_new(line, "choices", json_integer(t->n_choices));
    json_object_set_new(line, "prompt_tokens", json_integer(t->n_prompt));
    json_object_set_new(line, "cached_tokens", json_integer(t->n_cached));
    json_object_set_new(line, "completion_tokens", json_integer(t->n_answer));
    json_object_set_new(line, "queue_ms", json_real(milli(t->queue_s)));
    if (t->first_s > 0) json_object_set_new(line, "first_token_ms", json_real(milli(t->first_s)));
    const char *const finish = atomic_load(&x->gone) ? "cancel" : t->finish;
    if (finish) json_object_set_new(line, "finish", json_string(finish));
    if (a->model) json_object_set_new(line, "asked_model", gm_json_cut(a->model, TEXT_MAX));
    if (a->user) json_object_set_new(line, "user", gm_json_cut(a->user, TEXT_MAX));
    if (a->safety_identifier)
        json_object_set_new(line, "safety_identifier", gm_json_cut(a->safety_identifier, TEXT_MAX));
    if (a->metadata) json_object_set(line, "metadata", (json_t *)a->metadata);
}

/* The line's text; one that would be too long goes without the metadata, all else has its bounds. */
static bool render(json_t *line, gm_strbuf *text)
{
    json_incref(line);
    bool ok = gm_json_put(text, line);
    if (ok && text->len > GM_SERVER_LINE_MAX) {
        gm_strbuf_clear(text);
        json_object_set_new(line, "metadata", json_null());
        json_incref(line);
        ok = gm_json_put(text, line);
    }
    json_decref(line);
    return ok && text->len <= GM_SERVER_LINE_MAX;
}

void gm_record_put(const gm_exchange *x, unsigned status, double seconds)
{
    const gm_server *const s = x->server;
    if (!s->opts.log) return;
    struct timespec now;
    struct tm utc;
    char when[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    const size_t len = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(when + len, sizeof when - len, ".%03dZ", (int)(now.tv_nsec / 1000000));

    json_t *const line = json_object();
    json_object_set_new(line, "time", json_string(when));
    json_object_set_new(line, "id", json_string(x->id));
    put_client(x, line);
    json_object_set_new(line, "method", json_string(x->method));
    json_object_set_new(line, "path", gm_json_cut(x->path.p ? x->path.p : "", TEXT_MAX));
    json_object_set_new(line, "status", json_integer(status));
    json_object_set_new(line, "ms", json_real(milli(seconds)));
    if (x->gen) put_generation(x, line);
    if (x->tally.error[0]) json_object_set_new(line, "error", json_string(x->tally.error));
    gm_strbuf text = {0};
    if (render(line, &text)) s->opts.log(s->opts.log_ctx, text.p);
    gm_strbuf_deinit(&text);
}
