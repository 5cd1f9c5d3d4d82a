/* SPDX-License-Identifier: MIT */
#include "answer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void answer_put(gm_answer *a, const gm_event *ev)
{
    if (ev->len == 0) return;
    a->last = ev->text[ev->len - 1];
    if (a->keep || a->json) gm_bytes_put(&a->text, ev->text, ev->len);
    if (a->json) return;
    gm_out_bytes(ev->text, ev->len);
    gm_out_flush();
}

static const char *reason_name(int32_t reason)
{
    return reason == GM_END_STOP ? "stop" : reason == GM_END_LENGTH ? "length" : "cancel";
}

/* The first token of an answer comes out of the prompt's last step and is not counted as decode. */
static uint32_t n_decoded(const gm_event *end)
{
    return end->n_answer ? end->n_answer - 1 : 0;
}

/* Seconds, and tokens in each of them: null where nothing was done. */
static json_t *pace_json(uint32_t n, double seconds)
{
    return gm_need(json_pack("{s:o, s:o}", "seconds", gm_outjson_real(seconds), "tok_s",
                             gm_outjson_real(seconds > 0 ? n / seconds : (double)NAN)));
}

static void print_json(const gm_answer *a, const gm_session *s)
{
    const gm_event *const end = &a->end;
    gm_out_json(json_pack("{s:o, s:o, s:I, s:I, s:s, s:I, s:I, s:o, s:o}", "model",
                          gm_outjson_text(s->path, strlen(s->path)), "text",
                          gm_outjson_text(a->text.p, a->text.len), "tokens",
                          (json_int_t)end->n_answer, "prompt_tokens", (json_int_t)end->n_prompt,
                          "finish_reason", reason_name(end->reason), "seed", (json_int_t)a->seed,
                          "cached_tokens", (json_int_t)end->n_cached, "prefill",
                          pace_json(end->n_prompt - end->n_cached, end->prefill_s), "decode",
                          pace_json(n_decoded(end), end->decode_s)));
}

int gm_answer_stream(gm_answer *a, gm_session *s, const gm_request_opts *opts)
{
    gm_event *const ev = &a->end;
    a->hashed = opts->flags & GM_REQUEST_HASH;
    int code = gm_session_ask(s, opts);
    if (code != GM_EXIT_OK) return code;
    while (code == GM_EXIT_OK && ev->kind != GM_EVENT_END) {
        code = gm_session_next(s, ev);
        if (code == GM_EXIT_OK) answer_put(a, ev);
    }
    if (!a->json && a->last != '\n') gm_out_bytes("\n", 1);
    if (a->json && code == GM_EXIT_OK) print_json(a, s);
    gm_out_flush();
    a->hash = s->hash;
    a->cut =
        ev->kind == GM_EVENT_END && ev->reason == GM_END_LENGTH && ev->n_answer != opts->max_tokens;
    const int ended = gm_session_end(s);
    return code == GM_EXIT_OK ? ended : code;
}

void gm_answer_say_cut(const gm_answer *a, const gm_session *s, const char *advice)
{
    if (!a->cut) return;
    gm_say_note("the answer is cut: %" PRIu32 " tokens of prompt and %" PRIu32
                " of answer fill the context of %" PRIu32 " (%s--ctx sets the context)",
                a->end.n_prompt, a->end.n_answer, gm_engine_ctx(s->engine), advice);
}

/* "41.0 (28.9 GB/s, 99.1% of the roof)": the rest only where the roof is known, and the share only
 * where it is one of it. A share above 100% is a mistake in the counting or in the roof, and is
 * shown as it is. */
static void say_rate(const char *name, double tok_s, double rate, double roof, const char *unit,
                     bool cached)
{
    if (roof > 0 && cached)
        gm_say_fact(name, "%.1f (%.1f %s, out of the cache)", tok_s, rate, unit);
    else if (roof > 0)
        gm_say_fact(name, "%.1f (%.1f %s, %.1f%% of the roof)", tok_s, rate, unit,
                    100 * rate / roof);
    else
        gm_say_fact(name, "%.1f", tok_s);
}

void gm_answer_say_speed(const gm_answer *a, const gm_session *s)
{
    const gm_event *const end = &a->end;
    const uint32_t n_steps = n_decoded(end);
    const gm_backend_info *const roof = &s->roof;
    if (end->prefill_s > 0) {
        const uint32_t n_read = end->n_prompt - end->n_cached;
        const double ops = gm_model_prompt_ops(s->model, n_read);
        say_rate("prefill tok/s", n_read / end->prefill_s, ops / end->prefill_s * 1e-9,
                 roof->int8_gop_s, "Gop/s", false);
    }
    if (end->decode_s > 0) {
        const uint32_t depth = end->n_prompt + n_steps / 2;
        const double bytes =
            roof->kv_type ? gm_model_step_size(s->model, roof->kv_type, depth, 1) : 0;
        const double steps_s = n_steps / end->decode_s;
        say_rate("decode tok/s", steps_s, bytes * steps_s * 1e-9, roof->read_gb_s, "GB/s",
                 gm_session_cached(s));
    }
    if (a->hashed) gm_say_fact("logits hash", "%016" PRIx64, a->hash);
}

void gm_answer_say_facts(const gm_answer *a, gm_session *s)
{
    gm_session_measure(s);
    gm_say_fact("model", "%s", s->path);
    gm_session_say_backend(s);
    gm_say_fact("seed", "%" PRIu64, a->seed);
    gm_say_fact("prompt tokens", "%" PRIu32 " (%" PRIu32 " of them known from before)",
                a->end.n_prompt, a->end.n_cached);
    gm_say_fact("answer tokens", "%" PRIu32 " (%s)", a->end.n_answer, reason_name(a->end.reason));
    gm_answer_say_speed(a, s);
}
