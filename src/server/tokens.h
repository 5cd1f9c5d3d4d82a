/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_TOKENS_H
#define GM_SERVER_TOKENS_H

/* Token ids in JSON. */

#include <jansson.h>

#include "server/fields.h"

/* Appends the ids of an array, each below n_vocab. path is the field's, and on failure that of what is
 * wrong. */
gm_status gm_tokens_read(const json_t *array, uint32_t n_vocab, gm_ids *out, gm_path *path,
                         gm_err *err);

#endif
