/* SPDX-License-Identifier: MIT */
#include "oom/failalloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

/* ---- malloc and its kin -------------------------------------------------------------- */

/* malloc is called before the sanitizers are ready for the code they check. */
#define EARLY __attribute__((no_sanitize("address", "undefined")))

/* Looking up the next malloc may itself allocate; that comes from here and is never freed. */
static char boot[4096];
static size_t boot_used;

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void (*free)(void *);
} next;

static atomic_llong fail_at; /* which allocation fails, from 1; 0: none */
static atomic_llong n_asked; /* allocations since fail_at was set       */
static atomic_bool sticky;   /* all after it fail too                   */
static atomic_llong n_live;  /* blocks in use                           */
static atomic_llong n_ever;  /* allocations since the process began     */

EARLY static void resolve(void *out, const char *name)
{
    void *const p = dlsym(RTLD_NEXT, name);
    memcpy(out, &p, sizeof p);
}

/* False while the lookup is under way. */
EARLY static bool ready(void)
{
    static bool begun;
    if (next.free) return true;
    if (begun) return false;
    begun = true;
    resolve(&next.malloc, "malloc");
    resolve(&next.calloc, "calloc");
    resolve(&next.realloc, "realloc");
    resolve(&next.aligned_alloc, "aligned_alloc");
    resolve(&next.free, "free");
    return true;
}

EARLY static void *boot_alloc(size_t size)
{
    const size_t at = (boot_used + 15) / 16 * 16;
    if (size > sizeof boot - at) abort();
    boot_used = at + size;
    return boot + at;
}

EARLY static bool is_boot(const void *p)
{
    return (const char *)p >= boot && (const char *)p < boot + sizeof boot;
}

/* Two allocations are never failed, since those who make them do not survive it.
 *
 * jansson's lexer does not look whether its buffer could grow (akheron/jansson issue 362, in 2.14
 * and 2.15.1): it loses bytes of a long token, or reads past them. Where in jansson that is, is
 * found out by a document: its token longer than 15 bytes makes the buffer 32 bytes long, and
 * nothing before has that size in this thread. In others it may: a thread that begins under
 * AddressSanitizer asks for 32 bytes in pthread_getattr_np. To see whether a newer jansson does
 * better, leave out the call. */
#define LEXER_GROWN 32
static _Thread_local bool lexer_learning;
static const void *lexer_caller;

static void lexer_learn(void)
{
    lexer_learning = true;
    json_t *const j = json_loads("[\"sixteen bytes or so\"]", 0, NULL);
    lexer_learning = false;
    assert_non_null(j);
    assert_non_null(lexer_caller);
    json_decref(j);
}

/* AddressSanitizer asks this way for the stack of each new thread, and ends the process when it is
 * refused. */
static _Thread_local bool asking_for_stack;

EARLY int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
    int (*ask)(pthread_t, pthread_attr_t *) = NULL;
    resolve(&ask, "pthread_getattr_np");
    asking_for_stack = true;
    const int os = ask(thread, attr);
    asking_for_stack = false;
    return os;
}

EARLY static bool fails(size_t size, const void *caller)
{
    atomic_fetch_add(&n_ever, 1);
    if (lexer_learning && !lexer_caller && size == LEXER_GROWN) lexer_caller = caller;
    const long long at = atomic_load(&fail_at);
    if (at == 0 || asking_for_stack || caller == lexer_caller) return false;
    const long long asked = atomic_fetch_add(&n_asked, 1) + 1;
    if (asked < at || (asked > at && !atomic_load(&sticky))) return false;
    errno = ENOMEM;
    return true;
}

EARLY static void *live(void *p)
{
    if (p) atomic_fetch_add(&n_live, 1);
    return p;
}

EARLY void *malloc(size_t size)
{
    if (!ready()) return boot_alloc(size);
    return fails(size, __builtin_return_address(0)) ? NULL : live(next.malloc(size));
}

EARLY void *calloc(size_t n, size_t size)
{
    if (!ready()) return boot_alloc(n * size);
    return fails(n * size, __builtin_return_address(0)) ? NULL : live(next.calloc(n, size));
}

EARLY void *realloc(void *p, size_t size)
{
    if (!ready() || is_boot(p)) abort();
    if (fails(size, __builtin_return_address(0))) return NULL;
    return p ? next.realloc(p, size) : live(next.malloc(size));
}

EARLY void *aligned_alloc(size_t align, size_t size)
{
    if (!ready()) abort();
    return fails(size, __builtin_return_address(0)) ? NULL : live(next.aligned_alloc(align, size));
}

EARLY int posix_memalign(void **out, size_t align, size_t size)
{
    void *const p = aligned_alloc(align, size);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

/* AddressSanitizer's own would allocate past all of this, and free would count what it gave. */
EARLY char *strdup(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *const copy = malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

EARLY void free(void *p)
{
    if (!p || is_boot(p) || !ready()) return;
    atomic_fetch_sub(&n_live, 1);
    next.free(p);
}

long long oom_live(void)
{
    return atomic_load(&n_live);
}

long long oom_ever(void)
{
    return atomic_load(&n_ever);
}

/* ---- the sweep ----------------------------------------------------------------------- */

typedef struct tally {
    uint64_t n_nomem, n_io, n_lexer, n_fine;
} tally;

static void judge(const char *what, uint64_t n, gm_status status, const gm_err *err, tally *t)
{
    if (status == GM_OK) {
        t->n_fine++;
        return;
    }
    if (err->code != status || err->msg[0] == '\0')
        fail_msg("%s: allocation %llu failed, and that is said without a sentence (code %d)", what,
                 (unsigned long long)n, status);
    if (status == GM_E_NOMEM)
        t->n_nomem++;
    else if (status == GM_E_IO && (err->os == ENOMEM || err->os == EAGAIN))
        t->n_io++;
    else if (status == GM_E_FORMAT && strstr(err->msg, "is not valid JSON"))
        t->n_lexer++;
    else
        fail_msg("%s: allocation %llu failed, and that is said with code %d: %s", what,
                 (unsigned long long)n, status, err->msg);
}

/* One run with the n-th allocation failing; false when it has fewer. */
static bool run_failing(const char *what, oom_run *run, uint64_t n, bool all, tally *t)
{
    gm_err err = {0};
    const long long before = atomic_load(&n_live);
    atomic_store(&sticky, all);
    atomic_store(&n_asked, 0);
    atomic_store(&fail_at, (long long)n);
    const gm_status status = run(&err);
    atomic_store(&fail_at, 0);
    const bool failed = atomic_load(&n_asked) >= (long long)n;
    const long long leaked = atomic_load(&n_live) - before;
    if (leaked)
        fail_msg("%s: allocation %llu failed, and %lld blocks more than before are in use", what,
                 (unsigned long long)n, leaked);
    if (failed)
        judge(what, n, status, &err, t);
    else if (status != GM_OK)
        fail_msg("%s: nothing failed, and that is called: %s", what, err.msg);
    return failed;
}

void oom_sweep(const char *what, oom_run *run)
{
    gm_err err = {0};
    if (!lexer_caller) lexer_learn();
    /* Also brings about what is allocated once and kept: thread stacks, tables of libraries. */
    if (run(&err) != GM_OK) fail_msg("%s: %s", what, err.msg);
    for (int all = 0; all < 2; all++) {
        tally t = {0};
        uint64_t n = 1;
        while (run_failing(what, run, n, all != 0, &t))
            n++;
        assert_true(n > 1);
        print_message("%s: %s of %llu allocations failed in turn: out of memory %llu, "
                      "refused by the system %llu, JSON %llu, no matter %llu\n",
                      what, all ? "all from each" : "each", (unsigned long long)(n - 1),
                      (unsigned long long)t.n_nomem, (unsigned long long)t.n_io,
                      (unsigned long long)t.n_lexer, (unsigned long long)t.n_fine);
    }
}
