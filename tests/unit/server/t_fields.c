/* SPDX-License-Identifier: MIT */
/* The table of fields: docs/HTTP.md has its rows and no others; and what messages become. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures/tinymodel.h"
#include "server/fields.h"
#include "server/messages.h"

static gm_model *model;
static gm_path path;
static gm_err err;

static int setup(void **state)
{
    if (tiny_setup(state) != 0) return -1;
    tiny t;
    tiny_init(&t, &(tiny_shape){.n_ctx = 256});
    model = tiny_open(&t, "fields.gguf");
    tiny_deinit(&t);
    return 0;
}

static int teardown(void **state)
{
    gm_model_close(model);
    return tiny_teardown(state);
}

/* ---- the document ------------------------------------------------------------------------ */

static const struct {
    uint32_t bit;
    const char *word;
} ENDPOINTS[] = {
    {GM_IN_CHAT, "chat"},
    {GM_IN_COMPLETIONS, "completions"},
    {GM_IN_TOKENIZE, " tokenize"},
    {GM_IN_DETOKENIZE, "detokenize"},
};

/* The endpoints that a name has in the table. */
static uint32_t table_in(const char *name)
{
    uint32_t in = 0;
    for (size_t i = 0; gm_field_at(i); i++) {
        if (strcmp(gm_field_at(i)->name, name) == 0) in |= gm_field_at(i)->in;
    }
    return in;
}

static void test_document_has_every_row(void **state)
{
    (void)state;
    FILE *const f = fopen("docs/HTTP.md", "r");
    char line[1024], name[64], where[128];
    size_t n = 0;
    bool fields = false;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "## ", 3) == 0) fields = strcmp(line, "## Fields\n") == 0;
        if (!fields || sscanf(line, "| `%63[a-z_]` |%127[^|]|", name, where) != 2) continue;
        uint32_t in = 0;
        for (size_t i = 0; i < sizeof ENDPOINTS / sizeof *ENDPOINTS; i++)
            in |= strstr(where, ENDPOINTS[i].word) ? ENDPOINTS[i].bit : 0;
        if (in != table_in(name)) fail_msg("docs/HTTP.md: %s is said to be of%s", name, where);
        n++;
    }
    fclose(f);
    size_t rows = 0;
    for (size_t i = 0; gm_field_at(i); i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || strcmp(gm_field_at(i)->name, gm_field_at(k)->name) == 0;
        rows += !again;
    }
    assert_int_equal(n, rows);
}

/* ---- bodies ------------------------------------------------------------------------------ */

static gm_status read_body(const char *text, uint32_t in, gm_ask *a, const char **param)
{
    static json_t *body; /* what a points into lives until the next one */
    json_decref(body);
    body = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(body);
    return gm_ask_read(a, body, in, model, param, &err);
}

static void test_what_is_read(void **state)
{
    (void)state;
    gm_ask a;
    const char *param = NULL;
    assert_int_equal(read_body("{\"temperature\":0.5,\"top_k\":7,\"n\":3,\"stop\":[\"a\",\"bc\"],"
                               "\"logit_bias\":{\"5\":-100,\"17\":2.5},\"stream\":true,"
                               "\"stream_options\":{\"include_usage\":true},\"logprobs\":true,"
                               "\"top_logprobs\":4,\"seed\":-9,\"max_completion_tokens\":30}",
                               GM_IN_CHAT, &a, &param),
                     GM_OK);
    assert_true(a.sampling.temperature == 0.5f && a.sampling.top_k == 7 && a.n == 3);
    assert_int_equal(a.n_stops, 2);
    assert_string_equal(a.stops[1], "bc");
    assert_int_equal(a.n_biases, 2);
    assert_int_equal(a.biases[0].id, 5);
    assert_true(a.biases[1].bias == 2.5f);
    assert_true(a.stream && a.include_usage && a.logprobs);
    assert_int_equal(a.n_top, 4);
    assert_int_equal(a.max_tokens, 30);
    assert_int_equal(a.seed_number, -9);
    assert_int_equal(
        read_body("{\"n\":2.0,\"seed\":-1e3,\"max_tokens\":30.0}", GM_IN_CHAT, &a, &param), GM_OK);
    assert_true(a.n == 2 && a.seed_number == -1000 && a.max_tokens == 30);
    assert_int_equal(read_body("{\"stop\":[\"<end_of_turn>\",\"<start_of_turn>x\",\"<start\"]}",
                               GM_IN_CHAT, &a, &param),
                     GM_OK);
    assert_int_equal(a.n_stops, 3);
    assert_int_equal(read_body("{\"logprobs\":0}", GM_IN_COMPLETIONS, &a, &param), GM_OK);
    assert_true(a.logprobs && a.n_top == 0);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t in;
        const char *body, *param, *why;
    } CASES[] = {
        {GM_IN_CHAT, "5", NULL, "expected a JSON object"},
        {GM_IN_CHAT, "{\"prompt\":\"x\"}", "prompt",
         "there is no field prompt here; /v1/completions has one"},
        {GM_IN_COMPLETIONS, "{\"messages\":[]}", "messages", "here; /v1/chat/completions has one"},
        {GM_IN_CHAT, "{\"foo\":1}", "foo", "there is no field foo"},
        {GM_IN_CHAT, "{\"tool_choice\":1}", "tool_choice", "null, \"none\" or \"auto\""},
        {GM_IN_CHAT, "{\"stream\":true,\"stream_options\":{\"foo\":1}}", "stream_options.foo",
         "there is no field stream_options.foo"},
        {GM_IN_CHAT, "{\"stream\":true,\"stream_options\":{\"include_usage\":1}}",
         "stream_options.include_usage",
         "stream_options.include_usage is an integer, expected true or false"},
        {GM_IN_CHAT, "{\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}}",
         "stream_options.include_obfuscation", "not supported here, expected null or false"},
        {GM_IN_CHAT, "{\"n\":1.5}", "n", "n is a real number, expected an integer"},
        {GM_IN_CHAT, "{\"n\":129}", "n", "n is 129, expected 1 to 128"},
        {GM_IN_CHAT, "{\"stream\":1}", "stream", "expected true or false"},
        {GM_IN_CHAT, "{\"audio\":{}}", "audio", "not supported here, expected null"},
        {GM_IN_CHAT, "{\"moderation\":{}}", "moderation", "moderation is not supported here"},
        {GM_IN_CHAT, "{\"prompt_cache_options\":{}}", "prompt_cache_options",
         "prompt_cache_options is not supported here"},
        {GM_IN_CHAT, "{\"store\":true}", "store", "null or false"},
        {GM_IN_CHAT, "{\"metadata\":{\"a\":1}}", "metadata.a", "\"a\" is not"},
        {GM_IN_CHAT, "{\"metadata\":5}", "metadata", "is not an object"},
        {GM_IN_COMPLETIONS, "{\"best_of\":2}", "best_of", "expected the same"},
        {GM_IN_CHAT, "{\"stop\":{}}", "stop", "a string or an array"},
        {GM_IN_CHAT, "{\"seed\":1e300}", "seed", "expected an integer"},
        {GM_IN_CHAT, "{\"stop\":[\"a\",5]}", "stop[1]", "stop[1] is an integer, expected a string"},
        {GM_IN_CHAT, "{\"stop\":[\"\"]}", "stop[0]", "stop[0] is empty"},
        {GM_IN_CHAT, "{\"stop\":\"\"}", "stop", "stop is empty"},
        {GM_IN_CHAT, "{\"stop\":[\"a\",\"<start_of_turn>\"]}", "stop[1]",
         "stop[1] is the control token <start_of_turn>, expected text"},
        {GM_IN_CHAT, "{\"stop\":\"<end_of_turn>\",\"ignore_eos\":true}", "stop",
         "stop is the control token <end_of_turn>"},
        {GM_IN_CHAT, "{\"stop\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "stop",
         "stop has 17 strings, expected at most 16"},
        {GM_IN_CHAT, "{\"logit_bias\":{\"5\":101}}", "logit_bias.5", "logit_bias.5 is 101"},
        {GM_IN_CHAT, "{\"logit_bias\":{\"5\":null}}", "logit_bias.5", "logit_bias.5 is null"},
        {GM_IN_CHAT, "{\"logit_bias\":{\"05\":1}}", "logit_bias.05", "the key \"05\""},
        {GM_IN_CHAT, "{\"logit_bias\":{\"-1\":1}}", "logit_bias.-1", "the key \"-1\""},
        {GM_IN_CHAT, "{\"logit_bias\":{\"\":1}}", "logit_bias.", "the key \"\""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gm_ask a;
        const char *param = NULL;
        assert_int_not_equal(read_body(CASES[i].body, CASES[i].in, &a, &param), GM_OK);
        if (CASES[i].param)
            assert_string_equal(param, CASES[i].param);
        else
            assert_null(param);
        if (!strstr(err.msg, CASES[i].why)) fail_msg("%s: %s", CASES[i].body, err.msg);
    }
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Both conversations become the same tokens. */
static void assert_same_talk(const char *one, const char *other)
{
    gm_ids ids[2] = {{0}};
    const char *const texts[] = {one, other};
    for (int i = 0; i < 2; i++) {
        json_t *const messages = json_loads(texts[i], 0, NULL);
        assert_non_null(messages);
        if (gm_messages_encode(model, messages, &ids[i], &path, &err) != GM_OK)
            fail_msg("%s", err.msg);
        json_decref(messages);
    }
    assert_int_equal(ids[0].n, ids[1].n);
    assert_memory_equal(ids[0].at, ids[1].at, ids[0].n * sizeof *ids[0].at);
    gm_ids_deinit(&ids[0]);
    gm_ids_deinit(&ids[1]);
}

#define M(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

static void test_turns(void **state)
{
    (void)state;
    assert_same_talk("[" M("user", "a") "," M("user", "b") "]", "[" M("user", "a\\n\\nb") "]");
    assert_same_talk("[" M("system", "s") "," M("developer", "t") "," M("user", "b") "]",
                     "[" M("system", "s\\n\\nt") "," M("user", "b") "]");
    assert_same_talk("[" M("user", "a") "," M("system", "s") "," M("user", "b") "]",
                     "[" M("user", "a\\n\\ns\\n\\nb") "]");
    assert_same_talk(
        "[" M("user", "a") "," M("system", "s") "," M("assistant", "c") "," M("user", "b") "]",
        "[" M("user", "a") "," M("assistant", "c") "," M("user", "s\\n\\nb") "]");
    assert_same_talk("[" M("user", "a") "," M("assistant", "c") "," M("system", "s") "]",
                     "[" M("user", "a") "," M("assistant", "c") "," M("user", "s") "]");
    assert_same_talk("[" M("system", "s") "]", "[" M("user", "s") "]");
    assert_same_talk("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                     "{\"type\":\"text\",\"text\":\"b\"}]}]",
                     "[" M("user", "ab") "]");
}

static void test_turns_out_of_order(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"[" M("assistant", "a") "]", "messages[0] is an assistant's, expected a user's before"},
        {"[" M("system", "s") "," M("assistant", "a") "," M("user", "b") "]", "messages[1] is an"},
        {"[" M("user", "a") "," M("assistant", "b") "]", "expected a user's behind messages[1]"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gm_ids ids = {0};
        json_t *const messages = json_loads(CASES[i][0], 0, NULL);
        assert_int_equal(gm_messages_encode(model, messages, &ids, &path, &err), GM_E_ARG);
        if (!strstr(err.msg, CASES[i][1])) fail_msg("%s: %s", CASES[i][0], err.msg);
        json_decref(messages);
    }
}

static void test_fields_of_messages(void **state)
{
    (void)state;
    static const struct {
        const char *message, *path, *why;
    } CASES[] = {
        {M("user", "a") "," M("user", "a\",\"name\":\"Ann"), "messages[1].name",
         "messages[1].name is not supported here"},
        {"{\"role\":\"user\",\"content\":\"a\",\"name\":5}", "messages[0].name",
         "is not supported"},
        {"{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[1]}", "messages[0].tool_calls",
         "messages[0].tool_calls is not"},
        {"{\"role\":\"user\",\"content\":\"a\",\"weight\":1}", "messages[0].weight", "is not"},
        {"{\"content\":\"a\"}", "messages[0].role",
         "messages[0].role is missing, expected \"system\""},
        {"{\"role\":5,\"content\":\"a\"}", "messages[0].role", "messages[0].role is no string"},
        {M("tool", "a"), "messages[0].role", "messages[0].role is \"tool\", expected"},
        {"{\"role\":\"user\"}", "messages[0].content",
         "messages[0].content is missing, expected a string or an array of parts"},
        {"{\"role\":\"user\",\"content\":5}", "messages[0].content",
         "is no string and no array, expected a string"},
        {"{\"role\":\"user\",\"content\":[5]}", "messages[0].content[0]", "is not an object"},
        {"{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}", "messages[0].content[0].type",
         "messages[0].content[0].type is missing"},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}", "messages[0].content[0].text",
         "messages[0].content[0].text is missing, expected a string"},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"x\":1}]}",
         "messages[0].content[0].x", "messages[0].content[0].x is not supported here"},
        {"5", "messages[0]", "messages[0] is not an object"},
        {"{\"role\":\"user\",\"content\":\"a\",\"name\":null,\"tool_calls\":[],"
         "\"annotations\":[],\"refusal\":null}",
         NULL, NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gm_ids ids = {0};
        char text[200];
        snprintf(text, sizeof text, "[%s]", CASES[i].message);
        json_t *const messages = json_loads(text, 0, NULL);
        assert_non_null(messages);
        const gm_status status = gm_messages_encode(model, messages, &ids, &path, &err);
        assert_int_equal(status == GM_OK, CASES[i].why == NULL);
        if (CASES[i].why) {
            assert_string_equal(path.text, CASES[i].path);
            if (!strstr(err.msg, CASES[i].why)) fail_msg("%s: %s", text, err.msg);
        }
        json_decref(messages);
        gm_ids_deinit(&ids);
    }
}

/* A path is cut between two characters: half of one could not be sent. */
static void test_long_paths(void **state)
{
    (void)state;
    gm_path_set(&path, "%0*d%s", (int)sizeof path.text - 3, 0, "\xE2\x82\xAC");
    assert_int_equal(strlen(path.text), sizeof path.text - 3);
    gm_path_set(&path, "%0*d%s", (int)sizeof path.text - 4, 0, "\xE2\x82\xAC");
    assert_int_equal(strlen(path.text), sizeof path.text - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document_has_every_row),
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_turns_out_of_order),
        cmocka_unit_test(test_fields_of_messages),
        cmocka_unit_test(test_long_paths),
    };
    return cmocka_run_group_tests_name("t_fields", tests, setup, teardown);
}
