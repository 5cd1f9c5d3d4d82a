#version 460
/* SPDX-License-Identifier: MIT */
// Heads after their projection, a workgroup each: [head, row], first the heads of q, then of k,
// then of v. With one row attention does this by itself.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/cells.glsl"

layout(constant_id = ID_DIM) const uint DIM = 64; // floats of a head: its length, padded
#define HEADS 1
#include "inc/heads.glsl"

layout(push_constant, std430) uniform Push { gm_vk_rope p; };

// The head that this workgroup has: of q, of k or of v.
uint which, head;

uint64_t head_from(uint h)
{
    const uint n_heads = which == 0 ? p.n_head : p.n_kv_head;
    const uint64_t src = which == 0 ? p.q : which == 1 ? p.t.k : p.t.v;
    return src + 4 * (gl_WorkGroupID.y * n_heads + head) * p.head_dim;
}

void main()
{
    const uint row = gl_WorkGroupID.y, n_q = p.n_head, n_kv = p.n_kv_head, len = p.head_dim;
    if (row >= rows_in_step(p.head, p.flags)) return;
    head = gl_WorkGroupID.x;
    which = head < n_q ? 0 : head < n_q + n_kv ? 1 : 2;
    head -= which == 0 ? 0 : which == 1 ? n_q : n_q + n_kv;
    const StepRow step_row = Rows(p.rows).v[row];

    if (which < 2 && (p.flags & GM_VK_ROPE_NORM) != 0) {
        heads_ask_turns(p.t, which == 0 ? 1 : 0, len);
        heads_ask(len);
        heads_put(len);
        barrier();
        heads_angles(step_row.pos);
        heads_turn(p.t, 1, len);
    } else {
        head_read(0, len);
        barrier();
    }
    if (which == 0) {
        const uint64_t to = p.q_out + 4 * (row * n_q + head) * len;
        for (uint i = gl_LocalInvocationIndex; i < len; i += gl_WorkGroupSize.x)
            WF1(to).v[i] = HEAD(i);
        return;
    }
    const Cells c = Cells(p.tables, p.table_len, p.layer_off, p.flags >> 8 & 1, n_kv);
    const uint64_t to = cells_of(c, step_row.slot, step_row.pos, which - 1, head, len);
    const uint units = cell_units(len), cell = step_row.pos % GM_VK_PAGE;
    [[dont_unroll]] for (uint i = lane_in_all(); i < cell_words(units); i += gl_WorkGroupSize.x) {
        uint scale;
        WU1(to).v[word_at(cell, i, units)] = head_word(0, i, scale);
        if (HAS_SCALES && lane_of() == 0) WU1(to).v[scale_at(cell, i / 8, units)] = scale;
    }
}
