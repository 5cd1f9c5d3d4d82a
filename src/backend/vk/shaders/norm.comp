#version 460
/* SPDX-License-Identifier: MIT */
// Norms of rows: x = x + norm(y) (NORM_ADD), then h = norm(x) (NORM_NEXT), which is what stands
// between two products of Gemma 3. A row is a workgroup's, or, where kernels wait for each other,
// that of several, each of which writes a part. A lane keeps its values in registers from the first
// pass to the last; h is written as float32, as int8, or as both. Of few rows the product that
// reads them does the same by itself (inc/front.glsl), or the one before (inc/beside.glsl).
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/norm_part.glsl"

layout(push_constant, std430) uniform Push { gm_vk_norm p; };

void main()
{
    if (FLOW == 1) {
        norm_part(p.n, p.y, p.n_cols, gl_WorkGroupID.x, p.flow, p.flow.before, p.flow.n_before);
        return;
    }
    const uint i = gl_WorkGroupID.x;
    if (i >= rows_in_step(p.head, p.flags)) return;
    const uint from = (p.flags & GM_VK_NORM_PICK) != 0 ? Outs(p.outs).v[i].row : i;
    norm_row(p.n, p.y, p.n_cols, from, i);
}
