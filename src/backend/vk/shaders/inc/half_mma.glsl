/* SPDX-License-Identifier: MIT */
// Matrices of float16 that 32 lanes hold together: 16 rows times 16 values, times 8 columns, summed
// in float32. Lane 4 g + t holds of rows g and g + 8, and of column g, four values, two words each;
// of the results those of rows g and g + 8 in columns 2 t and 2 t + 1. So the devices that this is
// chosen for hold cooperative matrices (places_half.comp looks); others go by shared memory.

#define half_lane() (gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID)

#ifdef NEEDS_COOPMAT_F16X8
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require

#define HalfA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define HalfB coopmat<float16_t, gl_ScopeSubgroup, 16, 8, gl_MatrixUseB>
#define Sums  coopmat<float, gl_ScopeSubgroup, 16, 8, gl_MatrixUseAccumulator>

#define half_pair(m, i, word)                          \
    {                                                  \
        const f16vec2 half_two = unpackFloat2x16(word); \
        m[2 * (i)] = half_two.x;                       \
        m[2 * (i) + 1] = half_two.y;                   \
    }

// v: two words of row g, then two of row g + 8.
#define half_a(m, v)                                                                            \
    {                                                                                           \
        half_pair(m, 0, v.x) half_pair(m, 1, v.y) half_pair(m, 2, v.z) half_pair(m, 3, v.w)     \
    }
#define half_b(m, v) { half_pair(m, 0, v.x) half_pair(m, 1, v.y) }
#define half_zero(c) c = Sums(0.0)
#define half_mma(a, b, c) c = coopMatMulAdd(a, b, c)
#define HALF_LOOP [[unroll]]
#else
#define HalfA uvec4
#define HalfB uvec2
#define Sums  vec4

shared uvec4 half_all_a[gl_WorkGroupSize.x];
shared uvec2 half_all_b[gl_WorkGroupSize.x];

float half_dot(uint a, uint b, float sum)
{
    const vec2 x = unpackHalf2x16(a), y = unpackHalf2x16(b);
    return sum + x.x * y.x + x.y * y.y;
}

// All lanes of the workgroup must be here.
void half_mma_all(uvec4 a, uvec2 b, inout vec4 c)
{
    const uint lane = half_lane(), first = lane / 32 * 32, g = lane % 32 / 4, t = lane % 4;
    barrier();
    half_all_a[lane] = a;
    half_all_b[lane] = b;
    barrier();
    [[unroll]] for (uint s = 0; s < 4; s++) {
        const uvec4 x = half_all_a[first + 4 * g + s];
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uvec2 y = half_all_b[first + 4 * (2 * t + i % 2) + s];
            c[i] = half_dot(x[i / 2 * 2], y.x, c[i]);
            c[i] = half_dot(x[i / 2 * 2 + 1], y.y, c[i]);
        }
    }
}

#define half_a(m, v) m = v
#define half_b(m, v) m = v
#define half_zero(c) c = vec4(0)
#define half_mma(a, b, c) half_mma_all(a, b, c)
#define HALF_LOOP [[dont_unroll]] // code that waits is long
#endif
