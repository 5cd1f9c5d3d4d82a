/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/vec.h"
#include "base/fp16.h"

#define NAME(x) x##_c

static inline vf load_f16(const uint8_t *p)
{
    vf v;
    for (int i = 0; i < 16; i++)
        v[i] = gm_read_f16(p + 2 * i);
    return v;
}

static inline vf load_i8(const uint8_t *p)
{
    vf v;
    for (int i = 0; i < 16; i++)
        v[i] = (float)(int8_t)p[i];
    return v;
}

static inline vf splat_f16(const uint8_t *p)
{
    return gm_read_f16(p) - (vf){0};
}

static inline void store_f16(uint8_t *p, vf v)
{
    for (int i = 0; i < 16; i++) {
        const uint16_t h = gm_f32_to_f16(v[i]);
        __builtin_memcpy(p + 2 * i, &h, sizeof h);
    }
}

static inline vi to_int(vf v)
{
    vi n;
    for (int i = 0; i < 16; i++)
        n[i] =
            fabsf(v[i]) < 2147483648.0f ? (int32_t)rintf(v[i]) : INT32_MIN; /* as hardware does */
    return n;
}

#include "backend/cpu/vec_tmpl.h"
