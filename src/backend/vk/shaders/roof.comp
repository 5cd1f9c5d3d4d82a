#version 460
/* SPDX-License-Identifier: MIT */
// Reads memory as fast as it can be read: what every speed is printed beside.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"

layout(push_constant, std430) uniform Push { gm_vk_roof p; };

void main()
{
    const uint step_size = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    uvec4 all = uvec4(0);
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += 4 * step_size) {
        uvec4 v[4];
        [[unroll]] for (uint j = 0; j < 4; j++)
            v[j] = U4(p.src).v[min(i + j * step_size, p.n - 1)];
        all ^= v[0] ^ v[1] ^ v[2] ^ v[3];
    }
    if ((all.x ^ all.y ^ all.z ^ all.w) == 0x9e3779b9u) WU1(p.dst).v[0] = all.x;
}
