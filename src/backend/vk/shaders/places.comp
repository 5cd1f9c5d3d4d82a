#version 460
/* SPDX-License-Identifier: MIT */
// Where the lanes of a subgroup hold the results of a cooperative matrix: no one promises it, and
// it is looked at once, when a device is opened. Lane by lane, 16 * row + column of each result.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = ID_DEPTH) const uint DEPTH = 32;
shared uvec4 staged[64];
#include "inc/mma.glsl"

layout(push_constant, std430) uniform Push { gm_vk_places p; };

void main()
{
    mma_begin();
    for (uint i = 0; i < MMA_EACH; i++)
        WU1(p.dst).v[gl_SubgroupInvocationID * MMA_EACH + i] = mma_rows[i] * 16 + mma_cols[i];
}
