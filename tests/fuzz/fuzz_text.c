/* SPDX-License-Identifier: MIT */
/* A prompt through the tokenizer and back. The first byte chooses vocabulary and flags. */
#include "fuzz/fuzz_vocab.h"

/* What comes back: each byte that is no character as U+FFFD, U+2581 as the space it stands for. */
static void respell(gm_str s, gm_strbuf *out)
{
    for (size_t i = 0, len = 0; i < s.len; i += len) {
        uint32_t cp = GM_UTF8_REPLACEMENT;
        len = gm_utf8_read(s.p + i, s.len - i, &cp);
        if (len == 0)
            gm_strbuf_put(out, GM_STR(GM_UTF8_REPLACEMENT_STR));
        else
            gm_strbuf_put(out, cp == 0x2581 ? GM_STR(" ") : (gm_str){s.p + i, len});
        len = len ? len : 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const uint32_t which = data[0] % FUZZ_VOCABS, flags = data[0] >> 3 & 3;
    const gm_vocab *const v = fuzz_vocab(which);
    const gm_str text = {(const char *)data + 1, size - 1};
    gm_err err = {0};
    gm_ids ids = {0};
    gm_strbuf back = {0}, expected = {0};
    if (fuzz_ok(gm_tokenizer_encode(v, text, flags, &ids, &err), &err)) {
        fuzz_ids_check(v, &ids);
        fuzz_decode(v, &ids, &back);
        const size_t first = flags & GM_TOKENIZE_BOS ? 1 : 0;
        FUZZ_CHECK(!first || (ids.n && ids.at[0] == gm_vocab_special(v)->bos));
        for (size_t i = first; i < ids.n && !(flags & GM_TOKENIZE_SPECIAL); i++) {
            FUZZ_CHECK(gm_vocab_kind(v, ids.at[i]) != GM_PIECE_CONTROL ||
                       (which & FUZZ_VOCAB_NO_BYTES && ids.at[i] == gm_vocab_special(v)->unk));
        }
        if (which == 0 && !(flags & GM_TOKENIZE_SPECIAL)) {
            respell(text, &expected);
            FUZZ_CHECK(gm_str_eq(gm_strbuf_str(&back), gm_strbuf_str(&expected)));
        }
    } else {
        FUZZ_CHECK(which & FUZZ_VOCAB_NO_BYTES && ids.n == 0);
    }
    gm_strbuf_deinit(&expected);
    gm_strbuf_deinit(&back);
    gm_ids_deinit(&ids);
    return 0;
}
