/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_VK_H
#define GM_BACKEND_VK_VK_H

/* The Vulkan backend. docs/VULKAN.md tells the whole; here is who does what.
 *
 *     vk_device.c    a device, its memory, submits
 *     vk_devices.c   what there is to choose from
 *     vk_pipeline.c  pipelines from the manifest's table
 *     vk_kept.c      ... and the file that spares compiling them again
 *     vk_record.c    dispatch lists, barriers, recordings
 *     vk_layout.c    weights as the kernels want them
 *     vk_pack.c      ... fast, for the usual formats
 *     vk_load.c      ... and their way to the device
 *     vk_kv.c        pages and slots on the device
 *     vk_lower.c     a plan becomes recordings (vk_values.c places its values)
 *     vk_share.c     memory that execs have in common
 *     vk_shape.c     which kernel a product gets
 *     vk_fragment.c  ... where matrices of float16 are used for all of them
 *     vk_tune.c      what suits the device
 *     vk_choice.c    ... and what was found to suit it
 *     vk_trial.c     ... by trying
 *     vk_run.c       a step goes in, answers come out
 *     vk_prof.c      how long each kernel takes
 *     vk_roof.c      how fast memory is
 *     vk.c           the entries */

#include "backend/slots.h"
#include "backend/vk/vk_layout.h"
#include "backend/vk/vk_params.h"
#include "backend/vk/vk_record.h"
#include "backend/vk/vk_shape.h"
#include "backend/vk/vk_tune.h"
#include "base/keptfile.h"

/* What a device leaves behind in a folder. */
typedef struct gm_vk_kept {
    const char *dir; /* NULL: nothing */
    gm_note note;
    char id[48];     /* of device and driver, as files are called */
    uint64_t key;    /* of device, driver and build */
    uint64_t before; /* hash of what was read       */
} gm_vk_kept;

struct gm_backend {
    gm_vk_dev dev;
    gm_vk_tuning tuning;
    gm_vk_choices choices;
    struct gm_vk_trial *trial; /* while something is tried */
    gm_vk_pipes pipes;
    gm_vk_kept kept;
    gm_workers *workers;
    const atomic_int *abandon;
    gm_ticket n_run, n_waited; /* steps handed over, and answered */
    gm_exec *under_way[GM_TICKETS];
    double piece_work; /* GM_VK_PIECE_WORK, but in tests */
    double done_s;     /* when the last step was         */
    struct gm_vk_shared *shared;
    gm_vk_buf roof;
    double load_bytes_s; /* of the files, when weights were loaded last */
    gm_load_times load_times;
    double up_bytes_s; /* of a plain copy, once it was measured       */
};

struct gm_wset {
    gm_backend *be;
    gm_tensors tensors;
    gm_vk_buf *bufs;
    size_t n_bufs;
    uint64_t *addr; /* [tensors.n] */
};

/* What the host tells the slots each step; one for each step under way. */
typedef struct gm_vk_edits {
    gm_vk_buf buf;
    uint64_t sets, biases, counts, edits, copies; /* offsets in buf */
} gm_vk_edits;

struct gm_kvmem {
    gm_backend *be;
    gm_slots slots;       /* what the host knows: tables and parameters, for checking  */
    gm_vk_buf *page_bufs; /* pages, in as many pieces as the driver wants              */
    size_t n_page_bufs;
    uint64_t *page_addr; /* [pages of both classes]                                   */
    uint64_t page_size[GM_CLASSES];
    uint64_t layer_size; /* of one layer in a page                                    */
    uint32_t n_edits, n_counts, n_copies; /* that a step may have                                */
    bool *met; /* [n_slots] while a step's rows are looked at                            */
    gm_vk_buf slot_buf, tables, counts, biases, pages; /* of the device's slots; page addresses  */
    gm_vk_edits edits[GM_TICKETS];
};

/* A value of the plan on the device: as float32, as int8 (or columns of float16), or as both. */
typedef struct gm_vk_value {
    uint64_t f32, q, meta; /* addresses, 0 where not kept; of float16 there is no meta    */
    uint64_t q_size, meta_size;
    uint32_t n_int8; /* rows of int8 for each row, in planes of their own: GM_ACT_* */
    bool halves;     /* q is columns of float16                                     */
} gm_vk_value;

/* A dispatch whose grid depends on the step. */
typedef enum gm_vk_dyn {
    GM_VK_DYN_OUT_X,  /* outputs                         */
    GM_VK_DYN_OUT_Y,  /* x, outputs / per                */
    GM_VK_DYN_ATTEND, /* x, splits of class `per`, rows  */
} gm_vk_dyn;

typedef struct gm_vk_grid {
    gm_vk_dyn kind;
    uint32_t x, per;
    uint32_t walk; /* ATTEND: rows of a workgroup that goes through all splits, 0: none does */
    uint32_t most; /* ATTEND: workgroups that share all rows' splits, about; 0: any number   */
} gm_vk_grid;

#define GM_VK_GRIDS       32
#define GM_VK_SPLIT_ROWS  64 /* most rows for which each split of attention is a workgroup ... */
#define GM_VK_SPLIT_BYTES (256ull << 20) /* ... if what they leave takes no more than this   */
#define GM_VK_TURNS_SIZE  (2 * 8 * 512)  /* bytes of the turns of two ropes */

/* Steps of more than a few rows are recorded in pieces, so that a long one can be submitted in several
 * parts: a desktop gets its turn in between, and whoever cancels need not wait for the end. A piece has
 * so many multiplications that a device of 5e11 a second takes 100 ms, as a submit may. */
#define GM_VK_PIECES     256
#define GM_VK_PIECE_ROWS 8 /* most rows of a step that is one piece */
#define GM_VK_PIECE_WORK 5e10
#define GM_VK_PART_US    1e5

/* What a size of step is recorded as: for any rows; and, to 64 of them, for rows of different slots,
 * none of which sees what another one stores: of a page that slots share, cells are of earlier steps. A
 * single row is of the latter kind. */
typedef enum gm_vk_kind {
    GM_VK_MIXED,
    GM_VK_APART,
    GM_VK_KINDS,
} gm_vk_kind;
#define GM_VK_APART_ROWS 64

typedef struct gm_vk_script {
    VkCommandBufferSubmitInfo *pieces; /* [n_pieces] */
    uint32_t n_pieces;
    size_t n_dispatches, n_barriers;
} gm_vk_script;

/* A step's place in host-visible memory, and where each part is in it. */
typedef struct gm_vk_slice {
    gm_vk_buf step, given, result;    /* shared                                        */
    gm_vk_buf flow;                   /* counters of kernels that wait for each other  */
    gm_vk_script script[GM_VK_KINDS]; /* without pieces: there are no such steps       */
    const gm_vk_script *now;          /* that of the step which is under way           */
    uint32_t n_sent, per_submit;      /* pieces                                        */
    uint64_t before, value;           /* of the timeline, after its last two submits   */
    double start_s;                   /* when the first was                            */
    const gm_step *asked;             /* the step that is under way                    */
} gm_vk_slice;

struct gm_exec {
    gm_backend *be;
    gm_wset *w;
    gm_kvmem *kv;
    const gm_plan *plan;
    gm_bucket bucket;
    bool flows;                       /* kernels wait for each other: of one row               */
    gm_vk_buf scratch;                /* shared                                                */
    uint64_t values_off, values_size; /* of scratch: values, and not what single kernels have */
    gm_vk_buf counters;               /* of workgroups that have finished: 0 between dispatches */
    uint64_t fronts;                  /* ... and behind them words of norms in front of products */
    gm_vk_value *values;              /* [n_vals]                                              */
    uint64_t parts, arrived, adjusted, wide[2], halves, sums; /* scratch of kernels      */
    gm_vk_buf turns; /* of ropes, for each pair of a head's values            */
    uint64_t rows_off, outs_off, grids_off, masks_off; /* in a slice's step         */
    uint64_t answers_off, logits_off, hidden_off;      /* in a slice's result, behind a word
                                                        * that says whether a kernel was late */
    uint32_t max_masks, mask_words;
    uint32_t given_cols, n_vocab, hidden_cols;
    gm_vk_grid grids[GM_VK_KINDS][GM_VK_GRIDS];
    uint32_t n_grids[GM_VK_KINDS];
    gm_vk_slice slice[GM_TICKETS];
    double row_us;      /* what a row of the last step took */
    gm_result_out *out; /* [outs] */
    gm_candidate *top;  /* [outs, GM_TOP_MAX] */
    uint32_t *order;    /* [n_vocab] scratch of candidates */
};

/* vk_kept.c: opens the pipelines with what the device's file has, and writes them there if there
 * is something new. Only the first can fail, and never because of the file. */
gm_status gm_vk_kept_open(gm_backend *be, const gm_backend_cfg *cfg, gm_err *err);
void gm_vk_kept_save(gm_backend *be);
/* A file of the device, by the ending of its name. One that is wrong, or of another driver or build,
 * is removed and said to be; nothing is read or written where there is no folder. What was not written
 * or removed err says (GM_E_IO), or a note where it is NULL. */
void gm_vk_kept_read(gm_backend *be, const char *ending, gm_keptfile *file);
gm_status gm_vk_kept_write(gm_backend *be, const char *ending, const void *bytes, size_t size,
                           gm_err *err);
gm_status gm_vk_kept_remove(gm_backend *be, const char *ending, gm_err *err);

/* vk_devices.c */
gm_status gm_vk_device_at(uint32_t index, gm_device_info *out, gm_err *err);

/* vk_roof.c */
gm_status gm_vk_measure_roof(gm_backend *be, uint64_t host_size, gm_roof *out, gm_err *err);

/* vk_load.c */
gm_status gm_vk_size_of(const gm_backend *be, const gm_tensors *t, uint64_t *bytes, gm_err *err);
gm_status gm_vk_load(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                     gm_wset **out, gm_err *err);
void gm_vk_unload(gm_wset *w);

/* vk_kv.c */
gm_status gm_vk_kv_size_of(const gm_kv_desc *d, uint64_t *bytes, gm_err *err);
gm_status gm_vk_kv_open(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err);
void gm_vk_kv_close(gm_kvmem *kv);
uint64_t gm_vk_kv_page_size(const gm_kvmem *kv, uint32_t class);
gm_status gm_vk_kv_copy(gm_kvmem *kv, const gm_page_move *moves, uint32_t n, gm_ticket *t,
                        gm_err *err);
/* The padded length of a head's row in the cache. */
uint32_t gm_vk_kv_dim(const gm_kv_desc *d);

/* vk_tune.c: fills be->tuning for the device that is open; exact: without what changes bits. */
gm_status gm_vk_tune(gm_backend *be, bool exact, gm_err *err);

/* vk_share.c: memory of steps, which all execs use in turn. */
typedef enum gm_vk_share {
    GM_VK_SHARE_VALUES,
    GM_VK_SHARE_STEP,
    GM_VK_SHARE_GIVEN,
    GM_VK_SHARE_RESULT,
    GM_VK_SHARES,
} gm_vk_share;
typedef struct gm_vk_shared gm_vk_shared;
struct gm_vk_shared {
    gm_vk_shared *next;
    gm_vk_share what;
    uint32_t ticket, n_users;
    gm_vk_buf buf;
};

/* At least that many bytes for what one step, that of the ticket, has at a time. What is in
 * them is whatever a step of another exec has left. All-zero is released like what was taken. */
gm_status gm_vk_share_take(gm_backend *be, gm_vk_share what, uint32_t ticket, uint64_t size,
                           gm_vk_buf *out, gm_err *err);
void gm_vk_share_release(gm_backend *be, gm_vk_buf *b);

/* vk_values.c: finds a place for every value and for scratch; fills ex->values. */
gm_status gm_vk_values_place(gm_exec *ex, gm_err *err);
/* The bytes that it would take, of an exec that has nothing yet. */
gm_status gm_vk_values_size_of(gm_exec *ex, uint64_t *scratch, uint64_t *counters, gm_err *err);
/* Whether the splits of an attention are workgroups of their own; else one walks them. */
bool gm_vk_splits_attention(const gm_exec *ex, const gm_op *op);
/* Workgroups of a draw that share a row: by its tokens alone, so that sums do not depend on a step. */
uint32_t gm_vk_draw_parts(uint32_t n_vocab);

/* vk_lower.c, vk_run.c */
gm_status gm_vk_exec_size_of(gm_backend *be, const gm_plan *p, const gm_kv_desc *kv, gm_bucket most,
                             uint64_t *bytes, gm_err *err);
gm_status gm_vk_lower(gm_backend *be, gm_wset *w, gm_kvmem *kv, const gm_plan *p, gm_bucket bucket,
                      gm_exec **out, gm_err *err);
void gm_vk_drop(gm_exec *ex);
gm_status gm_vk_list_plan(gm_exec *ex, uint32_t slice, gm_vk_kind kind, gm_vk_list *list,
                          gm_err *err);
/* Of which kind a step is, in an exec that can run it. */
gm_vk_kind gm_vk_kind_of(const gm_exec *ex, const gm_step *s);
/* Whether its kernels could wait for each other, instead of barriers; and whether one of the step that
 * was last in a slice has waited too long (GM_E_LOST): they do not from then on. */
bool gm_vk_can_flow(const gm_exec *ex);
gm_status gm_vk_check_late(const gm_exec *ex, uint32_t slice, gm_err *err);
/* Counters for kernels of the list that wait for each other; answers how many. */
uint32_t gm_vk_list_flow(const gm_exec *ex, uint32_t slice, gm_vk_list *list);
gm_status gm_vk_run(gm_exec *ex, const gm_step *s, gm_ticket *t, gm_err *err);
gm_status gm_vk_answer(gm_backend *be, gm_ticket t, gm_result *r, gm_err *err);

/* vk_prof.c */
gm_status gm_vk_profile(gm_exec *ex, const gm_step *s, gm_kernel_row *rows, uint32_t cap,
                        uint32_t *n, gm_err *err);

#endif
