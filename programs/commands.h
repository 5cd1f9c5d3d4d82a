/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_COMMANDS_H
#define GM_PROGRAMS_COMMANDS_H

/* The commands: each is a row of tables and a function in its own cmd_*.c. */

#include "args.h"

extern const gm_command gm_cmd_run;
extern const gm_command gm_cmd_chat;
extern const gm_command gm_cmd_bench;
extern const gm_command gm_cmd_devices;
extern const gm_command gm_cmd_selftest;
extern const gm_command gm_cmd_tune;
extern const gm_command gm_cmd_serve;
extern const gm_command gm_cmd_top;
extern const gm_command gm_cmd_inspect;
extern const gm_command gm_cmd_tokenize;
extern const gm_command gm_cmd_logits;
extern const gm_command gm_cmd_convert;
extern const gm_command gm_cmd_compare;
extern const gm_command gm_cmd_synth;

#endif
