/* SPDX-License-Identifier: MIT */
/* What the server says of itself: GET /health, /metrics, /props, /v1/models. */

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "server/router.h"
#include "server/state.h"

/* ---- models ------------------------------------------------------------------------------ */

static json_t *model_json(const gm_server *s)
{
    const json_int_t ctx = gm_engine_ctx(s->engine);
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:{s:s, s:I, s:I, s:I, s:I}}", "id", s->model_name,
                     "object", "model", "created", (json_int_t)s->created, "owned_by", "gemmule",
                     "context_length", ctx, "meta", "architecture", s->info.arch, "n_layer",
                     (json_int_t)s->info.n_layer, "n_vocab", (json_int_t)s->info.n_vocab,
                     "n_ctx_train", (json_int_t)s->info.n_ctx, "size",
                     (json_int_t)s->info.weight_size);
}

void gm_route_models(gm_exchange *x)
{
    gm_reply_json(x, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(x->server)));
}

void gm_route_model(gm_exchange *x)
{
    if (strcmp(x->rest, x->server->model_name) == 0) {
        gm_reply_json(x, model_json(x->server));
        return;
    }
    x->reply.code = "model_not_found";
    gm_reply_error(x, MHD_HTTP_NOT_FOUND, "model", "there is no model %.200s, expected %s", x->rest,
                   x->server->model_name);
}

/* ---- health ------------------------------------------------------------------------------ */

void gm_route_health(gm_exchange *x)
{
    const gm_server *const s = x->server;
    const uint64_t total = atomic_load(&s->load_total), done = atomic_load(&s->load_done);
    if (!atomic_load(&s->ready)) {
        gm_reply_json(x, json_pack("{s:s, s:f}", "status", "loading", "progress",
                                   total ? (double)done / (double)total : 0.0));
        x->reply.status = MHD_HTTP_SERVICE_UNAVAILABLE;
        x->reply.retry_s = 2;
        return;
    }
    gm_engine_stats e = {.size = sizeof e};
    gm_engine_stat(s->engine, &e);
    const bool stopping = atomic_load(&s->stopping);
    gm_reply_json(x, json_pack("{s:s, s:s, s:s, s:i, s:i, s:i}", "status",
                               stopping ? "stopping" : "ok", "model", s->model_name, "backend",
                               gm_engine_backend(s->engine), "running", (int)e.n_running, "queued",
                               (int)e.n_queued, "slots", (int)e.n_slots));
    if (stopping) x->reply.status = MHD_HTTP_SERVICE_UNAVAILABLE;
}

/* ---- properties -------------------------------------------------------------------------- */

/* A float as it was written. */
static double shown(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)value);
    return strtod(text, NULL);
}

void gm_route_props(gm_exchange *x)
{
    const gm_server *const s = x->server;
    const gm_sampling d = gm_request_opts_default(s->model).sampling;
    gm_engine_stats e = {.size = sizeof e};
    gm_engine_stat(s->engine, &e);
    gm_err device = {0}; /* a driver's name for it is any bytes; gm_fail makes a text of them */
    gm_fail(&device, GM_OK, 0, "%s", gm_engine_device(s->engine));
    gm_reply_json(x,
                  json_pack("{s:s, s:s, s:s, s:s, s:I, s:i, s:f, s:s, s:{s:f, s:f, s:i, s:f, s:f}}",
                            "version", gm_version(), "model", s->model_name, "backend",
                            gm_engine_backend(s->engine), "device", device.msg, "context_length",
                            (json_int_t)gm_engine_ctx(s->engine), "total_slots", (int)e.n_slots,
                            "timeout_seconds", s->opts.timeout_s, "note", s->info.note,
                            "default_sampling", "temperature", shown(d.temperature), "top_p",
                            shown(d.top_p), "top_k", (int)d.top_k, "min_p", shown(d.min_p),
                            "repeat_penalty", shown(d.repeat_penalty)));
}

void gm_route_metrics(gm_exchange *x)
{
    x->reply.status = MHD_HTTP_OK;
    x->reply.type = "text/plain; version=0.0.4; charset=utf-8";
    gm_metrics_render(x->server, &x->reply.body);
    if (x->reply.body.failed)
        gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "there is not enough memory");
}
