#version 460
/* SPDX-License-Identifier: MIT */
// Products of quantised weights with many columns of int8 activations, in tiles of 16 by 16.
//
// A workgroup has TM tiles of rows times TN tiles of columns. Eight blocks of all its rows and
// columns are unpacked into shared memory at a time, a round; four subgroups multiply two of them
// each, w and w + 4, for all columns: they have these two of the eight running sums of a result.
// The sums are folded in halves at the end, as matmul.comp folds its lanes'. So both give the same
// bits. More subgroups, four by four, share the rows.
//
// Few lanes with many registers let more workgroups wait for memory and for barriers side by side
// than a subgroup for each sum. The next round is on its way, in registers, while this one is
// multiplied; with two STAGES it may be unpacked while others still multiply.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/dot.glsl"
#include "inc/weights.glsl"
#include "inc/pieces.glsl"
#include "inc/operands.glsl"
#include "inc/norms.glsl"
#include "inc/front.glsl"

layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 8;
layout(constant_id = ID_DEPTH) const uint DEPTH = 32; // of a matrix
layout(constant_id = ID_TM) const uint TM = 2;        // of gate and up half each
layout(constant_id = ID_TN) const uint TN = 1; // or 2
layout(constant_id = ID_STAGES) const uint STAGES = 1;
const uint M = TM * 16, N = TN * 16, LANES_ALL = gl_WorkGroupSize.x;
const uint TMW = TM / (LANES_ALL / SUBGROUP / 4); // tiles of rows that a subgroup has

// Where a matrix' depth is a whole block, a piece has zeros in the other half of the column's.
const uint HALVES = PIECES == 2 && DEPTH == 32 ? 2 : 1;
// In units of 16 bytes. A row has eight blocks of two units and one unit more, so that rows of a
// tile lie in banks of their own; of the last four blocks the two change places, so that what
// eight lanes write does too.
const uint A_PITCH = 17, B_PITCH = 16 * HALVES + 1;
const uint A_SCALES = M + 4, B_SCALES = N + 4; // from a block's scales to the next one's
const uint A_SC = PIECES * 8 * A_SCALES, B_SC = 8 * B_SCALES; // of a stage
const uint STAGE = M * A_PITCH + N * B_PITCH, B_AT = M * A_PITCH;
const uint OPERANDS = STAGES * STAGE, SUMS = M * 16;
shared uvec4 staged[OPERANDS > SUMS ? OPERANDS : SUMS]; // at the end, sums of a tile of columns
shared float a_scale[STAGES * A_SC], b_scale[STAGES * B_SC];
#if HAS_MIN
shared float a_min[STAGES * A_SC], b_sum[STAGES * PIECES * B_SC];
#endif

int dot16(uvec4 a, uvec4 b)
{
    int s = 0;
    [[unroll]] for (int i = 0; i < 4; i++)
        s += dot4(int(a[i]), int(b[i]));
    return s;
}

#include "inc/mma.glsl"

// Codes less their zero are signed bytes, times 2^UP, if they stand in a byte's highest bits.
#if ZERO == 0
#define UP 0
#else
#define UP (ZERO == 4 ? 5 : ZERO == 8 ? 4 : ZERO == 16 ? 3 : 2)
#endif
// Integers are added to this, as bits; as floats they are then exact above it.
const int MAGIC = 0x4b400000 - (UP << 23);
const float MAGIC_F = 12582912.0 / float(1 << UP);

const uint PER = LANES_ALL / 8; // rows or columns of eight blocks that all lanes unpack at once
const uint A_EACH = M / PER, B_EACH = (N + PER - 1) / PER;

Planes planes_of[A_EACH];
Cursor cursor;
Raw a_raw[A_EACH];
uvec4 b_low[B_EACH], b_high[B_EACH];
uvec2 b_meta[B_EACH];
float acc[2 * TMW * TN * MMA_EACH];

void fetch(uint round, uint col_first, uint n, uint n_blocks)
{
    const uint b = min(round * 8 + gl_LocalInvocationIndex % 8, n_blocks - 1);
    [[unroll]] for (uint i = 0; i < A_EACH; i++)
        a_raw[i] = cursor_load(planes_of[i], cursor, round, i * PER % BAND);
    [[unroll]] for (uint i = 0; i < B_EACH; i++) {
        const uint c = i * PER + gl_LocalInvocationIndex / 8;
        const uint from = min(col_first + c / PLANES, n - 1) * n_blocks + c % PLANES * p.plane + b;
        b_low[i] = input4(p.x, from * 2);
        b_high[i] = input4(p.x, from * 2 + 1);
        b_meta[i] = input2(p.meta, from);
    }
}

void stage_weights(uint i, uint to, bool inside)
{
    const uint row = i * PER + gl_LocalInvocationIndex / 8, b = gl_LocalInvocationIndex % 8;
    const Raw raw = raw_cut(a_raw[i], cursor.shift, inside);
    uint w[8];
    block_codes(raw, w);
    [[unroll]] for (uint j = 0; j < 8 && ZERO != 0; j++)
        w[j] = w[j] << UP ^ 0x80808080u;
    const uint at = to * STAGE + row * A_PITCH + b * 2, side = b >> 2;
    staged[at + side] = uvec4(w[0], w[1], w[2], w[3]);
    staged[at + 1 - side] = uvec4(w[4], w[5], w[6], w[7]);
    const vec2 d = block_scales(raw), m = block_mins(raw);
    [[unroll]] for (uint k = 0; k < PIECES; k++) {
        a_scale[to * A_SC + (k * 8 + b) * A_SCALES + row] = d[k];
#if HAS_MIN
        a_min[to * A_SC + (k * 8 + b) * A_SCALES + row] = m[k];
#endif
    }
}

void stage_columns(uint i, uint to)
{
    const uint c = i * PER + gl_LocalInvocationIndex / 8, b = gl_LocalInvocationIndex % 8;
    const uint at = to * STAGE + B_AT + c * B_PITCH + b * 2, side = b >> 2;
    if (N % PER != 0 && c >= N) return;
    staged[at + side] = b_low[i];
    staged[at + 1 - side] = HALVES == 2 ? uvec4(0) : b_high[i];
    if (HALVES == 2) {
        staged[at + 16 + side] = uvec4(0);
        staged[at + 17 - side] = b_high[i];
    }
    const float dx = uintBitsToFloat(b_meta[i].x);
    b_scale[to * B_SC + b * B_SCALES + c] = dx;
#if HAS_MIN
    const ivec2 of_x = ivec2(bitfieldExtract(int(b_meta[i].y), 0, 16), int(b_meta[i].y) >> 16);
    [[unroll]] for (uint k = 0; k < PIECES; k++) {
        precise const float y = dx * float(PIECES == 2 ? of_x[k] : of_x.x + of_x.y);
        b_sum[(to * PIECES + k) * B_SC + b * B_SCALES + c] = y;
    }
#endif
}

// One piece of block w, for the subgroup's sum s.
void multiply(uint w, uint s, uint h, uint k, uint from)
{
    const uint half_of = DEPTH == 16 && PIECES == 2 ? k ^ (w >> 2) : 0;
    const uint a_from = from * STAGE + h * TMW * 16 * A_PITCH + w * 2 + half_of;
    const uint b_from = from * STAGE + B_AT + w * 2 + (HALVES == 2 ? k * 16 : half_of);
    const uint steps = PIECES == 2 ? 1 : 32 / DEPTH; // of DEPTH that a piece takes
    float x[TN * MMA_EACH];
    MmaB b[TN * 2];
    [[unroll]] for (uint tn = 0; tn < TN; tn++) {
        [[unroll]] for (uint j = 0; j < steps; j++)
            mma_load_b(b[tn * 2 + j], staged, b_from + tn * 16 * B_PITCH + j, B_PITCH);
        [[unroll]] for (uint i = 0; i < MMA_EACH; i++)
            x[tn * MMA_EACH + i] = b_scale[from * B_SC + w * B_SCALES + tn * 16 + mma_col(i)];
    }
    [[unroll]] for (uint tm = 0; tm < TMW; tm++) {
        const uint row = from * A_SC + (k * 8 + w) * A_SCALES + (h * TMW + tm) * 16;
        MmaA a[2];
        [[unroll]] for (uint j = 0; j < steps; j++)
            mma_load_a(a[j], staged, a_from + tm * 16 * A_PITCH + j, A_PITCH);
        float d[MMA_EACH];
        [[unroll]] for (uint i = 0; i < MMA_EACH; i++)
            d[i] = a_scale[row + mma_row(i)];
        [[unroll]] for (uint tn = 0; tn < TN; tn++) {
            MmaC c;
            mma_fill(c, MAGIC);
            [[unroll]] for (uint j = 0; j < steps; j++)
                mma_add(a[j], b[tn * 2 + j], c);
            [[unroll]] for (uint i = 0; i < MMA_EACH; i++) {
                const uint to = ((s * TMW + tm) * TN + tn) * MMA_EACH + i;
                precise const float v = intBitsToFloat(c[i]) - MAGIC_F;
                precise const float scale = d[i] * x[tn * MMA_EACH + i];
                acc[to] = fma(scale, v, acc[to]);
#if HAS_MIN
                acc[to] = fma(-a_min[row + mma_row(i)],
                              b_sum[(from * PIECES + k) * B_SC + w * B_SCALES + tn * 16 +
                                    mma_col(i)],
                              acc[to]);
#endif
            }
        }
    }
}

// Sums w and w + 4 of a result together, once the operands are done with.
#define sum_at(w, row, c) staged[((w * 16 + c) * M + (row)) / 4][(row) % 4]

// What is left of folding the eight sums of a result in halves (inc/groups.glsl).
float folded(uint row, uint c)
{
    float s[4];
    [[unroll]] for (uint w = 0; w < 4; w++)
        s[w] = uintBitsToFloat(sum_at(w, row, c));
    precise const float even = s[0] + s[2];
    precise const float odd = s[1] + s[3];
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
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < columns * outs; i += LANES_ALL) {
        const uint c = i / outs, r = i % outs;
        const bool inside = row_first + r < p.n_rows[m] && col + c < n;
        float y = result(r, c);
        if (GLU == 1) {
            precise const float h = gm_gelu(y) * result(outs + r, c);
            y = h;
        }
        const uint64_t dst = GLU == 1 ? p.dst[0] : p.dst[m];
        if (inside && dst != 0) CF1(dst).v[(col + c) * p.n_rows[m] + row_first + r] = y;
        // The places that this result came from are nobody else's.
        if (GLU == 1) sum_at(0, r, c * PLANES) = floatBitsToUint(y);
    }
    if (GLU == 0 || p.dst[1] == 0) return;
    barrier();
    for (uint i = group_of(); i < columns * (outs / GM_VK_BLOCK); i += groups()) {
        const uint c = i / (outs / GM_VK_BLOCK), at = i % (outs / GM_VK_BLOCK) * GM_VK_BLOCK;
        const uint row = row_first + at;
        const vec4 x = uintBitsToFloat(staged[(c * PLANES * M + at) / 4 + lane_of()]);
        round_lanes(x, p.dst[1], p.dst[2], col + c, row / GM_VK_BLOCK, p.n_rows[0] / GM_VK_BLOCK, 0,
                    col + c < n && row < p.n_rows[0]);
    }
}

// The tn-th tile of columns: its sums are shared, then folded.
void finish(uint tn, uint m, uint row_first, uint col_first, uint n)
{
    const uint w = gl_SubgroupID % 4, h = gl_SubgroupID / 4;
    barrier();
    [[unroll]] for (uint tm = 0; tm < TMW; tm++) {
        [[unroll]] for (uint i = 0; i < MMA_EACH; i++)
            sum_at(w, (h * TMW + tm) * 16 + mma_row(i), mma_col(i)) =
                floatBitsToUint(acc[(tm * TN + tn) * MMA_EACH + i]);
    }
    barrier();
    put(m, row_first, col_first + tn * 16 / PLANES, n);
}

void multiply(uint n)
{
    uint row_first;
    const uint m = matrix_of(M / NM, row_first), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = col_tile() * N / PLANES;
    const uint w = gl_SubgroupID % 4, h = gl_SubgroupID / 4;
    if (col_first >= n) return;

    // Rows past the matrix' end lie in its last band.
    const uint n_rounds = (n_blocks + 7) / 8, n_bands = (p.n_rows[m] + BAND - 1) / BAND;
    const uint row_mine = min(gl_LocalInvocationIndex / 8, n_bands * BAND - 1 - row_first);
    [[unroll]] for (uint i = 0; i < A_EACH; i++) {
        const uint row = row_first + i * PER % (M / NM);
        planes_of[i] = planes_from(planes(p.w[m + i * PER / (M / NM)], p.n_rows[m], n_blocks),
                                   min(row / BAND, n_bands - 1) * n_rounds);
    }
    cursor = cursor_at(n_blocks, row_mine, gl_LocalInvocationIndex % 8);
    [[unroll]] for (uint i = 0; i < 2 * TMW * TN * MMA_EACH; i++)
        acc[i] = 0;
    mma_begin();

    bool late = false;
    [[dont_unroll]] do {
        front_norms(n, late);
        late = front_waits(n);
    } while (late);
    fetch(0, col_first, n, n_blocks);
    for (uint round = 0; round < n_rounds; round++) {
        const uint at = STAGES == 2 ? round & 1 : 0;
        if (STAGES == 1) barrier();
        [[unroll]] for (uint i = 0; i < A_EACH; i++)
            stage_weights(i, at, round * 8 + gl_LocalInvocationIndex % 8 < n_blocks);
        [[unroll]] for (uint i = 0; i < B_EACH; i++)
            stage_columns(i, at);
        barrier();
        fetch(min(round + 1, n_rounds - 1), col_first, n, n_blocks);
        [[unroll]] for (uint s = 0; s < 2; s++) {
            [[unroll]] for (uint k = 0; k < PIECES; k++)
                multiply(w + 4 * s, s, h, k, at);
        }
    }
    [[unroll]] for (uint i = 0; i < TMW * TN * MMA_EACH; i++) {
        precise const float sum = acc[i] + acc[TMW * TN * MMA_EACH + i];
        acc[i] = sum;
    }
    // Not a loop: Mesa 25 leaves it one, in which the sums of a lane are found by comparing.
    finish(0, m, row_first, col_first, n);
    if (TN == 2) finish(1, m, row_first, col_first, n);
}

void main()
{
    multiply(rows_in_step(p.head, p.flags));
}
