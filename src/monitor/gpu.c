/* SPDX-License-Identifier: MIT */
#include "monitor/gpu.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AMD "0x1002" /* PCI's number of the vendor */

/* The first line of a small file; false where there is none. */
static bool read_line(const char *dir, const char *name, char *out, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, out, size - 1);
    close(fd);
    if (n <= 0) return false;
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return true;
}

static double read_number(const char *dir, const char *name, double unit)
{
    char line[64], *end = NULL;
    if (!read_line(dir, name, line, sizeof line)) return -1;
    const double x = strtod(line, &end);
    return end == line || x < 0 ? -1 : x * unit;
}

/* The first hwmon folder of a device; "" where there is none. */
static void find_hwmon(const char *device, char *out, size_t size)
{
    char path[300];
    out[0] = '\0';
    snprintf(path, sizeof path, "%s/hwmon", device);
    DIR *const dir = opendir(path);
    const struct dirent *entry = NULL;
    while (dir && !out[0] && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, "hwmon", 5) == 0)
            snprintf(out, size, "%s/%.40s", path, entry->d_name);
    }
    if (dir) closedir(dir);
}

static bool read_card(const char *root, unsigned i, gm_gpu *g)
{
    char device[256], hwmon[400], vendor[16];
    snprintf(device, sizeof device, "%.200s/sys/class/drm/card%u/device", root, i);
    if (!read_line(device, "vendor", vendor, sizeof vendor) || strcmp(vendor, AMD) != 0)
        return false;
    find_hwmon(device, hwmon, sizeof hwmon);
    *g = (gm_gpu){
        .busy = read_number(device, "gpu_busy_percent", 0.01),
        .vram_used = read_number(device, "mem_info_vram_used", 1),
        .vram_total = read_number(device, "mem_info_vram_total", 1),
        .gtt_used = read_number(device, "mem_info_gtt_used", 1),
        .gtt_total = read_number(device, "mem_info_gtt_total", 1),
        .temperature_c = read_number(hwmon, "temp1_input", 1e-3),
        .power_w = read_number(hwmon, "power1_average", 1e-6),
    };
    if (g->power_w < 0) g->power_w = read_number(hwmon, "power1_input", 1e-6);
    snprintf(g->name, sizeof g->name, "card%u", i);
    return true;
}

size_t gm_gpu_read(const char *root, gm_gpu *out)
{
    size_t n = 0;
    for (unsigned i = 0; i < 64 && n < GM_GPUS_MAX; i++)
        n += read_card(root, i, &out[n]);
    return n;
}
