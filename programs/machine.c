/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void gm_machine_name(char name[80])
{
    FILE *const f = fopen("/proc/cpuinfo", "r");
    char line[512];
    snprintf(name, 80, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        const char *const colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        const char *const value = colon + 1 + strspn(colon + 1, " ");
        snprintf(name, 80, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (f) fclose(f);
}

uint32_t gm_machine_processors(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

/* sysconf adds up the caches of cores that a virtual machine does not have. */
uint64_t gm_machine_cache(void)
{
    uint64_t most = 0;
    for (int i = 0; i < 8; i++) {
        char path[80];
        uint64_t kib = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *const f = fopen(path, "r");
        const bool read = f && fscanf(f, "%" SCNu64 "K", &kib) == 1;
        if (f) fclose(f);
        if (read && kib > most) most = kib;
    }
    return most * 1024;
}
