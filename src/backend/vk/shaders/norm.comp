#version 460
/* SPDX-License-Identifier: MIT */
// Norms of rows: x = x + norm(y) (NORM_ADD), then h = norm(x) (NORM_NEXT), which is what stands
// between two products of Gemma 3. A row is a workgroup's, or, where kernels wait for each other,
// that of several, each of which writes a part. A lane keeps its values in registers from the first
// pass to the last; h is written as float32, as int8, or as both. With few rows the product before
// does the same by itself (inc/tail.glsl).
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/norms.glsl"
#include "inc/flow.glsl"

layout(push_constant, std430) uniform Push { gm_vk_norm p; };

// A part of the row that the product before is about to give.
void norm_part()
{
    NormArgs a;
    vec4 y[ROUNDS];
    [[dont_unroll]] for (bool again = flow_rehearses(p.flow), last = !again; again || last;) {
        norm_ask_weights(p.n, p.n_cols, a);
        uint looks = 0;
        if (last) flow_wait(p.flow);
        bool misses;
        do {
            misses = norm_misses(p.n, p.y, p.n_cols, y, a) && last;
        } while (flow_again(p.flow, misses, looks));
        norm_first(p.n, p.n_cols, 0, y, a, gl_WorkGroupID.x, last);
        if (last) flow_done(p.flow);
        norm_second(p.n, p.n_cols, 0, y, a, gl_WorkGroupID.x, last);
        last = again;
        again = false;
    }
}

void main()
{
    if (FLOW == 1) {
        norm_part();
        return;
    }
    const uint i = gl_WorkGroupID.x;
    if (i >= rows_in_step(p.head, p.flags)) return;
    const uint from = (p.flags & GM_VK_NORM_PICK) != 0 ? Outs(p.outs).v[i].row : i;
    norm_row(p.n, p.y, p.n_cols, from, i);
}
