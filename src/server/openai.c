/* SPDX-License-Identifier: MIT */
#include "server/openai.h"

#include <math.h>

#include "base/utf8.h"
#include "server/state.h"

/* ---- envelopes --------------------------------------------------------------------------- */

static json_t *usage(const gm_exchange *x)
{
    const gm_generation *const g = x->gen;
    json_int_t n_prompt = 0, n_cached = 0, n_answer = 0;
    for (uint32_t i = 0; i < g->n_choices; i++) {
        const gm_choice *const c = &g->choices[i];
        n_answer += c->end.n_answer;
        if (i % (uint32_t)g->ask.n) continue; /* choices of one prompt: it counts once */
        n_prompt += c->end.n_prompt;
        n_cached += c->end.n_cached;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:i}}", "prompt_tokens", n_prompt,
                     "completion_tokens", n_answer, "total_tokens", n_prompt + n_answer,
                     "prompt_tokens_details", "cached_tokens", n_cached,
                     "completion_tokens_details", "reasoning_tokens", 0);
}

static json_t *envelope(const gm_exchange *x, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", x->id, "object", object, "created",
                     (json_int_t)x->gen->created, "model", x->server->model_name,
                     "system_fingerprint", x->server->fingerprint, "choices", choices);
}

/* An object with a usage in it, or NULL. */
static json_t *with_usage(json_t *object, json_t *value)
{
    if (json_object_set_new(object, "usage", value) == 0) return object;
    json_decref(object);
    return NULL;
}

json_t *gm_openai_chunk(const gm_exchange *x, json_t *choice)
{
    const gm_generation *const g = x->gen;
    json_t *const chunk = envelope(x, g->dialect->chunk, json_pack("[o]", choice));
    return g->ask.include_usage ? with_usage(chunk, json_null()) : chunk;
}

json_t *gm_openai_usage_chunk(const gm_exchange *x)
{
    return with_usage(envelope(x, x->gen->dialect->chunk, json_array()), usage(x));
}

json_t *gm_openai_whole(const gm_exchange *x, json_t *choices)
{
    return with_usage(envelope(x, x->gen->dialect->object, choices), usage(x));
}

/* ---- parts ------------------------------------------------------------------------------- */

json_t *gm_openai_text(const char *p, size_t n)
{
    json_t *const plain = json_stringn(p ? p : "", n);
    if (plain) return plain;
    gm_strbuf fixed = {0};
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        const size_t len = gm_utf8_read(p + i, n - i, &cp);
        gm_strbuf_put(&fixed, len ? (gm_str){p + i, len} : GM_STR(GM_UTF8_REPLACEMENT_STR));
        i += len ? len : 1;
    }
    json_t *const text = fixed.failed ? NULL : json_stringn(fixed.p ? fixed.p : "", fixed.len);
    gm_strbuf_deinit(&fixed);
    return text;
}

json_t *gm_openai_logprob(float logprob)
{
    if (isnan(logprob)) return json_null();
    return json_real(isfinite(logprob) ? (double)logprob : -9999.0);
}

gm_str gm_openai_token(gm_exchange *x, int32_t id, uint32_t flags)
{
    gm_text *const t = &x->gen->token;
    t->len = 0;
    const gm_status status =
        gm_model_detokenize(x->server->model, &id, 1, GM_DETOKENIZE_BYTES | flags, t, NULL);
    if (status != GM_OK) return (gm_str){0};
    return (gm_str){t->p ? t->p : "", t->len};
}

bool gm_openai_is_bos(const gm_exchange *x, int32_t id)
{
    size_t len = 0;
    const char *const piece = gm_model_piece(x->server->model, id, &len);
    return gm_str_eq((gm_str){piece, len}, GM_STR("<bos>"));
}

const char *gm_openai_finish(const gm_event *end)
{
    return end->reason == GM_END_LENGTH ? "length" : "stop";
}
