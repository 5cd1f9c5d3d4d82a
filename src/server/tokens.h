/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_TOKENS_H
#define GM_SERVER_TOKENS_H

/* Token ids in JSON. */

#include <jansson.h>

#include "gemmule.h"

/* Appends the ids of an array; `name` is the field's, for the sentence. */
gm_status gm_tokens_read(const json_t *array, gm_ids *out, const char *name, gm_err *err);

#endif
