/* SPDX-License-Identifier: MIT */
/* Kernels that wait for the one before (inc/flow.glsl): that they wait, store nothing until then, see
 * what was written while they waited, count themselves, and give up in the end.
 *
 * lavapipe runs one dispatch after the other, so that in its steps nobody ever waits. Here each kind of
 * kernel runs alone, and the kernel before is the host: while the kernel looks at a word of host memory,
 * its inputs are garbage; then the host writes what they should be, and sets the word. Or the word is set
 * before the inputs are seen, as a device may show writes in any order: then they are not written yet.
 *
 * And whole answers, whose bits are those of kernels with barriers between them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/backends.h"
#include "backend/vk/vk.h"
#include "base/mem.h"
#include "fixtures/tinymodel.h"
#include "fixtures/vk/products.h"
#include "gemmule_tools.h"

/* Of the step whose kernels run alone: global layers have two splits. It is even, so that the step is
 * in the first slice. */
#define LAST_POS 130

#define SLOTS   2
#define PAGES   8 /* of a slot */
#define SOON_NS 50000000

/* Words that are small numbers of every type, as inputs that are not there yet; and bytes of a cache
 * that nobody wrote. */
#define GARBAGE   0x3c3c3c3c
#define UNTOUCHED 0xa5

static const gm_backend_ops *const ops = &gm_backend_vulkan;

typedef struct scene {
    gm_model *model;
    gm_backend *be;
    gm_wset *w;
    gm_kvmem *kv;
    gm_exec *ex;
    gm_step *step;
} scene;

static gm_qtype kv_type = GM_QTYPE_F16;
static uint32_t split_wgs; /* of attention, that share a row's splits; 0: the device's */

static size_t n_barriers_of(const gm_exec *ex)
{
    return ex->slice[0].script[GM_VK_APART].n_barriers;
}

static void lower(scene *s)
{
    gm_err err = {0};
    if (ops->lower(s->be, s->w, s->kv, &s->model->plan, (gm_bucket){1, 1}, &s->ex, &err) != GM_OK)
        fail_msg("%s", err.msg);
}

static void choose(gm_backend *be, const char *way)
{
    gm_vk_choice one = {.what = GM_VK_FLOW};
    snprintf(one.way, sizeof one.way, "%s", way);
    assert_int_equal(gm_vk_choices_put(&be->choices, &one, NULL), GM_OK);
}

static void device_open(scene *s, const gm_backend_cfg *cfg)
{
    const gm_config *const c = &s->model->config;
    gm_err err = {0};
    const gm_kv_desc desc = {.type = kv_type,
                             .n_layer = c->n_layer,
                             .layer_class = c->layer_class,
                             .n_kv_head = c->n_kv_head,
                             .head_dim = c->head_dim,
                             .n_vocab = gm_vocab_len(s->model->vocab),
                             .n_slots = SLOTS,
                             .n_pages = {SLOTS * PAGES, SLOTS * PAGES},
                             .table_len = PAGES};
    if (ops->open(&s->be, cfg, &err) != GM_OK ||
        ops->load(s->be, &s->model->plan.weights, NULL, &s->w, &err) != GM_OK ||
        ops->kv_open(s->be, &desc, &s->kv, &err) != GM_OK)
        fail_msg("%s", err.msg);
    if (split_wgs) s->be->tuning.split_wgs = split_wgs;
}

static void device_close(scene *s)
{
    ops->drop(s->ex);
    ops->kv_close(s->kv);
    ops->unload(s->w);
    ops->close(s->be);
    s->ex = NULL;
}

static gm_model *model_open(const char *type)
{
    const char *const path = tiny_path(type);
    gm_synth_opts opts = gm_synth_opts_default();
    gm_model *m = NULL;
    gm_err err = {0};
    opts.shape = "tiny";
    opts.type = type;
    opts.force = 1;
    if (gm_synth_write(path, &opts, &err) != GM_OK || gm_model_open(&m, path, &err) != GM_OK)
        fail_msg("%s", err.msg);
    return m;
}

static void scene_open(scene *s, gm_model *m, const gm_backend_cfg *cfg)
{
    const gm_step_limits limits = {.rows = 1, .segs = 1, .outs = 1, .edits = 2 * PAGES, .sets = 1};
    gm_err err = {0};
    *s = (scene){.model = m};
    assert_int_equal(gm_step_alloc(&s->step, &limits, &err), GM_OK);
    device_open(s, cfg);
}

static void scene_close(scene *s)
{
    device_close(s);
    gm_step_free(s->step);
    gm_model_close(s->model);
}

/* The slot's row at pos, of the token that was drawn last, which draws and gives all logits. */
static void put_token(gm_step *step, uint32_t slot, uint32_t pos)
{
    const gm_draw hot = {.inv_temp = 1,
                         .log_min_p = -INFINITY,
                         .repeat = 1,
                         .inv_repeat = 1,
                         .top_p = GM_DRAW_TOP_P_OFF};
    gm_step_clear(step);
    if (pos == 0) gm_step_put_set(step, slot, &hot, NULL, 0);
    for (uint32_t i = 0; pos == 0 && i < 2 * PAGES; i++)
        gm_step_put_edit(step, &(gm_page_edit){slot, i % 2, i / 2, slot * PAGES + i / 2});
    const gm_step_row row = {.kind = pos ? GM_ROW_LAST : GM_ROW_ID,
                             .src = 5,
                             .slot = slot,
                             .pos = pos,
                             .first = {pos > 31 ? pos - 31 : 0, 0},
                             .last = {pos, pos}};
    gm_step_put_seg(step, &(gm_step_seg){slot, 0, 1});
    gm_step_put_row(step, &row);
    gm_step_put_out(step,
                    &(gm_step_out){.want = GM_WANT_DRAW | GM_WANT_LOGITS, .mask = GM_NO_MASK});
}

static gm_status run_in(scene *s, uint32_t slot, uint32_t pos, gm_result *r, gm_err *err)
{
    gm_ticket t = 0;
    put_token(s->step, slot, pos);
    if (ops->run(s->ex, s->step, &t, err) != GM_OK) fail_msg("%s", err->msg);
    return ops->wait(s->be, t, r, err);
}

static gm_status run(scene *s, uint32_t pos, gm_result *r, gm_err *err)
{
    return run_in(s, 0, pos, r, err);
}

/* ---- what a kernel works on -------------------------------------------------------------------- */

/* The memory that waiting kernels read and write: values, and the cache. Here the host sees it. */
static gm_vk_buf *memory_at(const scene *s, size_t i)
{
    return i ? i <= s->kv->n_page_bufs ? &s->kv->page_bufs[i - 1] : NULL : &s->ex->scratch;
}

static size_t memory_size(const scene *s)
{
    size_t n = 0;
    for (size_t i = 0; memory_at(s, i); i++)
        n += memory_at(s, i)->size;
    return n;
}

static uint8_t *memory_save(const scene *s)
{
    uint8_t *const all = malloc(memory_size(s)), *to = all;
    for (size_t i = 0; memory_at(s, i); to += memory_at(s, i++)->size)
        memcpy(to, memory_at(s, i)->map, memory_at(s, i)->size);
    return all;
}

static void memory_load(const scene *s, const uint8_t *from)
{
    for (size_t i = 0; memory_at(s, i); from += memory_at(s, i++)->size)
        memcpy(memory_at(s, i)->map, from, memory_at(s, i)->size);
}

static bool memory_is(const scene *s, const uint8_t *all)
{
    for (size_t i = 0; memory_at(s, i); all += memory_at(s, i++)->size) {
        if (memcmp(memory_at(s, i)->map, all, memory_at(s, i)->size) != 0) return false;
    }
    return true;
}

/* Where the i-th range lies in the memory, of which values are the first, if it is one of values. */
static bool is_of_values(const scene *s, const gm_vk_range *r, uint64_t *at)
{
    *at = r->addr - s->ex->scratch.addr;
    return r->addr >= s->ex->scratch.addr && *at < s->ex->scratch.size;
}

/* What the dispatch reads of values, from other memory. */
static void copy_inputs(const scene *s, const gm_vk_dispatch *d, const uint8_t *from, uint8_t *to)
{
    uint64_t at;
    for (uint32_t i = 0; i < d->n_ranges; i++)
        if (!d->ranges[i].write && is_of_values(s, &d->ranges[i], &at))
            memcpy(to + at, from + at, d->ranges[i].size);
}

/* What it reads of values, or writes, as the same words. */
static void fill(const scene *s, const gm_vk_dispatch *d, bool written, uint32_t word, uint8_t *to)
{
    uint64_t at;
    for (uint32_t i = 0; i < d->n_ranges; i++)
        for (uint64_t k = 0; d->ranges[i].write == written && is_of_values(s, &d->ranges[i], &at) &&
                             k + sizeof word <= d->ranges[i].size;
             k += sizeof word)
            memcpy(to + at + k, &word, sizeof word);
}

/* ---- a kernel alone ---------------------------------------------------------------------------- */

enum { BEFORE = 0, HOLD = 128, LATE = 256, DONE = 384, WORDS = 512 }; /* bytes */

typedef enum kind { PLAIN, GATED, NORMED, NORM, ATTEND, ATTEND_SPLITS, KINDS } kind;

typedef struct alone {
    scene s;
    gm_vk_buf words;
    uint8_t *before_last; /* memory, as the last step found it      */
    gm_vk_list list;      /* of all its kernels                     */
    gm_vk_dispatch d;     /* the one that runs alone                */
    uint8_t *good, *bad;  /* memory before it: as it is, and as it is while inputs are not there */
    uint32_t word;        /* that the host sets                     */
    uint32_t value;
    bool early; /* something was done or written before it was */
} alone;

static _Atomic uint32_t *word_at(const alone *a, uint32_t off)
{
    return (_Atomic uint32_t *)(void *)(a->words.map + off);
}

static void alone_open(alone *a, gm_model *m)
{
    gm_err err = {0};
    gm_result r;
    *a = (alone){0};
    scene_open(&a->s, m, &(gm_backend_cfg){0});
    choose(a->s.be, GM_VK_FLOW_ON);
    lower(&a->s);
    assert_true(a->s.ex->flows);
    if (!a->s.ex->scratch.map || !a->s.kv->page_bufs[0].map) {
        print_message("skip: the host does not see this device's memory\n");
        skip();
    }
    assert_int_equal(gm_vk_buf_alloc(&a->s.be->dev, &a->words, WORDS, GM_VK_RESULT, "words", &err),
                     GM_OK);
    for (size_t i = 0; i < a->s.kv->n_page_bufs; i++)
        memset(a->s.kv->page_bufs[i].map, UNTOUCHED, a->s.kv->page_bufs[i].size);
    for (uint32_t pos = 0; pos <= LAST_POS; pos++) {
        free(a->before_last);
        a->before_last = memory_save(&a->s);
        if (run(&a->s, pos, &r, &err) != GM_OK) fail_msg("%s", err.msg);
    }
    assert_int_equal(gm_vk_list_plan(a->s.ex, 0, GM_VK_APART, &a->list, &err), GM_OK);
}

static void alone_close(alone *a)
{
    gm_vk_buf_free(&a->s.be->dev, &a->words);
    gm_vk_list_deinit(&a->list);
    free(a->before_last);
    free(a->good);
    free(a->bad);
    scene_close(&a->s);
}

static bool is_kind(const alone *a, const gm_vk_dispatch *d, kind k)
{
    const gm_vk_pipe *const pipe = &a->s.be->pipes.at[d->pipe];
    struct gm_vk_attend attend;
    if (!d->waits) return false;
    if (strcmp(pipe->shader->pipeline, "norm") == 0) return k == NORM;
    if (strcmp(pipe->shader->pipeline, "attend") == 0) {
        memcpy(&attend, d->push, sizeof attend);
        return k == (attend.class_of == GM_CLASS_LOCAL ? ATTEND : ATTEND_SPLITS);
    }
    assert_string_equal(pipe->shader->pipeline, "matmul");
    const uint32_t after = pipe->spec[GM_VK_MM_AFTER];
    return k == (after == GM_VK_AFTER_NORM ? NORMED : after == GM_VK_AFTER_GELU ? GATED : PLAIN);
}

static struct gm_vk_flow flow_of(const gm_vk_dispatch *d)
{
    struct gm_vk_flow f;
    memcpy(&f, d->push + d->flow, sizeof f);
    return f;
}

static uint64_t submit(const alone *a, const gm_vk_list *list, bool clears, VkCommandBuffer *cmd)
{
    gm_exec *const ex = a->s.ex;
    gm_vk_dev *const dev = &a->s.be->dev;
    const gm_vk_recording r = {.pipes = &a->s.be->pipes,
                               .list = list,
                               .grids = &ex->slice[0].step,
                               .grids_off = ex->grids_off,
                               .flow = clears ? &ex->slice[0].flow : NULL,
                               .values = &ex->scratch,
                               .values_off = ex->values_off,
                               .values_size = ex->values_size,
                               .values_word = GM_VK_UNWRITTEN};
    gm_err err = {0};
    uint64_t value = 0;
    if (gm_vk_record(dev, &r, cmd, &err) != GM_OK || gm_vk_submit(dev, *cmd, &value, &err) != GM_OK)
        fail_msg("%s", err.msg);
    return value;
}

static void run_list(const alone *a, const gm_vk_list *list, bool clears)
{
    VkCommandBuffer cmd = NULL;
    gm_err err = {0};
    const uint64_t value = submit(a, list, clears, &cmd);
    if (gm_vk_wait(&a->s.be->dev, value, &err) != GM_OK) fail_msg("%s", err.msg);
    gm_vk_record_free(&a->s.be->dev, cmd);
}

/* Runs the step up to the last kernel of that kind, which from there on has its words in a->words. */
static void prepare(alone *a, kind k)
{
    size_t i = a->list.n;
    while (i > 0 && !is_kind(a, &a->list.at[i - 1], k))
        i--;
    assert_true(i > 0);
    memory_load(&a->s, a->before_last);
    run_list(a, &(gm_vk_list){.at = a->list.at, .n = i - 1}, true);
    a->d = a->list.at[i - 1];
    a->d.barrier = a->d.waits = false;
    struct gm_vk_flow f = flow_of(&a->d);
    f.before = a->words.addr + BEFORE;
    f.hold = f.hold ? a->words.addr + HOLD : 0;
    f.late = a->words.addr + LATE;
    f.done = a->words.addr + DONE;
    memcpy(a->d.push + a->d.flow, &f, sizeof f);

    uint8_t *const had = memory_save(&a->s);
    free(a->good);
    free(a->bad);
    a->good = memory_save(&a->s);
    fill(&a->s, &a->d, true, GM_VK_UNWRITTEN, a->good);
    copy_inputs(&a->s, &a->d, had, a->good);
    memory_load(&a->s, a->good);
    a->bad = memory_save(&a->s);
    free(had);
}

static void *kernel_before(void *ctx)
{
    alone *const a = ctx;
    const struct timespec soon = {.tv_nsec = SOON_NS};
    nanosleep(&soon, NULL);
    a->early = atomic_load(word_at(a, DONE)) != 0 || !memory_is(&a->s, a->bad);
    copy_inputs(&a->s, &a->d, a->good, a->s.ex->scratch.map);
    atomic_store(word_at(a, a->word), a->value);
    return NULL;
}

/* When the host does what the kernel waits for. */
typedef enum when {
    AT_ONCE,
    COUNTED_LATER, /* sets one of its words */
    WRITTEN_LATER, /* all is counted, but not yet seen */
} when;

/* Runs the kernel, and answers what memory is then. */
static uint8_t *run_alone(alone *a, when w)
{
    const bool later = w != AT_ONCE;
    const struct gm_vk_flow f = flow_of(&a->d);
    const gm_vk_list list = {.at = &a->d, .n = 1};
    pthread_t host;
    memset(a->words.map, 0, WORDS);
    atomic_store(word_at(a, BEFORE), f.n_before);
    atomic_store(word_at(a, HOLD), f.n_hold);
    fill(&a->s, &a->d, false, w == WRITTEN_LATER ? GM_VK_UNWRITTEN : GARBAGE, a->bad);
    memory_load(&a->s, later ? a->bad : a->good);
    a->value = a->word == HOLD ? f.n_hold : f.n_before;
    if (w == COUNTED_LATER)
        atomic_store(word_at(a, a->word), a->value - 1); /* all but one are done */
    if (later) {
        assert_int_equal(pthread_create(&host, NULL, kernel_before, a), 0);
    }
    run_list(a, &list, false);
    if (later) assert_int_equal(pthread_join(host, NULL), 0);
    assert_false(later && a->early);
    assert_int_equal(atomic_load(word_at(a, LATE)), 0);
    assert_int_equal(atomic_load(word_at(a, DONE)), a->d.n_done);
    return memory_save(&a->s);
}

static void check_waits(alone *a, uint32_t word)
{
    a->word = word;
    uint8_t *const want = run_alone(a, AT_ONCE);
    assert_memory_not_equal(want, a->good, memory_size(&a->s));
    for (when w = COUNTED_LATER; w <= WRITTEN_LATER; w++) {
        uint8_t *const got = run_alone(a, w);
        assert_memory_equal(got, want, memory_size(&a->s));
        free(got);
    }
    free(want);
}

/* What is counted within the kernel: parts of a product that norms wait for, heads of attention that are
 * read. */
static uint32_t count_inner(const alone *a, kind k)
{
    struct gm_vk_matmul product;
    memcpy(&product, a->d.push, sizeof product);
    return k == NORMED ? product.wg_end[0] : a->d.n_held;
}

static void check_kind(alone *a, kind k)
{
    prepare(a, k);
    assert_int_equal(a->d.n_held > 0, k >= ATTEND);
    check_waits(a, BEFORE);
    assert_int_equal(atomic_load(word_at(a, DONE + GM_VK_FLOW_INNER)), count_inner(a, k));
}

static void test_waits(void **state)
{
    (void)state;
    alone a;
    alone_open(&a, model_open("q4_0"));
    for (kind k = 0; k < KINDS; k++)
        check_kind(&a, k);
    alone_close(&a);
}

/* A processor runs as many workgroups at once as it has cores. Norms beside a product are behind all of
 * its others: only where that is one, and there are two cores, do they wait, too. */
static void test_narrow(void **state)
{
    (void)state;
    alone a;
    tiny t;
    tiny_init(&t,
              &(tiny_shape){.n_layer = 6, .n_embd = 32, .head_dim = 32, .matrix = GM_QTYPE_Q4_0});
    alone_open(&a, tiny_open(&t, "narrow.gguf"));
    for (kind k = 0; k < KINDS; k++)
        check_kind(&a, k);
    prepare(&a, NORMED);
    assert_int_equal(count_inner(&a, NORMED), 1);
    alone_close(&a);
    tiny_deinit(&t);
}

/* The two kernels behind attention ask for nothing until it has what it asked for. */
static void test_holds(void **state)
{
    (void)state;
    alone a;
    uint32_t n = 0;
    alone_open(&a, model_open("q4_0"));
    for (kind k = 0; k < KINDS; k++) {
        prepare(&a, k);
        if (!flow_of(&a.d).hold) continue;
        check_waits(&a, HOLD);
        n++;
    }
    assert_int_equal(n, 2);
    alone_close(&a);
}

/* Nobody counts, or what was counted never comes: the kernel ends all the same, and says so. Where
 * another has said it already, it does not look four billion times first. */
static void test_gives_up(void **state)
{
    (void)state;
    alone a;
    alone_open(&a, model_open("q4_0"));
    for (uint32_t i = 0; i < 4 * KINDS; i++) {
        prepare(&a, i / 4);
        struct gm_vk_flow f = flow_of(&a.d);
        f.patience = i % 2 ? UINT32_MAX : 10000;
        memcpy(a.d.push + a.d.flow, &f, sizeof f);
        memset(a.words.map, 0, WORDS);
        atomic_store(word_at(&a, BEFORE), f.n_before - (i % 4 < 2));
        atomic_store(word_at(&a, LATE), i % 2);
        fill(&a.s, &a.d, false, GM_VK_UNWRITTEN, a.bad);
        memory_load(&a.s, a.bad);
        run_list(&a, &(gm_vk_list){.at = &a.d, .n = 1}, false);
        assert_int_equal(atomic_load(word_at(&a, LATE)), 1);
    }
    alone_close(&a);
}

/* ---- a step that gives up ---------------------------------------------------------------------- */

static uint32_t n_changed; /* products that wait */

/* Every product is told to wait for one more than the kernel before ever counts, and not for long, as if
 * a device had not started the one before. */
static void wait_in_vain(struct gm_vk_matmul *push)
{
    n_changed += push->flow.before != 0;
    push->flow.n_before++;
    push->flow.patience = 10000;
}

static bool is_chosen(const scene *s, const char *way)
{
    char name[GM_VK_NAME];
    gm_vk_flow_name(&s->model->plan, name);
    const gm_vk_choice *const known = gm_vk_choices_find(&s->be->choices, name);
    return known && strcmp(known->way, way) == 0;
}

/* The device counts as lost, and whoever lowers afterwards, or opens it again, has barriers, which are
 * right though the driver is still as it was. */
static void test_late(void **state)
{
    (void)state;
    char dir[300], path[400];
    scene s;
    gm_result r;
    gm_err err = {0};
    snprintf(dir, sizeof dir, "%s.dir", tiny_path("late"));
    assert_int_equal(mkdir(dir, 0700), 0);
    const gm_backend_cfg cfg = {.dir = dir};
    scene_open(&s, model_open("q4_0"), &cfg);
    const size_t size = gm_vocab_len(s.model->vocab) * sizeof(float);
    float *const want = malloc(size);
    lower(&s);
    assert_int_equal(run(&s, 0, &r, &err), GM_OK);
    memcpy(want, r.out[0].logits, size);
    ops->drop(s.ex);

    choose(s.be, GM_VK_FLOW_ON);
    products_watch(s.be, wait_in_vain);
    lower(&s);
    assert_true(s.ex->flows && n_changed > 0);
    assert_int_equal(run(&s, 0, &r, &err), GM_E_LOST);
    assert_non_null(strstr(err.msg, "a kernel waited too long for the one before it"));
    assert_int_equal(r.n_out, 0);
    assert_true(is_chosen(&s, GM_VK_FLOW_OFF));
    const size_t n_barriers = n_barriers_of(s.ex);
    ops->drop(s.ex);
    lower(&s);
    assert_true(!s.ex->flows && n_barriers_of(s.ex) > n_barriers);
    assert_int_equal(run(&s, 0, &r, &err), GM_OK);
    assert_memory_equal(r.out[0].logits, want, size);
    snprintf(path, sizeof path, "%s/%s.pipelines", dir, s.be->kept.id);
    device_close(&s);

    device_open(&s, &cfg);
    assert_true(is_chosen(&s, GM_VK_FLOW_OFF));
    assert_int_equal(gm_vk_choices_forget(s.be, NULL), GM_OK);
    scene_close(&s);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    free(want);
}

/* What a slice has from a step that was late is not held against the next: who waits no longer than he
 * should is right. */
static void test_late_once(void **state)
{
    (void)state;
    scene s;
    gm_result r;
    gm_err err = {0};
    gm_exec *late = NULL;
    scene_open(&s, model_open("q4_0"), &(gm_backend_cfg){0});
    choose(s.be, GM_VK_FLOW_ON);
    lower(&s);
    late = s.ex;
    products_watch(s.be, wait_in_vain);
    lower(&s);
    products_leave(s.be);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(run(&s, 0, &r, &err), GM_E_LOST);
    ops->drop(s.ex);
    s.ex = late;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(run(&s, i, &r, &err), GM_OK);
    scene_close(&s);
}

/* ---- whole answers ----------------------------------------------------------------------------- */

static uint32_t n_products_waiting(const gm_vk_list *list)
{
    uint32_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->at[i].waits && list->at[i].n_weights;
    return n;
}

/* The same answer by barriers and by kernels that wait, each in a slot of its own and in both slices in
 * turn: every token, log-probability and logit is the same. The model is closed. */
static void check_answer(gm_model *m, uint32_t n)
{
    const size_t size = gm_vocab_len(m->vocab) * sizeof(float);
    float *const logits = malloc(2 * size);
    gm_result_out out[2];
    gm_vk_list list = {0};
    gm_err err = {0};
    gm_result r;
    scene s[2];
    scene_open(&s[0], m, &(gm_backend_cfg){0});
    lower(&s[0]);
    s[1] = s[0];
    choose(s[1].be, GM_VK_FLOW_ON);
    lower(&s[1]);
    assert_true(s[1].ex->flows && !s[0].ex->flows);
    assert_int_equal(gm_vk_list_plan(s[1].ex, 0, GM_VK_APART, &list, &err), GM_OK);
    /* Without products that wait there are two more a layer: norms are kernels of their own. */
    const uint32_t more = n_products_waiting(&list) ? 0 : 2 * m->config.n_layer;
    assert_true(n_barriers_of(s[1].ex) <= n_barriers_of(s[0].ex) + more);
    assert_int_equal(gm_vk_list_find_hazard(&list), list.n);
    gm_vk_list_deinit(&list);
    for (uint32_t i = 0; i < 2 * n; i++) {
        const uint32_t pos = i / 2, which = (pos + i) % 2;
        if (run_in(&s[which], which, pos, &r, &err) != GM_OK) fail_msg("%u: %s", pos, err.msg);
        out[which] = r.out[0];
        memcpy(logits + which * size / sizeof(float), r.out[0].logits, size);
        if (i % 2 == 0) continue;
        assert_int_equal(out[0].token, out[1].token);
        assert_memory_equal(&out[0].logprob, &out[1].logprob, sizeof(float));
        assert_memory_equal(logits, logits + size / sizeof(float), size);
        assert_true(fabsf(logits[0]) < 1e3f); /* a number */
    }
    free(logits);
    ops->drop(s[1].ex);
    scene_close(&s[0]);
}

/* Past a page and past a split, in caches of every type, and where one workgroup has both splits; other
 * weights for a few steps. */
static void test_answers(void **state)
{
    (void)state;
    static const gm_qtype caches[] = {GM_QTYPE_F32, GM_QTYPE_F16, GM_QTYPE_Q8_0};
    static const char *const types[] = {"q8_0", "q4_k", "q6_k", "f16"};
    for (size_t i = 0; i < 3; i++) {
        kv_type = caches[i];
        check_answer(model_open("q4_0"), LAST_POS + 4);
    }
    kv_type = GM_QTYPE_F16;
    split_wgs = 1;
    check_answer(model_open("q4_0"), LAST_POS + 4);
    split_wgs = 0;
    for (size_t i = 0; i < 4; i++)
        check_answer(model_open(types[i]), 4);
}

/* A row may bring any word: that of what is not written yet keeps nobody waiting. */
static void test_given(void **state)
{
    (void)state;
    const uint32_t unwritten = GM_VK_UNWRITTEN;
    scene s;
    gm_result r;
    gm_err err = {0};
    gm_step_row row = {.kind = GM_ROW_GIVEN};
    gm_ticket ticket = 0;
    scene_open(&s, model_open("q4_0"), &(gm_backend_cfg){0});
    choose(s.be, GM_VK_FLOW_ON);
    lower(&s);
    const uint32_t n = s.ex->given_cols;
    float *const given = malloc(n * sizeof *given);
    const gm_step_limits limits = {
        .rows = 1, .segs = 1, .outs = 1, .edits = 2, .sets = 1, .given = 1, .given_cols = n};
    gm_step_free(s.step);
    assert_int_equal(gm_step_alloc(&s.step, &limits, &err), GM_OK);
    for (uint32_t i = 0; i < n; i++)
        memcpy(&given[i], &unwritten, sizeof unwritten);
    assert_true(gm_step_put_given(s.step, given, &row.src));
    for (uint32_t c = 0; c < GM_CLASSES; c++)
        gm_step_put_edit(s.step, &(gm_page_edit){0, c, 0, 0});
    gm_step_put_seg(s.step, &(gm_step_seg){0, 0, 1});
    gm_step_put_row(s.step, &row);
    gm_step_put_out(s.step, &(gm_step_out){.want = GM_WANT_LOGITS, .mask = GM_NO_MASK});
    assert_int_equal(ops->run(s.ex, s.step, &ticket, &err), GM_OK);
    assert_int_equal(ops->wait(s.be, ticket, &r, &err), GM_OK);
    assert_true(isnan(r.out[0].logits[0]));
    free(given);
    scene_close(&s);
}

/* Where types differ, siblings are several kernels and floats know nothing of waiting: only some of a
 * layer wait then, and others have barriers between them. */
static void test_mixed(void **state)
{
    (void)state;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_layer = 6,
                                .n_embd = 256,
                                .n_ffn = 512,
                                .head_dim = 64,
                                .matrix = GM_QTYPE_Q4_0,
                                .embed = GM_QTYPE_Q8_0});
    tiny_retype_tensor(&t, "blk.0.attn_v.weight", GM_QTYPE_Q6_K);
    tiny_retype_tensor(&t, "blk.1.attn_v.weight", GM_QTYPE_Q6_K);
    tiny_retype_tensor(&t, "blk.2.attn_q.weight", GM_QTYPE_F16);
    tiny_retype_tensor(&t, "blk.3.attn_v.weight", GM_QTYPE_F16);
    tiny_retype_tensor(&t, "blk.4.ffn_up.weight", GM_QTYPE_Q8_0);
    tiny_retype_tensor(&t, "blk.5.attn_output.weight", GM_QTYPE_F16);
    check_answer(tiny_open(&t, "mixed.gguf"), LAST_POS + 4);
    tiny_deinit(&t);
}

/* Kernels of a step have times of their own, by barriers and where they wait for each other: every one
 * is in some row, and what they read is what the step has. */
static void test_profile(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, model_open("q4_0"), &(gm_backend_cfg){0});
    for (int flows = 0; flows < 2; flows++) {
        gm_kernel_row rows[32];
        gm_err err = {0};
        uint32_t n = 0, n_kernels = 0, n_attend = 0, n_heads = 0;
        if (flows) choose(s.be, GM_VK_FLOW_ON);
        lower(&s);
        assert_int_equal(s.ex->flows, flows);
        for (uint32_t pos = 0; pos < 3; pos++) {
            put_token(s.step, 0, pos);
            assert_int_equal(ops->profile(s.ex, s.step, rows, 32, &n, &err), GM_OK);
        }
        for (uint32_t i = 0; i < n; i++) {
            n_kernels += rows[i].n;
            assert_true(rows[i].us > 0 && strlen(rows[i].what) > 0);
            if (strncmp(rows[i].what, "attention", 9) == 0) {
                n_attend += rows[i].n;
                assert_true(rows[i].bytes == 3.0 * rows[i].n * (double)s.kv->layer_size / 32);
            }
            if (strcmp(rows[i].what, "token_embd") == 0) {
                n_heads += rows[i].n;
                assert_true(rows[i].bytes == (double)s.model->plan.weights.at[0].size);
            }
        }
        assert_int_equal(n_kernels, s.ex->slice[0].script[GM_VK_APART].n_dispatches);
        assert_int_equal(n_attend, s.model->config.n_layer);
        assert_int_equal(n_heads, 1);
        put_token(s.step, 0, 3);
        assert_int_equal(ops->profile(s.ex, s.step, rows, 2, &n, &err), GM_OK);
        assert_int_equal(n, 2);
        ops->drop(s.ex);
        s.ex = NULL;
    }
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits), cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_holds), cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_late),  cmocka_unit_test(test_late_once),
        cmocka_unit_test(test_given), cmocka_unit_test(test_answers),
        cmocka_unit_test(test_mixed), cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests_name("t_vk_flow", tests, tiny_setup, tiny_teardown);
}
