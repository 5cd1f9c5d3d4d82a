/* SPDX-License-Identifier: MIT */
/* A conversation. 0xFF, which no UTF-8 has, stands between messages. The first byte says whether
 * the roles are as they should be or come from the first byte of each message. */
#include "fuzz/fuzz_vocab.h"
#include "text/chat.h"

#define MESSAGES 16

static size_t messages_cut(const uint8_t *data, size_t size, bool proper, gm_message *out)
{
    static const char *const ROLES[] = {"user",      "assistant", "system", "model",
                                        "developer", "nobody",    NULL};
    size_t n = 0;
    for (size_t at = 0; n < MESSAGES && at < size; n++) {
        const uint8_t *const end = memchr(data + at, 0xFF, size - at);
        const size_t len = end ? (size_t)(end - data) - at : size - at;
        const size_t skip = !proper && len ? 1 : 0;
        const char *const role = proper ? ROLES[n % 2] : ROLES[len ? data[at] % 7 : 0];
        out[n] = (gm_message){role, (const char *)data + at + skip, len - skip};
        at += len + 1;
    }
    return proper && n % 2 == 0 && n ? n - 1 : n;
}

static size_t count(const gm_ids *ids, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++)
        n += ids->at[i] == id;
    return n;
}

/* Control tokens are those of the format, whatever the messages say. */
static void format_check(const gm_vocab *v, const gm_ids *ids, size_t n_turns)
{
    const gm_vocab_ids *const special = gm_vocab_special(v);
    size_t n_control = 0;
    for (size_t i = 0; i < ids->n; i++)
        n_control += gm_vocab_kind(v, ids->at[i]) == GM_PIECE_CONTROL;
    FUZZ_CHECK(ids->n && ids->at[0] == special->bos && count(ids, special->bos) == 1);
    FUZZ_CHECK(count(ids, special->start_of_turn) == n_turns + 1);
    FUZZ_CHECK(count(ids, special->end_of_turn) == n_turns);
    FUZZ_CHECK(n_control == 2 * n_turns + 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const bool proper = data[0] & 1;
    const uint32_t which = data[0] >> 1 & 1 ? FUZZ_VOCAB_NO_BYTES | FUZZ_VOCAB_NO_UNK : 0;
    const gm_vocab *const v = fuzz_vocab(which);
    gm_message messages[MESSAGES];
    const size_t n = messages_cut(data + 1, size - 1, proper, messages);
    gm_err err = {0};
    gm_ids ids = {0};
    gm_strbuf text = {0};
    if (fuzz_ok(gm_chat_encode(v, messages, n, &ids, &err), &err)) {
        const char *const role = messages[0].role;
        const bool system = strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
        fuzz_ids_check(v, &ids);
        format_check(v, &ids, n - (system ? 1 : 0));
        fuzz_decode(v, &ids, &text);
    } else {
        FUZZ_CHECK(ids.n == 0 && (!proper || n == 0 || which));
    }
    gm_strbuf_deinit(&text);
    gm_ids_deinit(&ids);
    return 0;
}
