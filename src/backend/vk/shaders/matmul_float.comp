#version 460
/* SPDX-License-Identifier: MIT */
// Products of plain float weights with float32 activations: sixteen running sums a row, two a lane,
// in the order of quant/dot.h.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/floats.glsl"
#include "inc/product.glsl"

void multiply(uint n)
{
    uint row_first;
    const uint m = rows_mine(row_first), n_chunks = floats_chunks(p.n_cols);
    const uint col_first = col_tile() * CG * NC, lane = lane_of();
    const uint col_mine = col_first + group_of() % CG * NC;
    if (col_first >= n) return;

    uint first[R];
    [[unroll]] for (uint r = 0; r < R; r++)
        first[r] = min(row_first + group_of() / CG * R + r, p.n_rows[m] - 1) * n_chunks * 128;

    bool late = false;
    [[dont_unroll]] do {
        front_norms(n, late);
        late = front_waits(n);
    } while (late);

    float high[NS * NC]; // running sums 8 to 15; 0 to 7 are in acc
    [[unroll]] for (uint i = 0; i < NS * NC; i++)
        acc[i] = high[i] = 0;

    for (uint k = 0; k < n_chunks; k++) {
        [[unroll]] for (uint s = 0; s < NS; s++) {
            float w0[8], w1[8];
            floats_load(p.w[m + s / R], first[s % R] + k * 128 + lane * 8, w0);
            floats_load(p.w[m + s / R], first[s % R] + k * 128 + lane * 8 + 64, w1);
            [[unroll]] for (uint c = 0; c < NC; c++) {
                const uint column = min(col_mine + c, n - 1) * p.n_cols;
                [[unroll]] for (uint j = 0; j < 8; j++) {
                    const uint i = k * 128 + j * 16 + lane;
                    const float x0 = i < p.n_cols ? input1(p.x, column + i) : 0;
                    const float x1 = i + 8 < p.n_cols ? input1(p.x, column + i + 8) : 0;
                    precise const float y0 = acc[s * NC + c] + w0[j] * x0;
                    precise const float y1 = high[s * NC + c] + w1[j] * x1;
                    acc[s * NC + c] = y0;
                    high[s * NC + c] = y1;
                }
            }
        }
    }
    [[unroll]] for (uint i = 0; i < NS * NC; i++) {
        precise const float sum = acc[i] + high[i];
        acc[i] = sum;
    }
    put(m, row_first, col_first, n);
}

void main()
{
    multiply(rows_in_step(p.head, p.flags));
}
