/* SPDX-License-Identifier: MIT */
#ifndef GM_TESTS_FUZZ_H
#define GM_TESTS_FUZZ_H

/* What the fuzz targets share. A target is one function; libFuzzer's driver or
 * replay.c calls it with bytes that lie in a block of exactly their size, so that
 * AddressSanitizer sees every read past the end. What must hold for every input is
 * said with FUZZ_CHECK, which ends the process. */

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "file/tensorfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(truth)                                                       \
    do {                                                                        \
        if (!(truth)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #truth); \
            abort();                                                            \
        }                                                                       \
    } while (0)

/* An empty file to parse into; gm_tensorfile_close frees it. */
static inline gm_tensorfile *fuzz_file(void)
{
    gm_tensorfile *f = NULL;
    FUZZ_CHECK(gm_mem_alloc(&f, 1, sizeof *f, "a file", NULL) == GM_OK);
    f->path = f->meta.file = "fuzz";
    return f;
}

/* A refusal has its code and one sentence; true for GM_OK. Memory never runs out here, so nothing
 * may claim that: a claim means that a size was taken from the input unchecked. */
static inline bool fuzz_ok(gm_status status, const gm_err *err)
{
    if (status == GM_OK) return true;
    FUZZ_CHECK(status != GM_E_NOMEM);
    FUZZ_CHECK(err->code == status);
    FUZZ_CHECK(err->msg[0] != '\0' && !strchr(err->msg, '\n'));
    return false;
}

/* Every tensor's bytes lie within the input. */
static inline void fuzz_tensors_check(const gm_tensorfile *f, const uint8_t *data, size_t size)
{
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const gm_tensor *const t = &f->tensors[i];
        FUZZ_CHECK(t->name && t->type && t->n_dims >= 1 && t->n_dims <= GM_TENSOR_DIMS);
        FUZZ_CHECK(t->data >= data && t->data <= data + size);
        FUZZ_CHECK(t->size <= (uint64_t)(data + size - t->data));
        FUZZ_CHECK(gm_tensor_rows(t) * gm_tensor_row_size(t) == t->size);
    }
}

#endif
