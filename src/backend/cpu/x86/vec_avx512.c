/* SPDX-License-Identifier: MIT */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/vec.h"
#include "base/fp16.h"

#define NAME(x) x##_avx512

static inline vf load_f16(const uint8_t *p)
{
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline vf load_i8(const uint8_t *p)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

static inline vf splat_f16(const uint8_t *p)
{
    return (vf)_mm512_cvtph_ps(_mm256_set1_epi16((short)gm_read_u16(p)));
}

static inline void store_f16(uint8_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vi to_int(vf v)
{
    return (vi)_mm512_cvtps_epi32((__m512)v);
}

#include "backend/cpu/vec_tmpl.h"
