#version 460
/* SPDX-License-Identifier: MIT */
/* The sum of n products of bytes, four at a time, one subgroup a sum. */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "inc/dot.glsl"

layout(constant_id = ID_LANES) const uint LANES = 64;
layout(local_size_x_id = ID_LANES) in;

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer bytes { ivec4 x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer sums { int x[]; };
layout(push_constant, scalar) uniform push {
    bytes a;
    bytes b;
    sums dst;
    uint n; /* 16 bytes each */
};

void main()
{
    int sum = 0;
    for (uint i = gl_SubgroupInvocationID; i < n; i += gl_SubgroupSize) {
        const ivec4 u = a.x[i];
        const ivec4 v = b.x[i];
        sum += dot4(u.x, v.x) + dot4(u.y, v.y) + dot4(u.z, v.z) + dot4(u.w, v.w);
    }
    sum = subgroupAdd(sum);
    if (subgroupElect()) dst.x[gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID] = sum;
}
