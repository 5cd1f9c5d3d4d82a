/* SPDX-License-Identifier: MIT */
/* tokenizer.model, and the vocabulary it makes. */
#include "file/hf.h"
#include "fuzz/fuzz_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_err err = {0};
    gm_tensorfile *const f = fuzz_file();
    if (fuzz_ok(gm_sp_model_parse(f, data, size, "fuzz", &err), &err)) fuzz_vocab_try(&f->meta, 3);
    gm_tensorfile_close(f);
    return 0;
}
