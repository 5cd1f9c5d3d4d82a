/* SPDX-License-Identifier: MIT */
// What every kernel begins with: extensions, memory seen as arrays, sums over a workgroup.

#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_spirv_intrinsics : require

// Numbers below the normal ones are kept, as C keeps them.
#ifdef GM_DENORM_PRESERVE
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);
#endif

#define GM_GLSL 1
#include "backend/vk/vk_params.h"

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer U4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer U2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer U1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer A1 { uint64_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer F4 { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer F1 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WU4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer WU2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer WU1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer WF1 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WF4 { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer CU4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) coherent buffer CU2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer CF4 { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer CF1 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer CU1 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Head { gm_vk_head v; };

// Whether the kernel waits for the one before by itself (inc/flow.glsl): then what one writes and
// the other reads is coherent memory, since there is no barrier that empties caches.
#ifdef ID_FLOW
layout(constant_id = ID_FLOW) const uint FLOW = 0;
#else
#define FLOW 0
#endif

// Words that are handed on are their own flags: a step begins with all of them GM_VK_UNWRITTEN, and
// none is ever written so. It is a NaN as a float, for which another does; bytes of codes are -127
// and more, and sums of 16 of them have fewer bits than its halves. So nobody needs to know in
// which order a device makes writes seen; who reads such a word before it is there reads it again.
#define RELOADED(align)                                                                            \
    layout(buffer_reference, std430, buffer_reference_align = align) volatile coherent buffer
RELOADED(16) VU4 { uvec4 v[]; };
RELOADED(8) VU2 { uvec2 v[]; };
RELOADED(16) VF4 { vec4 v[]; };
RELOADED(4) VF1 { float v[]; };
RELOADED(4) VU1 { uint v[]; };

bool is_unwritten(uvec4 w)
{
    return any(equal(w, uvec4(GM_VK_UNWRITTEN)));
}

bool is_unwritten(uvec2 w)
{
    return any(equal(w, uvec2(GM_VK_UNWRITTEN)));
}

// A float as it is handed on.
float written(float x)
{
    return floatBitsToUint(x) == GM_VK_UNWRITTEN ? uintBitsToFloat(0x7fc00000u) : x;
}

void hand_on(uint64_t to, uint i, float x)
{
    if (FLOW == 1) CF1(to).v[i] = written(x);
    else WF1(to).v[i] = x;
}

void hand_on(uint64_t to, uint i, uint x)
{
    if (FLOW == 1) CU1(to).v[i] = x;
    else WU1(to).v[i] = x;
}

void hand_on(uint64_t to, uint i, uvec2 x)
{
    if (FLOW == 1) CU2(to).v[i] = x;
    else WU2(to).v[i] = x;
}

// A row of the step: kind, src, slot, pos | first[2], last[2].
struct StepRow {
    uint kind, src, slot, pos;
    uint first[2], last[2];
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Rows { StepRow v[]; };

struct StepOut {
    uint row, want, n_top, mask;
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Outs { StepOut v[]; };

layout(local_size_x_id = ID_LANES) in;

// Reading the step costs a kernel its first microsecond, which decode does without.
uint rows_in_step(uint64_t head, uint flags)
{
    if ((flags & GM_VK_ROWS_ONE) != 0) return 1;
    return (flags & GM_VK_ROWS_OUT) != 0 ? Head(head).v.n_outs : Head(head).v.n_rows;
}
