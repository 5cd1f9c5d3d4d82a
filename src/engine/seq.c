/* SPDX-License-Identifier: MIT */
/* From drawn tokens to events. Everything a token's event needs is allocated when
 * the request opens: the ring's texts have room for the longest piece with every
 * byte replaced, plus what stop strings may hold back. */

#include "engine/prefix.h"

#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

/* The longest piece, and a replacement character for each byte held back and each of its own. */
size_t gm_seq_longest(const gm_vocab *v)
{
    size_t longest = 0;
    for (int32_t id = 0; gm_vocab_has(v, id); id++) {
        const gm_str piece = gm_vocab_piece(v, id);
        if (piece.len > longest) longest = piece.len;
    }
    return 3 * (longest + 4);
}

static gm_status check_prompt(const gm_request_opts *o, uint32_t n_vocab, uint32_t n_ctx,
                              gm_err *err)
{
    if (o->n_ids == 0) return gm_fail(err, GM_E_ARG, 0, "prompt: it has no tokens");
    const bool answers = !(o->flags & GM_REQUEST_NO_ANSWER);
    if (o->n_ids + answers > n_ctx) {
        return gm_fail(err, GM_E_TOOBIG, 0,
                       "the prompt has %zu tokens and the context has room for %" PRIu32 "%s",
                       o->n_ids, n_ctx - answers, answers ? " with one to answer" : "");
    }
    if (o->flags >= 2 * GM_REQUEST_ALONG) {
        return gm_fail(err, GM_E_ARG, 0,
                       "request: its flags are %#" PRIx32 ", of which some are unknown", o->flags);
    }
    for (size_t i = 0; i < o->n_ids; i++) {
        if (o->ids[i] < 0 || (uint32_t)o->ids[i] >= n_vocab) {
            return gm_fail(err, GM_E_ARG, 0,
                           "prompt: token %zu is %" PRId32 ", expected 0 to %" PRIu32, i, o->ids[i],
                           n_vocab - 1);
        }
    }
    if (o->n_top > n_vocab) {
        return gm_fail(err, GM_E_ARG, 0,
                       "request: %" PRIu32 " candidates asked for, expected at most %" PRIu32,
                       o->n_top, n_vocab);
    }
    return GM_OK;
}

/* Room for n bytes in a buffer that must not grow later. */
static gm_status reserve(gm_strbuf *b, size_t n, gm_err *err)
{
    return gm_mem_grow(&b->p, &b->cap, n + 1, 1, "an event's text", err);
}

static gm_status make_ring(gm_request *r, const gm_vocab *v, gm_err *err)
{
    const size_t chunk = r->engine->longest;
    const uint32_t most = r->max_answer + (r->flags & GM_REQUEST_PROMPT ? r->n_prompt : 0);
    r->n_ring = most < GM_SEQ_RING ? most + 1 : GM_SEQ_RING;
    GM_TRY(gm_arena_alloc(&r->arena, &r->ring, r->n_ring, sizeof *r->ring, "events", err));
    GM_TRY(reserve(&r->piece, 2 * chunk + r->stops.longest, err));
    for (uint32_t i = 0; i < r->n_ring; i++) {
        gm_mail *const m = &r->ring[i];
        GM_TRY(reserve(&m->text, 2 * chunk + r->stops.longest, err));
        GM_TRY(gm_arena_alloc(&r->arena, &m->top, r->n_top, sizeof *m->top, "candidates", err));
    }
    if (r->n_top <= GM_TOP_MAX) return GM_OK;
    return gm_arena_alloc(&r->arena, &r->order, gm_vocab_len(v), sizeof *r->order, "candidates",
                          err);
}

/* The user's biases; and where answers must not end, the tokens that end one can never win. */
static gm_status copy_biases(gm_request *r, const gm_request_opts *o, const gm_vocab *v,
                             gm_err *err)
{
    const gm_vocab_ids *const special = gm_vocab_special(v);
    const int32_t ends[] = {special->eos, special->end_of_turn, gm_vocab_find(v, GM_STR("<eos>"))};
    const uint32_t n_ends = sizeof ends / sizeof *ends;
    r->n_bias = o->sampling.n_bias;
    GM_TRY(gm_arena_alloc(&r->arena, &r->bias, r->n_bias + n_ends, sizeof *r->bias, "biases", err));
    if (r->n_bias) memcpy(r->bias, o->sampling.bias, r->n_bias * sizeof *r->bias);
    for (uint32_t i = 0; r->flags & GM_REQUEST_IGNORE_END && i < n_ends; i++) {
        if (ends[i] != GM_NO_TOKEN) r->bias[r->n_bias++] = (gm_bias){ends[i], -INFINITY};
    }
    return GM_OK;
}

gm_status gm_beginning_open(gm_beginning **out, const gm_kvpool *pool, uint32_t n, gm_err *err)
{
    GM_TRY(gm_mem_alloc(out, 1, sizeof **out, "token ids", err));
    gm_beginning *const b = *out;
    GM_TRY(gm_arena_alloc(&b->arena, &b->ids, n, sizeof *b->ids, "token ids", err));
    GM_TRY(gm_arena_alloc(&b->arena, &b->filed.pages, pool->table_len, sizeof *b->filed.pages,
                          "a page table", err));
    return gm_kvtable_init(&b->table, pool, &b->arena, err);
}

void gm_beginning_free(gm_beginning *b)
{
    if (!b) return;
    gm_arena_deinit(&b->arena);
    gm_mem_free(b);
}

/* The prompt, with room for the answer, and a table for their pages. */
static gm_status begin_init(gm_request *r, const gm_request_opts *o, gm_err *err)
{
    const gm_kvpool *const pool = &r->engine->place.pool;
    const uint32_t most = r->n_prompt + r->max_answer;
    GM_TRY(gm_beginning_open(&r->begin, pool, most, err));
    r->ids = r->begin->ids;
    memcpy(r->ids, o->ids, o->n_ids * sizeof *r->ids);
    for (uint32_t c = 0; c < GM_CLASSES; c++)
        r->need[c] = gm_kvpool_need(pool, c, most, GM_RUNNER_ROWS);
    gm_prefix_mark(r->engine, r);
    return GM_OK;
}

gm_status gm_seq_check(const gm_engine *e, const gm_request_opts *o, gm_draw *draw, gm_err *err)
{
    const uint32_t n_vocab = gm_vocab_len(e->model->vocab);
    GM_TRY(check_prompt(o, n_vocab, e->place.n_ctx, err));
    return gm_sampler_read(&o->sampling, n_vocab, draw, err);
}

static gm_status seq_init(gm_request *r, const gm_request_opts *o, gm_err *err)
{
    const gm_vocab *const vocab = r->engine->model->vocab;
    const uint32_t n_ctx = r->engine->place.n_ctx;
    GM_TRY(gm_seq_check(r->engine, o, &r->draw, err));
    r->n_prompt = r->n_ids = (uint32_t)o->n_ids;
    const uint32_t room = n_ctx - r->n_prompt;
    r->max_answer = o->max_tokens && o->max_tokens < room ? o->max_tokens : room;
    r->n_top = o->n_top;
    r->flags = o->flags;
    r->wake = o->wake;
    r->wake_ctx = o->wake_ctx;
    r->group = o->group ? o->group : r;
    GM_TRY(begin_init(r, o, err));
    GM_TRY(copy_biases(r, o, vocab, err));
    GM_TRY(gm_stops_init(&r->stops, o->stop, o->n_stop, r->engine->longest, &r->arena, err));
    return make_ring(r, vocab, err);
}

gm_status gm_seq_open(gm_request **out, gm_engine *e, const gm_request_opts *opts, gm_err *err)
{
    *out = NULL;
    gm_request *r = NULL;
    GM_TRY(gm_mem_alloc(&r, 1, sizeof *r, "a request", err));
    r->engine = e;
    pthread_cond_init(&r->news, NULL);
    const gm_status status = seq_init(r, opts, err);
    r->open_s = gm_clock_s();
    if (status == GM_OK)
        *out = r;
    else
        gm_seq_free(r);
    return status;
}

void gm_seq_free(gm_request *r)
{
    if (!r) return;
    for (uint32_t i = 0; r->ring && i < r->n_ring; i++)
        gm_strbuf_deinit(&r->ring[i].text);
    gm_strbuf_deinit(&r->piece);
    gm_stops_deinit(&r->stops);
    pthread_cond_destroy(&r->news);
    gm_beginning_free(r->begin);
    gm_arena_deinit(&r->arena);
    gm_mem_free(r);
}

void gm_queue_put(gm_request **queue, gm_request *r)
{
    while (*queue)
        queue = &(*queue)->next;
    r->next = NULL;
    *queue = r;
}

void gm_seq_tell(gm_request *r)
{
    pthread_cond_signal(&r->news);
    if (r->wake) r->wake(r->wake_ctx);
}

uint32_t gm_seq_room(const gm_request *r)
{
    return r->n_ring - (r->n_put - r->n_taken);
}

/* The row of a prompt's last token tells of the answer only. */
bool gm_seq_is_read(const gm_request *r)
{
    if (!(r->flags & GM_REQUEST_NO_ANSWER)) return false;
    return !(r->flags & GM_REQUEST_PROMPT) || r->n_done + 1 >= r->n_prompt;
}

void gm_seq_count(const gm_request *r, gm_event *ev)
{
    const double now = gm_clock_s();
    const double start_s = r->start_s > 0 ? r->start_s : now;
    ev->n_prompt = r->n_prompt;
    ev->n_cached = r->n_cached;
    ev->n_answer = r->n_ids - r->n_prompt;
    ev->queue_s = start_s - r->open_s;
    ev->prefill_s = (r->prefilled_s > 0 ? r->prefilled_s : now) - start_s;
    ev->decode_s = r->prefilled_s > 0 ? now - r->prefilled_s : 0;
}

static void fill_candidates(gm_request *r, gm_mail *mail, const gm_seq_news *news, uint32_t n_vocab)
{
    if (news->top)
        memcpy(mail->top, news->top, news->n_top * sizeof *mail->top);
    else if (r->n_top)
        gm_draw_top(news->logits, n_vocab,
                    gm_draw_logsum_by(news->logits, n_vocab, (uint32_t)news->token, news->logprob),
                    r->n_top, r->order, mail->top);
    mail->ev.top = mail->top;
    mail->ev.n_top = r->n_top;
    for (uint32_t i = 0; i < r->n_top; i++) { /* one token, one number, to the last bit */
        if (mail->top[i].id == mail->ev.id) mail->top[i].logprob = mail->ev.logprob;
    }
    if (r->flags & GM_REQUEST_HASH) mail->ev.hash = gm_draw_hash(news->logits, n_vocab);
}

/* The next mail of the ring, begun. */
static gm_mail *mail_begin(gm_request *r, int32_t kind, const gm_seq_news *news)
{
    gm_mail *const mail = &r->ring[r->n_put % r->n_ring];
    mail->ev = (gm_event){.kind = kind, .id = news->token, .logprob = news->logprob};
    gm_strbuf_clear(&mail->text);
    return mail;
}

static void mail_send(gm_request *r, gm_mail *mail, const gm_vocab *v, const gm_seq_news *news)
{
    fill_candidates(r, mail, news, gm_vocab_len(v));
    gm_seq_count(r, &mail->ev);
    mail->ev.text = gm_strbuf_str(&mail->text).p;
    mail->ev.len = mail->text.len;
    r->n_put++;
    r->put_s = gm_clock_s();
    gm_seq_tell(r);
}

void gm_seq_prompt(gm_request *r, const gm_vocab *v, const gm_seq_news *news)
{
    mail_send(r, mail_begin(r, GM_EVENT_PROMPT, news), v, news);
}

int32_t gm_seq_token(gm_request *r, const gm_vocab *v, const gm_seq_news *news)
{
    if (r->prefilled_s == 0) r->prefilled_s = gm_clock_s();
    r->ids[r->n_ids++] = news->token;
    gm_mail *const mail = mail_begin(r, GM_EVENT_TOKEN, news);
    gm_strbuf_clear(&r->piece);

    int32_t reason = gm_vocab_is_end(v, news->token) ? GM_END_STOP : 0;
    if (!reason) {
        gm_detok_put(&r->detok, v, news->token, &r->piece);
        if (gm_stops_put(&r->stops, gm_strbuf_str(&r->piece), &mail->text)) reason = GM_END_STOP;
    }
    mail_send(r, mail, v, news);
    return reason ? reason : r->n_ids - r->n_prompt >= r->max_answer ? GM_END_LENGTH : 0;
}

void gm_seq_end(gm_request *r, int32_t reason)
{
    gm_strbuf_clear(&r->piece);
    if (gm_stops_end(&r->stops, &r->piece))
        reason = GM_END_STOP;
    else
        gm_detok_end(&r->detok, &r->piece);
    r->end = (gm_event){.kind = GM_EVENT_END, .reason = reason};
    r->end.text = gm_strbuf_str(&r->piece).p;
    r->end.len = r->piece.len;
    gm_seq_count(r, &r->end);
    gm_seq_tell(r);
}

void gm_seq_fail(gm_request *r, const gm_err *err)
{
    r->failed = *err;
    gm_seq_tell(r);
}
