/* SPDX-License-Identifier: MIT */
/* What is found out before a device is used, and how it is remembered. The device here is a mock,
 * since none is wrong when asked to: the ref-int8 backend, which says that it is a device, and whose
 * answers can be spoilt. t_vk_faults has the same with a real driver's functions. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backends.h"
#include "check/selftest.h"

static struct {
    uint64_t key;
    uint32_t n_steps;
    uint32_t wrong_rows; /* steps of so many outputs are wrong; 0: none */
    bool lost;
} mock;

static char dir[128], path[160], said[512];

static void mock_describe(const gm_backend *be, gm_backend_facts *out)
{
    gm_backend_ref_int8.describe(be, out);
    out->id = "mock";
    out->key = mock.key;
}

static gm_status mock_wait(gm_backend *be, gm_ticket t, gm_result *r, gm_err *err)
{
    GM_TRY(gm_backend_ref_int8.wait(be, t, r, err));
    mock.n_steps++;
    if (mock.lost) return gm_fail(err, GM_E_LOST, 0, "mock: the device was lost");
    if (r->n_out != mock.wrong_rows || !r->out[r->n_out - 1].hidden) return GM_OK;
    float *const last = (float *)(uintptr_t)r->out[r->n_out - 1].hidden;
    last[0] = last[0] * 1.5f + 1;
    return GM_OK;
}

static gm_backend_ops mock_ops(void)
{
    gm_backend_ops ops = gm_backend_ref_int8;
    ops.describe = mock_describe;
    ops.wait = mock_wait;
    return ops;
}

static void listen(void *ctx, const char *text)
{
    (void)ctx;
    snprintf(said, sizeof said, "%s", text);
}

/* A model with a matrix of each of two types, and a norm, which has none to be tried. */
static gm_status trust(const char *first, const char *second, const char *in, gm_err *err)
{
    gm_tensor tensors[] = {
        {.type = gm_qtype_find_name(gm_str_c(first)), .n_dims = 2},
        {.type = gm_qtype_find_name(gm_str_c(second)), .n_dims = 2},
        {.type = gm_qtype_find(GM_QTYPE_F32), .n_dims = 1},
    };
    const gm_tensors weights = {.at = tensors, .n = 3};
    const gm_selftest_wish wish = {
        .weights = &weights, .kv_type = GM_QTYPE_F16, .dir = in, .note = {listen, NULL}};
    const gm_backend_ops ops = mock_ops();
    gm_backend *be = NULL;
    mock.n_steps = 0;
    said[0] = '\0';
    assert_int_equal(ops.open(&be, &(gm_backend_cfg){0}, err), GM_OK);
    const gm_status status = gm_selftest_trust(&ops, be, &wish, err);
    ops.close(be);
    return status;
}

static int setup(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.80s/t_selftest.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) return 1;
    snprintf(path, sizeof path, "%s/mock.selftest", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static int begin(void **state)
{
    (void)state;
    memset(&mock, 0, sizeof mock);
    unlink(path);
    return 0;
}

static void what_is_right_is_remembered(void **state)
{
    (void)state;
    gm_err err = {0};
    assert_int_equal(trust("q4_0", "q6_k", dir, &err), GM_OK);
    const uint32_t both = mock.n_steps;
    assert_true(both > 0);
    assert_int_equal(trust("q4_0", "q6_k", dir, &err), GM_OK);
    assert_int_equal(mock.n_steps, 0);
    assert_int_equal(trust("q4_0", "q8_0", dir, &err), GM_OK); /* one of them is new */
    assert_in_range(mock.n_steps, 1, both - 1);
    assert_int_equal(trust("q6_k", "q8_0", dir, &err), GM_OK);
    assert_int_equal(mock.n_steps, 0);
    assert_string_equal(said, "");
    mock.key = 1; /* another driver */
    assert_int_equal(trust("q6_k", "q8_0", dir, &err), GM_OK);
    assert_true(mock.n_steps > 0);
    assert_non_null(strstr(said, "was dropped: it is of another device, driver or build"));
    assert_int_equal(trust("q4_0", "q4_0", NULL, &err), GM_OK); /* nobody remembers */
    assert_true(mock.n_steps > 0);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    gm_err err = {0};
    for (mock.wrong_rows = 1; mock.wrong_rows <= 8; mock.wrong_rows += 7) {
        char words[64];
        assert_int_equal(trust("q4_0", "q4_0", dir, &err), GM_E_UNSUP);
        snprintf(words, sizeof words, "in steps of %u rows is wrong with this driver",
                 mock.wrong_rows);
        if (!strstr(err.msg, words)) fail_msg("%s", err.msg);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    mock.wrong_rows = 0;
    assert_int_equal(trust("q4_0", "q4_0", dir, &err), GM_OK); /* it is tried again */
}

static void a_lost_device_is_no_verdict(void **state)
{
    (void)state;
    gm_err err = {0};
    mock.lost = true;
    assert_int_equal(trust("q4_0", "q4_0", dir, &err), GM_E_LOST);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void a_changed_file_is_no_promise(void **state)
{
    (void)state;
    gm_err err = {0};
    uint8_t good[256];
    assert_int_equal(trust("f32", "f32", dir, &err), GM_OK);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(good, 1, sizeof good, f);
    fclose(f);
    for (size_t i = 0; i < n; i += 11) {
        good[i] ^= 1;
        f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(good, 1, i % 2 ? n : i, f), i % 2 ? n : i);
        fclose(f);
        good[i] ^= 1;
        assert_int_equal(trust("f32", "f32", dir, &err), GM_OK);
        assert_true(mock.n_steps > 0);
    }
    assert_int_equal(trust("f32", "f32", dir, &err), GM_OK);
    assert_int_equal(mock.n_steps, 0);
    assert_int_equal(trust("f32", "f32", "/proc/nowhere", &err), GM_OK);
    assert_non_null(strstr(said, "was not written"));
}

static void the_processor_is_not_asked(void **state)
{
    (void)state;
    gm_err err = {0};
    gm_backend *be = NULL;
    const gm_selftest_wish wish = {.weights = &(gm_tensors){0}, .dir = dir};
    assert_int_equal(gm_backend_cpu.open(&be, &(gm_backend_cfg){.n_threads = 1}, &err), GM_OK);
    assert_int_equal(gm_selftest_trust(&gm_backend_cpu, be, &wish, &err), GM_OK);
    gm_backend_cpu.close(be);
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- the report ------------------------------------------------------------------------------ */

static uint32_t n_told, stop_at;

static int tell(void *ctx, const gm_selftest_row *row)
{
    const char *const type = ctx;
    const bool typed = strcmp(row->op, "matmul") == 0 || strcmp(row->op, "gate_up_gelu") == 0 ||
                       strcmp(row->op, "attend") == 0;
    if (typed) assert_string_equal(row->type, type);
    assert_true(row->ok);
    assert_true(row->worst <= row->bound);
    assert_string_equal(row->why, "");
    return ++n_told == stop_at;
}

static void a_report_has_every_try(void **state)
{
    (void)state;
    static char type[] = "q8_0";
    gm_err err = {0};
    gm_selftest_result r = {.size = sizeof r};
    gm_selftest_opts o = gm_selftest_opts_default();
    o.type = type;
    o.row = tell;
    o.row_ctx = type;
    o.engine.backend = "cpu";
    n_told = 0;
    if (gm_selftest_run(&o, &r, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_true(r.n > 50);
    assert_int_equal(r.n, n_told);
    assert_int_equal(r.n_failed, 0);
    n_told = 0;
    stop_at = 3;
    assert_int_equal(gm_selftest_run(&o, &r, &err), GM_E_CANCEL);
    assert_int_equal(n_told, 3);
    o.type = "q9_9";
    assert_int_equal(gm_selftest_run(&o, &r, &err), GM_E_ARG);
    o.engine.backend = "gpu";
    assert_int_equal(gm_selftest_run(&o, &r, &err), GM_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_right_is_remembered, begin),
        cmocka_unit_test_setup(what_is_wrong_is_refused, begin),
        cmocka_unit_test_setup(a_lost_device_is_no_verdict, begin),
        cmocka_unit_test_setup(a_changed_file_is_no_promise, begin),
        cmocka_unit_test_setup(the_processor_is_not_asked, begin),
        cmocka_unit_test_setup(a_report_has_every_try, begin),
    };
    return cmocka_run_group_tests_name("t_selftest", tests, setup, teardown);
}
