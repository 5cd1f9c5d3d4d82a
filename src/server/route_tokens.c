/* SPDX-License-Identifier: MIT */
/* POST /tokenize and /detokenize. */

#include <inttypes.h>

#include "base/mem.h"
#include "server/fields.h"
#include "server/jsontext.h"
#include "server/router.h"
#include "server/state.h"
#include "server/tokens.h"

gm_status gm_tokens_read(const json_t *array, uint32_t n_vocab, gm_ids *out, gm_path *path,
                         gm_err *err)
{
    const gm_path name = *path;
    const size_t n = json_array_size(array);
    if (!json_is_array(array)) {
        return gm_fail(err, GM_E_ARG, 0, "%s is %s, expected an array of token ids", name.text,
                       array ? "no array" : "missing");
    }
    GM_TRY(gm_mem_grow(&out->at, &out->cap, out->n + n, sizeof *out->at, "token ids", err));
    size_t i;
    json_t *v;
    json_array_foreach(array, i, v)
    {
        json_int_t id = -1;
        const bool whole = gm_whole_read(v, &id);
        if (!whole || id < 0 || id >= n_vocab) {
            gm_path_set(path, "%s[%zu]", name.text, i);
            return gm_fail(err, GM_E_ARG, 0, "%s is not a token id, expected 0 to %" PRIu32,
                           path->text, n_vocab - 1);
        }
        out->at[out->n++] = (int32_t)id;
    }
    return GM_OK;
}

static void put_token(const gm_exchange *x, int32_t id, bool with_piece, gm_strbuf *out)
{
    size_t len = 0;
    if (!with_piece) {
        gm_strbuf_printf(out, "%" PRId32, id);
        return;
    }
    const char *const piece = gm_model_piece(x->server->model, id, &len);
    gm_strbuf_printf(out, "{\"id\":%" PRId32 ",\"piece\":", id);
    gm_jsontext_string(out, (gm_str){piece, len});
    gm_strbuf_putc(out, '}');
}

static void put_tokens(gm_exchange *x, const gm_ids *ids, bool with_pieces)
{
    gm_strbuf *const out = &x->reply.body;
    gm_strbuf_put(out, GM_STR("{\"tokens\":["));
    for (size_t i = 0; i < ids->n; i++) {
        if (i) gm_strbuf_putc(out, ',');
        put_token(x, ids->at[i], with_pieces, out);
    }
    gm_strbuf_printf(out, "],\"count\":%zu}", ids->n);
}

/* The reply's body is written; or memory ran out. */
static void end_reply(gm_exchange *x)
{
    x->reply.status = MHD_HTTP_OK;
    if (x->reply.body.failed)
        gm_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "there is not enough memory");
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
        gm_reply_error(x, MHD_HTTP_BAD_REQUEST, "content", "content is %s, expected a string",
                       ask.content ? "no string" : "missing");
        return;
    }
    const uint32_t flags =
        (ask.add_special ? GM_TOKENIZE_BOS : 0) | (ask.parse_special ? GM_TOKENIZE_SPECIAL : 0);
    if (gm_model_tokenize(x->server->model, json_string_value(ask.content),
                          json_string_length(ask.content), flags, &ids, &err) != GM_OK) {
        gm_reply_failure(x, "content", &err);
        return;
    }
    json_object_del(x->json, "content"); /* the reply may be many times as long */
    put_tokens(x, &ids, ask.with_pieces);
    end_reply(x);
    gm_ids_deinit(&ids);
}

void gm_route_detokenize(gm_exchange *x)
{
    gm_ask ask;
    gm_ids ids = {0};
    gm_text text = {0};
    gm_err err = {0};
    if (!read_fields(x, &ask, GM_IN_DETOKENIZE)) return;
    gm_path_set(&ask.path, "tokens");
    if (gm_tokens_read(ask.tokens, x->server->info.n_vocab, &ids, &ask.path, &err) != GM_OK ||
        gm_model_detokenize(x->server->model, ids.at, ids.n, GM_DETOKENIZE_SPECIAL, &text, &err) !=
            GM_OK) {
        gm_reply_failure(x, ask.path.text, &err);
    } else {
        gm_strbuf_put(&x->reply.body, GM_STR("{\"content\":"));
        gm_jsontext_string(&x->reply.body, (gm_str){text.p ? text.p : "", text.len});
        gm_strbuf_putc(&x->reply.body, '}');
        end_reply(x);
    }
    gm_ids_deinit(&ids);
    gm_text_deinit(&text);
}
