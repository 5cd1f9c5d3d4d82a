/* SPDX-License-Identifier: MIT */
#ifndef GM_CHECK_SELFTEST_H
#define GM_CHECK_SELFTEST_H

/* Whether the kernels of a device are right with the driver that is here: the op table's main cases
 * at every size of step. gm_selftest_run (gemmule.h) shows all of it; what follows is the part that
 * an engine wants to know before it uses a device. One thread. */

#include "backend/backend.h"

typedef struct gm_selftest_wish {
    const gm_tensors *weights; /* whose types are tried              */
    gm_qtype kv_type;
    const char *dir;      /* where it is remembered what was right, or NULL */
    gm_note note;         /* told where that does not work       */
    gm_note begins;       /* told, before anything is tried, that it takes a moment */
    gm_progress progress; /* told of ops that are done, before and after each try   */
} gm_selftest_wish;

/* Tries what a model with such weights will use most, within a second on a GPU, unless the folder
 * says that this device, driver and build had it right. Does nothing where the backend has no
 * device. GM_E_UNSUP, with the op that is wrong; GM_E_CANCEL, and nothing is remembered. */
gm_status gm_selftest_trust(const gm_backend_ops *ops, gm_backend *be, const gm_selftest_wish *wish,
                            gm_err *err);

#endif
