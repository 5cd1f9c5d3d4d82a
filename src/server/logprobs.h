/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_LOGPROBS_H
#define GM_SERVER_LOGPROBS_H

/* The log-probabilities of an answer's tokens, as the text that a reply has of them: the elements of
 * one list, or of several side by side, each with a comma behind it.
 *
 * A stop string may take back the text of tokens that were drawn: what a token has comes out with its
 * text, or never. */

#include "base/utf8.h"

#define GM_LOGPROBS_LISTS 4

/* Where a token begins whose text is not out yet: in the bytes of the answer, and in each list. */
typedef struct gm_logprobs_mark {
    size_t at, len[GM_LOGPROBS_LISTS];
} gm_logprobs_mark;

/* All-zero is an empty one. */
typedef struct gm_logprobs {
    gm_strbuf list[GM_LOGPROBS_LISTS];
    gm_logprobs_mark *marks; /* [n_marks] */
    size_t n_marks, cap_marks;
    size_t offset;     /* characters of text before the next token       */
    gm_utf8_part part; /* and behind them the beginning of a character   */
} gm_logprobs;

/* What is appended from here on is of a token that begins at this byte, and waits for it. */
void gm_logprobs_hold(gm_logprobs *l, size_t at);
/* The text is out up to this byte. */
void gm_logprobs_let_out(gm_logprobs *l, size_t n_out);

/* The elements of a list that are out, without the last comma. Valid until something is appended. */
gm_str gm_logprobs_list(const gm_logprobs *l, size_t i);
/* Whether any are out. */
bool gm_logprobs_any(const gm_logprobs *l);
/* Forgets those that are out. */
void gm_logprobs_sent(gm_logprobs *l);

/* The bytes that it takes. */
size_t gm_logprobs_size(const gm_logprobs *l);
/* Whether memory ran out: then nothing in it counts. */
bool gm_logprobs_failed(const gm_logprobs *l);
void gm_logprobs_deinit(gm_logprobs *l);

#endif
