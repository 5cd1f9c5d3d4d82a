/* SPDX-License-Identifier: MIT */
#include "server/jsontext.h"

#include <stdio.h>

#include "base/utf8.h"

static void put_escape(gm_strbuf *out, char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *const at = memchr(from, c, sizeof from - 1);
    if (at)
        gm_strbuf_put(out, (gm_str){(const char[]){'\\', to[at - from]}, 2});
    else
        gm_strbuf_printf(out, "\\u%04X", (unsigned)(unsigned char)c);
}

/* Runs of what needs nothing done are put at once. */
void gm_jsontext_put(gm_strbuf *out, gm_str text)
{
    size_t run = 0;
    if (text.len == 0) return;
    for (size_t i = 0; i < text.len;) {
        uint32_t cp = 0;
        const size_t len = gm_utf8_read(text.p + i, text.len - i, &cp);
        const bool plain = len && cp >= 0x20 && cp != '"' && cp != '\\';
        if (!plain) {
            gm_strbuf_put(out, (gm_str){text.p + run, i - run});
            if (len)
                put_escape(out, text.p[i]);
            else
                gm_strbuf_put(out, GM_STR(GM_UTF8_REPLACEMENT_STR));
        }
        i += len ? len : 1;
        if (!plain) run = i;
    }
    gm_strbuf_put(out, (gm_str){text.p + run, text.len - run});
}

void gm_jsontext_string(gm_strbuf *out, gm_str text)
{
    gm_strbuf_putc(out, '"');
    gm_jsontext_put(out, text);
    gm_strbuf_putc(out, '"');
}

void gm_jsontext_name(gm_strbuf *out, const char *text)
{
    if (text)
        gm_jsontext_string(out, gm_str_c(text));
    else
        gm_strbuf_put(out, GM_STR("null"));
}

void gm_jsontext_real(gm_strbuf *out, double value)
{
    char text[40];
    const int len = snprintf(text, sizeof text, "%.9g", value);
    gm_strbuf_put(out, (gm_str){text, (size_t)len});
    if (!strpbrk(text, ".e")) gm_strbuf_put(out, GM_STR(".0"));
}
