/* SPDX-License-Identifier: MIT */
/* From the bytes of a GGUF file to everything a model has before it runs: numbers, weights,
 * vocabulary, plan. */
#include "file/gguf.h"
#include "fuzz/fuzz_vocab.h"
#include "model/model.h"

static gm_status load(gm_model *m, const uint8_t *data, size_t size, gm_err *err)
{
    GM_TRY(gm_gguf_parse(m->file, data, size, "fuzz", err));
    GM_TRY(gm_config_read(&m->config, &m->file->meta, &m->arena, err));
    GM_TRY(gm_model_bind(m, err));
    const uint64_t n_rows = gm_tensor_rows(&m->tensors[m->embed]);
    GM_TRY(gm_vocab_open(&m->vocab, &m->file->meta, n_rows, err));
    m->plan.weights = (gm_tensors){.at = m->tensors, .n = m->n_tensors};
    gm_gemma3_plan(&m->plan, m);
    return gm_plan_finish(&m->plan, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gm_err err = {0};
    gm_model *m = NULL;
    FUZZ_CHECK(gm_mem_alloc(&m, 1, sizeof *m, "a model", NULL) == GM_OK);
    m->file = fuzz_file();
    if (fuzz_ok(load(m, data, size, &err), &err)) {
        gm_strbuf text = {0};
        gm_plan_print(&m->plan, &text);
        FUZZ_CHECK(text.len > 0);
        gm_strbuf_deinit(&text);
        fuzz_tensors_check(m->file, data, size);
    }
    if (m->file->meta.n) fuzz_vocab_try(&m->file->meta, 0);
    gm_model_close(m);
    return 0;
}
