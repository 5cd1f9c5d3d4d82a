/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_REF_REF_H
#define GM_BACKEND_REF_REF_H

/* The oracle: every op in scalar C, one after the other, with no cleverness.
 *
 * "ref" computes exactly (weights expanded to float32, sums in float64) and is
 * what fidelity is measured against. "ref-int8" rounds activations as the ops'
 * numerics say and computes all else in float32 in a stated order: fast kernels
 * have its bits.
 *
 *     ref.c       the backend's entries, lowering, one step
 *     ref_kv.c    pages and slots
 *     ref_ops.c   the maths of each op
 *     ref_float.c the same in float32 */

#include "backend/mapped.h"
#include "backend/slots.h"
#include "backend/tickets.h"
#include "backend/values.h"
#include "quant/dot.h"

struct gm_kvmem {
    gm_slots slots;
    uint64_t cell_len;             /* floats of one K (or V) row: n_kv_head * head_dim        */
    uint64_t page_len[GM_CLASSES]; /* floats of a page: layers, then K and V, then cells      */
    float *pages[GM_CLASSES];      /* [n_pages, layers of the class, 2, GM_PAGE_LEN, cell_len] */
};

/* One lowered plan: a buffer for each value, and scratch. */
struct gm_exec {
    gm_backend *be;
    gm_wset *w;
    gm_kvmem *kv;
    const gm_plan *plan;
    gm_bucket bucket;
    gm_values values;
    float *expanded; /* one row of a weight                                              */
    float *wide;     /* [rows, widest value]: the second product of gate_up_gelu         */
    double *acc;     /* [widest value]                                                   */
    gm_act8 act8;    /* [rows, GM_ACT_INT8_TWICE, widest], int8 arithmetic               */
    float *rest;     /* [widest] what rounding to int8 left of a row                     */
    double *scores;  /* [positions] of one head                                          */
    float *mix;      /* [2, widest value]: two pieces of attention                       */
    gm_draw_scratch draw;
    gm_result_out *out;  /* [outs] */
    gm_candidate *top;   /* [outs, GM_TOP_MAX] */
    const gm_step *step; /* being computed */
};

struct gm_backend {
    bool int8;
    const atomic_int *abandon;
    gm_tickets tickets;
};

/* ref_kv.c */
gm_status gm_ref_kv_size_of(const gm_kv_desc *d, uint64_t *bytes, gm_err *err);
gm_status gm_ref_kv_open(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err);
void gm_ref_kv_close(gm_kvmem *kv);
uint64_t gm_ref_kv_page_size(const gm_kvmem *kv, uint32_t class);
gm_status gm_ref_kv_copy(gm_kvmem *kv, const gm_page_move *moves, uint32_t n, gm_ticket *t,
                         gm_err *err);
/* Applies the step's settings, counts, page edits and page copies. */
gm_status gm_ref_kv_apply(gm_kvmem *kv, const gm_step *s, gm_err *err);
/* The K row (which = 0) or V row (1) of a position of a slot: [cell_len]. */
float *gm_ref_kv_cell(const gm_kvmem *kv, uint32_t slot, uint32_t layer, uint32_t pos,
                      uint32_t which);

/* Stores a row of [cell_len] there, rounded to what the cache's type would hold: pages are float32
 * whatever the type. A head's row is rounded by itself, with zeros behind it. */
void gm_ref_kv_store(const gm_kvmem *kv, const float *x, float *cell);

/* ref_ops.c: computes one op of ex->step. */
gm_status gm_ref_op(gm_exec *ex, const gm_op *op, gm_err *err);

/* A query head of a row and what it sees. */
typedef struct gm_refhead {
    const gm_op *op;
    const float *q; /* [dim] */
    uint32_t dim;
    uint32_t slot;
    size_t kv_off;        /* of the head in a K or V row */
    uint32_t first, last; /* positions                   */
} gm_refhead;
const float *gm_ref_head_cell(const gm_exec *ex, const gm_refhead *h, uint32_t pos, uint32_t which);

/* ref_float.c: float32 for the exact maths of ref_ops.c. */
void gm_ref_norm_f32(const float *x, const float *w, const gm_norm *norm, size_t n, float *y);
void gm_ref_rotate_f32(float c, float s, float *a, float *b);
float gm_ref_gelu_f32(float z);
float gm_ref_softcap_f32(float x, float cap);
void gm_ref_attend_f32(gm_exec *ex, const gm_refhead *h, float *out);

#endif
