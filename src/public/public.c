/* SPDX-License-Identifier: MIT */
/* The public functions that are not a module's own: thin calls into text and model. */

#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "model/model.h"
#include "text/chat.h"
#include "text/detok.h"
#include "text/tokenizer.h"

const char *gm_version(void)
{
    return GM_VERSION;
}

void gm_model_describe(const gm_model *m, gm_model_info *info)
{
    gm_model_info full = {
        .size = info->size,
        .n_layer = m->config.n_layer,
        .n_vocab = gm_vocab_len(m->vocab),
        .n_ctx = m->config.n_ctx,
        .vocab_hash = gm_vocab_hash(m->vocab),
        .name = m->name,
        .arch = "gemma3",
        .note = m->note,
    };
    for (uint32_t i = 0; i < m->file->n_tensors; i++)
        full.weight_size += m->file->tensors[i].size;
    memcpy(info, &full, info->size < sizeof full ? info->size : sizeof full);
}

gm_status gm_model_tokenize(const gm_model *m, const char *text, size_t len, uint32_t flags,
                            gm_ids *out, gm_err *err)
{
    return gm_tokenizer_encode(m->vocab, (gm_str){text, len}, flags, out, err);
}

gm_status gm_model_chat(const gm_model *m, const gm_message *messages, size_t n, gm_ids *out,
                        gm_err *err)
{
    return gm_chat_encode(m->vocab, messages, n, out, err);
}

void gm_text_deinit(gm_text *t)
{
    gm_mem_free(t->p);
    *t = (gm_text){0};
}

/* Text in pieces of a decoder that repairs what is not UTF-8. Control tokens are whole characters,
 * so they end whatever was held back. */
static void text_put(gm_detok *d, const gm_vocab *v, int32_t id, uint32_t flags, gm_strbuf *out)
{
    const gm_piece_kind kind = gm_vocab_kind(v, id);
    const bool special =
        kind == GM_PIECE_CONTROL || kind == GM_PIECE_UNKNOWN || kind == GM_PIECE_UNUSED;
    if (flags & GM_DETOKENIZE_BYTES) {
        gm_detok_bytes(v, id, flags & GM_DETOKENIZE_SPECIAL, out);
    } else if (special && flags & GM_DETOKENIZE_SPECIAL) {
        gm_detok_end(d, out);
        gm_detok_bytes(v, id, true, out);
    } else {
        gm_detok_put(d, v, id, out);
    }
}

gm_status gm_model_detokenize(const gm_model *m, const int32_t *ids, size_t n, uint32_t flags,
                              gm_text *out, gm_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!gm_vocab_has(m->vocab, ids[i])) {
            return gm_fail(err, GM_E_ARG, 0,
                           "tokens: token %zu is %" PRId32 ", expected 0 to %" PRIu32, i, ids[i],
                           gm_vocab_len(m->vocab) - 1);
        }
    }
    gm_strbuf b = {.p = out->p, .len = out->len, .cap = out->cap};
    gm_detok d = {0};
    for (size_t i = 0; i < n; i++)
        text_put(&d, m->vocab, ids[i], flags, &b);
    gm_detok_end(&d, &b);
    gm_strbuf_put(&b, GM_STR("")); /* so that there is a NUL */
    *out = (gm_text){b.p, b.len, b.cap};
    return gm_strbuf_status(&b, err);
}

int32_t gm_model_ends(const gm_model *m, int32_t id)
{
    return gm_vocab_is_end(m->vocab, id);
}

const char *gm_model_piece(const gm_model *m, int32_t id, size_t *len)
{
    const gm_str piece = gm_vocab_has(m->vocab, id) ? gm_vocab_piece(m->vocab, id) : GM_STR("");
    *len = piece.len;
    return piece.p;
}

const char *gm_backend_name(size_t i, const char **about)
{
    const gm_backend_ops *const ops = gm_backend_at(i);
    if (about) *about = ops ? ops->about : NULL;
    return ops ? ops->name : NULL;
}

gm_status gm_device_describe(const char *backend, uint32_t index, gm_device_info *info, gm_err *err)
{
    const gm_backend_ops *const ops = gm_backend_find(backend);
    gm_device_info full = {.size = info->size, .index = index};
    if (!ops) return gm_fail(err, GM_E_ARG, 0, "backend: there is no %.40s", backend);
    GM_TRY(ops->device_at(index, &full, err));
    memcpy(info, &full, info->size < sizeof full ? info->size : sizeof full);
    return GM_OK;
}
