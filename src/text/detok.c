/* SPDX-License-Identifier: MIT */
#include "text/detok.h"

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
            gm_utf8_part_put(&d->part, byte_take(&piece), out);
        break;
    case GM_PIECE_BYTE: gm_utf8_part_put(&d->part, (char)gm_vocab_byte_value(v, id), out); break;
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
    gm_utf8_part_end(&d->part, out);
}
