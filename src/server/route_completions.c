/* SPDX-License-Identifier: MIT */
/* POST /v1/completions: text as it is, without the chat format. */

#include <inttypes.h>
#include <stdio.h>

#include "server/openai.h"
#include "server/router.h"
#include "server/state.h"
#include "server/tokens.h"

#define DEFAULT_MAX_TOKENS 16 /* OpenAI's */

/* ---- log-probabilities ------------------------------------------------------------------- */

static json_t *logprobs_new(void)
{
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     "text_offset");
}

/* A token's name: its text, or its bytes where these are no text. */
static gm_str token_name(gm_exchange *x, int32_t id, char *buf, size_t size)
{
    const gm_str token = gm_openai_token(x, id, GM_DETOKENIZE_SPECIAL);
    uint32_t cp = 0;
    for (size_t i = 0, len = 0; i < token.len; i += len) {
        len = gm_utf8_read(token.p + i, token.len - i, &cp);
        if (len) continue;
        size_t at = (size_t)snprintf(buf, size, "bytes:");
        for (size_t k = 0; k < token.len && at + 5 < size; k++)
            at += (size_t)snprintf(buf + at, size - at, "\\x%02x", (unsigned char)token.p[k]);
        return (gm_str){buf, at};
    }
    return token;
}

/* Where in the text a token begins that has these bytes: at the character that its first byte is
 * of. */
static size_t next_offset(gm_choice *c, gm_str bytes)
{
    size_t at = c->offset;
    for (size_t i = 0; bytes.p && i < bytes.len; i++) {
        c->offset += gm_utf8_part_put(&c->part, bytes.p[i], NULL);
        if (i == 0) at = c->offset - (c->part.n_held == 0);
    }
    return at;
}

/* The prompt's text ends by itself: no token of the answer goes on with a character of it. */
static void end_prompt(gm_choice *c)
{
    c->offset += gm_utf8_part_end(&c->part, NULL);
}

/* The likeliest comes first, and stays where another token has the same name. */
static bool top_add(gm_exchange *x, json_t *top, int32_t id, float logprob)
{
    char buf[512], key[512];
    const gm_str name = token_name(x, id, buf, sizeof buf);
    snprintf(key, sizeof key, "%.*s", (int)name.len, name.p ? name.p : "");
    if (name.p && json_object_get(top, key)) return true;
    return name.p && json_object_set_new(top, key, gm_openai_logprob(logprob)) == 0;
}

/* The token itself is among its candidates, also where it is none of the likeliest. */
static bool logprobs_add(gm_exchange *x, gm_choice *c, const gm_event *ev, json_t *to)
{
    char buf[512];
    json_t *const top = json_object();
    int bad = 0;
    for (uint32_t i = 0; i < ev->n_top; i++)
        bad |= !top_add(x, top, ev->top[i].id, ev->top[i].logprob);
    bad |= !top_add(x, top, ev->id, ev->logprob);
    const gm_str name = token_name(x, ev->id, buf, sizeof buf);
    bad |= !name.p;
    bad |= json_array_append_new(json_object_get(to, "tokens"), gm_openai_text(name.p, name.len));
    const bool asked = ev->kind == GM_EVENT_PROMPT;
    const gm_str text = gm_openai_token(x, ev->id, asked ? GM_DETOKENIZE_SPECIAL : 0);
    bad |= !text.p;
    if (!asked && c->tallied.kind != GM_EVENT_TOKEN) end_prompt(c);
    bad |= json_array_append_new(json_object_get(to, "text_offset"),
                                 json_integer((json_int_t)next_offset(c, text)));
    bad |= json_array_append_new(json_object_get(to, "token_logprobs"),
                                 gm_openai_logprob(ev->logprob));
    bad |= json_array_append_new(json_object_get(to, "top_logprobs"),
                                 ev->n_top ? top : (json_decref(top), json_null()));
    return bad == 0;
}

/* ---- objects ----------------------------------------------------------------------------- */

static json_t *choice_json(const gm_choice *c, gm_str text, json_t *logprobs, const char *finish)
{
    return json_pack("{s:o, s:i, s:o?, s:s?}", "text", gm_openai_text(text.p, text.len), "index",
                     (int)c->index, "logprobs", logprobs, "finish_reason", finish);
}

static json_t *first(gm_exchange *x, gm_choice *c)
{
    const gm_text *const echo = &x->gen->texts[c->prompt];
    json_t *const logprobs = c->logprobs;
    if (echo->len == 0 && !logprobs) return json_null();
    c->logprobs = NULL;
    return choice_json(c, (gm_str){echo->p ? echo->p : "", echo->len}, logprobs, NULL);
}

static json_t *delta(gm_exchange *x, gm_choice *c, const gm_delta *d)
{
    (void)x;
    return choice_json(c, d->text, d->logprobs, d->finish);
}

static json_t *whole(gm_exchange *x, gm_choice *c)
{
    const gm_text *const echo = &x->gen->texts[c->prompt];
    gm_strbuf text = {0};
    gm_strbuf_put(&text, (gm_str){echo->p ? echo->p : "", echo->len});
    gm_strbuf_put(&text, gm_strbuf_str(&c->text));
    json_t *const choice = text.failed
                               ? NULL
                               : choice_json(c, gm_strbuf_str(&text), json_incref(c->logprobs),
                                             gm_openai_finish(&c->end));
    gm_strbuf_deinit(&text);
    return choice;
}

static const gm_dialect dialect = {
    .prompt = "prompt",
    .object = "text_completion",
    .chunk = "text_completion",
    .logprobs_new = logprobs_new,
    .logprobs_add = logprobs_add,
    .first = first,
    .delta = delta,
    .whole = whole,
};

/* ---- prompts ----------------------------------------------------------------------------- */

/* A text that begins with <bos> gets no second one. */
static uint32_t text_flags(const json_t *prompt)
{
    const gm_str text = {json_string_value(prompt), json_string_length(prompt)};
    return GM_TOKENIZE_SPECIAL | (gm_str_starts(text, GM_STR("<bos>")) ? 0 : GM_TOKENIZE_BOS);
}

static gm_status read_prompt(gm_exchange *x, const json_t *prompt, uint32_t i, gm_err *err)
{
    gm_generation *const g = x->gen;
    gm_path *const path = &g->ask.path;
    gm_ids *const ids = &g->prompts[i];
    const gm_model *const m = x->server->model;
    if (json_is_string(prompt)) {
        GM_TRY(gm_model_tokenize(m, json_string_value(prompt), json_string_length(prompt),
                                 text_flags(prompt), ids, err));
    } else if (json_is_array(prompt)) {
        GM_TRY(gm_tokens_read(prompt, ids, path, err));
        if (ids->n == 0)
            return gm_fail(err, GM_E_ARG, 0, "%s is empty, expected at least one", path->text);
    } else {
        return gm_fail(err, GM_E_ARG, 0, "%s is %s, expected %s", path->text,
                       prompt ? "none of these" : "missing",
                       g->n_prompts > 1 ? "a string or an array of token ids"
                                        : "a string, an array of token ids, or an array of either");
    }
    if (!g->ask.echo) return GM_OK;
    const bool skip = gm_openai_is_bos(x, ids->at[0]);
    return gm_model_detokenize(m, ids->at + skip, ids->n - skip, GM_DETOKENIZE_SPECIAL,
                               &g->texts[i], err);
}

void gm_route_completions(gm_exchange *x)
{
    if (!gm_generation_read(x, &dialect, GM_IN_COMPLETIONS, "cmpl")) return;
    gm_generation *const g = x->gen;
    const json_t *const prompt = g->ask.prompt;
    const json_t *const one = json_array_get(prompt, 0);
    const bool several = json_is_string(one) || json_is_array(one);
    if (g->ask.max_tokens < 0) g->ask.max_tokens = DEFAULT_MAX_TOKENS;
    if (!gm_generation_prompts(x, several ? (uint32_t)json_array_size(prompt) : 1)) return;
    gm_path_set(&g->ask.path, "prompt");
    for (uint32_t i = 0; i < g->n_prompts; i++) {
        gm_err err = {0};
        if (several) gm_path_set(&g->ask.path, "prompt[%" PRIu32 "]", i);
        if (read_prompt(x, several ? json_array_get(prompt, i) : prompt, i, &err) == GM_OK)
            continue;
        gm_reply_failure(x, g->ask.path.text, &err);
        return;
    }
    gm_generation_start(x);
}
