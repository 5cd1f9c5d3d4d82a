/* SPDX-License-Identifier: MIT */
/* tokenizer_config.json over a vocabulary of three pieces, and what becomes of that. */
#include "file/hf.h"
#include "file/hf_vocab.h"
#include "fuzz/fuzz_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_err err = {0};
    gm_hf_vocab v = {0};
    gm_tensorfile *const f = fuzz_file();
    FUZZ_CHECK(gm_hf_vocab_init(f, &v, 3, NULL) == GM_OK);
    FUZZ_CHECK(gm_hf_vocab_add(f, &v, 1, GM_STR("<bos>"), true, NULL) == GM_OK);
    FUZZ_CHECK(gm_hf_vocab_add(f, &v, 2, GM_STR("\xE2\x96\x81x"), false, NULL) == GM_OK);
    FUZZ_CHECK(gm_hf_vocab_put(f, &v, NULL) == GM_OK);
    if (fuzz_ok(gm_hf_tokenizer_config_parse(f, data, size, "fuzz", &err), &err))
        fuzz_vocab_try(&f->meta, 1);
    gm_tensorfile_close(f);
    return 0;
}
