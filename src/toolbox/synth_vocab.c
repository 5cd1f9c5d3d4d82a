/* SPDX-License-Identifier: MIT */
/* A vocabulary with Gemma's map of ids. What Gemma's users meet by id is spelled
 * as there: control pieces, runs of white space, HTML tags, bytes. The merged
 * pieces are syllables, in families that go from short to long:
 *
 *     first   ids are the merged pieces, then the single characters
 *     each    merged piece is the sum of two pieces before it or characters, so that byte-pair
 *             merging can reach it
 *     no      two pieces are equal: a family is told from the others by its pattern of vowels
 *             and consonants, and within a family each spelling can be read in one way only
 *
 * A family is a row of slots, each with a list of spellings, counted like the
 * digits of a number with the first slot as the lowest. */

#include "base/strbuf.h"
#include "text/vocab.h"
#include "toolbox/synth.h"

enum { FIRST_NORMAL = 494, FIRST_TAIL_UNUSED = 99, LAST_TAIL_UNUSED = 6241, LONGEST_RUN = 31 };

typedef struct builder {
    gm_synth_vocab *v;
    gm_strbuf text; /* every piece, one after the other */
    size_t start;   /* of the piece that is being spelled */
} builder;

/* Ends the piece that was appended to b->text. */
static void end(builder *b, gm_piece_kind kind)
{
    gm_synth_vocab *const v = b->v;
    v->pieces[v->n].len = b->text.len - b->start;
    v->kinds[v->n] = (int32_t)kind;
    v->scores[v->n] = kind == GM_PIECE_NORMAL ? -(float)(v->n - FIRST_NORMAL)
                      : kind == GM_PIECE_BYTE ? 0
                                              : -1000;
    b->start = b->text.len;
    v->n++;
}

static void put(builder *b, const char *text, gm_piece_kind kind)
{
    gm_strbuf_put(&b->text, gm_str_c(text));
    end(b, kind);
}

static void put_unused(builder *b, int first, int last)
{
    for (int i = first; i <= last; i++) {
        gm_strbuf_printf(&b->text, "<unused%d>", i);
        end(b, GM_PIECE_CONTROL);
    }
}

/* Runs of shortest to 31 times c. */
static void put_runs(builder *b, char c, int shortest)
{
    for (int len = shortest; len <= LONGEST_RUN; len++) {
        for (int i = 0; i < len; i++)
            gm_strbuf_putc(&b->text, c);
        end(b, GM_PIECE_USER);
    }
}

/* Four groups of tags, in each the opening ones and then the closing ones. */
static void put_tags(builder *b)
{
    static const char *const groups[][12] = {
        {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"},
        {"h1", "h2", "h3", "h4", "h5", "h6", "blockquote"},
        {"strong", "em", "b", "i", "u", "s", "sub", "sup", "code"},
        {"a", "html", "body", "img", "span", "bbox", "ul", "li", "div", "iframe", "footer"},
    };
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (int closing = 0; closing < 2; closing++) {
            for (const char *const *name = groups[g]; *name; name++) {
                gm_strbuf_printf(&b->text, "<%s%s>", closing ? "/" : "", *name);
                end(b, GM_PIECE_USER);
            }
        }
    }
}

/* ---- merged pieces ------------------------------------------------------------------------- */

/* Vowels and pairs of them; consonants and clusters of two. The short ones come first, so that a
 * list's beginning is the list of those alone. */
static const char *const vowels[] = {"e",  "a",  "o",  "i",  "u",  "ea",
                                     "ou", "ee", "oo", "ai", "ie", "oa"};
static const char *const consonants[] = {
    "t",  "n",  "s",  "r",  "h",  "l",  "d",  "c",  "m",  "f",  "p",  "g",  "w",  "y",  "b",  "v",
    "k",  "x",  "j",  "q",  "z",  "th", "st", "ch", "tr", "pr", "sh", "wh", "br", "gr", "fr", "cl",
    "pl", "sp", "cr", "dr", "bl", "fl", "sl", "sw", "gl", "sc", "sk", "sm", "sn", "ph", "kn", "tw"};
static const char *const letters[] = {"t", "a", "s", "w", "o", "h", "b", "c", "i",
                                      "m", "f", "p", "d", "l", "n", "r", "e", "g",
                                      "y", "u", "k", "v", "j", "q", "x", "z"};
static const char *const space[] = {GM_SPACE_STR};

typedef struct slot {
    const char *const *list;
    uint32_t n;
} slot;

#define SPACE    \
    {            \
        space, 1 \
    }
#define LETTER      \
    {               \
        letters, 26 \
    }
#define VOWEL     \
    {             \
        vowels, 5 \
    }
#define VOWELS     \
    {              \
        vowels, 12 \
    }
#define PAIR          \
    {                 \
        vowels + 5, 7 \
    }
#define CONSONANT      \
    {                  \
        consonants, 21 \
    }
#define CONSONANTS     \
    {                  \
        consonants, 48 \
    }
#define CLUSTER             \
    {                       \
        consonants + 21, 27 \
    }

enum { MAX_SLOTS = 5 };

static const slot families[][MAX_SLOTS] = {
    {SPACE, LETTER},
    {VOWEL, CONSONANT},
    {CLUSTER},
    {PAIR},
    {SPACE, VOWEL, CONSONANT},
    {CONSONANTS, VOWELS},
    {SPACE, CONSONANTS, VOWELS},
    {CONSONANTS, VOWELS, CONSONANT},
    {SPACE, CONSONANTS, VOWELS, CONSONANT},
    {CONSONANTS, VOWELS, CONSONANT, VOWEL},
    {SPACE, CONSONANTS, VOWELS, CONSONANT, VOWEL},
    {CONSONANTS, VOWELS, CLUSTER, VOWELS},
};

/* The first n merged pieces of all families. */
static void put_merged(builder *b, uint32_t n)
{
    for (size_t f = 0; n > 0 && f < sizeof families / sizeof *families; f++) {
        const slot *const s = families[f];
        uint32_t count = 1;
        for (int i = 0; i < MAX_SLOTS && s[i].n > 0; i++)
            count *= s[i].n;
        for (uint32_t k = 0; n > 0 && k < count; k++, n--) {
            uint32_t digits = k;
            for (int i = 0; i < MAX_SLOTS && s[i].n > 0; digits /= s[i].n, i++)
                gm_strbuf_put(&b->text, gm_str_c(s[i].list[digits % s[i].n]));
            end(b, GM_PIECE_NORMAL);
        }
    }
}

/* ---- single characters --------------------------------------------------------------------- */

static void put_utf8(gm_strbuf *out, uint32_t cp)
{
    if (cp < 0x80) {
        gm_strbuf_putc(out, (char)cp);
    } else if (cp < 0x800) {
        gm_strbuf_putc(out, (char)(0xC0 | cp >> 6));
        gm_strbuf_putc(out, (char)(0x80 | (cp & 63)));
    } else {
        gm_strbuf_putc(out, (char)(0xE0 | cp >> 12));
        gm_strbuf_putc(out, (char)(0x80 | (cp >> 6 & 63)));
        gm_strbuf_putc(out, (char)(0x80 | (cp & 63)));
    }
}

/* The first n characters of these ranges: the space, e, the rest of printable ASCII, then Latin,
 * Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, punctuation, currencies, arrows, kana, Han. */
static void put_chars(builder *b, uint32_t n)
{
    static const uint32_t ranges[][2] = {
        {0x2581, 0x2581}, {'e', 'e'},       {'!', 'd'},       {'f', '~'},
        {0xA1, 0x24F},    {0x370, 0x52F},   {0x5D0, 0x5EA},   {0x620, 0x64A},
        {0x904, 0x939},   {0xE01, 0xE3A},   {0x2010, 0x2027}, {0x20A0, 0x20BF},
        {0x2190, 0x21FF}, {0x3041, 0x3096}, {0x30A1, 0x30FA}, {0x4E00, 0x9FFF},
    };
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        for (uint32_t cp = ranges[r][0]; n > 0 && cp <= ranges[r][1]; cp++, n--) {
            put_utf8(&b->text, cp);
            end(b, GM_PIECE_NORMAL);
        }
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void put_specials(builder *b)
{
    static const char *const control[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>"};
    for (size_t i = 0; i < sizeof control / sizeof *control; i++)
        put(b, control[i], GM_PIECE_CONTROL);
    put(b, "[multimodal]", GM_PIECE_USER);
    put_unused(b, 0, FIRST_TAIL_UNUSED - 1);
    put(b, "<start_of_turn>", GM_PIECE_CONTROL);
    put(b, "<end_of_turn>", GM_PIECE_CONTROL);
    put_runs(b, '\n', 1);
    put_runs(b, ' ', 2);
    put_tags(b);
    for (unsigned byte = 0; byte < 256; byte++) {
        gm_strbuf_printf(&b->text, "<0x%02X>", byte);
        end(b, GM_PIECE_BYTE);
    }
}

static void put_tail(builder *b)
{
    put_runs(b, '\t', 1);
    put(b, "<start_of_image>", GM_PIECE_CONTROL);
    put(b, "<end_of_image>", GM_PIECE_CONTROL);
    put_unused(b, FIRST_TAIL_UNUSED, LAST_TAIL_UNUSED);
}

uint32_t gm_synth_vocab_len(const gm_synth_shape *shape)
{
    const uint32_t tail = LONGEST_RUN + 2 + LAST_TAIL_UNUSED - FIRST_TAIL_UNUSED + 1;
    return FIRST_NORMAL + shape->n_merged + shape->n_char + (shape->has_tail ? tail : 0);
}

/* Moves the text into the arena and lets the pieces point there. */
static gm_status keep_text(builder *b, gm_arena *arena, gm_err *err)
{
    const char *p = NULL;
    GM_TRY(gm_strbuf_status(&b->text, err));
    GM_TRY(gm_arena_copy(arena, gm_strbuf_str(&b->text), &p, err));
    for (uint32_t i = 0; i < b->v->n; i++) {
        b->v->pieces[i].p = p;
        p += b->v->pieces[i].len;
    }
    return GM_OK;
}

gm_status gm_synth_vocab_make(gm_synth_vocab *v, const gm_synth_shape *shape, gm_arena *arena,
                              gm_err *err)
{
    *v = (gm_synth_vocab){0};
    const uint32_t n = gm_synth_vocab_len(shape);
    GM_TRY(gm_arena_alloc(arena, &v->pieces, n, sizeof *v->pieces, "pieces", err));
    GM_TRY(gm_arena_alloc(arena, &v->scores, n, sizeof *v->scores, "scores of pieces", err));
    GM_TRY(gm_arena_alloc(arena, &v->kinds, n, sizeof *v->kinds, "kinds of pieces", err));
    builder b = {.v = v};
    put_specials(&b);
    put_merged(&b, shape->n_merged);
    put_chars(&b, shape->n_char);
    if (shape->has_tail) put_tail(&b);
    const gm_status status = keep_text(&b, arena, err);
    gm_strbuf_deinit(&b.text);
    return status;
}
