/* SPDX-License-Identifier: MIT */
/* POST /tokenize and /detokenize. */

#include <inttypes.h>

#include "base/mem.h"
#include "server/fields.h"
#include "server/openai.h"
#include "server/router.h"
#include "server/state.h"
#include "server/tokens.h"

gm_status gm_tokens_read(const json_t *array, gm_ids *out, const char *name, gm_err *err)
{
    const size_t n = json_array_size(array);
    if (!json_is_array(array))
        return gm_fail(err, GM_E_ARG, 0, "%s is not an array of token ids", name);
    GM_TRY(gm_mem_grow(&out->at, &out->cap, out->n + n, sizeof *out->at, "token ids", err));
    size_t i;
    json_t *v;
    json_array_foreach(array, i, v)
    {
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > INT32_MAX)
            return gm_fail(err, GM_E_ARG, 0, "%s[%zu] is not a token id", name, i);
        out->at[out->n++] = (int32_t)id;
    }
    return GM_OK;
}

static json_t *token_json(const gm_exchange *x, int32_t id, bool with_piece)
{
    if (!with_piece) return json_integer(id);
    size_t len = 0;
    const char *const piece = gm_model_piece(x->server->model, id, &len);
    return json_pack("{s:i, s:o}", "id", (int)id, "piece", gm_openai_text(piece, len));
}

static bool read_fields(gm_exchange *x, gm_ask *ask, uint32_t in)
{
    gm_err err = {0};
    const char *param = NULL;
    if (gm_ask_read(ask, x->json, in, x->server->model, &param, &err) == GM_OK) return true;
    gm_reply_failure(x, param, &err);
    return false;
}

void gm_route_tokenize(gm_exchange *x)
{
    gm_ask ask;
    gm_ids ids = {0};
    gm_err err = {0};
    if (!read_fields(x, &ask, GM_IN_TOKENIZE)) return;
    if (!json_is_string(ask.content)) {
        gm_reply_error(x, MHD_HTTP_BAD_REQUEST, "content", "content is not a string");
        return;
    }
    const uint32_t flags =
        (ask.add_special ? GM_TOKENIZE_BOS : 0) | (ask.parse_special ? GM_TOKENIZE_SPECIAL : 0);
    if (gm_model_tokenize(x->server->model, json_string_value(ask.content),
                          json_string_length(ask.content), flags, &ids, &err) != GM_OK) {
        gm_reply_failure(x, "content", &err);
        return;
    }
    json_t *const tokens = json_array();
    for (size_t i = 0; i < ids.n; i++)
        json_array_append_new(tokens, token_json(x, ids.at[i], ask.with_pieces));
    const bool whole = json_array_size(tokens) == ids.n;
    gm_reply_json(
        x, json_pack("{s:o, s:I}", "tokens", whole ? tokens : NULL, "count", (json_int_t)ids.n));
    if (!whole) json_decref(tokens);
    gm_ids_deinit(&ids);
}

void gm_route_detokenize(gm_exchange *x)
{
    gm_ask ask;
    gm_ids ids = {0};
    gm_text text = {0};
    gm_err err = {0};
    if (!read_fields(x, &ask, GM_IN_DETOKENIZE)) return;
    if (gm_tokens_read(ask.tokens, &ids, "tokens", &err) != GM_OK ||
        gm_model_detokenize(x->server->model, ids.at, ids.n, GM_DETOKENIZE_SPECIAL, &text, &err) !=
            GM_OK)
        gm_reply_failure(x, "tokens", &err);
    else
        gm_reply_json(x, json_pack("{s:o}", "content", gm_openai_text(text.p, text.len)));
    gm_ids_deinit(&ids);
    gm_text_deinit(&text);
}
