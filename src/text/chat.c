/* SPDX-License-Identifier: MIT */
#include "text/chat.h"

#include "base/strbuf.h"
#include "base/utf8.h"

typedef enum chat_role { ROLE_NONE, ROLE_SYSTEM, ROLE_USER, ROLE_MODEL } chat_role;

static chat_role role_parse(const char *name)
{
    static const struct {
        const char *name;
        chat_role role;
    } ROLES[] = {
        {"system", ROLE_SYSTEM},   {"developer", ROLE_SYSTEM}, {"user", ROLE_USER},
        {"assistant", ROLE_MODEL}, {"model", ROLE_MODEL},
    };
    for (size_t i = 0; name && i < sizeof ROLES / sizeof ROLES[0]; i++) {
        if (strcmp(name, ROLES[i].name) == 0) return ROLES[i].role;
    }
    return ROLE_NONE;
}

/* The order that the template asks for: system or nothing, then user, assistant, ... user. */
static gm_status order_check(const gm_message *messages, size_t n, gm_err *err)
{
    chat_role before = ROLE_NONE;
    for (size_t i = 0; i < n; i++) {
        const char *const name = messages[i].role ? messages[i].role : "";
        const chat_role role = role_parse(name);
        const chat_role expected = before == ROLE_USER ? ROLE_MODEL : ROLE_USER;
        if (role == ROLE_NONE) {
            return gm_fail(err, GM_E_ARG, 0,
                           "chat: message %zu has the role \"%.80s\", expected system, user or "
                           "assistant",
                           i + 1, name);
        }
        if (role != expected && (role != ROLE_SYSTEM || i != 0)) {
            return gm_fail(err, GM_E_ARG, 0,
                           "chat: message %zu is from %s, expected %s: a system message may only "
                           "come first, then user and assistant take turns",
                           i + 1, name, expected == ROLE_USER ? "user" : "assistant");
        }
        before = role;
    }
    if (before == ROLE_USER) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0,
                   "chat: %zu messages and the last is from %s, expected a user message at the end",
                   n, n ? messages[n - 1].role : "nobody");
}

/* What Python's str.strip takes off, which is what the template's trim does. */
static bool is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

/* Bytes of the white space character that s begins with, 0 for none. */
static size_t space_first(gm_str s)
{
    uint32_t cp = 0;
    const size_t len = gm_utf8_read(s.p, s.len, &cp);
    return len && is_space(cp) ? len : 0;
}

/* The same for the one that s ends with; white space is at most three bytes long. */
static size_t space_last(gm_str s)
{
    for (size_t len = 1; len <= 3 && len <= s.len; len++) {
        if (space_first((gm_str){s.p + s.len - len, len}) == len) return len;
    }
    return 0;
}

static gm_str trim(gm_str s)
{
    for (size_t len = space_first(s); len; len = space_first(s))
        s = (gm_str){s.p + len, s.len - len};
    for (size_t len = space_last(s); len; len = space_last(s))
        s.len -= len;
    return s;
}

/* One turn. What stands between two control tokens is tokenised as one text, because newlines of
 * the format and of the message together may be one token. */
static gm_status turn_encode(const gm_vocab *v, const gm_message *system, const gm_message *m,
                             gm_ids *out, gm_err *err)
{
    const gm_vocab_ids *const special = gm_vocab_special(v);
    gm_strbuf text = {0};
    gm_strbuf_put(&text, role_parse(m->role) == ROLE_MODEL ? GM_STR("model\n") : GM_STR("user\n"));
    if (system) {
        gm_strbuf_put(&text, (gm_str){system->text, system->len});
        gm_strbuf_put(&text, GM_STR("\n\n"));
    }
    gm_strbuf_put(&text, trim((gm_str){m->text, m->len}));
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_strbuf_status(&text, err));
    GM_TRY_DONE(gm_ids_push(out, special->start_of_turn, err));
    GM_TRY_DONE(gm_tokenizer_encode(v, gm_strbuf_str(&text), 0, out, err));
    GM_TRY_DONE(gm_ids_push(out, special->end_of_turn, err));
    GM_TRY_DONE(gm_tokenizer_encode(v, GM_STR("\n"), 0, out, err));
done:
    gm_strbuf_deinit(&text);
    return status;
}

static gm_status chat_encode(const gm_vocab *v, const gm_message *messages, size_t n, gm_ids *out,
                             gm_err *err)
{
    const gm_message *system = role_parse(messages[0].role) == ROLE_SYSTEM ? &messages[0] : NULL;
    GM_TRY(gm_ids_push(out, gm_vocab_special(v)->bos, err));
    for (size_t i = system ? 1 : 0; i < n; i++) {
        GM_TRY(turn_encode(v, system, &messages[i], out, err));
        system = NULL;
    }
    GM_TRY(gm_ids_push(out, gm_vocab_special(v)->start_of_turn, err));
    return gm_tokenizer_encode(v, GM_STR("model\n"), 0, out, err);
}

gm_status gm_chat_encode(const gm_vocab *v, const gm_message *messages, size_t n, gm_ids *out,
                         gm_err *err)
{
    const gm_vocab_ids *const special = gm_vocab_special(v);
    if (special->bos == GM_NO_TOKEN || special->start_of_turn == GM_NO_TOKEN ||
        special->end_of_turn == GM_NO_TOKEN) {
        return gm_fail(err, GM_E_UNSUP, 0,
                       "chat: the vocabulary lacks one of <bos>, <start_of_turn> and "
                       "<end_of_turn>, which the chat format needs");
    }
    GM_TRY(order_check(messages, n, err));
    const size_t n_before = out->n;
    const gm_status status = chat_encode(v, messages, n, out, err);
    if (status != GM_OK) out->n = n_before;
    return status;
}
