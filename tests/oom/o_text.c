/* SPDX-License-Identifier: MIT */
/* Text in and out while allocations fail: tokenizing, the chat format, text of tokens. What was appended to before a failure stays as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fuzz/fuzz_vocab.h"
#include "model/model.h"
#include "oom/failalloc.h"
#include "text/chat.h"

static gm_model *model;

#define TEXT \
    "Hello,  world! <start_of_turn> \xC3\xA9\xF0\x9F\x98\x80\xFF one two three four five six"

static gm_status tokenized(gm_err *err)
{
    gm_ids ids = {0};
    gm_status status = GM_OK;
    for (uint32_t flags = 0; flags < 4 && status == GM_OK; flags++) {
        const size_t before = ids.n;
        status = gm_model_tokenize(model, TEXT, sizeof TEXT - 1, flags, &ids, err);
        assert_true(status == GM_OK ? ids.n > before : ids.n == before);
    }
    gm_ids_deinit(&ids);
    return status;
}

static gm_status chatted(gm_err *err)
{
    static const gm_message MESSAGES[] = {
        {"system", "Be brief.", 9},
        {"user", TEXT, sizeof TEXT - 1},
        {"assistant", TEXT, sizeof TEXT - 1},
        {"user", "And?", 4},
    };
    gm_ids ids = {0}; /* the model's own vocabulary has no turns */
    const gm_status status = gm_chat_encode(fuzz_vocab(0), MESSAGES, 4, &ids, err);
    assert_true((status == GM_OK) == (ids.n > 0));
    gm_ids_deinit(&ids);
    return status;
}

static gm_status detokenized(gm_err *err)
{
    gm_detok d = {0};
    gm_strbuf text = {0};
    for (int32_t id = 0; gm_vocab_has(model->vocab, id); id++)
        gm_detok_put(&d, model->vocab, id, &text);
    gm_detok_end(&d, &text);
    const gm_status status = gm_strbuf_status(&text, err);
    assert_true(status != GM_OK || text.len > 200);
    gm_strbuf_deinit(&text);
    return status;
}

static int model_open(void **state)
{
    (void)state;
    return (int)gm_model_open(&model, "tests/golden/gqa4", NULL);
}

static int model_close(void **state)
{
    (void)state;
    gm_model_close(model);
    return 0;
}

static void tokenize(void **state)
{
    (void)state;
    oom_sweep("tokenize", tokenized);
}

static void chat(void **state)
{
    (void)state;
    oom_sweep("chat", chatted);
}

static void detok(void **state)
{
    (void)state;
    oom_sweep("detok", detokenized);
}

int main(void)
{
    const struct CMUnitTest o_text[] = {
        cmocka_unit_test(tokenize),
        cmocka_unit_test(chat),
        cmocka_unit_test(detok),
    };
    return cmocka_run_group_tests(o_text, model_open, model_close);
}
