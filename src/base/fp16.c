/* SPDX-License-Identifier: MIT */
#include "base/fp16.h"

#include <math.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "model files are read in place");

float gm_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1Fu;
    const uint32_t mantissa = h & 0x3FFu;
    if (exponent == 0x1F) return gm_f32_from_bits(sign | 0x7F800000u | (mantissa << 13));
    if (exponent == 0) {
        const float tiny = (float)mantissa * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    return gm_f32_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t gm_f32_to_f16(float f)
{
    const uint32_t bits = gm_f32_bits(f);
    const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    const uint32_t mag = bits & 0x7FFFFFFFu;
    if (mag > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);  /* NaN, quiet */
    if (mag >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* rounds to infinity */
    if (mag < 0x38800000u) {                                   /* subnormal: units of 2^-24 */
        return (uint16_t)(sign | (uint16_t)rintf(fabsf(f) * 0x1p24f));
    }
    const uint32_t rounded = mag + 0xFFFu + ((mag >> 13) & 1u);
    return (uint16_t)(sign | (uint16_t)((rounded - 0x38000000u) >> 13));
}

uint16_t gm_f32_to_bf16(float f)
{
    const uint32_t bits = gm_f32_bits(f);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
