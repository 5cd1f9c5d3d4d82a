/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_OPENAI_H
#define GM_SERVER_OPENAI_H

/* OpenAI's objects, as far as chat and completions share them. Everything that
 * answers a json_t answers NULL for lack of memory, and takes NULL for what was to
 * be put into it. */

#include "server/generation.h"

/* A chunk of a stream with one choice, or a whole reply with all; NULL for lack of memory. */
json_t *gm_openai_chunk(const gm_exchange *x, json_t *choice);
json_t *gm_openai_whole(const gm_exchange *x, json_t *choices);
/* The last chunk of a stream that was asked to have it. */
json_t *gm_openai_usage_chunk(const gm_exchange *x);

/* A string of bytes that may not be UTF-8: what is not becomes U+FFFD. */
json_t *gm_openai_text(const char *p, size_t n);
/* A log-probability: JSON has no infinity, -9999 stands for it; NaN is null. */
json_t *gm_openai_logprob(float logprob);
/* The bytes of a token, or NULL for lack of memory; flags as of gm_model_detokenize. Valid until the
 * next call. */
gm_str gm_openai_token(gm_exchange *x, int32_t id, uint32_t flags);

/* Whether a token is <bos>, which begins every text and is no part of it. */
bool gm_openai_is_bos(const gm_exchange *x, int32_t id);

/* "stop" or "length". */
const char *gm_openai_finish(const gm_event *end);

#endif
