/* SPDX-License-Identifier: MIT */
#include "server/router.h"

static const gm_route routes[] = {
    {"/v1/chat/completions", "POST", .answer = gm_route_chat},
    {"/v1/completions", "POST", .answer = gm_route_completions},
    {"/v1/models", "GET", .answer = gm_route_models},
    {"/v1/models/*", "GET", .answer = gm_route_model},
    {"/tokenize", "POST", .answer = gm_route_tokenize},
    {"/detokenize", "POST", .answer = gm_route_detokenize},
    {"/health", "GET", .open = true, .early = true, .answer = gm_route_health},
    {"/metrics", "GET", .early = true, .answer = gm_route_metrics},
    {"/props", "GET", .answer = gm_route_props},
};
#define N_ROUTES (sizeof routes / sizeof routes[0])

static bool path_matches(const gm_route *r, gm_str path, const char **rest)
{
    const size_t len = strlen(r->path);
    *rest = "";
    if (r->path[len - 1] != '*') return gm_str_eq(path, gm_str_c(r->path));
    if (path.len < len || memcmp(path.p, r->path, len - 1) != 0) return false;
    *rest = path.p + len - 1;
    return true;
}

const gm_route *gm_router_find(gm_exchange *x)
{
    const gm_str path = gm_strbuf_str(&x->path);
    if (strcmp(x->method, "OPTIONS") == 0 && gm_str_eq(path, gm_str_c("*"))) {
        x->reply.allow = "GET, HEAD, POST, OPTIONS"; /* asked of the server, not of a path */
        x->reply.status = MHD_HTTP_NO_CONTENT;
        return NULL;
    }
    for (size_t i = 0; i < N_ROUTES; i++) {
        const gm_route *const r = &routes[i];
        if (!path_matches(r, path, &x->rest)) continue;
        const bool is_get = strcmp(r->method, "GET") == 0;
        if (strcmp(x->method, r->method) == 0 || (is_get && strcmp(x->method, "HEAD") == 0))
            return r;
        x->reply.allow = is_get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
        if (strcmp(x->method, "OPTIONS") == 0)
            x->reply.status = MHD_HTTP_NO_CONTENT;
        else
            gm_reply_error(x, MHD_HTTP_METHOD_NOT_ALLOWED, NULL,
                           "%.40s does not take %.20s, expected %s", x->path.p, x->method,
                           r->method);
        return NULL;
    }
    gm_strbuf all = {0};
    for (size_t i = 0; i < N_ROUTES; i++)
        gm_strbuf_printf(&all, "%s%s", i ? ", " : "", routes[i].path);
    gm_reply_error(x, MHD_HTTP_NOT_FOUND, NULL, "there is no %.100s here; there are %s",
                   x->path.p ? x->path.p : "", all.p ? all.p : "others");
    gm_strbuf_deinit(&all);
    return NULL;
}
