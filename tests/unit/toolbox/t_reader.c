/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fixtures/tinymodel.h"
#include "toolbox/reader.h"

static gm_err err;

/* Every byte is a token of the tiny vocabulary. */
static void windows_begin_with_bos(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_layer = 1});
    gm_model *const m = tiny_open(&t, "pages.gguf");
    gm_pages p = {0};
    assert_int_equal(gm_pages_init(&p, m, GM_STR("abcdefgh"), 4, &err), GM_OK);
    assert_int_equal(p.ids.n, 11); /* 3 + 3 + 2, and a <bos> each */
    for (size_t i = 0; i < p.ids.n; i++) {
        assert_int_equal(p.ids.at[i] == 2, i % 4 == 0);
        const bool last = i % 4 == 3 || i == 10;
        assert_int_equal(gm_pages_target(&p, (uint32_t)i), last ? GM_NO_TOKEN : p.ids.at[i + 1]);
    }
    static const uint32_t chunks[] = {3, 1, 3, 1, 3};
    uint32_t at = 0;
    for (size_t i = 0; i < 5; at += chunks[i++])
        assert_int_equal(gm_pages_chunk(&p, at, 3), chunks[i]);
    assert_int_equal(gm_pages_chunk(&p, at, 3), 0);
    assert_int_equal(gm_pages_steps(&p, 3), 5);
    assert_int_equal(gm_pages_steps(&p, 512), 3);
    assert_int_equal(gm_pages_steps(&p, 1), 11);
    gm_pages_deinit(&p);
    assert_int_equal(gm_pages_init(&p, m, GM_STR(""), 4, &err), GM_E_FORMAT);
    assert_non_null(strstr(err.msg, "it has 0 tokens"));
    gm_pages_deinit(&p);
    gm_model_close(m);
    tiny_deinit(&t);
}

static void rows_fit(void **state)
{
    (void)state;
    assert_int_equal(gm_reader_rows(4), 64);
    assert_int_equal(gm_reader_rows(8 << 20), 32);
    assert_int_equal(gm_reader_rows((8 << 20) + 1), 16);
    assert_int_equal(gm_reader_rows((uint64_t)1 << 40), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_begin_with_bos),
        cmocka_unit_test(rows_fit),
    };
    return cmocka_run_group_tests_name("t_reader", tests, tiny_setup, tiny_teardown);
}
