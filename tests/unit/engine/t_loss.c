/* SPDX-License-Identifier: MIT */
/* A device that is lost while an engine runs: whichever call it is that finds out, every answer goes
 * on as if nothing had been. This is a mock: the processor is never lost, and no GPU when asked to be.
 * The backend is a real one, of which some calls answer GM_E_LOST from one of them on, until it is
 * opened again. tests/unit/backend/vk/t_vk_loss.c loses calls that Vulkan has. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "fixtures/backends.h"
#include "fixtures/tinymodel.h"

enum { VOCAB = 500, CTX = 300, N = 4 };

static gm_model *model;
static const char *backend;
static bool ahead; /* as backend_go_ahead has it */
static gm_err err;
static int32_t ids[CTX];
static const gm_bias NO_END[] = {{1, -1000}, {106, -1000}};
static tiny_answer want[N], got[N];

#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

/* ---- the mock ------------------------------------------------------------------------------ */

static const gm_backend_ops *real;
static struct {
    gm_backend_ops ops;
    atomic_int n_calls, lose_at,
        lose_next;       /* the second: calls after it was opened again; 0: none */
    atomic_int n_closed; /* times that opening fails                            */
    atomic_int gone, n_opened, n_notes;
    _Atomic(gm_request *) unwanted; /* cancelled while the weights are loaded again */
} mock;

static gm_status gone(gm_err *e)
{
    if (atomic_fetch_add(&mock.n_calls, 1) + 1 == atomic_load(&mock.lose_at))
        atomic_store(&mock.gone, 1);
    return atomic_load(&mock.gone) ? gm_fail(e, GM_E_LOST, 0, "the device is lost") : GM_OK;
}

static gm_status mock_run(gm_exec *ex, const gm_step *s, gm_ticket *t, gm_err *e)
{
    GM_TRY(gone(e));
    return real->run(ex, s, t, e);
}

static gm_status mock_wait(gm_backend *be, gm_ticket t, gm_result *r, gm_err *e)
{
    *r = (gm_result){0};
    GM_TRY(gone(e));
    return real->wait(be, t, r, e);
}

static gm_status mock_copy(gm_kvmem *kv, const gm_page_move *m, uint32_t n, gm_ticket *t, gm_err *e)
{
    GM_TRY(gone(e));
    return real->kv_copy(kv, m, n, t, e);
}

static gm_status mock_open(gm_backend **out, const gm_backend_cfg *cfg, gm_err *e)
{
    *out = NULL;
    if (atomic_load(&mock.n_closed)) {
        atomic_fetch_sub(&mock.n_closed, 1);
        return gm_fail(e, GM_E_ARG, 0, "the device does not come back");
    }
    atomic_fetch_add(&mock.n_opened, 1);
    atomic_store(&mock.gone, 0);
    atomic_store(&mock.n_calls, 0);
    atomic_store(&mock.lose_at, atomic_exchange(&mock.lose_next, 0));
    return real->open(out, cfg, e);
}

static gm_status mock_load(gm_backend *be, const gm_tensors *t, const gm_progress *p, gm_wset **out,
                           gm_err *e)
{
    gm_request *const r = atomic_exchange(&mock.unwanted, NULL);
    *out = NULL;
    if (r) gm_request_cancel(r);
    if (r && !p->tell(p->ctx, 0, 1)) return gm_fail(e, GM_E_CANCEL, 0, "nobody waits");
    return real->load(be, t, p, out, e);
}

static void count_note(void *ctx, const char *text)
{
    (void)ctx;
    assert_non_null(strstr(text, "the device is lost; it is opened again"));
    atomic_fetch_add(&mock.n_notes, 1);
}

/* An engine of which call `lose_at` is the first to be lost, and call `lose_next` after that. */
static gm_engine *engine_of(const char *cache_dir, int lose_at, int lose_next)
{
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = 2;
    o.n_threads = 1;
    o.backend = backend;
    o.cache_dir = cache_dir;
    o.note = count_note;
    OK(gm_engine_open(&e, model, &o, &err));
    backend_go_ahead(e, ahead);
    pthread_mutex_lock(&e->lock);
    real = e->place.runner.ops;
    mock.ops = *real;
    mock.ops.open = mock_open;
    mock.ops.load = mock_load;
    mock.ops.run = mock_run;
    mock.ops.wait = mock_wait;
    mock.ops.kv_copy = mock_copy;
    e->place.runner.ops = &mock.ops;
    atomic_store(&mock.gone, 0);
    atomic_store(&mock.n_calls, 0);
    atomic_store(&mock.n_opened, 0);
    atomic_store(&mock.n_notes, 0);
    atomic_store(&mock.lose_at, lose_at);
    atomic_store(&mock.lose_next, lose_next);
    pthread_mutex_unlock(&e->lock);
    return e;
}

/* Nothing is left behind. */
static void assert_no_pages(gm_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (int c = 0; c < GM_CLASSES; c++)
        assert_int_equal(e->place.pool.n_free[c], e->place.pool.n_pages[c]);
    assert_int_equal(e->n_active, 0);
    assert_null(e->queue);
    pthread_mutex_unlock(&e->lock);
}

static void close_idle(gm_engine *e)
{
    assert_no_pages(e);
    gm_engine_close(e);
}

/* ---- requests ------------------------------------------------------------------------------ */

/* One with penalties, one whose prompt is told, one that begins like the first, a short one. */
static gm_request_opts request_of(uint32_t i)
{
    static const uint32_t lengths[N] = {70, 20, 75, 3};
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = ids;
    o.n_ids = lengths[i];
    o.max_tokens = 9;
    o.flags = GM_REQUEST_HASH | (i == 1 ? GM_REQUEST_PROMPT : 0);
    o.n_top = i == 3 ? 2 : 0;
    o.sampling.temperature = 1.1f;
    o.sampling.seed = i;
    o.sampling.repeat_penalty = i ? 1 : 1.3f;
    o.sampling.frequency_penalty = i ? 0 : 0.3f;
    o.sampling.n_bias = 2;
    o.sampling.bias = NO_END;
    return o;
}

static void assert_same_answer(const tiny_answer *a, const tiny_answer *b)
{
    assert_int_equal(a->status, GM_OK);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->id, b->id, a->n * sizeof *a->id);
    assert_memory_equal(a->hash, b->hash, a->n * sizeof *a->hash);
    assert_memory_equal(a->logprob, b->logprob, a->n * sizeof *a->logprob);
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->reason, b->reason);
}

/* Every token of the prompt but the first, once and in order, and with the logprob of the first time. */
static float prompt_logprob[CTX];
static void read_prompt(gm_request *r, const gm_request_opts *o)
{
    float *const logprob = prompt_logprob;
    gm_event ev;
    for (size_t i = 1; o->flags & GM_REQUEST_PROMPT && i < o->n_ids; i++) {
        OK(gm_request_next(r, &ev, &err));
        assert_int_equal(ev.kind, GM_EVENT_PROMPT);
        assert_int_equal(ev.id, o->ids[i]);
        if (logprob[i] == 0) logprob[i] = ev.logprob;
        assert_memory_equal(&ev.logprob, &logprob[i], sizeof *logprob);
    }
}

/* All at once, in answers[]. */
static void run_all(gm_engine *e, tiny_answer *answers)
{
    gm_request *r[N] = {0};
    for (uint32_t i = 0; i < N; i++) {
        const gm_request_opts o = request_of(i);
        OK(gm_request_open(&r[i], e, &o, &err));
    }
    for (uint32_t i = 0; i < N; i++) {
        const gm_request_opts o = request_of(i);
        answers[i] = (tiny_answer){0};
        read_prompt(r[i], &o);
        tiny_collect(r[i], &answers[i]);
        gm_request_close(r[i]);
    }
}

static int setup(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_ctx = CTX});
    model = tiny_open(&t, "model.gguf");
    tiny_deinit(&t);
    for (uint32_t i = 0; i < CTX; i++)
        ids[i] = (int32_t)(110 + tiny_random(1, i) % (VOCAB - 110));
    memset(prompt_logprob, 0, sizeof prompt_logprob);
    gm_engine *const e = engine_of(NULL, 0, 0);
    run_all(e, want);
    close_idle(e);
    return 0;
}

static int teardown(void **state)
{
    gm_model_close(model);
    return tiny_teardown(state);
}

/* ---- a cache on disk ------------------------------------------------------------------------ */

static uint32_t count_files(const char *dir)
{
    uint32_t n = 0;
    DIR *const d = opendir(dir);
    for (const struct dirent *entry; d && (entry = readdir(d));)
        n += entry->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void remove_files(const char *dir)
{
    char path[1024];
    DIR *const d = opendir(dir);
    for (const struct dirent *entry; d && (entry = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.200s", dir, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}

/* ---- what is tried ------------------------------------------------------------------------- */

/* Every call finds the device lost in turn, those that fill the cache on disk too. */
static void test_every_call(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s", tiny_path("cache"));
    for (int cache = 0; cache < 2; cache++) {
        int n_calls = 1, n_lost = 0;
        for (int i = 0; i <= n_calls; i++) {
            gm_engine *const e = engine_of(cache ? dir : NULL, i, 0);
            run_all(e, got);
            for (int k = 0; k < N; k++)
                assert_same_answer(&got[k], &want[k]);
            if (i == 0) n_calls = atomic_load(&mock.n_calls);
            n_lost += atomic_load(&mock.n_opened);
            assert_int_equal(atomic_load(&mock.n_opened), atomic_load(&mock.n_notes));
            if (!cache) assert_no_pages(e);
            gm_engine_close(e);
            remove_files(dir);
        }
        assert_true(n_calls > 20);
        /* Who joins which step depends on when it comes, and so does how many there are. */
        assert_true(n_lost > n_calls / 2);
        print_message("%s: %d of %d calls were lost\n", backend, n_lost, n_calls);
    }
}

/* It is lost again and again, but there is a token in between. */
static void test_gets_on(void **state)
{
    (void)state;
    const gm_request_opts o = request_of(0);
    gm_engine *const e = engine_of(NULL, 5, 5);
    got[0] = (tiny_answer){0};
    tiny_run(e, &o, &got[0]);
    assert_same_answer(&got[0], &want[0]);
    assert_int_equal(atomic_load(&mock.n_opened), 2);
    close_idle(e);
}

static void assert_fails(gm_engine *e, uint32_t i, const char *words)
{
    const gm_request_opts o = request_of(i);
    gm_request *r = NULL;
    gm_event ev;
    gm_status status = GM_OK;
    OK(gm_request_open(&r, e, &o, &err));
    do
        status = gm_request_next(r, &ev, &err);
    while (status == GM_OK && ev.kind != GM_EVENT_END);
    assert_int_equal(status, GM_E_LOST);
    assert_string_equal(err.msg, words);
    gm_request_close(r);
}

/* A step that is lost twice ends its request; the next one is served. */
static void test_lost_twice(void **state)
{
    (void)state;
    const gm_request_opts o = request_of(3);
    gm_engine *const e = engine_of(NULL, 4, 1);
    assert_fails(e, 0, "the device is lost");
    got[3] = (tiny_answer){0};
    tiny_run(e, &o, &got[3]);
    assert_same_answer(&got[3], &want[3]);
    assert_int_equal(atomic_load(&mock.n_opened), 2);
    close_idle(e);
}

/* A device that cannot be opened again ends what runs; each request that comes tries it once more. */
static void test_does_not_come_back(void **state)
{
    (void)state;
    const gm_request_opts o = request_of(3);
    gm_engine *const e = engine_of(NULL, 6, 0);
    atomic_store(&mock.n_closed, 2);
    assert_fails(e, 0, "the device does not come back");
    assert_string_equal(gm_engine_backend(e), backend);
    assert_fails(e, 2, "the device does not come back");
    got[3] = (tiny_answer){0};
    tiny_run(e, &o, &got[3]);
    assert_same_answer(&got[3], &want[3]);
    close_idle(e);

    gm_engine *const f = engine_of(NULL, 6, 0);
    atomic_store(&mock.n_closed, 1);
    assert_fails(f, 0, "the device does not come back");
    close_idle(f); /* half made */
}

/* Who cancels while the weights are loaded again does not wait for them. */
static void test_cancelled_meanwhile(void **state)
{
    (void)state;
    const gm_request_opts o = request_of(0);
    gm_request *r = NULL;
    gm_engine *const e = engine_of(NULL, 8, 0);
    OK(gm_request_open(&r, e, &o, &err));
    atomic_store(&mock.unwanted, r);
    got[0] = (tiny_answer){0};
    tiny_collect(r, &got[0]);
    assert_int_equal(got[0].reason, GM_END_CANCEL);
    gm_request_close(r);
    got[0] = (tiny_answer){0};
    tiny_run(e, &o, &got[0]);
    assert_same_answer(&got[0], &want[0]);
    close_idle(e);
}

/* A reader that is behind, with a slot or set aside without one, goes on too. */
static void test_parked(void **state)
{
    (void)state;
    static tiny_answer long_want;
    gm_request_opts o = request_of(0);
    o.max_tokens = 3 * GM_SEQ_RING;
    gm_engine *const plain = engine_of(NULL, 0, 0);
    long_want = (tiny_answer){0};
    tiny_run(plain, &o, &long_want);
    close_idle(plain);
    for (int aside = 0; aside < 2; aside++) {
        gm_request *r[2] = {0};
        gm_engine *const e = engine_of(NULL, 0, 0);
        e->patience_s = aside ? 0 : 3600;
        for (int i = 0; i <= aside; i++) {
            OK(gm_request_open(&r[i], e, &o, &err));
            gm_engine_stats stats = {.size = sizeof stats};
            while (gm_engine_stat(e, &stats), stats.n_parked <= (uint32_t)i)
                usleep(100);
        }
        atomic_store(&mock.lose_at, atomic_load(&mock.n_calls) + 5);
        run_all(e, got);
        for (int k = 0; k < N; k++)
            assert_same_answer(&got[k], &want[k]);
        assert_int_equal(atomic_load(&mock.n_opened), 1);
        for (int i = 0; i <= aside; i++) {
            got[0] = (tiny_answer){0};
            tiny_collect(r[i], &got[0]);
            assert_same_answer(&got[0], &long_want);
            gm_request_close(r[i]);
        }
        close_idle(e);
    }
}

static uint32_t cached_of(gm_engine *e, uint32_t i)
{
    const gm_request_opts o = request_of(i);
    gm_request *r = NULL;
    gm_event ev = {0};
    OK(gm_request_open(&r, e, &o, &err));
    while (ev.kind != GM_EVENT_END)
        OK(gm_request_next(r, &ev, &err));
    gm_request_close(r);
    return ev.n_cached;
}

/* What is on disk is there again afterwards. */
static void test_cache(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s", tiny_path("cache"));
    gm_engine *const e = engine_of(dir, 0, 0);
    assert_int_equal(cached_of(e, 0), 0);
    while (count_files(dir) == 0)
        usleep(1000);
    atomic_store(&mock.lose_at, atomic_load(&mock.n_calls) + 1);
    cached_of(e, 3);
    assert_int_equal(atomic_load(&mock.n_opened), 1);
    assert_int_equal(cached_of(e, 2), 70);
    gm_engine_close(e);
    assert_true(count_files(dir) > 0);
    remove_files(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_gets_on),
        cmocka_unit_test(test_lost_twice),
        cmocka_unit_test(test_does_not_come_back),
        cmocka_unit_test(test_cancelled_meanwhile),
        cmocka_unit_test(test_parked),
        cmocka_unit_test(test_cache),
    };
    int failed = 0;
    for (size_t i = 0; (backend = backend_next(&i, argc == 2 ? argv[1] : NULL));) {
        for (int mode = 0; mode < 2; mode++) {
            ahead = mode == 1;
            print_message("backend %s%s\n", backend, ahead ? ", a step ahead" : "");
            failed += cmocka_run_group_tests_name("t_loss", tests, setup, teardown);
        }
    }
    return failed;
}
