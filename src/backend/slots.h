/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_SLOTS_H
#define GM_BACKEND_SLOTS_H

/* Slots in host memory, for the backends that compute there: page tables, last
 * tokens, penalty counts, draw parameters, and the checks that keep a wrong step
 * from reading or writing outside them. The pages themselves are each backend's. */

#include "backend/backend.h"

typedef struct gm_slot {
    int32_t last;                /* token drawn last, or -1                */
    uint32_t *table[GM_CLASSES]; /* [table_len] pages, GM_NO_PAGE for none */
    gm_draw draw;
    bool penalised;        /* whether counts matter                        */
    gm_draw_count *counts; /* [n_vocab]                                    */
    gm_bias *bias;         /* [max_bias]                                   */
    uint32_t n_bias;
} gm_slot;

typedef struct gm_slots {
    gm_kv_desc desc;       /* layer_class points to the copy below   */
    uint8_t *layer_class;  /* [n_layer]                              */
    uint32_t *layer_index; /* [n_layer] place within the layer's class */
    uint32_t n_layer_of[GM_CLASSES];
    gm_slot *at; /* [n_slots] */
} gm_slots;

/* Bytes of a page of each class and of all pages, where a layer has `layer` bytes of a page. */
typedef struct gm_kv_sizes {
    uint64_t page[GM_CLASSES], all;
} gm_kv_sizes;
gm_status gm_kv_sizes_of(const gm_kv_desc *d, uint64_t layer, gm_kv_sizes *out, gm_err *err);

gm_status gm_slots_init(gm_slots *s, const gm_kv_desc *d, gm_err *err);
void gm_slots_deinit(gm_slots *s);

/* Whether a plan's cache layers and vocabulary are those that the slots were made for; s may be
 * NULL for plans that need none. */
gm_status gm_slots_check_plan(const gm_slots *s, const gm_plan *p, gm_err *err);

/* Checks every number of the step, then applies its settings, counts and page edits. Page copies
 * are checked and left to the backend. */
gm_status gm_slots_apply(gm_slots *s, const gm_step *step, gm_err *err);

/* The token id of a row: its own, or the one its slot drew last; -1 where there is none. */
int64_t gm_slots_token(const gm_slots *s, const gm_step_row *row);

static inline uint32_t gm_slots_page(const gm_slots *s, uint32_t slot, uint32_t layer, uint32_t pos)
{
    return s->at[slot].table[s->layer_class[layer]][pos / GM_PAGE_LEN];
}

/* Fills what output i of the step wants from its row of n logits: candidates into top[GM_TOP_MAX],
 * and the drawn token, which its slot then remembers. */
typedef struct gm_answer {
    const gm_step *step;
    uint32_t i;
    const float *logits;
    uint32_t n;
    double logsum; /* gm_draw_logsum of the row, by whatever means; of one that is drawn from */
    const gm_draw_scratch *scratch;
    gm_candidate *top;
} gm_answer;
void gm_slots_answer(gm_slots *s, const gm_answer *a, gm_result_out *out);

#endif
