/* SPDX-License-Identifier: MIT */
// What all products share: who works on what, and where results go.
//
// A group of eight lanes works on R rows of weights together, each lane on every eighth block, for
// NC columns of activations; PLANES of them, side by side, stand for a column of the input. CG
// groups side by side have the same rows and columns of their own, so that more columns than a lane
// has sums for read weights from memory once. A lane's sums are folded in halves at the end, so a
// row's result depends on neither the columns beside it nor the workgroup (quant/dot.h).
// AFTER_GELU: a group works on R rows of two matrices, gate and up. AFTER_NORM: the last workgroup
// goes on with the norms that follow (inc/tail.glsl).
#include "inc/norms.glsl"
#include "inc/tail.glsl"

layout(constant_id = ID_R) const uint R = 1;
layout(constant_id = ID_NC) const uint NC = 1;
layout(constant_id = ID_U) const uint U = 1; // blocks of a row that a lane has on their way
layout(constant_id = ID_AFTER) const uint AFTER = 0; // GM_VK_AFTER_*
layout(constant_id = ID_TILE) const uint TILE = 1; // floats shared: a workgroup's results
layout(constant_id = ID_PLANES) const uint PLANES = 1; // rows of int8 that stand for a column
layout(constant_id = ID_CG) const uint CG = 1;
const uint GLU = AFTER == GM_VK_AFTER_GELU ? 1 : 0;
const uint NM = 1 + GLU;
const uint NS = NM * R; // rows that a lane works on

layout(push_constant, std430) uniform Push { gm_vk_matmul p; };

shared float tile[TILE];

// The columns that this workgroup works on: neighbours read the same weights, and what is near in
// time is still in the cache.
uint col_tile()
{
    return (gl_WorkGroupID.y << p.side) + (gl_WorkGroupID.x & ((1u << p.side) - 1));
}

// The matrix that it works on, and its first row there.
uint matrix_of(out uint row_first)
{
    uint wg = gl_WorkGroupID.x >> p.side, m = 0;
    if (GLU == 0 && wg >= p.wg_end[1]) {
        m = 2;
        wg -= p.wg_end[1];
    } else if (GLU == 0 && wg >= p.wg_end[0]) {
        m = 1;
        wg -= p.wg_end[0];
    }
    row_first = wg * (groups() / CG) * R;
    return m;
}

// The lanes' sums, [NS][NC], and their way to memory.
float acc[NS * NC];
const uint N_OUT = NC / PLANES; // columns that go there, CG times

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
    const uint lane = lane_of(), group = group_of() / CG, mine = row_first + group * R;
    const uint col_group = group_of() % CG * N_OUT, col_mine = col_first + col_group;
    if (GLU == 0) {
        [[unroll]] for (uint r = 0; r < R; r++) {
            [[unroll]] for (uint c = 0; c < N_OUT; c++) {
                const float sum = result(r, c);
                if (lane == (c & 7) && mine + r < p.n_rows[m] && col_mine + c < n)
                    CF1(p.dst[m]).v[(col_mine + c) * p.n_rows[m] + mine + r] = sum;
            }
        }
        if (AFTER == GM_VK_AFTER_NORM) tail(p.norms, p.arrived, p.dst[0], p.n_rows[0], n);
        return;
    }
    const uint n_rows = p.n_rows[0], outs = groups() / CG * R;
    [[unroll]] for (uint r = 0; r < R; r++) {
        [[unroll]] for (uint c = 0; c < N_OUT; c++) {
            precise const float h = gm_gelu(result(r, c)) * result(R + r, c);
            if (lane == (c & 7)) {
                tile[(col_group + c) * outs + group * R + r] = h;
                if (p.dst[0] != 0 && mine + r < n_rows && col_mine + c < n)
                    WF1(p.dst[0]).v[(col_mine + c) * n_rows + mine + r] = h;
            }
        }
    }
    if (p.dst[1] == 0) return;
    barrier();
    const uint per = outs / GM_VK_BLOCK;
    for (uint i = group_of(); i < CG * N_OUT * per; i += groups()) {
        const uint c = i / per, at = i % per * GM_VK_BLOCK;
        const uint from = c * outs + at + lane * 4, row = row_first + at;
        const vec4 x = vec4(tile[from], tile[from + 1], tile[from + 2], tile[from + 3]);
        const uint block = ((col_first + c) * n_rows + row) / GM_VK_BLOCK;
        quantise_lanes(x, p.dst[1], p.dst[2], block, 0, col_first + c < n && row < n_rows);
    }
}
