/* SPDX-License-Identifier: MIT */
/* Opening a device. What a device must have is one table of features, each with the sentence that a
 * user gets where it is missing; everything in it is what Vulkan 1.3 drivers of the last years have.
 *
 * Memory kinds are looked for in order of preference. Unified memory (integrated GPUs, lavapipe) is
 * mapped, so weights go from the file's map to their place with no copy in between; a discrete card
 * keeps its own memory unmapped and is fed through staging. */

#include "backend/vk/vk_device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/vk/vk_shaders.h"
#include "base/clock.h"
#include "base/mem.h"

#define EARLY_S 150e-6 /* before a step is expected to be done, somebody looks, and as long after */

#define PROC(d, name) ((PFN_##name)(d)->proc((d)->instance, #name))

gm_status gm_vk_check(VkResult r, const char *what, gm_err *err)
{
    switch (r) {
    case VK_SUCCESS: return GM_OK;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return gm_fail(err, GM_E_NOMEM, r, "vulkan: no host memory left for %s", what);
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
        return gm_fail(err, GM_E_DEVMEM, r, "vulkan: the device has no memory left for %s", what);
    case VK_ERROR_DEVICE_LOST:
        return gm_fail(err, GM_E_LOST, r, "vulkan: the device was lost during %s", what);
    default: return gm_fail(err, GM_E_UNSUP, r, "vulkan: %s failed with VkResult %d", what, (int)r);
    }
}

/* ---- instance and choice --------------------------------------------------------------------- */

static gm_status instance_open(gm_vk_dev *d, gm_err *err)
{
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "gemmule",
                                   .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &app};
    d->proc = gm_volk_open();
    if (!d->proc) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "vulkan: there is no Vulkan loader (libvulkan.so.1) on this machine");
    }
    const VkResult r = PROC(d, vkCreateInstance)(&info, NULL, &d->instance);
    if (r == VK_ERROR_INCOMPATIBLE_DRIVER)
        return gm_fail(err, GM_E_UNSUP, r, "vulkan: the loader finds no driver on this machine");
    if (r == VK_ERROR_OUT_OF_HOST_MEMORY) /* which a loader says of a broken file, too */
        return gm_fail(err, GM_E_NOMEM, r,
                       "vulkan: no host memory left for the instance, or a driver's .json file "
                       "(in /usr/share/vulkan/icd.d or VK_ICD_FILENAMES) is broken");
    return gm_vk_check(r, "the instance", err);
}

static bool contains(const char *text, const char *part)
{
    for (; *text; text++) {
        size_t i = 0;
        while (part[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (!part[i]) return true;
    }
    return false;
}

/* Discrete before integrated before virtual before software. */
static int rank(VkPhysicalDeviceType t)
{
    switch (t) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 4;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return 3;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return 2;
    default: return 1;
    }
}

/* The refusal of a device that is not there names those that are. */
static gm_status refuse_choice(const gm_vk_dev *d, const char *which, const VkPhysicalDevice *all,
                               uint32_t n, gm_err *err)
{
    char list[160] = "";
    for (uint32_t i = 0, used = 0; i < n && used < sizeof list; i++) {
        VkPhysicalDeviceProperties p;
        PROC(d, vkGetPhysicalDeviceProperties)(all[i], &p);
        used += (uint32_t)snprintf(list + used, sizeof list - used, "%s%u %s", i ? ", " : "", i,
                                   p.deviceName);
    }
    if (n == 0) return gm_fail(err, GM_E_UNSUP, 0, "vulkan: there is no device on this machine");
    return gm_fail(err, GM_E_ARG, 0, "vulkan: no device is %.40s; there are: %s", which, list);
}

static gm_status choose(gm_vk_dev *d, const char *which, gm_err *err)
{
    VkPhysicalDevice all[16];
    uint32_t n = sizeof all / sizeof *all;
    const VkResult r = PROC(d, vkEnumeratePhysicalDevices)(d->instance, &n, all);
    if (r != VK_INCOMPLETE) GM_TRY(gm_vk_check(r, "the list of devices", err));
    char *end = NULL;
    const unsigned long index = which ? strtoul(which, &end, 10) : 0;
    /* A number that none has may be a part of a name, if it is a long one: 7900. */
    const bool by_index =
        which && isdigit((unsigned char)*which) && !*end && (index < n || strlen(which) < 3);
    int best = 0;
    for (uint32_t i = 0; i < n; i++) {
        VkPhysicalDeviceProperties p;
        PROC(d, vkGetPhysicalDeviceProperties)(all[i], &p);
        const bool fits = !which || (by_index ? index == i : contains(p.deviceName, which));
        if (!fits || rank(p.deviceType) <= best) continue;
        best = rank(p.deviceType);
        d->phys = all[i];
        d->props = p;
    }
    return d->phys ? GM_OK : refuse_choice(d, which, all, n, err);
}

/* ---- features -------------------------------------------------------------------------------- */

typedef struct features {
    VkPhysicalDeviceFeatures2 f;
    VkPhysicalDeviceVulkan11Features f11;
    VkPhysicalDeviceVulkan12Features f12;
    VkPhysicalDeviceVulkan13Features f13;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
} features;

static void chain(features *f, bool matrix)
{
    f->f.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    f->f11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    f->f12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    f->f13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    f->matrix.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
    f->f.pNext = &f->f11;
    f->f11.pNext = &f->f12;
    f->f12.pNext = &f->f13;
    f->f13.pNext = matrix ? &f->matrix : NULL;
}

static bool has_extension(const gm_vk_dev *d, const char *name)
{
    uint32_t n = 0;
    bool found = false;
    VkExtensionProperties *all = NULL;
    PROC(d, vkEnumerateDeviceExtensionProperties)(d->phys, NULL, &n, NULL);
    if (gm_mem_alloc(&all, n, sizeof *all, "extensions", NULL) != GM_OK) return false;
    PROC(d, vkEnumerateDeviceExtensionProperties)(d->phys, NULL, &n, all);
    for (uint32_t i = 0; i < n; i++)
        found = found || strcmp(all[i].extensionName, name) == 0;
    gm_mem_free(all);
    return found;
}

#define SUBGROUP_OPS (VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT)

static gm_status require(const gm_vk_dev *d, const features *f, gm_err *err)
{
    const struct {
        VkBool32 have;
        const char *what;
    } needs[] = {
        {f->f.features.shaderInt64, "64-bit integers in shaders (shaderInt64)"},
        {f->f12.bufferDeviceAddress, "buffer device addresses"},
        {f->f12.timelineSemaphore, "timeline semaphores"},
        {f->f13.synchronization2, "synchronization2"},
        {f->f13.computeFullSubgroups, "full subgroups in compute shaders"},
        {f->f13.shaderIntegerDotProduct, "integer dot products"},
        {f->f13.maintenance4, "maintenance4"},
        {d->subgroup_min >= 8, "subgroups of 8 lanes or more"},
        {(d->subgroup_ops & SUBGROUP_OPS) == SUBGROUP_OPS, "sums and shuffles in subgroups"},
        {d->props.limits.maxPushConstantsSize >= GM_VK_PUSH, "256 bytes of push constants"},
        {d->props.limits.maxComputeWorkGroupInvocations >= 1024, "workgroups of 1024 lanes"},
        {d->props.limits.maxComputeSharedMemorySize >= 32768, "32 KiB of shared memory"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (needs[i].have) continue;
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %s lacks %s", d->props.deviceName,
                       needs[i].what);
    }
    return GM_OK;
}

static void describe(gm_vk_dev *d)
{
    VkPhysicalDeviceVulkan11Properties p11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
    VkPhysicalDeviceVulkan12Properties p12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &p11};
    VkPhysicalDeviceVulkan13Properties p13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES, .pNext = &p12};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &p13};
    PROC(d, vkGetPhysicalDeviceProperties2)(d->phys, &p);
    PROC(d, vkGetPhysicalDeviceMemoryProperties)(d->phys, &d->mem);
    snprintf(d->driver, sizeof d->driver, "%.60s %.80s", p12.driverName, p12.driverInfo);
    d->driver_id = p12.driverID;
    d->subgroup_min = p13.minSubgroupSize;
    d->subgroup_max = p13.maxSubgroupSize;
    d->subgroup_ops = p11.subgroupSupportedOperations;
    d->dot8_fast = p13.integerDotProduct4x8BitPackedSignedAccelerated;
    d->max_alloc = p11.maxMemoryAllocationSize;
    if (p13.maxBufferSize < d->max_alloc) d->max_alloc = p13.maxBufferSize;
    d->unified = d->props.deviceType != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

/* ---- device ---------------------------------------------------------------------------------- */

static gm_status find_queue(gm_vk_dev *d, gm_err *err)
{
    VkQueueFamilyProperties f[16];
    uint32_t n = sizeof f / sizeof *f, found = UINT32_MAX;
    PROC(d, vkGetPhysicalDeviceQueueFamilyProperties)(d->phys, &n, f);
    for (uint32_t i = 0; i < n; i++) {
        if (!(f[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
        /* A family for computing alone leaves the desktop's queue alone. */
        if (found == UINT32_MAX || !(f[i].queueFlags & VK_QUEUE_GRAPHICS_BIT)) found = i;
    }
    if (found == UINT32_MAX)
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %s has no compute queue", d->props.deviceName);
    d->family = found;
    d->timestamp_ns = f[found].timestampValidBits ? d->props.limits.timestampPeriod : 0;
    return GM_OK;
}

static bool is_matrix(const VkCooperativeMatrixPropertiesKHR *m, VkComponentTypeKHR in,
                      VkComponentTypeKHR out, uint32_t n_cols)
{
    return m->AType == in && m->BType == in && m->CType == out && m->ResultType == out &&
           m->MSize == 16 && m->NSize == n_cols && m->scope == VK_SCOPE_SUBGROUP_KHR &&
           !m->saturatingAccumulation;
}

/* Which cooperative matrices of 16 rows a subgroup has. */
static void find_matrices(gm_vk_dev *d)
{
    VkCooperativeMatrixPropertiesKHR all[64];
    uint32_t n = sizeof all / sizeof *all;
    for (uint32_t i = 0; i < n; i++)
        all[i] = (VkCooperativeMatrixPropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    const VkResult r = PROC(d, vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(d->phys, &n, all);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return;
    for (uint32_t i = 0; i < n; i++) {
        const VkCooperativeMatrixPropertiesKHR *const m = &all[i];
        const VkComponentTypeKHR f16 = VK_COMPONENT_TYPE_FLOAT16_KHR;
        if (is_matrix(m, f16, VK_COMPONENT_TYPE_FLOAT32_KHR, 16) && m->KSize == 16)
            d->has_halves = true;
        if (is_matrix(m, f16, VK_COMPONENT_TYPE_FLOAT32_KHR, 8) && m->KSize == 16)
            d->has_half_columns = true;
        if (is_matrix(m, VK_COMPONENT_TYPE_SINT8_KHR, VK_COMPONENT_TYPE_SINT32_KHR, 16) &&
            (m->KSize == 16 || m->KSize == 32) && m->KSize > d->matrix_depth)
            d->matrix_depth = m->KSize;
    }
}

static gm_status device_open(gm_vk_dev *d, gm_err *err)
{
    static const char *const matrix_name = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    features have = {0}, want = {0};
    const bool matrix = has_extension(d, matrix_name);
    d->has_budget = has_extension(d, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    chain(&have, matrix);
    PROC(d, vkGetPhysicalDeviceFeatures2)(d->phys, &have.f);
    GM_TRY(require(d, &have, err));
    chain(&want, matrix);
    want.f.features.shaderInt64 = VK_TRUE;
    want.f12.bufferDeviceAddress = VK_TRUE;
    want.f12.timelineSemaphore = VK_TRUE;
    want.f12.vulkanMemoryModel = have.f12.vulkanMemoryModel;
    want.f12.vulkanMemoryModelDeviceScope = have.f12.vulkanMemoryModelDeviceScope;
    want.f12.shaderInt8 = have.f12.shaderInt8;
    want.f12.storageBuffer8BitAccess = have.f12.storageBuffer8BitAccess;
    want.f12.shaderFloat16 = have.f12.shaderFloat16;
    want.f11.storageBuffer16BitAccess = have.f11.storageBuffer16BitAccess;
    want.f12.scalarBlockLayout = have.f12.scalarBlockLayout;
    want.f13.synchronization2 = VK_TRUE;
    want.f13.computeFullSubgroups = VK_TRUE;
    want.f13.subgroupSizeControl = have.f13.subgroupSizeControl;
    want.f13.shaderIntegerDotProduct = VK_TRUE;
    want.f13.maintenance4 = VK_TRUE;
    want.matrix.cooperativeMatrix = have.matrix.cooperativeMatrix;
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = d->family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &want.f,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = matrix,
                                     .ppEnabledExtensionNames = &matrix_name};
    GM_TRY(
        gm_vk_check(PROC(d, vkCreateDevice)(d->phys, &info, NULL, &d->device), "the device", err));
    gm_volk_load(d->instance, d->device, &d->vk);
    d->vk.vkGetDeviceQueue(d->device, d->family, 0, &d->queue);
    d->needs = GM_VK_NEEDS_INT_DOT8 | (have.f12.shaderFloat16 ? GM_VK_NEEDS_F16 : 0);
    d->has_matrix = have.matrix.cooperativeMatrix;
    if (d->has_matrix && have.f12.shaderInt8 && have.f12.shaderFloat16) find_matrices(d);
    if (d->has_halves) d->needs |= GM_VK_NEEDS_COOPMAT_F16;
    if (d->has_half_columns) d->needs |= GM_VK_NEEDS_COOPMAT_F16X8;
    if (d->matrix_depth) d->needs |= GM_VK_NEEDS_COOPMAT_I8;
    return GM_OK;
}

static bool has_heap(const gm_vk_dev *d, const gm_vk_memtypes *t, uint32_t heap)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (d->mem.memoryTypes[t->at[i]].heapIndex == heap) return true;
    }
    return false;
}

/* Appends the types that have all of `want` and none of `without`, one a heap, largest heap first. */
static void add_types(const gm_vk_dev *d, VkMemoryPropertyFlags want, VkMemoryPropertyFlags without,
                      gm_vk_memtypes *to)
{
    while (to->n < GM_VK_MEMTYPES) {
        uint64_t best = 0;
        for (uint32_t i = 0; i < d->mem.memoryTypeCount; i++) {
            const VkMemoryType *const type = &d->mem.memoryTypes[i];
            const uint64_t size = d->mem.memoryHeaps[type->heapIndex].size;
            if ((type->propertyFlags & want) != want || type->propertyFlags & without ||
                size <= best || has_heap(d, to, type->heapIndex))
                continue;
            best = size;
            to->at[to->n] = i;
        }
        if (best == 0) return;
        to->n++;
    }
}

gm_status gm_vk_dev_find_types(gm_vk_dev *d, gm_err *err)
{
    enum {
        OWN = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
        SEEN = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
        CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    };
    const struct {
        gm_vk_memkind kind;
        VkMemoryPropertyFlags want, without;
        bool only_unified; /* elsewhere it would be memory behind a bus */
    } order[] = {
        {GM_VK_LOCAL, OWN | SEEN, 0, true},
        {GM_VK_LOCAL, OWN, 0, false},
        {GM_VK_LOCAL, SEEN, 0, true},
        {GM_VK_STEP, OWN | SEEN, 0, false},
        {GM_VK_STEP, SEEN, 0, false},
        {GM_VK_RESULT, SEEN | CACHED, 0, false},
        {GM_VK_RESULT, SEEN, 0, false},
        /* Rows are laid out in small pieces, which the host's own caches gather best. */
        {GM_VK_STAGING, SEEN | CACHED, OWN, false},
        {GM_VK_STAGING, SEEN, OWN, false},
        {GM_VK_STAGING, SEEN, 0, false},
    };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (d->unified || !order[i].only_unified)
            add_types(d, order[i].want, order[i].without, &d->types[order[i].kind]);
    }
    for (int i = 0; i < GM_VK_MEMKINDS; i++) {
        if (!d->types[i].n)
            return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %s has no memory that the host can write",
                           d->props.deviceName);
    }
    return GM_OK;
}

bool gm_vk_dev_type_for(const gm_vk_dev *d, gm_vk_memkind kind, uint64_t size, uint32_t allowed,
                        uint32_t *type)
{
    const gm_vk_memtypes *const t = &d->types[kind];
    bool found = false;
    for (uint32_t i = 0; i < t->n; i++) {
        if (!(allowed & 1u << t->at[i])) continue;
        const bool fits = gm_vk_dev_free(d, d->mem.memoryTypes[t->at[i]].heapIndex) >= size;
        if (fits || !found) *type = t->at[i];
        if (fits) return true;
        found = true;
    }
    return found;
}

static gm_status open_queue(gm_vk_dev *d, gm_err *err)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = d->family};
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo sem = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                       .pNext = &type};
    GM_TRY(gm_vk_check(d->vk.vkCreateCommandPool(d->device, &pool, NULL, &d->pool),
                       "the command pool", err));
    return gm_vk_check(d->vk.vkCreateSemaphore(d->device, &sem, NULL, &d->timeline), "the timeline",
                       err);
}

gm_status gm_vk_dev_open(gm_vk_dev *d, const char *which, gm_err *err)
{
    GM_TRY(instance_open(d, err));
    GM_TRY(choose(d, which, err));
    if (d->props.apiVersion < VK_API_VERSION_1_3) {
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %s has Vulkan %u.%u, expected 1.3 or later",
                       d->props.deviceName, VK_API_VERSION_MAJOR(d->props.apiVersion),
                       VK_API_VERSION_MINOR(d->props.apiVersion));
    }
    describe(d);
    GM_TRY(find_queue(d, err));
    GM_TRY(gm_vk_dev_find_types(d, err));
    GM_TRY(device_open(d, err));
    return open_queue(d, err);
}

void gm_vk_dev_close(gm_vk_dev *d)
{
    if (d->device) {
        if (d->timeline) gm_vk_wait(d, d->n_submits, NULL);
        d->vk.vkDestroySemaphore(d->device, d->timeline, NULL);
        d->vk.vkDestroyCommandPool(d->device, d->pool, NULL);
        d->vk.vkDestroyDevice(d->device, NULL);
    }
    if (d->instance) PROC(d, vkDestroyInstance)(d->instance, NULL);
    *d = (gm_vk_dev){0};
}

uint64_t gm_vk_dev_free(const gm_vk_dev *d, uint32_t heap)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 mem = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    const uint64_t size = d->mem.memoryHeaps[heap].size, held = d->count.held[heap];
    if (!d->has_budget) return size > held ? size - held : 0;
    PROC(d, vkGetPhysicalDeviceMemoryProperties2)(d->phys, &mem);
    const uint64_t all = budget.heapBudget[heap], used = budget.heapUsage[heap];
    return all > used ? all - used : 0;
}

uint64_t gm_vk_dev_room(const gm_vk_dev *d)
{
    const gm_vk_memtypes *const t = &d->types[GM_VK_LOCAL];
    uint64_t room = 0;
    for (uint32_t i = 0; i < t->n; i++)
        room += gm_vk_dev_free(d, d->mem.memoryTypes[t->at[i]].heapIndex);
    return room;
}

/* ---- memory and submits ---------------------------------------------------------------------- */

static gm_status buf_init(gm_vk_dev *d, gm_vk_buf *b, gm_vk_memkind kind, const char *what,
                          gm_err *err)
{
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = b->size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                 VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT,
    };
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    GM_TRY(gm_vk_check(d->vk.vkCreateBuffer(d->device, &info, NULL, &b->buffer), what, err));
    VkMemoryRequirements need;
    d->vk.vkGetBufferMemoryRequirements(d->device, b->buffer, &need);
    uint32_t type = 0;
    if (!gm_vk_dev_type_for(d, kind, need.size, need.memoryTypeBits, &type))
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %s has no memory for %s", d->props.deviceName,
                       what);
    b->heap = d->mem.memoryTypes[type].heapIndex;
    const VkMemoryAllocateInfo alloc = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                        .pNext = &flags,
                                        .allocationSize = need.size,
                                        .memoryTypeIndex = type};
    GM_TRY(gm_vk_check(d->vk.vkAllocateMemory(d->device, &alloc, NULL, &b->memory), what, err));
    d->count.allocs++;
    d->count.held[b->heap] += b->size;
    GM_TRY(gm_vk_check(d->vk.vkBindBufferMemory(d->device, b->buffer, b->memory, 0), what, err));
    if (d->mem.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) {
        GM_TRY(gm_vk_check(
            d->vk.vkMapMemory(d->device, b->memory, 0, VK_WHOLE_SIZE, 0, (void **)&b->map), what,
            err));
    }
    const VkBufferDeviceAddressInfo at = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                          .buffer = b->buffer};
    b->addr = d->vk.vkGetBufferDeviceAddress(d->device, &at);
    return GM_OK;
}

gm_status gm_vk_buf_alloc(gm_vk_dev *d, gm_vk_buf *b, uint64_t size, gm_vk_memkind kind,
                          const char *what, gm_err *err)
{
    *b = (gm_vk_buf){.size = size ? size : 16};
    if (b->size > d->max_alloc) {
        return gm_fail(err, GM_E_DEVMEM, 0,
                       "vulkan: %s needs %llu MiB in one piece, %s gives at most %llu", what,
                       (unsigned long long)(size >> 20), d->props.deviceName,
                       (unsigned long long)(d->max_alloc >> 20));
    }
    const gm_status status = buf_init(d, b, kind, what, err);
    if (status != GM_OK) gm_vk_buf_free(d, b);
    return status;
}

void gm_vk_buf_free(gm_vk_dev *d, gm_vk_buf *b)
{
    if (b->memory) {
        d->count.held[b->heap] -= b->size;
        d->vk.vkFreeMemory(d->device, b->memory, NULL);
    }
    if (b->buffer) d->vk.vkDestroyBuffer(d->device, b->buffer, NULL);
    *b = (gm_vk_buf){0};
}

gm_status gm_vk_submit_all(gm_vk_dev *d, const VkCommandBufferSubmitInfo *buffers, uint32_t n,
                           uint64_t *value, gm_err *err)
{
    const VkSemaphoreSubmitInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                          .semaphore = d->timeline,
                                          .value = d->n_submits + 1,
                                          .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    const VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                .commandBufferInfoCount = n,
                                .pCommandBufferInfos = buffers,
                                .signalSemaphoreInfoCount = 1,
                                .pSignalSemaphoreInfos = &signal};
    GM_TRY(gm_vk_check(d->vk.vkQueueSubmit2(d->queue, 1, &info, VK_NULL_HANDLE), "a submit", err));
    d->count.submits++;
    *value = ++d->n_submits;
    return GM_OK;
}

gm_status gm_vk_submit(gm_vk_dev *d, VkCommandBuffer cmd, uint64_t *value, gm_err *err)
{
    const VkCommandBufferSubmitInfo buffer = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
                                              .commandBuffer = cmd};
    return gm_vk_submit_all(d, &buffer, 1, value, err);
}

static VkResult wait_for(gm_vk_dev *d, uint64_t value, uint64_t most_ns)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &d->timeline,
                                      .pValues = &value};
    return d->vk.vkWaitSemaphores(d->device, &info, most_ns);
}

gm_status gm_vk_wait(gm_vk_dev *d, uint64_t value, gm_err *err)
{
    return gm_vk_check(wait_for(d, value, UINT64_MAX), "a step", err);
}

/* Whoever sleeps is woken some 40 us late by an H200's driver, and the device waits meanwhile. */
gm_status gm_vk_wait_until(gm_vk_dev *d, uint64_t value, double when_s, gm_err *err)
{
    const double early_s = when_s - EARLY_S - gm_clock_s(), late_s = when_s + EARLY_S;
    VkResult r = early_s > 0 ? wait_for(d, value, (uint64_t)(early_s * 1e9)) : VK_TIMEOUT;
    for (uint64_t now = 0; r == VK_TIMEOUT && gm_clock_s() < late_s;) {
        const VkResult got = d->vk.vkGetSemaphoreCounterValue(d->device, d->timeline, &now);
        if (got != VK_SUCCESS || now >= value) r = got;
    }
    return r == VK_TIMEOUT ? gm_vk_wait(d, value, err) : gm_vk_check(r, "a step", err);
}
