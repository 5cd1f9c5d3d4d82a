/* SPDX-License-Identifier: MIT */
/* Choices are texts: what is computed, and the kernel and constants that were fastest. A text that
 * names nothing here any more is never found, so nothing of a file is trusted to be a constant of a
 * kernel; what is looked for is what this build could try. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/mem.h"
#include "base/strbuf.h"

#define ENDING "tuning"

const gm_vk_choice *gm_vk_choices_find(const gm_vk_choices *c, const char *what)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->at[i].what, what) == 0) return &c->at[i];
    }
    return NULL;
}

gm_status gm_vk_choices_put(gm_vk_choices *c, const gm_vk_choice *one, gm_err *err)
{
    size_t i = 0;
    while (i < c->n && strcmp(c->at[i].what, one->what) != 0)
        i++;
    if (i == GM_VK_CHOICES) i = 0; /* the oldest goes */
    if (i < c->n) memmove(&c->at[i], &c->at[i + 1], (--c->n - i) * sizeof *c->at);
    GM_TRY(gm_mem_grow(&c->at, &c->cap, c->n + 1, sizeof *c->at, "choices", err));
    c->at[c->n] = *one;
    c->at[c->n++].pass = c->pass;
    return GM_OK;
}

void gm_vk_choices_forget(gm_backend *be)
{
    be->choices.n = 0;
    gm_vk_kept_remove(be, ENDING);
}

/* ---- the file: a line a choice, of fields with tabs between them ------------------------------ */

void gm_vk_choices_write(gm_backend *be)
{
    gm_strbuf text = {0};
    for (size_t i = 0; i < be->choices.n; i++) {
        const gm_vk_choice *const c = &be->choices.at[i];
        gm_strbuf_printf(&text, "%s\t%s\t%.3f\t%.3f\n", c->what, c->way, c->us, c->usual_us);
    }
    if (gm_strbuf_status(&text, NULL) == GM_OK) gm_vk_kept_write(be, ENDING, text.p, text.len);
    gm_strbuf_deinit(&text);
}

/* Copies up to the next of `end`, and answers what is behind it; NULL where it does not fit. */
static const char *take_field(const char *at, const char *all_end, char end, char *to, size_t cap)
{
    const char *const stop = memchr(at, end, (size_t)(all_end - at));
    if (!stop || (size_t)(stop - at) >= cap) return NULL;
    memcpy(to, at, (size_t)(stop - at));
    to[stop - at] = '\0';
    return stop + 1;
}

static const char *take_line(const char *at, const char *end, gm_vk_choice *c)
{
    char us[32], usual[32];
    at = take_field(at, end, '\t', c->what, sizeof c->what);
    if (at) at = take_field(at, end, '\t', c->way, sizeof c->way);
    if (at) at = take_field(at, end, '\t', us, sizeof us);
    if (at) at = take_field(at, end, '\n', usual, sizeof usual);
    if (!at) return NULL;
    c->us = strtod(us, NULL);
    c->usual_us = strtod(usual, NULL);
    return at;
}

void gm_vk_choices_read(gm_backend *be)
{
    gm_keptfile file = {0};
    gm_vk_kept_read(be, ENDING, &file);
    const char *at = (const char *)file.data, *const end = at ? at + file.size : NULL;
    while (at && at < end) {
        gm_vk_choice one = {0};
        at = take_line(at, end, &one);
        /* What has no room is tried again some day. */
        if (at && gm_vk_choices_put(&be->choices, &one, NULL) != GM_OK) at = NULL;
    }
    gm_keptfile_close(&file);
}
