/* SPDX-License-Identifier: MIT */
/* The table of check/opcheck on the Vulkan backend, a part of it by default (opening a device and
 * compiling its kernels takes most of the time) and all of it with --all. Products of quantised
 * weights differ from ref-int8 in the order of eight running sums and in nothing else; everything
 * has the same bits however rows are cut into steps.
 *
 * t_vk_ops --all, --stride N (each N-th case), --only OP (or tiles, fragments, staged), --seed N */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "check/opcheck.h"

static const gm_backend_ops *ops = &gm_backend_vulkan;
static uint64_t seed = 20260711;
static const char *only;
static size_t stride = 101; /* of the table's cases, the first of each so many is run */

static void print_case(const gm_opcase *c)
{
    print_error("%s %s [%u, %u] heads %u/%u x %u window %u, %u rows, %s, seed %" PRIu64 ": ",
                gm_opcase_name(c), gm_qtype_name((uint32_t)c->type), c->n_in, c->n_out, c->n_head,
                c->n_kv_head, c->head_dim, c->window, c->rows, gm_opdist_name(c->dist), seed);
}

/* A product's running sums are eight here and one in ref-int8. Two scales are multiplied before the
 * dot product is, which costs bits where activations are below the normal numbers. */
static double bound_of(const gm_opcase *c)
{
    const bool product = c->kind == GM_OP_MATMUL || c->kind == GM_OP_GATE_UP_GELU;
    if (product && c->dist == GM_OPDIST_DENORMAL) return fmax(c->bound, 1e-4);
    return product && c->bound < 2e-6 ? 2e-6 : c->bound;
}

static bool is_fine(const gm_opcase *c, const gm_opcheck_result *r)
{
    return r->passed || r->worst <= bound_of(c);
}

static uint32_t check_case(const gm_opcase *c, double *worst)
{
    const uint32_t chunks[] = {0, 1, 7};
    gm_err err = {0};
    gm_opcheck *o = NULL;
    uint64_t hash = 0;
    uint32_t n_bad = 0;
    if (gm_opcheck_open(&o, c, seed, &err) != GM_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        gm_opcheck_result r;
        gm_opcheck_target t = {.ops = ops, .chunk = chunks[i]};
        if (chunks[i] >= c->rows && i) break;
        if (c->rows >= 1000) t.chunk *= 50;
        if (gm_opcheck_run(o, &t, &r, &err) != GM_OK) {
            print_case(c);
            fail_msg("%s", err.msg);
        }
        if (i == 0) hash = r.hash;
        *worst = fmax(*worst, r.worst);
        if (is_fine(c, &r) && r.hash == hash) continue;
        n_bad++;
        print_case(c);
        print_error("%u rows a step: %s; worst %.3g at [%u, %u], got %.9g, expected %.9g\n",
                    t.chunk, is_fine(c, &r) ? "other bits than all at once" : "wrong", r.worst,
                    r.worst_row, r.worst_col, (double)r.got, (double)r.want);
    }
    gm_opcheck_close(o);
    return n_bad;
}

static void test_ops(void **state)
{
    (void)state;
    gm_opcase c, before = {0};
    uint32_t n_bad = 0, n_cases = 0;
    double worst = 0;
    for (size_t i = 0;; i += stride) {
        const bool more = gm_opcase_at(i, &c);
        if (n_cases && (!more || c.kind != before.kind || c.type != before.type)) {
            print_message("%-14s %-7s %4u cases: worst %.2g, bound %.2g\n", gm_opcase_name(&before),
                          gm_qtype_name((uint32_t)before.type), n_cases, worst, bound_of(&before));
            worst = n_cases = 0;
        }
        if (!more) break;
        if (only && strcmp(only, gm_opcase_name(&c)) != 0) continue;
        n_bad += check_case(&c, &worst);
        n_cases++;
        before = c;
        if (n_bad > 40) fail_msg("too many differences, the rest is left out");
    }
    if (n_bad) fail_msg("%u differences", n_bad);
}

/* Products by tiles, which a device without cooperative matrices would not choose: the kernel is the
 * same but for the one multiplication. */
static gm_status open_for_tiles(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    const gm_status status = gm_backend_vulkan.open(out, cfg, err);
    if (status != GM_OK) return status;
    (*out)->tuning.tile_from = 1;
    (*out)->tuning.half_from = UINT32_MAX;
    return GM_OK;
}

/* Ends what `other` ops were for. */
static void end_of(const char *other, uint32_t n_cases, uint32_t n_bad, double worst)
{
    ops = &gm_backend_vulkan;
    print_message("%u %s: worst %.2g\n", n_cases, other, worst);
    assert_true(n_cases > 0);
    if (n_bad) fail_msg("%u differences", n_bad);
}

static void test_tiles(void **state)
{
    (void)state;
    gm_backend_ops tiles = gm_backend_vulkan;
    uint32_t n_bad = 0, n_cases = 0;
    double worst = 0;
    gm_opcase c;
    if (only && strcmp(only, "tiles") != 0) return;
    tiles.open = open_for_tiles;
    ops = &tiles;
    /* One of each type. Lavapipe's compiler takes half a minute for one, and longer for gate and up: in
     * the short tier two products stand for all, one with a scale and one with two; in the long one
     * gate and up of these two. */
    const bool is_short = stride == 101;
    uint64_t seen = 0;
    for (size_t i = 0; gm_opcase_at(i, &c); i++) {
        const bool plain = c.kind == GM_OP_MATMUL;
        const uint64_t bit = UINT64_C(1) << (c.type + (plain ? 0 : 32));
        if (!plain && c.kind != GM_OP_GATE_UP_GELU) continue;
        if (c.rows < 2 || c.rows > 64 || !gm_vk_block_words(c.type) || seen & bit) continue;
        const bool of_two = c.type == GM_QTYPE_Q4_0 || c.type == GM_QTYPE_Q6_K;
        if (!of_two && (is_short || !plain)) continue;
        if (is_short && !plain) continue;
        seen |= bit;
        n_bad += check_case(&c, &worst);
        n_cases++;
    }
    end_of("products by tiles", n_cases, n_bad, worst);
}

/* A row whose workgroups have several splits each, as deep ones have: here three workgroups are all. */
static gm_status open_for_shares(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    const gm_status status = gm_backend_vulkan.open(out, cfg, err);
    if (status == GM_OK) (*out)->tuning.split_wgs = 3;
    return status;
}

static void test_shares(void **state)
{
    (void)state;
    gm_backend_ops shares = gm_backend_vulkan;
    uint32_t n_bad = 0, n_cases = 0;
    double worst = 0;
    gm_opcase c;
    if (only && strcmp(only, "shares") != 0) return;
    shares.open = open_for_shares;
    ops = &shares;
    bool layer = false;
    for (size_t i = 0; gm_opcase_at(i, &c); i++) {
        const bool first_layer = c.layer && !layer;
        if (!first_layer && (c.kind != GM_OP_ATTEND || c.rows != 1060)) continue;
        c.rows = 3 * GM_VK_SPLIT + 9;
        n_bad += check_case(&c, &worst);
        n_cases++;
        layer = layer || c.layer;
    }
    end_of("rows with splits shared", n_cases, n_bad, worst);
}

/* Products of float16 activations by fragments, as a device with such matrices has them: here each matrix
 * is multiplied by hand. They are compared with ref, whose activations are not rounded. */
static gm_status open_for_fragments(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    const gm_status status = gm_backend_vulkan.open(out, cfg, err);
    if (status == GM_OK) (*out)->tuning.fragments = true;
    return status;
}

static bool is_for_fragments(const gm_opcase *c)
{
    const bool product = c->kind == GM_OP_MATMUL || c->kind == GM_OP_GATE_UP_GELU;
    return (product || c->layer) && c->n_in % GM_VK_CHUNK == 0 && gm_vk_block_words(c->type) &&
           c->dist == GM_OPDIST_UNIFORM;
}

static void test_fragments(void **state)
{
    (void)state;
    gm_backend_ops fragments = gm_backend_vulkan;
    uint32_t n_bad = 0, n_cases = 0;
    double worst = 0;
    gm_opcase c;
    if (only && strcmp(only, "fragments") != 0) return;
    fragments.open = open_for_fragments;
    ops = &fragments;
    for (size_t i = 0; gm_opcase_main(i, &c); i++) {
        const bool of_two = c.type == GM_QTYPE_Q4_0 || c.type == GM_QTYPE_Q6_K;
        if (!is_for_fragments(&c) || (stride > 1 && !of_two)) continue;
        c.reference = "ref";
        c.bound = c.layer ? 2e-2 : 4e-3;
        n_bad += check_case(&c, &worst);
        n_cases++;
    }
    end_of("products and layers by fragments", n_cases, n_bad, worst);
}

/* Matrices of many rows, in 19 columns by a shape whose subgroups read these into shared memory; fewer
 * columns go by the usual ones, and the bits are the same. */
static gm_vk_product staged;

static gm_status open_for_staged(gm_backend **out, const gm_backend_cfg *cfg, gm_err *err)
{
    enum { STAGE = 10 }; /* among the constants of matmul_fragment */
    GM_TRY(open_for_fragments(out, cfg, err));
    gm_vk_choice one = {0};
    gm_vk_cut cut = {0};
    uint32_t i = 0;
    while (i < GM_VK_TRIES &&
           !(gm_vk_cut_try(&(*out)->tuning, &staged, i, &cut) && cut.spec[STAGE]))
        i++;
    assert_true(i < GM_VK_TRIES);
    gm_vk_product_name(&staged, one.what);
    gm_vk_cut_name(&cut, one.way);
    return gm_vk_choices_put(&(*out)->choices, &one, err);
}

static void test_staged(void **state)
{
    (void)state;
    gm_backend_ops by_stages = gm_backend_vulkan;
    uint32_t n_bad = 0;
    double worst = 0;
    if (only && strcmp(only, "staged") != 0) return;
    by_stages.open = open_for_staged;
    ops = &by_stages;
    for (int gate = 0; gate < 2; gate++) {
        const gm_opcase c = {.kind = gate ? GM_OP_GATE_UP_GELU : GM_OP_MATMUL,
                             .type = GM_QTYPE_Q4_0,
                             .n_in = 5 * GM_VK_CHUNK,
                             .n_out = gate ? 8224 : 16401,
                             .rows = 19,
                             .dist = GM_OPDIST_UNIFORM,
                             .reference = "ref",
                             .bound = 4e-3};
        staged = (gm_vk_product){.columns = c.rows,
                                 .planes = 1,
                                 .n_blocks = c.n_in / GM_VK_BLOCK,
                                 .words = gm_vk_block_words(c.type),
                                 .after = gate ? GM_VK_AFTER_GELU : 0,
                                 .type = c.type,
                                 .n_rows = c.n_out,
                                 .fragments = true};
        n_bad += check_case(&c, &worst);
    }
    end_of("products whose columns are staged", 2, n_bad, worst);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) stride = 1;
        if (strcmp(argv[i], "--stride") == 0 && i + 1 < argc)
            stride = strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[i + 1];
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) seed = strtoull(argv[i + 1], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops), cmocka_unit_test(test_tiles), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_fragments), cmocka_unit_test(test_staged)};
    return cmocka_run_group_tests_name("t_vk_ops", tests, NULL, NULL);
}
