/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_NOISE_H
#define GM_QUANT_NOISE_H

/* Random weights of any type, from a counter (docs/SYNTH.md defines every byte): what synthetic
 * models are made of, and what kernels are tried on. */

#include "quant/qtype.h"

/* What the weights of a tensor are like: their mean and variance. */
typedef struct gm_noise_law {
    float mean; /* 0 unless the type is f32 */
    double variance;
} gm_noise_law;

/* One tensor's bytes, all of them known before any is written. */
typedef struct gm_noise {
    const gm_qtype_info *type;
    gm_noise_law law;
    uint64_t key;
} gm_noise;

/* The key of the index-th tensor of something with that seed. */
uint64_t gm_noise_key(uint64_t seed, uint32_t index);

/* The `size` bytes that begin off bytes into the tensor. off is a multiple of 8 and of the type's
 * block, size of the block. Any thread. */
void gm_noise_fill(const gm_noise *s, uint64_t off, size_t size, uint8_t *out);

#endif
