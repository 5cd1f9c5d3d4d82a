/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_FP16_H
#define GM_BASE_FP16_H

/* The 16-bit floats of model files. Conversions are bit-exact and need no
 * instruction set beyond plain C; narrowing rounds to nearest even. */

#include <stdint.h>
#include <string.h>

static inline float gm_f32_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t gm_f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float gm_bf16_to_f32(uint16_t h)
{
    return gm_f32_from_bits((uint32_t)h << 16);
}

float gm_f16_to_f32(uint16_t h);
uint16_t gm_f32_to_f16(float f);
uint16_t gm_f32_to_bf16(float f);

/* Little-endian reads and writes, of memory of any alignment. */
static inline uint16_t gm_read_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t gm_read_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t gm_read_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float gm_read_f32(const void *p)
{
    return gm_f32_from_bits(gm_read_u32(p));
}

static inline float gm_read_f16(const void *p)
{
    return gm_f16_to_f32(gm_read_u16(p));
}

static inline void gm_write_f16(void *p, float f)
{
    const uint16_t h = gm_f32_to_f16(f);
    memcpy(p, &h, sizeof h);
}

#endif
