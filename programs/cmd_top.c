/* SPDX-License-Identifier: MIT */
/* A running server at a glance. Everything shown is made of two readings of its
 * /metrics: sums since the start say little, their difference says what happens now. */

#include "commands.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "interrupt.h"
#include "output.h"
#include "session.h"

typedef struct top_args {
    const char *host, *key, *key_file;
    gm_argnum port, interval;
    bool once;
} top_args;

typedef struct top_opts {
    top_args top;
    gm_general_args general;
} top_opts;

static const gm_argrow top_rows[] = {
    {.name = "host",
     .value = "ADDRESS",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(top_args, host),
     .help = "address of the server (default: 127.0.0.1)"},
    {.name = "port",
     .value = "N",
     .kind = GM_ARG_WHOLE,
     .offset = offsetof(top_args, port),
     .whole = {1, 65535},
     .help = "port of the server (default: 8006)"},
    {.name = "api-key",
     .value = "KEY",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(top_args, key),
     .help = "key, where the server asks for one"},
    {.name = "api-key-file",
     .value = "FILE",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(top_args, key_file),
     .help = "file whose first key it is, as serve reads it"},
    {.name = "interval",
     .value = "SECONDS",
     .kind = GM_ARG_REAL,
     .offset = offsetof(top_args, interval),
     .real = {0.1, 3600},
     .help = "time between two looks (default: 1)"},
    {.name = "once",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(top_args, once),
     .help = "look twice, show the difference and end"},
    {0},
};

/* The JSON option has no meaning here. */
static const gm_arggroup groups[] = {
    {"Server", top_rows, offsetof(top_opts, top)},
    {"Output", gm_general_rows + 2, offsetof(top_opts, general)},
    {0},
};

/* ---- asking ------------------------------------------------------------------------------ */

static int connect_to(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval limit = {.tv_sec = 5};
    struct addrinfo *found = NULL;
    int fd = -1;
    if (getaddrinfo(host, port, &hints, &found) != 0) return -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* Of a server that is there and does not answer in HTTP. */
#define NO_HTTP (-1)

/* The body of a path; false where the server cannot be reached or answers otherwise than with 200. */
static bool fetch(const top_args *a, const char *path, gm_bytes *out, int *status)
{
    char port[8], request[1024], chunk[16384];
    out->len = 0;
    *status = 0;
    snprintf(port, sizeof port, "%u", a->port.given ? (unsigned)a->port.whole : 8006);
    const int fd = connect_to(a->host ? a->host : "127.0.0.1", port);
    if (fd < 0) return false;
    *status = NO_HTTP;
    const int len = snprintf(
        request, sizeof request, "GET %s HTTP/1.0\r\nHost: localhost\r\n%s%.500s%s\r\n", path,
        a->key ? "Authorization: Bearer " : "", a->key ? a->key : "", a->key ? "\r\n" : "");
    ssize_t n = send(fd, request, (size_t)len, MSG_NOSIGNAL);
    while (n > 0 && (n = recv(fd, chunk, sizeof chunk, 0)) > 0)
        gm_bytes_put(out, chunk, (size_t)n);
    close(fd);
    gm_bytes_put(out, "", 1);
    return sscanf(out->p, "HTTP/1.%*d %d", status) == 1 && *status == 200;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* The number behind a name (with its labels) at the beginning of a line; NAN where there is none. */
static double value_of(const gm_bytes *text, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = text->p; at; at = strchr(at, '\n')) {
        if (*at == '\n') at++;
        if (strncmp(at, "gemmule_", 8) == 0 && strncmp(at + 8, name, len) == 0 &&
            at[8 + len] == ' ')
            return strtod(at + 8 + len, NULL);
    }
    return NAN;
}

typedef struct look {
    gm_bytes text;
    double at_s;
} look;

static double since(const look *before, const look *now, const char *name)
{
    return value_of(&now->text, name) - value_of(&before->text, name);
}

static double rate(const look *before, const look *now, const char *name)
{
    return since(before, now, name) / (now->at_s - before->at_s);
}

/* The bound under which a share of what a histogram counted between two looks lies; NAN where that
 * is nothing. */
static double quantile(const look *before, const look *now, const char *name, double share)
{
    static const char *const BOUNDS[] = {"0.001", "0.0025", "0.005", "0.01", "0.025", "0.05",
                                         "0.1",   "0.25",   "0.5",   "1",    "2.5",   "5",
                                         "10",    "30",     "60",    "300"};
    char key[128];
    snprintf(key, sizeof key, "%s_count", name);
    const double n = since(before, now, key);
    for (size_t i = 0; n > 0 && i < sizeof BOUNDS / sizeof *BOUNDS; i++) {
        snprintf(key, sizeof key, "%s_bucket{le=\"%s\"}", name, BOUNDS[i]);
        if (since(before, now, key) >= share * n) return strtod(BOUNDS[i], NULL);
    }
    return NAN;
}

/* ---- showing ----------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void put(gm_bytes *page, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    gm_bytes_put(page, text, strlen(text));
}

static void show_share(gm_bytes *page, const char *name, double used, double total,
                       const char *what)
{
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    const double share = total > 0 ? used / total : 0;
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < (int)(share * WIDTH + 0.5) ? '#' : '.';
    bar[WIDTH] = '\0';
    put(page, "%-14s [%s] %5.1f %%  %.0f of %.0f%s\n", name, bar, 100 * share, used, total, what);
}

static void show_time(gm_bytes *page, const char *name, const look *before, const look *now,
                      const char *key)
{
    const double half = quantile(before, now, key, 0.5), most = quantile(before, now, key, 0.95);
    if (isnan(half))
        put(page, "%-14s nothing to measure\n", name);
    else
        put(page, "%-14s half within %g s, 95 %% within %g s\n", name, half,
            isnan(most) ? INFINITY : most);
}

static void show_gpus(gm_bytes *page, const look *now)
{
    for (int i = 0; i < 64; i++) {
        char key[64];
        snprintf(key, sizeof key, "gpu_busy_ratio{gpu=\"card%d\"}", i);
        const double busy = value_of(&now->text, key);
        if (isnan(busy)) continue;
        snprintf(key, sizeof key, "gpu_temperature_celsius{gpu=\"card%d\"}", i);
        const double celsius = value_of(&now->text, key);
        snprintf(key, sizeof key, "gpu_power_watts{gpu=\"card%d\"}", i);
        const double watts = value_of(&now->text, key);
        snprintf(key, sizeof key, "gpu_vram_used_bytes{gpu=\"card%d\"}", i);
        const double vram = value_of(&now->text, key);
        snprintf(key, sizeof key, "gpu_gtt_used_bytes{gpu=\"card%d\"}", i);
        const double gtt = value_of(&now->text, key);
        put(page, "card%-10d %3.0f %% busy, %.0f C, %.1f W, VRAM %.2f GB, GTT %.2f GB\n", i,
            100 * busy, celsius, watts, vram / 1e9, gtt / 1e9);
    }
}

/* The picture, as lines. */
static void show(gm_bytes *page, const look *before, const look *now, const char *health)
{
    const gm_bytes *const t = &now->text;
    const double hits = since(before, now, "cache_hits_total");
    const double lookups = since(before, now, "cache_lookups_total");
    const double connections = value_of(t, "connections");
    put(page, "gemmule top   up %.0f s, %.0f connection%s\n%s\n\n", value_of(t, "up_seconds"),
        connections, connections == 1 ? "" : "s", health);
    if (isnan(value_of(t, "slots"))) return; /* the model is not there yet */
    show_share(page, "running", value_of(t, "requests_running"), value_of(t, "slots"), "");
    put(page, "%-14s %.0f waiting, %.0f parked\n", "", value_of(t, "requests_queued"),
        value_of(t, "requests_parked"));
    put(page, "%-14s %.1f tok/s answers, %.1f tok/s prompts, %.1f tok/s from the cache\n", "speed",
        rate(before, now, "completion_tokens_total"), rate(before, now, "prompt_tokens_total"),
        rate(before, now, "cached_tokens_total"));
    show_time(page, "first token", before, now, "time_to_first_token_seconds");
    show_time(page, "next token", before, now, "inter_token_seconds");
    show_time(page, "queue", before, now, "queue_seconds");
    const double steps = since(before, now, "batch_size_count");
    put(page, "%-14s %.1f sequences a step, %.0f steps\n", "batch",
        steps > 0 ? since(before, now, "batch_size_sum") / steps : 0, steps);
    show_share(page, "KV global", value_of(t, "kv_pages_used{class=\"global\"}"),
               value_of(t, "kv_pages{class=\"global\"}"), " pages");
    show_share(page, "KV local", value_of(t, "kv_pages_used{class=\"local\"}"),
               value_of(t, "kv_pages{class=\"local\"}"), " pages");
    put(page, "%-14s %.0f of %.0f prompts found, %.0f kept\n", "cache", hits, lookups,
        value_of(t, "cache_entries"));
    put(page, "%-14s %.0f refused, %.0f left, %.0f late, %.0f failed\n", "since start",
        value_of(t, "queue_full_total"), value_of(t, "cancelled_total"),
        value_of(t, "timeouts_total"), value_of(t, "http_requests_total{status=\"5xx\"}"));
    show_gpus(page, now);
}

/* ---- the command ------------------------------------------------------------------------- */

static int refuse(const top_args *a, int status)
{
    const char *const host = a->host ? a->host : "127.0.0.1";
    const unsigned port = a->port.given ? (unsigned)a->port.whole : 8006;
    if (status == 401 && a->key) return gm_say_failed("the server does not know this key");
    if (status == 401)
        return gm_say_failed("the server asks for a key: --api-key KEY or --api-key-file FILE");
    if (status == NO_HTTP)
        return gm_say_failed(
            "what answers at %.80s:%u does not speak plain HTTP, and top no other; a "
            "server with --tls-cert cannot be watched",
            host, port);
    if (status == 0)
        return gm_say_failed("no server answers at http://%.80s:%u (--host, --port)", host, port);
    return gm_say_failed("the server at %.80s:%u answers with %d, expected 200", host, port,
                         status);
}

static bool take_look(const top_args *a, look *l, int *status)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    l->at_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return fetch(a, "/metrics", &l->text, status);
}

/* The model's name, from /health. */
static void read_health(const top_args *a, char *out, size_t size)
{
    gm_bytes text = {0};
    int status = 0;
    fetch(a, "/health", &text, &status);
    const char *const body = text.p ? strstr(text.p, "\r\n\r\n") : NULL;
    json_t *const json = body ? json_loads(body + 4, 0, NULL) : NULL;
    const char *const model = json_string_value(json_object_get(json, "model"));
    const char *const backend = json_string_value(json_object_get(json, "backend"));
    snprintf(out, size, "%s on %s", model ? model : "loading",
             backend ? backend : "no backend yet");
    json_decref(json);
    gm_bytes_free(&text);
}

/* Waits for the next look; false when q or Ctrl-C ends it. The terminal gives keys at once only
 * here, so that it is as it was whatever ends the process elsewhere. */
static bool wait_for(double seconds, bool screen)
{
    struct termios before, keys;
    const bool typed = screen && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    char key = 0;
    if (typed) {
        keys = before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    for (; seconds > 0 && key != 'q' && !gm_interrupt_seen(); seconds -= 0.1) {
        struct pollfd in = {.fd = typed ? STDIN_FILENO : -1, .events = POLLIN};
        const int slice = (int)(1000 * fmin(seconds, 0.1));
        if (poll(&in, 1, slice) > 0 && read(STDIN_FILENO, &key, 1) != 1) key = 'q';
    }
    if (typed) tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return key != 'q' && !gm_interrupt_seen();
}

/* Bytes of the first n characters of a text, or of all of it. */
static size_t cut(const char *text, size_t len, size_t n)
{
    size_t i = 0;
    for (; i < len; i++) {
        const bool begins = ((unsigned char)text[i] & 0xC0) != 0x80;
        if (begins && n-- == 0) break;
    }
    return i;
}

/* The upper left of the picture, as much as the window has room for. */
static void draw_window(const gm_bytes *page)
{
    struct winsize w = {0};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row;
    const size_t columns = known ? w.ws_col : SIZE_MAX, rows = known ? w.ws_row : SIZE_MAX;
    gm_out_printf("\033[H\033[J\033[?7l");
    size_t at = 0;
    for (size_t row = 0; row < rows && at < page->len; row++) {
        const char *const line = page->p + at;
        const char *const end = memchr(line, '\n', page->len - at);
        const size_t len = end ? (size_t)(end - line) : page->len - at;
        if (row) gm_out_printf("\n"); /* behind the last one it would scroll */
        gm_out_bytes(line, cut(line, len, columns));
        at += len + 1;
    }
    gm_out_printf("\033[?7h");
}

static void draw(const look *before, const look *now, const char *health, bool screen)
{
    gm_bytes page = {0};
    show(&page, before, now, health);
    if (screen)
        draw_window(&page);
    else
        gm_out_bytes(page.p, page.len);
    gm_out_flush();
    gm_bytes_free(&page);
}

/* The first key of --api-key-file, for a->key: a line that is not empty and begins with no #. */
static int read_key(top_args *a, char *out, size_t size)
{
    FILE *const f = fopen(a->key_file, "r");
    if (!f) return gm_say_failed("%s: %s", a->key_file, strerror(errno));
    while (!a->key && fgets(out, (int)size, f)) {
        char *const key = out + strspn(out, " \t");
        key[strcspn(key, " \t\r\n")] = '\0';
        if (*key && *key != '#') a->key = key;
    }
    fclose(f);
    return a->key ? GM_EXIT_OK
                  : gm_say_failed("%s: it has no key, expected one a line", a->key_file);
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    top_args args = ((const top_opts *)opts)->top;
    const top_args *const a = &args;
    const double interval = a->interval.given ? a->interval.real : 1;
    const bool screen = isatty(STDOUT_FILENO) && !a->once;
    look looks[2] = {{{0}, 0}};
    char health[400], key[512];
    int status = 0;
    bool drawn = false;
    int code = gm_args_no_words(self, words, "expected options only");
    if (code == GM_EXIT_OK && a->key_file) code = read_key(&args, key, sizeof key);
    if (code != GM_EXIT_OK) return code;
    bool ok = take_look(a, &looks[0], &status);
    gm_interrupt_hold(NULL);
    for (int i = 1; ok && !gm_interrupt_seen(); i ^= 1) {
        if (!wait_for(interval, screen) || !(ok = take_look(a, &looks[i], &status))) break;
        read_health(a, health, sizeof health);
        draw(&looks[!i], &looks[i], health, screen);
        drawn = true;
        if (a->once) break;
        if (!screen) gm_out_printf("\n");
    }
    if ((gm_interrupt_release() || drawn) && screen) gm_out_printf("\n"); /* behind it, or a ^C */
    gm_bytes_free(&looks[0].text);
    gm_bytes_free(&looks[1].text);
    return ok ? GM_EXIT_OK : refuse(a, status);
}

const gm_command gm_cmd_top = {
    .name = "top",
    .summary = "watch a running server",
    .about =
        "Shows what a server does now: who runs and waits, speeds, times, KV cache, GPU. On a\n"
        "terminal the picture is drawn again every second, elsewhere one follows the other;\n"
        "q or Ctrl-C ends it. It reads /metrics over plain HTTP.",
    .examples = "gemmule top\n"
                "gemmule top --port 8006 --once",
    .groups = groups,
    .opts_size = sizeof(top_opts),
    .run = run,
};
