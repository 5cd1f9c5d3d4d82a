/* SPDX-License-Identifier: MIT */
#define VOLK_IMPLEMENTATION
#include "backend/vk/vk_volk.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* volk keeps what it found in variables; every caller finds the same. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* volk's own search calls what it finds without a look whether it is there. */
static PFN_vkGetInstanceProcAddr find(void)
{
    PFN_vkGetInstanceProcAddr found = NULL;
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libvulkan.so", RTLD_NOW | RTLD_LOCAL);
    void *const symbol = library ? dlsym(library, "vkGetInstanceProcAddr") : NULL;
    memcpy(&found, &symbol, sizeof found);
    if (library && !symbol) dlclose(library);
    return found;
}

PFN_vkGetInstanceProcAddr gm_volk_open(void)
{
    pthread_mutex_lock(&lock);
    const PFN_vkGetInstanceProcAddr found = vkGetInstanceProcAddr ? vkGetInstanceProcAddr : find();
    if (found && !vkGetInstanceProcAddr) volkInitializeCustom(found);
    pthread_mutex_unlock(&lock);
    return found;
}

void gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table)
{
    pthread_mutex_lock(&lock);
    volkLoadInstanceOnly(instance);
    volkLoadDeviceTable(table, device);
    pthread_mutex_unlock(&lock);
}
