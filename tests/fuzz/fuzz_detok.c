/* SPDX-License-Identifier: MIT */
/* Two bytes an id, over a vocabulary with every kind of piece and past its end. */
#include "fuzz/fuzz_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const gm_vocab *const v = fuzz_vocab(0);
    gm_ids ids = {0};
    gm_strbuf text = {0};
    for (size_t i = 0; i + 2 <= size; i += 2) {
        const int32_t id = (int16_t)(data[i] | data[i + 1] << 8);
        FUZZ_CHECK(gm_ids_push(&ids, id, NULL) == GM_OK);
    }
    fuzz_decode(v, &ids, &text);
    gm_strbuf_deinit(&text);
    gm_ids_deinit(&ids);
    return 0;
}
