/* SPDX-License-Identifier: MIT */
#include <immintrin.h>

#include "quant/fit.h"

#define NAME(x) x##_avx512
#define LANES   16
#define INLINE  static inline __attribute__((always_inline))

typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));
typedef __m128 vf4;

/* Sixteen running sums: value i of a group goes to sum i % 16. */
typedef struct total {
    vf p[1];
} total;

INLINE vf vmax(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

INLINE vf vmin(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

INLINE vf4 total_quarter(const total *t)
{
    const __m256 a = _mm512_castps512_ps256(t->p[0]) + _mm512_extractf32x8_ps(t->p[0], 1);
    return _mm256_castps256_ps128(a) + _mm256_extractf128_ps(a, 1);
}

INLINE float f16_round(float x)
{
    return _cvtsh_ss(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}

#include "quant/fit_tmpl.h"
