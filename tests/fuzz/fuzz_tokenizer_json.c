/* SPDX-License-Identifier: MIT */
/* tokenizer.json, and the vocabulary it makes. */
#include "file/hf.h"
#include "fuzz/fuzz_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_err err = {0};
    gm_tensorfile *const f = fuzz_file();
    if (fuzz_ok(gm_hf_tokenizer_parse(f, data, size, "fuzz", &err), &err))
        fuzz_vocab_try(&f->meta, 0);
    gm_tensorfile_close(f);
    return 0;
}
