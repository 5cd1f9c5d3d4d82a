/* SPDX-License-Identifier: MIT */
/* The public functions that are not a module's own: thin calls into text and model. */

#include "backend/backend.h"
#include "model/model.h"
#include "text/chat.h"
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
