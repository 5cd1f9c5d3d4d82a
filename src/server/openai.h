/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_OPENAI_H
#define GM_SERVER_OPENAI_H

/* OpenAI's objects, as far as chat and completions share them, written as text. */

#include "server/generation.h"

/* An object up to the first of its choices, and from behind the last of them on: with its usage, or as
 * a stream's chunk has it. */
void gm_openai_begin(const gm_exchange *x, const char *object, gm_strbuf *out);
void gm_openai_end(const gm_exchange *x, bool with_usage, gm_strbuf *out);

/* A log-probability: JSON has no infinity, -9999 stands for it; NaN is null. */
void gm_openai_logprob(gm_strbuf *out, float logprob);
/* The bytes of a token, or NULL for lack of memory; flags as of gm_model_detokenize. Valid until the
 * next call. */
gm_str gm_openai_token(gm_exchange *x, int32_t id, uint32_t flags);

/* Whether a token is <bos>, which begins every text and is no part of it. */
bool gm_openai_is_bos(const gm_exchange *x, int32_t id);

/* "stop" or "length". */
const char *gm_openai_finish(const gm_event *end);

#endif
