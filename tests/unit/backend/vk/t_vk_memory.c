/* SPDX-License-Identifier: MIT */
/* Which heap a buffer comes from, on made-up machines: no device is opened, for the one that tests run
 * on has a single heap. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/vk/vk_device.h"

#define OWN  VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define SEEN (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define MIB  (1ull << 20)
#define GIB  (1ull << 30)

/* An APU as RADV shows it: a carve-out, and the rest of the machine's memory. */
static gm_vk_dev apu(void)
{
    return (gm_vk_dev){
        .unified = true,
        .mem = {.memoryHeapCount = 2,
                .memoryHeaps = {{12 * GIB, 0}, {512 * MIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
                .memoryTypeCount = 4,
                .memoryTypes = {{OWN, 1},
                                {SEEN, 0},
                                {OWN | SEEN, 1},
                                {SEEN | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 0}}},
    };
}

/* A card of 8 GiB with a window of 256 MiB for the host. */
static gm_vk_dev card(void)
{
    return (gm_vk_dev){
        .mem = {.memoryHeapCount = 3,
                .memoryHeaps = {{8 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                                {32 * GIB, 0},
                                {256 * MIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
                .memoryTypeCount = 3,
                .memoryTypes = {{OWN, 0},
                                {SEEN | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 1},
                                {OWN | SEEN, 2}}},
    };
}

static void assert_type(const gm_vk_dev *d, gm_vk_memkind kind, uint64_t size, uint32_t want)
{
    uint32_t type = UINT32_MAX;
    assert_true(gm_vk_dev_type_for(d, kind, size, UINT32_MAX, &type));
    assert_int_equal(type, want);
}

static void an_apu_goes_on_in_the_host_s_memory(void **state)
{
    (void)state;
    gm_vk_dev d = apu();
    gm_err err = {0};
    assert_int_equal(gm_vk_dev_find_types(&d, &err), GM_OK);
    assert_int_equal(gm_vk_dev_room(&d), 12 * GIB + 512 * MIB);
    assert_type(&d, GM_VK_LOCAL, 300 * MIB, 2);
    d.count.held[1] = 300 * MIB;
    assert_type(&d, GM_VK_LOCAL, 300 * MIB, 1);
    assert_type(&d, GM_VK_LOCAL, 100 * MIB, 2);
    assert_int_equal(gm_vk_dev_room(&d), 12 * GIB + 212 * MIB);
    assert_type(&d, GM_VK_RESULT, MIB, 3);
    assert_type(&d, GM_VK_LOCAL, 64 * GIB, 2); /* nowhere: the driver will refuse it */
}

static void a_card_keeps_weights_on_itself(void **state)
{
    (void)state;
    gm_vk_dev d = card();
    gm_err err = {0};
    assert_int_equal(gm_vk_dev_find_types(&d, &err), GM_OK);
    assert_int_equal(gm_vk_dev_room(&d), 8 * GIB + 256 * MIB);
    assert_type(&d, GM_VK_LOCAL, GIB, 0);
    assert_type(&d, GM_VK_STEP, MIB, 2);
    assert_type(&d, GM_VK_STAGING, MIB, 1);
    d.count.held[2] = 256 * MIB;
    assert_type(&d, GM_VK_STEP, MIB, 1);
}

static void what_a_buffer_may_not_have_is_passed_over(void **state)
{
    (void)state;
    gm_vk_dev d = apu();
    gm_err err = {0};
    uint32_t type = 0;
    assert_int_equal(gm_vk_dev_find_types(&d, &err), GM_OK);
    assert_true(gm_vk_dev_type_for(&d, GM_VK_LOCAL, MIB, 1u << 1, &type));
    assert_int_equal(type, 1);
    assert_false(gm_vk_dev_type_for(&d, GM_VK_LOCAL, MIB, 1u << 9, &type));
}

static void memory_that_nobody_sees_is_refused(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_vk_dev d = {.props = {.deviceName = "a card"},
                   .mem = {.memoryHeapCount = 1,
                           .memoryHeaps = {{GIB, 0}},
                           .memoryTypeCount = 1,
                           .memoryTypes = {{OWN, 0}}}};
    assert_int_equal(gm_vk_dev_find_types(&d, &err), GM_E_UNSUP);
    assert_string_equal(err.msg, "vulkan: a card has no memory that the host can write");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_apu_goes_on_in_the_host_s_memory),
        cmocka_unit_test(a_card_keeps_weights_on_itself),
        cmocka_unit_test(what_a_buffer_may_not_have_is_passed_over),
        cmocka_unit_test(memory_that_nobody_sees_is_refused),
    };
    return cmocka_run_group_tests_name("t_vk_memory", tests, NULL, NULL);
}
