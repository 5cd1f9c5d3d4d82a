/* SPDX-License-Identifier: MIT */
#include "server/sse.h"

void gm_sse_begin(gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR("data: "));
}

void gm_sse_end(gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR("\n\n"));
}

void gm_sse_done(gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR("data: [DONE]\n\n"));
}

void gm_sse_ping(gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR(": keep-alive\n\n"));
}
