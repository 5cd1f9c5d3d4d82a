/* SPDX-License-Identifier: MIT */
/* libedit reads the terminal in this thread. At the prompt Ctrl-C is a key like any
 * other: the terminal is told not to make a signal of it, so nothing has to break off
 * a read. As soon as the line is there libedit puts the terminal back, and Ctrl-C is
 * the signal that interrupt.c waits for. Ctrl-Z and a changed window size stay
 * signals, which libedit handles.
 *
 * A terminal that is asked to ("bracketed paste") puts a mark before and after what is
 * pasted. The mark is bound as a key; the newlines up to the other mark become part of
 * the line and do not send it. */

#include "console.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "args.h"

/* More than any context has room for; stops the endless files of /dev. */
#define LINE_BYTES_MAX (64u << 20)

#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN "\\e[200~"
#define PASTE_END   L"\033[201~"

/* ---- keys ------------------------------------------------------------------------------ */

static gm_console *console_of(EditLine *el)
{
    gm_console *c = NULL;
    el_get(el, EL_CLIENTDATA, &c);
    return c;
}

static char *prompt(EditLine *el)
{
    static char first[] = "> ", further[] = ". ";
    return console_of(el)->going_on ? further : first;
}

/* The newline that is pushed ends the line as Enter would, with the cursor below all of it. */
static unsigned char key_interrupt(EditLine *el, wint_t key)
{
    (void)key;
    console_of(el)->interrupted = true;
    el_push(el, "\n");
    return CC_NORM;
}

static unsigned char key_paste(EditLine *el, wint_t key)
{
    (void)key;
    const size_t end_len = wcslen(PASTE_END);
    gm_bytes text = {0};
    wchar_t one = 0;
    bool ended = false;
    while (!ended && el_wgetc(el, &one) == 1) {
        one = one == L'\r' ? L'\n' : one;
        gm_bytes_put(&text, (const char *)&one, sizeof one);
        const size_t n = text.len / sizeof one;
        const wchar_t *const at = (const void *)text.p;
        ended = n >= end_len && wmemcmp(at + n - end_len, PASTE_END, end_len) == 0;
    }
    if (ended) text.len -= end_len * sizeof one;
    gm_bytes_put(&text, (const char *)L"", sizeof one);
    const bool fits = el_winsertstr(el, (const void *)text.p) == 0 || text.len == sizeof one;
    gm_bytes_free(&text);
    return fits ? CC_REFRESH : CC_REFRESH_BEEP;
}

/* What people expect of these keys and libedit has elsewhere; ~/.editrc comes after them. */
static const char *const expected_keys[][2] = {
    {"^I", "ed-insert"},
    {"^R", "em-inc-search-prev"},
    {"^W", "ed-delete-prev-word"},
};

/* ---- a terminal ------------------------------------------------------------------------ */

static void set_keys(gm_console *c)
{
    EditLine *const el = c->editor;
    el_set(el, EL_EDITOR, "emacs");
    for (size_t i = 0; i < sizeof expected_keys / sizeof expected_keys[0]; i++)
        el_set(el, EL_BIND, expected_keys[i][0], expected_keys[i][1], NULL);
    el_source(el, NULL);

    /* libedit forgets such a setting unless it is made while the terminal is prepared. */
    el_set(el, EL_PREP_TERM, 1);
    el_set(el, EL_SETTY, "-d", "intr=", NULL);
    el_set(el, EL_PREP_TERM, 0);
    el_wset(el, EL_ADDFN, L"gm-interrupt", L"Take back what was typed", key_interrupt);
    el_wset(el, EL_ADDFN, L"gm-paste", L"Take in what is pasted", key_paste);
    el_set(el, EL_BIND, "^C", "gm-interrupt", NULL);
    el_set(el, EL_BIND, "-a", "^C", "gm-interrupt", NULL);

    /* With vi's keys an escape cannot begin a key. */
    const char *keys = NULL, *terminal = NULL;
    el_get(el, EL_EDITOR, &keys);
    el_get(el, EL_TERMINAL, &terminal);
    c->paste = keys && strcmp(keys, "emacs") == 0 && terminal && strcmp(terminal, "dumb") != 0;
    if (c->paste) el_set(el, EL_BIND, PASTE_BEGIN, "gm-paste", NULL);
}

int gm_console_open(gm_console *c, bool in_file)
{
    c->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (!c->terminal) return GM_EXIT_OK;
    /* Messages are UTF-8, whatever the locale is. */
    if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "");
    c->editor = el_init("gemmule", stdin, stdout, stderr);
    if (!c->editor) return gm_say_failed("the terminal cannot be used to edit lines");
    gm_history_open(&c->history, in_file);
    el_set(c->editor, EL_CLIENTDATA, c);
    el_set(c->editor, EL_PROMPT, prompt);
    el_set(c->editor, EL_SIGNAL, 1);
    el_set(c->editor, EL_HIST, history, c->history.lines);
    set_keys(c);
    return GM_EXIT_OK;
}

static gm_heard terminal_line(gm_console *c, gm_bytes *out)
{
    int n = 0;
    c->interrupted = false;
    if (c->paste) gm_out_printf(PASTE_ON);
    const char *const line = el_gets(c->editor, &n);
    if (c->paste) gm_out_printf(PASTE_OFF);
    gm_out_flush();
    if (!line || n <= 0) {
        gm_out_printf("\n");
        return GM_HEARD_END;
    }
    gm_bytes_put(out, line, (size_t)n - (line[n - 1] == '\n'));
    return GM_HEARD_MESSAGE;
}

/* ---- a pipe ---------------------------------------------------------------------------- */

static gm_heard pipe_line(gm_bytes *out)
{
    const size_t before = out->len;
    errno = 0;
    int c = 0;
    for (c = getc(stdin); c != '\n' && c != EOF; c = getc(stdin)) {
        gm_bytes_put(out, &(const char){(char)c}, 1);
        if (out->len > LINE_BYTES_MAX) {
            gm_say_failed("standard input: a line of more than %u bytes is no message",
                          LINE_BYTES_MAX);
            return GM_HEARD_FAILURE;
        }
    }
    if (ferror(stdin)) {
        gm_say_failed("standard input: %s", strerror(errno));
        return GM_HEARD_FAILURE;
    }
    return c == EOF && out->len == before ? GM_HEARD_END : GM_HEARD_MESSAGE;
}

/* ---- messages -------------------------------------------------------------------------- */

static bool is_blank(const gm_bytes *text)
{
    for (size_t i = 0; i < text->len; i++) {
        if (!strchr(" \t\r\n", text->p[i]) || text->p[i] == '\0') return false;
    }
    return true;
}

/* Lines up to one that does not end in a backslash. The end of input ends the message too, and is
 * met again by the next read. */
static gm_heard message_read(gm_console *c, gm_bytes *out)
{
    out->len = 0;
    c->going_on = false;
    for (;;) {
        const gm_heard heard = c->terminal ? terminal_line(c, out) : pipe_line(out);
        if (heard == GM_HEARD_END && c->going_on) return GM_HEARD_MESSAGE;
        if (heard != GM_HEARD_MESSAGE) return heard;
        if (c->interrupted && out->len == 0) return GM_HEARD_INTERRUPT;
        if (c->interrupted) out->len = 0;
        c->going_on = out->len && out->p[out->len - 1] == '\\';
        if (!c->going_on) return GM_HEARD_MESSAGE;
        out->p[out->len - 1] = '\n';
    }
}

gm_heard gm_console_read(gm_console *c, gm_bytes *out)
{
    gm_heard heard = message_read(c, out);
    while (heard == GM_HEARD_MESSAGE && is_blank(out))
        heard = message_read(c, out);
    if (heard != GM_HEARD_MESSAGE) return heard;
    gm_bytes_put(out, "", 1);
    out->len--;
    if (c->terminal) gm_history_add(&c->history, out->p);
    return heard;
}

void gm_console_close(gm_console *c)
{
    if (c->editor) el_end(c->editor);
    gm_history_close(&c->history);
    *c = (gm_console){0};
}
