/* SPDX-License-Identifier: MIT */
/* What a reply says, through a socket: where a token stands in the text. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "fixtures/served.h"

#define BYTE(x) (238 + (x)) /* the token of a byte */

/* The offsets of a prompt's tokens and of those that are drawn behind it. */
static void expect_offsets(const int32_t *ids, size_t n, int max_tokens, const char *offsets)
{
    char body[400], words[80];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets),
    };
    return cmocka_run_group_tests_name("t_replies", tests, served_setup, served_teardown);
}
