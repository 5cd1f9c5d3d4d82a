/* SPDX-License-Identifier: MIT */
#include "text/tokenizer.h"

#include "base/fp16.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/utf8.h"

/* The way of a text:
 *
 *     text --control pieces--> plain runs --respell--> "one(U+2581)two" --cut--> segments
 *     segment: symbols, one a character --merge, best pair first--> pieces --> ids
 *
 * A segment ends at a user-defined piece, which no merge crosses. Cutting before each space too,
 * where no piece joins it to what stands before, was tried and left out: 1 MB on one line took 0.11
 * instead of 0.16 s, not worth an index of what pieces join.
 *
 * Symbols lie one behind the other, so that their lengths say where all of them are: each has its
 * own at its first byte, for the neighbour on the right, and at its last, for the one on the left.
 * A merge takes the right one into the left one. The heap keeps candidates, best first: the higher
 * score, then the leftmost. A candidate is stale, and skipped, when its left symbol is gone or the
 * two lengths no longer add up to its own: symbols only grow, so the sum can never come back to an
 * old value. At most three candidates are made for each symbol, whence n log n for any text. Ids
 * are not kept but looked up again: a text of 16 MB in one segment has 16 million symbols, and each
 * byte beside one of them counts.
 *
 * Unused pieces may be made on the way to larger ones but are not handed out: they are cut again
 * where the candidate that made them was joined, as SentencePiece does. */

/* Offsets are 32 bits wide and respelling makes a byte three. */
#define TEXT_MAX ((size_t)INT32_MAX / 4)

/* Marks a length at the first byte of a symbol. */
#define FIRST 0x80000000u

typedef struct pair {
    uint32_t order;     /* smallest first: descending score */
    uint32_t left, len; /* where it begins in the segment; of both together */
} pair;

typedef struct work {
    const gm_vocab *v;
    gm_ids *out;
    gm_strbuf text; /* the plain run, respelled */
    gm_str segment; /* of it */
    uint32_t *lens; /* [segment.len] of symbols, where they begin and end; elsewhere anything */
    size_t cap_lens;
    pair *heap;
    size_t n_heap, cap_heap;
    uint32_t *cut; /* [n_vocab] bytes left of the joint in an unused piece; made when one is met */
    gm_str *todo;  /* a stack: parts of an unused piece, the leftmost on top */
    size_t cap_todo;
    bool was_unknown; /* the last id stands for a character with no piece */
} work;

/* ---- ids ----------------------------------------------------------------------------- */

gm_status gm_ids_push(gm_ids *ids, int32_t id, gm_err *err)
{
    GM_TRY(gm_mem_grow(&ids->at, &ids->cap, ids->n + 1, sizeof *ids->at, "token ids", err));
    ids->at[ids->n++] = id;
    return GM_OK;
}

void gm_ids_deinit(gm_ids *ids)
{
    gm_mem_free(ids->at);
    *ids = (gm_ids){0};
}

/* ---- the heap ------------------------------------------------------------------------ */

/* Floats as integers that sort from the highest to the lowest. */
static uint32_t score_order(float score)
{
    const uint32_t bits = gm_f32_bits(score + 0.0f); /* -0 becomes 0 */
    return bits & 0x80000000u ? bits : bits ^ 0x7FFFFFFFu;
}

static uint64_t rank(const pair *p)
{
    return (uint64_t)p->order << 32 | p->left;
}

static gm_status heap_push(work *w, pair p, gm_err *err)
{
    GM_TRY(gm_mem_grow(&w->heap, &w->cap_heap, w->n_heap + 1, sizeof *w->heap, "merges", err));
    size_t at = w->n_heap++;
    for (; at > 0 && rank(&p) < rank(&w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = p;
    return GM_OK;
}

static pair heap_pop(work *w)
{
    const pair best = w->heap[0];
    const pair last = w->heap[--w->n_heap];
    size_t at = 0;
    for (size_t child = 1; child < w->n_heap; child = 2 * at + 1) {
        if (child + 1 < w->n_heap && rank(&w->heap[child + 1]) < rank(&w->heap[child])) child++;
        if (rank(&last) <= rank(&w->heap[child])) break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return best;
}

/* ---- merging ------------------------------------------------------------------------- */

/* Of the symbol that begins, or ends, at a byte of the segment. */
static uint32_t len_at(const work *w, size_t at)
{
    return w->lens[at] & ~FIRST;
}

static void symbol_set(work *w, size_t at, uint32_t len)
{
    w->lens[at + len - 1] = len;
    w->lens[at] = FIRST | len;
}

/* Remembers where an unused piece is joined; the newest candidate counts. */
static gm_status cut_note(work *w, int32_t id, uint32_t left_len, gm_err *err)
{
    if (!w->cut) {
        GM_TRY(gm_mem_alloc(&w->cut, gm_vocab_len(w->v), sizeof *w->cut, "unused pieces", err));
    }
    w->cut[id] = left_len;
    return GM_OK;
}

/* Makes a candidate of the symbol and the one after it, where that is a piece. */
static gm_status pair_add(work *w, uint32_t left, gm_err *err)
{
    const uint32_t left_len = len_at(w, left), right = left + left_len;
    if (right == w->segment.len) return GM_OK;
    const uint32_t len = left_len + len_at(w, right);
    const int32_t id = gm_vocab_find_merged(w->v, (gm_str){w->segment.p + left, len});
    if (id == GM_NO_TOKEN) return GM_OK;
    if (gm_vocab_kind(w->v, id) == GM_PIECE_UNUSED) GM_TRY(cut_note(w, id, left_len, err));
    const uint32_t order = score_order(gm_vocab_score(w->v, id));
    return heap_push(w, (pair){.order = order, .left = left, .len = len}, err);
}

static gm_status merge_all(work *w, gm_err *err)
{
    for (uint32_t at = 0; at < w->segment.len; at += len_at(w, at))
        GM_TRY(pair_add(w, at, err));
    while (w->n_heap) {
        const pair p = heap_pop(w);
        if (!(w->lens[p.left] & FIRST)) continue;
        const uint32_t right = p.left + len_at(w, p.left);
        if (right == w->segment.len || right + len_at(w, right) != p.left + p.len) continue;
        w->lens[right] = 0;
        symbol_set(w, p.left, p.len);
        if (p.left) GM_TRY(pair_add(w, p.left - len_at(w, p.left - 1), err));
        GM_TRY(pair_add(w, p.left, err));
    }
    return GM_OK;
}

/* ---- symbols to ids ------------------------------------------------------------------ */

static bool bytes_have_pieces(const gm_vocab *v, gm_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (gm_vocab_byte(v, (uint8_t)s.p[i]) == GM_NO_TOKEN) return false;
    }
    return true;
}

/* A character with no piece: its bytes, or the unknown token, one for a run of such characters. */
static gm_status emit_unknown(work *w, gm_str s, gm_err *err)
{
    if (bytes_have_pieces(w->v, s)) {
        w->was_unknown = false;
        for (size_t i = 0; i < s.len; i++)
            GM_TRY(gm_ids_push(w->out, gm_vocab_byte(w->v, (uint8_t)s.p[i]), err));
        return GM_OK;
    }
    const int32_t unk = gm_vocab_special(w->v)->unk;
    if (unk == GM_NO_TOKEN) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "text: \"%.*s\" is not in the vocabulary, which has neither byte pieces "
                       "nor an unknown token for it",
                       GM_STR_ARG(s));
    }
    if (!w->was_unknown) GM_TRY(gm_ids_push(w->out, unk, err));
    w->was_unknown = true;
    return GM_OK;
}

static gm_status emit(work *w, int32_t id, gm_str s, gm_err *err)
{
    if (id == GM_NO_TOKEN) return emit_unknown(w, s, err);
    w->was_unknown = false;
    return gm_ids_push(w->out, id, err);
}

/* A symbol's piece. One that is unused is taken apart again, down to parts that are used or single
 * characters. */
static gm_status emit_symbol(work *w, gm_str s, gm_err *err)
{
    size_t n = 0;
    for (gm_str part = s;; part = w->todo[--n]) {
        int32_t id = gm_vocab_find_merged(w->v, part);
        while (id != GM_NO_TOKEN && w->cut && w->cut[id]) {
            const size_t left = w->cut[id];
            GM_TRY(gm_mem_grow(&w->todo, &w->cap_todo, n + 1, sizeof *w->todo, "pieces", err));
            w->todo[n++] = (gm_str){part.p + left, part.len - left};
            part.len = left;
            id = gm_vocab_find_merged(w->v, part);
        }
        GM_TRY(emit(w, id, part, err));
        if (n == 0) return GM_OK;
    }
}

/* Merges the symbols gathered so far, appends their ids and begins anew. */
static gm_status segment_end(work *w, gm_err *err)
{
    GM_TRY(merge_all(w, err));
    uint32_t len = 0;
    for (size_t at = 0; at < w->segment.len; at += len) {
        len = len_at(w, at);
        GM_TRY(emit_symbol(w, (gm_str){w->segment.p + at, len}, err));
    }
    w->segment.len = 0;
    return GM_OK;
}

/* ---- text to symbols ----------------------------------------------------------------- */

/* Spaces become U+2581; each byte with which no character begins becomes U+FFFD. */
static gm_status respell(work *w, gm_str run, gm_err *err)
{
    gm_strbuf_clear(&w->text);
    if (gm_vocab_adds_space(w->v)) gm_strbuf_put(&w->text, GM_STR(GM_SPACE_STR));
    size_t kept = 0; /* run[kept..i) goes over as it is */
    for (size_t i = 0; i < run.len;) {
        uint32_t cp = 0;
        const size_t len = gm_utf8_read(run.p + i, run.len - i, &cp);
        if (len && run.p[i] != ' ') {
            i += len;
            continue;
        }
        gm_strbuf_put(&w->text, (gm_str){run.p + kept, i - kept});
        gm_strbuf_put(&w->text, len ? GM_STR(GM_SPACE_STR) : GM_STR(GM_UTF8_REPLACEMENT_STR));
        kept = ++i;
    }
    gm_strbuf_put(&w->text, (gm_str){run.p + kept, run.len - kept});
    return gm_strbuf_status(&w->text, err);
}

/* A character that comes next in the text. */
static gm_status symbol_add(work *w, const char *p, size_t len, gm_err *err)
{
    gm_str *const s = &w->segment;
    if (s->len == 0) s->p = p;
    GM_TRY(gm_mem_grow(&w->lens, &w->cap_lens, s->len + len, sizeof *w->lens, "symbols", err));
    symbol_set(w, s->len, (uint32_t)len);
    s->len += len;
    return GM_OK;
}

/* A run without control pieces: what SentencePiece would be given as one text. */
static gm_status encode_plain(work *w, gm_str run, gm_err *err)
{
    if (run.len == 0) return GM_OK;
    w->was_unknown = false;
    GM_TRY(respell(w, run, err));
    size_t len = 0;
    for (size_t i = 0; i < w->text.len; i += len) {
        const gm_str rest = {w->text.p + i, w->text.len - i};
        const int32_t user = gm_vocab_match_user(w->v, rest, &len);
        if (user != GM_NO_TOKEN) {
            GM_TRY(segment_end(w, err));
            GM_TRY(emit(w, user, rest, err));
            continue;
        }
        /* A user-defined piece may end inside a character in a vocabulary that is not UTF-8. */
        len = gm_utf8_len((uint8_t)*rest.p);
        if (len == 0 || len > rest.len) len = 1;
        GM_TRY(symbol_add(w, rest.p, len, err));
    }
    return segment_end(w, err);
}

static gm_status encode_special(work *w, gm_str text, gm_err *err)
{
    size_t begin = 0;
    for (size_t i = 0; i < text.len;) {
        size_t len = 0;
        const int32_t id = gm_vocab_match_control(w->v, (gm_str){text.p + i, text.len - i}, &len);
        if (id == GM_NO_TOKEN) {
            i++;
            continue;
        }
        GM_TRY(encode_plain(w, (gm_str){text.p + begin, i - begin}, err));
        GM_TRY(gm_ids_push(w->out, id, err));
        begin = i += len;
    }
    return encode_plain(w, (gm_str){text.p + begin, text.len - begin}, err);
}

static gm_status bos_push(work *w, gm_err *err)
{
    const int32_t bos = gm_vocab_special(w->v)->bos;
    if (bos != GM_NO_TOKEN) return gm_ids_push(w->out, bos, err);
    return gm_fail(err, GM_E_UNSUP, 0, "text: the vocabulary has no <bos> to begin a text with");
}

gm_status gm_tokenizer_encode(const gm_vocab *v, gm_str text, uint32_t flags, gm_ids *out,
                              gm_err *err)
{
    if (text.len > TEXT_MAX) {
        return gm_fail(err, GM_E_TOOBIG, 0, "text: %zu bytes at once, expected at most %zu",
                       text.len, TEXT_MAX);
    }
    const size_t n_before = out->n;
    work w = {.v = v, .out = out};
    gm_status status = flags & GM_TOKENIZE_BOS ? bos_push(&w, err) : GM_OK;
    if (status == GM_OK) {
        status = flags & GM_TOKENIZE_SPECIAL ? encode_special(&w, text, err)
                                             : encode_plain(&w, text, err);
    }
    if (status != GM_OK) out->n = n_before;
    gm_strbuf_deinit(&w.text);
    gm_mem_free(w.lens);
    gm_mem_free(w.heap);
    gm_mem_free(w.cut);
    gm_mem_free(w.todo);
    return status;
}
