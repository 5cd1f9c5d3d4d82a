/* SPDX-License-Identifier: MIT */
// What all products share: who works on what, and where results go.
//
// A group of eight lanes works on R rows of weights together, each lane on every eighth block, for
// NC columns of activations; PLANES of them, side by side, stand for a column of the input. CG
// groups side by side have the same rows and columns of their own, so that more columns than a lane
// has sums for read weights from memory once. A lane's sums are folded in halves at the end, so a
// row's result depends on neither the columns beside it nor the workgroup (quant/dot.h).
// AFTER_GELU: a group works on R rows of two matrices, gate and up. Norms that come before
// or follow may be done here, too (inc/front.glsl, inc/beside.glsl).
#include "inc/operands.glsl"
#include "inc/beside.glsl"
#include "inc/front.glsl"

layout(constant_id = ID_R) const uint R = 1;
layout(constant_id = ID_NC) const uint NC = 1;
layout(constant_id = ID_U) const uint U = 1; // blocks of a row that a lane has on their way
layout(constant_id = ID_TILE) const uint TILE = 1; // floats shared: a workgroup's results
layout(constant_id = ID_CG) const uint CG = 1;
const uint NS = NM * R; // rows that a lane works on

shared float tile[TILE];

// The matrix that this workgroup works on, and its first row there.
uint rows_mine(out uint row_first)
{
    return matrix_of(groups() / CG * R, row_first);
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
                    CF1(p.dst[m]).v[(col_mine + c) * p.n_rows[m] + mine + r] = written(sum);
            }
        }
        return;
    }
    const uint n_rows = p.n_rows[0], outs = groups() / CG * R;
    [[unroll]] for (uint r = 0; r < R; r++) {
        [[unroll]] for (uint c = 0; c < N_OUT; c++) {
            precise const float h = gm_gelu(result(r, c)) * result(R + r, c);
            if (lane == (c & 7)) {
                tile[(col_group + c) * outs + group * R + r] = h;
                if (p.dst[0] != 0 && mine + r < n_rows && col_mine + c < n)
                    hand_on(p.dst[0], (col_mine + c) * n_rows + mine + r, h);
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
        round_lanes(x, p.dst[1], p.dst[2], col_first + c, row / GM_VK_BLOCK, n_rows / GM_VK_BLOCK,
                    0, col_first + c < n && row < n_rows);
    }
}
