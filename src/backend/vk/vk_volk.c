/* SPDX-License-Identifier: MIT */
#define VOLK_IMPLEMENTATION
#include "backend/vk/vk_volk.h"

#include <pthread.h>

/* volk keeps what it found in variables; every caller finds the same. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

PFN_vkGetInstanceProcAddr gm_volk_open(void)
{
    pthread_mutex_lock(&lock);
    const VkResult found = vkGetInstanceProcAddr != NULL ? VK_SUCCESS : volkInitialize();
    pthread_mutex_unlock(&lock);
    return found == VK_SUCCESS ? vkGetInstanceProcAddr : NULL;
}

void gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table)
{
    pthread_mutex_lock(&lock);
    volkLoadInstanceOnly(instance);
    volkLoadDeviceTable(table, device);
    pthread_mutex_unlock(&lock);
}
