/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_SAMPLING_H
#define GM_PROGRAMS_SAMPLING_H

/* The options of the commands that answer: how tokens are drawn, and where the
 * answer ends. The rows are tables for gm_arggroup; the struct beside each is where
 * its values go. */

#include "args.h"
#include "gemmule.h"

typedef struct gm_sampling_args {
    gm_argnum temp, top_k, top_p, min_p, repeat, frequency, presence, seed;
    gm_arglist bias;
} gm_sampling_args;
extern const gm_argrow gm_sampling_rows[];

typedef struct gm_end_args {
    gm_argnum max_tokens;
    gm_arglist stop;
} gm_end_args;
extern const gm_argrow gm_end_rows[];

/* Mistakes that no row can see; answers an exit code. */
int gm_end_args_check(const gm_command *cmd, const gm_end_args *args);

/* Puts what was given over the defaults; lists are borrowed. The seed has its own function. */
void gm_sampling_args_apply(const gm_sampling_args *args, gm_sampling *s);
void gm_end_args_apply(const gm_end_args *args, gm_request_opts *request);
/* The seed that was given, else a random one; answers an exit code. */
int gm_sampling_args_seed(const gm_sampling_args *args, uint64_t *seed);

#endif
