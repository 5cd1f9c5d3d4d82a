/* SPDX-License-Identifier: MIT */
/* Memory of steps. An exec is made for each size of step, but steps run one after the other, and the
 * host is ahead by GM_TICKETS of them at most: so execs need the same memory, and the largest of them
 * has enough for all. Whoever finds nothing large enough gets memory of its own, which is why the
 * largest is best lowered first. */

#include "backend/vk/vk.h"
#include "base/mem.h"

gm_status gm_vk_share_take(gm_backend *be, gm_vk_share what, uint32_t ticket, uint64_t size,
                           gm_vk_buf *out, gm_err *err)
{
    static const struct {
        gm_vk_memkind kind;
        const char *name;
    } of[] = {
        [GM_VK_SHARE_VALUES] = {GM_VK_LOCAL, "a step's values"},
        [GM_VK_SHARE_STEP] = {GM_VK_STEP, "steps"},
        [GM_VK_SHARE_GIVEN] = {GM_VK_STAGING, "given rows"},
        [GM_VK_SHARE_RESULT] = {GM_VK_RESULT, "results"},
    };
    gm_vk_shared *s = be->shared;
    *out = (gm_vk_buf){0};
    while (s && (s->what != what || s->ticket != ticket || s->buf.size < size))
        s = s->next;
    if (!s) {
        GM_TRY(gm_mem_alloc(&s, 1, sizeof *s, of[what].name, err));
        *s = (gm_vk_shared){.next = be->shared, .what = what, .ticket = ticket};
        const gm_status status =
            gm_vk_buf_alloc(&be->dev, &s->buf, size, of[what].kind, of[what].name, err);
        if (status != GM_OK) {
            gm_mem_free(s);
            return status;
        }
        be->shared = s;
    }
    s->n_users++;
    *out = s->buf;
    return GM_OK;
}

void gm_vk_share_release(gm_backend *be, gm_vk_buf *b)
{
    gm_vk_shared **at = &be->shared;
    while (*at && (*at)->buf.buffer != b->buffer)
        at = &(*at)->next;
    gm_vk_shared *const s = *at;
    *b = (gm_vk_buf){0};
    if (!s || --s->n_users) return;
    *at = s->next;
    gm_vk_buf_free(&be->dev, &s->buf);
    gm_mem_free(s);
}
