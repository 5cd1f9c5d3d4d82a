/* SPDX-License-Identifier: MIT */
#include "base/status.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Makes a sentence safe to show: control bytes and broken UTF-8 become '?'. */
static void make_printable(char *msg)
{
    const size_t n = strlen(msg);
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        const size_t len = gm_utf8_read(msg + i, n - i, &cp);
        const int bad = len == 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0);
        if (bad) memset(msg + i, '?', len ? len : 1);
        i += len ? len : 1;
    }
}

/* Sentences begin with a path, whose end matters, and end with what is wrong: one that is too long
 * loses its beginning, in whole characters. */
static void put_end(char *msg, size_t size, const char *full)
{
    static const char cut[] = "...";
    const char *from = full + strlen(full) - (size - sizeof cut);
    while ((*from & 0xC0) == 0x80)
        from++;
    snprintf(msg, size, "%s%s", cut, from);
}

gm_status gm_fail(gm_err *err, gm_status code, int os, const char *fmt, ...)
{
    if (!err) return code;
    err->code = code;
    err->os = os;
    char full[PATH_MAX + sizeof err->msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(full, sizeof full, fmt, args);
    va_end(args);
    if (strlen(full) < sizeof err->msg)
        memcpy(err->msg, full, strlen(full) + 1);
    else
        put_end(err->msg, sizeof err->msg, full);
    make_printable(err->msg);
    return code;
}
