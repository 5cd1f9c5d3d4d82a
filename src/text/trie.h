/* SPDX-License-Identifier: MIT */
#ifndef GM_TEXT_TRIE_H
#define GM_TEXT_TRIE_H

/* A set of byte strings that finds the longest one a text begins with. Each
 * string has an id and a kind, 0 to 31; a search names the kinds it wants. Built
 * once and then only read, by any thread. All-zero is a valid empty one. */

#include "base/status.h"
#include "base/str.h"

typedef struct gm_trie_node gm_trie_node;

typedef struct gm_trie {
    gm_trie_node *node;
    size_t n, cap;
    int32_t root[256]; /* by first byte: a node, 0 for none */
} gm_trie;

/* Adds a string; of equal strings the first one stays. The empty string is never found. */
gm_status gm_trie_add(gm_trie *t, gm_str key, int32_t id, uint32_t kind, gm_err *err);

/* The id of the longest string that text begins with and whose kind is a bit of kinds, and its
 * length; -1 and 0 for none. */
int32_t gm_trie_match(const gm_trie *t, gm_str text, uint32_t kinds, size_t *len);

void gm_trie_deinit(gm_trie *t);

#endif
