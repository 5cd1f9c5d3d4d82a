#version 460
/* SPDX-License-Identifier: MIT */
// Where the lanes of a subgroup hold matrices of float16, as places.comp: lane by lane 16 times the
// row, or the column of what is multiplied from the right, plus the place of each value: eight of a
// matrix of weights, four of columns, four of results.
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "inc/base.glsl"
#include "inc/half_mma.glsl"
layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;

layout(push_constant, std430) uniform Push { gm_vk_places p; };

shared float16_t halves[256];
shared float floats[256];

void main()
{
    for (uint i = half_lane(); i < 256; i += 32) {
        halves[i] = float16_t(i);
        floats[i] = float(i);
    }
    barrier();
    HalfA a;
    HalfB b;
    Sums c;
    coopMatLoad(a, halves, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(b, halves, 0, 16, gl_CooperativeMatrixLayoutColumnMajor);
    coopMatLoad(c, floats, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    const uint to = half_lane() * 16;
    for (uint i = 0; i < 8; i++)
        WU1(p.dst).v[to + i] = uint(a[i]);
    for (uint i = 0; i < 4; i++) {
        WU1(p.dst).v[to + 8 + i] = uint(b[i]);
        WU1(p.dst).v[to + 12 + i] = uint(c[i]);
    }
}
