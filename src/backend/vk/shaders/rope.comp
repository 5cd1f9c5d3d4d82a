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

void main()
{
    const uint row = gl_WorkGroupID.y, n_q = p.n_head, n_kv = p.n_kv_head;
    if (row >= rows_in_step(p.head, p.flags)) return;
    uint h = gl_WorkGroupID.x;
    const uint which = h < n_q ? 0 : h < n_q + n_kv ? 1 : 2;
    h -= which == 0 ? 0 : which == 1 ? n_q : n_q + n_kv;
    const uint n_heads = which == 0 ? n_q : n_kv;
    const uint from = (row * n_heads + h) * p.head_dim;
    const uint64_t src = which == 0 ? p.q : which == 1 ? p.t.k : p.t.v;
    const StepRow step_row = Rows(p.rows).v[row];

    head_read(0, src, from, p.head_dim);
    if (which < 2 && (p.flags & GM_VK_ROPE_NORM) != 0)
        heads_turn(p.t, 1, which == 0 ? 1 : 0, p.head_dim, step_row.pos);
    else
        barrier();
    if (which == 0) {
        for (uint i = gl_LocalInvocationIndex; i < p.head_dim; i += gl_WorkGroupSize.x)
            WF1(p.q_out).v[from + i] = heads[i];
    } else {
        const Cells c = Cells(p.tables, p.table_len, p.layer_off, p.flags >> 8 & 1, p.n_kv_head);
        head_store(0, cells_of(c, step_row.slot, step_row.pos, which - 1, h, p.head_dim),
                   step_row.pos % GM_VK_PAGE, p.head_dim);
    }
}
