/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_BACKEND_H
#define GM_BACKEND_BACKEND_H

/* What a backend does. Each entry has one meaning and none is optional:
 *
 *   open -> size_of, load(weights) -> kv_open -> tune -> lower(plan, rows)* -> { run, wait }* -> ... close
 *
 * Set-up happens once. After lower, run and wait allocate nothing and compile
 * nothing. run only hands the step over; wait gives its result, in the order of
 * the runs. At most GM_TICKETS steps may be under way; a step stays unchanged
 * until its wait has returned. One thread (the engine's) calls everything. */

#include <stdatomic.h>
#include <stdint.h>

#include "base/note.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "gemmule.h"
#include "plan/plan.h"
#include "plan/step.h"
#include "quant/tensor.h"

#define GM_TICKETS 2

typedef struct gm_backend gm_backend; /* one device, opened          */
typedef struct gm_wset gm_wset;       /* weights in their final place */
typedef struct gm_kvmem gm_kvmem;     /* KV pages and slots          */
typedef struct gm_exec gm_exec;       /* a plan lowered for a number of rows */
typedef uint64_t gm_ticket;

/* Who keeps a configuration copies its strings: keep_cfg in engine/place.c names each. */
typedef struct gm_backend_cfg {
    uint32_t n_threads;        /* 0: the backend's choice                                    */
    const char *isa;           /* the best instruction set to use, by name; NULL: all there are */
    const char *device;        /* by name or index; NULL: the best                           */
    const atomic_int *abandon; /* once not 0, a step may end early with GM_E_CANCEL; or NULL */
    const char *dir;     /* for files that spare the next open some work, or NULL; until close */
    gm_note note;        /* told of such files that were of no use */
    bool exact;          /* no kernel whose rows have other bits than those of a step of one row */
    bool untuned;        /* what was found out by trying is not used */
    const char *choices; /* a file that says what is used instead, or NULL; until open returns */
} gm_backend_cfg;

/* Told now and then while weights load, in bytes; before that with none of them done, where kernels are
 * checked first, and behind it with done == total, while kernels are made. Answers false to cancel.
 * All-zero: nobody listens. */
typedef struct gm_progress {
    bool (*tell)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
} gm_progress;

/* KV memory: a pool of pages for each class, and slots with a table of pages for each class. */
typedef struct gm_kv_desc {
    gm_qtype type;
    uint32_t n_layer;
    const uint8_t *layer_class; /* [n_layer], GM_CLASS_* */
    uint32_t n_kv_head, head_dim;
    uint32_t n_vocab; /* for the slots' counts */
    uint32_t n_slots;
    uint32_t n_pages[GM_CLASSES];
    uint32_t table_len; /* pages in a slot's table, the same for each class */
    uint32_t max_bias;  /* biases a slot may have */
} gm_kv_desc;

/* A page's bytes to host memory (save) or from it. */
typedef struct gm_page_move {
    uint32_t class, page;
    bool save;
    uint8_t *host; /* page_size bytes */
} gm_page_move;

/* How much a step of an exec may hold. */
typedef struct gm_bucket {
    uint32_t rows, outs;
} gm_bucket;

typedef struct gm_result_out {
    int32_t token; /* drawn, or -1                          */
    float logprob; /* of the token                          */
    uint32_t n_top;
    const gm_candidate *top; /* [n_top], best first                   */
    const float *logits;     /* [n_vocab], or NULL where not asked for */
    const float *hidden;     /* [cols], or NULL where not asked for    */
} gm_result_out;

/* Answers of a step, one for each of its outs, in order; valid until the next wait. */
typedef struct gm_result {
    uint32_t n_out;
    const gm_result_out *out;
    const float *const *taps; /* [n_taps], in the plan's order: the rows of the step (or its outs,
                                 where the value has picked rows) of each tap                  */
} gm_result;

/* What kernels are tried with: a model that is loaded. */
typedef struct gm_tune_model {
    gm_wset *w;
    gm_kvmem *kv;
    const gm_plan *plan;
    gm_bucket most; /* that a step may hold */
} gm_tune_model;

/* How much of it; all-zero tries nothing. */
typedef struct gm_tune_how {
    double seconds;    /* that may be spent, about                                        */
    uint32_t max_ways; /* of each thing to compute, the usual one among them, and what is kept
                          beside; 0: all                                                  */
    bool again;        /* also what was tried before                                      */
    bool forget;       /* first forgets all                                               */
    bool show;         /* in the end, row is told of all that is kept                     */
    gm_note note; /* told that it takes a moment, unless it was asked for, and what went wrong */
    int (*row)(void *ctx, const gm_tune_row *row); /* told of each thing, or NULL; anything but 0
                                                       cancels                            */
    void *ctx;
    gm_progress progress; /* in pieces of work */
} gm_tune_how;

/* The most that the device does, measured now: what every speed is printed beside. */
typedef struct gm_roof {
    double read_bytes_s; /* bytes read from its memory a second, at best                   */
    double int8_ops_s;   /* int8 multiplications and additions a second; 0: not measured   */
    double up_bytes_s;   /* bytes that it fetches from the host's memory a second; 0: shared */
} gm_roof;

/* What the configuration came to on this machine. */
typedef struct gm_backend_facts {
    uint32_t n_threads;
    const char *isa;    /* the best vector instructions in use, as gm_backend_cfg names them */
    const char *device; /* its name, until close; NULL where there is none to choose */
    const char *driver; /* and its driver's, with a version                           */
    bool is_gpu;
    uint64_t room; /* bytes of its own memory that may be taken now; 0: it computes in the host's */
    const char
        *id;      /* begins the names of files about the device, until close; NULL: none is kept */
    uint64_t key; /* of device, driver and build: what was found out holds while it is the same */
    double
        load_bytes_s; /* of the files, when weights were loaded last; 0: they were not, or never are */
    gm_load_times load_times;
    gm_device_counts counts;
    uint32_t
        half_cols; /* products of quantised weights of a multiple of so many columns take float16
                           activations instead of int8; 0: none do */
} gm_backend_facts;

typedef struct gm_backend_ops {
    const char *name;  /* as users write it   */
    const char *about; /* one line for --help */
    bool any_rows;     /* an exec serves fewer rows as well as a smaller one would: one is enough */
    bool overlaps;     /* it computes a step while the host prepares the next, or reads the last */
    gm_qtype
        kv_type; /* of the KV cache where nobody says                                          */

    /* The i-th device that open could be told to take, as gm_device_describe says it. */
    gm_status (*device_at)(uint32_t index, gm_device_info *out, gm_err *err);

    gm_status (*open)(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err);
    void (*close)(gm_backend *be);
    void (*describe)(const gm_backend *be, gm_backend_facts *out);

    /* Appends the kernels that lower has asked for since the last time, as words; nothing where
     * kernels have no names. */
    void (*kernels)(gm_backend *be, gm_strbuf *out);

    /* Whether an op can run here: a sentence in err when not, else microseconds for that many
     * rows. */
    gm_status (*cost)(const gm_backend *be, const gm_plan *p, const gm_op *op, uint32_t rows,
                      double *us, gm_err *err);

    /* Takes a moment, and memory that is given back at close: `size` bytes of the host's, as much as
     * no cache holds, or what a device needs of its own. */
    gm_status (*roof)(gm_backend *be, uint64_t size, gm_roof *out, gm_err *err);

    /* Weights: bytes beyond the file's map, then the load itself. */
    gm_status (*size_of)(const gm_backend *be, const gm_tensors *t, uint64_t *bytes, gm_err *err);
    gm_status (*load)(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                      gm_wset **out, gm_err *err);
    void (*unload)(gm_wset *w);

    /* KV memory is the backend's; the engine handles page numbers. */
    gm_status (*kv_size_of)(const gm_kv_desc *d, uint64_t *bytes, gm_err *err);
    gm_status (*kv_open)(gm_backend *be, const gm_kv_desc *d, gm_kvmem **out, gm_err *err);
    void (*kv_close)(gm_kvmem *kv);
    uint64_t (*kv_page_size)(const gm_kvmem *kv, uint32_t class);
    gm_status (*kv_copy)(gm_kvmem *kv, const gm_page_move *moves, uint32_t n, gm_ticket *t,
                         gm_err *err);

    /* Tries which of the kernels that give the same bits are the fastest for a model, and keeps the
     * answers in cfg.dir for this device, driver and build: what is lowered from now on has them. m is
     * NULL where nothing is to be tried. A device on which nothing can be measured is no failure. */
    gm_status (*tune)(gm_backend *be, const gm_tune_model *m, const gm_tune_how *how, gm_err *err);

    /* Bytes that execs of all sizes of steps up to `most` take together, powers of two and lowered from
     * the largest on; 0 where they lie in the host's memory. */
    gm_status (*exec_size_of)(gm_backend *be, const gm_plan *p, const gm_kv_desc *kv,
                              gm_bucket most, uint64_t *bytes, gm_err *err);
    /* A plan for steps of up to that many rows and outputs. The plan, weights and KV must outlive the exec;
     * kv may be NULL for plans that have no cache and draw nothing. Execs of one backend may share
     * memory: the largest is best lowered first. */
    gm_status (*lower)(gm_backend *be, gm_wset *w, gm_kvmem *kv, const gm_plan *p, gm_bucket bucket,
                       gm_exec **out, gm_err *err);
    void (*drop)(gm_exec *ex);

    gm_status (*run)(gm_exec *ex, const gm_step *s, gm_ticket *t, gm_err *err);
    gm_status (*wait)(gm_backend *be, gm_ticket t, gm_result *r, gm_err *err);

    /* Runs a step, where none is under way, and then its kernels a few times more, one after the
     * other: at most cap rows, one for each kind of them, with the least time of each kernel. What the
     * step does to its slots is done as often, so that nobody should go on from there. */
    gm_status (*profile)(gm_exec *ex, const gm_step *s, gm_kernel_row *rows, uint32_t cap,
                         uint32_t *n, gm_err *err);
} gm_backend_ops;

/* For backends that have no devices to choose from: refuses a configuration that names one; and their
 * device_at. */
gm_status gm_backend_no_device(const gm_backend_cfg *cfg, const char *name, gm_err *err);
gm_status gm_backend_no_device_at(uint32_t index, gm_device_info *out, gm_err *err);
/* For backends that compute in the host's memory; whose kernels have no names; that have nothing to
 * choose from; and that time no kernels (GM_E_UNSUP). */
gm_status gm_backend_no_exec_size(gm_backend *be, const gm_plan *p, const gm_kv_desc *kv,
                                  gm_bucket most, uint64_t *bytes, gm_err *err);
void gm_backend_no_kernels(gm_backend *be, gm_strbuf *out);
gm_status gm_backend_no_tune(gm_backend *be, const gm_tune_model *m, const gm_tune_how *how,
                             gm_err *err);
gm_status gm_backend_no_profile(gm_exec *ex, const gm_step *s, gm_kernel_row *rows, uint32_t cap,
                                uint32_t *n, gm_err *err);

/* The backends of this build. find answers NULL for an unknown name; "auto" is the one on the
 * processor, which every machine has (engine/place.c looks for a better one). */
const gm_backend_ops *gm_backend_at(size_t i);
const gm_backend_ops *gm_backend_find(const char *name);

#endif
