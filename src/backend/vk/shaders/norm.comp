#version 460
/* SPDX-License-Identifier: MIT */
// Norms of rows, a workgroup a row: x = x + norm(y) (NORM_ADD), then h = norm(x) (NORM_NEXT), which
// is what stands between two products of Gemma 3. A lane keeps its values in registers from the
// first pass to the last; h is written as float32, as int8, or as both.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/reduce.glsl"
#include "inc/quantise.glsl"

layout(constant_id = ID_ROUNDS) const uint ROUNDS = 1; // of four values a lane that a row takes

layout(push_constant, std430) uniform Push { gm_vk_norm p; };

// Rows of whole vec4s are read and written as such.
vec4 load(uint64_t base, uint row, uint i)
{
    if (p.n_cols % 4 == 0)
        return i < p.n_cols ? F4(base).v[(row * p.n_cols + i) / 4] : vec4(0);
    vec4 x = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (i + j < p.n_cols) x[j] = F1(base).v[row * p.n_cols + i + j];
    return x;
}

void store(uint64_t base, uint row, uint i, vec4 x)
{
    if (p.n_cols % 4 == 0) {
        if (i < p.n_cols) WU4(base).v[(row * p.n_cols + i) / 4] = floatBitsToUint(x);
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (i + j < p.n_cols) WF1(base).v[row * p.n_cols + i + j] = x[j];
}

uint place(uint k)
{
    return (k * gl_WorkGroupSize.x + gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID) * 4;
}

// 1 / sqrt(mean(v^2) + eps)
float factor(vec4 v[ROUNDS], float eps)
{
    float sum = 0;
    [[unroll]] for (uint k = 0; k < ROUNDS; k++)
        sum += dot(v[k], v[k]);
    return 1.0 / sqrt(wg_sum(sum) / float(p.n_cols) + eps);
}

void main()
{
    const uint i = gl_WorkGroupID.x;
    if (i >= rows_in_step(p.head, p.flags)) return;
    const uint from = (p.flags & GM_VK_NORM_PICK) != 0 ? Outs(p.outs).v[i].row : i;
    const bool add = (p.flags & GM_VK_NORM_ADD) != 0;

    const bool next = (p.flags & GM_VK_NORM_NEXT) != 0;

    // Everything is asked for at once: there is one wait for memory, not one before each sum.
    vec4 v[ROUNDS], x[ROUNDS], w1[ROUNDS], w2[ROUNDS];
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        v[k] = load(add ? p.y : p.x, from, place(k));
        if (add) {
            x[k] = load(p.x, from, place(k));
            w1[k] = load(p.w1, 0, place(k));
        }
        if (next) w2[k] = load(p.w2, 0, place(k));
    }
    if (add) {
        const float up = factor(v, p.eps1);
        [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
            v[k] = x[k] + v[k] * up * (w1[k] + p.offset1);
            if (p.dst != 0) store(p.dst, i, place(k), v[k]);
        }
    }
    if (!next) return;
    const float up = factor(v, p.eps2);
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        const vec4 h = v[k] * up * (w2[k] + p.offset2);
        if (p.h != 0) store(p.h, i, place(k), h);
        if (p.q != 0) {
            const uint block = (i * p.n_cols + place(k)) / GM_VK_BLOCK;
            quantise_lanes(h, p.q, p.meta, block, p.plane, place(k) < p.n_cols);
        }
    }
}
