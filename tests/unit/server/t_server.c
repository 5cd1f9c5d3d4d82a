/* SPDX-License-Identifier: MIT */
/* The life of a server, through a socket: before the model is there, comments while a stream has to
 * wait, clients that hang up or seem to, and a close that does not wait for anybody. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/engine.h"
#include "fixtures/tinymodel.h"
#include "server/server.h"

static gm_model *model;
static gm_engine *engine;
static gm_server *server;
static gm_err err;
static char reply[65536];
static int n_lines;

static int setup(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_ctx = 256});
    model = tiny_open(&t, "server.gguf");
    tiny_deinit(&t);
    gm_engine_opts o = gm_engine_opts_default();
    o.n_slots = 1;
    o.n_threads = 1;
    return gm_engine_open(&engine, model, &o, &err) == GM_OK ? 0 : -1;
}

static int teardown(void **state)
{
    gm_engine_close(engine);
    gm_model_close(model);
    return tiny_teardown(state);
}

static void count_line(void *ctx, const char *line)
{
    (void)ctx;
    assert_int_equal(line[0], '{');
    n_lines++;
}

static void open_server(double timeout_s)
{
    gm_server_opts o = gm_server_opts_default();
    o.port = 0;
    o.ping_s = 0.2;
    o.timeout_s = timeout_s;
    o.log = count_line;
    if (gm_server_open(&server, &o, &err) != GM_OK) fail_msg("%s", err.msg);
}

/* A connection on which a request was sent. */
static int ask(const char *method, const char *path, const char *body)
{
    char request[1024];
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(gm_server_port(server)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct timeval limit = {.tv_sec = 60};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int len = snprintf(request, sizeof request,
                             "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                             method, path, strlen(body), body);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
    return fd;
}

/* Reads until the words have come, or the end where words is NULL. */
static void read_until(int fd, const char *words)
{
    size_t len = 0;
    reply[0] = '\0';
    for (ssize_t n = 1; n > 0 && !(words && strstr(reply, words)); reply[len] = '\0') {
        n = recv(fd, reply + len, sizeof reply - 1 - len, 0);
        if (n > 0) len += (size_t)n;
    }
    if (words && !strstr(reply, words)) fail_msg("no \"%s\" in: %s", words, reply);
}

static void expect(const char *method, const char *path, const char *body, const char *words)
{
    const int fd = ask(method, path, body);
    read_until(fd, words);
    close(fd);
}

static void test_loading(void **state)
{
    (void)state;
    open_server(60);
    expect("GET", "/health", "", "503");
    gm_server_loading(server, 25, 100);
    expect("GET", "/health", "", "{\"status\":\"loading\",\"progress\":0.25}");
    expect("POST", "/v1/chat/completions", "{}", "the model is loading: 25 %");
    expect("GET", "/metrics", "", "status=\"5xx\"} 1\n"); /* health has not failed */
    expect("POST", "/v1/chat/completions", "{}", "Retry-After");
    expect("GET", "/metrics", "", "gemmule_ready 0");
    gm_server_start(server, model, engine);
    expect("GET", "/health", "", "\"status\":\"ok\"");
    expect("GET", "/v1/models", "", "\"id\":\"");
    gm_server_close(server);
    assert_true(n_lines >= 6);
}

#define WHOLE  "{\"prompt\":\"p7\",\"max_tokens\":5,\"ignore_eos\":true}"
#define STREAM "{\"prompt\":\"p7\",\"max_tokens\":5,\"stream\":true,\"ignore_eos\":true}"

/* Somebody who has the only slot and does not read: everybody else waits. */
static gm_request *take_slot(void)
{
    const int32_t ids[] = {2, 7};
    gm_request_opts o = gm_request_opts_default(model);
    gm_request *slow = NULL;
    engine->patience_s = 3600;
    o.ids = ids;
    o.n_ids = 2;
    o.flags = GM_REQUEST_IGNORE_END;
    assert_int_equal(gm_request_open(&slow, engine, &o, &err), GM_OK);
    return slow;
}

/* A stream that waits gets comments; its time runs out, or it is its turn. */
static void test_waiting_stream(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        open_server(late ? 1 : 60);
        gm_server_start(server, model, engine);
        gm_request *slow = take_slot();
        const int fd = ask("POST", "/v1/completions", STREAM);
        read_until(fd, ": keep-alive");
        if (late) {
            read_until(fd, "the time for this request is up");
        } else {
            gm_request_close(slow);
            slow = NULL;
            read_until(fd, "data: [DONE]");
        }
        close(fd);
        gm_request_close(slow);
        gm_server_close(server);
    }
}

static void await_metric(const char *line)
{
    do {
        const int fd = ask("GET", "/metrics", "");
        read_until(fd, NULL);
        close(fd);
    } while (!strstr(reply, line));
}

/* Those who have left are noticed while they wait; those who will only send no more get their
 * answer, whole or as a stream. */
static void test_half_closed(void **state)
{
    (void)state;
    static const char *const bodies[] = {WHOLE, STREAM};
    open_server(60);
    gm_server_start(server, model, engine);
    for (int i = 0; i < 2; i++) {
        char count[40];
        gm_request *const slow = take_slot();
        const int left = ask("POST", "/v1/completions", bodies[i]);
        await_metric("gemmule_requests_queued 1\n");
        close(left);
        snprintf(count, sizeof count, "gemmule_cancelled_total %d\n", i + 1);
        await_metric(count);
        await_metric("gemmule_requests_queued 0\n");
        const int fd = ask("POST", "/v1/completions", bodies[i]);
        shutdown(fd, SHUT_WR);
        read_until(fd, "HTTP/1.1 100 Continue\r\n\r\n");
        gm_request_close(slow);
        read_until(fd, i ? "data: [DONE]" : "\"completion_tokens\":5");
        close(fd);
    }
    gm_server_close(server);
}

/* A close in the middle: streams are told, and nothing is left over. */
static void test_close_in_the_middle(void **state)
{
    (void)state;
    open_server(60);
    gm_server_start(server, model, engine);
    gm_request *const slow = take_slot();
    const int waits = ask("POST", "/v1/completions", STREAM);
    const int whole = ask("POST", "/v1/completions", "{\"prompt\":\"p7\"}");
    read_until(waits, ": keep-alive");
    gm_server_stop(server);
    assert_false(gm_server_wait(server, 0.1));
    gm_server_close(server);
    read_until(waits, "the server is stopping");
    read_until(whole, "503");
    close(waits);
    close(whole);
    gm_request_close(slow);
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(engine, &s);
    assert_int_equal(s.n_running + s.n_queued, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading),
        cmocka_unit_test(test_waiting_stream),
        cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_close_in_the_middle),
    };
    return cmocka_run_group_tests_name("t_server", tests, setup, teardown);
}
