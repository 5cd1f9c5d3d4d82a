/* SPDX-License-Identifier: MIT */
/* A device that is lost under a running engine, and under a server that streams: the answer has the
 * same bits, and nothing of the old device is left.
 *
 * This is a mock, as in t_vk_faults.c: a step of a running engine is submits and waits, and from one
 * of them on these answer that the device is lost, until one is opened again. t_vk_loss --all lets
 * every call be the first, else one in STRIDE is. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/vk/vk_volk.h"
#include "fixtures/tinymodel.h"
#include "gemmule_tools.h"
#include "server/server.h"

#define STRIDE 3

static gm_model *model;
static long stride = STRIDE;

/* ---- the mock -------------------------------------------------------------------------------- */

static struct VolkDeviceTable real;
static atomic_long n_calls, lose_at; /* 0: never */
static atomic_long n_devices, n_memory;
static atomic_bool lost;

static bool is_lost(void)
{
    if (atomic_fetch_add(&n_calls, 1) + 1 == atomic_load(&lose_at)) atomic_store(&lost, true);
    return atomic_load(&lost);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_QueueSubmit2(VkQueue q, uint32_t n,
                                                        const VkSubmitInfo2 *i, VkFence f)
{
    return is_lost() ? VK_ERROR_DEVICE_LOST : real.vkQueueSubmit2(q, n, i, f);
}

/* What runs is waited for in any case: on a device that is really lost nothing runs. */
static VKAPI_ATTR VkResult VKAPI_CALL fake_WaitSemaphores(VkDevice d, const VkSemaphoreWaitInfo *i,
                                                          uint64_t timeout)
{
    const bool gone = is_lost();
    const VkResult r = real.vkWaitSemaphores(d, i, timeout);
    return gone ? VK_ERROR_DEVICE_LOST : r;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_AllocateMemory(VkDevice d, const VkMemoryAllocateInfo *i,
                                                          const VkAllocationCallbacks *a,
                                                          VkDeviceMemory *o)
{
    atomic_fetch_add(&n_memory, 1);
    return real.vkAllocateMemory(d, i, a, o);
}

static VKAPI_ATTR void VKAPI_CALL fake_FreeMemory(VkDevice d, VkDeviceMemory m,
                                                  const VkAllocationCallbacks *a)
{
    atomic_fetch_sub(&n_memory, 1);
    real.vkFreeMemory(d, m, a);
}

void __real_gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table);
void __wrap_gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table);

void __wrap_gm_volk_load(VkInstance instance, VkDevice device, struct VolkDeviceTable *table)
{
    __real_gm_volk_load(instance, device, table);
    real = *table;
    table->vkQueueSubmit2 = fake_QueueSubmit2;
    table->vkWaitSemaphores = fake_WaitSemaphores;
    table->vkAllocateMemory = fake_AllocateMemory;
    table->vkFreeMemory = fake_FreeMemory;
    atomic_store(&lost, false);
    atomic_fetch_add(&n_devices, 1);
}

/* The engine is idle: its call i from now on is the first to be lost. */
static void lose(long i)
{
    atomic_store(&n_calls, 0);
    atomic_store(&n_devices, 0);
    atomic_store(&lose_at, i);
}

/* ---- what is tried --------------------------------------------------------------------------- */

static gm_engine *open_engine(void)
{
    gm_engine *e = NULL;
    gm_err err = {0};
    gm_engine_opts o = gm_engine_opts_default();
    o.backend = "vulkan";
    o.n_ctx = 256;
    o.n_threads = 1;
    lose(0);
    if (gm_engine_open(&e, model, &o, &err) != GM_OK) fail_msg("%s", err.msg);
    return e;
}

static void answer(gm_engine *e, tiny_answer *a)
{
    static const int32_t ids[40] = {2, 9, 4, 7, 33, 12};
    gm_request_opts o = gm_request_opts_default(model);
    o.ids = ids;
    o.n_ids = sizeof ids / sizeof *ids;
    o.max_tokens = 6;
    o.flags = GM_REQUEST_HASH | GM_REQUEST_IGNORE_END;
    o.sampling.seed = 7;
    tiny_run(e, &o, a);
}

static void an_engine_goes_on(void **state)
{
    (void)state;
    static tiny_answer want, got;
    gm_engine *const e = open_engine();
    lose(0);
    answer(e, &want);
    assert_int_equal(want.status, GM_OK);
    const long n = atomic_load(&n_calls), memory = atomic_load(&n_memory);
    assert_true(n >= 2 * 6);
    for (long i = 1; i <= n; i += stride) {
        lose(i);
        answer(e, &got);
        assert_memory_equal(&got, &want, sizeof got);
        assert_int_equal(atomic_load(&n_devices), 1);
        assert_int_equal(atomic_load(&n_memory), memory);
    }
    gm_engine_close(e);
    assert_int_equal(atomic_load(&n_memory), 0);
    print_message("%ld of %ld calls were lost\n", (n + stride - 1) / stride, n);
}

/* What a stream says, without what is different each time. */
static void stream(const gm_server *server, char *words, size_t size)
{
    static const char body[] =
        "{\"prompt\":\"a\",\"max_tokens\":6,\"seed\":5,\"stream\":true,\"ignore_eos\":true}";
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(gm_server_port(server)),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    char text[16384];
    size_t len = 0, used = 0;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    const int n =
        snprintf(text, sizeof text,
                 "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 sizeof body - 1, body);
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    for (ssize_t got; (got = recv(fd, text + len, sizeof text - 1 - len, 0)) > 0;)
        len += (size_t)got;
    close(fd);
    text[len] = '\0';
    if (!strstr(text, "[DONE]")) fail_msg("%s", text);
    for (const char *at = text; (at = strstr(at, "\"choices\":"));) {
        const size_t part = strcspn(at, "\n");
        assert_true(used + part < size);
        memcpy(words + used, at, part);
        used += part;
        at += part;
    }
    words[used] = '\0';
}

static void a_stream_goes_on(void **state)
{
    (void)state;
    static char want[8192], got[8192];
    gm_err err = {0};
    gm_server *server = NULL;
    gm_server_opts o = gm_server_opts_default();
    o.port = 0;
    gm_engine *const e = open_engine();
    if (gm_server_open(&server, &o, &err) != GM_OK) fail_msg("%s", err.msg);
    gm_server_start(server, model, e);
    stream(server, want, sizeof want);
    lose(8);
    stream(server, got, sizeof got);
    assert_int_equal(atomic_load(&n_devices), 1);
    assert_string_equal(got, want);
    gm_server_close(server);
    gm_engine_close(e);
}

static int setup(void **state)
{
    gm_err err = {0};
    gm_synth_opts opts = gm_synth_opts_default();
    if (tiny_setup(state) != 0) return 1;
    const char *const path = tiny_path("loss");
    if (gm_synth_write(path, &opts, &err) != GM_OK) return 1;
    return gm_model_open(&model, path, &err) == GM_OK ? 0 : 1;
}

static int teardown(void **state)
{
    gm_model_close(model);
    return tiny_teardown(state);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--all") == 0) stride = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_goes_on),
        cmocka_unit_test(a_stream_goes_on),
    };
    return cmocka_run_group_tests_name("t_vk_loss", tests, setup, teardown);
}
