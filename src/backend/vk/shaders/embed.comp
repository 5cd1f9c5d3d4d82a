#version 460
/* SPDX-License-Identifier: MIT */
// The rows that a step begins with: a row of the embedding times a scale, or floats that the step
// brings. A workgroup a row. Without a weight (TYPE 0) every row is given.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"

#if TYPE == 0 || TYPE == 1 || TYPE == 30
#include "inc/floats.glsl"
#else
#include "inc/weights.glsl"
#endif

layout(push_constant, std430) uniform Push { gm_vk_embed p; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Slots {
    gm_vk_slot v[];
};

#if TYPE == 0 || TYPE == 1 || TYPE == 30
void expand(uint id, uint out_first)
{
    const uint n_chunks = floats_chunks(p.n_cols);
    for (uint i = gl_LocalInvocationIndex; i < n_chunks * 16; i += gl_WorkGroupSize.x) {
        float w[8];
        floats_load(p.weight, (id * n_chunks * 16 + i) * 8, w);
        for (uint j = 0; j < 8; j++) {
            const uint at = i / 16 * 128 + j * 16 + i % 16;
            if (at < p.n_cols) WF1(p.dst).v[out_first + at] = written(w[j] * p.scale);
        }
    }
}
#else
void expand(uint id, uint out_first)
{
    const uint n_blocks = p.n_cols / GM_VK_BLOCK;
    const Planes pl = planes(p.weight, p.n_tokens, n_blocks);
    for (uint b = gl_LocalInvocationIndex; b < n_blocks; b += gl_WorkGroupSize.x) {
        const Cursor at = cursor_at(n_blocks, id, b);
        const Raw raw = raw_cut(cursor_load(pl, at, 0, 0), at.shift, true);
        uint w[8];
        block_codes(raw, w);
        const ivec2 sc = block_sc(raw), m = block_min(raw);
        const vec2 d = block_d(raw);
        for (int i = 0; i < GM_VK_BLOCK; i++) {
            const int q = bitfieldExtract(int(w[i / 4]), i % 4 * 8, 8) - ZERO;
            precise const float x = d.x * float(sc[i / 16]) * float(q) - d.y * float(m[i / 16]);
            WF1(p.dst).v[out_first + b * GM_VK_BLOCK + i] = written(x * p.scale);
        }
    }
}
#endif

void main()
{
    const uint i = gl_WorkGroupID.x;
    if (i >= rows_in_step(p.head, p.flags)) return;
    const StepRow row = Rows(p.rows).v[i];
    const uint out_first = i * p.n_cols;
    if (row.kind == 2) {
        for (uint j = gl_LocalInvocationIndex; j < p.n_cols; j += gl_WorkGroupSize.x)
            WF1(p.dst).v[out_first + j] = written(F1(p.given).v[row.src * p.n_cols + j]);
        return;
    }
    uint id = row.src;
    if (row.kind == 1) id = uint(Slots(p.slots).v[row.slot].last);
    expand(min(id, p.n_tokens - 1), out_first);
}
