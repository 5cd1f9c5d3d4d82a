#version 460
/* SPDX-License-Identifier: MIT */
// Products of quantised weights with many columns of int8 activations, in tiles of 16 by 16.
//
// A workgroup is eight subgroups and has TM tiles of rows times TN tiles of columns. Eight blocks
// of all its rows and columns are unpacked into shared memory at a time, and subgroup w multiplies
// block w of them: it has the w-th of the eight running sums of every result, which are folded in
// halves at the end, as matmul.comp folds its lanes'. So both give the same bits.
//
// The next eight blocks are on their way, in registers, while these are multiplied.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/groups.glsl"
#include "inc/dot.glsl"
#include "inc/weights.glsl"
#include "inc/pieces.glsl"
#include "inc/operands.glsl"

layout(constant_id = ID_TM) const uint TM = 2; // of gate and up half each
layout(constant_id = ID_TN) const uint TN = 1;
const uint M = TM * 16, N = TN * 16;

#define PITCH 3 // of a row of a block in units of 16 bytes: subgroups read without bank conflicts

// Where a matrix' depth is a whole block, its pieces are blocks with zeros in the other half.
layout(constant_id = ID_HALVES) const uint HALVES = 1;
// Blocks lie 16 bytes further than their rows reach: lanes that write eight of them use all banks.
const uint A_STEP = M * PITCH + 1, B_STEP = N * PITCH + 1;
const uint A_SCALES = M + 4, B_SCALES = N + 4; // from a block's scales to the next one's
const uint OPERANDS = 8 * (HALVES * A_STEP + B_STEP), SUMS = M * 16 * 8 / 4;
shared uvec4 staged[OPERANDS > SUMS ? OPERANDS : SUMS]; // at the end, sums of a tile of columns
const uint B_AT = HALVES * 8 * A_STEP;
shared float a_scale[PIECES * 8 * A_SCALES], b_scale[8 * B_SCALES], b_zero[PIECES * 8 * B_SCALES];
#if HAS_MIN
shared float a_min[PIECES * 8 * A_SCALES], b_sum[PIECES * 8 * B_SCALES];
#endif

int dot16(uvec4 a, uvec4 b)
{
    int s = 0;
    [[unroll]] for (int i = 0; i < 4; i++)
        s += dot4(int(a[i]), int(b[i]));
    return s;
}

#include "inc/mma.glsl"

// Integers are added to this, as bits; as floats they are then exact above it.
const int MAGIC = 0x4b400000;
const float MAGIC_F = 12582912.0;

const uint LANES_ALL = 8 * SUBGROUP;
const uint A_EACH = (M * 8 + LANES_ALL - 1) / LANES_ALL; // blocks of weights that a lane unpacks
const uint B_EACH = (N * 8 + LANES_ALL - 1) / LANES_ALL;
const bool A_WHOLE = M * 8 % LANES_ALL == 0, B_WHOLE = N * 8 % LANES_ALL == 0;

Raw a_raw[A_EACH];
Cursor a_at[A_EACH];
Planes matrices[NM];
uvec4 b_low[B_EACH], b_high[B_EACH];
uvec2 b_meta[B_EACH];
float acc[TM * TN * MMA_EACH];

// A lane's i-th block of weights and of activations: row or column * 8 + block.
uint mine(uint i)
{
    return i * LANES_ALL + gl_LocalInvocationIndex;
}

void fetch(uint round, uint col_first, uint n, uint n_blocks)
{
    [[unroll]] for (uint i = 0; i < A_EACH; i++) {
        const uint m = min(mine(i) / 8 / (M / NM), NM - 1);
        if (A_WHOLE || mine(i) < M * 8) a_raw[i] = cursor_load(matrices[m], a_at[i], round, 0);
    }
    [[unroll]] for (uint i = 0; i < B_EACH; i++) {
        const uint c = mine(i) / 8, b = min(round * 8 + mine(i) % 8, n_blocks - 1);
        const uint col = min(col_first + c / PLANES, n - 1);
        const uint from = col * n_blocks + c % PLANES * p.plane + b;
        if (!B_WHOLE && mine(i) >= N * 8) break;
        b_low[i] = U4(p.x).v[from * 2];
        b_high[i] = U4(p.x).v[from * 2 + 1];
        b_meta[i] = U2(p.meta).v[from];
    }
}

void stage_weights(uint i, bool inside)
{
    const uint row = mine(i) / 8, b = mine(i) % 8;
    const Raw raw = raw_cut(a_raw[i], a_at[i].shift, inside);
    uint w[8];
    block_codes(raw, w);
    const uvec4 low = uvec4(w[0], w[1], w[2], w[3]), high = uvec4(w[4], w[5], w[6], w[7]);
    const uint at = b * HALVES * A_STEP + row * PITCH;
    if (HALVES == 2) {
        staged[at] = low;
        staged[at + 1] = uvec4(0);
        staged[at + A_STEP] = uvec4(0);
        staged[at + A_STEP + 1] = high;
    } else {
        staged[at] = low;
        staged[at + 1] = high;
    }
    const vec2 d = block_scales(raw), m = block_mins(raw);
    [[unroll]] for (uint k = 0; k < PIECES; k++) {
        a_scale[(k * 8 + b) * A_SCALES + row] = d[k];
#if HAS_MIN
        a_min[(k * 8 + b) * A_SCALES + row] = m[k];
#endif
    }
}

void stage_columns(uint i)
{
    const uint c = mine(i) / 8, b = mine(i) % 8, at = B_AT + b * B_STEP + c * PITCH;
    staged[at] = b_low[i];
    staged[at + 1] = b_high[i];
    const float dx = uintBitsToFloat(b_meta[i].x);
    const ivec2 of_x = ivec2(bitfieldExtract(int(b_meta[i].y), 0, 16), int(b_meta[i].y) >> 16);
    b_scale[b * B_SCALES + c] = dx;
    [[unroll]] for (uint k = 0; k < PIECES; k++) {
        const float of_piece = float(PIECES == 2 ? of_x[k] : of_x.x + of_x.y);
        b_zero[(k * 8 + b) * B_SCALES + c] = MAGIC_F + float(ZERO) * of_piece;
#if HAS_MIN
        precise const float y = dx * of_piece;
        b_sum[(k * 8 + b) * B_SCALES + c] = y;
#endif
    }
}

// One piece of the subgroup's block.
void multiply(uint w, uint k)
{
    const uint a_from = HALVES == 2 ? (w * 2 + k) * A_STEP : w * A_STEP + k;
    const uint b_from = B_AT + w * B_STEP + (HALVES == 2 ? 0 : k);
    const uint steps = PIECES == 2 ? 1 : 32 / DEPTH; // of DEPTH that a piece takes
    float x[TN * MMA_EACH], zero[TN * MMA_EACH];
    MmaB b[TN * 2];
    [[unroll]] for (uint tn = 0; tn < TN; tn++) {
        [[unroll]] for (uint j = 0; j < steps; j++)
            mma_load_b(b[tn * 2 + j], staged, b_from + tn * 16 * PITCH + j, PITCH);
        [[unroll]] for (uint i = 0; i < MMA_EACH; i++) {
            x[tn * MMA_EACH + i] = b_scale[w * B_SCALES + tn * 16 + mma_col(i)];
            zero[tn * MMA_EACH + i] = b_zero[(k * 8 + w) * B_SCALES + tn * 16 + mma_col(i)];
        }
    }
    [[unroll]] for (uint tm = 0; tm < TM; tm++) {
        const uint row = (k * 8 + w) * A_SCALES + tm * 16;
        MmaA a[2];
        [[unroll]] for (uint j = 0; j < steps; j++)
            mma_load_a(a[j], staged, a_from + tm * 16 * PITCH + j, PITCH);
        float d[MMA_EACH];
        [[unroll]] for (uint i = 0; i < MMA_EACH; i++)
            d[i] = a_scale[row + mma_row(i)];
        [[unroll]] for (uint tn = 0; tn < TN; tn++) {
            MmaC c;
            mma_fill(c, MAGIC);
            [[unroll]] for (uint j = 0; j < steps; j++)
                mma_add(a[j], b[tn * 2 + j], c);
            [[unroll]] for (uint i = 0; i < MMA_EACH; i++) {
                const uint at = (tm * TN + tn) * MMA_EACH + i;
                precise const float s = intBitsToFloat(c[i]) - zero[tn * MMA_EACH + i];
                precise const float scale = d[i] * x[tn * MMA_EACH + i];
                acc[at] = fma(scale, s, acc[at]);
#if HAS_MIN
                acc[at] = fma(-a_min[row + mma_row(i)],
                              b_sum[(k * 8 + w) * B_SCALES + tn * 16 + mma_col(i)], acc[at]);
#endif
            }
        }
    }
}

// Sum w of a result, once the operands are done with.
// Sum w of a result, once the operands are done with.
#define sum_at(w, row, c) staged[((w * 16 + c) * M + (row)) / 4][(row) % 4]

// The eight sums of a result, folded in halves (inc/groups.glsl).
float folded(uint row, uint c)
{
    float s[8];
    [[unroll]] for (uint w = 0; w < 8; w++)
        s[w] = uintBitsToFloat(sum_at(w, row, c));
    precise const float even = (s[0] + s[4]) + (s[2] + s[6]);
    precise const float odd = (s[1] + s[5]) + (s[3] + s[7]);
    precise const float sum = even + odd;
    return sum;
}

float result(uint row, uint c)
{
    precise float sum = folded(row, c * PLANES);
    if (PLANES == 2) sum = sum + folded(row, c * PLANES + 1);
    return sum;
}

// A tile of 16 columns; what PLANES leaves of them begins with column col of the step.
void put(uint m, uint row_first, uint col, uint n)
{
    const uint columns = 16 / PLANES, outs = M / NM;
    for (uint i = gl_LocalInvocationIndex; i < columns * outs; i += gl_WorkGroupSize.x) {
        const uint c = i / outs, r = i % outs;
        const bool inside = row_first + r < p.n_rows[m] && col + c < n;
        float y = result(r, c);
        if (GLU == 1) {
            precise const float h = gm_gelu(y) * result(outs + r, c);
            y = h;
        }
        const uint64_t dst = GLU == 1 ? p.dst[0] : p.dst[m];
        if (inside && dst != 0) WF1(dst).v[(col + c) * p.n_rows[m] + row_first + r] = y;
        // The places that this result came from are nobody else's.
        if (GLU == 1) sum_at(0, r, c * PLANES) = floatBitsToUint(y);
    }
    if (GLU == 0 || p.dst[1] == 0) return;
    barrier();
    for (uint i = group_of(); i < columns * (outs / GM_VK_BLOCK); i += groups()) {
        const uint c = i / (outs / GM_VK_BLOCK), at = i % (outs / GM_VK_BLOCK) * GM_VK_BLOCK;
        const uint row = row_first + at;
        const vec4 x = uintBitsToFloat(staged[(c * PLANES * M + at) / 4 + lane_of()]);
        const uint block = ((col + c) * p.n_rows[0] + row) / GM_VK_BLOCK;
        quantise_lanes(x, p.dst[1], p.dst[2], block, 0, col + c < n && row < p.n_rows[0]);
    }
}

void main()
{
    uint row_first;
    const uint m = matrix_of(M / NM, row_first);
    const uint n = rows_in_step(p.head, p.flags), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = col_tile() * N / PLANES, w = gl_SubgroupID;
    if (col_first >= n) return;

    [[unroll]] for (uint i = 0; i < A_EACH; i++) {
        const uint row = row_first + mine(i) / 8 % (M / NM);
        a_at[i] = cursor_at(n_blocks, min(row, p.n_rows[m] - 1), mine(i) % 8);
    }
    [[unroll]] for (uint k = 0; k < NM; k++)
        matrices[k] = planes(p.w[m + k], p.n_rows[m], n_blocks);
    [[unroll]] for (uint i = 0; i < TM * TN * MMA_EACH; i++)
        acc[i] = 0;
    mma_begin();

    const uint n_rounds = (n_blocks + 7) / 8;
    fetch(0, col_first, n, n_blocks);
    for (uint round = 0; round < n_rounds; round++) {
        barrier();
        [[unroll]] for (uint i = 0; i < A_EACH; i++)
            if (A_WHOLE || mine(i) < M * 8) stage_weights(i, round * 8 + mine(i) % 8 < n_blocks);
        [[unroll]] for (uint i = 0; i < B_EACH; i++)
            if (B_WHOLE || mine(i) < N * 8) stage_columns(i);
        barrier();
        fetch(min(round + 1, n_rounds - 1), col_first, n, n_blocks);
        [[unroll]] for (uint k = 0; k < PIECES; k++)
            multiply(w, k);
    }
    [[unroll]] for (uint tn = 0; tn < TN; tn++) {
        barrier();
        [[unroll]] for (uint tm = 0; tm < TM; tm++) {
            [[unroll]] for (uint i = 0; i < MMA_EACH; i++)
                sum_at(w, tm * 16 + mma_row(i), mma_col(i)) =
                    floatBitsToUint(acc[(tm * TN + tn) * MMA_EACH + i]);
        }
        barrier();
        put(m, row_first, col_first + tn * 16 / PLANES, n);
    }
}
