#version 460
/* SPDX-License-Identifier: MIT */
// Products of quantised weights with int8 activations: decode lives here, and prompts too.
//
// A lane reads 16 bytes of codes of a row at a time; eight lanes read 128 neighbouring bytes. The
// loads of U rounds are on their way while one is used. The columns of activations are read once by
// the workgroup, BLOCKS blocks of each at a time, into shared memory: as two arrays, so that lanes
// side by side have no bank in common.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/dot.glsl"
#include "inc/weights.glsl"
#include "inc/pieces.glsl"
#include "inc/product.glsl"

// Adds one block of a row with one column's to a sum: inc/pieces.glsl has the law.
float add_block(float sum, Raw raw, uint w[8], ivec4 x0, ivec4 x1, uvec2 meta)
{
    int s[2] = int[2](0, 0);
    [[unroll]] for (int i = 0; i < 4; i++) {
        s[0] += dot4(int(w[i]), x0[i]);
        s[1] += dot4(int(w[i + 4]), x1[i]);
    }
    const float dx = uintBitsToFloat(meta.x);
    const ivec2 of_x = ivec2(bitfieldExtract(int(meta.y), 0, 16), int(meta.y) >> 16);
    const vec2 d = block_scales(raw), m = block_mins(raw);
    [[unroll]] for (uint k = 0; k < PIECES; k++) {
        const int of_piece = PIECES == 2 ? of_x[k] : of_x.x + of_x.y;
        const int dot = (PIECES == 2 ? s[k] : s[0] + s[1]) - ZERO * of_piece;
        sum = add_piece(sum, d[k], m[k], dx, float(dot), float(of_piece));
    }
    return sum;
}

layout(constant_id = ID_BLOCKS) const uint BLOCKS = 8; // of a column, whole rounds of U
shared uvec4 low[CG * NC * BLOCKS], high[CG * NC * BLOCKS];
shared uvec2 column_meta[CG * NC * BLOCKS];
Planes matrices[NM];
Cursor rows; // the same place in each
Raw raw[U * NS]; // on their way

// Asks for a round of every row. Past a row's end it is the last one again: a load that may or may
// not be asked for has to be waited for at once.
void fetch(uint u, uint round, uint n_blocks)
{
    const uint there = min(round, (n_blocks - 1) / 8);
    [[unroll]] for (uint s = 0; s < NS; s++)
        raw[u * NS + s] = cursor_load(matrices[s / R], rows, there, s % R);
}

// Adds a round, which has come and is in shared memory from block `at` on; in its place the one U
// rounds behind is asked for. Past a row's end weights count 0, and columns have their last block.
void use(uint u, uint at, uint round, uint n_blocks)
{
    const bool inside = round * 8 + lane_of() < n_blocks;
    Raw come[NS];
    uint w[NS][8];
    [[unroll]] for (uint s = 0; s < NS; s++) {
        come[s] = raw_cut(raw[u * NS + s], rows.shift, inside);
        block_codes(come[s], w[s]);
    }
    fetch(u, round + U, n_blocks);
    [[unroll]] for (uint c = 0; c < NC; c++) {
        const uint i = (group_of() % CG * NC + c) * BLOCKS + at + lane_of();
        const ivec4 x0 = ivec4(low[i]), x1 = ivec4(high[i]);
        const uvec2 meta = column_meta[i];
        [[unroll]] for (uint s = 0; s < NS; s++)
            acc[s * NC + c] = add_block(acc[s * NC + c], come[s], w[s], x0, x1, meta);
    }
}

// Blocks [first, first + BLOCKS) of the workgroup's columns.
void share_columns(uint col_first, uint n, uint first, uint n_blocks)
{
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < CG * NC * BLOCKS; i += gl_WorkGroupSize.x) {
        const uint c = i / BLOCKS, b = min(first + i % BLOCKS, n_blocks - 1);
        const uint col = min(col_first + c / PLANES, n - 1);
        const uint from = col * n_blocks + c % PLANES * p.plane + b;
        if (FLOW == 1) {
            low[i] = CU4(p.x).v[from * 2];
            high[i] = CU4(p.x).v[from * 2 + 1];
            column_meta[i] = CU2(p.meta).v[from];
        } else {
            low[i] = U4(p.x).v[from * 2];
            high[i] = U4(p.x).v[from * 2 + 1];
            column_meta[i] = U2(p.meta).v[from];
        }
    }
    barrier();
}

void main()
{
    if (norms_beside()) return;
    uint row_first;
    const uint m = rows_mine(row_first);
    const uint n = rows_in_step(p.head, p.flags), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = col_tile() * CG * N_OUT;
    if (col_first >= n) return;

    // Rows past the matrix' end lie in its last band.
    const uint row = min(row_first + group_of() / CG * R, (p.n_rows[m] - 1) / R * R);
    rows = cursor_at(n_blocks, row, lane_of());
    [[unroll]] for (uint k = 0; k < NM; k++)
        matrices[k] = planes(p.w[m + k], p.n_rows[m], n_blocks);
    [[unroll]] for (uint i = 0; i < NS * NC; i++)
        acc[i] = 0;

    flow_hold(p.flow);
    [[unroll]] for (uint u = 0; u < U; u++)
        fetch(u, u, n_blocks);
    flow_wait(p.flow);
    for (uint first = 0; first < n_blocks; first += BLOCKS) {
        share_columns(col_first, n, first, n_blocks);
        for (uint at = 0; at < BLOCKS && first + at < n_blocks; at += 8 * U) {
            [[unroll]] for (uint u = 0; u < U; u++)
                use(u, at + 8 * u, (first + at) / 8 + u, n_blocks);
        }
    }
    put(m, row_first, col_first, n);
}
