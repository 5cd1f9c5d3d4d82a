/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_CPU_H
#define GM_BACKEND_CPU_CPU_H

/* The CPU backend. A plan is lowered into phases, of three kinds; workers go
 * through them together and meet after each:
 *
 *     ROWS       ops that treat every row by itself (norms, rope, cache, quantising,
 *                draws): a run of them is one phase, a worker taking a row through all
 *     PRODUCTS   one to three products of the same input, or a gate-up pair: workers take
 *                panels of sixteen weight rows
 *     ATTEND     workers take (row, KV head), or pieces of 512 keys of it when rows are few
 *
 *     cpu.c        the backend's entries
 *     cpu_load.c   weights from the file's layout to tiles (tile.h)
 *     cpu_lower.c  plan -> phases
 *     cpu_rows.c   the ops of ROWS
 *     cpu_mul.c    PRODUCTS
 *     cpu_attn.c   ATTEND and its join
 *     cpu_share.c  which phases are worth more than one worker
 *     cpu_kv.c     pages
 *     cpu_roof.c   what the machine does at best
 *     kernels.c    the kernel table; generic/ and x86/ fill it
 *
 * A row's result is the same bits whatever its neighbours, the chunking and the
 * number of workers, because no sum ever depends on them. */

#include "backend/cpu/kernels.h"
#include "backend/slots.h"
#include "backend/tickets.h"
#include "backend/values.h"
#include "base/workers.h"

#define GM_CPU_ROPES 4 /* different rotations that a plan may have */

/* The first n_panels panels of a tensor have become tiles. */
typedef struct gm_tiled {
    uint8_t *tiles; /* NULL for plain floats */
    uint32_t n_panels;
} gm_tiled;

struct gm_wset {
    gm_tensors tensors; /* as the file has them       */
    gm_tiled *tiled;    /* [n tensors]                */
    uint8_t *memory;    /* of all tiles               */
    uint64_t size;      /* bytes of it                */
    uint32_t settling;  /* tensors before it are done */
    bool used;          /* the first step was taken   */
};

struct gm_kvmem {
    gm_slots slots;
    int type;                       /* gm_kv_index                                        */
    uint32_t len;                   /* values of a row of one head, padded                */
    uint32_t row_size;              /* bytes of it                                        */
    uint64_t head_size;             /* bytes of a page's rows of one layer, K or V, head  */
    uint64_t page_size[GM_CLASSES]; /* [layers of the class][K, V][n_kv_head]             */
    uint8_t *pages[GM_CLASSES];
};

typedef enum gm_phasekind { GM_PHASE_ROWS, GM_PHASE_PRODUCTS, GM_PHASE_ATTEND } gm_phasekind;

typedef struct gm_phase {
    gm_phasekind kind;
    uint32_t rows; /* GM_ROWS_*: what its tasks go over */
    const gm_op *op[6];
    uint32_t n_ops;
    gm_val quantise; /* ROWS: after the ops, this value's row becomes int8; 0: none */
    uint32_t n_int8; /* and so many rows of it: quant/dot.h                          */
} gm_phase;

/* What one worker alone writes. */
typedef struct gm_lane {
    gm_panel *panel;
    uint8_t *tile; /* of weights that have not settled */
    float *acc;    /* [GM_ACT_INT8_TWICE, rows, 16] sums of a panel; another for gate-up   */
    float *query;  /* [group, len] queries of a KV head, padded                            */
    float *part;   /* two pieces of attention: see cpu_attn.c                              */
    float *scores; /* [group, GM_PAGE_LEN]                                                  */
    float *row;    /* [len] a head's row for the cache                                      */
    gm_draw_scratch draw;
} gm_lane;

/* Cosines and sines of every row's position for one rotation. */
typedef struct gm_cpu_rope {
    gm_rope rope;
    uint32_t half;  /* pairs that turn                           */
    double *speed;  /* [half] radians a position                 */
    float *cos_sin; /* [rows, 2, half]                           */
} gm_cpu_rope;

struct gm_exec {
    gm_backend *be;
    gm_wset *w;
    gm_kvmem *kv;
    const gm_plan *plan;
    gm_bucket bucket;
    gm_values values;
    gm_phase *phases;
    size_t n_phases, cap_phases;
    gm_tasks *tasks;  /* [n_phases] */
    bool *alone;      /* [n_phases] worker 0 does it, and the others go on */
    bool shared;      /* some phase is not */
    gm_acttile *acts; /* of the value quantised last: [tiles of a row][n_int8, rows] */
    gm_cpu_rope ropes[GM_CPU_ROPES];
    uint32_t n_ropes;
    float **norm_of;     /* [n weights] a norm's weights as float32, NULL for others           */
    float *parts;        /* [split_rows, n_kv_head, max_parts, part_len]                       */
    uint32_t split_rows; /* attention of up to so many rows is cut into pieces                 */
    uint32_t max_parts;  /* pieces that one row can have                                       */
    uint32_t part_len;   /* floats of a piece                                                  */
    gm_lane *lanes;      /* [n workers] */
    gm_result_out *out;
    gm_candidate *top;
    const gm_step *step;    /* being computed */
    atomic_uint stop_after; /* phases after which the step was abandoned; 0: it was not */
};

struct gm_backend {
    gm_kernels k;
    uint32_t isa; /* rungs in use */
    gm_workers *workers;
    const atomic_int *abandon;
    uint8_t *roof; /* what the roof is measured on, once it was */
    uint64_t roof_size;
    gm_tickets tickets;
};

static inline float *gm_cpu_row(const gm_exec *ex, gm_val v, uint32_t i)
{
    return ex->values.at[v] + (size_t)i * ex->plan->vals[v].cols;
}

/* cpu_load.c */
gm_status gm_cpu_size_of(const gm_backend *be, const gm_tensors *t, uint64_t *bytes, gm_err *err);
gm_status gm_cpu_load(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                      gm_wset **out, gm_err *err);
void gm_cpu_unload(gm_wset *w);
/* Before each step: turns some more of the weights into tiles, until all are. */
void gm_cpu_settle(gm_backend *be, gm_wset *w);

/* cpu_lower.c: phases, then memory; and frees both. */
gm_status gm_cpu_lower(gm_exec *ex, gm_err *err);
void gm_cpu_drop(gm_exec *ex);

/* cpu_rows.c, cpu_mul.c, cpu_attn.c: one worker's share of a phase. */
void gm_cpu_rows(gm_exec *ex, const gm_phase *ph, gm_tasks *tasks, uint32_t worker);
void gm_cpu_products(gm_exec *ex, const gm_phase *ph, gm_tasks *tasks, uint32_t worker);
void gm_cpu_attend(gm_exec *ex, const gm_phase *ph, gm_tasks *tasks, uint32_t worker);
/* Joins the pieces of a row's attention, where it was cut. */
void gm_cpu_attend_join(gm_exec *ex, const gm_op *op, uint32_t row);

/* cpu_share.c: fills ex->alone and ex->shared for the step at hand. */
void gm_cpu_share(gm_exec *ex);

/* cpu_roof.c */
gm_status gm_cpu_roof(gm_backend *be, uint64_t size, gm_roof *out, gm_err *err);

/* cpu_kv.c */
gm_status gm_cpu_kv_size_of(const gm_kv_desc *d, uint64_t *bytes, gm_err *err);
gm_status gm_cpu_kv_open(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err);
void gm_cpu_kv_close(gm_kvmem *kv);
uint64_t gm_cpu_kv_page_size(const gm_kvmem *kv, uint32_t class);
gm_status gm_cpu_kv_copy(gm_kvmem *kv, const gm_page_move *moves, uint32_t n, gm_ticket *t,
                         gm_err *err);
gm_status gm_cpu_kv_apply(gm_kvmem *kv, const gm_step *s, gm_err *err);
/* A page's rows of one layer and KV head, of K (which = 0) or V (1). */
uint8_t *gm_cpu_kv_rows(const gm_kvmem *kv, uint32_t slot, uint32_t layer, uint32_t pos,
                        uint32_t which, uint32_t head);

#endif
