/* SPDX-License-Identifier: MIT */
// What all products share: who works on what, and where results go.
//
// A group of eight lanes works on R rows of weights together, each lane on every eighth block, for
// NC columns of activations; PLANES of them, side by side, stand for a column of the input. A
// lane's sums are folded in halves at the end, so a row's result depends on neither the columns
// beside it nor the workgroup (quant/dot.h).
// AFTER_GELU: a group works on R rows of two matrices, gate and up. AFTER_NORM: the last workgroup
// goes on with the norms that follow (inc/tail.glsl).
#include "inc/norms.glsl"
#include "inc/tail.glsl"

layout(constant_id = ID_R) const uint R = 1;
layout(constant_id = ID_NC) const uint NC = 1;
layout(constant_id = ID_U) const uint U = 1;   // blocks a lane has on their way at once
layout(constant_id = ID_AFTER) const uint AFTER = 0; // GM_VK_AFTER_*
layout(constant_id = ID_TILE) const uint TILE = 1; // floats shared: NC * rows of the workgroup
layout(constant_id = ID_PLANES) const uint PLANES = 1; // rows of int8 that stand for a column
const uint GLU = AFTER == GM_VK_AFTER_GELU ? 1 : 0;
const uint NM = 1 + GLU;
const uint NS = NM * R; // rows that a lane works on

layout(push_constant, std430) uniform Push { gm_vk_matmul p; };

shared float tile[TILE];

// The matrix that this workgroup works on, and its first row there.
uint matrix_of(out uint row_first)
{
    uint wg = gl_WorkGroupID.x, m = 0;
    if (GLU == 0 && wg >= p.wg_end[1]) {
        m = 2;
        wg -= p.wg_end[1];
    } else if (GLU == 0 && wg >= p.wg_end[0]) {
        m = 1;
        wg -= p.wg_end[0];
    }
    row_first = wg * groups() * R;
    return m;
}

// The lanes' sums, [NS][NC], and their way to memory.
float acc[NS * NC];
const uint N_OUT = NC / PLANES; // columns that go there

// Column c of a lane's row s.
float result(uint s, uint c)
{
    precise float sum = group_sum(acc[s * NC + c * PLANES]);
    [[unroll]] for (uint k = 1; k < PLANES; k++)
        sum = sum + group_sum(acc[s * NC + c * PLANES + k]);
    return sum;
}

void put(uint m, uint row_first, uint col_first, uint n)
{
    const uint lane = lane_of(), mine = row_first + group_of() * R;
    if (GLU == 0) {
        [[unroll]] for (uint r = 0; r < R; r++) {
            [[unroll]] for (uint c = 0; c < N_OUT; c++) {
                const float sum = result(r, c);
                if (lane == (c & 7) && mine + r < p.n_rows[m] && col_first + c < n)
                    CF1(p.dst[m]).v[(col_first + c) * p.n_rows[m] + mine + r] = sum;
            }
        }
        if (AFTER == GM_VK_AFTER_NORM) tail(p.norms, p.arrived, p.dst[0], p.n_rows[0], n);
        return;
    }
    const uint n_rows = p.n_rows[0], outs = groups() * R;
    [[unroll]] for (uint r = 0; r < R; r++) {
        [[unroll]] for (uint c = 0; c < N_OUT; c++) {
            precise const float h = gm_gelu(result(r, c)) * result(R + r, c);
            if (lane == (c & 7)) {
                tile[c * outs + group_of() * R + r] = h;
                if (p.dst[0] != 0 && mine + r < n_rows && col_first + c < n)
                    WF1(p.dst[0]).v[(col_first + c) * n_rows + mine + r] = h;
            }
        }
    }
    if (p.dst[1] == 0) return;
    barrier();
    const uint per = outs / GM_VK_BLOCK;
    for (uint i = group_of(); i < N_OUT * per; i += groups()) {
        const uint c = i / per, at = i % per * GM_VK_BLOCK;
        const uint from = c * outs + at + lane * 4, row = row_first + at;
        const vec4 x = vec4(tile[from], tile[from + 1], tile[from + 2], tile[from + 3]);
        const uint block = ((col_first + c) * n_rows + row) / GM_VK_BLOCK;
        quantise_lanes(x, p.dst[1], p.dst[2], block, 0, col_first + c < n && row < n_rows);
    }
}
