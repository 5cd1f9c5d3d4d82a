/* SPDX-License-Identifier: MIT */
/* What there is to choose from. A device is opened to be described, because only then is it known
 * whether it can be used; the sentence of a failed opening is part of the description. */

#include <stdio.h>
#include <string.h>

#include "backend/vk/vk.h"

/* The kernels of each op, best first: the first whose needs the device meets is taken. It shows what
 * vk_lower.c and vk_shape.c ask for by name: change all. */
#define CHOICES 3
typedef struct choice {
    const char *op;
    const char *kernels[CHOICES];
} choice;

static const choice choices[] = {
    {"input_rows", {"embed"}},
    {"matmul, gate_up_gelu of quantised weights", {"matmul"}},
    {"the same, of several sequences", {"matmul_fragment_mma", "matmul"}},
    {"the same, of 8 columns and more", {"matmul_mma", "matmul"}},
    {"the same, of 65 rows and more", {"matmul_fragment_mma", "matmul_half", "matmul"}},
    {"matmul, gate_up_gelu of floats", {"matmul_float"}},
    {"norm, norm_add", {"norm"}},
    {"norm_rope, cache", {"rope"}},
    {"attend", {"attend"}},
    {"draw", {"draw"}},
    {"softcap, outputs, rounding to int8", {"rows"}},
};
#define N_CHOICES (sizeof choices / sizeof *choices)
_Static_assert(N_CHOICES <= GM_DEVICE_KERNELS, "a description has room for every op");
_Static_assert(VK_MAX_MEMORY_HEAPS <= GM_DEVICE_HEAPS, "a description has room for every heap");

/* In the order of gm_vk_needs. */
static const char *const need_names[] = {"int_dot8", "f16", "coopmat_f16", "coopmat_i8",
                                         "coopmat_f16x8"};

/* Appends words to a text, with commas between them; what has no room is left out. */
static void add_word(char *text, size_t cap, const char *word)
{
    const size_t len = strlen(text);
    snprintf(text + len, cap - len, "%s%s", len ? ", " : "", word);
}

static void add_needs(char *text, size_t cap, uint32_t needs)
{
    for (size_t i = 0; i < sizeof need_names / sizeof *need_names; i++) {
        if (needs & 1u << i) add_word(text, cap, need_names[i]);
    }
}

static uint32_t needs_of(const char *pipeline)
{
    uint32_t i = 0;
    while (i + 1 < gm_vk_n_shaders && strcmp(gm_vk_shaders[i].pipeline, pipeline) != 0)
        i++;
    return gm_vk_shaders[i].needs;
}

static void choose(const gm_vk_dev *d, const choice *c, gm_device_kernel *out)
{
    char lacks[48] = "", has[48] = "";
    size_t i = 0;
    while (i + 1 < CHOICES && c->kernels[i + 1] && needs_of(c->kernels[i]) & ~d->needs)
        i++;
    *out = (gm_device_kernel){.op = c->op, .kernel = c->kernels[i]};
    add_needs(has, sizeof has, needs_of(c->kernels[i]));
    if (i > 0) add_needs(lacks, sizeof lacks, needs_of(c->kernels[0]) & ~d->needs);
    if (i > 0)
        snprintf(out->why, sizeof out->why, "%.24s would need %s", c->kernels[0], lacks);
    else if (has[0])
        snprintf(out->why, sizeof out->why, "the device has %s", has);
    else
        snprintf(out->why, sizeof out->why, "the only one; any device can run it");
}

/* ---- the device ------------------------------------------------------------------------------ */

static const char *kind_name(VkPhysicalDeviceType t)
{
    switch (t) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return "discrete";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return "integrated";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return "virtual";
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return "cpu";
    default: return "other";
    }
}

static void put_features(const gm_vk_dev *d, char *text, size_t cap)
{
    char word[64];
    snprintf(word, sizeof word, "Vulkan %u.%u", VK_API_VERSION_MAJOR(d->props.apiVersion),
             VK_API_VERSION_MINOR(d->props.apiVersion));
    add_word(text, cap, word);
    snprintf(word, sizeof word, "subgroups of %u to %u", d->subgroup_min, d->subgroup_max);
    add_word(text, cap, word);
    add_word(text, cap, d->dot8_fast ? "int8 dot products" : "int8 dot products by many steps");
    if (d->needs & GM_VK_NEEDS_F16) add_word(text, cap, "float16");
    if (d->has_matrix) add_word(text, cap, "cooperative matrices");
    if (d->unified) add_word(text, cap, "unified memory");
    if (d->has_budget) add_word(text, cap, "memory budget");
    if (d->timestamp_ns > 0) add_word(text, cap, "timestamps");
}

static void put_heaps(const gm_vk_dev *d, gm_device_info *out)
{
    out->n_heaps = d->mem.memoryHeapCount;
    for (uint32_t i = 0; i < out->n_heaps; i++) {
        const VkMemoryHeap *const heap = &d->mem.memoryHeaps[i];
        out->heaps[i] =
            (gm_device_heap){.bytes = heap->size,
                             .free = gm_vk_dev_free(d, i),
                             .local = heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT ? 1 : 0};
    }
    for (uint32_t i = 0; i < d->mem.memoryTypeCount; i++) {
        const VkMemoryType *const type = &d->mem.memoryTypes[i];
        if (type->propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
            out->heaps[type->heapIndex].mapped = 1;
    }
}

gm_status gm_vk_device_at(uint32_t index, gm_device_info *out, gm_err *err)
{
    gm_vk_dev d = {0};
    gm_err why = {0};
    char which[16];
    snprintf(which, sizeof which, "%u", index);
    const gm_status status = gm_vk_dev_open(&d, which, &why);
    if (!d.phys) {
        gm_vk_dev_close(&d);
        return gm_fail(err, status, why.os, "%s", why.msg);
    }
    out->index = index;
    out->kind = kind_name(d.props.deviceType);
    snprintf(out->name, sizeof out->name, "%s", d.props.deviceName);
    snprintf(out->driver, sizeof out->driver, "%s", d.driver);
    snprintf(out->why_not, sizeof out->why_not, "%s", why.msg);
    out->max_alloc = d.max_alloc;
    put_heaps(&d, out);
    if (status == GM_OK) {
        put_features(&d, out->features, sizeof out->features);
        for (size_t i = 0; i < N_CHOICES; i++)
            choose(&d, &choices[i], &out->kernels[i]);
        out->n_kernels = N_CHOICES;
    }
    gm_vk_dev_close(&d);
    return GM_OK;
}
