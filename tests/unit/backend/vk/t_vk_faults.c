/* SPDX-License-Identifier: MIT */
/* Every call to the loader and to the device fails in turn: out of memory there, out of memory here,
 * device lost. Then everything that a device must have is missing in turn, and then its kernels do
 * nothing. Each must end in a sentence of the right kind, with "auto" in the one why cpu is taken, and
 * everything must be given back.
 *
 * This is a mock: no driver fails when asked to. The functions of an instance are asked for by name
 * and those of a device lie in a table, and both are ours where it matters (the linker leads
 * vk_device.c to our gm_volk_open and gm_volk_load); they go on to lavapipe's, or answer the error, or
 * change what it says of itself. A device that was lost stays lost.
 *
 * t_vk_faults --all lets each call fail, else the first ones and one in STRIDE do. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "fixtures/tinymodel.h"
#include "gemmule_tools.h"

#define STRIDE  7
#define FIRST   8  /* calls: of the instance, and to open the device */
#define CLOSING 5  /* calls                                         */
#define POINTS  12 /* at which all of a choice is let fail          */

static gm_model *model;
static long stride = STRIDE;

/* ---- the mock -------------------------------------------------------------------------------- */

/* A number that the driver says of itself, changed. */
typedef struct lie {
    VkStructureType in; /* OF_DEVICE: VkPhysicalDeviceProperties, which has no such number */
    size_t at;          /* offset of 32 bits */
    uint32_t value;
    const char *words; /* of the sentence */
} lie;
#define OF_DEVICE VK_STRUCTURE_TYPE_APPLICATION_INFO
#define LIES      2

static struct {
    pthread_mutex_t lock; /* pipelines are compiled by several threads */
    PFN_vkGetInstanceProcAddr proc;
    bool no_loader, no_driver, no_device, no_extensions;
    VkInstance instance;
    const lie *lies[LIES];       /* or NULL */
    bool idle;                   /* dispatches do nothing */
    long n_instances, n_devices; /* that live */
    struct VolkDeviceTable real;
    long n_calls, fail_at; /* 0: none */
    VkResult result;
    bool lost, forgiven;
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

/* ---- of the instance ------------------------------------------------------------------------- */

#define REAL(name) ((PFN_##name)mock.proc(mock.instance, #name))

static VKAPI_ATTR VkResult VKAPI_CALL fake_CreateInstance(const VkInstanceCreateInfo *i,
                                                          const VkAllocationCallbacks *a,
                                                          VkInstance *o)
{
    if (fails()) return mock.result;
    if (mock.no_driver) return VK_ERROR_INCOMPATIBLE_DRIVER;
    mock.instance = NULL;
    const VkResult r = REAL(vkCreateInstance)(i, a, o);
    mock.instance = *o;
    mock.n_instances += r == VK_SUCCESS;
    return r;
}

static VKAPI_ATTR void VKAPI_CALL fake_DestroyInstance(VkInstance i, const VkAllocationCallbacks *a)
{
    mock.n_instances--;
    REAL(vkDestroyInstance)(i, a);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_EnumeratePhysicalDevices(VkInstance i, uint32_t *n,
                                                                    VkPhysicalDevice *o)
{
    if (fails()) return mock.result;
    const VkResult r = REAL(vkEnumeratePhysicalDevices)(i, n, o);
    if (mock.no_device) *n = 0;
    return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_EnumerateDeviceExtensionProperties(
    VkPhysicalDevice d, const char *layer, uint32_t *n, VkExtensionProperties *o)
{
    if (mock.no_extensions) return VK_ERROR_OUT_OF_HOST_MEMORY;
    return REAL(vkEnumerateDeviceExtensionProperties)(d, layer, n, o);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_CreateDevice(VkPhysicalDevice d,
                                                        const VkDeviceCreateInfo *i,
                                                        const VkAllocationCallbacks *a, VkDevice *o)
{
    if (fails()) return mock.result;
    const VkResult r = REAL(vkCreateDevice)(d, i, a, o);
    mock.n_devices += r == VK_SUCCESS;
    return r;
}

/* Puts the lies about this struct into it. */
static void lie_in(VkStructureType in, void *to)
{
    for (size_t i = 0; i < LIES; i++) {
        const lie *const l = mock.lies[i];
        if (l && l->in == in) memcpy((uint8_t *)to + l->at, &l->value, sizeof l->value);
    }
}

static void lie_in_chain(void *first)
{
    for (VkBaseOutStructure *s = first; s; s = s->pNext)
        lie_in(s->sType, s);
}

static VKAPI_ATTR void VKAPI_CALL fake_GetPhysicalDeviceProperties(VkPhysicalDevice d,
                                                                   VkPhysicalDeviceProperties *o)
{
    REAL(vkGetPhysicalDeviceProperties)(d, o);
    lie_in(OF_DEVICE, o);
}

static VKAPI_ATTR void VKAPI_CALL fake_GetPhysicalDeviceProperties2(VkPhysicalDevice d,
                                                                    VkPhysicalDeviceProperties2 *o)
{
    REAL(vkGetPhysicalDeviceProperties2)(d, o);
    lie_in_chain(o);
}

static VKAPI_ATTR void VKAPI_CALL fake_GetPhysicalDeviceFeatures2(VkPhysicalDevice d,
                                                                  VkPhysicalDeviceFeatures2 *o)
{
    REAL(vkGetPhysicalDeviceFeatures2)(d, o);
    lie_in_chain(o);
}

static VKAPI_ATTR void VKAPI_CALL fake_GetPhysicalDeviceQueueFamilyProperties(
    VkPhysicalDevice d, uint32_t *n, VkQueueFamilyProperties *o)
{
    REAL(vkGetPhysicalDeviceQueueFamilyProperties)(d, n, o);
    for (uint32_t i = 0; o && i < *n; i++)
        lie_in(VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2, &o[i]);
}

static VKAPI_ATTR void VKAPI_CALL
fake_GetPhysicalDeviceMemoryProperties(VkPhysicalDevice d, VkPhysicalDeviceMemoryProperties *o)
{
    REAL(vkGetPhysicalDeviceMemoryProperties)(d, o);
    lie_in(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, o);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL fake_proc(VkInstance instance, const char *name)
{
#define ENTRY(f)                              \
    {                                         \
        "vk" #f, (PFN_vkVoidFunction)fake_##f \
    }
    static const struct {
        const char *name;
        PFN_vkVoidFunction fake;
    } fakes[] = {
        ENTRY(CreateInstance),
        ENTRY(DestroyInstance),
        ENTRY(EnumeratePhysicalDevices),
        ENTRY(EnumerateDeviceExtensionProperties),
        ENTRY(CreateDevice),
        ENTRY(GetPhysicalDeviceProperties),
        ENTRY(GetPhysicalDeviceProperties2),
        ENTRY(GetPhysicalDeviceFeatures2),
        ENTRY(GetPhysicalDeviceQueueFamilyProperties),
        ENTRY(GetPhysicalDeviceMemoryProperties),
    };
    for (size_t i = 0; i < sizeof fakes / sizeof *fakes; i++) {
        if (strcmp(fakes[i].name, name) == 0) return fakes[i].fake;
    }
    return mock.proc(instance, name);
}

PFN_vkGetInstanceProcAddr __real_gm_volk_open(void);
PFN_vkGetInstanceProcAddr __wrap_gm_volk_open(void);

PFN_vkGetInstanceProcAddr __wrap_gm_volk_open(void)
{
    mock.proc = __real_gm_volk_open();
    return mock.no_loader ? NULL : fake_proc;
}

/* ---- of the device --------------------------------------------------------------------------- */

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
FAKE(GetPipelineCacheData, (VkDevice d, VkPipelineCache c, size_t *n, void *p), (d, c, n, p))
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

/* A cache that the driver refuses with a file's bytes is made without them. */
static VKAPI_ATTR VkResult VKAPI_CALL fake_CreatePipelineCache(VkDevice d,
                                                               const VkPipelineCacheCreateInfo *i,
                                                               const VkAllocationCallbacks *a,
                                                               VkPipelineCache *o)
{
    if (!fails()) return mock.real.vkCreatePipelineCache(d, i, a, o);
    mock.forgiven = i->initialDataSize != 0;
    return mock.result;
}

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

static VKAPI_ATTR void VKAPI_CALL fake_DestroyDevice(VkDevice d, const VkAllocationCallbacks *a)
{
    mock.n_devices--;
    mock.real.vkDestroyDevice(d, a);
}

static VKAPI_ATTR void VKAPI_CALL fake_CmdDispatch(VkCommandBuffer c, uint32_t x, uint32_t y,
                                                   uint32_t z)
{
    if (!mock.idle) mock.real.vkCmdDispatch(c, x, y, z);
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
    table->vkGetPipelineCacheData = fake_GetPipelineCacheData;
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
    table->vkDestroyDevice = fake_DestroyDevice;
    table->vkCmdDispatch = fake_CmdDispatch;
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
    GM_TRY_DONE(ops->open(&be, &(gm_backend_cfg){.n_threads = 1, .dir = tiny_path("")}, err));
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
    mock.n_calls = mock.n_memory = mock.n_buffers = mock.n_devices = mock.n_instances = 0;
    mock.no_loader = mock.no_driver = mock.no_device = mock.no_extensions = mock.idle = false;
    memset(mock.lies, 0, sizeof mock.lies);
    mock.fail_at = fail_at;
    mock.result = result;
    mock.lost = mock.forgiven = false;
}

static void all_is_given_back(void)
{
    assert_int_equal(mock.n_memory, 0);
    assert_int_equal(mock.n_buffers, 0);
    assert_int_equal(mock.n_devices, 0);
    assert_int_equal(mock.n_instances, 0);
}

static void sweep(VkResult result, gm_status want, const char *words)
{
    gm_err err = {0};
    mock_begin(0, VK_SUCCESS);
    if (live(&err) != GM_OK) fail_msg("%s", err.msg);
    const long n_calls = mock.n_calls;
    long n_failed = 0;
    for (long i = 1; i <= n_calls; i += i < FIRST ? 1 : stride) {
        err = (gm_err){0};
        mock_begin(i, result);
        const gm_status got = live(&err);
        /* The last calls are those of closing, which has nobody to tell. */
        if (got == GM_OK && (i > n_calls - CLOSING || mock.forgiven)) continue;
        if (got != want || !strstr(err.msg, words))
            fail_msg("call %ld of %ld: status %d, \"%s\"", i, n_calls, got, err.msg);
        all_is_given_back();
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

/* ---- what a device lacks --------------------------------------------------------------------- */

#define FEATURES(v)   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_##v##_FEATURES
#define PROPERTIES(v) VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_##v##_PROPERTIES
#define F12(name)     FEATURES(2), offsetof(VkPhysicalDeviceVulkan12Features, name), VK_FALSE
#define F13(name)     FEATURES(3), offsetof(VkPhysicalDeviceVulkan13Features, name), VK_FALSE
#define OF(name)      OF_DEVICE, offsetof(VkPhysicalDeviceProperties, name)

static const lie is_gpu = {OF(deviceType), VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU, ""};

static const lie lacks[] = {
    {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
     offsetof(VkPhysicalDeviceFeatures2, features.shaderInt64), VK_FALSE,
     "lacks 64-bit integers in shaders"},
    {F12(bufferDeviceAddress), "lacks buffer device addresses"},
    {F12(timelineSemaphore), "lacks timeline semaphores"},
    {F13(synchronization2), "lacks synchronization2"},
    {F13(computeFullSubgroups), "lacks full subgroups in compute shaders"},
    {F13(shaderIntegerDotProduct), "lacks integer dot products"},
    {F13(maintenance4), "lacks maintenance4"},
    {PROPERTIES(3), offsetof(VkPhysicalDeviceVulkan13Properties, minSubgroupSize), 4,
     "lacks subgroups of 8 lanes or more"},
    {PROPERTIES(1), offsetof(VkPhysicalDeviceVulkan11Properties, subgroupSupportedOperations),
     VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT,
     "lacks sums and shuffles in subgroups"},
    {OF(limits.maxPushConstantsSize), 128, "lacks 256 bytes of push constants"},
    {OF(limits.maxComputeWorkGroupInvocations), 512, "lacks workgroups of 1024 lanes"},
    {OF(limits.maxComputeSharedMemorySize), 16384, "lacks 32 KiB of shared memory"},
    {OF(apiVersion), VK_API_VERSION_1_2, "has Vulkan 1.2, expected 1.3 or later"},
    {VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2, offsetof(VkQueueFamilyProperties, queueFlags),
     VK_QUEUE_GRAPHICS_BIT, "has no compute queue"},
    {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
     offsetof(VkPhysicalDeviceMemoryProperties, memoryTypeCount), 0,
     "has no memory that the host can write"},
};

/* What "auto" comes to, with these words in the reason. */
static void auto_is(const char *backend, const char *words)
{
    char why[GM_WHY_LEN];
    const char *const got = gm_backend_choose(model, NULL, why);
    if (strcmp(got, backend) != 0 || !strstr(why, words))
        fail_msg("%s (%s), expected %s (.. %s ..)", got, why, backend, words);
    all_is_given_back();
}

/* Vulkan, asked for, is refused with these words. */
static void vulkan_is_refused(gm_status status, const char *words)
{
    gm_err err = {0};
    gm_engine *engine = NULL;
    gm_engine_opts opts = gm_engine_opts_default();
    opts.backend = "vulkan";
    const gm_status got = gm_engine_open(&engine, model, &opts, &err);
    if (got != status || !strstr(err.msg, words)) fail_msg("status %d, \"%s\"", got, err.msg);
    assert_null(engine);
    all_is_given_back();
}

static void each_thing_is_missing(void **state)
{
    (void)state;
    mock_begin(0, VK_SUCCESS);
    auto_is("cpu", "is the processor, not a GPU");
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        mock_begin(0, VK_SUCCESS);
        mock.lies[0] = &is_gpu;
        mock.lies[1] = &lacks[i];
        auto_is("cpu", lacks[i].words);
        vulkan_is_refused(GM_E_UNSUP, lacks[i].words);
    }
}

/* They are all optional. */
static void no_extension_is_told_of(void **state)
{
    (void)state;
    gm_err err = {0};
    mock_begin(0, VK_SUCCESS);
    mock.no_extensions = true;
    if (live(&err) != GM_OK) fail_msg("%s", err.msg);
    all_is_given_back();
}

static void there_is_no_vulkan(void **state)
{
    (void)state;
    mock_begin(0, VK_SUCCESS);
    mock.no_loader = true;
    auto_is("cpu", "there is no Vulkan loader");
    vulkan_is_refused(GM_E_UNSUP, "there is no Vulkan loader");
    mock_begin(0, VK_SUCCESS);
    mock.no_driver = true;
    auto_is("cpu", "the loader finds no driver");
    vulkan_is_refused(GM_E_UNSUP, "the loader finds no driver");
    mock_begin(0, VK_SUCCESS);
    mock.no_device = true;
    auto_is("cpu", "there is no device on this machine");
    vulkan_is_refused(GM_E_UNSUP, "there is no device on this machine");
}

static void kernels_do_nothing(void **state)
{
    (void)state;
    mock_begin(0, VK_SUCCESS);
    mock.lies[0] = &is_gpu;
    auto_is("vulkan", "on llvmpipe");
    mock.idle = true;
    auto_is("cpu", "rows is wrong with this driver");
    vulkan_is_refused(GM_E_UNSUP, "rows is wrong with this driver");
}

/* The device is lost at some of the calls of a choice, from opening it to the trial of its kernels. */
static void a_choice_survives(void **state)
{
    (void)state;
    mock_begin(0, VK_SUCCESS);
    mock.lies[0] = &is_gpu;
    auto_is("vulkan", "on llvmpipe");
    const long n_calls = mock.n_calls;
    for (long i = 0; i < POINTS; i++) {
        mock_begin(1 + i * (n_calls - CLOSING) / POINTS, VK_ERROR_DEVICE_LOST);
        mock.lies[0] = &is_gpu;
        auto_is("cpu", "");
    }
}

/* The first run of a model on a GPU (which lavapipe says here that it is) tries kernels, tells of it,
 * and can be cancelled there: all is given back and nothing is kept. */
static int cancel_trying(void *ctx, uint64_t done, uint64_t total)
{
    ++*(uint32_t *)ctx;
    assert_true(done < total);
    return 1;
}

static void a_first_run_is_cancelled(void **state)
{
    (void)state;
    uint32_t n = 0;
    char dir[300];
    gm_err err = {0};
    gm_engine *engine = NULL;
    gm_engine_opts opts = gm_engine_opts_default();
    snprintf(dir, sizeof dir, "%s.dir", tiny_path("first"));
    opts.device_dir = dir;
    opts.trying = cancel_trying;
    opts.progress_ctx = &n;
    mock_begin(0, VK_SUCCESS);
    mock.lies[0] = &is_gpu;
    assert_int_equal(gm_engine_open(&engine, model, &opts, &err), GM_E_CANCEL);
    assert_string_equal(err.msg, "compiling kernels was cancelled");
    assert_null(engine);
    assert_int_equal(n, 1);
    all_is_given_back();

    DIR *const d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        char path[600];
        assert_null(strstr(e->d_name, ".tuning"));
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    closedir(d);
    assert_int_equal(rmdir(dir), 0);
}

/* What is asked goes on so many times; n_zero: with nothing loaded yet. */
typedef struct asker {
    uint32_t left, n_zero, n_whole;
} asker;

static int cancel_later(void *ctx, uint64_t done, uint64_t total)
{
    asker *const a = ctx;
    assert_true(done <= total);
    a->n_zero += done == 0;
    a->n_whole += done == total;
    return a->left-- == 0;
}

static void count_note(void *ctx, const char *text)
{
    static const char said[] = ": kernels are compiled and checked";
    const char *const at = strstr(text, said);
    assert_true(at && at[strlen(said)] == '\0'); /* nothing remembers it */
    ++*(uint32_t *)ctx;
}

static int count_checks(void *ctx, uint64_t done, uint64_t total)
{
    uint32_t *const n = ctx; /* ops that it was told of */
    assert_true(done < total && done >= *n && done <= *n + 1);
    *n = (uint32_t)done;
    return done == 3;
}

/* Who asks for it hears how many ops are checked, in order, and may end that. */
static void checks_are_told(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_engine *engine = NULL;
    gm_engine_opts opts = gm_engine_opts_default();
    uint32_t n_done = 0;
    opts.backend = "vulkan";
    opts.checking = count_checks;
    opts.progress_ctx = &n_done;
    assert_int_equal(gm_engine_open(&engine, model, &opts, &err), GM_E_CANCEL);
    assert_int_equal(n_done, 3);
    assert_null(engine);
}

/* Set-up is cancelled while kernels are checked, and before one of the model's steps is lowered: of a
 * device that is asked for, and of one that is found. What takes the time is said, once. */
static void setting_up_is_cancelled(void **state)
{
    (void)state;
    for (uint32_t i = 0, n = 1; i < n; i += i ? (uint32_t)stride : 1) {
        gm_err err = {0};
        gm_engine *engine = NULL;
        gm_engine_opts opts = gm_engine_opts_default();
        asker a = {.left = i ? i - 1 : UINT32_MAX};
        uint32_t n_notes = 0;
        opts.backend = i % 2 ? "vulkan" : "auto";
        opts.n_threads = 1;
        opts.progress = cancel_later;
        opts.progress_ctx = &a;
        opts.note = count_note;
        opts.note_ctx = &n_notes;
        mock_begin(0, VK_SUCCESS);
        mock.lies[0] = &is_gpu;
        const gm_status status = gm_engine_open(&engine, model, &opts, &err);
        assert_int_equal(n_notes, 1);
        if (i == 0) {
            if (status != GM_OK) fail_msg("%s", err.msg);
            assert_true(a.n_zero > 5 && a.n_whole > 10);
            n = UINT32_MAX - a.left;
        } else {
            assert_int_equal(status, GM_E_CANCEL);
            assert_null(engine);
        }
        gm_engine_close(engine);
        all_is_given_back();
    }
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
        cmocka_unit_test(the_device_has_no_memory), cmocka_unit_test(the_host_has_no_memory),
        cmocka_unit_test(the_device_is_lost),       cmocka_unit_test(there_is_no_vulkan),
        cmocka_unit_test(each_thing_is_missing),    cmocka_unit_test(no_extension_is_told_of),
        cmocka_unit_test(kernels_do_nothing),       cmocka_unit_test(a_choice_survives),
        cmocka_unit_test(a_first_run_is_cancelled), cmocka_unit_test(checks_are_told),
        cmocka_unit_test(setting_up_is_cancelled),
    };
    return cmocka_run_group_tests_name("t_vk_faults", tests, setup, teardown);
}
