/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "toolbox/importance.h"

static void finds_what_was_added(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_importance *imp = NULL;
    float *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(gm_importance_make(&imp, 2, &err), GM_OK);
    assert_int_equal(gm_importance_add(imp, "blk.0.attn_q.weight", 3, &a, &err), GM_OK);
    assert_int_equal(gm_importance_add(imp, "output.weight", 2, &b, &err), GM_OK);
    assert_int_equal(gm_importance_add(imp, "one too many", 2, &c, &err), GM_E_ARG);
    assert_null(c);
    a[2] = 5;
    b[0] = 7;
    assert_ptr_equal(gm_importance_find(imp, "blk.0.attn_q.weight", 3), a);
    assert_true(gm_importance_find(imp, "output.weight", 2)[0] == 7.0f);
    assert_null(gm_importance_find(imp, "blk.0.attn_q.weight", 4));
    assert_null(gm_importance_find(imp, "blk.1.attn_q.weight", 3));
    assert_null(gm_importance_find(NULL, "output.weight", 2));
    gm_importance_free(imp);
    gm_importance_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_what_was_added)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
