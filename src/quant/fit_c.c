/* SPDX-License-Identifier: MIT */
#include "base/fp16.h"
#include "quant/fit.h"

#define NAME(x) x##_c
#define LANES   4
#define INLINE  static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef float vf4 __attribute__((vector_size(16)));

/* Sixteen running sums: value i of a group goes to sum i % 16. */
typedef struct total {
    vf p[4];
} total;

INLINE vf vselect(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

INLINE vf vmax(vf a, vf b)
{
    return vselect(a > b, a, b);
}

INLINE vf vmin(vf a, vf b)
{
    return vselect(a < b, a, b);
}

INLINE vf4 total_quarter(const total *t)
{
    return (t->p[0] + t->p[2]) + (t->p[1] + t->p[3]);
}

INLINE float f16_round(float x)
{
    return gm_f16_to_f32(gm_f32_to_f16(x));
}

#include "quant/fit_tmpl.h"
