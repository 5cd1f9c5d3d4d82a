/* SPDX-License-Identifier: MIT */
#ifndef GM_CHECK_OPCHECK_H
#define GM_CHECK_OPCHECK_H

/* One table of ops x shapes x types x rows x inputs. A case is a plan of one op,
 * with weights and inputs that follow from a seed; it is run by a reference backend
 * and by any number of targets, and compared or timed. Tests, `selftest` and
 * `tune` share it.
 *
 *     gm_opcase c;
 *     for (size_t i = 0; gm_opcase_at(i, &c); i++) {
 *         gm_opcheck *o = NULL;
 *         GM_TRY(gm_opcheck_open(&o, &c, seed, err));
 *         GM_TRY(gm_opcheck_run(o, &target, &result, err));       result.passed?
 *         gm_opcheck_close(o);
 *     }
 *
 * One thread a gm_opcheck. */

#include "backend/backend.h"

/* What inputs, and the scales of weights, are like. */
typedef enum gm_opdist {
    GM_OPDIST_UNIFORM,  /* between -4 and 4                                             */
    GM_OPDIST_MAX,      /* every value and every code at an end of its range            */
    GM_OPDIST_DENORMAL, /* every other row, and every weight's scale, below the normals */
    GM_OPDIST_OUTLIER,  /* uniform but for one huge value a row                         */
    GM_OPDIST_ZERO,
    GM_OPDISTS,
} gm_opdist;
const char *gm_opdist_name(gm_opdist dist);

typedef struct gm_opcase {
    gm_opkind kind;
    bool layer; /* a whole layer of Gemma 3 around ATTEND, its ops in groups; n_out: of its ffn */
    gm_qtype type; /* of the weights; for ATTEND alone of the cache; norms are F32          */
    uint32_t n_in, n_out;
    uint32_t n_head, n_kv_head, head_dim; /* NORM_ROPE and ATTEND                             */
    uint32_t window;                      /* ATTEND: positions that a row sees; 0: all        */
    uint32_t rows;                        /* ATTEND: dealt in turn to two sequences           */
    gm_opdist dist;
    const char *reference; /* name of the backend that is right                */
    double bound;          /* of |difference| over the largest value of the row; 0: the same bits */
} gm_opcase;

/* The i-th case; false past the last. */
bool gm_opcase_at(size_t i, gm_opcase *out);
size_t gm_opcase_n(void);
/* One case for each family and type: its last shape and number of rows, uniform inputs. */
bool gm_opcase_main(size_t i, gm_opcase *out);
/* "matmul", "layer". */
const char *gm_opcase_name(const gm_opcase *c);

/* How a case is run. */
typedef struct gm_opcheck_target {
    const gm_backend_ops *ops;
    gm_backend_cfg cfg;
    gm_backend *be; /* an open one to be run on, which stays open; NULL: opens one with cfg */
    uint32_t chunk; /* rows a step; 0: all at once */
    bool fresh;     /* judge the first steps after loading; else the same steps were taken before,
                       with spoilt rows, so that weights have settled and old values show */
} gm_opcheck_target;

typedef struct gm_opcheck_result {
    bool passed;
    double worst; /* |difference| over the largest value of the row; infinite for NaN and for a
                     value that was not written                                              */
    uint32_t worst_row, worst_col;
    float got, want; /* there                                                                */
    uint64_t hash;   /* of the bits: equal for targets that agree in every one               */
} gm_opcheck_result;

typedef struct gm_opcheck_speed {
    double us;       /* the fastest run                               */
    double gbytes_s; /* weights, or cells of the cache, read a second */
    double gops_s;   /* additions and multiplications                 */
    uint32_t n_runs;
} gm_opcheck_speed;

typedef struct gm_opcheck gm_opcheck;

/* Makes the case's weights, inputs and plan. */
gm_status gm_opcheck_open(gm_opcheck **out, const gm_opcase *c, uint64_t seed, gm_err *err);
void gm_opcheck_close(gm_opcheck *o);

/* Runs the target, after a run over NaNs has spoilt everything it keeps, and compares it with the
 * reference, which is run the first time. A difference is no failure of this function. */
gm_status gm_opcheck_run(gm_opcheck *o, const gm_opcheck_target *t, gm_opcheck_result *r,
                         gm_err *err);

/* Runs the last step again and again for that long, three times at least. */
gm_status gm_opcheck_time(gm_opcheck *o, const gm_opcheck_target *t, double seconds,
                          gm_opcheck_speed *out, gm_err *err);

#endif
