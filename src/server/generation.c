/* SPDX-License-Identifier: MIT */
/* Events are taken only when the client can take more: libmicrohttpd asks for bytes,
 * and what it is given comes from the requests' rings. A client that reads slowly
 * therefore lets its rings fill, the engine parks its sequences, and nobody else
 * notices; no buffer here grows. */

#include "server/generation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/openai.h"
#include "server/sse.h"
#include "server/state.h"

#define LOGPROB_BYTES 70 /* that one takes, about */

/* ---- opening ----------------------------------------------------------------------------- */

bool gm_generation_read(gm_exchange *x, const gm_dialect *dialect, uint32_t in, const char *id)
{
    gm_err err = {0};
    const char *param = NULL;
    if (gm_mem_alloc(&x->gen, 1, sizeof *x->gen, "an answer", &err) != GM_OK ||
        gm_ask_read(&x->gen->ask, x->json, in, x->server->model, &param, &err) != GM_OK) {
        gm_reply_failure(x, param, &err);
        return false;
    }
    gm_generation *const g = x->gen;
    g->dialect = dialect;
    g->created = time(NULL);
    g->flags = (g->ask.ignore_eos ? GM_REQUEST_IGNORE_END : 0) |
               (g->ask.echo && g->ask.logprobs ? GM_REQUEST_PROMPT : 0) |
               (g->ask.max_tokens == 0 ? GM_REQUEST_NO_ANSWER : 0);
    gm_exchange_name(x, id);
    return true;
}

bool gm_generation_prompts(gm_exchange *x, uint32_t n)
{
    gm_generation *const g = x->gen;
    const uint64_t n_choices = (uint64_t)n * (uint64_t)g->ask.n;
    gm_err err = {0};
    if (n_choices > GM_SERVER_MAX_CHOICES) {
        gm_reply_error(x, MHD_HTTP_BAD_REQUEST, g->ask.n > 1 ? "n" : g->dialect->prompt,
                       "%llu answers are asked for, expected at most %d",
                       (unsigned long long)n_choices, GM_SERVER_MAX_CHOICES);
        return false;
    }
    if (gm_mem_alloc(&g->prompts, n, sizeof *g->prompts, "prompts", &err) != GM_OK ||
        gm_mem_alloc(&g->choices, n_choices, sizeof *g->choices, "answers", &err) != GM_OK) {
        gm_reply_failure(x, NULL, &err);
        return false;
    }
    g->n_prompts = n;
    g->n_choices = (uint32_t)n_choices;
    for (uint32_t i = 0; i < g->n_choices; i++) {
        g->choices[i].index = i;
        g->choices[i].prompt = i / (uint32_t)g->ask.n;
    }
    return true;
}

/* Nobody's choice: 32 bits, so that it can be typed again. */
static uint64_t seed_of(const gm_ask *a)
{
    uint32_t random = 0;
    if (a->seed) return (uint64_t)a->seed_number;
    return getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random ? random : 0;
}

gm_prompt *gm_generation_prompt(const gm_generation *g, const gm_choice *c)
{
    return &g->prompts[g->prompts[c->prompt].same];
}

/* Whether this is the choice that tells of its prompt's tokens. */
static bool is_teller(const gm_generation *g, const gm_choice *c)
{
    const bool first =
        c->index % (uint32_t)g->ask.n == 0 && g->prompts[c->prompt].same == c->prompt;
    return first && g->flags & GM_REQUEST_PROMPT;
}

static void find_equals(gm_generation *g)
{
    for (uint32_t i = 0; i < g->n_prompts; i++) {
        const gm_ids *const ids = &g->prompts[i].ids;
        uint32_t k = 0;
        while (k < i && (g->prompts[k].ids.n != ids->n ||
                         memcmp(g->prompts[k].ids.at, ids->at, ids->n * sizeof *ids->at) != 0))
            k++;
        g->prompts[i].same = k;
    }
}

/* What is asked for choice i. */
static gm_request_opts opts_of(gm_exchange *x, uint32_t i)
{
    const gm_generation *const g = x->gen;
    const gm_ask *const a = &g->ask;
    const gm_choice *const c = &g->choices[i];
    const gm_ids *const prompt = &g->prompts[c->prompt].ids;
    gm_request_opts o = gm_request_opts_default(x->server->model);
    o.sampling = a->sampling;
    o.sampling.bias = a->biases;
    o.sampling.n_bias = a->n_biases;
    o.sampling.seed = g->seed + i % (uint32_t)a->n;
    o.max_tokens = a->max_tokens > 0 ? (uint32_t)a->max_tokens : 0;
    o.flags = g->flags | (i ? GM_REQUEST_ALONG : 0);
    if (!is_teller(g, c)) o.flags &= ~(uint32_t)GM_REQUEST_PROMPT;
    if (g->n_choices > 1) o.group = g;
    o.ids = prompt->at;
    o.n_ids = prompt->n;
    o.n_top = a->n_top;
    o.stop = a->stops;
    o.n_stop = a->n_stops;
    o.wake = gm_exchange_wake;
    o.wake_ctx = x;
    return o;
}

/* Hands the next choice to the engine. Whoever cancels meanwhile sets a flag first and looks for
 * requests then; here it is the other way round, so one of the two sees the other. */
static gm_status open_next(gm_exchange *x, gm_err *err)
{
    gm_generation *const g = x->gen;
    const uint32_t i = g->n_opened;
    const gm_request_opts o = opts_of(x, i);
    gm_choice *const c = &g->choices[i];
    gm_request *r = NULL;
    c->open_s = gm_clock_s();
    GM_TRY(gm_request_open(&r, x->server->engine, &o, err));
    atomic_store(&c->request, r);
    g->n_opened++;
    if (atomic_load(&x->gone) || atomic_load(&x->late)) gm_request_cancel(r);
    return GM_OK;
}

/* How many log-probabilities would be kept until they are sent: a stream keeps the prompt's only. */
static uint64_t n_kept(const gm_exchange *x)
{
    const gm_generation *const g = x->gen;
    const uint64_t n_ctx = gm_engine_ctx(x->server->engine), most = (uint64_t)g->ask.max_tokens;
    uint64_t n = 0;
    for (uint32_t i = 0; g->ask.logprobs && i < g->n_choices; i++) {
        const gm_choice *const c = &g->choices[i];
        const uint64_t n_prompt = g->prompts[c->prompt].ids.n;
        const uint64_t room = n_prompt < n_ctx ? n_ctx - n_prompt : 0;
        if (!g->ask.stream) n += most < room ? most : room;
        if (is_teller(g, c) || (g->flags & GM_REQUEST_PROMPT && !g->ask.stream)) n += n_prompt;
    }
    return n * (g->ask.n_top + 1);
}

/* Refuses what would take too much; where nothing was said of an answer's length, it has an end. */
static bool check_kept(gm_exchange *x)
{
    gm_generation *const g = x->gen;
    const uint32_t each = g->n_choices * (g->ask.n_top + 1); /* for each token of the longest */
    if (g->ask.max_tokens < 0 && g->ask.logprobs && !g->ask.stream && each)
        g->ask.max_tokens = GM_SERVER_LOGPROBS_MAX / each;
    const uint64_t n = n_kept(x);
    if (n <= GM_SERVER_REPLY_SMALL / LOGPROB_BYTES) return true;
    if (n <= GM_SERVER_LOGPROBS_MAX) {
        if (gm_exchange_is_crowded(x)) gm_reply_crowded(x);
        return !x->reply.status;
    }
    gm_reply_error(x, MHD_HTTP_BAD_REQUEST, "logprobs",
                   "%" PRIu64
                   " log-probabilities are asked for, in all answers, with candidates%s, "
                   "expected at most %d%s",
                   n, g->flags & GM_REQUEST_PROMPT ? " and prompts" : "", GM_SERVER_LOGPROBS_MAX,
                   g->ask.stream ? "" : "; a stream may have more");
    return false;
}

/* All prompts are looked at before one is computed. */
void gm_generation_start(gm_exchange *x)
{
    gm_generation *const g = x->gen;
    gm_err err = {0};
    gm_status status = GM_OK;
    g->seed = seed_of(&g->ask);
    find_equals(g);
    x->open_s = gm_clock_s();
    gm_path_set(&g->ask.path, "%s", g->dialect->prompt);
    for (uint32_t i = 0; i < g->n_choices && status == GM_OK; i += (uint32_t)g->ask.n) {
        const gm_request_opts o = opts_of(x, i);
        if (g->n_prompts > 1)
            gm_path_set(&g->ask.path, "%s[%" PRIu32 "]", g->dialect->prompt, g->choices[i].prompt);
        status = gm_request_check(x->server->engine, &o, &err);
    }
    if (status == GM_OK && !check_kept(x)) return;
    if (status == GM_OK) status = open_next(x, &err);
    if (status == GM_OK) {
        x->tally.n_choices = g->n_choices;
        return;
    }
    const bool refused = gm_error_status(err.code) == MHD_HTTP_BAD_REQUEST;
    gm_reply_failure(x, refused ? g->ask.path.text : NULL, &err);
}

/* ---- events ------------------------------------------------------------------------------ */

/* A failure in the middle of a stream has no status left to say it with: it is an event. */
static void fail(gm_exchange *x, unsigned status, const char *message)
{
    gm_generation *const g = x->gen;
    gm_generation_cancel(g);
    x->tally.finish = "error";
    if (g->ask.stream) {
        gm_sse_begin(&x->out);
        if (!gm_json_put(&x->out, gm_error_json(status, NULL, NULL, message)))
            x->out.failed = GM_E_NOMEM; /* then it is cut */
        gm_sse_end(&x->out);
        snprintf(x->tally.error, sizeof x->tally.error, "%.199s", message);
        g->finished = true;
    } else {
        gm_reply_error(x, status, NULL, "%s", message);
    }
}

static void fail_memory(gm_exchange *x)
{
    fail(x, MHD_HTTP_SERVICE_UNAVAILABLE, "there is not enough memory");
}

/* So many bytes more are kept for the reply. */
static void keep(gm_exchange *x, size_t more)
{
    char why[160];
    x->gen->n_bytes += more;
    if (gm_exchange_keep(x, x->gen->n_bytes)) return;
    snprintf(why, sizeof why, GM_CROWDED, x->server->replies_max);
    x->reply.retry_s = 1;
    fail(x, MHD_HTTP_SERVICE_UNAVAILABLE, why);
}

/* A stream's chunk, the choice's first one or another. There are no half chunks, and none without a
 * choice. */
static void put_chunk(gm_exchange *x, gm_choice *c, gm_str text, const char *finish, bool first)
{
    const gm_dialect *const d = x->gen->dialect;
    gm_strbuf *const out = &x->out;
    const size_t before = out->len;
    if (x->gen->finished) return;
    gm_sse_begin(out);
    gm_openai_begin(x, d->chunk, out);
    const size_t begun = out->len;
    if (first)
        d->first(x, c, out);
    else
        d->delta(x, c, text, finish, out);
    const bool empty = out->len == begun;
    gm_openai_end(x, false, out);
    gm_sse_end(out);
    gm_logprobs_sent(&c->logprobs);
    const bool failed = out->failed != GM_OK;
    if (!empty && !failed) return;
    out->len = before;
    out->failed = GM_OK;
    if (failed) fail_memory(x);
}

/* The end token has no text and is no part of the answer. */
static bool wants_logprobs(const gm_exchange *x, const gm_event *ev)
{
    const bool drawn = ev->kind == GM_EVENT_TOKEN && !gm_model_ends(x->server->model, ev->id);
    return x->gen->ask.logprobs && drawn;
}

/* Takes one token's log-probabilities, and where in the text it begins. The text has U+FFFD where bytes
 * are none. */
static void hold_logprobs(gm_exchange *x, gm_choice *c, const gm_event *ev)
{
    gm_strbuf *const scratch = &x->gen->scratch;
    if (x->gen->ask.n_stops) gm_logprobs_hold(&c->logprobs, c->n_drawn);
    x->gen->dialect->logprobs_add(x, ev, &c->logprobs);
    const gm_str text = gm_openai_token(x, ev->id, 0);
    scratch->len = 0;
    for (size_t i = 0; i < text.len; i++)
        gm_utf8_part_put(&c->drawn, text.p[i], scratch);
    if (!text.p || scratch->failed) c->logprobs.list[0].failed = GM_E_NOMEM;
    c->n_drawn += scratch->len;
}

/* Takes what an event has, and lets out what has come; false for lack of memory. */
static bool take_logprobs(gm_exchange *x, gm_choice *c, const gm_event *ev)
{
    if (wants_logprobs(x, ev)) hold_logprobs(x, c, ev);
    c->n_out += ev->len;
    const bool all = c->n_drawn + c->drawn.n_held <= c->n_out;
    gm_logprobs_let_out(&c->logprobs, all ? SIZE_MAX : c->n_out);
    return !gm_logprobs_failed(&c->logprobs);
}

static void stream_event(gm_exchange *x, gm_choice *c, const gm_event *ev)
{
    const gm_str text = {ev->text ? ev->text : "", ev->len};
    if (!take_logprobs(x, c, ev)) {
        fail_memory(x);
        return;
    }
    if (text.len || gm_logprobs_any(&c->logprobs)) put_chunk(x, c, text, NULL, false);
    if (ev->kind == GM_EVENT_END) put_chunk(x, c, GM_STR(""), gm_openai_finish(ev), false);
}

static void keep_event(gm_exchange *x, gm_choice *c, const gm_event *ev)
{
    const size_t before = c->text.len + gm_logprobs_size(&c->logprobs);
    gm_strbuf_put(&c->text, (gm_str){ev->text ? ev->text : "", ev->len});
    if (c->text.failed || !take_logprobs(x, c, ev))
        fail_memory(x);
    else
        keep(x, c->text.len + gm_logprobs_size(&c->logprobs) - before);
}

static void tally_event(gm_exchange *x, gm_choice *c, const gm_event *ev)
{
    gm_tally *const t = &x->tally;
    if (ev->kind == GM_EVENT_TOKEN) {
        const double wait_s = c->open_s - x->start_s + ev->queue_s;
        gm_metrics_token(&x->server->metrics, ev, wait_s, c->tallied.decode_s);
        if (t->first_s == 0) t->first_s = wait_s + ev->prefill_s;
    }
    const bool first = c->tallied.kind == GM_EVENT_NONE;
    t->n_answer += ev->n_answer - c->tallied.n_answer;
    c->tallied = *ev;
    const double queue_s = c->open_s - x->open_s + ev->queue_s;
    if (queue_s > t->queue_s) t->queue_s = queue_s;
    if (!t->finish && ev->kind == GM_EVENT_END) t->finish = gm_openai_finish(ev);
    if (!first || c->index % (uint32_t)x->gen->ask.n) return;
    t->n_prompt += ev->n_prompt;
    t->n_cached += ev->n_cached;
}

/* One of a prompt's tokens. Nothing comes before the first, so no engine tells of it. */
static void tell(gm_exchange *x, gm_prompt *p, const gm_event *ev)
{
    const int32_t first = p->ids.at[0];
    const size_t before = gm_logprobs_size(&p->logprobs);
    if (!p->begun && !gm_openai_is_bos(x, first))
        x->gen->dialect->logprobs_add(
            x, &(gm_event){.kind = GM_EVENT_PROMPT, .id = first, .logprob = NAN}, &p->logprobs);
    p->begun = true;
    if (ev->kind == GM_EVENT_PROMPT) x->gen->dialect->logprobs_add(x, ev, &p->logprobs);
    if (gm_logprobs_failed(&p->logprobs))
        fail_memory(x);
    else
        keep(x, gm_logprobs_size(&p->logprobs) - before);
}

/* The answer begins. The prompt's text ends by itself: no token of the answer goes on with a character
 * of it. */
static void begin(gm_exchange *x, gm_choice *c, const gm_event *ev)
{
    gm_prompt *const p = gm_generation_prompt(x->gen, c);
    if (is_teller(x->gen, c)) {
        tell(x, p, ev);
        p->logprobs.offset += gm_utf8_part_end(&p->logprobs.part, NULL);
        p->told = true;
    }
    c->begun = true;
    c->logprobs.offset = p->logprobs.offset;
    if (x->gen->ask.stream) put_chunk(x, c, GM_STR(""), NULL, true);
}

static void take_event(gm_exchange *x, gm_choice *c, const gm_event *ev)
{
    if (ev->kind == GM_EVENT_PROMPT) {
        tell(x, gm_generation_prompt(x->gen, c), ev);
        return;
    }
    if (!c->begun) begin(x, c, ev);
    if (x->gen->finished || x->reply.status) return; /* it failed */
    if (x->gen->ask.stream)
        stream_event(x, c, ev);
    else
        keep_event(x, c, ev);
}

/* All that there is of one choice. */
static void pump_choice(gm_exchange *x, gm_choice *c)
{
    gm_generation *const g = x->gen;
    while (!c->ended && !g->finished && !x->reply.status) {
        gm_event ev;
        gm_err err = {0};
        if (gm_request_poll(atomic_load(&c->request), &ev, &err) != GM_OK) {
            fail(x, gm_error_status(err.code), err.msg);
            return;
        }
        if (ev.kind == GM_EVENT_NONE) return;
        if (ev.kind == GM_EVENT_END && ev.reason == GM_END_CANCEL) {
            const gm_lateness l = gm_exchange_lateness(x, gm_generation_tally_wait(x));
            fail(x, l.status, l.why);
            return;
        }
        take_event(x, c, &ev);
        tally_event(x, c, &ev);
        if (ev.kind == GM_EVENT_END) {
            c->end = ev;
            c->ended = true;
            g->n_ended++;
        }
    }
}

/* Whoever still waits has no event that would say for how long. */
bool gm_generation_tally_wait(gm_exchange *x)
{
    const gm_generation *const g = x->gen;
    if (g->n_opened == 0) return false;
    const gm_choice *const c = &g->choices[g->n_opened - 1];
    gm_event ev = {0};
    if (c->tallied.kind != GM_EVENT_NONE) return true;
    if (gm_request_poll(atomic_load(&c->request), &ev, NULL) != GM_OK) return true;
    const double queue_s = c->open_s - x->open_s + ev.queue_s;
    if (queue_s > x->tally.queue_s) x->tally.queue_s = queue_s;
    return g->n_opened > 1 || ev.prefill_s > 0;
}

/* Opens the next choice once the one before has left the queue, and the prompt is told. */
static void go_on(gm_exchange *x)
{
    const gm_generation *const g = x->gen;
    gm_err err = {0};
    if (g->n_opened == g->n_choices || g->choices[g->n_opened - 1].tallied.kind == GM_EVENT_NONE)
        return;
    const gm_choice *const next = &g->choices[g->n_opened];
    if (g->flags & GM_REQUEST_PROMPT && !is_teller(g, next) && !gm_generation_prompt(g, next)->told)
        return;
    if (open_next(x, &err) != GM_OK) fail(x, gm_error_status(err.code), err.msg);
}

static void finish_stream(gm_exchange *x)
{
    gm_generation *const g = x->gen;
    if (g->ask.include_usage) {
        gm_sse_begin(&x->out);
        gm_openai_begin(x, g->dialect->chunk, &x->out);
        gm_openai_end(x, true, &x->out);
        gm_sse_end(&x->out);
    }
    gm_sse_done(&x->out);
    g->finished = true;
}

/* Who has been put into the reply keeps nothing, or it would be there twice. */
static void finish_whole(gm_exchange *x)
{
    const gm_generation *const g = x->gen;
    gm_strbuf *const out = &x->reply.body;
    gm_openai_begin(x, g->dialect->object, out);
    for (uint32_t i = 0; i < g->n_choices; i++) {
        gm_choice *const c = &g->choices[i];
        if (i) gm_strbuf_putc(out, ',');
        g->dialect->whole(x, c, out);
        gm_strbuf_deinit(&c->text);
        gm_logprobs_deinit(&c->logprobs);
    }
    gm_openai_end(x, true, out);
    x->reply.status = MHD_HTTP_OK;
    if (out->failed)
        gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "there is not enough memory");
    else if (!gm_exchange_keep(x, out->len))
        gm_reply_crowded(x);
}

void gm_generation_pump(gm_exchange *x)
{
    gm_generation *const g = x->gen;
    if (g->finished || x->reply.status) return;
    if (atomic_load(&x->late)) {
        const gm_lateness l = gm_exchange_lateness(x, gm_generation_tally_wait(x));
        fail(x, l.status, l.why);
        return;
    }
    if (g->ask.stream && atomic_exchange(&x->ping, 0)) gm_sse_ping(&x->out);
    for (uint32_t i = 0; i < g->n_opened; i++)
        pump_choice(x, &g->choices[i]);
    if (g->finished || x->reply.status) return;
    go_on(x);
    if (g->n_ended < g->n_choices) return;
    if (g->ask.stream)
        finish_stream(x);
    else
        finish_whole(x);
}

/* ---- closing ----------------------------------------------------------------------------- */

void gm_generation_cancel(gm_generation *g)
{
    for (uint32_t i = 0; i < g->n_choices; i++) {
        gm_request *const r = atomic_load(&g->choices[i].request);
        if (r) gm_request_cancel(r);
    }
}

void gm_generation_close(gm_generation *g)
{
    if (!g) return;
    gm_generation_cancel(g); /* all of them first: then one wait serves all */
    for (uint32_t i = 0; i < g->n_choices; i++) {
        gm_request_close(atomic_load(&g->choices[i].request));
        gm_strbuf_deinit(&g->choices[i].text);
        gm_logprobs_deinit(&g->choices[i].logprobs);
    }
    for (uint32_t i = 0; i < g->n_prompts; i++) {
        gm_ids_deinit(&g->prompts[i].ids);
        gm_text_deinit(&g->prompts[i].text);
        gm_logprobs_deinit(&g->prompts[i].logprobs);
    }
    gm_text_deinit(&g->token);
    gm_strbuf_deinit(&g->scratch);
    gm_mem_free(g->choices);
    gm_mem_free(g->prompts);
    gm_mem_free(g);
}
