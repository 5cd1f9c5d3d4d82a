/* SPDX-License-Identifier: MIT */
/* A guarded thread that allocates ends its process with a sentence: each way to allocate is tried
 * in a child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/guard.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/workers.h"

/* A build with NDEBUG has no guard to test. */
static void need_guard(void)
{
    const bool before = gm_guard_set(true);
    const bool on = gm_guard_is_on();
    gm_guard_set(before);
    if (on) return;
    print_message("skip: this build has no allocation guard; CONFIG=asan and debug have\n");
    skip();
}

static void use_alloc(void)
{
    void *p = NULL;
    gm_mem_alloc(&p, 1, 1, "a test", NULL);
    gm_mem_free(p);
}

static void use_aligned(void)
{
    void *p = NULL;
    gm_mem_alloc_aligned(&p, 1, 1, "a test", NULL);
    gm_mem_free(p);
}

static void use_strbuf(void)
{
    gm_strbuf b = {0};
    gm_strbuf_putc(&b, 'x');
    gm_strbuf_deinit(&b);
}

static void use_arena(void)
{
    gm_arena a = {0};
    void *p = NULL;
    gm_arena_alloc(&a, &p, 1, 1, "a test", NULL);
    gm_arena_deinit(&a);
}

static void job(void *ctx, uint32_t index)
{
    (void)ctx;
    if (index == 1) use_alloc();
}

/* Only worker 1 allocates, and only its job's caller was guarded. */
static void use_worker(void)
{
    const bool before = gm_guard_set(false);
    gm_workers *w = NULL;
    gm_workers_open(&w, 2, NULL);
    gm_guard_set(before);
    gm_workers_run(w, job, NULL);
    gm_workers_close(w);
}

/* Runs it in a child; answers the child's status, and the end of what it said. */
static int in_child(void (*use)(void), bool guarded, char said[4096])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a failed test */
        dup2(ends[1], STDERR_FILENO);
        gm_guard_set(guarded);
        use();
        _exit(0);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n; len < 4095 && (n = read(ends[0], said + len, 4095 - len)) > 0;)
        len += (size_t)n;
    said[len] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_a_guarded_allocation_is_loud(void **state)
{
    (void)state;
    need_guard();
    static void (*const uses[])(void) = {use_alloc, use_aligned, use_strbuf, use_arena, use_worker};
    char said[4096];
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        assert_int_equal(in_child(uses[i], false, said), 0);
        assert_string_equal(said, "");
        const int status = in_child(uses[i], true, said);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        assert_non_null(strstr(said, "memory was asked for inside the token loop"));
    }
}

static void *allocates(void *arg)
{
    use_alloc();
    *(bool *)arg = gm_guard_is_on();
    return NULL;
}

/* What has room already is no allocation, freeing is none, and other threads are free to. */
static void test_what_the_guard_lets_pass(void **state)
{
    (void)state;
    need_guard();
    void *p = NULL;
    size_t cap = 0;
    pthread_t thread;
    bool on = true;
    assert_int_equal(gm_mem_grow(&p, &cap, 5, 1, "a test", NULL), GM_OK);
    assert_int_equal(pthread_create(&thread, NULL, allocates, &on), 0);
    gm_guard_set(true);
    assert_int_equal(gm_mem_grow(&p, &cap, cap, 1, "a test", NULL), GM_OK);
    gm_mem_free(p);
    pthread_join(thread, NULL);
    assert_false(on);
    assert_true(gm_guard_set(false));
    assert_false(gm_guard_is_on());
    use_alloc();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guarded_allocation_is_loud),
        cmocka_unit_test(test_what_the_guard_lets_pass),
    };
    return cmocka_run_group_tests_name("t_guard", tests, NULL, NULL);
}
