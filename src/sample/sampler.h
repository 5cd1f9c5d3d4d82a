/* SPDX-License-Identifier: MIT */
#ifndef GM_SAMPLE_SAMPLER_H
#define GM_SAMPLE_SAMPLER_H

/* A request's sampling options, checked and turned into the draw's parameters. */

#include "plan/draw.h"

#define GM_SAMPLER_MAX_BIAS  1024                      /* biases of one request               */
#define GM_SAMPLER_SLOT_BIAS (GM_SAMPLER_MAX_BIAS + 3) /* with those of tokens that end answers */

/* Refuses, with a sentence, what the law of draw.h has no meaning for. */
gm_status gm_sampler_read(const gm_sampling *s, uint32_t n_vocab, gm_draw *out, gm_err *err);

#endif
