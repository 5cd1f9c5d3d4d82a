#version 460
/* SPDX-License-Identifier: MIT */
// What is done value by value: copies, soft caps, the rest of a gate whose matrices differ in type,
// and rounding to int8 where no kernel before does it. Workgroups [.., row], four values a lane.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"

layout(push_constant, std430) uniform Push { gm_vk_rows p; };

float apply(uint from, uint i)
{
    const float a = F1(p.a).v[from + i];
    if (p.mode == GM_VK_MODE_SOFTCAP) return p.scale * gm_tanh(a / p.scale);
    if (p.mode == GM_VK_MODE_GELU) {
        precise const float h = gm_gelu(a) * F1(p.b).v[from + i];
        return h;
    }
    return a;
}

void main()
{
    const uint row = gl_WorkGroupID.y;
    if (row >= rows_in_step(p.head, p.flags)) return;
    if (p.want != 0 && (Outs(p.outs).v[row].want & p.want) == 0) return;
    const uint from = ((p.flags & GM_VK_NORM_PICK) != 0 ? Outs(p.outs).v[row].row : row) * p.n_cols;
    const uint i = (gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_SubgroupID * gl_SubgroupSize +
                    gl_SubgroupInvocationID) * 4;
    vec4 x = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (i + j >= p.n_cols) break;
        x[j] = apply(from, i + j);
        if (p.dst != 0) WF1(p.dst).v[row * p.n_cols + i + j] = x[j];
    }
    if (p.q != 0)
        round_lanes(x, p.q, p.meta, row, i / GM_VK_BLOCK, p.n_cols / GM_VK_BLOCK, p.plane,
                    i < p.n_cols);
}
