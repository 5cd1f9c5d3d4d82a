/* SPDX-License-Identifier: MIT */
/* Trying kernels: every way that is tried gives the bits of the usual one, what is found is kept and
 * used, a file that is wrong is dropped, and what is known is not tried again. Which way is the
 * fastest is nobody's business here. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "base/mem.h"
#include "fixtures/tinymodel.h"
#include "fixtures/vk/products.h"
#include "gemmule_tools.h"
#include "model/model.h"

#define ROWS 4 /* of a step: products have two ways to cut columns here */

static const gm_backend_ops *const ops = &gm_backend_vulkan;

typedef struct device {
    gm_backend *be;
    gm_tune_model loaded;
} device;

static gm_model *model_open(void)
{
    gm_err err = {0};
    gm_model *m = NULL;
    gm_synth_opts opts = gm_synth_opts_default();
    const char *const path = tiny_path("trial");
    opts.shape = "tiny";
    opts.type = "q4_0";
    opts.force = 1;
    if (gm_synth_write(path, &opts, &err) != GM_OK) fail_msg("%s", err.msg);
    if (gm_model_open(&m, path, &err) != GM_OK) fail_msg("%s", err.msg);
    return m;
}

static void device_open(device *d, const gm_model *m, const gm_backend_cfg *cfg)
{
    const gm_config *const c = &m->config;
    gm_err err = {0};
    const gm_kv_desc desc = {.type = GM_QTYPE_F16,
                             .n_layer = c->n_layer,
                             .layer_class = c->layer_class,
                             .n_kv_head = c->n_kv_head,
                             .head_dim = c->head_dim,
                             .n_vocab = gm_vocab_len(m->vocab),
                             .n_slots = 1,
                             .n_pages = {4, 4},
                             .table_len = 4};
    *d = (device){.loaded = {.plan = &m->plan, .most = {ROWS, 1}}};
    if (ops->open(&d->be, cfg, &err) != GM_OK ||
        ops->load(d->be, &m->plan.weights, NULL, &d->loaded.w, &err) != GM_OK ||
        ops->kv_open(d->be, &desc, &d->loaded.kv, &err) != GM_OK)
        fail_msg("%s", err.msg);
}

static void device_close(device *d)
{
    ops->kv_close(d->loaded.kv);
    ops->unload(d->loaded.w);
    ops->close(d->be);
}

/* Logits of the last of so many tokens. */
static void run(device *d, uint32_t rows, float *logits, uint32_t n_vocab)
{
    const gm_draw greedy = {.repeat = 1, .inv_repeat = 1, .top_p = GM_DRAW_TOP_P_OFF};
    const gm_step_limits limits = {
        .rows = ROWS, .segs = 1, .outs = 1, .edits = 8, .sets = 1, .counts = 8};
    gm_step *step = NULL;
    gm_exec *ex = NULL;
    gm_ticket t = 0;
    gm_result r;
    gm_err err = {0};
    assert_int_equal(gm_step_alloc(&step, &limits, &err), GM_OK);
    gm_step_put_set(step, 0, &greedy, NULL, 0);
    for (uint32_t class = 0; class < GM_CLASSES; class ++)
        gm_step_put_edit(step, &(gm_page_edit){0, class, 0, 0});
    gm_step_put_seg(step, &(gm_step_seg){0, 0, rows});
    for (uint32_t i = 0; i < rows; i++)
        gm_step_put_row(step,
                        &(gm_step_row){.kind = GM_ROW_ID, .src = 7 + i, .pos = i, .last = {i, i}});
    gm_step_put_out(step,
                    &(gm_step_out){.row = rows - 1, .want = GM_WANT_LOGITS, .mask = GM_NO_MASK});
    if (ops->lower(d->be, d->loaded.w, d->loaded.kv, d->loaded.plan, (gm_bucket){rows, 1}, &ex,
                   &err) != GM_OK ||
        ops->run(ex, step, &t, &err) != GM_OK || ops->wait(d->be, t, &r, &err) != GM_OK)
        fail_msg("%s", err.msg);
    memcpy(logits, r.out[0].logits, n_vocab * sizeof *logits);
    ops->drop(ex);
    gm_step_free(step);
}

/* ---- bits ------------------------------------------------------------------------------------ */

typedef struct notes {
    gm_vk_choice at[64][GM_VK_TRIES];
    uint32_t n_ways[64], n;
    uint32_t chosen; /* of the last */
} notes;

static int note_row(void *ctx, const gm_tune_row *row)
{
    notes *const n = ctx;
    assert_true(n->n < 64 && row->n_tries <= GM_VK_TRIES && row->chosen < row->n_tries);
    assert_true(row->tries[row->chosen].us <= row->tries[0].us);
    for (uint32_t i = 0; i < row->n_tries; i++) {
        gm_vk_choice *const c = &n->at[n->n][i];
        assert_true(row->tries[i].us > 0);
        snprintf(c->what, sizeof c->what, "%s", row->what);
        snprintf(c->way, sizeof c->way, "%s", row->tries[i].kernel);
    }
    n->chosen = row->chosen;
    n->n_ways[n->n++] = row->n_tries;
    return 0;
}

static void choose_flow(const device *d, bool on)
{
    gm_vk_choice one = {0};
    gm_vk_flow_name(d->loaded.plan, one.what);
    snprintf(one.way, sizeof one.way, "%s", on ? GM_VK_FLOW_ON : GM_VK_FLOW_OFF);
    assert_int_equal(gm_vk_choices_put(&d->be->choices, &one, NULL), GM_OK);
}

static uint32_t count_waiting(const notes *n)
{
    uint32_t n_waiting = 0;
    for (uint32_t i = 0; i < n->n; i++)
        n_waiting += strstr(n->at[i][0].what, ", 1 rows") && strstr(n->at[i][0].what, " waiting");
    return n_waiting;
}

/* Every product by its i-th way, for each i; kernels of one row wait for each other, or do not. The bits
 * are those of steps with barriers, each product in its usual way. */
static void check_bits(const gm_model *m, bool flow, const float *want, float *got)
{
    const uint32_t n_vocab = gm_vocab_len(m->vocab);
    static const uint32_t sizes[] = {1, ROWS};
    notes *const n = calloc(1, sizeof *n);
    device d;
    gm_err err = {0};
    uint32_t most = 0;
    device_open(&d, m, &(gm_backend_cfg){0});
    choose_flow(&d, flow);
    const gm_tune_how how = {.seconds = 1e9, .max_ways = 5, .row = note_row, .ctx = n};
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_true(n->n >= 9); /* five products of one row, and of more; some share a name */
    assert_int_equal(count_waiting(n), flow ? 4 : 0);
    for (uint32_t i = 0; i == 0 || i < most; i++) {
        for (uint32_t k = 0; k < n->n; k++) {
            most = n->n_ways[k] > most ? n->n_ways[k] : most;
            const gm_vk_choice *const one = &n->at[k][i < n->n_ways[k] ? i : 0];
            assert_int_equal(gm_vk_choices_put(&d.be->choices, one, NULL), GM_OK);
        }
        assert_int_equal(gm_vk_choices_flow(&d.be->choices, d.loaded.plan), flow);
        for (uint32_t k = 0; k < 2; k++) {
            run(&d, sizes[k], got, n_vocab);
            assert_memory_equal(got, want + k * n_vocab, n_vocab * sizeof *got);
        }
    }
    assert_int_equal(most, 5);
    device_close(&d);
    free(n);
}

/* What is tried first is whether kernels wait; what is told of it is what is used. */
static void check_flow_row(const gm_model *m)
{
    notes *const n = calloc(1, sizeof *n);
    const gm_tune_how how = {.seconds = 1e9, .max_ways = 1, .row = note_row, .ctx = n};
    device d;
    gm_err err = {0};
    device_open(&d, m, &(gm_backend_cfg){0});
    d.loaded.most.rows = 1;
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_int_equal(n->n, 1); /* products have one way */
    assert_int_equal(n->n_ways[0], 2);
    assert_string_equal(n->at[0][0].what, GM_VK_FLOW);
    assert_string_equal(n->at[0][0].way, GM_VK_FLOW_OFF);
    assert_string_equal(n->at[0][1].way, GM_VK_FLOW_ON);
    assert_int_equal(gm_vk_choices_flow(&d.be->choices, d.loaded.plan), n->chosen);
    device_close(&d);
    free(n);
}

static void test_bits(void **state)
{
    (void)state;
    gm_model *const m = model_open();
    const uint32_t n_vocab = gm_vocab_len(m->vocab);
    float *const want = malloc(3 * n_vocab * sizeof *want), *const got = want + 2 * n_vocab;
    device d;
    device_open(&d, m, &(gm_backend_cfg){0});
    run(&d, 1, want, n_vocab);
    run(&d, ROWS, want + n_vocab, n_vocab);
    device_close(&d);
    check_bits(m, false, want, got);
    check_bits(m, true, want, got);
    check_flow_row(m);
    free(want);
    gm_model_close(m);
}

/* ---- a driver that is wrong -------------------------------------------------------------------- */

typedef enum fault {
    RIGHT,
    WRONG,      /* products that are recorded from the first timed list of products on */
    WRONG_FLOW, /* products that wait for the kernel before                              */
    LATE_FLOW,  /* ... wait for more than it counts, and give up                         */
} fault;

/* A mock, in the device's table: from the last timed list that was made on, a tick is worth less with
 * every submit, so that of ways that are run in turn the last is the fastest; and wrong products have
 * half their columns, as if the driver had compiled what was chosen wrongly, or wait in vain, as if it
 * had not started who is waited for. lavapipe does not. */
static struct {
    gm_backend *be;
    struct VolkDeviceTable real;
    fault fault;
    bool timed;
} mock;

static VKAPI_ATTR VkResult VKAPI_CALL fake_CreateQueryPool(VkDevice d,
                                                           const VkQueryPoolCreateInfo *i,
                                                           const VkAllocationCallbacks *a,
                                                           VkQueryPool *o)
{
    mock.timed = true;
    mock.be->dev.timestamp_ns = 0x1p60f;
    return mock.real.vkCreateQueryPool(d, i, a, o);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_QueueSubmit2(VkQueue q, uint32_t n,
                                                        const VkSubmitInfo2 *i, VkFence f)
{
    if (mock.timed) mock.be->dev.timestamp_ns /= 16;
    return mock.real.vkQueueSubmit2(q, n, i, f);
}

static void mistell(struct gm_vk_matmul *push)
{
    const bool waits = push->flow.before != 0;
    if ((mock.fault == WRONG && mock.timed) || (mock.fault == WRONG_FLOW && waits))
        push->n_cols /= 2;
    push->flow.n_before += mock.fault == LATE_FLOW;
    if (mock.fault == LATE_FLOW) push->flow.patience = 10000;
}

static void mock_begin(gm_backend *be, fault f)
{
    mock.be = be;
    mock.real = be->dev.vk;
    mock.timed = false;
    mock.fault = f;
    be->dev.vk.vkCreateQueryPool = fake_CreateQueryPool;
    be->dev.vk.vkQueueSubmit2 = fake_QueueSubmit2;
    products_watch(be, mistell);
}

/* Rows that tell of products, and of whether they wait. */
typedef struct told {
    fault fault;
    uint32_t n_products, n_flow;
} told;

static int check_row(void *ctx, const gm_tune_row *row)
{
    told *const t = ctx;
    const bool flow = strcmp(row->what, GM_VK_FLOW) == 0, usual = !flow && t->fault == WRONG;
    assert_int_equal(row->chosen, usual ? 0 : row->n_tries - 1);
    ++*(flow ? &t->n_flow : &t->n_products);
    return 0;
}

static void keep_note(void *ctx, const char *text)
{
    snprintf(ctx, 400, "%s", text);
}

static uint32_t count_changed(const gm_vk_choices *c)
{
    uint32_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += strncmp(c->at[i].what, GM_VK_FLOW, strlen(GM_VK_FLOW)) != 0 &&
             c->at[i].us < c->at[i].usual_us;
    return n;
}

/* The last way is chosen of each where the driver is right, and the usual one where it is not; of
 * kernels that wait where they are right, whatever is found of others. What is not used is said. */
static void check_driver(const gm_model *m, fault f, const char *said)
{
    const uint32_t n_vocab = gm_vocab_len(m->vocab);
    float *const want = malloc(2 * n_vocab * sizeof *want), *const got = want + n_vocab;
    const bool flow = f == RIGHT || f == WRONG;
    char note[400] = "";
    told t = {.fault = f};
    const gm_tune_how how = {.seconds = 1e9,
                             .max_ways = 3,
                             .again = true,
                             .row = check_row,
                             .ctx = &t,
                             .note = {keep_note, note}};
    device d;
    gm_err err = {0};
    device_open(&d, m, &(gm_backend_cfg){0});
    d.loaded.most.rows = 1;
    run(&d, 1, want, n_vocab);
    mock_begin(d.be, f);
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    d.be->dev.vk = mock.real;
    if (said ? !strstr(note, said) : note[0])
        fail_msg("\"%s\", expected \"%s\"", note, said ? said : "");
    assert_true(t.n_products >= 4);
    assert_int_equal(t.n_flow, flow);
    assert_int_equal(gm_vk_choices_flow(&d.be->choices, d.loaded.plan), flow);
    assert_int_equal(count_changed(&d.be->choices) > 0, f != WRONG);
    run(&d, 1, got, n_vocab);
    assert_memory_equal(got, want, n_vocab * sizeof *got);
    device_close(&d);
    free(want);
}

static void test_wrong(void **state)
{
    (void)state;
    gm_model *const m = model_open();
    check_driver(m, RIGHT, NULL);
    check_driver(m, WRONG, "for 1 rows gave other bits, and are not used");
    check_driver(m, WRONG_FLOW, ": kernels that wait for each other gave other bits: not used");
    check_driver(m, LATE_FLOW,
                 ": vulkan: a kernel waited too long for the one before it: not used");
    gm_model_close(m);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static int count_row(void *ctx, const gm_tune_row *row)
{
    (void)row;
    ++*(uint32_t *)ctx;
    return 0;
}

static uint32_t tuned(device *d, gm_tune_how how)
{
    uint32_t n = 0;
    gm_err err = {0};
    how.row = count_row;
    how.ctx = &n;
    if (ops->tune(d->be, how.show ? NULL : &d->loaded, &how, &err) != GM_OK)
        fail_msg("%s", err.msg);
    return n;
}

/* The tuning file, and what is told of products of two rows while it is there. */
typedef struct early {
    char path[400];
    uint32_t n_there, n_missing;
} early;

static int look_early(void *ctx, const gm_tune_row *row)
{
    early *const e = ctx;
    if (strstr(row->what, ", 2 rows"))
        ++*(access(e->path, F_OK) == 0 ? &e->n_there : &e->n_missing);
    return 0;
}

/* What was found of a size of step is kept before the next one is tried. */
static void test_early(void **state)
{
    (void)state;
    char dir[300];
    early e = {0};
    snprintf(dir, sizeof dir, "%s.dir", tiny_path("early"));
    assert_int_equal(mkdir(dir, 0700), 0);
    gm_model *const m = model_open();
    device d;
    gm_err err = {0};
    device_open(&d, m, &(gm_backend_cfg){.dir = dir});
    snprintf(e.path, sizeof e.path, "%s/%s.tuning", dir, d.be->kept.id);
    d.loaded.most.rows = 2;
    const gm_tune_how how = {.seconds = 1e9, .max_ways = 2, .row = look_early, .ctx = &e};
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_true(e.n_there > 0);
    assert_int_equal(e.n_missing, 0);
    unlink(e.path);
    snprintf(e.path, sizeof e.path, "%s/%s.pipelines", dir, d.be->kept.id);
    device_close(&d);
    unlink(e.path);
    assert_int_equal(rmdir(dir), 0);
    gm_model_close(m);
}

static void test_kept(void **state)
{
    (void)state;
    char dir[300], path[400], note[400] = "";
    snprintf(dir, sizeof dir, "%s.dir", tiny_path("trial"));
    assert_int_equal(mkdir(dir, 0700), 0);
    gm_model *const m = model_open();
    const gm_backend_cfg cfg = {.dir = dir, .note = {keep_note, note}};
    const gm_tune_how some = {.seconds = 1e9, .max_ways = 2}, list = {.show = true};
    device d;
    device_open(&d, m, &cfg);
    snprintf(path, sizeof path, "%s/%s.tuning", dir, d.be->kept.id);
    assert_int_equal(tuned(&d, list), 0);
    const uint32_t n = tuned(&d, some);
    assert_true(n > 0);
    assert_int_equal(tuned(&d, some), 0); /* all of it is known */
    assert_true(tuned(&d, list) >= n);
    device_close(&d);

    device_open(&d, m, &cfg);
    assert_true(tuned(&d, list) >= n);
    assert_int_equal(tuned(&d, some), 0);
    device_close(&d);
    device_open(&d, m, &(gm_backend_cfg){.dir = dir, .untuned = true});
    assert_int_equal(d.be->choices.n, 0);
    device_close(&d);
    assert_string_equal(note, "");

    FILE *const f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -3, SEEK_END);
    fputc('9', f);
    fputc('9', f);
    fclose(f);
    device_open(&d, m, &cfg);
    assert_non_null(strstr(note, ".tuning was dropped: "));
    assert_int_equal(tuned(&d, list), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_true(tuned(&d, some) > 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(tuned(&d, (gm_tune_how){.show = true, .forget = true}), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/%s.pipelines", dir, d.be->kept.id);
    device_close(&d);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    gm_model_close(m);
}

static bool cancel_later(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    return (*(uint32_t *)ctx)-- > 0;
}

/* Cancelled anywhere within a size of step, which tells that it has lowered, twice of kernels that wait,
 * that it has compiled, and of every run of its two ways, nothing of it is kept. */
static void test_cancel(void **state)
{
    (void)state;
    gm_model *const m = model_open();
    gm_err err = {0};
    uint32_t left = 0;
    const gm_tune_how how = {.seconds = 1e9, .max_ways = 2, .progress = {cancel_later, &left}};
    device d;
    device_open(&d, m, &(gm_backend_cfg){0});
    d.loaded.most.rows = 1;
    for (uint32_t n = 0; n < 4 + 2 * 5; n++) {
        left = n;
        assert_int_equal(ops->tune(d.be, &d.loaded, &how, &err), GM_E_CANCEL);
        assert_non_null(strstr(err.msg, " kernels was cancelled")); /* compiling them, or trying */
        assert_int_equal(d.be->choices.n, 0);
    }
    left = UINT32_MAX;
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_true(d.be->choices.n > 0);
    device_close(&d);
    gm_model_close(m);
}

/* A run of few ways tries what one of more has found, too: the last way of each product, which the few
 * are not. Of those that are not known there are no more than were asked for. */
static void test_narrow(void **state)
{
    (void)state;
    gm_model *const m = model_open();
    notes *const all = calloc(2, sizeof *all), *const few = all + 1;
    gm_tune_how how = {.seconds = 1e9, .row = note_row, .ctx = all};
    device d;
    gm_err err = {0};
    uint32_t n = 0;
    device_open(&d, m, &(gm_backend_cfg){0});
    choose_flow(&d, false);
    d.loaded.most.rows = 1;
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_true(all->n >= 4);
    for (uint32_t i = 1; i < all->n; i++)
        gm_vk_choices_put(&d.be->choices, &all->at[i][all->n_ways[i] - 1], NULL);
    how = (gm_tune_how){.seconds = 1e9, .max_ways = 1, .again = true, .row = note_row, .ctx = few};
    gm_vk_choices_remove(&d.be->choices, all->at[0][0].what);
    /* Or, by chance, kernels would wait, and products have other names. */
    mock_begin(d.be, WRONG_FLOW);
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    d.be->dev.vk = mock.real;
    for (uint32_t i = 0; i < few->n; i++) {
        const char *const what = few->at[i][0].what;
        for (uint32_t k = 1; k < all->n; k++) {
            if (strcmp(all->at[k][0].what, what) != 0) continue;
            assert_int_equal(few->n_ways[i], 2);
            assert_string_equal(few->at[i][0].way, all->at[k][0].way);
            assert_string_equal(few->at[i][1].way, all->at[k][all->n_ways[k] - 1].way);
            n++;
        }
        assert_string_not_equal(what, all->at[0][0].what);
    }
    assert_int_equal(n, all->n - 1);
    device_close(&d);
    free(all);
    gm_model_close(m);
}

/* What time is left out is said, and that answers could not be kept, or forgotten. */
static void test_lost(void **state)
{
    (void)state;
    gm_model *const m = model_open();
    char note[400] = "", dir[300], path[400];
    const gm_tune_how how = {
        .seconds = 1e-9, .max_ways = 1, .again = true, .note = {keep_note, note}};
    device d;
    gm_err err = {0};
    device_open(&d, m, &(gm_backend_cfg){.dir = "/proc/nowhere"});
    assert_int_equal(ops->tune(d.be, &d.loaded, &how, &err), GM_OK); /* no answers */
    assert_string_equal(note, "steps of 1 rows and more were not tried: the time for it was over");
    choose_flow(&d, false);
    assert_int_equal(ops->tune(d.be, &d.loaded, &how, &err), GM_E_IO);
    assert_non_null(strstr(err.msg, ".tuning was not written: "));
    const gm_tune_how forget = {.forget = true};
    assert_int_equal(ops->tune(d.be, NULL, &forget, &err), GM_OK); /* nothing is there */
    device_close(&d);

    snprintf(dir, sizeof dir, "%s.dir", tiny_path("lost"));
    assert_int_equal(mkdir(dir, 0700), 0);
    device_open(&d, m, &(gm_backend_cfg){.dir = dir});
    snprintf(path, sizeof path, "%s/%s.tuning", dir, d.be->kept.id);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder is no file that can be removed */
    assert_int_equal(ops->tune(d.be, NULL, &forget, &err), GM_E_IO);
    assert_non_null(strstr(err.msg, ".tuning was not removed: "));
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/%s.pipelines", dir, d.be->kept.id);
    device_close(&d);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    gm_model_close(m);
}

/* Names of ways that this build does not have, and a list that is full. */
static void test_foreign(void **state)
{
    (void)state;
    gm_vk_choices c = {0};
    gm_vk_choice one = {.way = "matmul:1,2,3"};
    for (uint32_t i = 0; i < GM_VK_CHOICES + 3; i++) {
        snprintf(one.what, sizeof one.what, "%u", i);
        assert_int_equal(gm_vk_choices_put(&c, &one, NULL), GM_OK);
    }
    assert_int_equal(c.n, GM_VK_CHOICES);
    assert_null(gm_vk_choices_find(&c, "2"));
    assert_non_null(gm_vk_choices_find(&c, "3"));
    gm_mem_free(c.at);

    gm_backend be = {.tuning = {.subgroup = 8,
                                .words_under_way = 20,
                                .tile_from = UINT32_MAX,
                                .half_from = UINT32_MAX}};
    const gm_vk_product p = {.columns = 8, .planes = 1, .n_blocks = 24, .words = 5};
    gm_vk_cut got, usual;
    gm_vk_product_name(&p, one.what);
    assert_int_equal(gm_vk_choices_put(&be.choices, &one, NULL), GM_OK);
    assert_int_equal(gm_vk_trial_cut(&be, &p, &got), 0);
    gm_vk_cut_product(&be.tuning, &p, &usual);
    assert_memory_equal(got.spec, usual.spec, sizeof got.spec);
    gm_mem_free(be.choices.at);
}

/* ---- somebody's file --------------------------------------------------------------------------- */

static gm_status open_with(gm_backend **be, const char *path, const char *text, gm_err *err)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
    return ops->open(be, &(gm_backend_cfg){.choices = path}, err);
}

static void test_file(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } wrong[] = {
        {"nonsense\n", "line 1 is \"nonsense\", expected a product, a tab and a kernel"},
        {"# one\n\nq4_0 64x64, 1 rows\t\n", "line 3 is \"q4_0 64x64, 1 rows"},
        {"q4_0 64x64, 1 rows\tmatmul:1\tsoon\t1\n", "line 1 is "},
        {"q4_0 64x64, 1 rows\tmatmul:1\t1\t1\t1\n", "line 1 is "},
        {"q4_0 64x64, 1 rows\tmatmul:1\t-1\t1\n", "line 1 is "},
        {"q4_0 64x64, 3 rows\tmatmul:1\n", "line 1 has a product \"q4_0 64x64, 3 rows\", expected"},
        {"q4_9 64x64, 1 rows\tmatmul:1\n", "line 1 has a product"},
        {"q4_0 64x64, 4294967297 rows\tmatmul:1\n", "line 1 has a product"},
        {"q4_0 64x64, 1 rows \tmatmul:1\n", "line 1 has a product"},
        {"q4_0 64x64, 1 rows\tmatmul:64,1\n",
         "line 1 has a kernel \"matmul:64,1\", expected one that this device has for such a "
         "product, like matmul:128,1,1,"},
        {"kernels of one row\tsometimes\n",
         "line 1 says that kernels of one row \"sometimes\", expected \"wait for each other\" or "
         "\"barriers\""},
        {"q4_0 64x64, 1 rows waiting twice\tmatmul:1\n", "line 1 has a product"},
        {"kernels of one row, plan 0123456789abcde\tbarriers\n", "line 1 has a product"},
        {"kernels of one row, plan 0123456789abcdefg\tbarriers\n", "line 1 has a product"},
    };
    const char *const path = tiny_path("kernels");
    char line[4 * GM_VK_NAME], usual[GM_VK_NAME], way[GM_VK_NAME];
    gm_backend *be = NULL;
    gm_err err = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(open_with(&be, path, wrong[i].text, &err), GM_E_FORMAT);
        assert_null(be);
        if (!strstr(err.msg, wrong[i].said) || strncmp(err.msg, path, strlen(path)) != 0)
            fail_msg("%s, expected %s", err.msg, wrong[i].said);
    }
    assert_int_equal(ops->open(&be, &(gm_backend_cfg){.choices = "/nowhere"}, &err), GM_E_IO);
    for (int i = 0; i < 4; i++) { /* of all plans, and of one */
        const char *const name = i < 2 ? GM_VK_FLOW : GM_VK_FLOW ", plan 0123456789abcdef";
        const char *const flow = i % 2 ? GM_VK_FLOW_ON : GM_VK_FLOW_OFF;
        snprintf(line, sizeof line, "%s\t%s%s\n", name, flow, i == 1 ? "\r" : "");
        if (open_with(&be, path, line, &err) != GM_OK) fail_msg("%s", err.msg);
        assert_string_equal(gm_vk_choices_find(&be->choices, name)->way, flow);
        ops->close(be);
    }

    /* Another way than the usual one, without an end of line, is what the product gets. */
    static const char what[] = "q4_0 64x64, gate and up, 2 rows";
    gm_vk_product p;
    gm_vk_cut cut;
    assert_int_equal(open_with(&be, path, "# nothing\n", &err), GM_OK);
    assert_true(gm_vk_product_parse(what, &p));
    uint32_t i = 1;
    while (!gm_vk_cut_try(&be->tuning, &p, i, &cut))
        i++;
    gm_vk_cut_name(&cut, way);
    assert_int_equal(gm_vk_trial_cut(be, &p, &cut), 0);
    gm_vk_cut_name(&cut, usual);
    assert_string_not_equal(usual, way);
    ops->close(be);
    snprintf(line, sizeof line, "%s\t%s", what, way);
    if (open_with(&be, path, line, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_int_equal(gm_vk_trial_cut(be, &p, &cut), 0);
    gm_vk_cut_name(&cut, usual);
    assert_string_equal(usual, way);
    ops->close(be);
    unlink(path);
}

/* ---- a deep model ------------------------------------------------------------------------------ */

/* A product that is first met behind those that are timed together, as in files of mixed types: alone,
 * where nobody writes what it reads, it waits for nobody. */
static void test_deep(void **state)
{
    (void)state;
    notes *const n = calloc(1, sizeof *n);
    const gm_tune_how how = {.seconds = 1e9, .max_ways = 2, .row = note_row, .ctx = n};
    tiny t;
    device d;
    gm_err err = {0};
    bool is_told = false;
    tiny_init(&t, &(tiny_shape){.n_layer = 12,
                                .n_embd = 256,
                                .n_ffn = 256,
                                .head_dim = 64,
                                .matrix = GM_QTYPE_Q4_0,
                                .embed = GM_QTYPE_Q8_0});
    for (uint32_t i = 9; i < 12; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_down.weight", i);
        tiny_retype_tensor(&t, name, GM_QTYPE_Q8_0);
    }
    gm_model *const m = tiny_open(&t, "deep.gguf");
    device_open(&d, m, &(gm_backend_cfg){0});
    d.loaded.most.rows = 1;
    choose_flow(&d, true);
    if (ops->tune(d.be, &d.loaded, &how, &err) != GM_OK) fail_msg("%s", err.msg);
    assert_true(gm_vk_choices_flow(&d.be->choices, d.loaded.plan));
    for (uint32_t i = 0; i < n->n; i++)
        is_told = is_told || strstr(n->at[i][0].what, "q8_0 256x256, 1 rows waiting");
    assert_true(is_told);
    device_close(&d);
    gm_model_close(m);
    tiny_deinit(&t);
    free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),  cmocka_unit_test(test_wrong),  cmocka_unit_test(test_kept),
        cmocka_unit_test(test_early), cmocka_unit_test(test_narrow), cmocka_unit_test(test_lost),
        cmocka_unit_test(test_deep),  cmocka_unit_test(test_cancel), cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests_name("t_vk_trial", tests, tiny_setup, tiny_teardown);
}
