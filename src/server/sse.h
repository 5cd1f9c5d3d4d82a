/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_SSE_H
#define GM_SERVER_SSE_H

/* Server-sent events, as OpenAI's streams have them. */

#include "server/exchange.h"

/* An event's "data: "; its JSON, of one line, follows, and then its end. */
void gm_sse_begin(gm_strbuf *out);
void gm_sse_end(gm_strbuf *out);
/* "data: [DONE]" */
void gm_sse_done(gm_strbuf *out);
/* A comment, which keeps proxies and clients from giving up. */
void gm_sse_ping(gm_strbuf *out);

#endif
