/* SPDX-License-Identifier: MIT */
/* Stop strings against their definition: the text up to the leftmost of them, however it is cut.
 *
 * The input is up to four stop strings, each ended by a zero byte, and the text; the first byte
 * says how many and how long the bites are. */
#include "engine/stops.h"
#include "fuzz/fuzz.h"

#define STOPS_MAX 4

static gm_str find(gm_str s, gm_str what)
{
    for (size_t i = 0; i + what.len <= s.len; i++) {
        if (memcmp(s.p + i, what.p, what.len) == 0) return (gm_str){s.p, i};
    }
    return s;
}

static void run(gm_stops *s, gm_str text, size_t bite, gm_strbuf *out)
{
    gm_str expected = text;
    for (uint32_t i = 0; i < s->n; i++) {
        const gm_str before = find(text, s->strings[i]);
        if (before.len < expected.len) expected = before;
    }
    bool stopped = false;
    for (size_t at = 0; at < text.len && !stopped; at += bite) {
        const size_t len = text.len - at < bite ? text.len - at : bite;
        stopped = gm_stops_put(s, (gm_str){text.p + at, len}, out);
        FUZZ_CHECK(out->len <= expected.len);
    }
    if (!stopped) stopped = gm_stops_end(s, out);
    FUZZ_CHECK(gm_str_eq(gm_strbuf_str(out), expected));
    FUZZ_CHECK(stopped == (expected.len < text.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    const uint32_t n = data[0] % (STOPS_MAX + 1);
    const size_t bite = 1 + (data[0] >> 3);
    const char *strings[STOPS_MAX];
    const uint8_t *p = data + 1, *const end = data + size;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *const zero = memchr(p, 0, (size_t)(end - p));
        if (!zero) return 0;
        strings[i] = (const char *)p;
        p = zero + 1;
    }
    gm_err err = {0};
    gm_arena arena = {0};
    gm_stops s = {0};
    gm_strbuf out = {0};
    if (fuzz_ok(gm_stops_init(&s, strings, n, bite, &arena, &err), &err))
        run(&s, (gm_str){(const char *)p, (size_t)(end - p)}, bite, &out);
    gm_strbuf_deinit(&out);
    gm_stops_deinit(&s);
    gm_arena_deinit(&arena);
    return 0;
}
