/* SPDX-License-Identifier: MIT */
/* What a measurement computes is what an engine computes; how fast it was is nobody's promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fixtures/tinymodel.h"
#include "gemmule_tools.h"

static gm_err err;
static gm_model *plain, *quantised; /* f32, and q8_0 */

static int models_open(void **state)
{
    if (tiny_setup(state) != 0) return 1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.seed = 3});
    plain = tiny_open(&t, "plain.gguf");
    tiny_deinit(&t);
    tiny_init(&t, &(tiny_shape){.matrix = GM_QTYPE_Q8_0, .embed = GM_QTYPE_Q8_0, .seed = 4});
    quantised = tiny_open(&t, "quantised.gguf");
    tiny_deinit(&t);
    return 0;
}

static int models_close(void **state)
{
    gm_model_close(plain);
    gm_model_close(quantised);
    return tiny_teardown(state);
}

/* Short, and on the backend whose roof takes no time. */
static gm_bench_opts short_opts(void)
{
    gm_bench_opts o = gm_bench_opts_default();
    o.decode = 5;
    o.reps = 1;
    o.engine.backend = "ref-int8";
    return o;
}

static gm_bench_result run(const gm_model *m, const gm_bench_opts *o)
{
    gm_bench_result r = {.size = sizeof r};
    if (gm_bench_run(m, o, &r, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_true(r.tok_s > 0);
    assert_true(r.spread >= 0);
    assert_true(r.roof_gb_s > 0);
    assert_true(o->prompt ? r.gop_s > 0 && r.gb_s == 0 : r.gb_s > 0 && r.gop_s == 0);
    assert_true(r.n_threads >= 1);
    return r;
}

static void refuse(const gm_bench_opts *o, gm_status status, const char *sentence)
{
    gm_bench_result r = {.size = sizeof r, .tok_s = 42};
    assert_int_equal(gm_bench_run(plain, o, &r, &err), status);
    assert_non_null(strstr(err.msg, sentence));
    assert_true(r.tok_s == 42);
}

/* The tokens that a sequence of a measurement begins with. */
static void first_tokens(int32_t *ids, uint32_t n, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 7919u + 13u) % n_vocab);
}

/* The hash of the row that an engine draws its answer's last token from, greedily. */
static uint64_t engine_hash(const gm_model *m, uint32_t n_prompt, uint32_t n_answer,
                            const char *backend)
{
    int32_t ids[64];
    assert_true(n_prompt <= 64);
    gm_model_info info = {.size = sizeof info};
    gm_model_describe(m, &info);
    first_tokens(ids, n_prompt, info.n_vocab);
    gm_engine_opts opts = gm_engine_opts_default();
    opts.backend = backend;
    gm_engine *e = NULL;
    if (gm_engine_open(&e, m, &opts, &err) != GM_OK) fail_msg("%s", err.msg);
    gm_request_opts o = gm_request_opts_default(m);
    o.ids = ids;
    o.n_ids = n_prompt;
    o.max_tokens = n_answer;
    o.sampling = (gm_sampling){.top_p = 1, .repeat_penalty = 1};
    o.flags = GM_REQUEST_HASH;
    static tiny_answer a;
    tiny_run(e, &o, &a);
    assert_int_equal(a.n, n_answer);
    gm_engine_close(e);
    return a.hash[n_answer - 1];
}

/* ---- tests ------------------------------------------------------------------------------- */

static void hash_is_the_engines(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref-int8", "cpu"};
    for (size_t i = 0; i < 2; i++) {
        gm_bench_opts o = short_opts();
        o.engine.backend = backends[i];
        o.depth = 11;
        assert_int_equal(run(quantised, &o).hash, engine_hash(quantised, 12, 5, backends[i]));
        o.depth = 0;
        assert_int_equal(run(plain, &o).hash, engine_hash(plain, 1, 5, backends[i]));
        o.prompt = 23;
        o.depth = 9;
        assert_int_equal(run(quantised, &o).hash, engine_hash(quantised, 32, 1, backends[i]));
    }
}

static void hash_stays(void **state)
{
    (void)state;
    gm_bench_opts o = short_opts();
    o.depth = 7;
    const uint64_t once = run(quantised, &o).hash;
    o.reps = 3;
    const gm_bench_result thrice = run(quantised, &o);
    assert_int_equal(thrice.hash, once);
    assert_int_equal(thrice.n_steps, 3 * o.decode); /* what is there before is not counted */
    o.batch = 3;
    assert_int_equal(run(quantised, &o).hash, once);
    o.depth = 8;
    assert_int_not_equal(run(quantised, &o).hash, once);
    o = short_opts();
    o.prompt = 33;
    const uint64_t prompt = run(quantised, &o).hash;
    assert_int_not_equal(prompt, once);
    o.reps = 2;
    assert_int_equal(run(quantised, &o).hash, prompt);
}

/* Rows that do not fit into one step, and local pages that come and go. */
static void longer_than_a_step(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t,
              &(tiny_shape){
                  .n_layer = 6, .n_ctx = 1024, .embed = GM_QTYPE_Q8_0, .matrix = GM_QTYPE_Q4_0});
    gm_model *const m = tiny_open(&t, "long.gguf");
    gm_bench_opts o = short_opts();
    o.reps = 2;
    o.prompt = 600;
    o.engine.kv_type = "f32";
    const uint64_t whole = run(m, &o).hash;
    o.engine.backend = "cpu"; /* the first of two steps has no output */
    assert_int_equal(run(m, &o).hash, whole);
    o.depth = 531;
    o.prompt = 69;
    assert_int_equal(run(m, &o).hash, whole);
    gm_model_close(m);
    tiny_deinit(&t);
}

static void check_finds_the_difference(void **state)
{
    (void)state;
    gm_bench_opts o = short_opts();
    assert_true(run(quantised, &o).check == -1);
    o.check = 1;
    o.depth = 10;
    assert_true(run(quantised, &o).check == 0);
    o.batch = 2;
    o.engine.kv_type = "q8_0";
    assert_true(run(quantised, &o).check == 0);
    o.batch = 1;
    o.prompt = 40;
    o.engine.kv_type = "f16";
    assert_true(run(quantised, &o).check == 0);
    o.engine.backend = "cpu";
    o.engine.kv_type = NULL;
    assert_true(run(plain, &o).check == 0);
    /* Activations are not rounded to int8 here, so a difference must show. */
    o.engine.backend = "ref";
    assert_true(run(quantised, &o).check > 1e-4);
}

static void refusals(void **state)
{
    (void)state;
    gm_bench_opts o = short_opts();
    o.reps = 0;
    refuse(&o, GM_E_ARG, "0 repetitions, expected 1 to 64");
    o.reps = 65;
    refuse(&o, GM_E_ARG, "65 repetitions");
    o = short_opts();
    o.decode = 0;
    refuse(&o, GM_E_ARG, "no prompt and no tokens");
    o = short_opts();
    o.batch = 0;
    refuse(&o, GM_E_ARG, "0 sequences, expected 1 to 512");
    o.batch = 513;
    refuse(&o, GM_E_ARG, "513 sequences");
    o.batch = 2;
    o.prompt = 5;
    refuse(&o, GM_E_ARG, "a prompt for 2 sequences");
    o = short_opts();
    o.depth = 506;
    refuse(&o, GM_E_TOOBIG, "takes 513 positions, and the model was made for 512");
    o.depth = 505;
    run(plain, &o);
    o.depth = 0;
    o.decode = UINT32_MAX;
    o.reps = 64;
    refuse(&o, GM_E_TOOBIG, "takes 4294967297 positions");
    o = short_opts();
    o.engine.backend = "abacus";
    refuse(&o, GM_E_ARG, "abacus");
    o = short_opts();
    o.engine.kv_type = "q4_0";
    refuse(&o, GM_E_ARG, "a KV cache of q4_0, expected f32, f16 or q8_0");
}

/* A caller built against a shorter struct gets no more than it has room for. */
static void short_structs(void **state)
{
    (void)state;
    gm_bench_opts o = short_opts();
    o.size = offsetof(gm_bench_opts, engine);
    o.engine.backend = "abacus";
    o.engine.n_threads = 1;
    gm_bench_result r;
    memset(&r, 0x55, sizeof r);
    r.size = offsetof(gm_bench_result, check);
    assert_int_equal(gm_bench_run(plain, &o, &r, &err), GM_OK);
    assert_true(r.tok_s > 0);
    assert_int_equal(r.hash, 0x5555555555555555);
}

static void backends_describe_themselves(void **state)
{
    (void)state;
    gm_backend_info info = {.size = sizeof info};
    gm_engine_opts o = gm_engine_opts_default();
    assert_int_equal(gm_backend_describe(NULL, 0, &info, NULL), GM_OK);
    assert_string_equal(info.name, "cpu");
    assert_string_equal(info.kv_type, "f16");
    assert_true(info.n_threads >= 1);
    assert_true(info.read_gb_s == 0 && info.int8_gop_s == 0);
    o.isa = "c";
    o.n_threads = 3;
    o.kv_type = "q8_0";
    assert_int_equal(gm_backend_describe(&o, 0, &info, NULL), GM_OK);
    assert_string_equal(info.isa, "c");
    assert_int_equal(info.n_threads, 3);
    assert_string_equal(info.kv_type, "q8_0");
    o = gm_engine_opts_default();
    o.backend = "ref";
    assert_int_equal(gm_backend_describe(&o, 1, &info, NULL), GM_OK);
    assert_string_equal(info.name, "ref");
    assert_string_equal(info.kv_type, "f32");
    assert_int_equal(info.n_threads, 1);
    assert_true(info.read_gb_s > 0);
    o.backend = "abacus";
    assert_int_equal(gm_backend_describe(&o, 0, &info, &err), GM_E_ARG);
    assert_non_null(strstr(err.msg, "abacus"));
    o.backend = "cpu";
    o.isa = "mmx";
    assert_int_equal(gm_backend_describe(&o, 0, &info, &err), GM_E_ARG);
    assert_non_null(strstr(err.msg, "mmx"));
}

/* The default tiny model by hand: three layers of one width, all of them local. */
static void what_it_takes(void **state)
{
    (void)state;
    const double products = 32.0 * (64 + 32 + 32) + 64.0 * 32 + 3 * 32.0 * 64, head = 500.0 * 32;
    const double cell = 2.0 * 2 * 16; /* K and V of two heads */
    assert_true(gm_model_step_size(plain, "f32", 2, 1) ==
                4 * (3 * products + head) + 3 * 3 * cell * 4);
    assert_true(gm_model_step_size(plain, "f16", 100, 5) ==
                4 * (3 * products + head) + 5 * 3 * 8 * cell * 2);
    assert_true(gm_model_step_size(plain, "abacus", 0, 1) == 0);
    assert_true(gm_model_prompt_ops(plain, 10) == 2 * (10 * 3 * products + head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_the_engines),
        cmocka_unit_test(hash_stays),
        cmocka_unit_test(longer_than_a_step),
        cmocka_unit_test(check_finds_the_difference),
        cmocka_unit_test(refusals),
        cmocka_unit_test(short_structs),
        cmocka_unit_test(backends_describe_themselves),
        cmocka_unit_test(what_it_takes),
    };
    return cmocka_run_group_tests_name("t_bench", tests, models_open, models_close);
}
