/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_MESSAGES_H
#define GM_SERVER_MESSAGES_H

/* OpenAI's messages to Gemma's turns. Gemma knows user and model, taking turns; so
 * neighbours of one role become one turn with a blank line between, the text of a
 * system (or developer) message comes before the user turn that follows, and where
 * none follows it is a user turn itself. */

#include <jansson.h>

#include "server/fields.h"

/* Appends the ids of a conversation; NULL messages are refused like any that are wrong. On failure
 * *path is that of what is wrong. */
gm_status gm_messages_encode(const gm_model *m, const json_t *messages, gm_ids *out, gm_path *path,
                             gm_err *err);

#endif
