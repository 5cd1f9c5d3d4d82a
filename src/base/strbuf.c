/* SPDX-License-Identifier: MIT */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

/* Room for n more bytes and the NUL. */
static int room(gm_strbuf *b, size_t n)
{
    if (b->failed != GM_OK) return 0;
    b->failed = n < SIZE_MAX - b->len - 1
                    ? gm_mem_grow(&b->p, &b->cap, b->len + n + 1, 1, "text", NULL)
                    : GM_E_NOMEM;
    return b->failed == GM_OK;
}

void gm_strbuf_put(gm_strbuf *b, gm_str s)
{
    if (!room(b, s.len)) return;
    if (s.len) memcpy(b->p + b->len, s.p, s.len);
    b->len += s.len;
    b->p[b->len] = '\0';
}

void gm_strbuf_putc(gm_strbuf *b, char c)
{
    gm_strbuf_put(b, (gm_str){&c, 1});
}

void gm_strbuf_printf(gm_strbuf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && room(b, (size_t)n)) {
        vsnprintf(b->p + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

gm_str gm_strbuf_str(const gm_strbuf *b)
{
    return (gm_str){b->p ? b->p : "", b->len};
}

void gm_strbuf_clear(gm_strbuf *b)
{
    b->len = 0;
    b->failed = GM_OK;
    if (b->p) b->p[0] = '\0';
}

gm_status gm_strbuf_status(const gm_strbuf *b, gm_err *err)
{
    if (b->failed == GM_OK) return GM_OK;
    return gm_fail(err, b->failed, 0, "memory: %zu bytes of text could not grow", b->len);
}

void gm_strbuf_deinit(gm_strbuf *b)
{
    gm_mem_free(b->p);
    *b = (gm_strbuf){0};
}
