/* SPDX-License-Identifier: MIT */
/* Lists of dispatches. What they become on a device is t_vk_model's. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/vk/vk_record.h"

/* A list of which every third dispatch is a product, each longer than the one before. */
static void test_cuts(void **state)
{
    (void)state;
    gm_vk_dispatch at[40] = {{0}};
    const gm_vk_list list = {.at = at, .n = 40};
    double all = 0;
    for (uint32_t i = 0; i < 40; i++) {
        at[i].work = i % 3 == 2 ? 1000.0 * i : 0;
        all += at[i].work;
    }
    for (double most = 100; most < 2 * all; most *= 1.3) {
        size_t ends[40], first = 0;
        const uint32_t n = gm_vk_list_cut(&list, most, ends);
        assert_true(n <= 2 * all / most + 1);
        assert_int_equal(n == 1, most >= all);
        assert_int_equal(ends[n - 1], 40);
        for (uint32_t i = 0; i < n; first = ends[i++]) {
            double work = 0;
            uint32_t n_products = 0;
            assert_true(ends[i] > first);
            for (size_t k = first; k < ends[i]; k++) {
                work += at[k].work;
                n_products += at[k].work > 0;
            }
            assert_true(n_products == 1 || (n_products > 1 && work <= most));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
