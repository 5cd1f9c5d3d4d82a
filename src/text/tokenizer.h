/* SPDX-License-Identifier: MIT */
#ifndef GM_TEXT_TOKENIZER_H
#define GM_TEXT_TOKENIZER_H

/* Text to token ids, as SentencePiece does it for Gemma 3 (byte-pair encoding by
 * score, user-defined pieces matched whole, bytes for what is not in the
 * vocabulary). Time grows as n log n with the text. Any thread. */

#include "text/vocab.h"

/* Appends the ids of text to *out. With GM_TOKENIZE_BOS the ids begin with <bos>; with
 * GM_TOKENIZE_SPECIAL control tokens are recognised in the text, else they are plain text.
 * Bytes that are not UTF-8 become U+FFFD, one for each byte that SentencePiece replaces. On failure
 * (no memory; a character with no piece and no byte pieces) *out is as it was. */
gm_status gm_tokenizer_encode(const gm_vocab *v, gm_str text, uint32_t flags, gm_ids *out,
                              gm_err *err);

/* Appends one id. */
gm_status gm_ids_push(gm_ids *ids, int32_t id, gm_err *err);

#endif
