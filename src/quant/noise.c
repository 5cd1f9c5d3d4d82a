/* SPDX-License-Identifier: MIT */
/* A tensor's bytes come from a counter: word i, which is bytes 8i to 8i+7, is a
 * hash of the tensor's key and i. Nothing precedes it, so any part can be made
 * alone, by any thread, on any machine.
 *
 * The bytes are then right as they are, but for the floats among them. Every bit
 * pattern is a legal code, sub-scale or sub-minimum; only floats must be finite
 * and of a size. So each float gives way to a value that its own random bits
 * choose. The d of a block becomes one of 128: 0.75 to 1.25 times the one that
 * gives the weights their variance, of either sign where the type has no minima.
 * A minimum becomes the multiple of that d which brings the mean to 0. Codes and
 * sub-scales use their whole range, with the corners that real files rarely
 * reach.
 *
 * Values drawn from a bell curve would look more real, but every format would
 * then need a quantiser here, and 1 GB would take seconds where it takes 0.2. */

#include "quant/noise.h"

#include <math.h>

#include "base/fp16.h"

#define GOLDEN 0x9E3779B97F4A7C15u /* 2^64 / golden ratio, odd */

/* The finaliser of splitmix64: a bijection in which each bit of z reaches every bit. */
static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t gm_noise_key(uint64_t seed, uint32_t index)
{
    return mix(mix(seed) + (index + 1) * GOLDEN);
}

static void fill_words(uint64_t key, uint64_t word, size_t size, uint8_t *out)
{
    uint64_t state = key + (word + 1) * GOLDEN;
    size_t i = 0;
    for (; i + 8 <= size; i += 8, state += GOLDEN) {
        const uint64_t z = mix(state);
        memcpy(out + i, &z, 8);
    }
    const uint64_t z = mix(state);
    memcpy(out + i, &z, size - i);
}

/* Where the floats of a block are, and the variance of its values when d is 1 and every other bit
 * is random. min is d times ratio, 0 for types without. */
typedef struct layout {
    gm_qtype type;
    uint8_t d_off, min_off;
    float ratio;
    double variance;
} layout;

/* Variances: codes of b bits have (4^b - 1) / 12 around their middle, and (4^b + 2) / 12 around a
 * zero half a step beside it, which counts where the sign of d is random. With sub-scales sc it is
 * E[sc^2] E[q^2], and with minima m it is
 * E[sc^2] E[q^2] + ratio^2 E[m^2] - 2 ratio E[sc] E[q] E[m]. Floats are uniform integers of 24
 * or 12 bits. */
static const layout layouts[] = {
    {GM_QTYPE_F32, 0, 0, 0, 0x1p48 / 12},     {GM_QTYPE_F16, 0, 0, 0, 0x1p24 / 12},
    {GM_QTYPE_BF16, 0, 0, 0, 0x1p24 / 12},    {GM_QTYPE_Q8_0, 0, 0, 0, 5461.5},
    {GM_QTYPE_Q4_0, 0, 0, 0, 21.5},           {GM_QTYPE_Q4_1, 0, 2, -7.5f, 21.25},
    {GM_QTYPE_Q5_0, 0, 0, 0, 85.5},           {GM_QTYPE_Q5_1, 0, 2, -15.5f, 85.25},
    {GM_QTYPE_IQ4_NL, 0, 0, 0, 4548},         {GM_QTYPE_Q2_K, 80, 82, 1.5f, 192.5},
    {GM_QTYPE_Q3_K, 108, 0, 0, 341.5 * 5.5},  {GM_QTYPE_Q4_K, 0, 2, 7.5f, 66727.5},
    {GM_QTYPE_Q5_K, 0, 2, 15.5f, 277651.5},   {GM_QTYPE_Q6_K, 208, 0, 0, 5461.5 * 341.5},
    {GM_QTYPE_IQ4_XS, 0, 0, 0, 341.5 * 4548},
};

/* Every type of quant/qtype.c has a layout. */
static const layout *layout_get(gm_qtype type)
{
    const layout *l = layouts;
    while (l->type != type)
        l++;
    return l;
}

static void shape_f32(float mean, float step, size_t size, uint8_t *out)
{
    for (size_t i = 0; i < size; i += 4) {
        const int32_t k = (int32_t)(gm_read_u32(out + i) >> 8) - (1 << 23);
        const float value = mean + (float)k * step;
        memcpy(out + i, &value, 4);
    }
}

/* Twelve bits of each value count: as many as f16 can hold, and few enough for a table. */
static void shape_16(uint16_t (*narrow)(float), float step, size_t size, uint8_t *out)
{
    uint16_t values[4096];
    for (int k = 0; k < 4096; k++)
        values[k] = narrow((float)(k - 2048) * step);
    for (size_t i = 0; i < size; i += 2)
        memcpy(out + i, &values[gm_read_u16(out + i) >> 4], 2);
}

static void shape_blocks(const gm_noise *s, const layout *l, float step, size_t size, uint8_t *out)
{
    uint16_t d[128], min[128];
    for (int i = 0; i < 128; i++) {
        const float sign = i % 2 && l->ratio == 0 ? -1 : 1;
        d[i] = gm_f32_to_f16(sign * step * (0.75f + (float)(i / 2) / 126));
        min[i] = gm_f32_to_f16(gm_f16_to_f32(d[i]) * l->ratio);
    }
    for (size_t at = 0; at < size; at += s->type->block_size) {
        const uint16_t i = gm_read_u16(out + at + l->d_off) & 127;
        memcpy(out + at + l->d_off, &d[i], 2);
        if (l->ratio != 0) memcpy(out + at + l->min_off, &min[i], 2);
    }
}

void gm_noise_fill(const gm_noise *s, uint64_t off, size_t size, uint8_t *out)
{
    const layout *const l = layout_get(s->type->id);
    const float step = (float)sqrt(s->law.variance / l->variance);
    fill_words(s->key, off / 8, size, out);
    switch (s->type->id) {
    case GM_QTYPE_F32: shape_f32(s->law.mean, step, size, out); return;
    case GM_QTYPE_F16: shape_16(gm_f32_to_f16, step, size, out); return;
    case GM_QTYPE_BF16: shape_16(gm_f32_to_bf16, step, size, out); return;
    default: shape_blocks(s, l, step, size, out);
    }
}
