/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_UTF8_H
#define GM_BASE_UTF8_H

/* UTF-8, strictly: no surrogates, no overlong forms, nothing past U+10FFFF. */

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* What stands where bytes are not UTF-8. */
#define GM_UTF8_REPLACEMENT     0xFFFDu
#define GM_UTF8_REPLACEMENT_STR "\xEF\xBF\xBD"

/* Reads one code point from the n bytes at p. Returns its length in bytes (1 to 4) and stores the
 * code point, or returns 0 when no valid character begins there. */
size_t gm_utf8_read(const char *p, size_t n, uint32_t *cp);

/* Bytes that a character beginning with `lead` has; 0 when no character can begin so. */
size_t gm_utf8_len(uint8_t lead);

/* The length of the longest beginning of p[0..n) that ends on a character's border: what follows
 * is the start of a character whose rest is still to come (at most 3 bytes). Bytes that can never
 * become a character count as whole. */
size_t gm_utf8_whole(const char *p, size_t n);

/* A text that comes byte by byte: here is the beginning of a character whose rest is still to come.
 * All-zero is a fresh one. */
typedef struct gm_utf8_part {
    char held[4];
    uint8_t n_held;
} gm_utf8_part;

/* One more byte. Answers how many characters it completed, where a byte that can no longer become one
 * is U+FFFD, and appends them to *out, which may be NULL. */
size_t gm_utf8_part_put(gm_utf8_part *p, char byte, gm_strbuf *out);
/* The text is over: what is held comes out as U+FFFD, a byte each, and p is fresh again. */
size_t gm_utf8_part_end(gm_utf8_part *p, gm_strbuf *out);

#endif
