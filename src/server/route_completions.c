/* SPDX-License-Identifier: MIT */
/* POST /v1/completions: text as it is, without the chat format. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/utf8.h"
#include "server/jsontext.h"
#include "server/openai.h"
#include "server/router.h"
#include "server/state.h"
#include "server/tokens.h"

#define DEFAULT_MAX_TOKENS 16 /* OpenAI's */

/* ---- log-probabilities ------------------------------------------------------------------- */

enum { TOKENS, TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET };

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
static size_t next_offset(gm_logprobs *l, gm_str bytes)
{
    size_t at = l->offset;
    for (size_t i = 0; bytes.p && i < bytes.len; i++) {
        l->offset += gm_utf8_part_put(&l->part, bytes.p[i], NULL);
        if (i == 0) at = l->offset - (l->part.n_held == 0);
    }
    return at;
}

/* A token's name as a string, and its log-probability. */
static void put_name(gm_exchange *x, int32_t id, gm_strbuf *out)
{
    char buf[512];
    const gm_str name = token_name(x, id, buf, sizeof buf);
    if (!name.p) out->failed = GM_E_NOMEM;
    gm_jsontext_string(out, name);
}

/* The likeliest comes first, and stays where another token has the same name. */
typedef struct names {
    size_t at[GM_ASK_TOP + 1], len[GM_ASK_TOP + 1]; /* in the list */
    uint32_t n;
} names;

static void put_top(gm_exchange *x, names *known, int32_t id, float logprob, gm_strbuf *out)
{
    const size_t before = out->len;
    if (known->n) gm_strbuf_putc(out, ',');
    const size_t at = out->len;
    put_name(x, id, out);
    if (out->failed) return;
    const gm_str name = {out->p + at, out->len - at};
    for (uint32_t i = 0; i < known->n; i++) {
        if (!gm_str_eq(name, (gm_str){out->p + known->at[i], known->len[i]})) continue;
        out->len = before;
        return;
    }
    known->at[known->n] = at;
    known->len[known->n++] = name.len;
    gm_strbuf_putc(out, ':');
    gm_openai_logprob(out, logprob);
}

static void put_tops(gm_exchange *x, const gm_event *ev, gm_strbuf *out)
{
    names known = {.n = 0};
    if (isnan(ev->logprob)) { /* nothing is before it */
        gm_strbuf_put(out, GM_STR("null,"));
        return;
    }
    gm_strbuf_putc(out, '{');
    for (uint32_t i = 0; i < ev->n_top; i++)
        put_top(x, &known, ev->top[i].id, ev->top[i].logprob, out);
    if (ev->n_top) put_top(x, &known, ev->id, ev->logprob, out);
    gm_strbuf_put(out, GM_STR("},"));
}

static void logprobs_add(gm_exchange *x, const gm_event *ev, gm_logprobs *l)
{
    gm_strbuf *const to = l->list;
    const bool asked = ev->kind == GM_EVENT_PROMPT;
    put_name(x, ev->id, &to[TOKENS]);
    gm_strbuf_putc(&to[TOKENS], ',');
    gm_openai_logprob(&to[TOKEN_LOGPROBS], ev->logprob);
    gm_strbuf_putc(&to[TOKEN_LOGPROBS], ',');
    put_tops(x, ev, &to[TOP_LOGPROBS]);
    const gm_str text = gm_openai_token(x, ev->id, asked ? GM_DETOKENIZE_SPECIAL : 0);
    if (!text.p) to[TEXT_OFFSET].failed = GM_E_NOMEM;
    gm_strbuf_printf(&to[TEXT_OFFSET], "%zu,", next_offset(l, text));
}

/* ---- objects ----------------------------------------------------------------------------- */

/* The one's elements and the other's; NULL has none. */
static void put_logprobs(const gm_logprobs *const of[2], gm_strbuf *out)
{
    static const char *const NAMES[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    for (size_t i = 0; i < GM_LOGPROBS_LISTS; i++) {
        const gm_str a = of[0] ? gm_logprobs_list(of[0], i) : GM_STR("");
        const gm_str b = of[1] ? gm_logprobs_list(of[1], i) : GM_STR("");
        gm_strbuf_printf(out, "%c\"%s\":[", i ? ',' : '{', NAMES[i]);
        gm_strbuf_put(out, a);
        if (a.len && b.len) gm_strbuf_putc(out, ',');
        gm_strbuf_put(out, b);
        gm_strbuf_putc(out, ']');
    }
    gm_strbuf_putc(out, '}');
}

/* What a choice has of its prompt and of its answer. */
typedef struct content {
    gm_str text[2];
    const gm_logprobs *logprobs[2]; /* both NULL: null */
    const char *finish;
} content;

static void put_choice(const gm_choice *c, const content *has, gm_strbuf *out)
{
    gm_strbuf_put(out, GM_STR("{\"text\":\""));
    gm_jsontext_put(out, has->text[0]);
    gm_jsontext_put(out, has->text[1]);
    gm_strbuf_printf(out, "\",\"index\":%" PRIu32 ",\"logprobs\":", c->index);
    if (has->logprobs[0] || has->logprobs[1])
        put_logprobs(has->logprobs, out);
    else
        gm_strbuf_put(out, GM_STR("null"));
    gm_strbuf_put(out, GM_STR(",\"finish_reason\":"));
    gm_jsontext_name(out, has->finish);
    gm_strbuf_putc(out, '}');
}

static gm_str echo_of(const gm_exchange *x, const gm_choice *c)
{
    const gm_text *const echo = &x->gen->prompts[c->prompt].text;
    return (gm_str){echo->p ? echo->p : "", echo->len};
}

static void first(gm_exchange *x, gm_choice *c, gm_strbuf *out)
{
    const gm_logprobs *const l = &gm_generation_prompt(x->gen, c)->logprobs;
    const content has = {{echo_of(x, c)}, {gm_logprobs_any(l) ? l : NULL}, NULL};
    if (has.text[0].len || has.logprobs[0]) put_choice(c, &has, out);
}

static void delta(gm_exchange *x, gm_choice *c, gm_str text, const char *finish, gm_strbuf *out)
{
    (void)x;
    const bool any = gm_logprobs_any(&c->logprobs);
    put_choice(c, &(content){{text}, {any ? &c->logprobs : NULL}, finish}, out);
}

static void whole(gm_exchange *x, gm_choice *c, gm_strbuf *out)
{
    content has = {{echo_of(x, c), gm_strbuf_str(&c->text)}, {0}, gm_openai_finish(&c->end)};
    if (x->gen->ask.logprobs) {
        has.logprobs[0] = &gm_generation_prompt(x->gen, c)->logprobs;
        has.logprobs[1] = &c->logprobs;
    }
    put_choice(c, &has, out);
}

static const gm_dialect dialect = {
    .prompt = "prompt",
    .object = "text_completion",
    .chunk = "text_completion",
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
    gm_ids *const ids = &g->prompts[i].ids;
    const gm_model *const m = x->server->model;
    if (json_is_string(prompt)) {
        GM_TRY(gm_model_tokenize(m, json_string_value(prompt), json_string_length(prompt),
                                 text_flags(prompt), ids, err));
    } else if (json_is_array(prompt)) {
        GM_TRY(gm_tokens_read(prompt, x->server->info.n_vocab, ids, path, err));
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
                               &g->prompts[i].text, err);
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
