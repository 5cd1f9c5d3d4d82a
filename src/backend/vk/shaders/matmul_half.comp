#version 460
/* SPDX-License-Identifier: MIT */
// Products of quantised weights with many rows of int8 activations: prompts. Both are unpacked to
// float16 in shared memory, and cooperative matrices sum in float32. A workgroup is eight
// subgroups, four times two, and has 128 rows of weights times 128 columns; of gate and up 64 rows
// each, so that a subgroup has both of a result. The next blocks are on their way meanwhile.
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

layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;

#define M      128
#define N      128
#define BLOCKS 2 // of each row and column at a time
#define PITCH  9 // of a row of them in units of 16 bytes: read without bank conflicts
#define TM     2 // tiles of a subgroup
#define TN     4

shared uvec4 staged[(M + N) * PITCH]; // at the end, results

#define HalfA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define HalfB coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define Sums  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

// A lane has a block of a row of weights and one of a column, of the two that are next.
Planes matrix;
Cursor a_at;
Raw a_raw;
uint b_at;
uvec4 b_raw[2 * PLANES];
float b_scale[PLANES];
Sums acc[TM * TN];

uint row_of_lane()
{
    return gl_LocalInvocationIndex / BLOCKS;
}

uint block_of_lane()
{
    return gl_LocalInvocationIndex % BLOCKS;
}

// Asks for the blocks from `first` on; past a row's end it is the last ones again.
void fetch(uint first, uint n_blocks)
{
    first = min(first, (n_blocks - 1) / BLOCKS * BLOCKS);
    a_raw = cursor_load(matrix, cursor_on(a_at, first & 7), first >> 3, 0);
    const uint b = min(first + block_of_lane(), n_blocks - 1);
    [[unroll]] for (uint k = 0; k < PLANES; k++) {
        const uint from = b_at + k * p.plane + b;
        b_raw[k * 2] = U4(p.x).v[from * 2];
        b_raw[k * 2 + 1] = U4(p.x).v[from * 2 + 1];
        b_scale[k] = uintBitsToFloat(U2(p.meta).v[from].x);
    }
}

// Eight codes, in two words, as float16.
uvec4 halves_of(uint low, uint high, float zero, float scale, float m)
{
    uvec4 h;
    [[unroll]] for (int k = 0; k < 4; k++) {
        const int word = int(k < 2 ? low : high), from = k % 2 * 16;
        const vec2 codes = vec2(bitfieldExtract(word, from, 8), bitfieldExtract(word, from + 8, 8));
        h[k] = packHalf2x16((codes - zero) * scale - m);
    }
    return h;
}

vec4 bytes_of(uint word)
{
    return vec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8),
                bitfieldExtract(int(word), 16, 8), bitfieldExtract(int(word), 24, 8));
}

// Four values of the column, of all its planes.
vec4 column_values(uint i)
{
    vec4 x = bytes_of(b_raw[i / 4][i % 4]) * b_scale[0];
    if (PLANES == 2) x += bytes_of(b_raw[2 * PLANES - 2 + i / 4][i % 4]) * b_scale[PLANES - 1];
    return clamp(x * GM_VK_HALF_UP, -65504.0, 65504.0);
}

void stage(bool inside)
{
    const Raw raw = raw_cut(a_raw, a_at.shift, inside);
    uint w[8];
    block_codes(raw, w);
    const vec2 d = block_scales(raw), m = block_mins(raw);
    const uint at = row_of_lane() * PITCH + block_of_lane() * 4;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const uint piece = PIECES == 2 ? j / 2 : 0;
        staged[at + j] = halves_of(w[j * 2], w[j * 2 + 1], float(ZERO), d[piece], m[piece]);
        const vec4 x = column_values(j * 2), y = column_values(j * 2 + 1);
        staged[at + M * PITCH + j] = uvec4(packHalf2x16(x.xy), packHalf2x16(x.zw),
                                           packHalf2x16(y.xy), packHalf2x16(y.zw));
    }
}

void multiply()
{
    const uint wm = gl_SubgroupID / 2, wn = gl_SubgroupID % 2;
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
            [[unroll]] for (uint tm = 0; tm < TM; tm++)
                acc[tm * TN + tn] = coopMatMulAdd(a[tm], b, acc[tm * TN + tn]);
        }
    }
}

void put(uint m, uint row_first, uint col_first, uint n_columns, uint outs, uint n)
{
    const uint lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    for (uint i = lane; i < n_columns * outs / 4; i += gl_WorkGroupSize.x) {
        const uint c = i / (outs / 4), r = i % (outs / 4) * 4, row = row_first + r;
        const vec4 x = uintBitsToFloat(staged[c * outs / 4 + r / 4]);
        const uint64_t dst = GLU == 1 ? p.dst[0] : p.dst[m];
        const bool here = col_first + c < n;
        if (dst != 0 && here) {
            [[unroll]] for (uint j = 0; j < 4; j++)
                if (row + j < p.n_rows[m])
                    WF1(dst).v[(col_first + c) * p.n_rows[m] + row + j] = x[j];
        }
        if (GLU == 1 && p.dst[1] != 0) {
            const uint block = ((col_first + c) * p.n_rows[0] + row) / GM_VK_BLOCK;
            quantise_lanes(x, p.dst[1], p.dst[2], block, 0, here && row < p.n_rows[0]);
        }
    }
}

void main()
{
    uint row_first;
    const uint m = matrix_of(M / NM, row_first);
    const uint n = rows_in_step(p.head, p.flags), n_blocks = p.n_cols / GM_VK_BLOCK;
    const uint col_first = col_tile() * N, wm = gl_SubgroupID / 2, wn = gl_SubgroupID % 2;
    if (col_first >= n) return;

    // Rows of gate and up lie in tiles of 16 in turn.
    const uint mine = row_of_lane(), row = GLU == 1 ? mine / 32 * 16 + mine % 16 : mine;
    matrix = planes(p.w[m + (GLU == 1 ? mine / 16 % 2 : 0)], p.n_rows[m], n_blocks);
    a_at = cursor_at(n_blocks, min(row_first + row, p.n_rows[m] - 1), block_of_lane());
    b_at = min(col_first + mine, n - 1) * n_blocks;
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        acc[i] = Sums(0.0);

    fetch(0, n_blocks);
    for (uint first = 0; first < n_blocks; first += BLOCKS) {
        barrier();
        stage(first + block_of_lane() < n_blocks);
        barrier();
        fetch(first + BLOCKS, n_blocks);
        multiply();
    }

    if (GLU == 1) {
        [[unroll]] for (uint tn = 0; tn < TN; tn++) {
            [[unroll]] for (uint i = 0; i < 256 / SUBGROUP; i++) {
                const float g = acc[tn][i] * GM_VK_HALF_DOWN, u = acc[TN + tn][i] * GM_VK_HALF_DOWN;
                acc[tn][i] = gm_gelu(g) * u;
            }
        }
        barrier();
        [[unroll]] for (uint tn = 0; tn < TN; tn++)
            coopMatStore(acc[tn], staged, ((wn * TN + tn) * 16 * 64 + wm * 16) / 4, 16,
                         gl_CooperativeMatrixLayoutColumnMajor);
        barrier();
        put(m, row_first, col_first, N, 64, n);
        return;
    }
    [[unroll]] for (uint half_of = 0; half_of < 2; half_of++) {
        barrier();
        if (wn == half_of) {
            [[unroll]] for (uint i = 0; i < TM * TN; i++) {
                acc[i] = acc[i] * GM_VK_HALF_DOWN;
                coopMatStore(acc[i], staged, (i % TN * 16 * 128 + (wm * TM + i / TN) * 16) / 4, 32,
                             gl_CooperativeMatrixLayoutColumnMajor);
            }
        }
        barrier();
        put(m, row_first, col_first + half_of * 64, 64, 128, n);
    }
}
