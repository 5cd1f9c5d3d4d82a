/* SPDX-License-Identifier: MIT */
/* Weights on their way to a card whose memory the host cannot see: through all parts of the stage,
 * several times over, every byte arrives where it belongs, with few threads and with many; so it does
 * where memory is mapped. Whoever listens is told on its own thread, and may cancel at any time; every
 * call of the way fails in turn.
 *
 * No such card runs here, so the device's table of functions is made to say that its memory has no
 * map, and to fail when asked to (a mock of a few functions); the copies are real. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "fixtures/chance.h"

#define STAGE     (4ull << 24) /* vk_load.c: four parts of 16 MiB               */
#define ROOF_MAPS 1            /* vk_roof.c: its buffer is hidden, its stage not */

static const gm_backend_ops *const ops = &gm_backend_vulkan;

static struct {
    struct VolkDeviceTable vk;
    uint64_t size;  /* of the last allocation                  */
    uint64_t stage; /* what has this size is not hidden        */
    uint32_t n_map; /* maps that were asked for so far         */
    atomic_long n_calls;
    long fail_at;        /* which of them, and then all; 0: none */
    VkResult result;     /* of it                                */
    atomic_bool is_lost; /* ... and of those after it            */
} mock;

static bool fails(void)
{
    const bool now = atomic_fetch_add(&mock.n_calls, 1) + 1 == mock.fail_at;
    if (now && mock.result == VK_ERROR_DEVICE_LOST) mock.is_lost = true;
    return now || mock.is_lost;
}

#define FAKE(name, params, args)                              \
    static VKAPI_ATTR VkResult VKAPI_CALL name params         \
    {                                                         \
        return fails() ? mock.result : mock.vk.vk##name args; \
    }

FAKE(CreateBuffer,
     (VkDevice d, const VkBufferCreateInfo *i, const VkAllocationCallbacks *a, VkBuffer *o),
     (d, i, a, o))
FAKE(BindBufferMemory, (VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize off), (d, b, m, off))
FAKE(AllocateCommandBuffers, (VkDevice d, const VkCommandBufferAllocateInfo *i, VkCommandBuffer *o),
     (d, i, o))
FAKE(BeginCommandBuffer, (VkCommandBuffer c, const VkCommandBufferBeginInfo *i), (c, i))
FAKE(EndCommandBuffer, (VkCommandBuffer c), (c))
FAKE(QueueSubmit2, (VkQueue q, uint32_t n, const VkSubmitInfo2 *i, VkFence f), (q, n, i, f))

/* What runs is waited for in any case: on a device that is really lost nothing runs. */
static VKAPI_ATTR VkResult VKAPI_CALL WaitSemaphores(VkDevice d, const VkSemaphoreWaitInfo *i,
                                                     uint64_t timeout)
{
    const VkResult r = mock.vk.vkWaitSemaphores(d, i, timeout);
    return fails() ? mock.result : r;
}

static VKAPI_ATTR VkResult VKAPI_CALL AllocateMemory(VkDevice d, const VkMemoryAllocateInfo *info,
                                                     const VkAllocationCallbacks *a,
                                                     VkDeviceMemory *out)
{
    mock.size = info->allocationSize;
    return fails() ? mock.result : mock.vk.vkAllocateMemory(d, info, a, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL MapMemory(VkDevice d, VkDeviceMemory m, VkDeviceSize off,
                                                VkDeviceSize size, VkMemoryMapFlags flags,
                                                void **out)
{
    *out = NULL;
    if (fails()) return mock.result;
    return mock.size == mock.stage || mock.n_map++ == ROOF_MAPS
               ? mock.vk.vkMapMemory(d, m, off, size, flags, out)
               : VK_SUCCESS;
}

/* From now on memory has no map, and call fail_at fails. */
static void hide_memory(gm_vk_dev *d, long fail_at, VkResult result)
{
    mock.vk = d->vk;
    mock.n_map = 0;
    mock.stage = STAGE;
    mock.n_calls = 0;
    mock.fail_at = fail_at;
    mock.result = result;
    mock.is_lost = false;
    d->vk.vkCreateBuffer = CreateBuffer;
    d->vk.vkBindBufferMemory = BindBufferMemory;
    d->vk.vkAllocateCommandBuffers = AllocateCommandBuffers;
    d->vk.vkBeginCommandBuffer = BeginCommandBuffer;
    d->vk.vkEndCommandBuffer = EndCommandBuffer;
    d->vk.vkQueueSubmit2 = QueueSubmit2;
    d->vk.vkWaitSemaphores = WaitSemaphores;
    d->vk.vkAllocateMemory = AllocateMemory;
    d->vk.vkMapMemory = MapMemory;
}

static void show_memory(gm_vk_dev *d)
{
    d->vk = mock.vk;
}

/* Odd numbers of rows and blocks, vectors between matrices, and enough to fill the stage more than
 * once. */
static const struct {
    gm_qtype type;
    uint64_t rows, cols;
} shapes[] = {
    {GM_QTYPE_F32, 1, 640},       {GM_QTYPE_Q4_0, 37, 160},     {GM_QTYPE_Q6_K, 1001, 768},
    {GM_QTYPE_F16, 7001, 4096},   {GM_QTYPE_Q8_0, 18000, 4096}, {GM_QTYPE_Q4_K, 5, 256},
    {GM_QTYPE_F32, 1, 33},        {GM_QTYPE_Q5_K, 257, 512},    {GM_QTYPE_Q3_K, 16, 256},
    {GM_QTYPE_Q4_1, 15000, 4096}, {GM_QTYPE_F32, 11, 130},      {GM_QTYPE_IQ4_XS, 99, 512},
};
#define N (sizeof shapes / sizeof *shapes)

static gm_tensor tensors[N];
static uint8_t *bytes;
static uint64_t n_bytes;

static int make_tensors(void **state)
{
    (void)state;
    uint64_t at = 0;
    chance c = {3};
    for (size_t i = 0; i < N; i++) {
        gm_tensor *const t = &tensors[i];
        *t = (gm_tensor){.name = "made up", .type = gm_qtype_find(shapes[i].type)};
        t->n_dims = shapes[i].rows == 1 ? 1 : 2;
        t->shape[0] = shapes[i].rows == 1 ? shapes[i].cols : shapes[i].rows;
        t->shape[1] = t->n_dims == 2 ? shapes[i].cols : 0;
        t->size = gm_tensor_rows(t) * gm_tensor_row_size(t);
        n_bytes += t->size;
    }
    bytes = malloc(n_bytes);
    if (!bytes) return 1;
    for (uint64_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)chance_below(&c, 123); /* no scale of half is a NaN */
    for (size_t i = 0; i < N; at += tensors[i++].size)
        tensors[i].data = bytes + at;
    return 0;
}

static int free_tensors(void **state)
{
    (void)state;
    free(bytes);
    return 0;
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

static gm_backend *open_with(uint32_t n_threads)
{
    gm_backend *be = NULL;
    gm_err err = {0};
    if (ops->open(&be, &(gm_backend_cfg){.n_threads = n_threads}, &err) != GM_OK)
        fail_msg("%s", err.msg);
    return be;
}

static void assert_all_arrived(gm_backend *be, const gm_wset *w)
{
    for (size_t i = 0; i < N; i++) {
        size_t k = 0;
        while (w->addr[i] - w->bufs[k].addr >= w->bufs[k].size)
            k++;
        gm_vk_planes p = {0};
        gm_vk_buf back = {0};
        gm_err err = {0};
        assert_int_equal(gm_vk_planes_of(&tensors[i], &p, NULL), GM_OK);
        if (gm_vk_buf_alloc(&be->dev, &back, p.size, GM_VK_RESULT, "a copy", &err) != GM_OK)
            fail_msg("%s", err.msg);
        const gm_vk_copy copy = {&w->bufs[k], &back, w->addr[i] - w->bufs[k].addr, 0, p.size};
        assert_int_equal(gm_vk_copy_now(&be->dev, &copy, 1, &err), GM_OK);
        assert_arrived(&tensors[i], back.map);
        gm_vk_buf_free(&be->dev, &back);
    }
}

/* Nothing is held; what a device has given is counted. */
static void assert_given_back(const gm_backend *be)
{
    for (uint32_t i = 0; i < GM_DEVICE_HEAPS; i++)
        assert_int_equal(be->dev.count.held[i], 0);
}

/* Who listens: on which thread, how often, and when it has enough. */
typedef struct listener {
    pthread_t thread;
    uint64_t n, last, cancel_at; /* 0: never */
} listener;

static bool hear(void *ctx, uint64_t done, uint64_t total)
{
    listener *const h = ctx;
    assert_true(pthread_equal(h->thread, pthread_self()));
    assert_true(total == n_bytes && done <= total && done >= h->last);
    assert_true(h->n == 0 || h->last < total); /* the end is told once */
    h->last = done;
    return ++h->n != h->cancel_at;
}

static void load_whole(uint32_t n_threads, bool hide)
{
    gm_backend *const be = open_with(n_threads);
    gm_wset *w = NULL;
    gm_err err = {0};
    listener h = {.thread = pthread_self()};
    const gm_progress progress = {hear, &h};
    const gm_tensors all = {.at = tensors, .n = N};
    if (hide) hide_memory(&be->dev, 0, VK_SUCCESS);
    const gm_status status = ops->load(be, &all, &progress, &w, &err);
    if (hide) show_memory(&be->dev);
    if (status != GM_OK) fail_msg("%s", err.msg);
    assert_int_equal(h.last, n_bytes);
    assert_all_arrived(be, w);
    const gm_load_times *const t = &be->load_times;
    assert_true(be->load_bytes_s > 0 && t->layout > 0);
    assert_true(!hide || (t->bus > 0 && t->stage_s > 0));
    assert_true(t->layout + t->others + t->bus <= 1);
    ops->unload(w);
    assert_given_back(be);
    ops->close(be);
}

static void test_staged(void **state)
{
    (void)state;
    assert_true(n_bytes > STAGE);
    load_whole(1, true);
    load_whole(2, true);
    load_whole(16, true);
}

static void test_mapped(void **state)
{
    (void)state;
    load_whole(1, false);
    load_whole(7, false);
}

static void test_nothing(void **state)
{
    (void)state;
    gm_backend *const be = open_with(3);
    gm_wset *w = NULL;
    assert_int_equal(ops->load(be, &(gm_tensors){.at = tensors}, NULL, &w, NULL), GM_OK);
    ops->unload(w);
    ops->close(be);
}

static void test_cancelled(void **state)
{
    (void)state;
    for (int hide = 0; hide < 2; hide++) {
        gm_backend *const be = open_with(4);
        for (uint64_t at = 1; at < 40; at = 2 * at + 1) {
            gm_wset *w = NULL;
            gm_err err = {0};
            listener h = {.thread = pthread_self(), .cancel_at = at};
            const gm_progress progress = {hear, &h};
            if (hide) hide_memory(&be->dev, 0, VK_SUCCESS);
            const gm_status status =
                ops->load(be, &(gm_tensors){.at = tensors, .n = N}, &progress, &w, &err);
            if (hide) show_memory(&be->dev);
            if (status == GM_OK) {
                assert_true(h.last == n_bytes && h.n < at); /* others were faster */
            } else {
                assert_true(status == GM_E_CANCEL && err.code == GM_E_CANCEL && h.n == at);
                assert_null(w);
            }
            ops->unload(w);
            assert_given_back(be);
        }
        ops->close(be);
    }
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        VkResult result;
        gm_status status;
    } how[] = {{VK_ERROR_OUT_OF_DEVICE_MEMORY, GM_E_DEVMEM},
               {VK_ERROR_DEVICE_LOST, GM_E_LOST},
               {VK_ERROR_OUT_OF_HOST_MEMORY, GM_E_NOMEM}};
    gm_backend *const be = open_with(5);
    const gm_tensors all = {.at = tensors, .n = N};
    long n_calls = 0;
    for (long i = 0; i <= n_calls; i++) { /* the first time none fails */
        gm_wset *w = NULL;
        gm_err err = {0};
        const size_t k = (size_t)i % 3;
        hide_memory(&be->dev, i, how[k].result);
        const gm_status status = ops->load(be, &all, NULL, &w, &err);
        show_memory(&be->dev);
        if (i == 0) n_calls = mock.n_calls;
        if (status != (i ? how[k].status : GM_OK) || err.code != status || (i && w))
            fail_msg("call %ld of %ld: status %d, \"%s\"", i, n_calls, status, err.msg);
        ops->unload(w);
        assert_given_back(be);
    }
    print_message("%ld calls failed in turn\n", n_calls);
    ops->close(be);
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
        if (hide) hide_memory(&be->dev, 0, VK_SUCCESS);
        mock.stage = 0; /* both of the roof's buffers may be as large */
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_staged),   cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_nothing),  cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_plain_copy),
    };
    return cmocka_run_group_tests_name("t_vk_load", tests, make_tensors, free_tensors);
}
