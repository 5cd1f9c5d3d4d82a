/* SPDX-License-Identifier: MIT */
/* Waiting for a step that is expected at some time, by a mock of the two calls that it makes: asleep
 * until shortly before, then looking, then asleep again. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/vk/vk_device.h"
#include "base/clock.h"

#define VALUE 7

static struct {
    uint32_t n_short, n_long,
        n_looks;      /* calls: that sleep for a time, until it is done, and looks */
    uint32_t done_at; /* the look that finds it done */
    VkResult asleep, look;
} mock;

static VKAPI_ATTR VkResult VKAPI_CALL fake_WaitSemaphores(VkDevice d, const VkSemaphoreWaitInfo *i,
                                                          uint64_t most_ns)
{
    (void)d;
    assert_int_equal(i->pValues[0], VALUE);
    if (most_ns == UINT64_MAX) {
        mock.n_long++;
        return VK_SUCCESS;
    }
    mock.n_short++;
    return mock.asleep;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_GetSemaphoreCounterValue(VkDevice d, VkSemaphore s,
                                                                    uint64_t *value)
{
    (void)d, (void)s;
    *value = ++mock.n_looks >= mock.done_at ? VALUE : VALUE - 1;
    return mock.look;
}

static gm_status wait_until(double when_s)
{
    gm_vk_dev d = {.vk = {.vkWaitSemaphores = fake_WaitSemaphores,
                          .vkGetSemaphoreCounterValue = fake_GetSemaphoreCounterValue}};
    gm_err err = {0};
    mock.n_short = mock.n_long = mock.n_looks = 0;
    return gm_vk_wait_until(&d, VALUE, when_s, &err);
}

static void done_while_asleep(void **state)
{
    (void)state;
    mock.asleep = VK_SUCCESS;
    assert_int_equal(wait_until(gm_clock_s() + 1000), GM_OK);
    assert_int_equal(mock.n_short, 1);
    assert_int_equal(mock.n_looks + mock.n_long, 0);
}

static void done_while_looked_for(void **state)
{
    (void)state;
    mock.asleep = VK_TIMEOUT;
    mock.done_at = 3;
    mock.look = VK_SUCCESS;
    assert_int_equal(wait_until(gm_clock_s() + 1000), GM_OK);
    assert_int_equal(mock.n_short, 1);
    assert_int_equal(mock.n_looks, 3);
    assert_int_equal(mock.n_long, 0);
}

/* Nobody looks for what should have been done long ago. */
static void late(void **state)
{
    (void)state;
    assert_int_equal(wait_until(0), GM_OK);
    assert_int_equal(mock.n_looks + mock.n_short, 0);
    assert_int_equal(mock.n_long, 1);
}

static void lost(void **state)
{
    (void)state;
    mock.asleep = VK_TIMEOUT;
    mock.done_at = UINT32_MAX;
    mock.look = VK_ERROR_DEVICE_LOST;
    assert_int_equal(wait_until(gm_clock_s() + 1000), GM_E_LOST);
    assert_int_equal(mock.n_looks, 1);
    mock.asleep = VK_ERROR_DEVICE_LOST;
    assert_int_equal(wait_until(gm_clock_s() + 1000), GM_E_LOST);
    assert_int_equal(mock.n_looks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(done_while_asleep),
        cmocka_unit_test(done_while_looked_for),
        cmocka_unit_test(late),
        cmocka_unit_test(lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
