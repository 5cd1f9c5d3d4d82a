/* SPDX-License-Identifier: MIT */
/* POST /v1/chat/completions */

#include "server/messages.h"
#include "server/openai.h"
#include "server/router.h"
#include "server/state.h"

/* ---- log-probabilities ------------------------------------------------------------------- */

static json_t *logprobs_new(void)
{
    return json_pack("{s:[], s:n}", "content", "refusal");
}

static json_t *token_json(gm_exchange *x, int32_t id, float logprob)
{
    const gm_str token = gm_openai_token(x, id, GM_DETOKENIZE_SPECIAL);
    json_t *const bytes = json_array();
    for (size_t i = 0; i < token.len; i++)
        json_array_append_new(bytes, json_integer((unsigned char)token.p[i]));
    if (!token.p || json_array_size(bytes) != token.len) {
        json_decref(bytes);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:o}", "token", gm_openai_text(token.p, token.len), "logprob",
                     gm_openai_logprob(logprob), "bytes", bytes);
}

static bool logprobs_add(gm_exchange *x, gm_choice *c, const gm_event *ev, json_t *to)
{
    (void)c;
    json_t *const top = json_array();
    for (uint32_t i = 0; i < ev->n_top; i++)
        json_array_append_new(top, token_json(x, ev->top[i].id, ev->top[i].logprob));
    json_t *const entry = token_json(x, ev->id, ev->logprob);
    const bool whole = json_array_size(top) == ev->n_top;
    return json_object_set_new(entry, "top_logprobs", top) == 0 && whole
               ? json_array_append_new(json_object_get(to, "content"), entry) == 0
               : (json_decref(entry), false);
}

/* ---- objects ----------------------------------------------------------------------------- */

static json_t *first(gm_exchange *x, gm_choice *c)
{
    (void)x;
    return json_pack("{s:i, s:{s:s, s:s, s:n}, s:n, s:n}", "index", (int)c->index, "delta", "role",
                     "assistant", "content", "", "refusal", "logprobs", "finish_reason");
}

static json_t *delta(gm_exchange *x, gm_choice *c, const gm_delta *d)
{
    (void)x;
    json_t *const content =
        d->finish ? json_object()
                  : json_pack("{s:o}", "content", gm_openai_text(d->text.p, d->text.len));
    return json_pack("{s:i, s:o, s:o?, s:s?}", "index", (int)c->index, "delta", content, "logprobs",
                     d->logprobs, "finish_reason", d->finish);
}

static json_t *whole(gm_exchange *x, gm_choice *c)
{
    (void)x;
    return json_pack("{s:i, s:{s:s, s:o, s:n}, s:O?, s:s}", "index", (int)c->index, "message",
                     "role", "assistant", "content", gm_openai_text(c->text.p, c->text.len),
                     "refusal", "logprobs", c->logprobs, "finish_reason",
                     gm_openai_finish(&c->end));
}

static const gm_dialect dialect = {
    .prompt = "messages",
    .object = "chat.completion",
    .chunk = "chat.completion.chunk",
    .logprobs_new = logprobs_new,
    .logprobs_add = logprobs_add,
    .first = first,
    .delta = delta,
    .whole = whole,
};

void gm_route_chat(gm_exchange *x)
{
    if (!gm_generation_read(x, &dialect, GM_IN_CHAT, "chatcmpl") || !gm_generation_prompts(x, 1))
        return;
    gm_generation *const g = x->gen;
    gm_err err = {0};
    if (gm_messages_encode(x->server->model, g->ask.messages, &g->prompts[0], &g->ask.path, &err) !=
        GM_OK)
        gm_reply_failure(x, g->ask.path.text, &err);
    else
        gm_generation_start(x);
}
