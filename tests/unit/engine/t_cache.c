/* SPDX-License-Identifier: MIT */
/* An engine that keeps a cache: what is taken over after a request is closed, from where, what goes
 * first when pages run out; and that every answer is to the bit what it is without a cache. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "fixtures/tinymodel.h"

enum { CTX = 600, WINDOW = 40, TURN = 106, VOCAB = 500 };

static gm_model *model;
static gm_engine *plain; /* one request at a time and no cache: the answers as they are */
static gm_err err;

#define OK(call)                                      \
    do {                                              \
        err = (gm_err){0};                            \
        if ((call) != GM_OK) fail_msg("%s", err.msg); \
    } while (0)

static gm_engine *engine_of(uint32_t n_slots, uint32_t cache)
{
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = n_slots;
    o.n_threads = 1;
    o.n_ctx = CTX;
    o.cache = cache;
    OK(gm_engine_open(&e, model, &o, &err));
    return e;
}

static int setup(void **state)
{
    static const tiny_shape shape = {.n_layer = 6, .n_ctx = CTX, .head_dim = 32, .n_kv_head = 1};
    tiny t;
    if (tiny_setup(state) != 0) return -1;
    tiny_init(&t, &shape);
    tiny_u32(&t, "gemma3.attention.sliding_window", WINDOW);
    model = tiny_open(&t, "cache.gguf");
    tiny_deinit(&t);
    plain = engine_of(1, 0);
    return 0;
}

static int teardown(void **state)
{
    gm_engine_close(plain);
    gm_model_close(model);
    return tiny_teardown(state);
}

/* ---- prompts ----------------------------------------------------------------------------- */

typedef struct talk {
    int32_t ids[CTX];
    uint32_t n;
} talk;

/* n more tokens, none of which ends a turn. */
static void say(talk *t, uint64_t seed, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        t->ids[t->n++] = (int32_t)(110 + tiny_random(seed, i) % (VOCAB - 110));
}

static void end_turn(talk *t)
{
    t->ids[t->n++] = TURN;
}

static gm_request_opts opts_of(const talk *t, uint32_t max_tokens)
{
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = t->ids;
    o.n_ids = t->n;
    o.max_tokens = max_tokens;
    o.flags = GM_REQUEST_HASH | GM_REQUEST_IGNORE_END;
    o.sampling.seed = t->n;
    return o;
}

/* Asks both engines; the answers are the same. Answers how many tokens were taken over. */
static uint32_t ask(gm_engine *e, const talk *t, uint32_t max_tokens, tiny_answer *out)
{
    static tiny_answer want, got;
    const gm_request_opts o = opts_of(t, max_tokens);
    gm_request *r = NULL;
    gm_event ev;
    tiny_run(plain, &o, &want);
    OK(gm_request_open(&r, e, &o, &err));
    got = (tiny_answer){0};
    tiny_collect(r, &got);
    OK(gm_request_next(r, &ev, &err));
    gm_request_close(r);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.id, want.id, want.n * sizeof *want.id);
    assert_memory_equal(got.hash, want.hash, want.n * sizeof *want.hash);
    if (out) *out = got;
    return ev.n_cached;
}

/* Whether about n tokens were taken over: at most n, and no more than a page less. */
static void assert_about(uint32_t got, uint32_t n)
{
    if (got > n || got + GM_PAGE_LEN <= n) fail_msg("%u tokens taken over, expected %u", got, n);
}

/* ---- what is taken over ------------------------------------------------------------------ */

/* The same prompt again, after answers shorter and longer than the window. */
static void test_the_same_again(void **state)
{
    (void)state;
    static const uint32_t answers[] = {1, 20, 100, 300};
    for (size_t i = 0; i < 4; i++) {
        gm_engine *const e = engine_of(1, 1);
        talk t = {0};
        say(&t, i, 150);
        assert_int_equal(ask(e, &t, answers[i], NULL), 0);
        assert_about(ask(e, &t, answers[i], NULL), t.n - 1);
        assert_about(ask(e, &t, 5, NULL), t.n - 1);
        gm_engine_close(e);
    }
}

/* A talk of several turns: each takes over all that was said before; and one can go back to any of
 * them. */
static void test_turns(void **state)
{
    (void)state;
    static tiny_answer a;
    gm_engine *const e = engine_of(2, 1);
    talk t = {0}, at[4];
    for (uint64_t i = 0; i < 4; i++) {
        const uint32_t before = t.n;
        say(&t, 10 + i, 30);
        at[i] = t;
        assert_about(ask(e, &t, 60, &a), i ? before - 1 : 0);
        memcpy(t.ids + t.n, a.id, a.n * sizeof *a.id);
        t.n += a.n;
        end_turn(&t);
    }
    for (uint64_t i = 4; i-- > 0;) { /* another question in place of the one that was asked then */
        talk other = at[i];
        other.n -= 30;
        say(&other, 50 + i, 30);
        assert_about(ask(e, &other, 10, NULL), i ? other.n - 30 : 0);
    }
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_int_equal(s.n_hits + 2, s.n_lookups);
    gm_engine_close(e);
}

/* Where two prompts part, without a turn that ends there, the third goes on. */
static void test_where_prompts_part(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(1, 1);
    for (uint64_t i = 0; i < 4; i++) {
        talk t = {0};
        say(&t, 1, 200);
        say(&t, 20 + i, 130);
        const uint32_t n = ask(e, &t, 8, NULL);
        if (i >= 2) assert_about(n, 200);
    }
    gm_engine_close(e);
}

/* Requests that come together and begin alike compute it once. */
static void test_together(void **state)
{
    (void)state;
    enum { N = 6 };
    gm_engine *const e = engine_of(N, 1);
    static tiny_answer got[2];
    gm_request *r[N];
    talk t = {0};
    say(&t, 3, 400);
    const gm_request_opts o = opts_of(&t, 30);
    for (int i = 0; i < N; i++)
        OK(gm_request_open(&r[i], e, &o, &err));
    for (int i = 0; i < N; i++) {
        got[i > 0] = (tiny_answer){0};
        tiny_collect(r[i], &got[i > 0]);
        if (i) assert_memory_equal(got[0].hash, got[1].hash, 30 * sizeof *got[0].hash);
        gm_request_close(r[i]);
    }
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_int_equal(s.n_hits, N - 1);
    assert_true(s.n_prompt <= 400 + (N - 1) * GM_PAGE_LEN);
    gm_engine_close(e);
}

/* ---- what goes --------------------------------------------------------------------------- */

/* One slot has pages for one context: a third talk drives out the one that was unused longest. */
static void test_least_recently_used_goes(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(1, 1);
    talk t[3] = {{.n = 0}};
    for (uint64_t i = 0; i < 3; i++)
        say(&t[i], 30 + i, 200);
    ask(e, &t[0], 10, NULL);
    ask(e, &t[1], 10, NULL);
    assert_about(ask(e, &t[0], 10, NULL), 199); /* used again: the other is older now */
    ask(e, &t[2], 200, NULL);
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_true(s.n_evicted > 0);
    assert_int_equal(ask(e, &t[1], 10, NULL), 0);
    gm_engine_stat(e, &s);
    assert_int_equal(s.n_running, 0);
    assert_true(s.n_kept > 0);
    gm_engine_close(e);
}

/* The whole context with a mark at every turn: marks give way to what runs. */
static void test_marks_give_way(void **state)
{
    (void)state;
    gm_engine *const e = engine_of(2, 1);
    for (uint64_t k = 0; k < 4; k++) {
        talk t = {0};
        while (t.n + 12 < CTX - 20) {
            say(&t, 100 * k + t.n, 10);
            end_turn(&t);
        }
        ask(e, &t, 0, NULL);
    }
    gm_engine_close(e);
}

/* ---- the disk ------------------------------------------------------------------------------ */

static char dir[] = "/tmp/gemmule-cache.XXXXXX";
static char notes[4096];

static void take_note(void *ctx, const char *text)
{
    (void)ctx;
    const size_t len = strlen(notes);
    snprintf(notes + len, sizeof notes - len, "%s\n", text);
}

static gm_engine *disk_engine_of(const gm_model *m, gm_engine_opts o)
{
    gm_engine *e = NULL;
    o.n_threads = 1;
    o.cache_dir = dir;
    o.note = take_note;
    notes[0] = '\0';
    OK(gm_engine_open(&e, m, &o, &err));
    return e;
}

static gm_engine *disk_engine(const gm_model *m, const char *kv_type)
{
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = 2;
    o.n_ctx = CTX;
    o.kv_type = kv_type;
    return disk_engine_of(m, o);
}

/* The cache files; the first one's path goes to *path. */
static uint32_t files(char *path, size_t size)
{
    DIR *const d = opendir(dir);
    const struct dirent *entry = NULL;
    uint32_t n = 0;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        if (entry->d_name[0] == '.') continue;
        if (path) snprintf(path, size, "%s/%s", dir, entry->d_name);
        n++;
    }
    closedir(d);
    return n;
}

static void remove_files(void)
{
    char path[400];
    while (files(path, sizeof path))
        assert_int_equal(unlink(path), 0);
}

static void test_restart(void **state)
{
    (void)state;
    static tiny_answer a;
    assert_non_null(mkdtemp(dir));
    talk t = {0}, other = {0};
    say(&t, 1, 180);
    say(&other, 2, 100);
    gm_engine *e = disk_engine(model, NULL);
    assert_int_equal(ask(e, &t, 100, &a), 0);
    assert_int_equal(ask(e, &other, 10, NULL), 0);
    gm_engine_close(e);
    assert_int_equal(files(NULL, 0), 2);
    for (int again = 0; again < 2; again++) { /* what was read is there for the next restart too */
        e = disk_engine(model, NULL);
        assert_string_equal(notes, "");
        assert_about(ask(e, &t, 100, NULL), t.n - 1);
        assert_about(ask(e, &other, 10, NULL), other.n - 1);
        gm_engine_close(e);
    }
    memcpy(t.ids + t.n, a.id, a.n * sizeof *a.id); /* the talk goes on after a restart */
    t.n += a.n;
    const uint32_t said = t.n;
    say(&t, 9, 20);
    e = disk_engine(model, NULL);
    assert_about(ask(e, &t, 10, NULL), said - 1);
    gm_engine_close(e);
    assert_int_equal(files(NULL, 0), 2); /* the longer one has taken the shorter one's place */
    remove_files();
}

/* A talk of three turns, and its file after each: what was written stays as it was. */
typedef struct grown {
    talk talk[3];
    uint8_t *bytes; /* after the third */
    size_t size[3];
    char path[400];
} grown;

static uint8_t *bytes_of(const char *path, size_t *size)
{
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    uint8_t *const bytes = malloc(*size);
    rewind(f);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

static void grow(grown *g, bool restarts)
{
    static tiny_answer a;
    talk t = {0};
    gm_engine *e = disk_engine(model, NULL);
    *g = (grown){.bytes = NULL};
    for (uint64_t i = 0; i < 3; i++) {
        say(&t, 60 + i, i ? 25 : 120);
        g->talk[i] = t;
        const uint32_t n = ask(e, &t, 20, &a);
        if (i) assert_about(n, g->talk[i - 1].n + 20);
        memcpy(t.ids + t.n, a.id, a.n * sizeof *a.id);
        t.n += a.n;
        end_turn(&t);
        if (!restarts && i < 2) continue;
        gm_engine_close(e);
        assert_int_equal(files(g->path, sizeof g->path), 1);
        uint8_t *const bytes = bytes_of(g->path, &g->size[i]);
        if (i && restarts) assert_memory_equal(bytes, g->bytes, g->size[i - 1]);
        free(g->bytes);
        g->bytes = bytes;
        if (i < 2) e = disk_engine(model, NULL);
    }
}

/* A talk that goes on has its file go on: by less than what was there at first, whether the engine
 * was restarted between the turns or not. */
static void test_files_grow(void **state)
{
    (void)state;
    for (int restarts = 0; restarts < 2; restarts++) {
        grown g;
        grow(&g, restarts);
        if (restarts) {
            assert_true(g.size[0] < g.size[1] && g.size[1] < g.size[2]);
            assert_true(g.size[2] - g.size[1] < g.size[0]);
        }
        gm_engine *const e = disk_engine(model, NULL);
        assert_string_equal(notes, "");
        assert_about(ask(e, &g.talk[2], 20, NULL), g.talk[2].n - 1);
        for (int i = 0; i < 2; i++)
            assert_about(ask(e, &g.talk[i], 20, NULL), g.talk[i].n - 1);
        gm_engine_close(e);
        free(g.bytes);
        remove_files();
    }
}

/* The same again adds nothing to the file. */
static void test_the_same_is_not_written_again(void **state)
{
    (void)state;
    char path[400];
    size_t size[2];
    talk t = {0};
    say(&t, 4, 90);
    for (int k = 0; k < 2; k++) {
        gm_engine *const e = disk_engine(model, NULL);
        for (int i = 0; i < 3; i++)
            ask(e, &t, 10, NULL);
        gm_engine_close(e);
        assert_int_equal(files(path, sizeof path), 1);
        free(bytes_of(path, &size[k]));
    }
    assert_int_equal(size[0], size[1]);
    remove_files();
}

/* A process that ends while it appends, or a segment that is damaged: what was there before it is
 * taken over, the rest is cut off with a word, and the file goes on from there. */
static void test_ends_cut_off(void **state)
{
    (void)state;
    grown g;
    grow(&g, true);
    for (uint32_t k = 0; k < 24; k++) {
        const size_t at =
            g.size[1] +
            (k < 12 ? k * 5 + 1 : (size_t)(tiny_random(9, k) % (uint64_t)(g.size[2] - g.size[1])));
        const bool cut = k % 2 == 0;
        const uint8_t kept = g.bytes[at];
        size_t size = 0;
        FILE *const f = fopen(g.path, "wb");
        assert_non_null(f);
        if (!cut) g.bytes[at] ^= (uint8_t)(1u << k % 8);
        fwrite(g.bytes, 1, cut ? at : g.size[2], f);
        fclose(f);
        g.bytes[at] = kept;
        gm_engine *e = disk_engine(model, NULL);
        assert_non_null(strstr(notes, "the end of "));
        assert_about(ask(e, &g.talk[2], 20, NULL), g.talk[1].n + 20);
        gm_engine_close(e);
        e = disk_engine(model, NULL);
        assert_string_equal(notes, "");
        assert_about(ask(e, &g.talk[2], 20, NULL), g.talk[2].n - 1);
        gm_engine_close(e);
        assert_int_equal(files(NULL, 0), 1);
        uint8_t *const bytes = bytes_of(g.path, &size);
        assert_int_equal(size, g.size[2]);
        assert_memory_equal(bytes, g.bytes, g.size[1]);
        free(bytes);
    }
    free(g.bytes);
    remove_files();
}

/* A file with any part changed or cut is dropped with a word, and the answers are right. */
static void test_damaged_files(void **state)
{
    (void)state;
    talk t = {0};
    say(&t, 4, 90);
    for (uint32_t k = 0; k < 40; k++) {
        char path[400];
        gm_engine *e = disk_engine(model, NULL);
        ask(e, &t, 10, NULL);
        gm_engine_close(e);
        assert_int_equal(files(path, sizeof path), 1);
        FILE *const f = fopen(path, "r+b");
        fseek(f, 0, SEEK_END);
        const long size = ftell(f);
        const long at = k < 20 ? (long)k * 3 : (long)(tiny_random(8, k) % (uint64_t)size);
        if (k % 4 == 3) {
            assert_int_equal(ftruncate(fileno(f), at), 0);
        } else {
            fseek(f, at, SEEK_SET);
            const int byte = fgetc(f);
            fseek(f, at, SEEK_SET);
            fputc(byte ^ (1 << k % 8), f);
        }
        fclose(f);
        e = disk_engine(model, NULL);
        assert_non_null(strstr(notes, "was dropped: it"));
        assert_int_equal(files(NULL, 0), 0);
        assert_int_equal(ask(e, &t, 10, NULL), 0);
        gm_engine_close(e);
        remove_files();
    }
}

static void test_cache_of_another(void **state)
{
    (void)state;
    static const tiny_shape shape = {
        .n_layer = 6, .n_ctx = CTX, .head_dim = 32, .n_kv_head = 1, .seed = 5};
    tiny other;
    tiny_init(&other, &shape);
    tiny_u32(&other, "gemma3.attention.sliding_window", WINDOW);
    gm_model *const m = tiny_open(&other, "other.gguf");
    tiny_deinit(&other);
    talk t = {0};
    say(&t, 4, 90);
    for (int k = 0; k < 2; k++) {
        gm_engine *e = disk_engine(k ? m : model, k ? NULL : "q8_0");
        const gm_request_opts o = opts_of(&t, 5);
        static tiny_answer a;
        tiny_run(e, &o, &a);
        gm_engine_close(e);
        e = disk_engine(model, NULL);
        assert_non_null(strstr(notes, "1 of 1 cache files"));
        assert_non_null(strstr(notes, "they are of another model, backend, KV type or exactness"));
        assert_int_equal(ask(e, &t, 10, NULL), 0);
        gm_engine_close(e);
        assert_int_equal(files(NULL, 0), 2);
        e = disk_engine(k ? m : model, k ? NULL : "q8_0"); /* it was not lost by that */
        gm_request *r = NULL;
        gm_event ev;
        OK(gm_request_open(&r, e, &o, &err));
        OK(gm_request_next(r, &ev, &err));
        assert_about(ev.n_cached, t.n - 1);
        gm_request_close(r);
        gm_engine_close(e);
        remove_files();
    }
    gm_model_close(m);
}

/* What a start has no room for stays for another one: too many beginnings, or too long ones. */
static void test_start_removes_nothing(void **state)
{
    (void)state;
    enum { N = 5 };
    talk t[N] = {{.n = 0}};
    gm_engine *e = disk_engine(model, NULL);
    for (uint64_t i = 0; i < N; i++) {
        say(&t[i], 70 + i, 190);
        ask(e, &t[i], 5, NULL);
    }
    gm_engine_close(e);
    assert_int_equal(files(NULL, 0), N);
    for (int k = 0; k < 2; k++) {
        gm_engine_opts o = gm_engine_opts_default();
        o.n_slots = 1;
        o.n_ctx = k ? 64 : CTX;
        gm_engine_close(disk_engine_of(model, o));
        assert_non_null(
            strstr(notes, k ? "they are longer than the context" : "more than memory has room"));
        assert_int_equal(files(NULL, 0), N);
    }
    e = disk_engine(model, NULL);
    assert_string_equal(notes, "");
    for (uint64_t i = 0; i < N; i++)
        assert_about(ask(e, &t[i], 5, NULL), t[i].n - 1);
    gm_engine_close(e);
    remove_files();
}

static uint64_t bytes_in_folder(void)
{
    uint64_t sum = 0;
    DIR *const d = opendir(dir);
    const struct dirent *entry = NULL;
    struct stat st;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        if (entry->d_name[0] == '.') continue;
        assert_int_equal(fstatat(dirfd(d), entry->d_name, &st, 0), 0);
        sum += (uint64_t)st.st_size;
    }
    closedir(d);
    return sum;
}

/* Files have at most twice the bytes of the memory: where there is less of that than before, a start
 * removes nothing, but who writes makes room. Those that were unused longest go, but none of another KV
 * type, which count for nothing; what memory drops stays. */
static void test_folder_is_bounded(void **state)
{
    (void)state;
    enum { N = 10, USED = 4 };
    talk t[N + 1] = {{.n = 0}};
    static tiny_answer a;
    gm_engine_stats s = {.size = sizeof s};
    gm_engine *e = disk_engine(model, "q8_0");
    for (uint64_t i = 0; i < N; i++) {
        say(&t[i], 80, 450); /* in common: each one's file has it */
        say(&t[i], 81 + i, 20);
    }
    say(&t[N], 99, 400);
    const gm_request_opts o = opts_of(&t[0], 5);
    tiny_run(e, &o, &a);
    gm_engine_close(e);
    const uint64_t foreign = bytes_in_folder();
    e = disk_engine(model, NULL);
    assert_non_null(strstr(notes, "of another"));
    for (uint64_t i = 0; i < N; i++)
        ask(e, &t[i], 5, NULL);
    assert_about(ask(e, &t[USED], 5, NULL), t[USED].n - 1);
    gm_engine_close(e);
    assert_int_equal(files(NULL, 0), N + 1);

    gm_engine_opts less = gm_engine_opts_default();
    less.n_slots = 1;
    less.n_ctx = CTX;
    e = disk_engine_of(model, less);
    gm_engine_stat(e, &s);
    assert_int_equal(files(NULL, 0), N + 1);
    assert_true(bytes_in_folder() > foreign + 2 * s.kv_size);
    ask(e, &t[N], 5, NULL);
    gm_engine_stat(e, &s);
    assert_true(s.n_evicted > 0);
    gm_engine_close(e);
    const uint64_t own = bytes_in_folder() - foreign;
    assert_true(own <= 2 * s.kv_size);
    assert_true(own + s.kv_size / 2 > 2 * s.kv_size); /* all of the share is its own */

    e = disk_engine(model, NULL);
    assert_non_null(strstr(notes, "1 of "));
    assert_non_null(strstr(notes, "of another"));
    assert_about(ask(e, &t[N], 5, NULL), t[N].n - 1);
    assert_about(ask(e, &t[USED], 5, NULL), t[USED].n - 1);
    gm_engine_close(e);
    remove_files();
    rmdir(dir);
}

static int count_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    ++*(int *)ctx;
    return 0;
}

/* What was named by mistake is refused before weights are loaded, and nothing is left of it. */
static void test_wrong_folder(void **state)
{
    (void)state;
    char file[768], below[800], private[768];
    snprintf(file, sizeof file, "%s", tiny_path("file"));
    snprintf(below, sizeof below, "%s/folder", file);
    snprintf(private, sizeof private, "%s", tiny_path("private"));
    fclose(fopen(file, "w"));
    assert_int_equal(mkdir(private, 0500), 0);
    const char *const cases[][2] = {
        {file, "this is a file, expected a folder for the cache"},
        {below, "the cache folder cannot be made: Not a directory"},
        {"/proc/no/such/folder", "the cache folder cannot be made: No such file or directory"},
        {"", "the cache folder cannot be made: No such file or directory"},
        {private, "the cache folder cannot be used: Permission denied"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n_progress = 0;
        gm_engine *e = NULL;
        gm_engine_opts o = gm_engine_opts_default();
        if (cases[i][0] == private && access(private, W_OK) == 0) continue; /* root may all */
        o.cache_dir = cases[i][0];
        o.progress = count_progress;
        o.progress_ctx = &n_progress;
        assert_int_equal(gm_engine_open(&e, model, &o, &err), GM_E_IO);
        if (!strstr(err.msg, cases[i][1])) fail_msg("%s", err.msg);
        assert_null(e);
        assert_int_equal(n_progress, 0);
    }
    rmdir(private);
    unlink(file);
}

/* A disk that cannot be written to costs a word. */
static void test_no_folder(void **state)
{
    (void)state;
    int n_progress = 0;
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    o.n_ctx = CTX;
    o.cache_dir = dir;
    o.note = take_note;
    o.progress = count_progress;
    o.progress_ctx = &n_progress;
    notes[0] = '\0';
    OK(gm_engine_open(&e, model, &o, &err));
    assert_true(n_progress > 0);
    assert_int_equal(rmdir(dir), 0);
    talk t = {0};
    say(&t, 4, 90);
    ask(e, &t, 10, NULL);
    assert_about(ask(e, &t, 10, NULL), 89);
    gm_engine_close(e);
    assert_non_null(strstr(notes, "kept in memory only: No such file or directory"));
}

/* ---- one limit ----------------------------------------------------------------------------- */

static void test_memory_limit(void **state)
{
    (void)state;
    gm_engine *e = NULL;
    gm_engine_opts o = gm_engine_opts_default();
    gm_engine_stats least = {.size = sizeof least}, more = least;
    o.n_ctx = CTX;
    o.n_slots = 4;
    o.cache = 1;
    o.memory = 1000;
    assert_int_equal(gm_engine_open(&e, model, &o, &err), GM_E_TOOBIG);
    assert_non_null(strstr(err.msg, "0 MB are allowed"));
    for (o.memory = 1000000; gm_engine_open(&e, model, &o, NULL) != GM_OK; o.memory += 100000)
        continue;
    gm_engine_stat(e, &least);
    assert_true(least.pages[0] >= CTX / GM_PAGE_LEN);
    assert_true(least.pages[0] < 2 * 4 * CTX / GM_PAGE_LEN);
    /* Fewer pages than slots could want: some wait, and all get their answers. */
    talk t = {0};
    say(&t, 4, 90);
    gm_request *r[4];
    static tiny_answer a;
    const gm_request_opts ro = opts_of(&t, 0);
    for (int i = 0; i < 4; i++)
        OK(gm_request_open(&r[i], e, &ro, &err));
    for (int i = 0; i < 4; i++) {
        a = (tiny_answer){0};
        tiny_collect(r[i], &a);
        assert_int_equal(a.n, CTX - 90);
        gm_request_close(r[i]);
    }
    gm_engine_close(e);
    o.memory += 20000000;
    OK(gm_engine_open(&e, model, &o, &err));
    gm_engine_stat(e, &more);
    assert_true(more.pages[0] > least.pages[0]);
    gm_engine_close(e);
}

/* ---- everything at once ------------------------------------------------------------------ */

static void test_soak(void **state)
{
    (void)state;
    enum { N = 4, ROUNDS = 60 };
    static tiny_answer want[N], got;
    gm_engine *const e = engine_of(3, 1);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        gm_request *r[N];
        talk t[N] = {{.n = 0}};
        gm_request_opts o[N];
        for (uint64_t i = 0; i < N; i++) {
            const uint64_t x = tiny_random(77, N * round + i);
            for (uint32_t turn = 0; turn <= x % 3; turn++) {
                say(&t[i], (x >> 8) % 4 + 10 * turn, 20 + (uint32_t)((x >> 16) % 2) * 75);
                end_turn(&t[i]);
            }
            say(&t[i], x >> 20 & 7, 1 + (uint32_t)(x >> 24) % 40);
            o[i] = opts_of(&t[i], 1 + (uint32_t)(x >> 32) % 90);
            tiny_run(plain, &o[i], &want[i]);
            OK(gm_request_open(&r[i], e, &o[i], &err));
        }
        for (uint64_t i = 0; i < N; i++) {
            got = (tiny_answer){0};
            if (round % 5 == i) { /* closed in the middle */
                gm_request_close(r[i]);
                continue;
            }
            tiny_collect(r[i], &got);
            gm_request_close(r[i]);
            assert_int_equal(got.n, want[i].n);
            assert_memory_equal(got.hash, want[i].hash, got.n * sizeof *got.hash);
        }
    }
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(e, &s);
    assert_true(s.n_hits > ROUNDS);
    assert_int_equal(s.n_running + s.n_queued, 0);
    gm_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_again),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_where_prompts_part),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_least_recently_used_goes),
        cmocka_unit_test(test_marks_give_way),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_files_grow),
        cmocka_unit_test(test_the_same_is_not_written_again),
        cmocka_unit_test(test_ends_cut_off),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_cache_of_another),
        cmocka_unit_test(test_start_removes_nothing),
        cmocka_unit_test(test_folder_is_bounded),
        cmocka_unit_test(test_wrong_folder),
        cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_soak),
    };
    return cmocka_run_group_tests_name("t_cache", tests, setup, teardown);
}
