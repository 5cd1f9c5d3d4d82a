/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_META_H
#define GM_FILE_META_H

/* The metadata of a model file: keys with typed values, in GGUF's words.
 *
 * GGUF files carry it; Hugging Face folders are translated into it (hf_config.c,
 * hf_tokenizer.c), so that everything behind this header knows one dialect.
 * Values are views into the file's map or its arena and live as long as the
 * gm_tensorfile. */

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

/* The longest context that a file may speak of: well past any model's, and small enough to be
 * multiplied. */
#define GM_META_MAX_CTX (1u << 24)

/* The numbers are those of GGUF files. */
typedef enum gm_metatype {
    GM_META_U8 = 0,
    GM_META_I8 = 1,
    GM_META_U16 = 2,
    GM_META_I16 = 3,
    GM_META_U32 = 4,
    GM_META_I32 = 5,
    GM_META_F32 = 6,
    GM_META_BOOL = 7,
    GM_META_STR = 8,
    GM_META_ARRAY = 9,
    GM_META_U64 = 10,
    GM_META_I64 = 11,
    GM_META_F64 = 12,
} gm_metatype;

typedef struct gm_metaval {
    gm_str key;
    uint32_t type; /* gm_metatype                                                             */
    uint32_t elem; /* the elements' type where type is GM_META_ARRAY; never ARRAY itself      */
    uint64_t n;    /* elements of an array, 1 for anything else                               */
    union {
        uint64_t u;         /* U8 U16 U32 U64 BOOL                                            */
        int64_t i;          /* I8 I16 I32 I64                                                 */
        double f;           /* F32 F64                                                        */
        gm_str s;           /* STR                                                            */
        const gm_str *strs; /* ARRAY of STR                                                   */
        const uint8_t *raw; /* ARRAY of numbers: little-endian elements, any alignment        */
    };
} gm_metaval;

typedef struct gm_meta {
    gm_metaval *at;
    size_t n, cap;    /* the array is gm_mem memory, grown by gm_meta_add */
    const char *file; /* for error sentences */
} gm_meta;

/* Appends a value; its key and bytes must outlive the meta. */
gm_status gm_meta_add(gm_meta *m, const gm_metaval *v, gm_err *err);
void gm_meta_deinit(gm_meta *m);

/* The value of a key, NULL when the key is absent. */
const gm_metaval *gm_meta_find(const gm_meta *m, const char *key);

/* Reads one value into *out. An absent key leaves *out as it was (the default) and answers GM_OK;
 * a value of another kind, or one that does not fit, is refused with a sentence. Integers of any
 * width are taken for u32, integers and finite floats for f32. *found, which may be NULL, says
 * whether the key is there. */
gm_status gm_meta_u32(const gm_meta *m, const char *key, uint32_t *out, bool *found, gm_err *err);
gm_status gm_meta_f32(const gm_meta *m, const char *key, float *out, bool *found, gm_err *err);
gm_status gm_meta_bool(const gm_meta *m, const char *key, bool *out, bool *found, gm_err *err);
gm_status gm_meta_str(const gm_meta *m, const char *key, gm_str *out, bool *found, gm_err *err);

/* Makes v one number or bool of a fixed-size type from its little-endian bytes (any alignment);
 * the key stays as it is. */
void gm_metaval_set(gm_metaval *v, uint32_t type, const uint8_t *raw);

/* The i-th element of an array of numbers or bools, as a number. i < v->n. */
double gm_meta_elem(const gm_metaval *v, uint64_t i);

/* Bytes of one element of a fixed-size type; 0 for strings, arrays and unknown numbers. */
size_t gm_metatype_size(uint32_t type);
const char *gm_metatype_name(uint32_t type);

#endif
