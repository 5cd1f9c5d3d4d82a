/* SPDX-License-Identifier: MIT */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/vec.h"
#include "base/fp16.h"

#define NAME(x) x##_avx2

/* Two registers as one vector, and its halves. */
static inline vf join(__m256 low, __m256 high)
{
    vf v;
    memcpy(&v, &low, sizeof low);
    memcpy((char *)&v + sizeof low, &high, sizeof high);
    return v;
}

static inline __m256 half(vf v, int which)
{
    __m256 h;
    memcpy(&h, (const char *)&v + which * (int)sizeof h, sizeof h);
    return h;
}

static inline vf load_f16(const uint8_t *p)
{
    return join(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16))));
}

static inline vf load_i8(const uint8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return join(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))));
}

static inline vf splat_f16(const uint8_t *p)
{
    const __m256 all = _mm256_cvtph_ps(_mm_set1_epi16((short)gm_read_u16(p)));
    return join(all, all);
}

static inline void store_f16(uint8_t *p, vf v)
{
    for (int i = 0; i < 2; i++) {
        _mm_storeu_si128((__m128i *)(p + 16 * i),
                         _mm256_cvtps_ph(half(v, i), _MM_FROUND_TO_NEAREST_INT));
    }
}

static inline vi to_int(vf v)
{
    return (vi)join(_mm256_castsi256_ps(_mm256_cvtps_epi32(half(v, 0))),
                    _mm256_castsi256_ps(_mm256_cvtps_epi32(half(v, 1))));
}

#include "backend/cpu/vec_tmpl.h"
