/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_HF_VOCAB_H
#define GM_FILE_HF_VOCAB_H

/* A vocabulary on its way into tokenizer.ggml.* keys, and the rules that
 * converters to GGUF apply to added tokens: the ones marked special, and those
 * that look it (<mask>, <pad>, <unusedN>, turns and images), are control tokens;
 * the others are user-defined and spell spaces as spaces.
 *
 *     gm_hf_vocab_init -> fill text, score, kind -> gm_hf_vocab_put */

#include "file/tensorfile.h"

/* The numbers are those of GGUF files and of SentencePiece's. */
enum {
    GM_HF_KIND_NORMAL = 1,
    GM_HF_KIND_UNKNOWN = 2,
    GM_HF_KIND_CONTROL = 3,
    GM_HF_KIND_USER = 4,
    GM_HF_KIND_UNUSED = 5,
    GM_HF_KIND_BYTE = 6,
};

/* The most pieces a vocabulary may have, and the most ids that may stand for nothing. */
#define GM_HF_VOCAB_MAX   (1u << 22)
#define GM_HF_VOCAB_HOLES 4096u

/* U+2581, which stands for a space in pieces. */
#define GM_HF_SPACE "\xE2\x96\x81"

/* Arrays of n in the tensorfile's arena. */
typedef struct gm_hf_vocab {
    gm_str *text;
    float *score;
    int32_t *kind; /* 0: a hole */
    uint32_t n;
} gm_hf_vocab;

/* Makes n holes; n is at most GM_HF_VOCAB_MAX + GM_HF_VOCAB_HOLES. */
gm_status gm_hf_vocab_init(gm_tensorfile *f, gm_hf_vocab *v, uint32_t n, gm_err *err);

/* The kind of an added token. */
int32_t gm_hf_vocab_kind(gm_str text, bool special);

/* Makes id (< v->n) an added token. The text is copied. */
gm_status gm_hf_vocab_add(gm_tensorfile *f, gm_hf_vocab *v, uint32_t id, gm_str text, bool special,
                          gm_err *err);

/* Names the holes "[PADn]" and hands the vocabulary to f->meta. */
gm_status gm_hf_vocab_put(gm_tensorfile *f, gm_hf_vocab *v, gm_err *err);

#endif
