/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_DEVICE_H
#define GM_BACKEND_VK_DEVICE_H

/* One Vulkan device, opened, with a compute queue, and memory on it.
 *
 * Everything a kernel reads or writes lies in a gm_vk_buf and is reached by its device address. There
 * are four kinds of memory, by who uses it how. For each there are memory types to take it from, best
 * first and one a heap; a buffer comes from the first whose heap has room for it. One thread at a
 * time, but for gm_vk_check and gm_vk_wait. */

#include <stdbool.h>

#include "backend/vk/vk_volk.h"
#include "base/status.h"
#include "gemmule.h"

/* Bytes of push constants of every kernel: the least that Vulkan 1.4 promises, and what drivers of
 * 1.3 have. */
#define GM_VK_PUSH 256

typedef enum gm_vk_memkind {
    GM_VK_LOCAL,   /* the device's own: weights, cache, scratch; mapped where memory is unified  */
    GM_VK_STEP,    /* written by the host each step, read by the device: its own where possible  */
    GM_VK_RESULT,  /* written by the device, read by the host: cached by the host                */
    GM_VK_STAGING, /* written by the host, copied from by the device                             */
    GM_VK_MEMKINDS,
} gm_vk_memkind;

/* Where a kind of memory may come from, best first. */
#define GM_VK_MEMTYPES 4
typedef struct gm_vk_memtypes {
    uint32_t n, at[GM_VK_MEMTYPES];
} gm_vk_memtypes;

typedef struct gm_vk_dev {
    PFN_vkGetInstanceProcAddr proc;
    VkInstance instance;
    VkPhysicalDevice phys;
    VkDevice device;
    struct VolkDeviceTable vk;
    VkQueue queue;
    uint32_t family;
    uint32_t needs; /* gm_vk_needs that it meets */
    uint32_t subgroup_min, subgroup_max;
    VkSubgroupFeatureFlags subgroup_ops;
    bool unified;                /* host and device share their memory                */
    bool dot8_fast;              /* the driver says that 8-bit dot products are one instruction */
    bool has_matrix, has_budget; /* cooperative matrices; the driver counts free memory */
    bool has_halves;       /* cooperative matrices of float16 to float32, 16 by 16 by 16         */
    bool has_half_columns; /* ... 16 by 8 by 16                                            */
    uint32_t
        matrix_depth;   /* of cooperative matrices of signed bytes, 16 by 16; 0: there are none */
    uint64_t max_alloc; /* bytes of one allocation                           */
    float timestamp_ns; /* of a tick; 0: no timestamps                       */
    gm_vk_memtypes types[GM_VK_MEMKINDS];
    VkPhysicalDeviceMemoryProperties mem;
    VkPhysicalDeviceProperties props;
    char driver[160];
    VkDriverId driver_id;
    VkCommandPool pool;
    VkSemaphore timeline; /* of all submits: n after the n-th */
    uint64_t n_submits;
    gm_device_counts count;
} gm_vk_dev;

typedef struct gm_vk_buf {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t addr, size;
    uint8_t *map; /* NULL where the host cannot see it */
    uint32_t heap;
} gm_vk_buf;

/* Opens the device of that index or with that in its name; NULL: the best there is. A failed or
 * all-zero device is closed like a whole one. */
gm_status gm_vk_dev_open(gm_vk_dev *d, const char *which, gm_err *err);
void gm_vk_dev_close(gm_vk_dev *d);

/* Bytes of a heap that may be taken now: by the driver's count where it has one, else by ours. */
uint64_t gm_vk_dev_free(const gm_vk_dev *d, uint32_t heap);
/* ... of all heaps that weights may lie in. */
uint64_t gm_vk_dev_room(const gm_vk_dev *d);

/* Fills d->types from d->mem and d->unified; a sentence where a kind has none. */
gm_status gm_vk_dev_find_types(gm_vk_dev *d, gm_err *err);
/* The type that a buffer of that kind and size, which may have the types of `allowed` (a bit each),
 * is to come from: the first whose heap has room, else the first. False where none is allowed. */
bool gm_vk_dev_type_for(const gm_vk_dev *d, gm_vk_memkind kind, uint64_t size, uint32_t allowed,
                        uint32_t *type);

/* The sentence of a failed call, or GM_OK. `what` says what was tried. */
gm_status gm_vk_check(VkResult r, const char *what, gm_err *err);

/* Memory of at least one byte, zeroed by nobody. */
gm_status gm_vk_buf_alloc(gm_vk_dev *d, gm_vk_buf *b, uint64_t size, gm_vk_memkind kind,
                          const char *what, gm_err *err);
void gm_vk_buf_free(gm_vk_dev *d, gm_vk_buf *b);

/* Hands command buffers to the queue as one submit; *value is what the timeline shows when they are
 * done. */
gm_status gm_vk_submit_all(gm_vk_dev *d, const VkCommandBufferSubmitInfo *buffers, uint32_t n,
                           uint64_t *value, gm_err *err);
gm_status gm_vk_submit(gm_vk_dev *d, VkCommandBuffer cmd, uint64_t *value, gm_err *err);
gm_status gm_vk_wait(gm_vk_dev *d, uint64_t value, gm_err *err);
/* The same where it is expected to be done at some time of gm_clock_s: it is looked for then. */
gm_status gm_vk_wait_until(gm_vk_dev *d, uint64_t value, double when_s, gm_err *err);

#endif
