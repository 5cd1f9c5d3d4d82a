/* SPDX-License-Identifier: MIT */
#include "server/messages.h"

#include "base/mem.h"
#include "base/strbuf.h"

typedef enum role { NOBODY, SYSTEM, USER, ASSISTANT } role;

/* One turn in the making; texts are joined by blank lines. */
typedef struct turn {
    role role;
    gm_strbuf text;
} turn;

typedef struct talk {
    turn *turns; /* [n messages + 1 at most] */
    size_t n;
    gm_strbuf later; /* what the system said and no user turn has yet */
} talk;

/* ---- one message ------------------------------------------------------------------------- */

/* Whether a value is this string, all of it. */
static bool is_text(const json_t *v, const char *text)
{
    return json_is_string(v) && json_string_length(v) == strlen(text) &&
           strcmp(json_string_value(v), text) == 0;
}

static gm_status read_role(const json_t *message, size_t i, role *out, gm_err *err)
{
    static const struct {
        const char *name;
        role role;
    } ROLES[] = {
        {"system", SYSTEM},
        {"developer", SYSTEM},
        {"user", USER},
        {"assistant", ASSISTANT},
    };
    const json_t *const given = json_object_get(message, "role");
    const char *const name = json_string_value(given);
    for (size_t k = 0; name && k < sizeof ROLES / sizeof *ROLES; k++) {
        if (!is_text(given, ROLES[k].name)) continue;
        *out = ROLES[k].role;
        return GM_OK;
    }
    return gm_fail(
        err, GM_E_ARG, 0,
        "messages[%zu].role is %s%.40s%s, expected \"system\", \"developer\", \"user\" or "
        "\"assistant\"",
        i, name ? "\"" : "no string", name ? name : "", name ? "\"" : "");
}

/* The fields that a message may have. A call of tools has nothing to come back to here, and the chat
 * format has no place for a name. */
static gm_status check_fields(const json_t *message, size_t i, gm_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)message, key, v)
    {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0) continue;
        if (json_is_null(v)) continue;
        if (strcmp(key, "tool_calls") == 0 && json_is_array(v) && json_array_size(v) == 0) continue;
        if (strcmp(key, "annotations") == 0 && json_is_array(v) && json_array_size(v) == 0)
            continue;
        return gm_fail(err, GM_E_UNSUP, 0, "messages[%zu].%.40s is not supported here", i, key);
    }
    return GM_OK;
}

static gm_status read_part(const json_t *part, size_t i, size_t k, gm_strbuf *out, gm_err *err)
{
    const char *const type = json_string_value(json_object_get(part, "type"));
    const bool is_plain = is_text(json_object_get(part, "type"), "text");
    const json_t *const text = json_object_get(part, "text");
    if (!is_plain) {
        return gm_fail(
            err, GM_E_UNSUP, 0,
            "messages[%zu].content[%zu].type is %s%.40s%s, expected \"text\": other parts "
            "are not supported here",
            i, k, type ? "\"" : "no string", type ? type : "", type ? "\"" : "");
    }
    if (!json_is_string(text)) {
        return gm_fail(err, GM_E_ARG, 0, "messages[%zu].content[%zu].text is not a string", i, k);
    }
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)part, key, v)
    {
        if (strcmp(key, "type") == 0 || strcmp(key, "text") == 0 || json_is_null(v)) continue;
        return gm_fail(err, GM_E_UNSUP, 0, "messages[%zu].content[%zu].%.40s is not supported here",
                       i, k, key);
    }
    gm_strbuf_put(out, (gm_str){json_string_value(text), json_string_length(text)});
    return GM_OK;
}

static gm_status read_content(const json_t *message, role r, size_t i, gm_strbuf *out, gm_err *err)
{
    const json_t *const content = json_object_get(message, "content");
    if (r == ASSISTANT && json_is_null(content)) return GM_OK; /* it said nothing */
    if (json_is_string(content)) {
        gm_strbuf_put(out, (gm_str){json_string_value(content), json_string_length(content)});
        return GM_OK;
    }
    if (!json_is_array(content)) {
        return gm_fail(err, GM_E_ARG, 0,
                       "messages[%zu].content is not a string and not an array of parts", i);
    }
    size_t k;
    json_t *part;
    json_array_foreach(content, k, part) GM_TRY(read_part(part, i, k, out, err));
    return GM_OK;
}

/* ---- turns ------------------------------------------------------------------------------- */

static void join(gm_strbuf *to, gm_str text)
{
    if (to->len) gm_strbuf_put(to, GM_STR("\n\n"));
    gm_strbuf_put(to, text);
}

/* Where the text of a message goes: to the last turn where that is of the same role, else to a new
 * one. What the system says once there are turns is kept for the user's next. */
static gm_strbuf *place_for(talk *t, role r)
{
    const bool same = t->n && t->turns[t->n - 1].role == r;
    const bool begun = t->n && t->turns[t->n - 1].role != SYSTEM;
    if (r == SYSTEM && begun) return &t->later;
    if (!same) t->turns[t->n++].role = r;
    return &t->turns[t->n - 1].text;
}

static void flush_later(talk *t)
{
    if (t->later.len == 0) return;
    join(place_for(t, USER), gm_strbuf_str(&t->later));
    gm_strbuf_clear(&t->later);
}

static gm_status read_message(talk *t, const json_t *message, size_t i, gm_strbuf *text,
                              gm_err *err)
{
    role r = NOBODY;
    if (!json_is_object(message))
        return gm_fail(err, GM_E_ARG, 0, "messages[%zu] is not an object", i);
    GM_TRY(read_role(message, i, &r, err));
    GM_TRY(check_fields(message, i, err));
    gm_strbuf_clear(text);
    GM_TRY(read_content(message, r, i, text, err));
    GM_TRY(gm_strbuf_status(text, err));
    if (r == ASSISTANT && (t->n == 0 || t->turns[t->n - 1].role == SYSTEM)) {
        return gm_fail(err, GM_E_ARG, 0,
                       "messages[%zu] is an assistant's, expected a user's before it", i);
    }
    if (r == USER) flush_later(t);
    gm_strbuf *const to = place_for(t, r);
    join(to, gm_strbuf_str(text));
    return gm_strbuf_status(to, err);
}

static gm_status read_messages(const json_t *messages, talk *t, gm_err *err)
{
    gm_strbuf text = {0};
    gm_status status = GM_OK;
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        if (status == GM_OK) status = read_message(t, message, i, &text, err);
    }
    flush_later(t);
    gm_strbuf_deinit(&text);
    if (status != GM_OK) return status;
    if (t->turns[t->n - 1].role == ASSISTANT) {
        return gm_fail(
            err, GM_E_ARG, 0,
            "messages end with an assistant's turn, expected a user's behind messages[%zu]",
            json_array_size(messages) - 1);
    }
    if (t->n == 1 && t->turns[0].role == SYSTEM) t->turns[0].role = USER;
    return GM_OK;
}

static gm_status encode(const gm_model *m, const talk *t, gm_ids *out, gm_err *err)
{
    static const char *const names[] = {"", "system", "user", "assistant"};
    gm_message *list = NULL;
    GM_TRY(gm_mem_alloc(&list, t->n, sizeof *list, "messages", err));
    for (size_t i = 0; i < t->n; i++) {
        const gm_str text = gm_strbuf_str(&t->turns[i].text);
        list[i] = (gm_message){names[t->turns[i].role], text.p ? text.p : "", text.len};
    }
    const gm_status status = gm_model_chat(m, list, t->n, out, err);
    gm_mem_free(list);
    return status;
}

gm_status gm_messages_encode(const gm_model *m, const json_t *messages, gm_ids *out, gm_err *err)
{
    const size_t n = json_array_size(messages);
    if (n == 0) {
        return gm_fail(err, GM_E_ARG, 0, "messages is %s, expected an array with at least one",
                       !messages                 ? "missing"
                       : json_is_array(messages) ? "empty"
                                                 : "not an array");
    }
    talk t = {0};
    GM_TRY(gm_mem_alloc(&t.turns, n + 1, sizeof *t.turns, "messages", err));
    gm_status status = read_messages(messages, &t, err);
    if (status == GM_OK) status = encode(m, &t, out, err);
    for (size_t i = 0; i < t.n; i++)
        gm_strbuf_deinit(&t.turns[i].text);
    gm_strbuf_deinit(&t.later);
    gm_mem_free(t.turns);
    return status;
}
