/* SPDX-License-Identifier: MIT */
/* The life of a server, through a socket: before the model is there, comments while a stream has to
 * wait, clients that hang up or seem to, and a close that does not wait for anybody. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/engine.h"
#include "fixtures/served.h"
#include "server/state.h"

static int n_lines;

static void count_line(void *ctx, const char *line)
{
    (void)ctx;
    assert_int_equal(line[0], '{');
    n_lines++;
}

static void test_loading(void **state)
{
    (void)state;
    gm_server_opts o = served_opts();
    o.log = count_line;
    assert_int_equal(gm_server_open(&served.server, &o, &served.err), GM_OK);
    served_expect("GET", "/health", "", "503");
    gm_server_loading(served.server, 25, 100);
    served_expect("GET", "/health", "", "{\"status\":\"loading\",\"progress\":0.25}");
    served_expect("POST", "/v1/chat/completions", "{}", "the model is loading: 25 %");
    served_expect("GET", "/metrics", "", "status=\"5xx\"} 1\n"); /* health has not failed */
    served_expect("POST", "/v1/chat/completions", "{}", "Retry-After");
    served_expect("GET", "/metrics", "", "gemmule_ready 0");
    gm_server_start(served.server, served.model, served.engine);
    served_expect("GET", "/health", "", "\"status\":\"ok\"");
    served_expect("GET", "/v1/models", "", "\"id\":\"");
    gm_server_close(served.server);
    assert_true(n_lines >= 6);
}

#define WHOLE  "{\"prompt\":\"p7\",\"max_tokens\":5,\"ignore_eos\":true}"
#define STREAM "{\"prompt\":\"p7\",\"max_tokens\":5,\"stream\":true,\"ignore_eos\":true}"

static uint32_t n_queued(void)
{
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(served.engine, &s);
    return s.n_queued;
}

static void await_queued(uint32_t n)
{
    for (int i = 0; n_queued() != n && i < 60000; i++)
        usleep(1000);
    assert_int_equal(n_queued(), n);
}

/* Somebody who has the only slot and does not read: everybody else waits. */
static gm_request *take_slot(void)
{
    const int32_t ids[] = {2, 7};
    gm_request_opts o = gm_request_opts_default(served.model);
    gm_request *slow = NULL;
    served.engine->patience_s = 3600;
    o.ids = ids;
    o.n_ids = 2;
    o.flags = GM_REQUEST_IGNORE_END;
    assert_int_equal(gm_request_open(&slow, served.engine, &o, &served.err), GM_OK);
    await_queued(0); /* or it would be taken for one that waits behind it */
    return slow;
}

static atomic_int n_waited;

/* One whose time ran out in the queue, or who left it, waited there, which its line says. */
static void note_wait(void *ctx, const char *line)
{
    (void)ctx;
    const char *const queue = strstr(line, "\"queue_ms\":");
    if (!strstr(line, "never started") && !strstr(line, "\"user\":\"waits\"")) return;
    if (queue && strtod(strchr(queue, ':') + 1, NULL) > 0) atomic_fetch_add(&n_waited, 1);
}

/* A stream that waits gets comments; its time runs out, or it is its turn. */
static void test_waiting_stream(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        gm_server_opts o = served_opts();
        if (late) o.timeout_s = 1;
        o.log = note_wait;
        served_open(&o);
        gm_request *slow = take_slot();
        const int fd = served_ask("POST", "/v1/completions", STREAM);
        served_read(fd, ": keep-alive");
        if (late) {
            served_read(fd, "the time for this request is up (--timeout): it was never started");
            served_expect("POST", "/v1/completions", WHOLE, "it was never started");
        } else {
            gm_request_close(slow);
            slow = NULL;
            served_read(fd, "data: [DONE]");
        }
        close(fd);
        gm_request_close(slow);
        gm_server_close(served.server);
        assert_int_equal(atomic_load(&n_waited), 2 * late);
    }
}

/* One that was begun is not said to be new. */
static void test_begun_and_late(void **state)
{
    (void)state;
    gm_server_opts o = served_opts();
    o.timeout_s = 1;
    served_open(&o);
    served_expect("POST", "/v1/completions",
                  "{\"prompt\":\"p7\",\"n\":128,\"max_tokens\":2000,\"ignore_eos\":true}",
                  "the time for this request is up (--timeout)\"");
    gm_server_close(served.server);
}

#define MANY \
    "{\"prompt\":\"p7\",\"max_tokens\":2000,\"n\":120,\"ignore_eos\":true,\"logprobs\":1%s%s}"

static uint64_t answered(void)
{
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(served.engine, &s);
    return s.n_answer;
}

/* Those who have left are noticed, while they wait and while they are answered, whether they close all
 * of the connection or say that they will send no more; and nothing is computed for them any more. */
static void test_clients_leave(void **state)
{
    (void)state;
    uint32_t n_left = 0;
    gm_server_opts o = served_opts();
    o.log = note_wait;
    served_open(&o);
    atomic_store(&n_waited, 0);
    for (int k = 0; k < 8; k++) {
        const bool stream = k & 1, waits = k & 2, half = k & 4;
        char body[200], count[40];
        const uint64_t before = answered();
        snprintf(body, sizeof body, MANY, stream ? ",\"stream\":true" : "",
                 waits ? ",\"user\":\"waits\"" : "");
        gm_request *const slow = waits ? take_slot() : NULL;
        const int fd = served_ask("POST", "/v1/completions", body);
        served_await(waits ? "gemmule_requests_queued 1\n" : "gemmule_requests_running 1\n");
        if (half)
            shutdown(fd, SHUT_WR);
        else
            close(fd);
        snprintf(count, sizeof count, "gemmule_cancelled_total %u\n", ++n_left);
        served_await(count);
        served_await("gemmule_requests_queued 0\n");
        gm_request_close(slow);
        served_await("gemmule_requests_running 0\n");
        assert_true(answered() - before < 120 * 2000);
        if (half) {
            served_read(fd, NULL); /* it is hung up on */
            assert_null(strstr(served.reply, "[DONE]"));
            close(fd);
        }
    }
    gm_server_close(served.server);
    assert_int_equal(atomic_load(&n_waited), 4);
}

static atomic_int n_done, many_done;

/* Which one in the row the request for many answers is. */
static void note_order(void *ctx, const char *line)
{
    (void)ctx;
    if (!strstr(line, "/v1/completions")) return;
    const int at = atomic_fetch_add(&n_done, 1) + 1;
    if (strstr(line, "\"choices\":8")) atomic_store(&many_done, at);
}

/* Somebody asks for many answers and others come after: they are let in, and have theirs before the
 * many are done. */
static void test_many_answers_leave_room(void **state)
{
    (void)state;
    gm_server_opts o = served_opts();
    o.log = note_order;
    served_open(&o);
    served.engine->max_queue = 3;
    gm_request *const slow = take_slot();
    const int many = served_ask("POST", "/v1/completions",
                                "{\"prompt\":[\"p7\",\"p8\"],\"n\":4,\"max_tokens\":40,"
                                "\"ignore_eos\":true}");
    await_queued(1);
    const int one = served_ask("POST", "/v1/completions", WHOLE);
    await_queued(2);
    const int two = served_ask("POST", "/v1/completions", STREAM);
    await_queued(3);
    served_expect("POST", "/v1/completions", WHOLE, "HTTP/1.1 429");
    gm_request_close(slow);
    served_read(one, "\"completion_tokens\":5");
    served_read(two, "data: [DONE]");
    served_read(many, "\"completion_tokens\":320");
    close(one);
    close(two);
    close(many);
    gm_server_close(served.server);
    served.engine->max_queue = 0;
    assert_int_equal(atomic_load(&n_done), 4);
    assert_int_equal(atomic_load(&many_done), 4);
}

/* A prompt that does not fit is refused before any other is computed. */
static void test_prompts_are_checked_first(void **state)
{
    (void)state;
    static const char begin[] = "{\"stream\":true,\"prompt\":[[2,7],[2";
    static char body[16384];
    size_t len = sizeof begin - 1;
    memcpy(body, begin, len);
    for (int i = 0; i < 2048; i++, len += 2)
        memcpy(body + len, ",7", 2);
    memcpy(body + len, "]]}", 4);
    served_open(NULL);
    served_expect("POST", "/v1/completions", body, "\"context_length_exceeded\"");
    assert_non_null(strstr(served.reply, "HTTP/1.1 400"));
    assert_non_null(strstr(served.reply, "\"param\":\"prompt[1]\""));
    gm_server_close(served.server);
}

/* Of an unknown field's name an error repeats what its sentence does. */
static void test_names_are_cut(void **state)
{
    (void)state;
    char name[401], body[500], param[160];
    for (size_t i = 0; i < sizeof name - 1; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    name[sizeof name - 1] = '\0';
    snprintf(body, sizeof body, "{\"prompt\":\"p7\",\"%s\":1}", name);
    snprintf(param, sizeof param, "\"param\":\"%.120s\"", name);
    served_open(NULL);
    served_expect("POST", "/v1/completions", body, param);
    gm_server_close(served.server);
}

static atomic_int n_bounded, n_metadata;

static void check_line(void *ctx, const char *line)
{
    (void)ctx;
    assert_true(strlen(line) <= GM_SERVER_LINE_MAX);
    const char *const user = strstr(line, "\"user\":\"");
    if (!user) return;
    assert_int_equal(strspn(user + 8, "\\u01"), 6 * 96);
    atomic_fetch_add(&n_bounded, 1);
    atomic_fetch_add(&n_metadata, strstr(line, "\"metadata\":{\"name\":") != NULL);
}

/* Whatever a client says, its line in the log is short; what is small of it is all there. */
static void test_lines_are_bounded(void **state)
{
    (void)state;
    enum { N = 3000 };
    static char control[6 * N + 1], body[16 * N];
    char metadata[512] = "", path[800] = "";
    gm_server_opts o = served_opts();
    o.log = check_line;
    served_open(&o);
    for (int i = 0; i < N; i++)
        memcpy(control + 6 * i, "\\u0001", 7);
    memset(metadata, 'm', sizeof metadata - 1);
    for (int large = 0; large < 2; large++) {
        int len = snprintf(body, sizeof body,
                           "{\"prompt\":\"p7\",\"max_tokens\":1,\"model\":\"%s\",\"user\":\"%s\","
                           "\"metadata\":{\"name\":\"%.*s\"",
                           control, control, 300, metadata);
        for (int i = 0; large && i < 15; i++)
            len += snprintf(body + len, sizeof body - (size_t)len, ",\"m%d\":\"%.*s\"", i, 500,
                            metadata);
        snprintf(body + len, sizeof body - (size_t)len, "}}");
        served_expect("POST", "/v1/completions", body, "HTTP/1.1 200");
    }
    memset(path, 'p', sizeof path - 1);
    path[0] = '/';
    served_expect("GET", path, "", "HTTP/1.1 404");
    gm_server_close(served.server);
    assert_int_equal(atomic_load(&n_bounded), 2);
    assert_int_equal(atomic_load(&n_metadata), 1);
}

/* Requests that come all at once on one connection are answered one after the other without a rest. */
static void test_pipelined(void **state)
{
    (void)state;
    enum { N = 400 };
    static const char one[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char all[N * sizeof one];
    size_t len = 0, n = 0;
    for (int i = 0; i < N; i++, len += sizeof one - 1)
        memcpy(all + len, one, sizeof one - 1);
    served_open(NULL);
    const int fd = served_connect();
    assert_int_equal(send(fd, all, len, MSG_NOSIGNAL), len);
    for (char byte; n < 2 * N && recv(fd, &byte, 1, 0) == 1;)
        n += byte == '}' || byte == '{';
    assert_int_equal(n, 2 * N);
    assert_int_equal(atomic_load(&served.server->loop.n_breaths), 0);
    close(fd);
    gm_server_close(served.server);
}

/* Text of which every byte is a token, and a request for their pieces: 20 times as much. */
static const char *many_pieces(void)
{
    static const char begin[] = "{\"with_pieces\":true,\"content\":\"";
    static char body[900000];
    memset(body, '!', sizeof body - 3);
    memcpy(body, begin, sizeof begin - 1);
    memcpy(body + sizeof body - 3, "\"}", 3);
    return body;
}

#define LOGPROBS "{\"prompt\":\"p7\",\"max_tokens\":1000,\"ignore_eos\":true,\"logprobs\":20}"

/* Replies that nobody reads leave no room for other large ones, before they are made or in the midst of
 * it; small ones are always made, and all are where there is room again. */
static void test_unread_replies(void **state)
{
    (void)state;
    served_open(NULL);
    gm_server *const s = served.server;
    s->replies_max = 1000; /* one that is alone may be larger */
    const int unread = served_ask("POST", "/tokenize", many_pieces());
    served_read(unread, "HTTP/1.1 200");
    const size_t n = atomic_load(&s->n_replies);
    assert_true(n > 1000);
    served_expect("POST", "/tokenize", many_pieces(), "HTTP/1.1 503");
    served_expect("POST", "/tokenize", many_pieces(), "Retry-After: 1");
    served_expect("POST", "/v1/completions", LOGPROBS,
                  "may take 1000 bytes, and this one does not");
    served_expect("POST", "/v1/completions", WHOLE, "HTTP/1.1 200");
    assert_int_equal(atomic_load(&s->n_replies), n);
    s->replies_max = n + 100000; /* there is room for the beginning */
    served_expect("POST", "/v1/completions", LOGPROBS, "HTTP/1.1 503");
    close(unread);
    for (int i = 0; atomic_load(&s->n_replies) && i < 60000; i++)
        usleep(1000);
    assert_int_equal(atomic_load(&s->n_replies), 0);
    served_expect("POST", "/tokenize", many_pieces(), "HTTP/1.1 200");
    served_expect("POST", "/v1/completions", LOGPROBS, "HTTP/1.1 200");
    gm_server_close(served.server);
}

/* A close in the middle: streams are told, and nothing is left over. */
static void test_close_in_the_middle(void **state)
{
    (void)state;
    served_open(NULL);
    gm_request *const slow = take_slot();
    const int waits = served_ask("POST", "/v1/completions", STREAM);
    const int whole = served_ask("POST", "/v1/completions", "{\"prompt\":\"p7\"}");
    served_read(waits, ": keep-alive");
    gm_server_stop(served.server);
    assert_false(gm_server_wait(served.server, 0.1));
    gm_server_close(served.server);
    served_read(waits, "the server is stopping");
    served_read(whole, "503");
    close(waits);
    close(whole);
    gm_request_close(slow);
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(served.engine, &s);
    assert_int_equal(s.n_running + s.n_queued, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading),
        cmocka_unit_test(test_waiting_stream),
        cmocka_unit_test(test_begun_and_late),
        cmocka_unit_test(test_clients_leave),
        cmocka_unit_test(test_many_answers_leave_room),
        cmocka_unit_test(test_prompts_are_checked_first),
        cmocka_unit_test(test_names_are_cut),
        cmocka_unit_test(test_lines_are_bounded),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_unread_replies),
        cmocka_unit_test(test_close_in_the_middle),
    };
    return cmocka_run_group_tests_name("t_server", tests, served_setup, served_teardown);
}
