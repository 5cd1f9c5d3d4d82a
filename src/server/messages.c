/* SPDX-License-Identifier: MIT */
#include "server/messages.h"

#include <stdio.h>

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

/* A null counts as not there. */
static bool is_there(const json_t *v)
{
    return v && !json_is_null(v);
}

static gm_status read_role(const json_t *message, size_t i, role *out, gm_path *path, gm_err *err)
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
    gm_path_set(path, "messages[%zu].role", i);
    for (size_t k = 0; name && k < sizeof ROLES / sizeof *ROLES; k++) {
        if (!is_text(given, ROLES[k].name)) continue;
        *out = ROLES[k].role;
        return GM_OK;
    }
    return gm_fail(err, GM_E_ARG, 0,
                   "%s is %s%.40s%s, expected \"system\", \"developer\", \"user\" or \"assistant\"",
                   path->text,
                   name              ? "\""
                   : is_there(given) ? "no string"
                                     : "missing",
                   name ? name : "", name ? "\"" : "");
}

/* The fields that a message may have. A call of tools has nothing to come back to here, and the chat
 * format has no place for a name. */
static gm_status check_fields(const json_t *message, size_t i, gm_path *path, gm_err *err)
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
        gm_path_set(path, "messages[%zu].%s", i, key);
        return gm_fail(err, GM_E_UNSUP, 0, "%s is not supported here", path->text);
    }
    return GM_OK;
}

static gm_status read_part(const json_t *part, const char *name, gm_strbuf *out, gm_path *path,
                           gm_err *err)
{
    const json_t *const given = json_object_get(part, "type");
    const char *const type = json_string_value(given);
    const json_t *const text = json_object_get(part, "text");
    if (!json_is_object(part)) {
        gm_path_set(path, "%s", name);
        return gm_fail(err, GM_E_ARG, 0, "%s is not an object", name);
    }
    gm_path_set(path, "%s.type", name);
    if (!is_text(given, "text")) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "%s is %s%.40s%s, expected \"text\": other parts are not supported here",
                       path->text,
                       type              ? "\""
                       : is_there(given) ? "no string"
                                         : "missing",
                       type ? type : "", type ? "\"" : "");
    }
    gm_path_set(path, "%s.text", name);
    if (!json_is_string(text)) {
        return gm_fail(err, GM_E_ARG, 0, "%s is %s, expected a string", path->text,
                       is_there(text) ? "no string" : "missing");
    }
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)part, key, v)
    {
        if (strcmp(key, "type") == 0 || strcmp(key, "text") == 0 || json_is_null(v)) continue;
        gm_path_set(path, "%s.%s", name, key);
        return gm_fail(err, GM_E_UNSUP, 0, "%s is not supported here", path->text);
    }
    gm_strbuf_put(out, (gm_str){json_string_value(text), json_string_length(text)});
    return GM_OK;
}

static gm_status read_content(const json_t *message, role r, size_t i, gm_strbuf *out,
                              gm_path *path, gm_err *err)
{
    const json_t *const content = json_object_get(message, "content");
    if (r == ASSISTANT && json_is_null(content)) return GM_OK; /* it said nothing */
    if (json_is_string(content)) {
        gm_strbuf_put(out, (gm_str){json_string_value(content), json_string_length(content)});
        return GM_OK;
    }
    gm_path_set(path, "messages[%zu].content", i);
    if (!json_is_array(content)) {
        return gm_fail(err, GM_E_ARG, 0, "%s is %s, expected a string or an array of parts",
                       path->text, is_there(content) ? "no string and no array" : "missing");
    }
    size_t k;
    json_t *part;
    json_array_foreach(content, k, part)
    {
        char name[64];
        snprintf(name, sizeof name, "messages[%zu].content[%zu]", i, k);
        GM_TRY(read_part(part, name, out, path, err));
    }
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
                              gm_path *path, gm_err *err)
{
    role r = NOBODY;
    gm_path_set(path, "messages[%zu]", i);
    if (!json_is_object(message))
        return gm_fail(err, GM_E_ARG, 0, "messages[%zu] is not an object", i);
    GM_TRY(read_role(message, i, &r, path, err));
    GM_TRY(check_fields(message, i, path, err));
    gm_strbuf_clear(text);
    GM_TRY(read_content(message, r, i, text, path, err));
    GM_TRY(gm_strbuf_status(text, err));
    gm_path_set(path, "messages[%zu]", i);
    if (r == ASSISTANT && (t->n == 0 || t->turns[t->n - 1].role == SYSTEM)) {
        return gm_fail(err, GM_E_ARG, 0,
                       "messages[%zu] is an assistant's, expected a user's before it", i);
    }
    if (r == USER) flush_later(t);
    gm_strbuf *const to = place_for(t, r);
    join(to, gm_strbuf_str(text));
    return gm_strbuf_status(to, err);
}

static gm_status read_messages(const json_t *messages, talk *t, gm_path *path, gm_err *err)
{
    gm_strbuf text = {0};
    gm_status status = GM_OK;
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        if (status == GM_OK) status = read_message(t, message, i, &text, path, err);
    }
    flush_later(t);
    gm_strbuf_deinit(&text);
    if (status != GM_OK) return status;
    gm_path_set(path, "messages");
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

gm_status gm_messages_encode(const gm_model *m, const json_t *messages, gm_ids *out, gm_path *path,
                             gm_err *err)
{
    const size_t n = json_array_size(messages);
    gm_path_set(path, "messages");
    if (n == 0) {
        return gm_fail(err, GM_E_ARG, 0, "messages is %s, expected an array with at least one",
                       !messages                 ? "missing"
                       : json_is_array(messages) ? "empty"
                                                 : "not an array");
    }
    talk t = {0};
    GM_TRY(gm_mem_alloc(&t.turns, n + 1, sizeof *t.turns, "messages", err));
    gm_status status = read_messages(messages, &t, path, err);
    if (status == GM_OK) status = encode(m, &t, out, err);
    for (size_t i = 0; i < t.n; i++)
        gm_strbuf_deinit(&t.turns[i].text);
    gm_strbuf_deinit(&t.later);
    gm_mem_free(t.turns);
    return status;
}
