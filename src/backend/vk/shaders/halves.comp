#version 460
/* SPDX-License-Identifier: MIT */
// Rows of int8 become float16, the way matmul_half reads them: a block of 32 of every row, then
// the next block. A block's values are in the order in which weights are unpacked: of words j and
// j + 4, four values each, the first and third of both, then the second and fourth of both.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"

layout(push_constant, std430) uniform Push { gm_vk_halves p; };

vec4 values(uint word, uint block)
{
    vec4 x = word_values(U1(p.x).v[block * 8 + word]) * uintBitsToFloat(U2(p.meta).v[block].x);
    if (p.plane != 0) {
        block += p.plane;
        x += word_values(U1(p.x).v[block * 8 + word]) * uintBitsToFloat(U2(p.meta).v[block].x);
    }
    return x * GM_VK_HALF_X;
}

// Four lanes have a block of a row.
void main()
{
    const uint n = rows_in_step(p.head, p.flags), part = gl_LocalInvocationIndex % 4;
    const uint b = gl_WorkGroupID.x, first = gl_WorkGroupID.y * GM_VK_HALF_ROWS;
    const uint end = min(n, first + GM_VK_HALF_ROWS), per = gl_WorkGroupSize.x / 4;
    for (uint row = first + gl_LocalInvocationIndex / 4; row < end; row += per) {
        vec4 x = vec4(0), y = vec4(0);
        if (b < p.n_blocks) {
            x = values(part, row * p.n_blocks + b);
            y = values(part + 4, row * p.n_blocks + b);
        }
        const uvec2 first_ones = gm_halves(vec4(x.xz, y.xz)), others = gm_halves(vec4(x.yw, y.yw));
        WU4(p.dst).v[(b * p.n_rows + row) * 4 + part] = uvec4(first_ones, others);
    }
}
