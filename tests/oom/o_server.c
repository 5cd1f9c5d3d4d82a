/* SPDX-License-Identifier: MIT */
/* The server while allocations fail, libmicrohttpd's and jansson's too: it is opened, answers a
 * request of each kind over a socket, and is closed. A reply that says 200 and ends is to the byte what
 * an undisturbed one is; any other is a 5xx, an error in the stream, or a connection that is closed
 * early. Afterwards nothing is in use that was not before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status.h"
#include "fixtures/tinymodel.h"
#include "oom/failalloc.h"
#include "server/server.h"

static gm_model *model;
static gm_engine *engine;
static gm_server *server;

static const char *path, *body;
static char reply[65536], expected[65536];

/* ---- a client that allocates nothing ------------------------------------------------------ */

static int say(void)
{
    char request[2048];
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(gm_server_port(server)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct timeval limit = {.tv_sec = 20};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int len = snprintf(request, sizeof request,
                             "%s %s HTTP/1.0\r\nContent-Type: application/json\r\n"
                             "Content-Length: %zu\r\n\r\n%s",
                             *body ? "POST" : "GET", path, strlen(body), body);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    send(fd, request, (size_t)len, MSG_NOSIGNAL); /* nobody may be there to take it */
    return fd;
}

static void hear(int fd)
{
    size_t len = 0;
    ssize_t n = 0;
    while ((n = recv(fd, reply + len, sizeof reply - 1 - len, 0)) > 0)
        len += (size_t)n;
    if (n < 0 && errno != ECONNRESET) fail_msg("%s: no end of the reply", path);
    reply[len] = '\0';
}

/* What differs between two replies to the same request: the date, ids, times. */
static void blank(const char *name, int (*is_value)(int))
{
    for (char *at = reply; (at = strstr(at, name));) {
        at += strlen(name);
        for (; is_value((unsigned char)*at); at++)
            *at = '#';
    }
}

static int not_line_end(int c)
{
    return c != '\r' && c != '\0';
}

/* A server for this request alone: libmicrohttpd frees a connection when the next one comes. */
static gm_status asked(gm_err *err)
{
    gm_server_opts o = gm_server_opts_default();
    o.port = 0;
    GM_TRY(gm_server_open(&server, &o, err));
    gm_server_start(server, model, engine);
    const int fd = say();
    hear(fd);
    close(fd);
    gm_server_close(server);
    blank("Date: ", not_line_end);
    blank("cmpl-", isxdigit);
    blank("req-", isxdigit);
    blank("\"created\":", isdigit);
    if (strstr(reply, "the body is not JSON"))
        return gm_fail(err, GM_E_FORMAT, 0, "the body is not valid JSON");
    if (!expected[0]) memcpy(expected, reply, sizeof expected);
    if (strcmp(reply, expected) == 0) return GM_OK;
    const size_t len = strlen(reply);
    const bool cut = strncmp(reply, expected, len) == 0;
    if (!cut && !strstr(reply, "HTTP/1.1 5") && !strstr(reply, "not enough memory")) {
        size_t at = 0;
        while (reply[at] && reply[at] == expected[at])
            at++;
        fail_msg("%s: instead of \"%.400s\" there came \"%.400s\"", path, expected + at,
                 reply + at);
    }
    return gm_fail(err, GM_E_NOMEM, 0, "the reply is not whole");
}

/* ---- the tests --------------------------------------------------------------------------- */

static void requests(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body;
    } asks[] = {
        {"/health", ""},
        {"/v1/models", ""},
        {"/props", ""},
        {"/tokenize", "{\"content\":\"Hello\",\"with_pieces\":true}"},
        {"/detokenize", "{\"tokens\":[5,6,7]}"},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":"
         "[{\"type\":\"text\",\"text\":\"b\"}]}],\"n\":2,\"seed\":1,\"max_tokens\":3,"
         "\"logprobs\":true,\"top_logprobs\":2,\"ignore_eos\":true,\"stop\":[\"never\"]}"},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}],\"seed\":1,\"max_tokens\":3,"
         "\"logprobs\":true,\"top_logprobs\":2,\"ignore_eos\":true,\"stream\":true,"
         "\"stream_options\":{\"include_usage\":true}}"},
        {"/v1/completions",
         "{\"prompt\":[[2,5,6],[2,7]],\"echo\":true,\"logprobs\":2,\"seed\":1,\"max_tokens\":2,"
         "\"ignore_eos\":true,\"logit_bias\":{\"5\":1},\"metadata\":{\"a\":\"b\"}}"},
        {"/v1/completions",
         "{\"prompt\":\"b\",\"echo\":true,\"logprobs\":2,\"seed\":1,\"max_tokens\":2,"
         "\"ignore_eos\":true,\"stream\":true}"},
        {"/v1/completions", "{\"prompt\":\"b\",\"nonsense\":1}"},
        {"/v1/chat/completions", "{\"messages\":[],\"tool_choice\":1}"},
    };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        path = asks[i].path;
        body = asks[i].body;
        expected[0] = '\0';
        oom_sweep(path, asked);
    }
}

static int setup(void **state)
{
    const gm_engine_opts o = {.size = sizeof o, .n_slots = 2, .n_threads = 1};
    if (tiny_setup(state) != 0) return -1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_ctx = 256});
    model = tiny_open(&t, "server.gguf");
    tiny_deinit(&t);
    return (int)gm_engine_open(&engine, model, &o, NULL);
}

static int teardown(void **state)
{
    gm_engine_close(engine);
    gm_model_close(model);
    return tiny_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
    };
    return cmocka_run_group_tests_name("o_server", tests, setup, teardown);
}
