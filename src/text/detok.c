/* SPDX-License-Identifier: MIT */
#include "text/detok.h"

#include "base/utf8.h"

/* One more byte of the text. What is held is always the beginning of a character; with the byte it
 * may be whole, still a beginning, or neither: then its first byte is given up and the rest judged
 * again. */
static void byte_put(gm_detok *d, char byte, gm_strbuf *out)
{
    d->held[d->n_held++] = byte;
    while (d->n_held && gm_utf8_whole(d->held, d->n_held) > 0) {
        uint32_t cp = 0;
        const size_t len = gm_utf8_read(d->held, d->n_held, &cp);
        const size_t gone = len ? len : 1;
        gm_strbuf_put(out, len ? (gm_str){d->held, len} : GM_STR(GM_UTF8_REPLACEMENT_STR));
        d->n_held = (uint8_t)(d->n_held - gone);
        memmove(d->held, d->held + gone, d->n_held);
    }
}

/* The next byte of a piece's text; blanks are spelled U+2581 there. */
static char byte_take(gm_str *piece)
{
    const gm_str space = GM_STR(GM_SPACE_STR);
    const bool is_space = gm_str_starts(*piece, space);
    const size_t len = is_space ? space.len : 1;
    const char byte = is_space ? ' ' : *piece->p;
    *piece = (gm_str){piece->p + len, piece->len - len};
    return byte;
}

void gm_detok_put(gm_detok *d, const gm_vocab *v, int32_t id, gm_strbuf *out)
{
    if (!gm_vocab_has(v, id)) return;
    gm_str piece = gm_vocab_piece(v, id);
    switch (gm_vocab_kind(v, id)) {
    case GM_PIECE_NORMAL:
    case GM_PIECE_USER:
        while (piece.len)
            byte_put(d, byte_take(&piece), out);
        break;
    case GM_PIECE_BYTE: byte_put(d, (char)gm_vocab_byte_value(v, id), out); break;
    case GM_PIECE_CONTROL:
    case GM_PIECE_UNKNOWN:
    case GM_PIECE_UNUSED: break;
    }
}

void gm_detok_bytes(const gm_vocab *v, int32_t id, bool special, gm_strbuf *out)
{
    if (!gm_vocab_has(v, id)) return;
    gm_str piece = gm_vocab_piece(v, id);
    switch (gm_vocab_kind(v, id)) {
    case GM_PIECE_NORMAL:
    case GM_PIECE_USER:
        while (piece.len)
            gm_strbuf_putc(out, byte_take(&piece));
        break;
    case GM_PIECE_BYTE: gm_strbuf_putc(out, (char)gm_vocab_byte_value(v, id)); break;
    case GM_PIECE_CONTROL:
    case GM_PIECE_UNKNOWN:
    case GM_PIECE_UNUSED:
        if (special) gm_strbuf_put(out, piece);
        break;
    }
}

void gm_detok_end(gm_detok *d, gm_strbuf *out)
{
    for (uint8_t i = 0; i < d->n_held; i++)
        gm_strbuf_put(out, GM_STR(GM_UTF8_REPLACEMENT_STR));
    *d = (gm_detok){0};
}
