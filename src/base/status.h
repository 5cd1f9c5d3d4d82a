/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_STATUS_H
#define GM_BASE_STATUS_H

/* How everything inside reports failure. gm_status and gm_err are public
 * (gemmule.h); here is how they are filled.
 *
 * A function that can fail returns gm_status and takes gm_err *err last. The
 * place that detects the failure writes the sentence, with the file, the thing,
 * what was found and what was expected; nobody rewrites it on the way up. */

#include <stddef.h>

#include "gemmule.h"

/* Fills *err (which may be NULL) with one sentence and returns code, so that a
 * failure is one line. Bytes that are not printable ASCII become '?' unless they
 * are valid UTF-8, so that a sentence quoting a file can be shown anywhere. */
gm_status gm_fail(gm_err *err, gm_status code, int os, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Returns from the calling function when the call did not answer GM_OK. */
#define GM_TRY(call)                                        \
    do {                                                    \
        const gm_status gm_try_status_ = (call);            \
        if (gm_try_status_ != GM_OK) return gm_try_status_; \
    } while (0)

/* The same with one cleanup label: sets the variable `status` and jumps to `done`. */
#define GM_TRY_DONE(call)               \
    do {                                \
        status = (call);                \
        if (status != GM_OK) goto done; \
    } while (0)

#endif
