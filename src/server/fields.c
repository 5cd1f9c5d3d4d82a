/* SPDX-License-Identifier: MIT */
#include "server/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

#define MAX_WHOLE 9007199254740992.0 /* 2^53: up to here reals have every whole number */

#define BOTH (GM_IN_CHAT | GM_IN_COMPLETIONS)

#define WHOLE(name, in, to, min, max)                                  \
    {                                                                  \
        name, in, GM_FIELD_WHOLE, offsetof(gm_ask, to), min, max, NULL \
    }
#define REAL(name, in, to, min, max)                                  \
    {                                                                 \
        name, in, GM_FIELD_REAL, offsetof(gm_ask, to), min, max, NULL \
    }
#define FLAG(name, in, to)                                        \
    {                                                             \
        name, in, GM_FIELD_FLAG, offsetof(gm_ask, to), 0, 0, NULL \
    }
#define TEXT(name, in, to)                                        \
    {                                                             \
        name, in, GM_FIELD_TEXT, offsetof(gm_ask, to), 0, 0, NULL \
    }
#define VALUE(name, in, to)                                        \
    {                                                              \
        name, in, GM_FIELD_VALUE, offsetof(gm_ask, to), 0, 0, NULL \
    }
#define REFUSED(name, in, anyway)                   \
    {                                               \
        name, in, GM_FIELD_REFUSED, 0, 0, 0, anyway \
    }

static const gm_field fields[] = {
    /* what is asked */
    TEXT("model", BOTH | GM_IN_TOKENIZE | GM_IN_DETOKENIZE, model),
    VALUE("messages", GM_IN_CHAT, messages),
    VALUE("prompt", GM_IN_COMPLETIONS, prompt),
    FLAG("echo", GM_IN_COMPLETIONS, echo),
    /* how much */
    WHOLE("max_tokens", GM_IN_CHAT, max_tokens, 1, UINT32_MAX),
    WHOLE("max_tokens", GM_IN_COMPLETIONS, max_tokens, 0, UINT32_MAX),
    WHOLE("max_completion_tokens", GM_IN_CHAT, max_completion_tokens, 1, UINT32_MAX),
    WHOLE("n", BOTH, n, 1, 128),
    WHOLE("best_of", GM_IN_COMPLETIONS, best_of, 1, 128),
    VALUE("stop", BOTH, stop),
    FLAG("ignore_eos", BOTH, ignore_eos),
    /* how tokens are drawn */
    REAL("temperature", BOTH, sampling.temperature, 0, 2),
    REAL("top_p", BOTH, sampling.top_p, 0, 1),
    WHOLE("top_k", BOTH, top_k, 0, UINT32_MAX),
    REAL("min_p", BOTH, sampling.min_p, 0, 1),
    REAL("repeat_penalty", BOTH, sampling.repeat_penalty, 0.01, 100),
    REAL("frequency_penalty", BOTH, sampling.frequency_penalty, -2, 2),
    REAL("presence_penalty", BOTH, sampling.presence_penalty, -2, 2),
    VALUE("logit_bias", BOTH, logit_bias),
    VALUE("seed", BOTH, seed),
    /* what comes back */
    FLAG("logprobs", GM_IN_CHAT, logprobs),
    WHOLE("top_logprobs", GM_IN_CHAT, n_top_logprobs, 0, GM_ASK_TOP),
    WHOLE("logprobs", GM_IN_COMPLETIONS, n_logprobs, 0, GM_ASK_TOP),
    FLAG("stream", BOTH, stream),
    VALUE("stream_options", BOTH, stream_options),
    /* who asks */
    TEXT("user", BOTH, user),
    TEXT("safety_identifier", GM_IN_CHAT, safety_identifier),
    VALUE("metadata", BOTH, metadata),
    /* /tokenize and /detokenize */
    VALUE("content", GM_IN_TOKENIZE, content),
    FLAG("add_special", GM_IN_TOKENIZE, add_special),
    FLAG("parse_special", GM_IN_TOKENIZE, parse_special),
    FLAG("with_pieces", GM_IN_TOKENIZE, with_pieces),
    VALUE("tokens", GM_IN_DETOKENIZE, tokens),
    /* not yet supported, or never */
    REFUSED("response_format", GM_IN_CHAT, "[{\"type\":\"text\"}]"),
    REFUSED("tools", GM_IN_CHAT, "[[]]"),
    REFUSED("tool_choice", GM_IN_CHAT, "[\"none\",\"auto\"]"),
    REFUSED("parallel_tool_calls", GM_IN_CHAT, "[true,false]"),
    REFUSED("functions", GM_IN_CHAT, "[[]]"),
    REFUSED("function_call", GM_IN_CHAT, "[\"none\",\"auto\"]"),
    REFUSED("modalities", GM_IN_CHAT, "[[\"text\"]]"),
    REFUSED("audio", GM_IN_CHAT, NULL),
    REFUSED("prediction", GM_IN_CHAT, NULL),
    REFUSED("reasoning_effort", GM_IN_CHAT, "[\"none\"]"),
    REFUSED("verbosity", GM_IN_CHAT, "[\"medium\"]"),
    REFUSED("web_search_options", GM_IN_CHAT, NULL),
    REFUSED("service_tier", GM_IN_CHAT, "[\"auto\",\"default\"]"),
    REFUSED("store", GM_IN_CHAT, "[false]"),
    TEXT("prompt_cache_key", GM_IN_CHAT, cache_key),
    REFUSED("prompt_cache_retention", GM_IN_CHAT, "[\"in_memory\",\"in-memory\"]"),
    REFUSED("prompt_cache_options", GM_IN_CHAT, NULL),
    REFUSED("moderation", GM_IN_CHAT, NULL),
    REFUSED("suffix", GM_IN_COMPLETIONS, "[\"\"]"),
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

const gm_field *gm_field_at(size_t i)
{
    return i < N_FIELDS ? &fields[i] : NULL;
}

/* A name that is cut within a character would be no JSON. */
void gm_path_set(gm_path *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, args);
    va_end(args);
    p->text[gm_utf8_whole(p->text, strlen(p->text))] = '\0';
}

/* ---- values ------------------------------------------------------------------------------ */

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {"an object",     "an array", "a string", "an integer",
                                        "a real number", "true",     "false",    "null"};
    return names[json_typeof(v)];
}

static gm_status wrong_type(const char *name, const json_t *v, const char *expected, gm_err *err)
{
    return gm_fail(err, GM_E_ARG, 0, "%.60s is %s, expected %s", name, type_name(v), expected);
}

bool gm_whole_read(const json_t *v, json_int_t *out)
{
    const double real = json_real_value(v);
    if (json_is_real(v) && (fabs(real) > MAX_WHOLE || real != trunc(real))) return false;
    *out = json_is_real(v) ? (json_int_t)real : json_integer_value(v);
    return json_is_number(v);
}

static gm_status read_whole(const gm_field *f, const json_t *v, int64_t *out, gm_err *err)
{
    json_int_t x = 0;
    if (!gm_whole_read(v, &x)) return wrong_type(f->name, v, "an integer", err);
    if ((double)x < f->min || (double)x > f->max) {
        return gm_fail(err, GM_E_ARG, 0, "%s is %" JSON_INTEGER_FORMAT ", expected %.0f to %.0f",
                       f->name, x, f->min, f->max);
    }
    *out = x;
    return GM_OK;
}

static gm_status read_real(const gm_field *f, const json_t *v, float *out, gm_err *err)
{
    if (!json_is_number(v)) return wrong_type(f->name, v, "a number", err);
    const double x = json_number_value(v);
    if (!(x >= f->min && x <= f->max)) {
        return gm_fail(err, GM_E_ARG, 0, "%s is %.9g, expected %g to %g", f->name, x, f->min,
                       f->max);
    }
    *out = (float)x;
    return GM_OK;
}

static gm_status read_text(const char *name, const json_t *v, const char **out, gm_err *err)
{
    if (!json_is_string(v)) return wrong_type(name, v, "a string", err);
    *out = json_string_value(v);
    if (strlen(*out) == json_string_length(v)) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0, "%.60s has a NUL character in it", name);
}

/* What is not supported passes where it asks for what happens anyway. */
static gm_status read_refused(const gm_field *f, const json_t *v, gm_err *err)
{
    json_t *const anyway = f->anyway ? json_loads(f->anyway, 0, NULL) : NULL;
    if (f->anyway && !anyway) return gm_fail(err, GM_E_NOMEM, 0, "there is not enough memory");
    bool passes = false;
    size_t i;
    json_t *one;
    json_array_foreach(anyway, i, one) passes = passes || json_equal(one, v);
    json_decref(anyway);
    if (passes) return GM_OK;
    const char *const list = f->anyway ? f->anyway + 1 : "]"; /* without the array's brackets */
    const int len = (int)strlen(list) - 1, first = (int)strcspn(list, ",");
    if (first < len)
        return gm_fail(err, GM_E_UNSUP, 0, "%s is not supported here, expected null, %.*s or %.*s",
                       f->name, first, list, len - first - 1, list + first + 1);
    return gm_fail(err, GM_E_UNSUP, 0, "%s is not supported here, expected null%s%.*s", f->name,
                   len ? " or " : "", len, list);
}

static gm_status read_field(const gm_field *f, const json_t *v, gm_ask *a, gm_err *err)
{
    void *const to = (char *)a + f->offset;
    if (json_is_null(v)) return GM_OK;
    switch (f->kind) {
    case GM_FIELD_WHOLE: return read_whole(f, v, to, err);
    case GM_FIELD_REAL: return read_real(f, v, to, err);
    case GM_FIELD_TEXT: return read_text(f->name, v, to, err);
    case GM_FIELD_VALUE: *(const json_t **)to = v; return GM_OK;
    case GM_FIELD_REFUSED: return read_refused(f, v, err);
    case GM_FIELD_FLAG:
        if (!json_is_boolean(v)) return wrong_type(f->name, v, "true or false", err);
        *(bool *)to = json_is_true(v);
        return GM_OK;
    }
    return GM_OK;
}

static const gm_field *field_find(const char *name, uint32_t in)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (fields[i].in & in && strcmp(fields[i].name, name) == 0) return &fields[i];
    }
    return NULL;
}

static gm_status no_field(const char *name, gm_err *err)
{
    static const struct {
        uint32_t in;
        const char *path;
    } ENDPOINTS[] = {
        {GM_IN_CHAT, "/v1/chat/completions"},
        {GM_IN_COMPLETIONS, "/v1/completions"},
        {GM_IN_TOKENIZE, "/tokenize"},
        {GM_IN_DETOKENIZE, "/detokenize"},
    };
    for (size_t i = 0; i < sizeof ENDPOINTS / sizeof *ENDPOINTS; i++) {
        if (field_find(name, ENDPOINTS[i].in))
            return gm_fail(err, GM_E_ARG, 0, "there is no field %.60s here; %s has one", name,
                           ENDPOINTS[i].path);
    }
    return gm_fail(err, GM_E_ARG, 0, "there is no field %.60s", name);
}

/* ---- values with parts ------------------------------------------------------------------- */

/* A stop is looked for in the text, which has no control tokens: one that is spelled like such a token
 * would never be found. One that ends the answer anyway may be asked for. */
static gm_status check_stop(const gm_ask *a, const json_t *v, const gm_model *m, const char *name,
                            gm_err *err)
{
    gm_ids ids = {0};
    gm_text text = {0};
    gm_status status = gm_model_tokenize(m, json_string_value(v), json_string_length(v),
                                         GM_TOKENIZE_SPECIAL, &ids, err);
    const bool one = status == GM_OK && ids.n == 1;
    if (one) status = gm_model_detokenize(m, ids.at, 1, 0, &text, err);
    const bool ends = one && gm_model_ends(m, ids.at[0]) && !a->ignore_eos;
    if (one && status == GM_OK && text.len == 0 && !ends)
        status = gm_fail(err, GM_E_ARG, 0,
                         "%s is the control token %s, expected text: answers have no control "
                         "tokens in them",
                         name, json_string_value(v));
    gm_text_deinit(&text);
    gm_ids_deinit(&ids);
    return status;
}

static gm_status add_stop(gm_ask *a, const json_t *v, const gm_model *m, const char *name,
                          gm_err *err)
{
    GM_TRY(read_text(name, v, &a->stops[a->n_stops], err));
    if (a->stops[a->n_stops][0] == '\0')
        return gm_fail(err, GM_E_ARG, 0, "%s is empty, expected a string with characters", name);
    if (json_string_length(v) > GM_ASK_STOP) {
        return gm_fail(err, GM_E_ARG, 0, "%s has %zu bytes, expected at most %d", name,
                       json_string_length(v), GM_ASK_STOP);
    }
    a->n_stops++;
    return check_stop(a, v, m, name, err);
}

static gm_status read_stop(gm_ask *a, const gm_model *m, const char **param, gm_err *err)
{
    *param = "stop";
    if (!a->stop) return GM_OK;
    if (!json_is_array(a->stop)) {
        if (!json_is_string(a->stop))
            return wrong_type("stop", a->stop, "a string or an array of strings", err);
        return add_stop(a, a->stop, m, "stop", err);
    }
    if (json_array_size(a->stop) > GM_ASK_STOPS) {
        return gm_fail(err, GM_E_ARG, 0, "stop has %zu strings, expected at most %d",
                       json_array_size(a->stop), GM_ASK_STOPS);
    }
    *param = a->path.text;
    size_t i;
    json_t *v;
    json_array_foreach(a->stop, i, v)
    {
        gm_path_set(&a->path, "stop[%zu]", i);
        GM_TRY(add_stop(a, v, m, a->path.text, err));
    }
    return GM_OK;
}

static gm_status read_bias(gm_ask *a, const gm_model *m, const char **param, gm_err *err)
{
    gm_model_info info = {.size = sizeof info};
    *param = "logit_bias";
    if (!a->logit_bias) return GM_OK;
    gm_model_describe(m, &info);
    if (!json_is_object(a->logit_bias))
        return wrong_type("logit_bias", a->logit_bias, "an object of token ids and numbers", err);
    if (json_object_size(a->logit_bias) > GM_ASK_BIASES) {
        return gm_fail(err, GM_E_ARG, 0, "logit_bias has %zu tokens, expected at most %d",
                       json_object_size(a->logit_bias), GM_ASK_BIASES);
    }
    *param = a->path.text;
    const gm_field range = {.name = a->path.text, .min = -100, .max = 100};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a->logit_bias, key, v)
    {
        char *end = NULL, same[40];
        errno = 0;
        const long id = strtol(key, &end, 10);
        gm_path_set(&a->path, "logit_bias.%s", key);
        snprintf(same, sizeof same, "%ld", id); /* no second name for a token */
        if (strcmp(same, key) != 0 || id < 0 || *end || errno || id >= (long)info.n_vocab) {
            return gm_fail(err, GM_E_ARG, 0,
                           "logit_bias has the key \"%.40s\", expected a token id below %" PRIu32,
                           key, info.n_vocab);
        }
        gm_bias *const b = &a->biases[a->n_biases++];
        b->id = (int32_t)id;
        GM_TRY(read_real(&range, v, &b->bias, err));
    }
    return GM_OK;
}

static gm_status read_metadata(gm_ask *a, const char **param, gm_err *err)
{
    *param = "metadata";
    if (!a->metadata) return GM_OK;
    if (!json_is_object(a->metadata) || json_object_size(a->metadata) > 16)
        return gm_fail(err, GM_E_ARG, 0, "metadata is not an object of at most 16 strings");
    *param = a->path.text;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a->metadata, key, v)
    {
        gm_path_set(&a->path, "metadata.%s", key);
        if (!json_is_string(v) || json_string_length(v) > 512 || strlen(key) > 64) {
            return gm_fail(err, GM_E_ARG, 0,
                           "metadata: \"%.64s\" is not a name of at most 64 bytes with a string of "
                           "at most 512",
                           key);
        }
    }
    return GM_OK;
}

static gm_status read_stream_options(gm_ask *a, const char **param, gm_err *err)
{
    *param = "stream_options";
    if (!a->stream_options) return GM_OK;
    if (!a->stream)
        return gm_fail(err, GM_E_ARG, 0, "stream_options goes with \"stream\": true only");
    if (!json_is_object(a->stream_options))
        return wrong_type("stream_options", a->stream_options, "an object", err);
    static const gm_field PARTS[] = {
        FLAG("stream_options.include_usage", 0, include_usage),
        REFUSED("stream_options.include_obfuscation", 0, "[false]"),
    };
    *param = a->path.text;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a->stream_options, key, v)
    {
        const gm_field *f = NULL;
        gm_path_set(&a->path, "stream_options.%s", key);
        for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
            if (strcmp(a->path.text, PARTS[i].name) == 0) f = &PARTS[i];
        }
        if (!f) return gm_fail(err, GM_E_ARG, 0, "there is no field %.80s", a->path.text);
        GM_TRY(read_field(f, v, a, err));
    }
    return GM_OK;
}

static gm_status read_limits(gm_ask *a, const char **param, gm_err *err)
{
    *param = "max_tokens";
    if (a->max_tokens >= 0 && a->max_completion_tokens >= 0) {
        return gm_fail(err, GM_E_ARG, 0,
                       "max_tokens and max_completion_tokens are the same thing: give one of them");
    }
    if (a->max_completion_tokens >= 0) a->max_tokens = a->max_completion_tokens;
    if (a->n < 0) a->n = 1;
    *param = "best_of";
    if (a->best_of >= 0 && a->best_of != a->n) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "best_of is %" PRId64 " and n is %" PRId64
                       ", expected the same: answers are "
                       "not chosen from more",
                       a->best_of, a->n);
    }
    *param = "top_logprobs";
    if (a->n_top_logprobs > 0 && !a->logprobs)
        return gm_fail(err, GM_E_ARG, 0, "top_logprobs goes with \"logprobs\": true only");
    if (a->n_top_logprobs > 0) a->n_top = (uint32_t)a->n_top_logprobs;
    if (a->n_logprobs >= 0) {
        a->logprobs = true;
        a->n_top = (uint32_t)a->n_logprobs;
    }
    *param = "top_k";
    if (a->top_k >= 0) a->sampling.top_k = (uint32_t)a->top_k;
    *param = "seed";
    if (a->seed && !gm_whole_read(a->seed, &a->seed_number))
        return wrong_type("seed", a->seed, "an integer", err);
    return GM_OK;
}

gm_status gm_ask_read(gm_ask *a, const json_t *body, uint32_t in, const gm_model *m,
                      const char **param, gm_err *err)
{
    *param = NULL;
    *a = (gm_ask){.sampling = gm_request_opts_default(m).sampling,
                  .max_tokens = -1,
                  .max_completion_tokens = -1,
                  .n = -1,
                  .best_of = -1,
                  .top_k = -1,
                  .n_logprobs = -1,
                  .n_top_logprobs = -1,
                  .parse_special = true};
    if (!json_is_object(body)) return wrong_type("the body", body, "a JSON object", err);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)body, key, v)
    {
        const gm_field *const f = field_find(key, in);
        *param = key;
        if (!f) return no_field(key, err);
        GM_TRY(read_field(f, v, a, err));
    }
    GM_TRY(read_limits(a, param, err));
    GM_TRY(read_stop(a, m, param, err));
    GM_TRY(read_bias(a, m, param, err));
    GM_TRY(read_metadata(a, param, err));
    GM_TRY(read_stream_options(a, param, err));
    *param = NULL;
    return GM_OK;
}
