/* SPDX-License-Identifier: MIT */
/* Every call to the device fails in turn: out of memory there, out of memory here, device lost. Each
 * must end in a sentence of the right kind, and everything must be given back.
 *
 * This is a mock: no driver fails when asked to. The device's table of functions is filled by volk as
 * always and then has entries of ours in it (the linker leads vk_device.c to our gm_volk_load), which
 * go on to lavapipe's or answer the error. A device that was lost stays lost.
 *
 * t_vk_faults --all lets each call fail, else one in STRIDE does. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "fixtures/tinymodel.h"
#include "gemmule_tools.h"

#define STRIDE  7
#define CLOSING 3 /* calls */

static gm_model *model;
static long stride = STRIDE;

/* ---- the mock -------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock; /* pipelines are compiled by several threads */
    struct VolkDeviceTable real;
    long n_calls, fail_at; /* 0: none */
    VkResult result;
    bool lost;
    long n_memory, n_buffers; /* that live */
} mock = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool fails(void)
{
    pthread_mutex_lock(&mock.lock);
    const bool now = ++mock.n_calls == mock.fail_at;
    mock.lost = mock.lost || (now && mock.result == VK_ERROR_DEVICE_LOST);
    const bool answer = now || mock.lost;
    pthread_mutex_unlock(&mock.lock);
    return answer;
}

#define FAKE(name, params, args)                                \
    static VKAPI_ATTR VkResult VKAPI_CALL fake_##name params    \
    {                                                           \
        return fails() ? mock.result : mock.real.vk##name args; \
    }

FAKE(CreateCommandPool,
     (VkDevice d, const VkCommandPoolCreateInfo *i, const VkAllocationCallbacks *a,
      VkCommandPool *o),
     (d, i, a, o))
FAKE(CreateSemaphore,
     (VkDevice d, const VkSemaphoreCreateInfo *i, const VkAllocationCallbacks *a, VkSemaphore *o),
     (d, i, a, o))
FAKE(CreatePipelineLayout,
     (VkDevice d, const VkPipelineLayoutCreateInfo *i, const VkAllocationCallbacks *a,
      VkPipelineLayout *o),
     (d, i, a, o))
FAKE(CreatePipelineCache,
     (VkDevice d, const VkPipelineCacheCreateInfo *i, const VkAllocationCallbacks *a,
      VkPipelineCache *o),
     (d, i, a, o))
FAKE(CreateShaderModule,
     (VkDevice d, const VkShaderModuleCreateInfo *i, const VkAllocationCallbacks *a,
      VkShaderModule *o),
     (d, i, a, o))
FAKE(CreateComputePipelines,
     (VkDevice d, VkPipelineCache c, uint32_t n, const VkComputePipelineCreateInfo *i,
      const VkAllocationCallbacks *a, VkPipeline *o),
     (d, c, n, i, a, o))
FAKE(BindBufferMemory, (VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize off), (d, b, m, off))
FAKE(MapMemory,
     (VkDevice d, VkDeviceMemory m, VkDeviceSize off, VkDeviceSize n, VkMemoryMapFlags f, void **p),
     (d, m, off, n, f, p))
FAKE(AllocateCommandBuffers, (VkDevice d, const VkCommandBufferAllocateInfo *i, VkCommandBuffer *o),
     (d, i, o))
FAKE(BeginCommandBuffer, (VkCommandBuffer c, const VkCommandBufferBeginInfo *i), (c, i))
FAKE(EndCommandBuffer, (VkCommandBuffer c), (c))
FAKE(QueueSubmit2, (VkQueue q, uint32_t n, const VkSubmitInfo2 *i, VkFence f), (q, n, i, f))

/* What runs is waited for in any case: on a device that is really lost nothing runs. */
static VKAPI_ATTR VkResult VKAPI_CALL fake_WaitSemaphores(VkDevice d, const VkSemaphoreWaitInfo *i,
                                                          uint64_t timeout)
{
    const VkResult r = mock.real.vkWaitSemaphores(d, i, timeout);
    return fails() ? mock.result : r;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_AllocateMemory(VkDevice d, const VkMemoryAllocateInfo *i,
                                                          const VkAllocationCallbacks *a,
                                                          VkDeviceMemory *o)
{
    if (fails()) return mock.result;
    mock.n_memory++;
    return mock.real.vkAllocateMemory(d, i, a, o);
}

static VKAPI_ATTR void VKAPI_CALL fake_FreeMemory(VkDevice d, VkDeviceMemory m,
                                                  const VkAllocationCallbacks *a)
{
    mock.n_memory--;
    mock.real.vkFreeMemory(d, m, a);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_CreateBuffer(VkDevice d, const VkBufferCreateInfo *i,
                                                        const VkAllocationCallbacks *a, VkBuffer *o)
{
    if (fails()) return mock.result;
    mock.n_buffers++;
    return mock.real.vkCreateBuffer(d, i, a, o);
}

static VKAPI_ATTR void VKAPI_CALL fake_DestroyBuffer(VkDevice d, VkBuffer b,
                                                     const VkAllocationCallbacks *a)
{
    mock.n_buffers--;
    mock.real.vkDestroyBuffer(d, b, a);
}

void __real_gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table);
void __wrap_gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table);

void __wrap_gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table)
{
    __real_gm_volk_load(instance, device, table);
    mock.real = *table;
    table->vkCreateCommandPool = fake_CreateCommandPool;
    table->vkCreateSemaphore = fake_CreateSemaphore;
    table->vkCreatePipelineLayout = fake_CreatePipelineLayout;
    table->vkCreatePipelineCache = fake_CreatePipelineCache;
    table->vkCreateShaderModule = fake_CreateShaderModule;
    table->vkCreateComputePipelines = fake_CreateComputePipelines;
    table->vkBindBufferMemory = fake_BindBufferMemory;
    table->vkMapMemory = fake_MapMemory;
    table->vkAllocateCommandBuffers = fake_AllocateCommandBuffers;
    table->vkBeginCommandBuffer = fake_BeginCommandBuffer;
    table->vkEndCommandBuffer = fake_EndCommandBuffer;
    table->vkQueueSubmit2 = fake_QueueSubmit2;
    table->vkWaitSemaphores = fake_WaitSemaphores;
    table->vkAllocateMemory = fake_AllocateMemory;
    table->vkFreeMemory = fake_FreeMemory;
    table->vkCreateBuffer = fake_CreateBuffer;
    table->vkDestroyBuffer = fake_DestroyBuffer;
}

/* ---- what is tried --------------------------------------------------------------------------- */

/* A model's whole life: one token. */
static gm_status live(gm_err *err)
{
    const gm_backend_ops *const ops = &gm_backend_vulkan;
    const gm_config *const c = &model->config;
    const gm_kv_desc desc = {.type = GM_QTYPE_F16,
                             .n_layer = c->n_layer,
                             .layer_class = c->layer_class,
                             .n_kv_head = c->n_kv_head,
                             .head_dim = c->head_dim,
                             .n_vocab = gm_vocab_len(model->vocab),
                             .n_slots = 1,
                             .n_pages = {1, 1},
                             .table_len = 1};
    const gm_step_limits limits = {.rows = 1, .outs = 1, .edits = 2, .sets = 1};
    const gm_draw greedy = {.repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
    gm_backend *be = NULL;
    gm_wset *w = NULL;
    gm_kvmem *kv = NULL;
    gm_exec *ex = NULL;
    gm_step *step = NULL;
    gm_ticket t = 0;
    gm_result r;
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_step_alloc(&step, &limits, err));
    gm_step_put_set(step, 0, &greedy, NULL, 0);
    gm_step_put_edit(step, &(gm_page_edit){0, 0, 0, 0});
    gm_step_put_edit(step, &(gm_page_edit){0, 1, 0, 0});
    gm_step_put_row(step, &(gm_step_row){.kind = GM_ROW_ID, .src = 5});
    gm_step_put_out(step, &(gm_step_out){.want = GM_WANT_DRAW, .mask = GM_NO_MASK});
    GM_TRY_DONE(ops->open(&be, &(gm_backend_cfg){.n_threads = 1}, err));
    GM_TRY_DONE(ops->load(be, &model->plan.weights, NULL, &w, err));
    GM_TRY_DONE(ops->kv_open(be, &desc, &kv, err));
    GM_TRY_DONE(ops->lower(be, w, kv, &model->plan, (gm_bucket){1, 1}, &ex, err));
    GM_TRY_DONE(ops->run(ex, step, &t, err));
    GM_TRY_DONE(ops->wait(be, t, &r, err));
    assert_true(r.out[0].token >= 0);
done:
    ops->drop(ex);
    ops->kv_close(kv);
    ops->unload(w);
    ops->close(be);
    gm_step_free(step);
    return status;
}

static void mock_begin(long fail_at, VkResult result)
{
    mock.n_calls = mock.n_memory = mock.n_buffers = 0;
    mock.fail_at = fail_at;
    mock.result = result;
    mock.lost = false;
}

static void sweep(VkResult result, gm_status want, const char *words)
{
    gm_err err = {0};
    mock_begin(0, VK_SUCCESS);
    if (live(&err) != GM_OK) fail_msg("%s", err.msg);
    const long n_calls = mock.n_calls;
    long n_failed = 0;
    for (long i = 1; i <= n_calls; i += stride) {
        err = (gm_err){0};
        mock_begin(i, result);
        const gm_status got = live(&err);
        /* The last waits are those of closing, which has nobody to tell. */
        if (got == GM_OK && i > n_calls - CLOSING) continue;
        if (got != want || !strstr(err.msg, words))
            fail_msg("call %ld of %ld: status %d, \"%s\"", i, n_calls, got, err.msg);
        assert_int_equal(mock.n_memory, 0);
        assert_int_equal(mock.n_buffers, 0);
        n_failed++;
    }
    print_message("%ld of %ld calls failed in turn: \"... %s ...\"\n", n_failed, n_calls, words);
}

static void the_device_has_no_memory(void **state)
{
    (void)state;
    sweep(VK_ERROR_OUT_OF_DEVICE_MEMORY, GM_E_DEVMEM, "the device has no memory left for");
}

static void the_host_has_no_memory(void **state)
{
    (void)state;
    sweep(VK_ERROR_OUT_OF_HOST_MEMORY, GM_E_NOMEM, "no host memory left for");
}

static void the_device_is_lost(void **state)
{
    (void)state;
    sweep(VK_ERROR_DEVICE_LOST, GM_E_LOST, "the device was lost during");
}

static int setup(void **state)
{
    gm_err err = {0};
    gm_synth_opts opts = gm_synth_opts_default();
    if (tiny_setup(state) != 0) return 1;
    const char *const path = tiny_path("faults");
    opts.force = 1;
    if (gm_synth_write(path, &opts, &err) != GM_OK) return 1;
    return gm_model_open(&model, path, &err) == GM_OK ? 0 : 1;
}

static int teardown(void **state)
{
    gm_model_close(model);
    return tiny_teardown(state);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--all") == 0) stride = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_has_no_memory),
        cmocka_unit_test(the_host_has_no_memory),
        cmocka_unit_test(the_device_is_lost),
    };
    return cmocka_run_group_tests_name("t_vk_faults", tests, setup, teardown);
}
