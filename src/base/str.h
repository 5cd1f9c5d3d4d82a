/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_STR_H
#define GM_BASE_STR_H

/* A borrowed run of bytes: text from a file or a user, not NUL-terminated and
 * not necessarily UTF-8. Whoever hands one on says how long it stays valid. */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct gm_str {
    const char *p;
    size_t len;
} gm_str;

/* A gm_str of a string literal. */
#define GM_STR(literal) ((gm_str){(literal), sizeof(literal) - 1})

/* For printf's %.*s; long strings are cut, so that a hostile name cannot fill a sentence. */
#define GM_STR_ARG(s) (int)((s).len < 80 ? (s).len : 80), (s).p

/* A gm_str of a C string. */
static inline gm_str gm_str_c(const char *text)
{
    return (gm_str){text, strlen(text)};
}

static inline bool gm_str_eq(gm_str a, gm_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

static inline bool gm_str_starts(gm_str s, gm_str prefix)
{
    return s.len >= prefix.len && gm_str_eq((gm_str){s.p, prefix.len}, prefix);
}

static inline bool gm_str_ends(gm_str s, gm_str suffix)
{
    if (suffix.len == 0 || s.len < suffix.len) return suffix.len == 0;
    return memcmp(s.p + s.len - suffix.len, suffix.p, suffix.len) == 0;
}

#endif
