/* SPDX-License-Identifier: MIT */
#ifndef GM_TEXT_DETOK_H
#define GM_TEXT_DETOK_H

/* Token ids to text, one token at a time, whole characters only.
 *
 * A character may be spread over several byte tokens, so up to three bytes are
 * held back until the character is whole. Bytes that can no longer become one
 * come out as U+FFFD. All-zero is a fresh one. */

#include "base/utf8.h"
#include "text/vocab.h"

typedef struct gm_detok {
    gm_utf8_part part;
} gm_detok;

/* Appends to *out the text that this token completes. Control, unknown and unused tokens have no
 * text. Ids outside the vocabulary have none either. */
void gm_detok_put(gm_detok *d, const gm_vocab *v, int32_t id, gm_strbuf *out);

/* Appends the token's own bytes, whether they are whole characters or not; with `special`, control
 * tokens as they are spelled. */
void gm_detok_bytes(const gm_vocab *v, int32_t id, bool special, gm_strbuf *out);

/* The answer is over: what is still held back comes out as U+FFFD, and d is fresh again. */
void gm_detok_end(gm_detok *d, gm_strbuf *out);

#endif
