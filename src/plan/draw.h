/* SPDX-License-Identifier: MIT */
#ifndef GM_PLAN_DRAW_H
#define GM_PLAN_DRAW_H

/* The law by which a token is drawn from a row of logits: the same on every
 * backend, alone and in a batch, now and after a restart.
 *
 *   1. penalties   a token of the prompt or the answer: its logit l becomes l * inv_repeat if
 *                  l > 0, else l * repeat; then l - frequency * count - (count > 0) * presence,
 *                  count being how often the answer has it
 *   2. bias        l + bias of the token
 *   3. mask        tokens whose mask bit is 0 are out
 *   4. greedy      if inv_temp is 0, the largest l wins, ties to the lowest id: done
 *   5. order       tokens by l descending, then by id
 *   6. top-k       the first top_k stay
 *   7. top-p       of these the shortest beginning that has at least top_p of their weight;
 *                  a token's weight is exp((l - l_first) * inv_temp) in 2^-24ths, cut to a whole
 *                  number, and top_p is in 2^-20ths: integers, so no order of summation shows
 *   8. min-p       of these the ones with (l - l_first) * inv_temp >= log_min_p
 *   9. draw        the largest l * inv_temp + noise(seed, position, id) wins, ties to the lowest id
 *
 * NaN and -inf logits never win while any other token is left; where none is, the
 * lowest id that the mask allows wins, 0 if it allows none. Adding Gumbel
 * noise and taking the largest draws from the softmax of what stays (step 9),
 * and a speculated token is right exactly when it equals this draw. */

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Parameters of the draw as a device sees them: plain 32-bit fields, divisions already done. */
typedef struct gm_draw {
    uint32_t seed_lo, seed_hi;
    float inv_temp;            /* 1 / temperature; 0: greedy                        */
    float log_min_p;           /* natural logarithm of min_p; -INFINITY: off        */
    float repeat, inv_repeat;  /* 1: off                                            */
    float frequency, presence; /* 0: off                                            */
    uint32_t top_k;            /* 0: off                                            */
    uint32_t top_p;            /* in 2^-20ths; GM_DRAW_TOP_P_OFF or more: off       */
} gm_draw;

#define GM_DRAW_TOP_P_OFF (1u << 20)

/* What a slot remembers of a token for the penalties. */
typedef struct gm_draw_count {
    uint16_t prompt; /* times in the prompt, saturating */
    uint16_t answer; /* times in the answer, saturating */
} gm_draw_count;

/* Everything that a row's draw depends on beside the logits. */
typedef struct gm_draw_row {
    const gm_draw *draw;
    const gm_draw_count *counts; /* [n], or NULL: no penalties        */
    const gm_bias *bias;         /* [n_bias]; ids within the row      */
    uint32_t n_bias;
    const uint32_t *mask; /* [(n + 31) / 32] bits, or NULL     */
    uint32_t pos;         /* the position the token will have  */
} gm_draw_row;

/* Scratch for one row of n logits. */
typedef struct gm_draw_scratch {
    float *adjusted; /* [n] */
    uint32_t *order; /* [n] */
} gm_draw_scratch;

/* Draws one of n tokens from logits[n]; n >= 1. Allocates nothing. */
uint32_t gm_draw_token(const float *logits, uint32_t n, const gm_draw_row *row,
                       const gm_draw_scratch *scratch);

/* log(sum(exp(logits))), in float64 inside: a token's log-probability is its logit less this. */
double gm_draw_logsum(const float *logits, uint32_t n);

/* The sum by which a token has this log-probability, so that others' are of the same law, whoever
 * summed. */
double gm_draw_logsum_by(const float *logits, uint32_t n, uint32_t token, float logprob);

/* A hash of the row's bits: the same run, the same hash. */
uint64_t gm_draw_hash(const float *logits, uint32_t n);

/* The k likeliest of n tokens, best first, ties to the lowest id, NaN last, with log-probabilities by
 * this sum; k <= n. order[n] is scratch. */
void gm_draw_top(const float *logits, uint32_t n, double logsum, uint32_t k, uint32_t *order,
                 gm_candidate *out);

#endif
