/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_SSE_H
#define GM_SERVER_SSE_H

/* Server-sent events, as OpenAI's streams have them. */

#include "server/exchange.h"

/* "data: {...}"; the value is freed. False for NULL and for lack of memory. */
bool gm_sse_put(gm_strbuf *out, json_t *value);
/* "data: [DONE]" */
void gm_sse_done(gm_strbuf *out);
/* A comment, which keeps proxies and clients from giving up. */
void gm_sse_ping(gm_strbuf *out);

#endif
