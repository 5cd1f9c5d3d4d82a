/* SPDX-License-Identifier: MIT */
#include "sample/sampler.h"

#include <inttypes.h>
#include <math.h>

/* Temperatures under this are greedy: 1 / T would leave float32's range of useful scores. */
#define COLDEST 1e-5f

/* One float option and the range it must lie in. */
static gm_status check(const char *name, float x, float min, float max, gm_err *err)
{
    if (x >= min && x <= max) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0, "sampling: %s is %g, expected %g to %g", name, (double)x,
                   (double)min, (double)max);
}

static gm_status check_bias(const gm_sampling *s, uint32_t n_vocab, gm_err *err)
{
    if (s->n_bias > GM_SAMPLER_MAX_BIAS) {
        return gm_fail(err, GM_E_ARG, 0, "sampling: %" PRIu32 " logit biases, expected at most %d",
                       s->n_bias, GM_SAMPLER_MAX_BIAS);
    }
    for (uint32_t i = 0; i < s->n_bias; i++) {
        if (s->bias[i].id < 0 || (uint32_t)s->bias[i].id >= n_vocab) {
            return gm_fail(err, GM_E_ARG, 0,
                           "sampling: logit bias for token %" PRId32 ", expected 0 to %" PRIu32,
                           s->bias[i].id, n_vocab - 1);
        }
        GM_TRY(check("logit bias", s->bias[i].bias, -1000, 1000, err));
    }
    return GM_OK;
}

gm_status gm_sampler_read(const gm_sampling *s, uint32_t n_vocab, gm_draw *out, gm_err *err)
{
    GM_TRY(check("temperature", s->temperature, 0, GM_TEMPERATURE_MAX, err));
    GM_TRY(check("top_p", s->top_p, 0, 1, err));
    GM_TRY(check("min_p", s->min_p, 0, 1, err));
    GM_TRY(check("repeat_penalty", s->repeat_penalty, 0.01f, 100, err));
    GM_TRY(check("frequency_penalty", s->frequency_penalty, -100, 100, err));
    GM_TRY(check("presence_penalty", s->presence_penalty, -100, 100, err));
    GM_TRY(check_bias(s, n_vocab, err));
    *out = (gm_draw){
        .seed_lo = (uint32_t)s->seed,
        .seed_hi = (uint32_t)(s->seed >> 32),
        .inv_temp = s->temperature < COLDEST ? 0 : 1 / s->temperature,
        .log_min_p = s->min_p > 0 ? logf(s->min_p) : -INFINITY,
        .repeat = s->repeat_penalty,
        .inv_repeat = 1 / s->repeat_penalty,
        .frequency = s->frequency_penalty,
        .presence = s->presence_penalty,
        .top_k = s->top_k,
        .top_p = (uint32_t)lrintf(s->top_p * (float)GM_DRAW_TOP_P_OFF),
    };
    return GM_OK;
}
