/* SPDX-License-Identifier: MIT */
/* stdio does the buffering; here is what it leaves open: what to do when a write
 * fails, how bytes of a model are shown so that a terminal stays whole, and JSON
 * that is always valid, whatever the bytes. */

#include "output.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"

/* ---- standard error -------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool at_once;
static unsigned long n_dropped; /* lines, under the lock */

/* A pipe that can be written to takes PIPE_BUF bytes without a wait, and so does a socket. To make
 * the file itself one that never waits would do so for everybody else who has it. */
_Static_assert(GM_LINE_MAX <= PIPE_BUF, "a line that a pipe takes as a whole");
static bool write_at_once(const char *line, size_t n)
{
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&to, 1, 0) == 1 && to.revents & POLLOUT &&
           write(STDERR_FILENO, line, n) == (ssize_t)n;
}

/* What is longer than a line may be is cut. */
static size_t line_end(char line[GM_LINE_MAX], int len)
{
    const size_t n = len < 0 ? 0 : (size_t)len < GM_LINE_MAX - 1 ? (size_t)len : GM_LINE_MAX - 1;
    line[n] = '\n';
    return n + 1;
}

static void put_line(char line[GM_LINE_MAX], int len)
{
    char told[GM_LINE_MAX];
    pthread_mutex_lock(&lock);
    if (n_dropped) {
        const int told_len = snprintf(
            told, sizeof told,
            "gemmule: note: standard error could not be written to: %lu lines were dropped",
            n_dropped);
        if (write_at_once(told, line_end(told, told_len))) n_dropped = 0;
    }
    if (n_dropped || !write_at_once(line, line_end(line, len))) n_dropped++;
    pthread_mutex_unlock(&lock);
}

void gm_say_at_once(void)
{
    atomic_store(&at_once, true);
}

static void say(const char *prefix, const char *fmt, va_list args)
{
    if (atomic_load(&at_once)) {
        char line[GM_LINE_MAX];
        const int len = snprintf(line, sizeof line, "%s", prefix);
        put_line(line, len + vsnprintf(line + len, sizeof line - (size_t)len, fmt, args));
        return;
    }
    fputs(prefix, stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

int gm_say_failed(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("gemmule: ", fmt, args);
    va_end(args);
    return GM_EXIT_FAILED;
}

void gm_say_note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("gemmule: note: ", fmt, args);
    va_end(args);
}

void gm_say_line(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say("", fmt, args);
    va_end(args);
}

void gm_say_fact(const char *name, const char *fmt, ...)
{
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%-15s ", name);
    va_list args;
    va_start(args, fmt);
    say(prefix, fmt, args);
    va_end(args);
}

void *gm_need(void *memory)
{
    if (memory) return memory;
    gm_say_failed("there is not enough memory");
    _exit(GM_EXIT_FAILED);
}

/* ---- standard output ------------------------------------------------------------------- */

/* The engine's thread may be at work, so the process ends without a look back. */
static void check_written(bool written)
{
    if (written) return;
    if (errno == EPIPE) _exit(GM_EXIT_OK);
    gm_say_failed("standard output: %s", strerror(errno));
    _exit(GM_EXIT_FAILED);
}

void gm_out_bytes(const char *p, size_t n)
{
    check_written(fwrite(p, 1, n, stdout) == n);
}

void gm_out_printf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    check_written(vprintf(fmt, args) >= 0);
    va_end(args);
}

void gm_out_flush(void)
{
    check_written(fflush(stdout) == 0);
}

/* The letter of a C escape, 0 where the character has none. */
static char escape_letter(char c)
{
    static const char named[] = "\aa\bb\tt\nn\vv\ff\rr\\\\\"\"";
    for (size_t i = 0; i + 1 < sizeof named; i += 2) {
        if (c == named[i]) return named[i + 1];
    }
    return 0;
}

void gm_out_escaped(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)p[i];
        /* U+0080 to U+009F are control characters too, two bytes each. */
        const bool is_c1 = c == 0xc2 && i + 1 < n && ((unsigned char)p[i + 1] & 0xe0) == 0x80;
        const char letter = escape_letter(p[i]);
        if (letter)
            gm_out_printf("\\%c", letter);
        else if (is_c1)
            gm_out_printf("\\xc2\\x%02x", (unsigned char)p[++i]);
        else if (c < 0x20 || c == 0x7f)
            gm_out_printf("\\x%02x", c);
        else
            gm_out_bytes(p + i, 1);
    }
}

/* ---- text ------------------------------------------------------------------------------ */

const char *gm_size_text(uint64_t bytes, char text[16])
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes;
    size_t unit = 0;
    while (x >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        x /= 1000;
        unit++;
    }
    snprintf(text, 16, "%.*f %s", unit && x < 9.95 ? 1 : 0, x, units[unit]);
    return text;
}

void gm_bytes_put(gm_bytes *b, const char *p, size_t n)
{
    if (n > b->cap - b->len) {
        while (b->cap - b->len < n)
            b->cap = b->cap ? b->cap * 2 : 4096;
        b->p = gm_need(realloc(b->p, b->cap));
    }
    if (n) memcpy(b->p + b->len, p, n);
    b->len += n;
}

void gm_bytes_free(gm_bytes *b)
{
    free(b->p);
    *b = (gm_bytes){0};
}

/* ---- JSON ------------------------------------------------------------------------------ */

/* The length of the UTF-8 character that p begins with, 0 when none does; jansson is the judge. */
static size_t character_len(const char *p, size_t n)
{
    for (size_t len = 1; len <= 4 && len <= n; len++) {
        json_t *const one = json_stringn(p, len);
        json_decref(one);
        if (one) return len;
    }
    return 0;
}

static json_t *repaired_text(const char *p, size_t n)
{
    gm_bytes clean = {0};
    for (size_t i = 0; i < n;) {
        const size_t len = character_len(p + i, n - i);
        if (len)
            gm_bytes_put(&clean, p + i, len);
        else
            gm_bytes_put(&clean, "\xEF\xBF\xBD", 3);
        i += len ? len : 1;
    }
    json_t *const text = json_stringn(clean.p, clean.len);
    gm_bytes_free(&clean);
    return text;
}

json_t *gm_outjson_text(const char *p, size_t n)
{
    json_t *const text = json_stringn(n ? p : "", n);
    return text ? text : gm_need(repaired_text(p, n));
}

json_t *gm_outjson_real(double x)
{
    return gm_need(isfinite(x) ? json_real(x) : json_null());
}

void gm_outjson_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0) gm_need(NULL);
}

static int put_json(const char *p, size_t n, void *ctx)
{
    (void)ctx;
    gm_out_bytes(p, n);
    return 0;
}

void gm_out_json_part(json_t *value)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(9);
    if (json_dump_callback(gm_need(value), put_json, NULL, flags) != 0) gm_need(NULL);
    json_decref(value);
}

void gm_out_json(json_t *value)
{
    gm_out_json_part(value);
    gm_out_bytes("\n", 1);
}
