/* SPDX-License-Identifier: MIT */
/* POST /v1/chat/completions */

#include <inttypes.h>

#include "server/jsontext.h"
#include "server/messages.h"
#include "server/openai.h"
#include "server/router.h"
#include "server/state.h"

/* ---- log-probabilities ------------------------------------------------------------------- */

/* A control token has a name, but no bytes of the text. */
static void put_bytes(gm_str text, gm_strbuf *out)
{
    if (!text.p) out->failed = GM_E_NOMEM;
    if (!text.p || text.len == 0) {
        gm_strbuf_put(out, GM_STR("null"));
        return;
    }
    for (size_t i = 0; i < text.len; i++)
        gm_strbuf_printf(out, "%c%u", i ? ',' : '[', (unsigned)(unsigned char)text.p[i]);
    gm_strbuf_putc(out, ']');
}

static void put_token(gm_exchange *x, int32_t id, float logprob, gm_strbuf *out)
{
    const gm_str token = gm_openai_token(x, id, GM_DETOKENIZE_SPECIAL);
    if (!token.p) {
        out->failed = GM_E_NOMEM;
        return;
    }
    gm_strbuf_put(out, GM_STR("{\"token\":"));
    gm_jsontext_string(out, token);
    gm_strbuf_put(out, GM_STR(",\"logprob\":"));
    gm_openai_logprob(out, logprob);
    gm_strbuf_put(out, GM_STR(",\"bytes\":"));
    put_bytes(gm_openai_token(x, id, 0), out);
}

static void logprobs_add(gm_exchange *x, const gm_event *ev, gm_logprobs *to)
{
    gm_strbuf *const out = &to->list[0];
    put_token(x, ev->id, ev->logprob, out);
    gm_strbuf_put(out, GM_STR(",\"top_logprobs\":["));
    for (uint32_t i = 0; i < ev->n_top; i++) {
        if (i) gm_strbuf_putc(out, ',');
        put_token(x, ev->top[i].id, ev->top[i].logprob, out);
        gm_strbuf_putc(out, '}');
    }
    gm_strbuf_put(out, GM_STR("]},"));
}

/* ---- objects ----------------------------------------------------------------------------- */

/* What a choice has behind its message. */
static void put_rest(const gm_choice *c, bool logprobs, const char *finish, gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR(",\"logprobs\":"));
    if (logprobs) {
        gm_strbuf_put(out, GM_STR("{\"content\":["));
        gm_strbuf_put(out, gm_logprobs_list(&c->logprobs, 0));
        gm_strbuf_put(out, GM_STR("],\"refusal\":null}"));
    } else {
        gm_strbuf_put(out, GM_STR("null"));
    }
    gm_strbuf_put(out, GM_STR(",\"finish_reason\":"));
    gm_jsontext_name(out, finish);
    gm_strbuf_putc(out, '}');
}

static void first(gm_exchange *x, gm_choice *c, gm_strbuf *out)
{
    (void)x;
    gm_strbuf_printf(out,
                     "{\"index\":%" PRIu32
                     ",\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}",
                     c->index);
    put_rest(c, false, NULL, out);
}

static void delta(gm_exchange *x, gm_choice *c, gm_str text, const char *finish, gm_strbuf *out)
{
    (void)x;
    gm_strbuf_printf(out, "{\"index\":%" PRIu32 ",\"delta\":{", c->index);
    if (!finish) {
        gm_strbuf_put(out, GM_STR("\"content\":"));
        gm_jsontext_string(out, text);
    }
    gm_strbuf_putc(out, '}');
    put_rest(c, gm_logprobs_any(&c->logprobs), finish, out);
}

static void whole(gm_exchange *x, gm_choice *c, gm_strbuf *out)
{
    gm_strbuf_printf(
        out, "{\"index\":%" PRIu32 ",\"message\":{\"role\":\"assistant\",\"content\":", c->index);
    gm_jsontext_string(out, gm_strbuf_str(&c->text));
    gm_strbuf_put(out, GM_STR(",\"refusal\":null}"));
    put_rest(c, x->gen->ask.logprobs, gm_openai_finish(&c->end), out);
}

static const gm_dialect dialect = {
    .prompt = "messages",
    .object = "chat.completion",
    .chunk = "chat.completion.chunk",
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
    if (gm_messages_encode(x->server->model, g->ask.messages, &g->prompts[0].ids, &g->ask.path,
                           &err) != GM_OK)
        gm_reply_failure(x, g->ask.path.text, &err);
    else
        gm_generation_start(x);
}
