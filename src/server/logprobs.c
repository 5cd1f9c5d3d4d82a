/* SPDX-License-Identifier: MIT */
#include "server/logprobs.h"

#include "base/mem.h"

void gm_logprobs_hold(gm_logprobs *l, size_t at)
{
    gm_strbuf *const first = &l->list[0];
    if (first->failed) return;
    first->failed = gm_mem_grow(&l->marks, &l->cap_marks, l->n_marks + 1, sizeof *l->marks,
                                "log-probabilities", NULL);
    if (first->failed) return;
    gm_logprobs_mark *const m = &l->marks[l->n_marks++];
    m->at = at;
    for (size_t i = 0; i < GM_LOGPROBS_LISTS; i++)
        m->len[i] = l->list[i].len;
}

void gm_logprobs_let_out(gm_logprobs *l, size_t n_out)
{
    size_t n = 0;
    while (n < l->n_marks && l->marks[n].at < n_out)
        n++;
    if (n == 0) return;
    l->n_marks -= n;
    memmove(l->marks, l->marks + n, l->n_marks * sizeof *l->marks);
}

/* Bytes of a list that are out. */
static size_t out_len(const gm_logprobs *l, size_t i)
{
    return l->n_marks ? l->marks[0].len[i] : l->list[i].len;
}

gm_str gm_logprobs_list(const gm_logprobs *l, size_t i)
{
    const size_t len = out_len(l, i);
    return len ? (gm_str){l->list[i].p, len - 1} : GM_STR("");
}

bool gm_logprobs_any(const gm_logprobs *l)
{
    return out_len(l, 0) > 0;
}

void gm_logprobs_sent(gm_logprobs *l)
{
    for (size_t i = 0; i < GM_LOGPROBS_LISTS; i++) {
        const size_t gone = out_len(l, i);
        gm_strbuf *const list = &l->list[i];
        if (gone == 0) continue;
        list->len -= gone;
        memmove(list->p, list->p + gone, list->len);
        for (size_t k = 0; k < l->n_marks; k++)
            l->marks[k].len[i] -= gone;
    }
}

size_t gm_logprobs_size(const gm_logprobs *l)
{
    size_t size = l->n_marks * sizeof *l->marks;
    for (size_t i = 0; i < GM_LOGPROBS_LISTS; i++)
        size += l->list[i].len;
    return size;
}

bool gm_logprobs_failed(const gm_logprobs *l)
{
    for (size_t i = 0; i < GM_LOGPROBS_LISTS; i++) {
        if (l->list[i].failed) return true;
    }
    return false;
}

void gm_logprobs_deinit(gm_logprobs *l)
{
    for (size_t i = 0; i < GM_LOGPROBS_LISTS; i++)
        gm_strbuf_deinit(&l->list[i]);
    gm_mem_free(l->marks);
    *l = (gm_logprobs){0};
}
