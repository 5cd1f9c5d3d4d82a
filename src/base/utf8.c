/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

#include <string.h>

size_t gm_utf8_len(uint8_t lead)
{
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

/* The second byte's legal range depends on the first: this is what excludes overlong forms
 * (E0, F0), surrogates (ED) and code points past U+10FFFF (F4). */
static int second_ok(uint8_t lead, uint8_t b)
{
    switch (lead) {
    case 0xE0: return b >= 0xA0 && b <= 0xBF;
    case 0xED: return b >= 0x80 && b <= 0x9F;
    case 0xF0: return b >= 0x90 && b <= 0xBF;
    case 0xF4: return b >= 0x80 && b <= 0x8F;
    default: return b >= 0x80 && b <= 0xBF;
    }
}

/* How many of the n bytes at p agree with one character that begins there (0: none can). */
static size_t agreeing(const char *p, size_t n, size_t len)
{
    const uint8_t *const u = (const uint8_t *)p;
    size_t i = 1;
    while (i < len && i < n && (i == 1 ? second_ok(u[0], u[1]) : (u[i] & 0xC0) == 0x80))
        i++;
    return i;
}

size_t gm_utf8_read(const char *p, size_t n, uint32_t *cp)
{
    if (n == 0) return 0;
    const uint8_t *const u = (const uint8_t *)p;
    const size_t len = gm_utf8_len(u[0]);
    if (len == 0 || len > n || agreeing(p, n, len) < len) return 0;
    static const uint8_t lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = u[0] & lead_mask[len];
    for (size_t i = 1; i < len; i++)
        c = (c << 6) | (u[i] & 0x3Fu);
    *cp = c;
    return len;
}

size_t gm_utf8_whole(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const size_t len = gm_utf8_len((uint8_t)p[n - back]);
        if (len > back && agreeing(p + n - back, back, len) == back) return n - back;
        if (((uint8_t)p[n - back] & 0xC0) != 0x80) break;
    }
    return n;
}

/* What is held is always the beginning of a character; with the byte it may be whole, still a
 * beginning, or neither: then its first byte is given up and the rest judged again. */
size_t gm_utf8_part_put(gm_utf8_part *p, char byte, gm_strbuf *out)
{
    size_t n = 0;
    p->held[p->n_held++] = byte;
    for (; p->n_held && gm_utf8_whole(p->held, p->n_held) > 0; n++) {
        uint32_t cp = 0;
        const size_t len = gm_utf8_read(p->held, p->n_held, &cp);
        const size_t gone = len ? len : 1;
        if (out) gm_strbuf_put(out, len ? (gm_str){p->held, len} : GM_STR(GM_UTF8_REPLACEMENT_STR));
        p->n_held = (uint8_t)(p->n_held - gone);
        memmove(p->held, p->held + gone, p->n_held);
    }
    return n;
}

size_t gm_utf8_part_end(gm_utf8_part *p, gm_strbuf *out)
{
    const size_t n = p->n_held;
    for (size_t i = 0; out && i < n; i++)
        gm_strbuf_put(out, GM_STR(GM_UTF8_REPLACEMENT_STR));
    *p = (gm_utf8_part){0};
    return n;
}
