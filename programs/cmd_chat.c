/* SPDX-License-Identifier: MIT */
/* A conversation: a message, its answer, and so on to the end of input. The whole of
 * it is encoded for every answer, since the newlines of the chat format and of a
 * message may be one token together. What was not answered is taken back: a message
 * that does not fit, and one whose answer was stopped before its first character.
 *
 * messages[0] has its place always and is the system message, which is left out where
 * it is empty; user and assistant take turns behind it. */

#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "console.h"
#include "hint.h"
#include "interrupt.h"
#include "sampling.h"
#include "session.h"

typedef struct talk_args {
    const char *system;
    bool no_history;
} talk_args;

typedef struct chat_opts {
    gm_model_args model;
    gm_engine_args engine;
    talk_args talk;
    gm_sampling_args sampling;
    gm_end_args end;
    gm_general_args general;
} chat_opts;

static const gm_argrow talk_rows[] = {
    {.name = "system",
     .value = "TEXT",
     .kind = GM_ARG_TEXT,
     .offset = offsetof(talk_args, system),
     .help = "instructions that come before the conversation;\n"
             "/system changes them"},
    {.name = "no-history",
     .kind = GM_ARG_FLAG,
     .offset = offsetof(talk_args, no_history),
     .help = "do not keep what is typed for the next time"},
    {0},
};

static const gm_arggroup groups[] = {
    {"Model", gm_model_rows, offsetof(chat_opts, model)},
    {"Engine", gm_engine_rows, offsetof(chat_opts, engine)},
    {"Conversation", talk_rows, offsetof(chat_opts, talk)},
    {"How tokens are drawn", gm_sampling_rows, offsetof(chat_opts, sampling)},
    {"Where an answer ends", gm_end_rows, offsetof(chat_opts, end)},
    {"Output", gm_general_rows, offsetof(chat_opts, general)},
    {0},
};

/* ---- the conversation ------------------------------------------------------------------ */

typedef struct chat {
    const chat_opts *opts;
    gm_session session;
    gm_console console;
    gm_message *messages; /* their texts are owned */
    size_t n_messages;
    gm_answer last;          /* that was kept; without its text     */
    uint64_t n_answer, seed; /* tokens of all answers that were kept */
    bool quit;
} chat;

static char *copy_text(const char *text, size_t len)
{
    char *const copy = gm_need(malloc(len + 1));
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

static void messages_add(chat *c, const char *role, const char *text, size_t len)
{
    c->messages = gm_need(reallocarray(c->messages, c->n_messages + 1, sizeof *c->messages));
    c->messages[c->n_messages++] = (gm_message){role, copy_text(text, len), len};
}

static void messages_cut(chat *c, size_t n)
{
    while (c->n_messages > n)
        free((void *)c->messages[--c->n_messages].text);
}

/* Begins anew. A seed of nobody's choice is drawn again, so that the same question may get another
 * answer. */
static int conversation_begin(chat *c, const char *system)
{
    messages_cut(c, 0);
    messages_add(c, "system", system, strlen(system));
    c->last = (gm_answer){0};
    c->n_answer = 0;
    return gm_sampling_args_seed(&c->opts->sampling, &c->seed);
}

static int conversation_encode(chat *c)
{
    gm_session *const s = &c->session;
    const size_t first = c->messages[0].len ? 0 : 1;
    gm_err err = {0};
    s->ids.n = 0;
    if (gm_model_chat(s->model, c->messages + first, c->n_messages - first, &s->ids, &err) != GM_OK)
        return gm_say_failed("%s", err.msg);
    const uint32_t n_ctx = gm_engine_ctx(s->engine);
    if (s->ids.n < n_ctx) return GM_EXIT_OK;
    return gm_say_failed("the conversation with this message has %zu tokens, and the context has "
                         "room for %" PRIu32 " with one to answer: the message is left out "
                         "(/reset begins anew, --ctx sets the context)",
                         s->ids.n, n_ctx - 1);
}

static gm_request_opts make_request(const chat *c)
{
    const chat_opts *const o = c->opts;
    gm_request_opts request = gm_request_opts_default(c->session.model);
    gm_sampling_args_apply(&o->sampling, &request.sampling);
    gm_end_args_apply(&o->end, &request);
    request.sampling.seed = c->seed;
    request.ids = c->session.ids.at;
    request.n_ids = c->session.ids.n;
    request.flags = o->general.verbose ? GM_REQUEST_HASH : 0;
    return request;
}

static int message_answer(chat *c, const char *text, size_t len)
{
    const size_t n_before = c->n_messages;
    gm_answer a = {.json = c->opts->general.json, .keep = true, .seed = c->seed};
    messages_add(c, "user", text, len);
    int code = conversation_encode(c);
    const gm_request_opts request = make_request(c);
    if (code == GM_EXIT_OK) code = gm_answer_stream(&a, &c->session, &request);
    if (a.end.kind == GM_EVENT_END && c->opts->general.verbose)
        gm_answer_say_facts(&a, &c->session);
    gm_answer_say_cut(&a, &c->session, "/reset begins anew, ");
    if (code == GM_EXIT_OK || (code == GM_EXIT_INTERRUPTED && a.text.len)) {
        messages_add(c, "assistant", a.text.p ? a.text.p : "", a.text.len);
        c->n_answer += a.end.n_answer;
        c->last = a;
    } else {
        messages_cut(c, n_before);
    }
    /* The terminal has shown ^C, so the next line does not begin where the answer ended. */
    if (code == GM_EXIT_INTERRUPTED && c->console.terminal && a.last == '\n') gm_out_bytes("\n", 1);
    gm_bytes_free(&a.text);
    c->last.text = (gm_bytes){0};
    return code;
}

/* ---- what begins with / ---------------------------------------------------------------- */

static int help(chat *c, const char *text);

static int reset(chat *c, const char *text)
{
    (void)text;
    char *const system = copy_text(c->messages[0].text, c->messages[0].len);
    const int code = conversation_begin(c, system);
    free(system);
    gm_say_note("the conversation begins anew");
    return code;
}

static int set_system(chat *c, const char *text)
{
    const gm_message *const now = &c->messages[0];
    if (text[0] == '\0') {
        if (now->len == 0) gm_say_note("there is no system message; /system TEXT sets one");
        if (now->len) gm_say_fact("system", "%s", now->text);
        return GM_EXIT_OK;
    }
    const bool none = strcmp(text, "-") == 0;
    gm_say_note("the conversation begins anew, with%s system message", none ? "out a" : " this");
    return conversation_begin(c, none ? "" : text);
}

static int stats(chat *c, const char *text)
{
    (void)text;
    const gm_event *const end = &c->last.end;
    gm_say_fact("answers", "%zu", (c->n_messages - 1) / 2);
    gm_say_fact("answer tokens", "%" PRIu64 " (last: %" PRIu32 ")", c->n_answer, end->n_answer);
    gm_say_fact("context", "%" PRIu32 " of %" PRIu32 " tokens", end->n_prompt + end->n_answer,
                gm_engine_ctx(c->session.engine));
    gm_say_fact("seed", "%" PRIu64, c->seed);
    gm_answer_say_speed(&c->last, &c->session);
    if (!c->opts->general.verbose) gm_say_fact("logits hash", "only with gemmule chat -v");
    return GM_EXIT_OK;
}

static int quit(chat *c, const char *text)
{
    (void)text;
    c->quit = true;
    return GM_EXIT_OK;
}

static const struct slash {
    const char *name;
    const char *value; /* what stands behind it, NULL for nothing */
    const char *help;  /* NULL: another name, not listed; these come last */
    int (*run)(chat *c, const char *text);
} slashes[] = {
    {"/help", NULL, "show this", help},
    {"/reset", NULL, "forget the conversation; the system message stays", reset},
    {"/system", " TEXT", "begin anew with this system message (- for none); alone: show it",
     set_system},
    {"/stats", NULL, "tokens, context and speed", stats},
    {"/quit", NULL, "end, as Ctrl-D does", quit},
    {"/exit", NULL, NULL, quit},
    {"/bye", NULL, NULL, quit},
    {"/?", NULL, NULL, help},
};
#define N_SLASHES (sizeof slashes / sizeof slashes[0])

static int help(chat *c, const char *text)
{
    (void)c;
    (void)text;
    for (size_t i = 0; i < N_SLASHES && slashes[i].help; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", slashes[i].name,
                 slashes[i].value ? slashes[i].value : "");
        gm_say_fact(name, "%s", slashes[i].help);
    }
    gm_say_fact("//TEXT", "%s", "send a message that begins with /");
    gm_say_fact("\\ at the end", "%s", "of a line: the message goes on in the next");
    gm_say_fact("Ctrl-C", "%s", "stop the answer; at the prompt: take back what is typed");
    return GM_EXIT_OK;
}

/* A command and, behind blanks, its text. */
static int slash_run(chat *c, const char *line)
{
    const size_t len = strcspn(line, " \t\r\n");
    const char *const text = line + len + strspn(line + len, " \t\r\n");
    for (const struct slash *s = slashes; s < slashes + N_SLASHES; s++) {
        if (strlen(s->name) != len || memcmp(s->name, line, len) != 0) continue;
        if (s->value || text[0] == '\0') return s->run(c, text);
        return gm_say_failed("%s takes nothing behind it (to send it as a message: //%.*s)",
                             s->name, (int)len - 1, line + 1);
    }
    char name[80];
    const char *names[N_SLASHES];
    for (size_t i = 0; i < N_SLASHES; i++)
        names[i] = slashes[i].name;
    snprintf(name, sizeof name, "%.*s", len < 80 ? (int)len : 79, line);
    const char *const meant = gm_hint_find(name, names, N_SLASHES);
    return gm_say_failed("there is no command %s%s%s%s (/help lists them; to send it as a message: "
                         "//%s)",
                         name, meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "",
                         name + 1);
}

/* ---- the command ----------------------------------------------------------------------- */

static int hear(chat *c, const gm_bytes *text)
{
    if (text->p[0] != '/') return message_answer(c, text->p, text->len);
    if (text->p[1] == '/') return message_answer(c, text->p + 1, text->len - 1);
    return slash_run(c, text->p);
}

/* At a terminal everything that goes wrong has been seen, and was put right or not; a pipe is told
 * at the end that something went unanswered. */
static int converse(chat *c)
{
    const bool terminal = c->console.terminal;
    gm_bytes text = {0};
    int code = GM_EXIT_OK;
    while (!c->quit && (terminal || code != GM_EXIT_INTERRUPTED)) {
        const gm_heard heard = gm_console_read(&c->console, &text);
        if (heard == GM_HEARD_END) break;
        if (heard == GM_HEARD_INTERRUPT) {
            gm_say_note("Ctrl-D or /quit ends the chat, /help shows what else there is");
            continue;
        }
        const int heard_code = heard == GM_HEARD_FAILURE ? GM_EXIT_FAILED : hear(c, &text);
        if (heard_code != GM_EXIT_OK) code = heard_code;
        if (heard == GM_HEARD_FAILURE) break;
    }
    gm_bytes_free(&text);
    return terminal ? GM_EXIT_OK : code;
}

static void greet(const chat *c)
{
    gm_say_fact("model", "%s", c->session.path);
    gm_session_say_backend(&c->session);
    gm_say_fact("context", "%" PRIu32 " tokens", gm_engine_ctx(c->session.engine));
    gm_say_fact("/help", "%s", "shows what else may be typed; Ctrl-D ends");
}

static int open_all(chat *c)
{
    const chat_opts *const o = c->opts;
    int code = gm_session_open(&c->session, &o->model);
    if (code == GM_EXIT_OK) code = gm_session_start(&c->session, &o->engine, &o->general);
    if (code == GM_EXIT_OK) code = conversation_begin(c, o->talk.system ? o->talk.system : "");
    if (code == GM_EXIT_OK) code = gm_console_open(&c->console, !o->talk.no_history);
    if (code != GM_EXIT_OK || !c->console.terminal) return code;
    gm_interrupt_survive();
    greet(c);
    return code;
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    chat c = {.opts = opts};
    int code = gm_end_args_check(self, &c.opts->end);
    if (code == GM_EXIT_OK) code = gm_engine_args_check(self, &c.opts->engine);
    if (code == GM_EXIT_OK)
        code = gm_args_no_words(self, words,
                                "messages are typed or piped, and a model goes behind -m");
    if (code == GM_EXIT_OK) code = open_all(&c);
    if (code == GM_EXIT_OK) code = converse(&c);
    gm_console_close(&c.console);
    messages_cut(&c, 0);
    free(c.messages);
    gm_session_close(&c.session);
    return code;
}

const gm_command gm_cmd_chat = {
    .name = "chat",
    .summary = "have a conversation",
    .words = "[< MESSAGES]",
    .about =
        "Each line is a message; one that ends in a backslash goes on in the next, and so does\n"
        "pasted text. Lines that begin with / are commands: /help lists them. At a terminal "
        "Ctrl-C\n"
        "stops the answer, and Ctrl-D ends. What is typed there is kept for the arrow keys in\n"
        "$XDG_STATE_HOME/gemmule/history, or ~/.local/state/gemmule/history.\n"
        "From a pipe or a file the lines are answered one after the other, without a prompt.\n"
        "Standard output has the answers, each with a newline behind it; everything else goes to\n"
        "standard error. Ctrl-C ends the program then; the exit status is 1 if a line was "
        "refused.\n"
        "--json prints each answer as gemmule run does.",
    .examples = "printf 'Hello\\nTell me a story\\n' | gemmule chat --max-tokens 50\n"
                "gemmule chat --system \"Be brief\" --max-tokens 50",
    .groups = groups,
    .opts_size = sizeof(chat_opts),
    .run = run,
};
