/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_VOLK_H
#define GM_BACKEND_VK_VOLK_H

/* Vulkan's types, and the way to its functions.
 *
 * volk opens the loader (libvulkan.so.1) when asked to, so one binary runs with and without it.
 * Its own variables are not seen outside vk_volk.c: functions of an instance are asked for by
 * name, functions of a device come in a table of that device. Any thread may call these. */

#include <volk.h>

/* The loader's vkGetInstanceProcAddr, or NULL when there is no Vulkan loader here. */
PFN_vkGetInstanceProcAddr gm_volk_open(void);

/* Fills the device's table; functions that the device does not have are NULL in it. */
void gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table);

#endif
