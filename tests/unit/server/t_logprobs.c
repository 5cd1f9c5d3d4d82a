/* SPDX-License-Identifier: MIT */
/* Log-probabilities come out with their tokens' text, or never; what was sent is gone. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/logprobs.h"

static void add(gm_logprobs *l, const char *one, const char *other)
{
    gm_strbuf_printf(&l->list[0], "%s,", one);
    gm_strbuf_printf(&l->list[3], "%s,", other);
}

static void expect(const gm_logprobs *l, const char *one, const char *other)
{
    const gm_str a = gm_logprobs_list(l, 0), b = gm_logprobs_list(l, 3);
    assert_true(gm_str_eq(a, gm_str_c(one)));
    assert_true(gm_str_eq(b, gm_str_c(other)));
    assert_int_equal(gm_logprobs_any(l), one[0] != '\0');
}

static void test_at_once(void **state)
{
    (void)state;
    gm_logprobs l = {0};
    expect(&l, "", "");
    add(&l, "a", "10");
    add(&l, "bc", "2");
    expect(&l, "a,bc", "10,2");
    assert_int_equal(gm_logprobs_size(&l), 10);
    gm_logprobs_sent(&l);
    expect(&l, "", "");
    add(&l, "d", "3");
    expect(&l, "d", "3");
    assert_false(gm_logprobs_failed(&l));
    gm_logprobs_deinit(&l);
}

static void test_held(void **state)
{
    (void)state;
    gm_logprobs l = {0};
    const char *const names[] = {"a", "bc", "d", "ef"};
    for (size_t i = 0; i < 4; i++) {
        gm_logprobs_hold(&l, 10 * i);
        add(&l, names[i], "7");
    }
    expect(&l, "", "");
    gm_logprobs_let_out(&l, 0);
    expect(&l, "", "");
    gm_logprobs_let_out(&l, 11); /* the second one's text has begun */
    expect(&l, "a,bc", "7,7");
    gm_logprobs_sent(&l);
    expect(&l, "", "");
    gm_logprobs_let_out(&l, 20);
    expect(&l, "", "");
    gm_logprobs_let_out(&l, 21);
    expect(&l, "d", "7");
    gm_logprobs_let_out(&l, SIZE_MAX);
    expect(&l, "d,ef", "7,7");
    gm_logprobs_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_held),
    };
    return cmocka_run_group_tests_name("t_logprobs", tests, NULL, NULL);
}
