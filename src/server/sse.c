/* SPDX-License-Identifier: MIT */
#include "server/sse.h"

bool gm_sse_put(gm_strbuf *out, json_t *value)
{
    const size_t len = out->len;
    gm_strbuf_put(out, GM_STR("data: "));
    const bool ok = gm_json_put(out, value);
    gm_strbuf_put(out, GM_STR("\n\n"));
    if (ok && out->failed == GM_OK) return true;
    out->len = len; /* no half events */
    return false;
}

void gm_sse_done(gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR("data: [DONE]\n\n"));
}

void gm_sse_ping(gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR(": keep-alive\n\n"));
}
