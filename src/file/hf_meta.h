/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_HF_META_H
#define GM_FILE_HF_META_H

/* How the readers of a Hugging Face folder say something in GGUF's words.
 *
 * Each function appends one key to f->meta, unless the key is there already:
 * config.json is read before the tokenizer's files and outranks them where both
 * name the same thing (the token that ends a text). Keys are string literals;
 * values must live as long as f. */

#include "file/tensorfile.h"

gm_status gm_hf_put_u32(gm_tensorfile *f, const char *key, uint32_t value, gm_err *err);
gm_status gm_hf_put_f32(gm_tensorfile *f, const char *key, double value, gm_err *err);
gm_status gm_hf_put_bool(gm_tensorfile *f, const char *key, bool value, gm_err *err);

/* The string is copied into f's arena. */
gm_status gm_hf_put_str(gm_tensorfile *f, const char *key, gm_str value, gm_err *err);

/* An array: elem is the elements' gm_metatype; at points to n gm_str for GM_META_STR, else to n
 * little-endian numbers. */
gm_status gm_hf_put_array(gm_tensorfile *f, const char *key, uint32_t elem, const void *at,
                          uint64_t n, gm_err *err);

#endif
