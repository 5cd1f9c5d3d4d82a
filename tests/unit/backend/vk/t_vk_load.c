/* SPDX-License-Identifier: MIT */
/* Weights on their way to a card whose memory the host cannot see: through all parts of the stage,
 * several times over, every byte arrives where it belongs. No such card runs here, so the device's
 * table of functions is made to say that its memory has no map (a mock of one function); the copies
 * are real. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "fixtures/chance.h"

#define STAGE     (4ull << 25) /* vk_load.c: four parts of 32 MiB               */
#define ROOF_MAPS 1            /* vk_roof.c: its buffer is hidden, its stage not */

static const gm_backend_ops *const ops = &gm_backend_vulkan;

static struct {
    PFN_vkMapMemory map;
    PFN_vkAllocateMemory alloc;
    uint64_t size;  /* of the last allocation         */
    uint32_t n_map; /* maps that were asked for so far */
} real;

static VKAPI_ATTR VkResult VKAPI_CALL alloc(VkDevice d, const VkMemoryAllocateInfo *info,
                                            const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    real.size = info->allocationSize;
    return real.alloc(d, info, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL map_stage(VkDevice d, VkDeviceMemory m, VkDeviceSize off,
                                                VkDeviceSize size, VkMemoryMapFlags flags,
                                                void **out)
{
    *out = NULL;
    return real.size == STAGE || real.n_map++ == ROOF_MAPS ? real.map(d, m, off, size, flags, out)
                                                           : VK_SUCCESS;
}

static void hide_memory(gm_vk_dev *d)
{
    real.n_map = 0;
    real.map = d->vk.vkMapMemory;
    real.alloc = d->vk.vkAllocateMemory;
    d->vk.vkMapMemory = map_stage;
    d->vk.vkAllocateMemory = alloc;
}

static void show_memory(gm_vk_dev *d)
{
    d->vk.vkMapMemory = real.map;
    d->vk.vkAllocateMemory = real.alloc;
}

/* Odd numbers of rows and blocks, vectors between matrices, and enough to fill the stage more than
 * once. */
static const struct {
    gm_qtype type;
    uint64_t rows, cols;
} shapes[] = {
    {GM_QTYPE_F32, 1, 640},       {GM_QTYPE_Q4_0, 37, 160},    {GM_QTYPE_Q6_K, 1001, 768},
    {GM_QTYPE_F16, 7001, 4096},   {GM_QTYPE_Q8_0, 9000, 4096}, {GM_QTYPE_Q4_K, 5, 256},
    {GM_QTYPE_F32, 1, 33},        {GM_QTYPE_Q5_K, 257, 512},   {GM_QTYPE_Q3_K, 16, 256},
    {GM_QTYPE_Q4_1, 15000, 4096}, {GM_QTYPE_F32, 11, 130},     {GM_QTYPE_IQ4_XS, 99, 512},
};
#define N (sizeof shapes / sizeof *shapes)

static uint64_t make_tensors(gm_tensor tensors[N], uint8_t **bytes)
{
    uint64_t size = 0, at = 0;
    chance c = {3};
    for (size_t i = 0; i < N; i++) {
        gm_tensor *const t = &tensors[i];
        *t = (gm_tensor){.name = "made up", .type = gm_qtype_find(shapes[i].type)};
        t->n_dims = shapes[i].rows == 1 ? 1 : 2;
        t->shape[0] = shapes[i].rows == 1 ? shapes[i].cols : shapes[i].rows;
        t->shape[1] = t->n_dims == 2 ? shapes[i].cols : 0;
        t->size = gm_tensor_rows(t) * gm_tensor_row_size(t);
        size += t->size;
    }
    *bytes = malloc(size);
    assert_non_null(*bytes);
    for (uint64_t i = 0; i < size; i++)
        (*bytes)[i] = (uint8_t)chance_below(&c, 123); /* no scale of half is a NaN */
    for (size_t i = 0; i < N; at += tensors[i++].size)
        tensors[i].data = *bytes + at;
    return size;
}

/* Whatever is not padding, which nobody writes: where two backgrounds show the same. */
static void assert_arrived(const gm_tensor *t, const uint8_t *got)
{
    gm_vk_planes p = {0};
    assert_int_equal(gm_vk_planes_of(t, &p, NULL), GM_OK);
    uint8_t *const a = malloc(2 * p.size), *const b = a + p.size;
    memset(a, 0, p.size);
    memset(b, 255, p.size);
    for (int i = 0; i < 2; i++) {
        uint8_t *to[GM_VK_PLANES];
        for (int k = 0; k < GM_VK_PLANES; k++)
            to[k] = (i ? b : a) + p.off[k];
        gm_vk_pack_rows(t, 0, gm_tensor_rows(t), to);
    }
    uint64_t n = 0;
    for (uint64_t i = 0; i < p.size; i++) {
        if (a[i] != b[i]) continue;
        n++;
        if (got[i] != a[i])
            fail_msg("%s, byte %llu is %d, not %d", t->type->name, (unsigned long long)i, got[i],
                     a[i]);
    }
    assert_true(n >= t->size * 9 / 10);
    free(a);
}

static void test_staged(void **state)
{
    (void)state;
    gm_tensor tensors[N];
    uint8_t *bytes = NULL;
    gm_backend *be = NULL;
    gm_wset *w = NULL;
    gm_err err = {0};
    assert_true(make_tensors(tensors, &bytes) > STAGE);
    if (ops->open(&be, &(gm_backend_cfg){0}, &err) != GM_OK) fail_msg("%s", err.msg);
    hide_memory(&be->dev);
    const gm_status status = ops->load(be, &(gm_tensors){.at = tensors, .n = N}, NULL, &w, &err);
    show_memory(&be->dev);
    if (status != GM_OK) fail_msg("%s", err.msg);
    assert_true(be->load_bytes_s > 0);
    for (size_t i = 0; i < N; i++) {
        size_t k = 0;
        while (w->addr[i] - w->bufs[k].addr >= w->bufs[k].size)
            k++;
        gm_vk_planes p = {0};
        gm_vk_buf back = {0};
        assert_int_equal(gm_vk_planes_of(&tensors[i], &p, NULL), GM_OK);
        if (gm_vk_buf_alloc(&be->dev, &back, p.size, GM_VK_RESULT, "a copy", &err) != GM_OK)
            fail_msg("%s", err.msg);
        const gm_vk_copy copy = {&w->bufs[k], &back, w->addr[i] - w->bufs[k].addr, 0, p.size};
        assert_int_equal(gm_vk_copy_now(&be->dev, &copy, 1, &err), GM_OK);
        assert_arrived(&tensors[i], back.map);
        gm_vk_buf_free(&be->dev, &back);
    }
    ops->unload(w);
    ops->close(be);
    free(bytes);
}

/* The speed of a plain copy is measured where there is something to copy through, and once. */
static void test_plain_copy(void **state)
{
    (void)state;
    gm_backend *be = NULL;
    gm_roof seen, hidden, again;
    gm_err err = {0};
    for (int hide = 0; hide < 2; hide++) {
        if (ops->open(&be, &(gm_backend_cfg){0}, &err) != GM_OK) fail_msg("%s", err.msg);
        if (hide) hide_memory(&be->dev);
        const gm_status status = ops->roof(be, 0, hide ? &hidden : &seen, &err);
        if (hide) show_memory(&be->dev);
        if (status != GM_OK || ops->roof(be, 0, &again, &err) != GM_OK) fail_msg("%s", err.msg);
        ops->close(be);
    }
    assert_true(seen.up_bytes_s == 0 && seen.read_bytes_s > 0);
    assert_true(hidden.up_bytes_s > 0 && again.up_bytes_s == hidden.up_bytes_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_staged),
                                       cmocka_unit_test(test_plain_copy)};
    return cmocka_run_group_tests_name("t_vk_load", tests, NULL, NULL);
}
