#version 460
/* SPDX-License-Identifier: MIT */
// Norms of rows, a workgroup a row: x = x + norm(y) (NORM_ADD), then h = norm(x) (NORM_NEXT), which
// is what stands between two products of Gemma 3. A lane keeps its values in registers from the
// first pass to the last; h is written as float32, as int8, or as both. With few rows the product
// before does the same by itself (inc/tail.glsl).
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/norms.glsl"
#include "inc/quantise.glsl"

layout(constant_id = ID_ROUNDS) const uint ROUNDS = 1; // of four values a lane that a row takes

layout(push_constant, std430) uniform Push { gm_vk_norm p; };

float factor(vec4 v[ROUNDS], float eps)
{
    float sums[NORM_SUMS / 2];
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    [[unroll]] for (uint k = 0; k < ROUNDS; k++)
        sums[k % NORM_TURNS] = norm_square(sums[k % NORM_TURNS], v[k]);
    return norm_factor(sums, p.n_cols, eps);
}

void main()
{
    const uint i = gl_WorkGroupID.x;
    if (i >= rows_in_step(p.head, p.flags)) return;
    const uint from = (p.flags & GM_VK_NORM_PICK) != 0 ? Outs(p.outs).v[i].row : i;
    const bool add = p.n.w1 != 0, next = p.n.w2 != 0;

    // Everything is asked for at once: there is one wait for memory, not one before each sum.
    vec4 v[ROUNDS], x[ROUNDS], w1[ROUNDS], w2[ROUNDS];
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        v[k] = norm_load(add ? p.y : p.n.x, p.n_cols, from, norm_place(k));
        if (add) {
            x[k] = norm_load(p.n.x, p.n_cols, from, norm_place(k));
            w1[k] = norm_load(p.n.w1, p.n_cols, 0, norm_place(k));
        }
        if (next) w2[k] = norm_load(p.n.w2, p.n_cols, 0, norm_place(k));
    }
    if (add) {
        const float up = factor(v, p.n.eps1);
        [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
            v[k] = norm_added(x[k], norm_scaled(v[k], up, w1[k], p.n.offset1));
            if (p.n.dst != 0) norm_store(p.n.dst, p.n_cols, i, norm_place(k), v[k]);
        }
    }
    if (!next) return;
    const float up = factor(v, p.n.eps2);
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        const vec4 h = norm_scaled(v[k], up, w2[k], p.n.offset2);
        if (p.n.h != 0) norm_store(p.n.h, p.n_cols, i, norm_place(k), h);
        if (p.n.q != 0) {
            const uint block = (i * p.n_cols + norm_place(k)) / GM_VK_BLOCK;
            quantise_lanes(h, p.n.q, p.n.meta, block, p.n.plane, norm_place(k) < p.n_cols);
        }
    }
}
