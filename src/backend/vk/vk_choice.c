/* SPDX-License-Identifier: MIT */
/* Choices are texts: what is computed, and the kernel and constants that were fastest. A text that
 * names nothing here any more is never found, so nothing of a file is trusted to be a constant of a
 * kernel; what is looked for is what this build could try. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/hash.h"
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

uint64_t gm_vk_plan_hash(const gm_plan *p, uint64_t seed)
{
    uint64_t hash = seed;
    for (size_t i = 0; i < p->n_ops; i++) {
        const gm_op *const op = &p->ops[i];
        for (uint32_t k = 0; k < gm_op_products(op); k++) {
            const gm_tensor *const w = &p->weights.at[op->weight[k]];
            const uint64_t shape[] = {op->kind, w->type->id, gm_tensor_rows(w), gm_tensor_cols(w),
                                      op->num.act[k]};
            hash = gm_hash(shape, sizeof shape, hash);
        }
    }
    return hash;
}

#define OF_PLAN GM_VK_FLOW ", plan "

void gm_vk_flow_name(const gm_plan *p, char name[GM_VK_NAME])
{
    snprintf(name, GM_VK_NAME, OF_PLAN "%016" PRIx64, gm_vk_plan_hash(p, 0));
}

static bool is_flow_name(const char *name)
{
    const size_t len = sizeof OF_PLAN - 1;
    if (strcmp(name, GM_VK_FLOW) == 0) return true;
    return strncmp(name, OF_PLAN, len) == 0 && strlen(name + len) == 16 &&
           strspn(name + len, "0123456789abcdef") == 16;
}

bool gm_vk_choices_flow(const gm_vk_choices *c, const gm_plan *p)
{
    char name[GM_VK_NAME];
    gm_vk_flow_name(p, name);
    const gm_vk_choice *known = gm_vk_choices_find(c, name);
    if (!known) known = gm_vk_choices_find(c, GM_VK_FLOW);
    return known && strcmp(known->way, GM_VK_FLOW_ON) == 0;
}

static bool is_of_plan(const gm_vk_product *product, const gm_plan *p)
{
    for (uint32_t i = 0; i < p->weights.n; i++) {
        const gm_tensor *const w = &p->weights.at[i];
        if (w->n_dims == 2 && w->type->id == product->type &&
            gm_tensor_rows(w) == product->n_rows &&
            gm_tensor_cols(w) == (uint64_t)product->n_blocks * GM_VK_BLOCK)
            return true;
    }
    return false;
}

bool gm_vk_choices_concern(const gm_vk_choices *c, const gm_plan *p)
{
    char flow[GM_VK_NAME];
    gm_vk_product product;
    bool concern = gm_vk_choices_find(c, GM_VK_FLOW) != NULL;
    gm_vk_flow_name(p, flow);
    for (size_t i = 0; i < c->n && !concern; i++)
        concern = strcmp(c->at[i].what, flow) == 0 ||
                  (gm_vk_product_parse(c->at[i].what, &product) && is_of_plan(&product, p));
    return concern;
}

void gm_vk_choices_remove(gm_vk_choices *c, const char *what)
{
    size_t i = 0;
    while (i < c->n && strcmp(c->at[i].what, what) != 0)
        i++;
    if (i < c->n) memmove(&c->at[i], &c->at[i + 1], (--c->n - i) * sizeof *c->at);
}

gm_status gm_vk_choices_put(gm_vk_choices *c, const gm_vk_choice *one, gm_err *err)
{
    gm_vk_choices_remove(c, one->what);
    if (c->n == GM_VK_CHOICES) gm_vk_choices_remove(c, c->at[0].what); /* the oldest goes */
    GM_TRY(gm_mem_grow(&c->at, &c->cap, c->n + 1, sizeof *c->at, "choices", err));
    c->at[c->n] = *one;
    c->at[c->n++].pass = c->pass;
    return GM_OK;
}

gm_status gm_vk_choices_forget(gm_backend *be, gm_err *err)
{
    be->choices.n = 0;
    return gm_vk_kept_remove(be, ENDING, err);
}

/* ---- the file: a line a choice, of fields with tabs between them ------------------------------ */

gm_status gm_vk_choices_write(gm_backend *be, gm_err *err)
{
    gm_strbuf text = {0};
    for (size_t i = 0; i < be->choices.n; i++) {
        const gm_vk_choice *const c = &be->choices.at[i];
        gm_strbuf_printf(&text, "%s\t%s\t%.3f\t%.3f\n", c->what, c->way, c->us, c->usual_us);
    }
    gm_status status = gm_strbuf_status(&text, err);
    if (status == GM_OK) status = gm_vk_kept_write(be, ENDING, text.p, text.len, err);
    gm_strbuf_deinit(&text);
    return status;
}

/* Copies up to the next tab, or the line's end, and goes behind it; false where nothing is there, or
 * too much. */
static bool take_field(const char **at, const char *end, char *to, size_t cap)
{
    const char *const tab = memchr(*at, '\t', (size_t)(end - *at));
    const size_t len = (size_t)((tab ? tab : end) - *at);
    if (len == 0 || len >= cap) return false;
    memcpy(to, *at, len);
    to[len] = '\0';
    *at += len + (tab != NULL);
    return true;
}

static bool take_time(const char **at, const char *end, double *us)
{
    char text[32], *rest = text;
    if (!take_field(at, end, text, sizeof text)) return false;
    *us = strtod(text, &rest);
    return *rest == '\0' && isfinite(*us) && *us >= 0;
}

/* Times may be missing: they are for people. */
static bool take_line(const char *at, const char *end, gm_vk_choice *c)
{
    return take_field(&at, end, c->what, sizeof c->what) &&
           take_field(&at, end, c->way, sizeof c->way) &&
           (at == end || (take_time(&at, end, &c->us) && take_time(&at, end, &c->usual_us))) &&
           at == end;
}

static const char *line_end(const char *at, const char *end)
{
    const char *const found = memchr(at, '\n', (size_t)(end - at));
    return found ? found : end;
}

static const char *next_line(const char *at, const char *end)
{
    const char *const stop = line_end(at, end);
    return stop < end ? stop + 1 : end;
}

void gm_vk_choices_read(gm_backend *be)
{
    gm_keptfile file = {0};
    gm_vk_kept_read(be, ENDING, &file);
    const char *at = (const char *)file.data, *const end = at ? at + file.size : NULL;
    for (; at && at < end; at = next_line(at, end)) {
        gm_vk_choice one = {0};
        /* What has no room is tried again some day. */
        if (take_line(at, line_end(at, end), &one)) gm_vk_choices_put(&be->choices, &one, NULL);
    }
    gm_keptfile_close(&file);
}

/* ---- somebody's file: the same lines ----------------------------------------------------------- */

static gm_status take_choice(gm_backend *be, const char *at, const char *end, gm_err *err)
{
    gm_vk_tuning all = be->tuning;
    gm_vk_choice one = {0};
    gm_vk_product p;
    gm_vk_cut cut;
    char usual[GM_VK_NAME];
    all.half_from = UINT32_MAX; /* what --exact would use is a way, too */
    if (!take_line(at, end, &one))
        return gm_fail(err, GM_E_FORMAT, 0,
                       "is \"%.*s\", expected a product, a tab and a kernel, as gemmule tune "
                       "--show has them",
                       (int)(end - at > 40 ? 40 : end - at), at);
    if (is_flow_name(one.what)) {
        if (strcmp(one.way, GM_VK_FLOW_ON) != 0 && strcmp(one.way, GM_VK_FLOW_OFF) != 0)
            return gm_fail(err, GM_E_FORMAT, 0, "says that %s \"%.40s\", expected \"%s\" or \"%s\"",
                           GM_VK_FLOW, one.way, GM_VK_FLOW_ON, GM_VK_FLOW_OFF);
        return gm_vk_choices_put(&be->choices, &one, err);
    }
    if (!gm_vk_product_parse(one.what, &p))
        return gm_fail(err, GM_E_FORMAT, 0,
                       "has a product \"%.60s\", expected one like \"q4_0 640x1024, 1 rows\"",
                       one.what);
    if (gm_vk_cut_find(&all, &p, one.way, &cut)) return gm_vk_choices_put(&be->choices, &one, err);
    gm_vk_cut_product(&all, &p, &cut);
    gm_vk_cut_name(&cut, usual);
    return gm_fail(err, GM_E_FORMAT, 0,
                   "has a kernel \"%.40s\", expected one that this device has for such a product, "
                   "like %.60s",
                   one.way, usual);
}

gm_status gm_vk_choices_load(gm_backend *be, const char *path, gm_err *err)
{
    gm_mapfile file = {0};
    gm_err why = {0};
    gm_status status = GM_OK;
    snprintf(be->choices.given, sizeof be->choices.given, "%s", path);
    GM_TRY(gm_mapfile_open(&file, path, err));
    const char *at = (const char *)file.data, *const end = at ? at + file.size : NULL;
    for (uint32_t n = 1; at && at < end && status == GM_OK; n++, at = next_line(at, end)) {
        const char *stop = line_end(at, end);
        if (stop > at && stop[-1] == '\r') stop--;
        if (stop == at || *at == '#') continue;
        status = be->choices.n < GM_VK_CHOICES
                     ? take_choice(be, at, stop, &why)
                     : gm_fail(&why, GM_E_FORMAT, 0, "is one more than the %d that are possible",
                               GM_VK_CHOICES);
        if (status != GM_OK) gm_fail(err, status, 0, "%s: line %" PRIu32 " %s", path, n, why.msg);
    }
    gm_mapfile_close(&file);
    return status;
}
