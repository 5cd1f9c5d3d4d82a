/* SPDX-License-Identifier: MIT */
/* What a reply says, through a socket: where a token stands in the text, and which field is
 * wrong. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fixtures/served.h"

#define BYTE(x) (238 + (x)) /* the token of a byte */

/* The offsets of a prompt's tokens and of those that are drawn behind it. */
static void expect_offsets(const int32_t *ids, size_t n, int max_tokens, const char *offsets)
{
    char body[480], words[80];
    size_t len = (size_t)snprintf(body, sizeof body,
                                  "{\"echo\":true,\"logprobs\":1,\"max_tokens\":%d,"
                                  "\"ignore_eos\":true,\"prompt\":[2",
                                  max_tokens);
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(body + len, sizeof body - len, ",%d", ids[i]);
    snprintf(body + len, sizeof body - len, "]}");
    snprintf(words, sizeof words, "\"text_offset\":[%s]", offsets);
    served_expect("POST", "/v1/completions", body, words);
}

/* Offsets count characters of the text: a byte of none is U+FFFD, those of one are counted once. */
static void test_offsets(void **state)
{
    (void)state;
    served_open(NULL);
    const int32_t plain[] = {7, 105, 9};
    expect_offsets(plain, 3, 0, "0,2,17");
    const int32_t none[] = {BYTE(0x9F), BYTE(0x9F), 7};
    expect_offsets(none, 3, 0, "0,1,2");
    const int32_t one[] = {7, BYTE(0xE2), BYTE(0x82), BYTE(0xAC), 9};
    expect_offsets(one, 5, 0, "0,2,2,2,3");
    const int32_t given_up[] = {BYTE(0xE2), BYTE(0xE2), BYTE(0x82), 7, 9};
    expect_offsets(given_up, 5, 0, "0,1,1,3,5");
    const int32_t before_control[] = {BYTE(0xE2), 105, 7};
    expect_offsets(before_control, 3, 0, "0,1,16");
    const int32_t at_the_end[] = {7, BYTE(0xE2)};
    expect_offsets(at_the_end, 2, 1, "0,2,3");
    gm_server_close(served.server);
}

/* The sentence and the path of what is refused. */
static void expect_refusal(const char *path, const char *body, const char *why, const char *param)
{
    char words[80];
    snprintf(words, sizeof words, "\"param\":%s", param);
    served_expect("POST", path, body, words);
    assert_non_null(strstr(served.reply, "HTTP/1.1 400"));
    if (!strstr(served.reply, why)) fail_msg("no \"%s\" in: %s", why, served.reply);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const CASES[][4] = {
        {"/v1/completions", "{}",
         "prompt is missing, expected a string, an array of token ids, or an array of either",
         "\"prompt\""},
        {"/v1/completions", "{\"prompt\":5}", "prompt is none of these, expected a string, an",
         "\"prompt\""},
        {"/v1/completions", "{\"prompt\":[]}", "prompt is empty", "\"prompt\""},
        {"/v1/completions", "{\"prompt\":[5,\"a\"]}", "prompt[1] is not a token id",
         "\"prompt[1]\""},
        {"/v1/completions", "{\"prompt\":[\"a\",5]}",
         "prompt[1] is none of these, expected a string or an array of token ids", "\"prompt[1]\""},
        {"/v1/completions", "{\"prompt\":[[5],[]]}", "prompt[1] is empty", "\"prompt[1]\""},
        {"/v1/completions", "{\"prompt\":[[5],[5,-1]]}", "prompt[1][1] is not", "\"prompt[1][1]\""},
        {"/v1/completions", "{\"prompt\":[[5],[99999]]}", "expected 0 to 499", "\"prompt[1][0]\""},
        {"/v1/completions", "{\"prompt\":[99999]}", "expected 0 to 499", "\"prompt[0]\""},
        {"/v1/completions", "{\"prompt\":[\"a\",\"b\"],\"n\":100}", "200 answers are asked for",
         "\"n\""},
        {"/tokenize", "{}", "content is missing, expected a string", "\"content\""},
        {"/tokenize", "{\"content\":5}", "content is no string", "\"content\""},
        {"/detokenize", "{\"tokens\":null}", "tokens is missing, expected an array of token ids",
         "\"tokens\""},
        {"/detokenize", "{\"tokens\":[5,\"a\"]}", "tokens[1] is not a token id", "\"tokens[1]\""},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\"}]}",
         "messages[0].content is missing", "\"messages[0].content\""},
    };
    served_open(NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        expect_refusal(CASES[i][0], CASES[i][1], CASES[i][2], CASES[i][3]);
    char body[1024] = "{\"prompt\":[\"a\"";
    for (int i = 0; i < 128; i++)
        strcat(body, ",\"a\"");
    strcat(body, "]}");
    expect_refusal("/v1/completions", body, "129 answers are asked for", "\"prompt\"");
    gm_server_close(served.server);
}

/* A text that begins with <bos> is the same prompt as without. */
static void test_one_bos(void **state)
{
    (void)state;
    served_open(NULL);
    served_expect("POST", "/v1/completions", "{\"prompt\":\"p7\",\"max_tokens\":0}",
                  "\"prompt_tokens\":");
    char usage[60];
    snprintf(usage, sizeof usage, "%.24s", strstr(served.reply, "\"prompt_tokens\":"));
    *strchr(usage, ',') = '\0';
    served_expect("POST", "/v1/completions", "{\"prompt\":\"<bos>p7\",\"max_tokens\":0}", usage);
    served_expect("POST", "/v1/completions",
                  "{\"prompt\":\"<bos>p7\",\"max_tokens\":0,\"echo\":true}", "\"text\":\"p7\"");
    gm_server_close(served.server);
}

/* A whole reply's log-probabilities are counted before anything is computed; a stream keeps none. */
static void test_logprobs_are_bounded(void **state)
{
    (void)state;
#define MANY "\"n\":128,\"max_tokens\":2000,\"ignore_eos\":true"
    served_open(NULL);
    served_expect("POST", "/v1/completions", "{\"prompt\":\"p7\",\"logprobs\":1," MANY "}",
                  "512000 log-probabilities are asked for, in all answers, with candidates, "
                  "expected at most 500000; a stream may have more");
    assert_non_null(strstr(served.reply, "HTTP/1.1 400"));
    assert_non_null(strstr(served.reply, "\"param\":\"logprobs\""));
    served_expect("POST", "/v1/completions",
                  "{\"prompt\":\"p7\",\"logprobs\":1,\"stream\":true," MANY "}", "data: {");
    served_expect("POST", "/v1/completions", /* what does not fit the context is not counted */
                  "{\"prompt\":\"p7\",\"logprobs\":0,\"max_tokens\":4000000000,"
                  "\"stop\":[\"p\",\"q\",\"0\",\"1\"]}",
                  "HTTP/1.1 200");
    gm_server_close(served.server);
#undef MANY
}

static uint64_t n_prompt_tokens(void)
{
    gm_engine_stats s = {.size = sizeof s};
    gm_engine_stat(served.engine, &s);
    return s.n_prompt;
}

/* How often words are in what was read last. */
static int n_times(const char *words)
{
    int n = 0;
    for (const char *at = served.reply; (at = strstr(at, words)); at++)
        n++;
    return n;
}

#define N_LONG 201 /* tokens of a prompt, with <bos> */

/* A prompt's own log-probabilities are computed once, however many answers it has and however often it
 * is asked; each answer has them, and goes on behind the prompt's text. */
static void test_prompt_is_told_once(void **state)
{
    (void)state;
    char ids[1024] = "[2", body[4096], begin[64];
    for (int i = 1; i < N_LONG; i++)
        snprintf(ids + strlen(ids), sizeof ids - strlen(ids), ",%d", i % 5 + 7);
    strcat(ids, "]");
    served_open(NULL);
    for (int stream = 0; stream < 2; stream++) {
        const uint64_t before = n_prompt_tokens();
        snprintf(body, sizeof body,
                 "{\"prompt\":[%s,[2,9],%s],\"n\":2,\"echo\":true,\"logprobs\":0,\"max_tokens\":1,"
                 "\"ignore_eos\":true%s}",
                 ids, ids, stream ? ",\"stream\":true" : "");
        const int fd = served_ask("POST", "/v1/completions", body);
        served_read(fd, NULL);
        close(fd);
        assert_true(n_prompt_tokens() - before < 2 * N_LONG); /* the last ones are computed anew */
        const char *const first = strstr(served.reply, "\"token_logprobs\":[-");
        assert_non_null(first);
        snprintf(begin, sizeof begin, "%.60s", first);
        assert_int_equal(n_times(begin), 4);
        assert_int_equal(n_times("\"text_offset\":[0,2,"), 4);
        assert_int_equal(n_times(stream ? "\"text_offset\":[2]" : "\"text_offset\":[0,2]"), 2);
        assert_int_equal(n_times(stream ? "\"text_offset\":[480]" : ",480]"), 4);
    }
    gm_server_close(served.server);
}

/* No candidates are none, not null: clients read them as objects. What has nothing before it is null. */
static void test_no_candidates(void **state)
{
    (void)state;
    served_open(NULL);
    served_expect("POST", "/v1/completions",
                  "{\"prompt\":[2,7],\"logprobs\":0,\"max_tokens\":2,\"ignore_eos\":true}",
                  "\"top_logprobs\":[{},{}],");
    assert_non_null(strstr(served.reply, "\"token_logprobs\":[-"));
    for (int n = 0; n < 2; n++) {
        char body[100];
        snprintf(body, sizeof body,
                 "{\"prompt\":[7,8],\"echo\":true,\"logprobs\":%d,\"max_tokens\":0}", n);
        served_expect("POST", "/v1/completions", body, "\"token_logprobs\":[null,-");
        assert_non_null(
            strstr(served.reply, n ? "\"top_logprobs\":[null,{\"" : "\"top_logprobs\":[null,{}]"));
    }
    gm_server_close(served.server);
}

/* A token's log-probability does not depend on how many candidates are asked for beside it. */
static void test_one_law(void **state)
{
    (void)state;
    static const char *const TOPS[] = {"0", "1", "20"};
    static char first[32768];
    served_open(NULL);
    for (int i = 0; i < 3; i++) {
        char body[200];
        snprintf(body, sizeof body,
                 "{\"prompt\":\"p7\",\"seed\":5,\"temperature\":2,\"top_k\":0,\"top_p\":1,"
                 "\"max_tokens\":60,\"ignore_eos\":true,\"logprobs\":%s}",
                 TOPS[i]);
        served_expect("POST", "/v1/completions", body, "\"finish_reason\"");
        const char *const list = strstr(served.reply, "\"token_logprobs\":[-");
        assert_non_null(list);
        const size_t len = strcspn(list, "]");
        if (i == 0) snprintf(first, sizeof first, "%.*s", (int)len, list);
        assert_memory_equal(list, first, len);
    }
    gm_server_close(served.server);
}

/* Every character that JSON has another way to say comes through, and what is no text at all. */
static void test_strings(void **state)
{
    (void)state;
    static const char body[] = "{\"tokens\":[%d,%d,%d,%d,%d,%d,%d,%d]}";
    char asked[200];
    snprintf(asked, sizeof asked, body, BYTE('"'), BYTE('\\'), BYTE('\n'), BYTE(1), BYTE(0x7F),
             BYTE(0xC3), BYTE(0xA9), BYTE(0xFF));
    served_open(NULL);
    served_expect("POST", "/detokenize", asked,
                  "{\"content\":\"\\\"\\\\\\n\\u0001\x7F\xC3\xA9\xEF\xBF\xBD\"}");
    gm_server_close(served.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_one_bos),
        cmocka_unit_test(test_logprobs_are_bounded),
        cmocka_unit_test(test_prompt_is_told_once),
        cmocka_unit_test(test_no_candidates),
        cmocka_unit_test(test_one_law),
        cmocka_unit_test(test_strings),
    };
    return cmocka_run_group_tests_name("t_replies", tests, served_setup, served_teardown);
}
