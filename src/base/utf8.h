/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_UTF8_H
#define GM_BASE_UTF8_H

/* UTF-8, strictly: no surrogates, no overlong forms, nothing past U+10FFFF. */

#include <stddef.h>
#include <stdint.h>

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

#endif
