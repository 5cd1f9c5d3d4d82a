/* SPDX-License-Identifier: MIT */
#include <immintrin.h>

#include "quant/fit.h"

#define NAME(x) x##_avx2
#define LANES   8
#define INLINE  static inline __attribute__((always_inline))

typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));
typedef __m128 vf4;

/* Sixteen running sums: value i of a group goes to sum i % 16. */
typedef struct total {
    vf p[2];
} total;

INLINE vf vmax(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

INLINE vf vmin(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

INLINE vf4 total_quarter(const total *t)
{
    const vf a = t->p[0] + t->p[1];
    return _mm256_castps256_ps128(a) + _mm256_extractf128_ps(a, 1);
}

INLINE float f16_round(float x)
{
    return _cvtsh_ss(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}

#include "quant/fit_tmpl.h"
