/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fp16.h"
#include "fixtures/chance.h"
#include "fixtures/vk/gpu.h"
#include "quant/qtype.h"

/* What the tool chain and the driver promise, before any kernel: buffers by address, timeline
 * semaphores, spec constants, the generated table. */

#define BLOCKS 7
#define VALUES (BLOCKS * 32)

static gpu g;

static int open_device(void **state)
{
    (void)state;
    const char *const why = gpu_open(&g);
    if (why != NULL) {
        print_message("skip: %s\n", why);
        return 0;
    }
    print_message("%s (%s), Vulkan %u.%u.%u, subgroups %u to %u, needs 0x%x\n", g.name, g.driver,
                  VK_API_VERSION_MAJOR(g.api), VK_API_VERSION_MINOR(g.api),
                  VK_API_VERSION_PATCH(g.api), g.subgroup_min, g.subgroup_max, g.needs);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_close(&g);
    return 0;
}

static void the_table_is_whole(void **state)
{
    (void)state;
    assert_true(gm_vk_n_shaders > 0);
    for (uint32_t i = 0; i < gm_vk_n_shaders; i++) {
        const gm_vk_shader *const s = &gm_vk_shaders[i];
        assert_ptr_equal(gpu_shader(s->name), s);
        assert_true(s->n_words > 5);
        assert_int_equal(s->words[0], 0x07230203);
        assert_int_equal(s->words[1], 0x00010600);
        assert_true(s->type == GM_VK_NO_TYPE || gm_qtype_find((uint32_t)s->type) != NULL);
        assert_true(s->n_spec <= GPU_SPEC_MAX);
    }
}

static VkPipeline pipeline(const gm_vk_shader *s, uint32_t lanes)
{
    assert_non_null(s);
    const VkPipeline p = gpu_pipeline(&g, s, &lanes, 0);
    assert_non_null(p);
    return p;
}

static void a_shader_reads_by_address(void **state)
{
    (void)state;
    if (g.device == NULL) skip();
    const gm_qtype_info *const type = gm_qtype_find(GM_QTYPE_Q4_0);
    const gm_vk_shader *const s = gpu_shader("dequant.q4_0");
    chance c = {1};
    gpu_buffer src, dst;
    assert_true(gpu_alloc(&g, BLOCKS * type->block_size, &src));
    assert_true(gpu_alloc(&g, VALUES * sizeof(float), &dst));
    chance_row(&c, type, VALUES, src.map);
    float want[VALUES];
    gm_qtype_expand(type, src.map, VALUES, want);

    for (uint32_t i = 0; i < s->spec[0].n_legal; i++) {
        const uint32_t lanes = s->spec[0].legal[i];
        const VkPipeline p = pipeline(s, lanes);
        const struct {
            uint64_t src, dst;
            uint32_t n;
        } push = {src.address, dst.address, VALUES - 3};
        memset(dst.map, 0xff, VALUES * sizeof(float));
        assert_int_equal(gpu_run(&g, p, &push, 20, (VALUES + lanes - 1) / lanes), VK_SUCCESS);
        assert_memory_equal(dst.map, want, (VALUES - 3) * sizeof(float));
        assert_int_equal(((const uint32_t *)dst.map)[VALUES - 3], 0xffffffff);
        g.vk.vkDestroyPipeline(g.device, p, NULL);
    }
    gpu_free(&g, &src);
    gpu_free(&g, &dst);
}

static void bytes_are_multiplied_signed(void **state)
{
    (void)state;
    enum { N = 33, BYTES = N * 16 };
    if (!(g.needs & GM_VK_NEEDS_INT_DOT8)) skip();
    chance c = {2};
    gpu_buffer a, b, dst;
    assert_true(gpu_alloc(&g, BYTES, &a));
    assert_true(gpu_alloc(&g, BYTES, &b));
    assert_true(gpu_alloc(&g, 256, &dst));
    int32_t want = 0;
    for (int i = 0; i < BYTES; i++) {
        ((int8_t *)a.map)[i] = i == 0 ? -128 : (int8_t)chance_below(&c, 256);
        ((int8_t *)b.map)[i] = i == 0 ? -128 : (int8_t)chance_below(&c, 256);
        want += ((int8_t *)a.map)[i] * ((int8_t *)b.map)[i];
    }
    const struct {
        uint64_t a, b, dst;
        uint32_t n;
    } push = {a.address, b.address, dst.address, N};
    const VkPipeline p = pipeline(gpu_shader("dot_probe"), 64);
    assert_int_equal(gpu_run(&g, p, &push, 28, 1), VK_SUCCESS);
    assert_int_equal(((const int32_t *)dst.map)[0], want);
    g.vk.vkDestroyPipeline(g.device, p, NULL);
    gpu_free(&g, &a);
    gpu_free(&g, &b);
    gpu_free(&g, &dst);
}

static void matrices_are_multiplied(void **state)
{
    (void)state;
    enum { K = 48 };
    if (!(g.needs & GM_VK_NEEDS_COOPMAT_F16)) {
        print_message("skip: this device has no cooperative matrices\n");
        skip();
    }
    chance c = {3};
    gpu_buffer a, b, dst;
    assert_true(gpu_alloc(&g, 16 * K * sizeof(uint16_t), &a));
    assert_true(gpu_alloc(&g, 16 * K * sizeof(uint16_t), &b));
    assert_true(gpu_alloc(&g, 256 * sizeof(float), &dst));
    float u[16 * K], v[16 * K];
    for (int i = 0; i < 16 * K; i++) {
        /* Small integers: every sum is exact, in any order. */
        u[i] = (float)chance_below(&c, 9) - 4;
        v[i] = (float)chance_below(&c, 9) - 4;
        ((uint16_t *)a.map)[i] = gm_f32_to_f16(u[i]);
        ((uint16_t *)b.map)[i] = gm_f32_to_f16(v[i]);
    }
    const struct {
        uint64_t a, b, dst;
        uint32_t k;
    } push = {a.address, b.address, dst.address, K};
    const VkPipeline p = pipeline(gpu_shader("mma_probe"), g.subgroup_max);
    assert_int_equal(gpu_run(&g, p, &push, 28, 1), VK_SUCCESS);
    for (int i = 0; i < 256; i++) {
        float want = 0;
        for (int k = 0; k < K; k++)
            want += u[i / 16 * K + k] * v[i % 16 * K + k];
        assert_true(((const float *)dst.map)[i] == want);
    }
    g.vk.vkDestroyPipeline(g.device, p, NULL);
    gpu_free(&g, &a);
    gpu_free(&g, &b);
    gpu_free(&g, &dst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(a_shader_reads_by_address),
        cmocka_unit_test(bytes_are_multiplied_signed),
        cmocka_unit_test(matrices_are_multiplied),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
