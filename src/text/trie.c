/* SPDX-License-Identifier: MIT */
#include "text/trie.h"

#include "base/mem.h"

/* One byte of one or more strings. Node 0 stands for "none", so that all-zero is empty. */
struct gm_trie_node {
    int32_t child, sibling;
    int32_t id;
    uint8_t byte;
    uint8_t kind;
    bool ends; /* a string ends here: id and kind are its own */
};

/* The node of byte in the list that begins at first, 0 for none. */
static int32_t sibling_find(const gm_trie *t, int32_t first, uint8_t byte)
{
    int32_t at = first;
    while (at && t->node[at].byte != byte)
        at = t->node[at].sibling;
    return at;
}

/* The node below parent (0: the root) for byte, made where it is missing. */
static gm_status child_take(gm_trie *t, int32_t parent, uint8_t byte, int32_t *out, gm_err *err)
{
    const int32_t first = parent ? t->node[parent].child : t->root[byte];
    *out = sibling_find(t, first, byte);
    if (*out) return GM_OK;
    const size_t at = t->n ? t->n : 1;
    if (at >= INT32_MAX) {
        return gm_fail(err, GM_E_TOOBIG, 0, "tokenizer: special pieces hold over %d bytes",
                       INT32_MAX);
    }
    GM_TRY(gm_mem_grow(&t->node, &t->cap, at + 1, sizeof *t->node, "special pieces", err));
    t->node[at] = (gm_trie_node){.sibling = first, .byte = byte};
    t->n = at + 1;
    *out = (int32_t)at;
    if (parent)
        t->node[parent].child = *out;
    else
        t->root[byte] = *out;
    return GM_OK;
}

gm_status gm_trie_add(gm_trie *t, gm_str key, int32_t id, uint32_t kind, gm_err *err)
{
    int32_t at = 0;
    for (size_t i = 0; i < key.len; i++)
        GM_TRY(child_take(t, at, (uint8_t)key.p[i], &at, err));
    if (at == 0 || t->node[at].ends) return GM_OK;
    t->node[at].ends = true;
    t->node[at].id = id;
    t->node[at].kind = (uint8_t)kind;
    return GM_OK;
}

int32_t gm_trie_match(const gm_trie *t, gm_str text, uint32_t kinds, size_t *len)
{
    int32_t id = -1;
    *len = 0;
    int32_t at = text.len ? t->root[(uint8_t)text.p[0]] : 0;
    for (size_t i = 1; at; i++) {
        const gm_trie_node *const node = &t->node[at];
        if (node->ends && (kinds >> node->kind & 1)) {
            id = node->id;
            *len = i;
        }
        at = i < text.len ? sibling_find(t, node->child, (uint8_t)text.p[i]) : 0;
    }
    return id;
}

void gm_trie_deinit(gm_trie *t)
{
    gm_mem_free(t->node);
    *t = (gm_trie){0};
}
