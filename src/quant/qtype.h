/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_QTYPE_H
#define GM_QUANT_QTYPE_H

/* The number formats of model files, in one table.
 *
 * A tensor's row is a run of blocks; a block holds `block_len` values in
 * `block_size` bytes. Every quantised format is one and the same thing seen
 * from above: small integers q, an integer scale sc and an integer minimum m
 * for each group of 16, and two floats for the block,
 *
 *     value = (d * sc) * q - dmin * m
 *
 * so a format is described by two functions, which take a block apart into
 * gm_qints and put it together. The exact values and the integer block sums that
 * fast kernels must reproduce both follow from it (quant/dot.h). Adding a format
 * is two functions and one row of the table. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* The numbers are those of GGUF files. */
typedef enum gm_qtype {
    GM_QTYPE_F32 = 0,
    GM_QTYPE_F16 = 1,
    GM_QTYPE_Q4_0 = 2,
    GM_QTYPE_Q4_1 = 3,
    GM_QTYPE_Q5_0 = 6,
    GM_QTYPE_Q5_1 = 7,
    GM_QTYPE_Q8_0 = 8,
    GM_QTYPE_Q2_K = 10,
    GM_QTYPE_Q3_K = 11,
    GM_QTYPE_Q4_K = 12,
    GM_QTYPE_Q5_K = 13,
    GM_QTYPE_Q6_K = 14,
    GM_QTYPE_IQ4_NL = 20,
    GM_QTYPE_IQ4_XS = 23,
    GM_QTYPE_BF16 = 30,
} gm_qtype;

#define GM_QBLOCK_MAX 256 /* values in the largest block          */
#define GM_QGROUP     16  /* values that share one sc and one m   */

/* One block taken apart. Only the first block_len values and block_len / 16 groups are set. */
typedef struct gm_qints {
    float d, dmin;
    int16_t sc[GM_QBLOCK_MAX / GM_QGROUP];
    int16_t m[GM_QBLOCK_MAX / GM_QGROUP];
    int8_t q[GM_QBLOCK_MAX];
} gm_qints;

typedef struct gm_qtype_info {
    gm_qtype id;
    const char *name; /* as users write it: "q4_0", "iq4_xs" */
    uint32_t block_len;
    uint32_t block_size;
    /* Takes one block (any alignment) apart; NULL for the plain floats, whose block is one value. */
    void (*unpack)(const uint8_t *block, gm_qints *out);
    /* Puts one together again; d and dmin are values of an f16. NULL like unpack. */
    void (*pack)(const gm_qints *in, uint8_t *block);
} gm_qtype_info;

/* The row of a type number from a file, NULL when no such type is supported. */
const gm_qtype_info *gm_qtype_find(uint32_t id);

/* The row of a name in any case ("Q4_K"), NULL when there is none. */
const gm_qtype_info *gm_qtype_find_name(gm_str name);

/* The i-th row, NULL past the last: for printing the list and walking it in tests. */
const gm_qtype_info *gm_qtype_at(size_t i);

/* The name of any type number GGUF has ever had, supported or not, for error sentences. */
const char *gm_qtype_name(uint32_t id);

/* What stands for the type in rows of cols values: itself, or where cols is no multiple of its 256
 * values the type of 32 that converters fall back on, whether that fits or not. */
const gm_qtype_info *gm_qtype_fit(const gm_qtype_info *t, uint64_t cols);

/* Bytes of a row of cols values; false when cols is no multiple of the block or does not fit. */
bool gm_qtype_row_size(const gm_qtype_info *t, uint64_t cols, uint64_t *size);

/* Expands n values of one row, starting at its beginning, to float32; n is a multiple of the
 * block. Exact for the plain floats, and the format's own value for the others. */
void gm_qtype_expand(const gm_qtype_info *t, const uint8_t *row, size_t n, float *out);

#endif
