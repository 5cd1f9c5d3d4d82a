/* SPDX-License-Identifier: MIT */
#ifndef GM_PLAN_STEP_H
#define GM_PLAN_STEP_H

/* What a backend is given each turn: one flat block with offsets and no
 * pointers, so that a device can be handed a copy of it.
 *
 * A *slot* is a sequence's place on the backend: its page tables, the token it
 * drew last, its penalty counts, its draw parameters and biases live there. A
 * *cell* is one KV position; a *page* is GM_PAGE_LEN cells of every layer of one
 * class. The engine decides which page holds what and tells it by edits.
 *
 * Order within a step: slot settings, counts, page copies and page edits first,
 * then the rows. Rows of a segment are consecutive positions of one slot.
 *
 * A gm_step is made once for given limits and filled again each turn:
 *
 *     gm_step_alloc(&s, &limits, err);
 *     gm_step_clear(s);
 *     gm_step_put_row(s, ...); ...            each answers false when its part is full
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/draw.h"
#include "plan/op.h"

#define GM_PAGE_LEN 32u
#define GM_NO_PAGE  UINT32_MAX
#define GM_NO_MASK  UINT32_MAX

/* Where a row comes from. */
enum {
    GM_ROW_ID = 0,    /* src is a token id                                                  */
    GM_ROW_LAST = 1,  /* the token that this row's slot drew last (src unused)              */
    GM_ROW_GIVEN = 2, /* src is the index of a row of floats in the step (images, tests)    */
};

typedef struct gm_step_row {
    uint32_t kind; /* GM_ROW_*                                                              */
    uint32_t src;
    uint32_t slot;
    uint32_t pos;
    uint32_t first[GM_CLASSES], last[GM_CLASSES]; /* visible positions, both ends included  */
} gm_step_row;

typedef struct gm_step_seg {
    uint32_t slot, row_first, n_rows;
} gm_step_seg;

enum { GM_WANT_DRAW = 1, GM_WANT_LOGITS = 2, GM_WANT_HIDDEN = 4, GM_WANT_TOP = 8 };
#define GM_TOP_MAX 64 /* candidates that a backend reports; for more, ask for logits */

typedef struct gm_step_out {
    uint32_t row;
    uint32_t want;  /* GM_WANT_*                                       */
    uint32_t n_top; /* for GM_WANT_TOP, up to GM_TOP_MAX               */
    uint32_t mask;  /* index of a mask row in the step, or GM_NO_MASK  */
} gm_step_out;

/* Slot's page table of a class: entry `index` (position / GM_PAGE_LEN) becomes page. */
typedef struct gm_page_edit {
    uint32_t slot, class, index, page;
} gm_page_edit;

typedef struct gm_page_copy {
    uint32_t class, from, to;
} gm_page_copy;

/* A slot begins anew: counts and biases are cleared, then these parameters hold. */
typedef struct gm_slot_set {
    uint32_t slot;
    uint32_t bias_first, n_bias; /* in the step's biases */
    gm_draw draw;
} gm_slot_set;

/* Adds to a slot's penalty counts (prompt tokens at prefill, corrections after a rollback). */
typedef struct gm_count_edit {
    uint32_t slot;
    int32_t id;
    int32_t prompt, answer;
} gm_count_edit;

/* Room in a step for each part. */
typedef struct gm_step_limits {
    uint32_t rows, segs, outs, edits, copies, sets, biases, counts, masks;
    uint32_t given;      /* rows of floats                         */
    uint32_t given_cols; /* their length                           */
    uint32_t mask_words; /* 32-bit words of one mask               */
} gm_step_limits;

/* The block's beginning; `*_off` are byte offsets from here, `n_*` how many are in use. */
typedef struct gm_step {
    uint32_t size; /* of the whole block */
    uint32_t n_rows, rows_off;
    uint32_t n_segs, segs_off;
    uint32_t n_outs, outs_off;
    uint32_t n_edits, edits_off;
    uint32_t n_copies, copies_off;
    uint32_t n_sets, sets_off;
    uint32_t n_biases, biases_off;
    uint32_t n_counts, counts_off;
    uint32_t n_masks, masks_off;
    uint32_t n_given, given_off;
    uint32_t n_head, n_draw; /* outputs that need logits, and a draw: device-side counts */
    gm_step_limits limits;
} gm_step;

gm_status gm_step_alloc(gm_step **out, const gm_step_limits *limits, gm_err *err);
void gm_step_free(gm_step *s);
void gm_step_clear(gm_step *s);

/* Each appends one entry, or answers false when that part is full. */
bool gm_step_put_row(gm_step *s, const gm_step_row *row);
bool gm_step_put_seg(gm_step *s, const gm_step_seg *seg);
bool gm_step_put_out(gm_step *s, const gm_step_out *out);
bool gm_step_put_edit(gm_step *s, const gm_page_edit *edit);
bool gm_step_put_copy(gm_step *s, const gm_page_copy *copy);
bool gm_step_put_set(gm_step *s, uint32_t slot, const gm_draw *draw, const gm_bias *bias,
                     uint32_t n_bias);
bool gm_step_put_count(gm_step *s, const gm_count_edit *edit);
bool gm_step_put_given(gm_step *s, const float *row, uint32_t *index);
bool gm_step_put_mask(gm_step *s, const uint32_t *words, uint32_t *index);

/* For backends: whether the step has at most that many rows and outputs, each output of a row and a
 * mask that are there. */
gm_status gm_step_check(const gm_step *s, uint32_t max_rows, uint32_t max_outs, gm_err *err);

/* The parts, for backends. */
const gm_step_row *gm_step_rows(const gm_step *s);
const gm_step_seg *gm_step_segs(const gm_step *s);
const gm_step_out *gm_step_outs(const gm_step *s);
const gm_page_edit *gm_step_edits(const gm_step *s);
const gm_page_copy *gm_step_copies(const gm_step *s);
const gm_slot_set *gm_step_sets(const gm_step *s);
const gm_bias *gm_step_biases(const gm_step *s);
const gm_count_edit *gm_step_counts(const gm_step *s);
const uint32_t *gm_step_mask_at(const gm_step *s, uint32_t index);
const float *gm_step_given_at(const gm_step *s, uint32_t index);

#endif
