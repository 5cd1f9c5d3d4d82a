/* SPDX-License-Identifier: MIT */
/* Readings of GPUs from a tree of files made here: no machine with such a GPU is needed. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "monitor/gpu.h"

static char root[] = "/tmp/gemmule-gpu.XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0700);
        *at = '/';
    }
    FILE *const f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void test_nothing_there(void **state)
{
    (void)state;
    gm_gpu g[GM_GPUS_MAX];
    assert_int_equal(gm_gpu_read("/no/such/root", g), 0);
    assert_int_equal(gm_gpu_read(root, g), 0);
}

static void test_cards(void **state)
{
    (void)state;
    gm_gpu g[GM_GPUS_MAX];
    put("sys/class/drm/card0/device/vendor", "0x10de\n"); /* another maker's */
    put("sys/class/drm/card1/device/vendor", "0x1002\n");
    put("sys/class/drm/card1/device/gpu_busy_percent", "87\n");
    put("sys/class/drm/card1/device/mem_info_vram_used", "1073741824\n");
    put("sys/class/drm/card1/device/mem_info_vram_total", "4294967296\n");
    put("sys/class/drm/card1/device/mem_info_gtt_used", "17179869184\n");
    put("sys/class/drm/card1/device/mem_info_gtt_total", "51539607552\n");
    put("sys/class/drm/card1/device/hwmon/hwmon4/temp1_input", "64000\n");
    put("sys/class/drm/card1/device/hwmon/hwmon4/power1_average", "38500000\n");
    put("sys/class/drm/card2/device/vendor", "0x1002\n"); /* says little, and one thing wrongly */
    put("sys/class/drm/card2/device/gpu_busy_percent", "\n");
    put("sys/class/drm/card2/device/hwmon/hwmon0/power1_input", "1000000\n");
    assert_int_equal(gm_gpu_read(root, g), 2);
    assert_string_equal(g[0].name, "card1");
    assert_true(g[0].busy > 0.869 && g[0].busy < 0.871);
    assert_true(g[0].vram_used == 1073741824.0 && g[0].vram_total == 4294967296.0);
    assert_true(g[0].gtt_used == 17179869184.0 && g[0].gtt_total == 51539607552.0);
    assert_true(g[0].temperature_c > 63.9 && g[0].temperature_c < 64.1);
    assert_true(g[0].power_w > 38.4 && g[0].power_w < 38.6);
    assert_true(g[1].busy < 0 && g[1].vram_used < 0 && g[1].temperature_c < 0);
    assert_true(g[1].power_w > 0.9 && g[1].power_w < 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_cards),
    };
    return cmocka_run_group_tests_name("t_gpu", tests, setup, teardown);
}
