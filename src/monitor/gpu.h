/* SPDX-License-Identifier: MIT */
#ifndef GM_MONITOR_GPU_H
#define GM_MONITOR_GPU_H

/* What the amdgpu driver tells of its GPUs in sysfs and hwmon. Files are looked for
 * under a root ("" is the system's), so that a test can give a tree of its own. A
 * reading that is not there is negative; nothing here ever fails. */

#include <stddef.h>
#include <stdint.h>

#define GM_GPUS_MAX 8

typedef struct gm_gpu {
    char name[16];                 /* "card0"                                   */
    double busy;                   /* share of the time that it worked, 0 to 1  */
    double vram_used, vram_total;  /* bytes                                     */
    double gtt_used, gtt_total;    /* bytes of the host's memory that it uses   */
    double temperature_c, power_w; /* of the chip; of the package on an APU     */
} gm_gpu;

/* Reads every AMD GPU, by number; answers how many there are, at most GM_GPUS_MAX. */
size_t gm_gpu_read(const char *root, gm_gpu *out);

#endif
