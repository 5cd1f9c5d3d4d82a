/* SPDX-License-Identifier: MIT */
#ifndef GM_TEXT_CHAT_H
#define GM_TEXT_CHAT_H

/* Gemma 3's chat format.
 *
 *     <bos><start_of_turn>user\n{system}\n\n{text}<end_of_turn>\n<start_of_turn>model\n
 *
 * A system message has no turn of its own: its text, untrimmed, stands before
 * the first user text with a blank line between. Other texts are trimmed of
 * surrounding white space. Turns alternate user, assistant. Control tokens are
 * put as ids and every text between them is tokenised as plain text, so a
 * message can never forge one. */

#include "text/tokenizer.h"

/* Appends the ids of the conversation, ending where the model's answer begins. The last message
 * must be a user's. Roles are "user", "assistant" (also "model") and "system" (also "developer").
 * Refused with a sentence, *out as it was: no message, another role, turns that do not alternate, a
 * system message that is not first, a vocabulary without <bos> or turn tokens. */
gm_status gm_chat_encode(const gm_vocab *v, const gm_message *messages, size_t n, gm_ids *out,
                         gm_err *err);

#endif
