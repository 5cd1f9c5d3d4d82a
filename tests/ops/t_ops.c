/* SPDX-License-Identifier: MIT */
/* The table of check/opcheck on the CPU backend: on every rung that this machine
 * has, with one, two and three workers, in steps of different lengths. Products
 * must have the reference's bits; everything must have the same bits on all of them.
 *
 * t_ops --bench prints speeds instead; t_ops --seed N draws other numbers. */

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
#include "backend/cpu/kernels.h"
#include "check/opcheck.h"

static uint64_t seed = 20260711;

typedef struct rung {
    const char *name;
    uint32_t needs;
} rung;

static const rung rungs[] = {{"c", 0}, {"avx2", GM_ISA_AVX2}, {"avx512", GM_ISA_AVX512}};
enum { N_RUNGS = sizeof rungs / sizeof *rungs };

static bool have(const rung *r)
{
    return (gm_isa_detect() & r->needs) == r->needs;
}

/* Workers, rows a step, and the first steps or later ones: all must make no difference. */
static const struct {
    uint32_t n_threads, chunk;
    bool fresh;
} ways[] = {{1, 0, true}, {2, 1, false}, {3, 7, false}};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* ---- checking ------------------------------------------------------------------------------ */

static void print_case(const gm_opcase *c)
{
    print_error("%s %s [%u, %u] heads %u/%u x %u window %u, %u rows, %s, seed %" PRIu64 ": ",
                gm_opcase_name(c), gm_qtype_name((uint32_t)c->type), c->n_in, c->n_out, c->n_head,
                c->n_kv_head, c->head_dim, c->window, c->rows, gm_opdist_name(c->dist), seed);
}

/* How many targets fail or differ from the first one; *worst grows. */
static uint32_t check_case(const gm_opcase *c, const gm_opcheck_target *targets, size_t n,
                           double *worst)
{
    gm_err err = {0};
    gm_opcheck *o = NULL;
    uint64_t hash = 0;
    uint32_t n_bad = 0;
    if (gm_opcheck_open(&o, c, seed, &err) != GM_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < n; i++) {
        gm_opcheck_result r;
        gm_opcheck_target t = targets[i];
        if (c->rows >= 1000) t.chunk *= 5; /* or there would be too many steps */
        if (gm_opcheck_run(o, &t, &r, &err) != GM_OK) fail_msg("%s", err.msg);
        if (i == 0) hash = r.hash;
        *worst = fmax(*worst, r.worst);
        if (r.passed && r.hash == hash) continue;
        n_bad++;
        print_case(c);
        print_error("%s %s, %u workers, %u rows a step: %s; worst %.3g at [%u, %u], got %.9g, "
                    "expected %.9g\n",
                    t.ops->name, t.cfg.isa ? t.cfg.isa : "", t.cfg.n_threads, t.chunk,
                    r.passed ? "other bits than the first" : "wrong", r.worst, r.worst_row,
                    r.worst_col, (double)r.got, (double)r.want);
    }
    gm_opcheck_close(o);
    return n_bad;
}

/* The whole table; cases of the same op and type are neighbours, and share a line. */
static void check_table(const gm_opcheck_target *targets, size_t n)
{
    gm_opcase c, before = {0};
    uint32_t n_bad = 0, n_cases = 0;
    double worst = 0;
    for (size_t i = 0;; i++) {
        const bool more = gm_opcase_at(i, &c);
        if (i && (!more || c.kind != before.kind || c.type != before.type)) {
            print_message("%-14s %-7s %4u cases: worst %.2g, bound %.2g\n", gm_opcase_name(&before),
                          gm_qtype_name((uint32_t)before.type), n_cases, worst, before.bound);
            worst = n_cases = 0;
        }
        if (!more) break;
        n_bad += check_case(&c, targets, n, &worst);
        n_cases++;
        before = c;
        if (n_bad > 40) fail_msg("too many differences, the rest is left out");
    }
    if (n_bad) fail_msg("%u differences", n_bad);
}

static void test_cpu(void **state)
{
    (void)state;
    gm_opcheck_target targets[N_RUNGS * N_WAYS];
    size_t n = 0;
    print_message("seed %" PRIu64 ", %zu cases\n", seed, gm_opcase_n());
    for (size_t i = 0; i < N_RUNGS; i++) {
        if (!have(&rungs[i])) print_message("this machine has no %s: left out\n", rungs[i].name);
        for (size_t w = 0; have(&rungs[i]) && w < N_WAYS; w++) {
            targets[n++] = (gm_opcheck_target){
                .ops = &gm_backend_cpu,
                .cfg = {.n_threads = ways[w].n_threads, .isa = rungs[i].name},
                .chunk = ways[w].chunk,
                .fresh = ways[w].fresh,
            };
        }
    }
    check_table(targets, n);
}

/* The oracle in two ways: what the check itself lets through, and whether ref depends on chunks. */
static void test_ref(void **state)
{
    (void)state;
    gm_opcase c;
    double worst = 0;
    for (size_t i = 0; gm_opcase_at(i, &c); i += 7) {
        const gm_backend_ops *const ops = gm_backend_find(c.reference);
        const gm_opcheck_target targets[] = {{.ops = ops}, {.ops = ops, .chunk = 3}};
        if (c.rows < 1000) assert_int_equal(check_case(&c, targets, 2, &worst), 0);
    }
    assert_true(worst == 0);
}

/* ---- speed --------------------------------------------------------------------------------- */

/* Portable C takes minutes for the last column of the table. */
#define MOST_FOR_C 32

static gm_status time_product(gm_qtype type, const rung *r, uint32_t columns, gm_opcheck_speed *out,
                              gm_err *err)
{
    const gm_opcase c = {
        .kind = GM_OP_MATMUL, .type = type, .n_in = 2304, .n_out = 2048, .rows = columns};
    const gm_opcheck_target target = {.ops = &gm_backend_cpu, .cfg = {.isa = r->name}};
    gm_opcheck *o = NULL;
    gm_status status = gm_opcheck_open(&o, &c, seed, err);
    if (status == GM_OK) status = gm_opcheck_time(o, &target, 0.1, out, err);
    gm_opcheck_close(o);
    return status;
}

static int bench(void)
{
    static const uint32_t columns[] = {1, 4, 8, 32, 512};
    enum { N_COLUMNS = sizeof columns / sizeof *columns };
    printf("[2048, 2304] weights, one worker a core, fastest run: GB/s of weights, Gop/s\n%-15s",
           "");
    for (size_t i = 0; i < N_COLUMNS; i++)
        printf(" %9u rows", columns[i]);
    printf("\n");
    for (size_t t = 0; gm_qtype_at(t); t++) {
        for (const rung *r = rungs; r < rungs + N_RUNGS; r++) {
            if (!have(r)) continue;
            printf("%-7s %-7s", gm_qtype_at(t)->name, r->name);
            for (size_t i = 0; i < N_COLUMNS && (r->needs || columns[i] <= MOST_FOR_C); i++) {
                gm_opcheck_speed speed;
                gm_err err = {0};
                if (time_product(gm_qtype_at(t)->id, r, columns[i], &speed, &err) != GM_OK)
                    return fprintf(stderr, "%s\n", err.msg), 1;
                printf(" %6.2f %7.1f", speed.gbytes_s, speed.gops_s);
                fflush(stdout);
            }
            printf("\n");
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--bench") == 0) return bench();
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) seed = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu)};
    return cmocka_run_group_tests_name("t_ops", tests, NULL, NULL);
}
