#version 460
/* SPDX-License-Identifier: MIT */
// Attention of a prompt's rows: 64 heads of q, of as many rows as that is, over the visible cells
// of their KV head, a page of 32 at a time. Q times K and weights times V are cooperative matrices
// of float16, which sum in float32; maxima, weights and sums of softmax are float32.
//
// A subgroup has 16 of the 64 heads, and where a head is longer than 128 every second one has half
// of the page's cells and then half of a head's values. Where rows are of more than one slot,
// SHARES workgroups take their runs in turn.
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/cells.glsl"

layout(constant_id = ID_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = ID_G) const uint G = 1;
layout(constant_id = ID_DIM) const uint DIM = 64; // of a head, a multiple of 64

layout(push_constant, std430) uniform Push { gm_vk_attend p; };

#define NEGATIVE_INF uintBitsToFloat(0xff800000u)
#define E            GM_VK_HALF_HEADS
const uint T = E / G; // rows
const uint SPLIT = DIM > 128 ? 2 : 1; // subgroups that share heads
const uint TQ = DIM / 16; // tiles of a head,
const uint TD = TQ / SPLIT; // and those that a subgroup sums
const uint TK = 2 / SPLIT; // tiles of cells that a subgroup scores
const uint PITCH = DIM / 8 + 1; // of a head or cell in units of 16 bytes
const uint PER = 2 * SPLIT; // lanes that have a head's scores
const uint UNITS = GM_VK_PAGE * DIM / 8; // of 8 values, of a page's K
const uint EACH = UNITS / (4 * SPLIT * SUBGROUP);
#define S_PITCH 9 // of a head's scores in units of 16 bytes

shared uvec4 staged[E * PITCH]; // Q, then K and V of a page, at the end results
shared vec4 scores[E * S_PITCH]; // then weights, as float16
shared float factor[E];
shared uint row_slot[E], row_first[E], row_last[E];
shared uint spoilt; // cells of the page whose V is not all finite, a bit each

#define HalfA coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define HalfB coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define Sums  coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

HalfA q[TQ];
Sums acc[TD];
uvec4 k_raw[EACH], v_raw[EACH];
float row_max, row_sum; // of the head whose scores the lane has

struct Run {
    uint slot, begin, end;
    uint first, last;
};

uint lane()
{
    return gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID;
}

// The longest run that begins with row `begin` of the n that the workgroup has.
Run run_at(uint begin, uint n)
{
    Run run = Run(row_slot[begin], begin, begin + 1, row_first[begin], row_last[begin]);
    while (run.end < n && row_slot[run.end] == run.slot && row_first[run.end] <= run.last + 1 &&
           row_last[run.end] + 1 >= run.first) {
        run.first = min(run.first, row_first[run.end]);
        run.last = max(run.last, row_last[run.end]);
        run.end++;
    }
    return run;
}

void read_heads(uint kv_head, uint first_row, uint n)
{
    const float scale = p.scale * 1.44269504;
    [[dont_unroll]] for (uint i = lane(); i < E * DIM / 8; i += gl_WorkGroupSize.x) {
        const uint e = i / (DIM / 8), unit = i % (DIM / 8);
        uvec4 h = uvec4(0);
        if (e / G < n) {
            const uint head = ((first_row + e / G) * p.n_kv_head + kv_head) * G + e % G;
            const uint at = head * (DIM / 4) + unit * 2;
            h = uvec4(gm_halves(F4(p.q).v[at] * scale), gm_halves(F4(p.q).v[at + 1] * scale));
        }
        staged[e * PITCH + unit] = h;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < TQ; i++)
        coopMatLoad(q[i], staged, gl_SubgroupID / SPLIT * 16 * PITCH + i * 2, PITCH,
                    gl_CooperativeMatrixLayoutRowMajor);
    barrier();
}

uvec4 cell_halves(uint64_t base, uint i)
{
    if (KV == KV_F16) return U4(base).v[i];
    if (KV == KV_F32) return uvec4(gm_halves(F4(base).v[2 * i]), gm_halves(F4(base).v[2 * i + 1]));
    const uvec2 v = U2(base).v[i];
    const float scale = F1(base + UNITS * 8).v[i / 4];
    return uvec4(gm_halves(word_values(v.x) * scale), gm_halves(word_values(v.y) * scale));
}

void fetch(uint slot, uint pos, uint kv_head)
{
    const Cells c = Cells(p.tables, p.table_len, p.layer_off, p.class_of, p.n_kv_head);
    const uint64_t k = cells_of(c, slot, pos, 0, kv_head, DIM);
    const uint64_t v = k + p.n_kv_head * head_size(DIM);
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        k_raw[i] = cell_halves(k, i * gl_WorkGroupSize.x + lane());
        v_raw[i] = cell_halves(v, i * gl_WorkGroupSize.x + lane());
    }
}

bool is_finite(uvec4 h)
{
    return all(equal((h & 0x7fff7fffu) + 0x04000400u & 0x80008000u, uvec4(0)));
}

// Cells that nobody sees may hold anything, and 0 times that is not always 0: V is 0 there, and
// where it is not finite, which those who see it are told.
void stage(uint pos, Run run)
{
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        const uint at = i * gl_WorkGroupSize.x + lane(), cell = at / (DIM / 8);
        const bool seen = pos + cell >= run.first && pos + cell <= run.last;
        staged[cell * PITCH + at % (DIM / 8)] = k_raw[i];
        const bool fine = is_finite(v_raw[i]);
        if (seen && !fine) atomicOr(spoilt, 1u << cell);
        staged[(GM_VK_PAGE + cell) * PITCH + at % (DIM / 8)] = seen && fine ? v_raw[i] : uvec4(0);
    }
}

void score()
{
    const uint e = gl_SubgroupID / SPLIT * 16, cell = gl_SubgroupID % SPLIT * TK * 16;
    [[unroll]] for (uint t = 0; t < TK; t++) {
        Sums s = Sums(0.0);
        [[unroll]] for (uint i = 0; i < TQ; i++) {
            HalfB k;
            coopMatLoad(k, staged, (cell + t * 16) * PITCH + i * 2, PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            s = coopMatMulAdd(q[i], k, s);
        }
        coopMatStore(s, scores, e * S_PITCH + (cell + t * 16) / 4, S_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
}

// Scores become weights, PER lanes a head.
void soften(uint pos, Run run)
{
    const uint e = lane() / PER, part = lane() % PER, t = e / G, n = 8 / PER;
    const uint at = e * S_PITCH + part * n;
    const bool in_run = t >= run.begin && t < run.end;
    const uint first = in_run ? row_first[t] : 1, last = in_run ? row_last[t] : 0;
    vec4 x[8 / PER];
    float m = NEGATIVE_INF;
    [[unroll]] for (uint i = 0; i < n; i++) {
        x[i] = scores[at + i];
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const uint cell = (part * n + i) * 4 + j;
            if ((spoilt >> cell & 1) != 0) x[i][j] = uintBitsToFloat(0x7fc00000u);
            if (pos + cell < first || pos + cell > last) x[i][j] = NEGATIVE_INF;
            m = max(m, x[i][j]);
        }
    }
    [[unroll]] for (uint i = 1; i < PER; i <<= 1)
        m = max(m, subgroupShuffleXor(m, i));
    m = max(m, row_max);
    const float base = m == NEGATIVE_INF ? 0 : m, up = exp2(row_max - base);
    float sum = 0;
    uint w[16 / PER];
    [[unroll]] for (uint i = 0; i < n; i++) {
        x[i] = exp2(x[i] - base);
        sum += (x[i].x + x[i].y) + (x[i].z + x[i].w);
        w[2 * i] = packHalf2x16(x[i].xy);
        w[2 * i + 1] = packHalf2x16(x[i].zw);
    }
    [[unroll]] for (uint i = 1; i < PER; i <<= 1)
        sum += subgroupShuffleXor(sum, i);
    row_sum = row_sum * up + sum;
    row_max = m;
    subgroupMemoryBarrierShared();
    subgroupBarrier();
    [[unroll]] for (uint i = 0; i < n / 2; i++)
        scores[e * S_PITCH + part * (n / 2) + i] =
            uintBitsToFloat(uvec4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]));
    if (part == 0) factor[e] = up;
}

void mix()
{
    const uint e = gl_SubgroupID / SPLIT * 16, unit = gl_SubgroupID % SPLIT * TD * 2;
    Sums up;
    coopMatLoad(up, factor, e, 0, gl_CooperativeMatrixLayoutColumnMajor);
    HalfA w[2];
    [[unroll]] for (uint i = 0; i < 2; i++)
        coopMatLoad(w[i], scores, e * S_PITCH + i * 2, S_PITCH, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint t = 0; t < TD; t++) {
        [[unroll]] for (uint i = 0; i < 256 / SUBGROUP; i++)
            acc[t][i] *= up[i];
        [[unroll]] for (uint i = 0; i < 2; i++) {
            HalfB v;
            coopMatLoad(v, staged, (GM_VK_PAGE + i * 16) * PITCH + unit + t * 2, PITCH,
                        gl_CooperativeMatrixLayoutRowMajor);
            acc[t] = coopMatMulAdd(w[i], v, acc[t]);
        }
    }
}

void walk(Run run, uint kv_head)
{
    const uint begin = run.first / GM_VK_PAGE * GM_VK_PAGE;
    fetch(run.slot, begin, kv_head);
    [[dont_unroll]] for (uint pos = begin; pos <= run.last; pos += GM_VK_PAGE) {
        barrier();
        stage(pos, run);
        barrier();
        fetch(run.slot, min(pos + GM_VK_PAGE, run.last), kv_head);
        score();
        barrier();
        soften(pos, run);
        barrier();
        spoilt = 0;
        mix();
    }
}

// 32 values of a head at a time, of each of SPLIT parts; heads that saw nothing are others' rows.
void put(uint kv_head, uint first_row, uint n)
{
    barrier();
    if (lane() % PER == 0) factor[lane() / PER] = row_sum;
    [[unroll]] for (uint t = 0; t < TD; t += 2) {
        barrier();
        [[unroll]] for (uint i = 0; i < 2; i++)
            coopMatStore(acc[t + i], staged,
                         (gl_SubgroupID % SPLIT * E + gl_SubgroupID / SPLIT * 16) * 8 + i * 4, 8,
                         gl_CooperativeMatrixLayoutRowMajor);
        barrier();
        [[dont_unroll]] for (uint i = lane(); i < SPLIT * E * 8; i += gl_WorkGroupSize.x) {
            const uint e = i / 8 % E, d = i / 8 / E * (DIM / SPLIT) + t * 16 + i % 8 * 4;
            const uint row = first_row + e / G, head = kv_head * G + e % G;
            const uint n_cols = p.n_kv_head * G * DIM;
            const bool here = e / G < n && factor[e] != 0;
            const vec4 x = uintBitsToFloat(staged[i]) / factor[e];
            if (p.dst != 0 && here) {
                [[unroll]] for (uint j = 0; j < 4; j++)
                    WF1(p.dst).v[row * n_cols + head * DIM + d + j] = x[j];
            }
            if (p.dstq != 0)
                round_lanes(here ? x : vec4(0), p.dstq, p.meta, row,
                            (head * DIM + d) / GM_VK_BLOCK, n_cols / GM_VK_BLOCK, p.plane, here);
        }
    }
}

void main()
{
    const uint kv_head = gl_WorkGroupID.x % p.n_kv_head, share = gl_WorkGroupID.x / p.n_kv_head;
    // The last rows see most: they begin first.
    const uint first_row = (gl_NumWorkGroups.z - 1 - gl_WorkGroupID.z) * T;
    const uint n = min(rows_in_step(p.head, p.flags) - first_row, T);
    const bool one_slot =
        Rows(p.rows).v[first_row].slot == Rows(p.rows).v[first_row + n - 1].slot;
    if (one_slot && share > 0) return;
    if (lane() < n) {
        const StepRow row = Rows(p.rows).v[first_row + lane()];
        row_slot[lane()] = row.slot;
        row_first[lane()] = row.first[p.class_of];
        row_last[lane()] = row.last[p.class_of];
    }
    read_heads(kv_head, first_row, n);
    [[unroll]] for (uint i = 0; i < TD; i++)
        acc[i] = Sums(0.0);
    row_max = NEGATIVE_INF;
    row_sum = 0;
    spoilt = 0;
    for (uint begin = 0, k = 0; begin < n; k++) {
        const Run run = run_at(begin, n);
        if (one_slot || k % GM_VK_HALF_SHARES == share) walk(run, kv_head);
        begin = run.end;
    }
    put(kv_head, first_row, n);
}
