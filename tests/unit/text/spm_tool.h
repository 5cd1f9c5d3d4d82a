/* SPDX-License-Identifier: MIT */
#ifndef GM_TESTS_SPM_TOOL_H
#define GM_TESTS_SPM_TOOL_H

/* SentencePiece's own programs as the judge: random lines, encoded by spm_encode and by us. */

#include <unistd.h>

#include "base/utf8.h"
#include "vocab_fixture.h"

typedef struct spm_dir {
    char path[64];
} spm_dir;

static inline bool spm_found(void)
{
    return system("command -v spm_train >/dev/null && command -v spm_encode >/dev/null") == 0;
}

static inline void spm_dir_open(spm_dir *d)
{
    snprintf(d->path, sizeof d->path, "/tmp/gm_spm_XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

static inline void spm_dir_close(const spm_dir *d)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", d->path);
    assert_int_equal(system(command), 0);
}

/* Runs a command in the folder; its standard error is shown only when it fails. */
static inline void spm_run(const spm_dir *d, const char *command)
{
    gm_strbuf b = {0};
    gm_strbuf_printf(&b, "cd '%s' && { %s ; } 2>log || { cat log >&2; false; }", d->path, command);
    assert_int_equal(gm_strbuf_status(&b, NULL), GM_OK);
    assert_int_equal(system(b.p), 0);
    gm_strbuf_deinit(&b);
}

static inline void spm_write(const spm_dir *d, const char *name, gm_str bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.p, 1, bytes.len, f), bytes.len);
    assert_int_equal(fclose(f), 0);
}

static inline void spm_read(const spm_dir *d, const char *name, gm_strbuf *out)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    assert_true(file_read(path, out));
}

static inline void put_code_point(gm_strbuf *out, uint32_t cp)
{
    if (cp < 0x80) {
        gm_strbuf_putc(out, (char)cp);
        return;
    }
    const int n = cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
    static const uint8_t LEAD[] = {0, 0xC0, 0xE0, 0xF0};
    gm_strbuf_putc(out, (char)(LEAD[n] | cp >> (6 * n)));
    for (int i = n - 1; i >= 0; i--)
        gm_strbuf_putc(out, (char)(0x80 | (cp >> (6 * i) & 0x3F)));
}

static inline void put_word(gm_strbuf *out, uint64_t *seed)
{
    static const char *const PARTS[] = {"ka",           "to",           "me", "the", "ing",
                                        "er",           "an",           "s",  "Un",  "\xC3\xA9",
                                        "\xE6\x97\xA5", "\xE6\x9C\xAC", "1",  "23"};
    for (uint32_t n = 1 + draw(seed, 4); n; n--) {
        const char *const part = PARTS[draw(seed, sizeof PARTS / sizeof PARTS[0])];
        gm_strbuf_put(out, gm_str_c(part));
    }
}

/* A piece of a line: words, characters of every length, runs, special pieces whole and cut, and,
 * where wanted, bytes that are not UTF-8. */
static inline void put_atom(gm_strbuf *out, uint64_t *seed, const char *const *symbols, bool bad)
{
    static const uint32_t RANGES[][2] = {{0x20, 0x7E},     {0xA1, 0x24F},      {0x391, 0x3C9},
                                         {0x5D0, 0x5EA},   {0x2018, 0x2044},   {0x2580, 0x2583},
                                         {0x4E00, 0x4FFF}, {0x1F600, 0x1F64F}, {0xE000, 0xE010}};
    uint32_t n_symbols = 0;
    while (symbols[n_symbols])
        n_symbols++;
    switch (draw(seed, bad ? 8 : 7)) {
    case 0:
    case 1: put_word(out, seed); break;
    case 2:
    case 3: {
        const uint32_t *const r = RANGES[draw(seed, sizeof RANGES / sizeof RANGES[0])];
        put_code_point(out, r[0] + draw(seed, r[1] - r[0] + 1));
        break;
    }
    case 4: gm_strbuf_putc(out, ' '); break;
    case 5:
        for (uint32_t n = draw(seed, 8), tab = draw(seed, 3); n; n--)
            gm_strbuf_putc(out, tab ? ' ' : '\t');
        break;
    case 6: {
        const char *const symbol = symbols[draw(seed, n_symbols)];
        gm_str s = gm_str_c(symbol);
        if (draw(seed, 4) == 0 && (uint8_t)s.p[0] < 0x80) s.len = draw(seed, (uint32_t)s.len);
        gm_strbuf_put(out, s);
        break;
    }
    default: {
        const char byte = (char)(0x80 + draw(seed, 0x80));
        gm_strbuf_put(out, (gm_str){&byte, 1});
        break;
    }
    }
}

/* n lines, every eighth with bytes that are not UTF-8. */
static inline void spm_lines(gm_strbuf *out, size_t n, uint64_t seed, const char *const *symbols)
{
    for (size_t i = 0; i < n; i++) {
        for (uint32_t atoms = draw(&seed, 24); atoms; atoms--)
            put_atom(out, &seed, symbols, i % 8 == 0);
        gm_strbuf_putc(out, '\n');
    }
}

/* Encodes lines with spm_encode and with v, and fails at the first difference. With round_trip, the
 * ids of valid lines without U+2581 must also give the line back. */
static inline void spm_compare(const spm_dir *d, const char *options, const gm_vocab *v,
                               uint32_t flags, gm_str lines, bool round_trip)
{
    gm_strbuf command = {0}, ids = {0}, back = {0};
    gm_strbuf_printf(&command, "spm_encode %s --output_format=id <lines >ids", options);
    spm_write(d, "lines", lines);
    spm_run(d, command.p);
    gm_strbuf_deinit(&command);
    spm_read(d, "ids", &ids);
    gm_str rest = gm_strbuf_str(&ids), line = {0}, ids_line = {0};
    gm_ids expected = {0};
    size_t n_lines = 0, n_ids = 0;
    while (line_next(&lines, &line)) {
        assert_true(line_next(&rest, &ids_line));
        numbers_read(ids_line, &expected);
        n_lines++;
        n_ids += expected.n;
        ids_check(v, line, flags, expected.at, expected.n);
        bool plain = round_trip;
        uint32_t cp = 0;
        for (size_t i = 0, len = 1; i < line.len && plain; i += len) {
            len = gm_utf8_read(line.p + i, line.len - i, &cp);
            plain = len > 0 && cp != 0x2581;
        }
        if (!plain) continue;
        ids_text(v, expected.at, expected.n, &back);
        assert_true(gm_str_eq(gm_strbuf_str(&back), line));
    }
    assert_int_equal(rest.len, 0);
    assert_true(n_ids > 10 * n_lines);
    gm_ids_deinit(&expected);
    gm_strbuf_deinit(&ids);
    gm_strbuf_deinit(&back);
}

#endif
