/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spm_tool.h"

/* Our ids against SentencePiece's, on small vocabularies that spm_train makes here. */

#define N_LINES 4000

static const char *const SYMBOLS[] = {
    "<turn>",
    "<b>",
    "</b>",
    "<bb>",
    "\xE2\x96\x81\xE2\x96\x81",
    "\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81",
    "\t",
    "\t\t",
    "[multi]",
    "\xF0\x9F\x98\x80\xF0\x9F\x98\x80",
    NULL,
};

static void train(const spm_dir *d, const char *options)
{
    gm_strbuf b = {0};
    uint64_t seed = 7;
    for (int line = 0; line < 1500; line++) {
        for (int word = 0; word < 8; word++) {
            put_word(&b, &seed);
            gm_strbuf_putc(&b, word == 7 ? '\n' : ' ');
        }
    }
    spm_write(d, "corpus", gm_strbuf_str(&b));
    gm_strbuf_clear(&b);
    gm_strbuf_put(&b, GM_STR("spm_train --input=corpus --model_prefix=m --model_type=bpe "
                             "--vocab_size=700 --hard_vocab_limit=false --pad_id=0 --eos_id=1 "
                             "--bos_id=2 --unk_id=3 --bos_piece='<bos>' --eos_piece='<eos>' "
                             "--normalization_rule_name=identity "
                             "--remove_extra_whitespaces=false --user_defined_symbols='"));
    for (size_t i = 0; SYMBOLS[i]; i++)
        gm_strbuf_printf(&b, "%s%s", i ? "," : "", SYMBOLS[i]);
    gm_strbuf_printf(&b, "' %s", options);
    spm_run(d, b.p);
    gm_strbuf_deinit(&b);
}

static int32_t piece_type(gm_str piece, int32_t id)
{
    for (size_t i = 0; SYMBOLS[i]; i++) {
        if (gm_str_eq(piece, gm_str_c(SYMBOLS[i]))) return GM_PIECE_USER;
    }
    if (id < 4) return id == 3 ? GM_PIECE_UNKNOWN : GM_PIECE_CONTROL;
    return piece.len == 6 && gm_str_starts(piece, GM_STR("<0x")) ? GM_PIECE_BYTE : GM_PIECE_NORMAL;
}

/* The trained vocabulary, from the list that spm_train leaves: piece, tab, score. */
static void vocab_read(const spm_dir *d, fixture *f)
{
    gm_strbuf list = {0};
    spm_read(d, "m.vocab", &list);
    gm_str rest = gm_strbuf_str(&list), line;
    while (line_next(&rest, &line)) {
        size_t len = line.len;
        while (len && line.p[len - 1] != '\t')
            len--;
        assert_true(len > 1);
        const gm_str piece = {line.p, len - 1};
        fixture_piece(f, piece, strtof(line.p + len, NULL), piece_type(piece, (int32_t)f->n));
    }
    assert_true(f->n > 300);
    gm_strbuf_deinit(&list);
}

static void compare(const spm_dir *d, fixture *f, const char *options, bool round_trip)
{
    gm_strbuf lines = {0};
    spm_lines(&lines, N_LINES, 11, SYMBOLS);
    gm_vocab *const v = fixture_vocab(f);
    spm_compare(d, options, v, 0, gm_strbuf_str(&lines), round_trip);
    gm_vocab_close(v);
    gm_strbuf_deinit(&lines);
}

static void check(const char *options, bool prefix, bool round_trip)
{
    spm_dir d;
    fixture f = {0};
    spm_dir_open(&d);
    train(&d, options);
    vocab_read(&d, &f);
    if (prefix) fixture_bool(&f, "tokenizer.ggml.add_space_prefix", true);
    compare(&d, &f, "--model=m.model", round_trip);
    fixture_close(&f);
    spm_dir_close(&d);
}

static void t_like_gemma(void **state)
{
    (void)state;
    check("--byte_fallback=true --add_dummy_prefix=false", false, true);
}

static void t_dummy_prefix(void **state)
{
    (void)state;
    check("--byte_fallback=true --add_dummy_prefix=true", true, false);
}

/* Characters outside the vocabulary are unknown, and a run of them is one token. */
static void t_no_bytes(void **state)
{
    (void)state;
    check("--byte_fallback=false --add_dummy_prefix=false", false, false);
}

/* Pieces with spaces inside. */
static void t_across_words(void **state)
{
    (void)state;
    check("--byte_fallback=true --add_dummy_prefix=false --split_by_whitespace=false", false, true);
}

/* With a list of allowed pieces spm_encode marks the others unused: they may be made by merging and
 * are taken apart again. */
static void t_unused(void **state)
{
    (void)state;
    spm_dir d;
    fixture f = {0};
    gm_strbuf allowed = {0};
    spm_dir_open(&d);
    train(&d, "--byte_fallback=true --add_dummy_prefix=false");
    vocab_read(&d, &f);
    uint64_t seed = 5;
    size_t n_unused = 0;
    for (size_t id = 0; id < f.n; id++) {
        const gm_str piece = f.tokens[id];
        const bool one = gm_utf8_len((uint8_t)piece.p[0]) == piece.len;
        if (f.types[id] == GM_PIECE_NORMAL && !one && draw(&seed, 2)) {
            f.types[id] = GM_PIECE_UNUSED;
            n_unused++;
        } else if (f.types[id] != GM_PIECE_USER) {
            gm_strbuf_printf(&allowed, "%.*s\t1\n", GM_STR_ARG(piece));
        }
    }
    assert_true(n_unused > 50);
    spm_write(&d, "allowed", gm_strbuf_str(&allowed));
    compare(&d, &f, "--model=m.model --vocabulary=allowed --vocabulary_threshold=1", true);
    gm_strbuf_deinit(&allowed);
    fixture_close(&f);
    spm_dir_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_like_gemma), cmocka_unit_test(t_dummy_prefix),
        cmocka_unit_test(t_no_bytes),   cmocka_unit_test(t_across_words),
        cmocka_unit_test(t_unused),
    };
    if (!spm_found()) {
        printf(
            "t_spm: passed over, spm_train and spm_encode (package sentencepiece) are missing\n");
        return 0;
    }
    return cmocka_run_group_tests_name("t_spm", tests, NULL, NULL);
}
