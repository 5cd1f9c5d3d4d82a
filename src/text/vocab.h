/* SPDX-License-Identifier: MIT */
#ifndef GM_TEXT_VOCAB_H
#define GM_TEXT_VOCAB_H

/* The vocabulary: pieces, their kinds and scores, and the control tokens.
 *
 * Built once from the tokenizer.ggml.* metadata; never changes after, so any
 * thread may read it. Kinds come from the file, except that Gemma's own control
 * tokens (<pad> <eos> <bos> <unk> <mask> <start_of_turn> <end_of_turn>
 * <start_of_image> <end_of_image> and <unusedN>, wherever the file spells them)
 * are control tokens and "<0x00>" to "<0xFF>" are byte pieces whatever the file
 * says: some published files have them wrong, and tokenizer.model and GGUF
 * differ. */

#include <stdbool.h>

#include "base/status.h"
#include "base/str.h"
#include "file/meta.h"

typedef struct gm_vocab gm_vocab;

/* The numbers are those of GGUF files. */
typedef enum gm_piece_kind {
    GM_PIECE_NORMAL = 1,
    GM_PIECE_UNKNOWN = 2,
    GM_PIECE_CONTROL = 3,
    GM_PIECE_USER = 4, /* user-defined: always matched whole in text */
    GM_PIECE_UNUSED = 5,
    GM_PIECE_BYTE = 6,
} gm_piece_kind;

#define GM_NO_TOKEN (-1)

#define GM_SPACE_STR "\xE2\x96\x81" /* U+2581, what pieces have for a space */

/* Builds the vocabulary. n_rows is the number of embedding rows: where the file lists fewer
 * pieces, the rest are "[PADn]" pieces of kind unused (published 262144-piece lists over 262208
 * rows); more pieces than rows are refused. The metadata must outlive the vocabulary. */
gm_status gm_vocab_open(gm_vocab **out, const gm_meta *meta, uint64_t n_rows, gm_err *err);
void gm_vocab_close(gm_vocab *v);

uint32_t gm_vocab_len(const gm_vocab *v);
bool gm_vocab_has(const gm_vocab *v, int32_t id);

/* The piece as the file spells it (U+2581 for a space in normal pieces); id must be valid. */
gm_str gm_vocab_piece(const gm_vocab *v, int32_t id);
gm_piece_kind gm_vocab_kind(const gm_vocab *v, int32_t id);
float gm_vocab_score(const gm_vocab *v, int32_t id);

/* The byte that a piece of kind GM_PIECE_BYTE stands for. */
uint8_t gm_vocab_byte_value(const gm_vocab *v, int32_t id);

/* The id of a byte's own piece ("<0x0A>"), and of a piece by its text as the file spells it;
 * GM_NO_TOKEN for none. Of equal pieces the first counts. */
int32_t gm_vocab_byte(const gm_vocab *v, uint8_t byte);
int32_t gm_vocab_find(const gm_vocab *v, gm_str piece);

/* For the tokenizer. The id of a piece that merging may make: not a control, unknown or byte piece,
 * however the text is spelled. */
int32_t gm_vocab_find_merged(const gm_vocab *v, gm_str piece);

/* For the tokenizer. The longest special piece that text begins with, and its length; GM_NO_TOKEN
 * for none. Control and unknown pieces are matched in text as it came, user-defined ones in text
 * that has U+2581 for spaces, whichever of the two the file has. */
int32_t gm_vocab_match_control(const gm_vocab *v, gm_str text, size_t *len);
int32_t gm_vocab_match_user(const gm_vocab *v, gm_str text, size_t *len);

/* Control tokens, GM_NO_TOKEN where the vocabulary has none. */
typedef struct gm_vocab_ids {
    int32_t bos, eos, unk, pad, start_of_turn, end_of_turn;
} gm_vocab_ids;
const gm_vocab_ids *gm_vocab_special(const gm_vocab *v);

/* True for the tokens that end an answer: the file's eos, <eos> and <end_of_turn>. */
bool gm_vocab_is_end(const gm_vocab *v, int32_t id);

/* False where the file says that raw text begins without <bos>, or has none. */
bool gm_vocab_adds_bos(const gm_vocab *v);

/* True where the file says that a space is put before every text; Gemma's do not. */
bool gm_vocab_adds_space(const gm_vocab *v);

/* A hash of every piece and kind: equal vocabularies have equal hashes, with or without padding
 * and with either spelling of spaces in user-defined pieces. */
uint64_t gm_vocab_hash(const gm_vocab *v);

#endif
