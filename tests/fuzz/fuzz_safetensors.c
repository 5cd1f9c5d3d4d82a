/* SPDX-License-Identifier: MIT */
/* A safetensors file, and the name of a tensor that the index of a sharded model lists. */
#include "file/hf.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_err err = {0};
    char name[GM_HF_NAME_MAX];
    const gm_hf_name kind = gm_hf_tensor_name((gm_str){(const char *)data, size}, name);
    FUZZ_CHECK((kind == GM_HF_NAME_TEXT) == (name[0] != '\0'));

    gm_tensorfile *const f = fuzz_file();
    if (fuzz_ok(gm_safetensors_parse(f, data, size, "fuzz", &err), &err))
        fuzz_tensors_check(f, data, size);
    gm_tensorfile_close(f);
    return 0;
}
