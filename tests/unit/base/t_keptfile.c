/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/keptfile.h"

#define KEY 0x1122334455667788u

static const char bytes[] = "what took long to find out";
static char folder[128], path[160];

static int setup(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.80s/t_keptfile.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* refuses if anything else was left in it */
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

static void refused(const char *words)
{
    gm_keptfile f;
    const char *const wrong = gm_keptfile_open(&f, path, KEY);
    assert_non_null(wrong);
    assert_null(f.data);
    assert_int_equal(f.size, 0);
    if (words && !strstr(wrong, words)) fail_msg("\"%s\", expected \"%s\"", wrong, words);
    gm_keptfile_close(&f);
}

static void keeps_what_was_written(void **state)
{
    (void)state;
    gm_keptfile f;
    assert_null(gm_keptfile_open(&f, path, KEY));
    assert_null(f.data); /* there is none */
    for (size_t n = 0; n <= sizeof bytes; n += sizeof bytes) {
        assert_int_equal(gm_keptfile_write(path, KEY, bytes, n), 0);
        assert_null(gm_keptfile_open(&f, path, KEY));
        assert_non_null(f.data);
        assert_int_equal(f.size, n);
        assert_memory_equal(f.data, bytes, n);
        gm_keptfile_close(&f);
        gm_keptfile_close(&f);
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void refuses_each_change(void **state)
{
    (void)state;
    uint8_t good[256], bad[256];
    assert_int_equal(gm_keptfile_write(path, KEY, bytes, sizeof bytes), 0);
    const size_t n = read_raw(good, sizeof good);
    assert_true(n > sizeof bytes && n < sizeof good);
    for (size_t i = 0; i < n; i++) {
        write_raw(good, i);
        refused("cut short");
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, good, n);
            bad[i] ^= (uint8_t)(1 << bit);
            write_raw(bad, n);
            refused(NULL);
        }
    }
    good[n] = 0;
    write_raw(good, n + 1);
    refused("too long");
}

static void refuses_what_is_anothers(void **state)
{
    (void)state;
    assert_int_equal(gm_keptfile_write(path, KEY + 1, bytes, sizeof bytes), 0);
    refused("another device, driver or build");
    uint8_t other[256] = "GGUF";
    write_raw(other, sizeof other);
    refused("none of gemmule's");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    refused("cannot be read");
    /* ... and leaves nothing beside what it could not replace. */
    assert_int_equal(gm_keptfile_write(path, KEY, bytes, sizeof bytes), EISDIR);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(gm_keptfile_write("/nowhere/at/all", KEY, bytes, sizeof bytes), ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_was_written),
        cmocka_unit_test(refuses_each_change),
        cmocka_unit_test(refuses_what_is_anothers),
    };
    return cmocka_run_group_tests_name("t_keptfile", tests, setup, teardown);
}
