/* SPDX-License-Identifier: MIT */
/* Making and inspecting models while allocations fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gemmule_tools.h"
#include "oom/failalloc.h"

#define MODEL "tests/golden/gqa4"

static char folder[64], path[80];
static gm_model *model;

/* The file is there when all went well and only then, and nothing else is ever left in the folder. */
static gm_status synthesized(gm_err *err)
{
    gm_synth_opts o = gm_synth_opts_default();
    o.shape = "tiny";
    o.type = "q8_0";
    const gm_status status = gm_synth_write(path, &o, err);
    assert_int_equal(unlink(path), status == GM_OK ? 0 : -1);
    return status;
}

static gm_status made_from_folder(gm_err *err)
{
    gm_convert *c = NULL;
    gm_convert_opts o = gm_convert_opts_default();
    gm_status status = gm_convert_open(&c, MODEL, path, &o, err);
    assert_true((status == GM_OK) == (c != NULL));
    if (status == GM_OK) status = gm_convert_run(c, err);
    gm_convert_close(c);
    assert_int_equal(unlink(path), status == GM_OK ? 0 : -1);
    return status;
}

static gm_status measured(gm_err *err)
{
    gm_importance *imp = NULL;
    gm_calibrate_opts o = gm_calibrate_opts_default();
    o.text = "a text";
    o.len = 6;
    o.engine.backend = "cpu"; /* a loader that looks for Vulkan keeps blocks of its own */
    o.engine.n_ctx = 8;
    o.engine.n_threads = 2;
    const gm_status status = gm_calibrate(&imp, model, &o, err);
    assert_true((status == GM_OK) == (imp != NULL));
    gm_importance_free(imp);
    return status;
}

static gm_status compared(gm_err *err)
{
    gm_compare_opts o = gm_compare_opts_default();
    gm_compare_result r = {.size = sizeof r};
    o.text = "a text";
    o.len = 6;
    o.engine.backend = "cpu";
    o.engine.n_ctx = 8;
    o.engine.n_threads = 2;
    const gm_status status = gm_compare_run(model, model, &o, &r, err);
    assert_true((status == GM_OK) == (r.n_tokens > 0));
    return status;
}

static gm_status inspected(gm_err *err)
{
    gm_modelfile *f = NULL;
    const gm_status status = gm_modelfile_open(&f, MODEL, err);
    if (status != GM_OK) return status;
    size_t n = 0;
    gm_keyinfo info = {.size = sizeof info};
    while (gm_modelfile_key(f, n, &info) == GM_OK)
        n++;
    assert_true(n > 10);
    gm_modelfile_close(f);
    return GM_OK;
}

static gm_status planned(gm_err *err)
{
    char *text = NULL;
    const gm_status status = gm_model_plan_text(model, &text, err);
    assert_true((status == GM_OK) == (text != NULL));
    gm_text_free(text);
    return status;
}

static int begin(void **state)
{
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/oom.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    return (int)gm_model_open(&model, MODEL, NULL);
}

static int end(void **state)
{
    (void)state;
    gm_model_close(model);
    return rmdir(folder);
}

static void synth(void **state)
{
    (void)state;
    oom_sweep("synth", synthesized);
}

static void convert(void **state)
{
    (void)state;
    oom_sweep("convert", made_from_folder);
}

static void calibrate(void **state)
{
    (void)state;
    oom_sweep("calibrate", measured);
}

static void compare(void **state)
{
    (void)state;
    oom_sweep("compare", compared);
}

static void inspect(void **state)
{
    (void)state;
    oom_sweep("inspect", inspected);
}

static void plan_text(void **state)
{
    (void)state;
    oom_sweep("plan", planned);
}

int main(void)
{
    const struct CMUnitTest o_tools[] = {
        cmocka_unit_test(synth),   cmocka_unit_test(convert), cmocka_unit_test(calibrate),
        cmocka_unit_test(compare), cmocka_unit_test(inspect), cmocka_unit_test(plan_text),
    };
    return cmocka_run_group_tests(o_tools, begin, end);
}
