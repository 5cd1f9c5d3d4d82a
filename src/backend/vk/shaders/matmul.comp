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

// A sum of products as a float: it is counted on top of NUMBER, so that one addition turns it into
// a float, which is faster than converting it.
#define NUMBER 0x4b400000 // 1.5 * 2^23

float number(int s)
{
    precise const float x = intBitsToFloat(s) - intBitsToFloat(NUMBER);
    return x;
}

// Where the sum of products with a block of a column begins, whose codes' sum is of_x: it has the
// zero of the weights' codes in it.
int first_sum(int of_x)
{
    return NUMBER - ZERO * of_x;
}

// A block of a column has its scale and, where a block of weights is one piece, what follows from
// the sum of its codes, once for all rows; else the sums of both halves.
uvec2 column_meta_of(uvec2 meta)
{
    if (PIECES == 2) return meta;
    const int of_x = bitfieldExtract(int(meta.y), 0, 16) + (int(meta.y) >> 16);
    const float y = piece_y(uintBitsToFloat(meta.x), float(of_x));
    return uvec2(meta.x, HAS_MIN ? floatBitsToUint(y) : uint(first_sum(of_x)));
}

// Adds one block of a row, its scales and minima and codes, with one column's to a sum:
// inc/pieces.glsl has the law.
float add_block(float sum, vec2 d, vec2 m, uint w[8], ivec4 x0, ivec4 x1, uvec2 meta)
{
    const float dx = uintBitsToFloat(meta.x);
    const ivec2 of_x = ivec2(bitfieldExtract(int(meta.y), 0, 16), int(meta.y) >> 16);
    int s[2], high = 0;
    [[unroll]] for (uint k = 0; k < PIECES; k++)
        s[k] = HAS_MIN ? NUMBER : PIECES == 2 ? first_sum(of_x[k]) : int(meta.y);
    [[unroll]] for (int i = 0; i < 4; i++) {
        s[0] += dot4(int(w[i]), x0[i]);
        if (NIBBLES) high += dot4_mixed(x1[i], w[i + 4]);
        else s[PIECES - 1] += dot4(int(w[i + 4]), x1[i]);
    }
    s[0] += high >> 4;
    [[unroll]] for (uint k = 0; k < PIECES; k++) {
        const float y = PIECES == 2 ? piece_y(dx, float(of_x[k])) : uintBitsToFloat(meta.y);
        sum = add_piece(sum, d[k], m[k], dx, number(s[k]), y);
    }
    return sum;
}

layout(constant_id = ID_BLOCKS) const uint BLOCKS = 8; // of a column, whole rounds of U
shared uvec4 low[CG * NC * BLOCKS], high[CG * NC * BLOCKS];
shared uvec2 column_meta[CG * NC * BLOCKS];
layout(constant_id = ID_EVEN) const uint EVEN = 0; // rows of weights are whole rounds of U
Planes matrices[NM];
Cursor rows; // the same place in each
// Gate and up have no registers left for them: more than 40, and an H200 holds five workgroups of a
// multiprocessor where it held six.
const bool OWN_ADDRESSES = FLOW == 1 && GLU == 0;
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
    const bool inside = EVEN == 1 || round * 8 + lane_of() < n_blocks;
    vec2 d[NS], m[NS];
    uint w[NS][8];
    [[unroll]] for (uint s = 0; s < NS; s++) {
        const Raw come = raw_cut(raw[u * NS + s], rows.shift, inside);
        d[s] = block_scales(come);
        m[s] = block_mins(come);
        if (NIBBLES) block_nibbles(come, w[s]);
        else block_codes(come, w[s]);
    }
    fetch(u, round + U, n_blocks);
    [[unroll]] for (uint c = 0; c < NC; c++) {
        const uint i = (group_of() % CG * NC + c) * BLOCKS + at + lane_of();
        const ivec4 x0 = ivec4(low[i]), x1 = ivec4(high[i]);
        const uvec2 meta = column_meta[i];
        [[unroll]] for (uint s = 0; s < NS; s++)
            acc[s * NC + c] = add_block(acc[s * NC + c], d[s], m[s], w[s], x0, x1, meta);
    }
}

// 16 and 8 bytes of a row. Who looks again looks past all caches. The first look at what another
// kernel writes meanwhile is not at readonly memory, which a compiler may read before it waits.
uvec4 look4(uint64_t from, uint i, bool again)
{
    return FLOW == 0 ? input4(from, i) : again ? VU4(from).v[i] : WU4(from).v[i];
}

uvec2 look2(uint64_t from, uint i, bool again)
{
    return FLOW == 0 ? input2(from, i) : again ? VU2(from).v[i] : WU2(from).v[i];
}

// Block i of those that are shared, the first of which is `first` of the workgroup's columns; true
// if it was not all there.
bool share_block(uint i, uint col_first, uint n, uint first, uint n_blocks, bool again)
{
    const uint c = i / BLOCKS, b = min(first + i % BLOCKS, n_blocks - 1);
    const uint col = min(col_first + c / PLANES, n - 1);
    const uint from = col * n_blocks + c % PLANES * p.plane + b;
    const uvec4 x0 = look4(p.x, from * 2, again), x1 = look4(p.x, from * 2 + 1, again);
    const uvec2 meta = look2(p.meta, from, again);
    low[i] = x0;
    high[i] = x1;
    column_meta[i] = column_meta_of(meta);
    return is_unwritten(x0) || is_unwritten(x1) || is_unwritten(meta);
}

// Blocks [first, first + BLOCKS) of the workgroup's columns. The first look at them may end in a
// cache that the workgroups of a multiprocessor share; they all want the same.
void share_columns(uint col_first, uint n, uint first, uint n_blocks)
{
    const uint all = CG * NC * BLOCKS;
    uint looks = 0, missing = 0;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < all; i += gl_WorkGroupSize.x)
        missing += uint(share_block(i, col_first, n, first, n_blocks, false));
    [[dont_unroll]] while (flow_again(p.flow, missing != 0, looks)) {
        missing = 0;
        [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < all; i += gl_WorkGroupSize.x)
            missing += uint(share_block(i, col_first, n, first, n_blocks, true));
    }
    barrier();
}

void multiply(uint n)
{
    uint row_first;
    const uint m = rows_mine(row_first), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = col_tile() * CG * N_OUT;
    if (col_first >= n) return;

    // Rows past the matrix' end lie in its last band.
    const uint row = min(row_first + group_of() / CG * R, (p.n_rows[m] - 1) / R * R);
    rows = cursor_at(n_blocks, row, lane_of());
    [[unroll]] for (uint k = 0; k < NM; k++) {
        matrices[k] = planes(p.w[m + k], p.n_rows[m], n_blocks);
        if (OWN_ADDRESSES) matrices[k] = planes_of_lane(matrices[k], rows);
    }
    if (OWN_ADDRESSES) rows = cursor_of_lane(rows);
    [[unroll]] for (uint i = 0; i < NS * NC; i++)
        acc[i] = 0;

    bool late = false;
    [[dont_unroll]] do {
        front_norms(n, late);
        flow_hold(p.flow);
        [[unroll]] for (uint u = 0; u < U; u++)
            fetch(u, u, n_blocks);
        late = front_waits(n);
    } while (late);
    flow_wait(p.flow);
    for (uint first = 0; first < n_blocks; first += BLOCKS) {
        share_columns(col_first, n, first, n_blocks);
        for (uint at = 0; at < BLOCKS && first + at < n_blocks; at += 8 * U) {
            [[unroll]] for (uint u = 0; u < U; u++)
                use(u, at + 8 * u, (first + at) / 8 + u, n_blocks);
        }
    }
    if (FLOW == 1) flow_count(p.flow.done + (AFTER == GM_VK_AFTER_NORM ? GM_VK_FLOW_INNER : 0));
    put(m, row_first, col_first, n);
}

void main()
{
    if (norms_beside()) return;
    multiply(rows_in_step(p.head, p.flags));
}
