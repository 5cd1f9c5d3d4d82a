/* SPDX-License-Identifier: MIT */
#include "server/openai.h"

#include <inttypes.h>
#include <math.h>

#include "server/jsontext.h"
#include "server/state.h"

/* ---- envelopes --------------------------------------------------------------------------- */

static void put_usage(const gm_exchange *x, gm_strbuf *out)
{
    const gm_generation *const g = x->gen;
    uint64_t n_prompt = 0, n_cached = 0, n_answer = 0;
    for (uint32_t i = 0; i < g->n_choices; i++) {
        const gm_choice *const c = &g->choices[i];
        n_answer += c->end.n_answer;
        if (i % (uint32_t)g->ask.n) continue; /* choices of one prompt: it counts once */
        n_prompt += c->end.n_prompt;
        n_cached += c->end.n_cached;
    }
    gm_strbuf_printf(out,
                     "{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                     ",\"total_tokens\":%" PRIu64
                     ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64
                     "},\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
                     n_prompt, n_answer, n_prompt + n_answer, n_cached);
}

void gm_openai_begin(const gm_exchange *x, const char *object, gm_strbuf *out)
{
    gm_strbuf_printf(out,
                     "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", x->id,
                     object, x->gen->created);
    gm_jsontext_name(out, x->server->model_name);
    gm_strbuf_put(out, GM_STR(",\"system_fingerprint\":"));
    gm_jsontext_name(out, x->server->fingerprint);
    gm_strbuf_put(out, GM_STR(",\"choices\":["));
}

void gm_openai_end(const gm_exchange *x, bool with_usage, gm_strbuf *out)
{
    gm_strbuf_putc(out, ']');
    if (with_usage || x->gen->ask.include_usage) gm_strbuf_put(out, GM_STR(",\"usage\":"));
    if (with_usage)
        put_usage(x, out);
    else if (x->gen->ask.include_usage)
        gm_strbuf_put(out, GM_STR("null"));
    gm_strbuf_putc(out, '}');
}

/* ---- parts ------------------------------------------------------------------------------- */

void gm_openai_logprob(gm_strbuf *out, float logprob)
{
    if (isnan(logprob))
        gm_strbuf_put(out, GM_STR("null"));
    else
        gm_jsontext_real(out, isfinite(logprob) ? (double)logprob : -9999.0);
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
