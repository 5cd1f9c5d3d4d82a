/* SPDX-License-Identifier: MIT */
#include "engine/stops.h"

gm_status gm_stops_init(gm_stops *s, const char *const *strings, uint32_t n, size_t chunk,
                        gm_arena *arena, gm_err *err)
{
    gm_str *copies = NULL;
    GM_TRY(gm_arena_alloc(arena, &copies, n, sizeof *copies, "stop strings", err));
    for (uint32_t i = 0; i < n; i++) {
        const gm_str given = gm_str_c(strings[i]);
        if (given.len == 0) return gm_fail(err, GM_E_ARG, 0, "stop: a stop string is empty");
        GM_TRY(gm_arena_copy(arena, given, &copies[i].p, err));
        copies[i].len = given.len;
        if (given.len > s->longest) s->longest = given.len;
    }
    s->strings = copies;
    s->n = n;
    if (n == 0) return GM_OK;
    for (size_t i = 0; i < s->longest + chunk; i++)
        gm_strbuf_putc(&s->held, ' ');
    GM_TRY(gm_strbuf_status(&s->held, err));
    gm_strbuf_clear(&s->held);
    return GM_OK;
}

void gm_stops_deinit(gm_stops *s)
{
    gm_strbuf_deinit(&s->held);
    *s = (gm_stops){0};
}

/* Whether a stop string begins at byte i of the held text, as far as that text goes; *complete
 * becomes true when one is there whole. */
static bool may_stop_at(const gm_stops *s, size_t i, bool *complete)
{
    const gm_str rest = {s->held.p + i, s->held.len - i};
    bool may = false;
    for (uint32_t k = 0; k < s->n; k++) {
        const gm_str stop = s->strings[k];
        const size_t common = rest.len < stop.len ? rest.len : stop.len;
        if (memcmp(rest.p, stop.p, common) != 0) continue;
        may = true;
        if (rest.len >= stop.len) *complete = true;
    }
    return may;
}

bool gm_stops_put(gm_stops *s, gm_str text, gm_strbuf *out)
{
    if (s->n == 0) {
        gm_strbuf_put(out, text);
        return false;
    }
    gm_strbuf_put(&s->held, text);
    bool complete = false;
    size_t i = 0;
    while (i < s->held.len && !may_stop_at(s, i, &complete))
        i++;
    gm_strbuf_put(out, (gm_str){s->held.p, i});
    if (complete) {
        gm_strbuf_clear(&s->held);
        return true;
    }
    s->held.len -= i;
    memmove(s->held.p, s->held.p + i, s->held.len);
    return false;
}

bool gm_stops_end(gm_stops *s, gm_strbuf *out)
{
    /* A stop string may be whole behind the beginning of another that never came. */
    bool complete = false;
    size_t i = 0;
    while (i < s->held.len && !complete) {
        may_stop_at(s, i, &complete);
        if (!complete) i++;
    }
    gm_strbuf_put(out, (gm_str){s->held.p, i});
    gm_strbuf_clear(&s->held);
    return complete;
}
