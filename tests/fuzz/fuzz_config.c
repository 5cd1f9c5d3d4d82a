/* SPDX-License-Identifier: MIT */
/* config.json, translated and then read as a model's numbers; the same bytes as
 * generation_config.json. */
#include "file/hf.h"
#include "fuzz/fuzz.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_err err = {0};
    gm_arena arena = {0};
    gm_config config;
    gm_tensorfile *f = fuzz_file();
    if (fuzz_ok(gm_hf_config_parse(f, data, size, "fuzz", &err), &err) &&
        fuzz_ok(gm_config_read(&config, &f->meta, &arena, &err), &err))
        FUZZ_CHECK(config.n_head % config.n_kv_head == 0 && config.head_dim % 2 == 0);
    gm_arena_deinit(&arena);
    gm_tensorfile_close(f);

    f = fuzz_file();
    (void)fuzz_ok(gm_hf_generation_parse(f, data, size, "fuzz", &err), &err);
    gm_tensorfile_close(f);
    return 0;
}
