/* SPDX-License-Identifier: MIT */
/* The file that spares a device's second opening the compiling: what it holds is handed to the
 * driver again, and whatever is wrong with it costs a sentence and nothing else.
 *
 * lavapipe's cache has a head and nothing more, so that what a cache brings is shown elsewhere:
 * t_vk_kept --cache runs on a driver that has one, RADV's with its null device, which compiles as a
 * real one does and tells what it found in the cache. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "base/mem.h"
#include "fixtures/vk/gpu.h"

static char dir[128], path[512]; /* the folder; the file, once count_files has found it */
static char said[512];

static int setup(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.80s/t_vk_kept.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir); /* refuses if anything else was left in it */
}

static void listen(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(said, sizeof said, "%s", text);
}

static void compile_two(gm_vk_pipes *pipes, gm_workers *workers)
{
    gm_err err = {0};
    uint32_t pipe = 0;
    const uint32_t lanes[] = {128, 256};
    assert_int_equal(gm_vk_pipes_want(pipes, "rows", GM_VK_NO_TYPE, &lanes[0], &pipe, &err), GM_OK);
    assert_int_equal(gm_vk_pipes_want(pipes, "embed", GM_QTYPE_Q4_0, &lanes[1], &pipe, &err),
                     GM_OK);
    if (gm_vk_pipes_compile(pipes, workers, &err) != GM_OK) fail_msg("%s", err.msg);
}

/* Opens a device, compiles, closes; answers whether the file was used. */
static bool live(const char *in)
{
    gm_err err = {0};
    gm_backend *be = NULL;
    const gm_backend_cfg cfg = {.n_threads = 1, .dir = in, .note = {listen, NULL}};
    said[0] = '\0';
    if (gm_backend_vulkan.open(&be, &cfg, &err) != GM_OK) fail_msg("%s", err.msg);
    const bool used = be->kept.before != 0;
    compile_two(&be->pipes, be->workers);
    gm_backend_vulkan.close(be);
    return used;
}

static size_t count_files(void)
{
    size_t n = 0;
    DIR *const d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        n++;
    }
    closedir(d);
    return n;
}

static size_t read_raw(uint8_t *to, size_t cap)
{
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(to, 1, cap, f);
    fclose(f);
    return n;
}

static void write_raw(const uint8_t *from, size_t n)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(from, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void the_second_opening_uses_the_file(void **state)
{
    (void)state;
    struct stat first, second;
    assert_false(live(dir));
    assert_string_equal(said, "");
    assert_int_equal(count_files(), 1);
    assert_int_equal(stat(path, &first), 0);
    assert_true(live(dir));
    assert_string_equal(said, "");
    assert_int_equal(count_files(), 1);
    assert_int_equal(stat(path, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino); /* nothing new: nothing written */
    assert_false(live(NULL));
}

static void each_change_is_survived(void **state)
{
    (void)state;
    static uint8_t good[1 << 16], bad[1 << 16];
    live(dir);
    assert_int_equal(count_files(), 1);
    const size_t n = read_raw(good, sizeof good);
    assert_true(n > 40 && n < sizeof good);
    for (size_t i = 0; i < 2 * n; i++) {
        memcpy(bad, good, n);
        bad[i / 2] ^= 0x10;
        write_raw(bad, i % 2 ? n : i / 2);
        assert_false(live(dir));
        assert_non_null(strstr(said, " was dropped: it"));
        assert_int_equal(count_files(), 1);
        assert_int_equal(read_raw(bad, sizeof bad), n); /* it was written again */
        assert_memory_equal(bad, good, n);
    }
    assert_true(live(dir));
}

static void a_folder_that_cannot_be_is_said(void **state)
{
    (void)state;
    char in[sizeof path + 8];
    assert_false(live("/proc/nowhere"));
    assert_non_null(strstr(said, " was not written: "));
    live(dir);
    assert_int_equal(count_files(), 1);
    snprintf(in, sizeof in, "%s/below", path);
    assert_false(live(in)); /* a file is no folder */
    assert_non_null(strstr(said, " was "));
}

/* ---- compiling that is cancelled ------------------------------------------------------------- */

typedef struct asker {
    uint64_t calls, most; /* how often the answer is to go on */
} asker;

static bool ask(void *ctx, uint64_t done, uint64_t total)
{
    asker *const a = ctx;
    assert_int_equal(done, a->calls); /* one worker asks before each */
    assert_int_equal(total, 2);
    return a->calls++ < a->most;
}

static void compiling_ends_where_it_is_cancelled(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_backend *be = NULL;
    uint32_t pipe = 0;
    const uint32_t lanes[] = {128, 256};
    const gm_backend_cfg cfg = {.n_threads = 1};
    assert_int_equal(gm_backend_vulkan.open(&be, &cfg, &err), GM_OK);
    const size_t n = be->pipes.n;
    for (uint64_t i = 0; i < 2; i++) {
        asker a = {.most = i};
        be->pipes.ask = (gm_progress){ask, &a};
        for (int k = 0; k < 2; k++)
            assert_int_equal(
                gm_vk_pipes_want(&be->pipes, "rows", GM_VK_NO_TYPE, &lanes[k], &pipe, &err), GM_OK);
        assert_int_equal(gm_vk_pipes_compile(&be->pipes, be->workers, &err), GM_E_CANCEL);
        assert_string_equal(err.msg, "compiling kernels was cancelled");
        assert_int_equal(be->pipes.n, n);
        assert_int_equal(a.calls, i + 1);
        assert_int_equal(be->pipes.is_new, i > 0); /* what was compiled may be kept */
    }
    be->pipes.ask = (gm_progress){0};
    compile_two(&be->pipes, be->workers);
    gm_backend_vulkan.close(be);
}

/* ---- a driver with a cache ------------------------------------------------------------------- */

/* What the null device compiled, and how much of it came from these bytes; its cache's bytes. */
static gm_device_counts compile_on(gpu *g, const void *cached, size_t size, void **out, size_t *n)
{
    gm_vk_dev d = {.device = g->device, .vk = g->vk};
    gm_vk_pipes pipes = {0};
    gm_workers *workers = NULL;
    gm_err err = {0};
    assert_int_equal(gm_workers_open(&workers, 1, &err), GM_OK);
    assert_int_equal(gm_vk_pipes_init(&pipes, &d, cached, size, &err), GM_OK);
    compile_two(&pipes, workers);
    assert_int_equal(pipes.is_new, d.count.cached < d.count.pipelines);
    assert_int_equal(gm_vk_pipes_save(&pipes, out, n, &err), GM_OK);
    gm_vk_pipes_deinit(&pipes);
    gm_workers_close(workers);
    return d.count;
}

static void a_driver_finds_what_it_compiled(void **state)
{
    (void)state;
    gpu g;
    const char *const why = gpu_open(&g);
    if (why) fail_msg("%s", why);
    void *first = NULL, *second = NULL;
    size_t n_first = 0, n_second = 0;
    gm_device_counts c = compile_on(&g, NULL, 0, &first, &n_first);
    assert_int_equal(c.pipelines, 2);
    assert_int_equal(c.cached, 0);
    c = compile_on(&g, first, n_first, &second, &n_second);
    assert_int_equal(c.pipelines, 2);
    assert_int_equal(c.cached, 2);
    gm_mem_free(first);
    gm_mem_free(second);
    gpu_close(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest cache[] = {cmocka_unit_test(a_driver_finds_what_it_compiled)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_opening_uses_the_file),
        cmocka_unit_test(each_change_is_survived),
        cmocka_unit_test(a_folder_that_cannot_be_is_said),
        cmocka_unit_test(compiling_ends_where_it_is_cancelled),
    };
    if (argc == 2 && strcmp(argv[1], "--cache") == 0) {
        setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
        return cmocka_run_group_tests_name("t_vk_kept --cache", cache, NULL, NULL);
    }
    return cmocka_run_group_tests_name("t_vk_kept", tests, setup, teardown);
}
