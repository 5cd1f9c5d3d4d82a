/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_STRBUF_H
#define GM_BASE_STRBUF_H

/* A growing run of bytes. All-zero is a valid empty one. Appending can fail
 * only for lack of memory; the failure latches, later appends do nothing, and
 * the owner asks once at the end: gm_strbuf_status. The bytes are always
 * followed by a NUL, so p (where not NULL) is also a C string. */

#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

typedef struct gm_strbuf {
    char *p;
    size_t len, cap;
    gm_status failed; /* GM_OK, or why an append did not happen */
} gm_strbuf;

void gm_strbuf_put(gm_strbuf *b, gm_str s);
void gm_strbuf_putc(gm_strbuf *b, char c);
void gm_strbuf_printf(gm_strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What was appended so far; valid until the next append. */
gm_str gm_strbuf_str(const gm_strbuf *b);

/* Forgets the bytes and any failure, keeps the memory. */
void gm_strbuf_clear(gm_strbuf *b);

gm_status gm_strbuf_status(const gm_strbuf *b, gm_err *err);
void gm_strbuf_deinit(gm_strbuf *b);

#endif
