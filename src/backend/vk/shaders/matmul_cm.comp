#version 460
// SPDX-License-Identifier: MIT
// Products of quantised weights with int8 activations for many columns, by cooperative matrices of
// bytes. The bits are those of matmul.comp: block b belongs to running sum b % 8, and subgroup s of
// eight has running sum s of the whole tile, so each subgroup goes through every eighth block; at
// the end the eight are folded in halves.
//
// A round is eight blocks (256 columns of the weights). The workgroup reads the next round while it
// multiplies this one, and takes blocks apart into shared memory, a block a subgroup.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/weights.glsl"

layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = ID_TM) const uint TM = 2; // tiles of 16 rows of weights
layout(constant_id = ID_TN) const uint TN = 2; // tiles of 16 columns of activations
layout(constant_id = ID_GLU) const uint GLU = 0;
const uint KD = 32;
const uint BM = TM * 16, BN = TN * 16;
const uint ROWS = BM / (1 + GLU); // outputs of a workgroup; with GLU the upper half of the tile is up

layout(push_constant, std430) uniform Push { gm_vk_matmul p; };

#define Bytes(R, C, USE) coopmat<int8_t, gl_ScopeSubgroup, R, C, USE>
#define Ints             coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define Floats           coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

// Eight blocks of the round, [8][BM or BN][8 words]; then what scales them.
shared uvec4 codes[8 * BM * 2];
shared uvec4 acts[8 * BN * 2];
shared float row_d[8 * BM];
shared float col_d[8 * BN];
#if SUPER_BYTES > 0
shared float row_sc[8 * BM * 2];
#endif
#if HAS_MIN
shared float row_dmin[8 * BM], row_min[8 * BM * 2];
shared float col_sum[8 * BN * 2];
#endif
shared float tile[4 * BM * BN]; // for folding

const uint NA = BM * 8 / (SUBGROUP * 8); // blocks of a round that an invocation brings
const uint NB = (BN * 8 + SUBGROUP * 8 - 1) / (SUBGROUP * 8);

uint m_of, row_first, col_first, n_live, n_blocks;
Planes pl[1 + GLU];
Raw raw[NA];
uvec4 x0[NB], x1[NB];
uvec2 meta[NB];

// Codes as signed bytes.
uint centred(uint w)
{
    return ZERO == 0 ? w : ((w | 0x80808080u) - ZERO * 0x01010101u) ^ 0x80808080u;
}

void bring(uint round)
{
    const uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    [[unroll]] for (uint i = 0; i < NA; i++) {
        const uint at = t + i * SUBGROUP * 8, r = at / 8, b = min(round * 8 + at % 8, n_blocks - 1);
        const uint which = GLU == 1 && r >= ROWS ? 1 : 0;
        const uint row = min(row_first + r - which * ROWS, p.n_rows[m_of] - 1);
        raw[i] = block_load(pl[which], row * n_blocks, b);
    }
    [[unroll]] for (uint i = 0; i < NB; i++) {
        const uint at = min(t + i * SUBGROUP * 8, BN * 8 - 1);
        const uint c = min(col_first + at / 8, n_live - 1);
        const uint block = c * n_blocks + min(round * 8 + at % 8, n_blocks - 1);
        x0[i] = U4(p.x).v[block * 2];
        x1[i] = U4(p.x).v[block * 2 + 1];
        meta[i] = U2(p.meta).v[block];
    }
}

void unpack(uint round)
{
    const uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    [[unroll]] for (uint i = 0; i < NA; i++) {
        const uint at = t + i * SUBGROUP * 8, r = at / 8, b = at % 8, to = b * BM + r;
        uint w[8];
        block_codes(raw[i], w);
        codes[to * 2] = uvec4(centred(w[0]), centred(w[1]), centred(w[2]), centred(w[3]));
        codes[to * 2 + 1] = uvec4(centred(w[4]), centred(w[5]), centred(w[6]), centred(w[7]));
        const vec2 d = block_d(raw[i]);
        row_d[to] = d.x;
#if SUPER_BYTES > 0
        const ivec2 sc = block_sc(raw[i]);
        row_sc[b * 2 * BM + r] = float(sc.x);
        row_sc[(b * 2 + 1) * BM + r] = float(sc.y);
#endif
#if HAS_MIN
        const ivec2 m = block_min(raw[i]);
        row_dmin[to] = d.y;
        row_min[b * 2 * BM + r] = float(m.x);
        row_min[(b * 2 + 1) * BM + r] = float(m.y);
#endif
    }
    [[unroll]] for (uint i = 0; i < NB; i++) {
        const uint at = t + i * SUBGROUP * 8, c = at / 8, b = at % 8, to = b * BN + c;
        if (at >= BN * 8) break;
        acts[to * 2] = x0[i];
        acts[to * 2 + 1] = x1[i];
        col_d[to] = uintBitsToFloat(meta[i].x);
#if HAS_MIN
        col_sum[b * 2 * BN + c] = float(bitfieldExtract(int(meta[i].y), 0, 16));
        col_sum[(b * 2 + 1) * BN + c] = float(int(meta[i].y) >> 16);
#endif
    }
}

// A vector along the tile's rows, or along its columns, as a matrix.
#define BY_ROW(m, from, at) coopMatLoad(m, from, at, 0, gl_CooperativeMatrixLayoutColumnMajor)
#define BY_COL(m, from, at) coopMatLoad(m, from, at, 0, gl_CooperativeMatrixLayoutRowMajor)

Floats sums[TM * TN];

// This subgroup's block of the round.
void multiply()
{
    const uint s = gl_SubgroupID;
    Bytes(KD, 16, gl_MatrixUseB) b[TN];
    Floats by_col[TN];
    [[unroll]] for (uint j = 0; j < TN; j++) {
        coopMatLoad(b[j], acts, (s * BN + j * 16) * 2, 2, gl_CooperativeMatrixLayoutColumnMajor);
        BY_COL(by_col[j], col_d, s * BN + j * 16);
    }
    [[unroll]] for (uint i = 0; i < TM; i++) {
        Bytes(16, KD, gl_MatrixUseA) a;
        Floats by_row;
        coopMatLoad(a, codes, (s * BM + i * 16) * 2, 2, gl_CooperativeMatrixLayoutRowMajor);
        BY_ROW(by_row, row_d, s * BM + i * 16);
        [[unroll]] for (uint j = 0; j < TN; j++) {
            const Ints s32 = coopMatMulAdd(a, b[j], Ints(0));
            precise Floats t = by_row * Floats(s32);
            precise Floats u = by_col[j] * t;
            precise Floats v = sums[i * TN + j] + u;
            sums[i * TN + j] = v;
        }
    }
}

// Folds the eight running sums: 0 + 4, 1 + 5 .., then halves of that; subgroup 0 has the result.
void fold_sums()
{
    const uint s = gl_SubgroupID;
    for (uint half_way = 4; half_way > 0; half_way /= 2) {
        barrier();
        if (s >= half_way && s < 2 * half_way) {
            [[unroll]] for (uint i = 0; i < TM * TN; i++)
                coopMatStore(sums[i], tile, ((s - half_way) * TM * TN + i) * 256, 16,
                             gl_CooperativeMatrixLayoutRowMajor);
        }
        barrier();
        if (s < half_way) {
            [[unroll]] for (uint i = 0; i < TM * TN; i++) {
                Floats other;
                coopMatLoad(other, tile, (s * TM * TN + i) * 256, 16,
                            gl_CooperativeMatrixLayoutRowMajor);
                sums[i] = sums[i] + other;
            }
        }
    }
    barrier();
    if (s == 0) {
        [[unroll]] for (uint i = 0; i < TM * TN; i++)
            coopMatStore(sums[i], tile, i / TN * 16 + i % TN * 16 * BM, BM,
                         gl_CooperativeMatrixLayoutColumnMajor);
    }
    barrier();
}

// tile[BN][BM] to memory.
void put()
{
    const uint t = gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
    const uint n_rows = p.n_rows[m_of];
    if (GLU == 0) {
        for (uint i = t; i < BM * BN; i += SUBGROUP * 8) {
            const uint c = col_first + i / BM, r = row_first + i % BM;
            if (c < n_live && r < n_rows) WF1(p.dst[m_of]).v[c * n_rows + r] = tile[i];
        }
        return;
    }
    for (uint i = t; i < ROWS * BN; i += SUBGROUP * 8) {
        const uint c = i / ROWS, r = i % ROWS;
        precise const float h = gm_gelu(tile[c * BM + r]) * tile[c * BM + ROWS + r];
        tile[c * BM + r] = h;
        if (p.dst[0] != 0 && col_first + c < n_live && row_first + r < n_rows)
            WF1(p.dst[0]).v[(col_first + c) * n_rows + row_first + r] = h;
    }
    barrier();
    const uint lane = gl_SubgroupInvocationID & 7, per = ROWS / GM_VK_BLOCK;
    for (uint i = t / 8; p.dst[1] != 0 && i < BN * per; i += SUBGROUP) {
        const uint c = i / per, at = i % per * GM_VK_BLOCK, from = c * BM + at + lane * 4;
        const vec4 x = vec4(tile[from], tile[from + 1], tile[from + 2], tile[from + 3]);
        const uint block = ((col_first + c) * n_rows + row_first + at) / GM_VK_BLOCK;
        quantise_lanes(x, p.dst[1], p.dst[2], block,
                       col_first + c < n_live && row_first + at < n_rows);
    }
}

void main()
{
    uint wg = gl_WorkGroupID.y;
    m_of = 0;
    if (GLU == 0 && wg >= p.wg_end[1]) {
        m_of = 2;
        wg -= p.wg_end[1];
    } else if (GLU == 0 && wg >= p.wg_end[0]) {
        m_of = 1;
        wg -= p.wg_end[0];
    }
    row_first = wg * ROWS;
    col_first = gl_WorkGroupID.x * BN;
    n_live = rows_in_step(p.head, p.flags);
    if (col_first >= n_live) return;
    n_blocks = p.n_cols / GM_VK_BLOCK;
    [[unroll]] for (uint i = 0; i < 1 + GLU; i++)
        pl[i] = planes(p.w[m_of + i], p.n_rows[m_of], n_blocks);
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        sums[i] = Floats(0);

    const uint n_rounds = (n_blocks + 7) / 8;
    bring(0);
    for (uint round = 0; round < n_rounds; round++) {
        barrier();
        unpack(round);
        barrier();
        if (round + 1 < n_rounds) bring(round + 1);
        if (round * 8 + gl_SubgroupID < n_blocks) multiply();
    }
    fold_sums();
    put();
}
