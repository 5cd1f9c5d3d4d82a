#version 460
/* SPDX-License-Identifier: MIT */
// Products of quantised weights with many rows of activations: prompts. The rows are float16
// already (halves.comp), the weights are unpacked to float16 in shared memory, and cooperative
// matrices sum in float32. A workgroup is four subgroups, two times two, and has 128 rows of
// weights times 128 columns; of gate and up 64 rows each, so that a subgroup has both of a result.
// Two workgroups share a multiprocessor, so that one multiplies while the other stages.
//
// Few tiles leave multiprocessors idle: then several workgroups have a part of the blocks each, and
// the last of them adds what they leave, in order.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/groups.glsl"
#include "inc/weights.glsl"
#include "inc/pieces.glsl"
#include "inc/operands.glsl"
#include "inc/last.glsl"
#include "inc/half_weights.glsl"

layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;

#define WM     2 // subgroups
#define WN     2
#define TM     4 // tiles of a subgroup
#define TN     4
#define M      (WM * TM * 16)
#define N      (WN * TN * 16)
#define BLOCKS 2 // of each row and column at a time
#define PITCH  (4 * BLOCKS + 1) // of a row of them in units of 16 bytes: no bank conflicts
#define LANES  (32 * WM * WN)
#define A_EACH (M * BLOCKS / LANES)     // blocks of weights that a lane unpacks
#define B_EACH (N * BLOCKS * 4 / LANES) // units of columns that it copies
#define OUTS   (M / NM)
#define HALF   (TM / 2 * 16) // rows of gate that those of up follow
#define RESULTS (WN * 16 * M / 4)

shared uvec4 staged[(M + N) * PITCH]; // at the end, results

#define HalfA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define HalfB coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define Sums  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

Planes matrix[A_EACH];
Cursor a_at[A_EACH];
Raw a_raw[A_EACH];
uint64_t b_at;
uvec4 b_raw[B_EACH];
Sums low[TM / 2 * TN], high[TM / 2 * TN]; // of gate and of up, or of the first and the last rows

// A subgroup reads the rows of a band together, and all of what it touches.
uint row_of(uint i)
{
    const uint lane = gl_LocalInvocationIndex;
    return (lane / 32 * A_EACH + i) * (32 / BLOCKS) + lane % 32 / BLOCKS;
}

uint lane_in_order()
{
    return gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
}

uint tile()
{
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

uint block_of_lane()
{
    return gl_LocalInvocationIndex % BLOCKS;
}

// Of 32 units of columns, which lie behind each other: eight lanes have eight columns, whose banks
// differ.
uvec2 column_and_unit()
{
    const uint lane = gl_LocalInvocationIndex;
    return uvec2(lane / 32 * 8 + lane % 8, lane / 8 % 4);
}

// Asks for the blocks from `first` on; past the end it is the last ones again.
void fetch(uint first, uint end)
{
    first = min(first, (end - 1) / BLOCKS * BLOCKS);
    [[unroll]] for (uint i = 0; i < A_EACH; i++)
        a_raw[i] = cursor_load(matrix[i], cursor_on(a_at[i], first & 7), first >> 3, 0);
    [[unroll]] for (uint i = 0; i < B_EACH; i++) {
        const uint unit = i * LANES, block = first + unit / (N * 4);
        b_raw[i] = U4(b_at + uint64_t(block * p.plane) * 64).v[unit % (N * 4)];
    }
}

void stage(bool inside)
{
    [[unroll]] for (uint i = 0; i < A_EACH; i++) {
        const Raw raw = raw_cut(a_raw[i], a_at[i].shift, inside);
        const HalfScale scale = half_scale(raw);
        const uint at = row_of(i) * PITCH + block_of_lane() * 4;
        [[unroll]] for (uint j = 0; j < 4; j++)
            staged[at + j] = half_weights(raw, scale, j);
    }
    const uvec2 to = column_and_unit();
    [[unroll]] for (uint i = 0; i < B_EACH; i++) {
        const uint unit = i * LANES, column = to.x + unit % (N * 4) / 4;
        staged[(M + column) * PITCH + unit / (N * 4) * 4 + to.y] = b_raw[i];
    }
}

void multiply()
{
    const uint wm = gl_SubgroupID / WN, wn = gl_SubgroupID % WN;
    const uint a_from = wm * TM * 16 * PITCH, b_from = (M + wn * TN * 16) * PITCH;
    [[unroll]] for (uint k = 0; k < 2 * BLOCKS; k++) {
        HalfA a[TM];
        [[unroll]] for (uint tm = 0; tm < TM; tm++)
            coopMatLoad(a[tm], staged, a_from + tm * 16 * PITCH + k * 2, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint tn = 0; tn < TN; tn++) {
            HalfB b;
            coopMatLoad(b, staged, b_from + tn * 16 * PITCH + k * 2, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint tm = 0; tm < TM / 2; tm++) {
                const uint at = tm * TN + tn;
                low[at] = coopMatMulAdd(a[tm], b, low[at]);
                high[at] = coopMatMulAdd(a[TM / 2 + tm], b, high[at]);
            }
        }
    }
}

// The results of 16 columns of each wn, the first of which is col_first, lie as [column][M]. A lane
// has four rows of them.
void put(uint m, uint row_first, uint col_first, uint n)
{
    const uint r = lane_in_order() % (OUTS / 4) * 4, row = row_first + r;
    const uint at = GLU == 1 ? r / HALF * (2 * HALF) + r % HALF : r;
    const uint64_t dst = GLU == 1 ? p.dst[0] : p.dst[m];
    const uint end = col_first + TN * 16 < n ? WN * 16 : 16;
    [[dont_unroll]] for (uint c = lane_in_order() / (OUTS / 4); c < end; c += LANES * 4 / OUTS) {
        const uint col = col_first + c / 16 * (TN * 16) + c % 16;
        const bool here = col < n;
        vec4 x = uintBitsToFloat(staged[(c * M + at) / 4]);
        if (GLU == 1) {
            const vec4 up = uintBitsToFloat(staged[(c * M + at + HALF) / 4]);
            x = vec4(gm_gelu(x.x), gm_gelu(x.y), gm_gelu(x.z), gm_gelu(x.w)) * up;
        }
        if (dst != 0 && here) {
            [[unroll]] for (uint j = 0; j < 4; j++)
                if (row + j < p.n_rows[m]) WF1(dst).v[col * p.n_rows[m] + row + j] = x[j];
        }
        if (GLU == 1 && p.dst[1] != 0) {
            const uint n_blocks = p.n_rows[0] / GM_VK_BLOCK;
            round_lanes(x, p.dst[1], p.dst[2], col, row / GM_VK_BLOCK, n_blocks, 0,
                        here && row < p.n_rows[0]);
        }
    }
}

// Where a part of the blocks leaves its results of 16 columns of each wn.
uint part_at(uint part, uint tn)
{
    return ((tile() * gl_NumWorkGroups.z + part) * TN + tn) * RESULTS;
}

void save(uint tn)
{
    const uint to = part_at(gl_WorkGroupID.z, tn);
    [[dont_unroll]] for (uint i = lane_in_order(); i < RESULTS; i += LANES)
        CU4(p.earlier).v[to + i] = staged[i];
}

void add_parts(uint tn)
{
    barrier();
    [[dont_unroll]] for (uint i = lane_in_order(); i < RESULTS; i += LANES) {
        vec4 sum = vec4(0);
        [[dont_unroll]] for (uint part = 0; part < gl_NumWorkGroups.z; part++)
            sum += uintBitsToFloat(CU4(p.earlier).v[part_at(part, tn) + i]);
        staged[i] = floatBitsToUint(sum);
    }
    barrier();
}

void stage_results(uint tn)
{
    const uint wm = gl_SubgroupID / WN, wn = gl_SubgroupID % WN;
    const uint to = (wn * 16 * M + wm * 2 * HALF) / 4;
    barrier();
    [[unroll]] for (uint i = 0; i < TM / 2 * TN; i++) {
        if (i % TN != tn) continue; // tn is not known where this is compiled, i is
        coopMatStore(low[i], staged, to + i / TN * 4, M / 4, gl_CooperativeMatrixLayoutColumnMajor);
        coopMatStore(high[i], staged, to + HALF / 4 + i / TN * 4, M / 4,
                     gl_CooperativeMatrixLayoutColumnMajor);
    }
    barrier();
}

// Its code is as long as the product's, so each part of it is there once.
void finish(uint m, uint row_first, uint col_first, uint n)
{
    const bool cut = GLU == 0 && gl_NumWorkGroups.z > 1;
    [[dont_unroll]] for (uint tn = 0; cut && tn < TN && col_first + tn * 16 < n; tn++) {
        stage_results(tn);
        save(tn);
    }
    if (cut && !is_last(p.arrived + 4 * tile(), gl_NumWorkGroups.z)) return;
    [[dont_unroll]] for (uint tn = 0; tn < TN && col_first + tn * 16 < n; tn++) {
        if (cut)
            add_parts(tn);
        else
            stage_results(tn);
        put(m, row_first, col_first + tn * 16, n);
    }
}

void main()
{
    uint row_first;
    const uint m = matrix_of(OUTS, row_first);
    const uint n = rows_in_step(p.head, p.flags), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = col_tile() * N;
    if (col_first >= n) return;

    [[unroll]] for (uint i = 0; i < A_EACH; i++) {
        const uint mine = row_of(i);
        const uint row = GLU == 1 ? mine / (2 * HALF) * HALF + mine % HALF : mine;
        matrix[i] = planes(p.w[m + (GLU == 1 ? mine / HALF % 2 : 0)], p.n_rows[m], n_blocks);
        a_at[i] = cursor_at(n_blocks, min(row_first + row, p.n_rows[m] - 1), block_of_lane());
    }
    const uvec2 from = column_and_unit();
    b_at = p.x + ((col_first + from.x) * 4 + from.y) * 16;
    [[unroll]] for (uint i = 0; i < TM / 2 * TN; i++)
        low[i] = high[i] = Sums(0.0);

    const uint parts = gl_NumWorkGroups.z;
    const uint each = ((n_blocks + parts - 1) / parts + BLOCKS - 1) / BLOCKS * BLOCKS;
    const uint begin = gl_WorkGroupID.z * each, end = min(begin + each, n_blocks);
    fetch(begin, end);
    [[dont_unroll]] for (uint first = begin; first < end; first += BLOCKS) {
        barrier();
        stage(first + block_of_lane() < end);
        barrier();
        fetch(first + BLOCKS, end);
        multiply();
    }
    finish(m, row_first, col_first, n);
}
