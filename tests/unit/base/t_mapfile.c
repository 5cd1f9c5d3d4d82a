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

#include "base/mapfile.h"

static char folder[128], path[160];

static int setup(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.80s/t_mapfile.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(size_t n)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        fputc((int)(i * 7 % 256), f);
    assert_int_equal(fclose(f), 0);
}

static void test_maps(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4095, 4096, 4097, 70001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        gm_mapfile m;
        gm_err err = {0};
        write_file(sizes[s]);
        assert_int_equal(gm_mapfile_open(&m, path, &err), GM_OK);
        assert_int_equal(m.size, sizes[s]);
        for (size_t i = 0; i < m.size; i++)
            assert_int_equal(m.data[i], i * 7 % 256);
        gm_mapfile_close(&m);
        assert_null(m.data);
        assert_int_equal(m.size, 0);
        gm_mapfile_close(&m);
    }
}

/* What was forgotten is read again; bytes around it are untouched. */
static void test_fetch_and_forget(void **state)
{
    (void)state;
    gm_mapfile m;
    write_file(70001);
    assert_int_equal(gm_mapfile_open(&m, path, NULL), GM_OK);
    static const size_t parts[][2] = {{0, 0}, {1, 4095}, {0, 4096}, {100, 20000}, {65536, 4465}};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        gm_mapfile_fetch(m.data + parts[p][0], parts[p][1]);
        gm_mapfile_forget(m.data + parts[p][0], parts[p][1]);
        for (size_t i = 0; i < m.size; i++)
            assert_int_equal(m.data[i], i * 7 % 256);
    }
    gm_mapfile_close(&m);
}

static void test_empty_file(void **state)
{
    (void)state;
    gm_mapfile m;
    write_file(0);
    assert_int_equal(gm_mapfile_open(&m, path, NULL), GM_OK);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    gm_mapfile_close(&m);
}

static void check_refused(const char *what, int os, const char *why)
{
    gm_mapfile m = {.data = (const uint8_t *)"poison", .size = 6};
    gm_err err = {0};
    assert_int_equal(gm_mapfile_open(&m, what, &err), GM_E_IO);
    assert_int_equal(err.os, os);
    assert_non_null(strstr(err.msg, what));
    assert_non_null(strstr(err.msg, why));
    assert_null(m.data);
    assert_int_equal(m.size, 0);
}

static void test_refuses(void **state)
{
    (void)state;
    unlink(path);
    check_refused(path, ENOENT, strerror(ENOENT));
    check_refused(folder, 0, "a folder");
    check_refused("/dev/null", 0, "not a regular file");
    /* A pipe that nobody writes to is refused at once. */
    assert_int_equal(mkfifo(path, 0600), 0);
    check_refused(path, 0, "not a regular file");
    unlink(path);
    write_file(1);
    if (geteuid() != 0 && chmod(path, 0) == 0)
        check_refused(path, EACCES, strerror(EACCES));
    else
        print_message("skip: root may read a file that nobody may read\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_fetch_and_forget),
        cmocka_unit_test(test_empty_file),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests_name("t_mapfile", tests, setup, teardown);
}
