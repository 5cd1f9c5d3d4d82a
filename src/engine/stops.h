/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_STOPS_H
#define GM_ENGINE_STOPS_H

/* Stop strings, found across token borders.
 *
 * Text passes through: what might be the beginning of a stop string is held
 * back until it is decided. The stop string that begins first ends the answer,
 * and nothing of it comes out; so how the text is cut into tokens does not show.
 * All-zero has no stop strings. */

#include "base/arena.h"
#include "base/strbuf.h"

typedef struct gm_stops {
    const gm_str *strings;
    uint32_t n;
    size_t longest;
    gm_strbuf held;
} gm_stops;

/* Copies the strings into the arena; empty ones are refused. Room for a whole answer step is made
 * now, so that gm_stops_put of up to `chunk` bytes never allocates. */
gm_status gm_stops_init(gm_stops *s, const char *const *strings, uint32_t n, size_t chunk,
                        gm_arena *arena, gm_err *err);
void gm_stops_deinit(gm_stops *s);

/* Takes text and appends to *out what can go on; answers true when a stop string is complete. */
bool gm_stops_put(gm_stops *s, gm_str text, gm_strbuf *out);

/* The answer is over: what was held back comes out, up to a stop string if one is in it, which is
 * what the answer says. */
bool gm_stops_end(gm_stops *s, gm_strbuf *out);

#endif
