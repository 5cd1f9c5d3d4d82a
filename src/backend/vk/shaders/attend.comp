#version 460
/* SPDX-License-Identifier: MIT */
// Attention of one row and one KV head over its visible cells, in splits of 128 by absolute
// position, for all G query heads that share the KV head.
//
// A split gives a maximum, a sum and a vector for each head; splits are folded in order. With few
// rows each split is a workgroup, and the one that finishes last folds them all (WALK 0); with many
// rows one workgroup walks its splits (WALK 1). Both compute the same bits.
//
// A step of one row needs no kernel for its heads (TURN 1): every workgroup norms and turns its q,
// and the one whose split has the row's own cell does so with k and stores k and v before it looks.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/cells.glsl"
#include "inc/last.glsl"

layout(constant_id = ID_G) const uint G = 1;
layout(constant_id = ID_TURN) const uint TURN = 0;
const uint HEADS = G + 2 * TURN; // of q; of k and v
#include "inc/heads.glsl"

layout(constant_id = ID_WALK) const uint WALK = 0;
#define KEYS 4 // cells that a lane has on their way at once
#define NEGATIVE_INF uintBitsToFloat(0xff800000u)

layout(push_constant, std430) uniform Push { gm_vk_attend p; };

shared float weight[G * GM_VK_SPLIT];
shared float piece[GM_VK_SPLIT * 8];
shared float part[G * DIM], part_max[G], part_sum[G]; // of one split
shared float whole[G * DIM], whole_max[G], whole_sum[G];

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Turn { gm_vk_turn v; };

uint64_t cells(StepRow row, uint pos, uint which)
{
    const Cells c = Cells(p.tables, p.table_len, p.layer_off, p.class_of, p.n_kv_head);
    return cells_of(c, row, pos, which, gl_WorkGroupID.x, p.head_dim);
}

// Scores of cells [lo, lo + n): eight lanes a cell.
void scores(StepRow row, uint lo, uint n)
{
    const uint lane = lane_of(), group = group_of(), n_groups = groups();
    const uint units = DIM / 8;
    for (uint k = group; k < n; k += n_groups * KEYS) {
        float dots[KEYS * G];
        [[unroll]] for (uint i = 0; i < KEYS * G; i++)
            dots[i] = 0;
        for (uint u = lane; u < units; u += 8) {
            float x[KEYS][8];
            [[unroll]] for (uint i = 0; i < KEYS; i++) {
                const uint pos = lo + min(k + i * n_groups, n - 1);
                cell_load(cells(row, pos, 0), pos % GM_VK_PAGE, u, units, x[i]);
            }
            [[unroll]] for (uint i = 0; i < KEYS; i++) {
                [[unroll]] for (uint g = 0; g < G; g++) {
                    [[unroll]] for (uint j = 0; j < 8; j++)
                        dots[i * G + g] += heads[g * DIM + u * 8 + j] * x[i][j];
                }
            }
        }
        [[unroll]] for (uint i = 0; i < KEYS; i++) {
            [[unroll]] for (uint g = 0; g < G; g++) {
                const float d = group_sum(dots[i * G + g]);
                if (lane == 0 && k + i * n_groups < n)
                    weight[g * GM_VK_SPLIT + k + i * n_groups] = d * p.scale;
            }
        }
    }
    barrier();
}

// Scores become weights: a subgroup a head, in turn, so that heads need no barrier among them.
void soften(uint n)
{
    for (uint g = gl_SubgroupID; g < G; g += gl_NumSubgroups) {
        float m = NEGATIVE_INF, sum = 0;
        for (uint t = gl_SubgroupInvocationID; t < n; t += gl_SubgroupSize)
            m = max(m, weight[g * GM_VK_SPLIT + t]);
        m = subgroupMax(m);
        for (uint t = gl_SubgroupInvocationID; t < n; t += gl_SubgroupSize) {
            const float e = gm_exp(weight[g * GM_VK_SPLIT + t] - m);
            weight[g * GM_VK_SPLIT + t] = e;
            sum += e;
        }
        sum = subgroupAdd(sum);
        if (subgroupElect()) {
            part_max[g] = m;
            part_sum[g] = sum;
        }
    }
    barrier();
}

// Weighted sums of V. An invocation has one unit of eight values and every n_sets-th cell.
void mix(StepRow row, uint lo, uint n)
{
    const uint units = DIM / 8, n_sets = gl_WorkGroupSize.x / units;
    const uint unit = gl_LocalInvocationIndex % units, set = gl_LocalInvocationIndex / units;
    float sums[G * 8];
    [[unroll]] for (uint i = 0; i < G * 8; i++)
        sums[i] = 0;
    for (uint k = set; k < n && set < n_sets; k += n_sets * KEYS) {
        float x[KEYS][8];
        [[unroll]] for (uint i = 0; i < KEYS; i++) {
            const uint pos = lo + min(k + i * n_sets, n - 1);
            cell_load(cells(row, pos, 1), pos % GM_VK_PAGE, unit, units, x[i]);
        }
        [[unroll]] for (uint i = 0; i < KEYS; i++) {
            if (k + i * n_sets >= n) break;
            [[unroll]] for (uint g = 0; g < G; g++) {
                const float w = weight[g * GM_VK_SPLIT + k + i * n_sets];
                [[unroll]] for (uint j = 0; j < 8; j++)
                    sums[g * 8 + j] += w * x[i][j];
            }
        }
    }
    [[unroll]] for (uint g = 0; g < G; g++) {
        barrier();
        if (set < n_sets) {
            [[unroll]] for (uint j = 0; j < 8; j++)
                piece[set * DIM + unit * 8 + j] = sums[g * 8 + j];
        }
        barrier();
        for (uint d = gl_LocalInvocationIndex; d < DIM; d += gl_WorkGroupSize.x) {
            float sum = piece[d];
            for (uint i = 1; i < n_sets; i++)
                sum += piece[i * DIM + d];
            part[g * DIM + d] = sum;
        }
    }
    barrier();
}

void split(StepRow row, uint s)
{
    const uint lo = max(row.first[p.class_of], s * GM_VK_SPLIT);
    const uint hi = min(row.last[p.class_of], s * GM_VK_SPLIT + GM_VK_SPLIT - 1);
    scores(row, lo, hi - lo + 1);
    soften(hi - lo + 1);
    mix(row, lo, hi - lo + 1);
}

void fold_begin()
{
    for (uint i = gl_LocalInvocationIndex; i < G * DIM; i += gl_WorkGroupSize.x)
        whole[i] = 0;
    if (gl_LocalInvocationIndex < G) {
        whole_max[gl_LocalInvocationIndex] = NEGATIVE_INF;
        whole_sum[gl_LocalInvocationIndex] = 0;
    }
    barrier();
}

// Adds the split in `part` to the whole.
void fold()
{
    for (uint i = gl_LocalInvocationIndex; i < G * DIM; i += gl_WorkGroupSize.x) {
        const float m = max(whole_max[i / DIM], part_max[i / DIM]);
        precise const float sum = whole[i] * gm_exp(whole_max[i / DIM] - m) +
                                  part[i] * gm_exp(part_max[i / DIM] - m);
        whole[i] = sum;
    }
    barrier();
    const uint g = gl_LocalInvocationIndex;
    if (g < G) {
        const float m = max(whole_max[g], part_max[g]);
        precise const float sum =
            whole_sum[g] * gm_exp(whole_max[g] - m) + part_sum[g] * gm_exp(part_max[g] - m);
        whole_sum[g] = sum;
        whole_max[g] = m;
    }
    barrier();
}

void put(uint row)
{
    const uint first = row * p.n_head * p.head_dim + gl_WorkGroupID.x * G * p.head_dim;
    const uint n = G * p.head_dim;
    const uint t = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    for (uint i = t * 4; i < n; i += gl_WorkGroupSize.x * 4) {
        vec4 x = vec4(0);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const uint g = (i + j) / p.head_dim, d = (i + j) % p.head_dim;
            if (i + j >= n) break;
            x[j] = whole[g * DIM + d] / whole_sum[g];
            if (p.dst != 0) WF1(p.dst).v[first + i + j] = x[j];
        }
        if (p.dstq != 0)
            quantise_lanes(x, p.dstq, p.meta, (first + i) / GM_VK_BLOCK, p.plane, true);
    }
}

// Where a split's result lies while others work: max, sum, vector, for each of the G heads.
uint part_at(uint row, uint s)
{
    return ((row * p.n_kv_head + gl_WorkGroupID.x) * p.max_splits + s) * G * (DIM + 2);
}

void part_save(uint at)
{
    for (uint i = gl_LocalInvocationIndex; i < G * DIM; i += gl_WorkGroupSize.x)
        CF1(p.parts).v[at + 2 * G + i] = part[i];
    if (gl_LocalInvocationIndex < G) {
        CF1(p.parts).v[at + gl_LocalInvocationIndex] = part_max[gl_LocalInvocationIndex];
        CF1(p.parts).v[at + G + gl_LocalInvocationIndex] = part_sum[gl_LocalInvocationIndex];
    }
}

void part_restore(uint at)
{
    for (uint i = gl_LocalInvocationIndex; i < G * DIM; i += gl_WorkGroupSize.x)
        part[i] = CF1(p.parts).v[at + 2 * G + i];
    if (gl_LocalInvocationIndex < G) {
        part_max[gl_LocalInvocationIndex] = CF1(p.parts).v[at + gl_LocalInvocationIndex];
        part_sum[gl_LocalInvocationIndex] = CF1(p.parts).v[at + G + gl_LocalInvocationIndex];
    }
    barrier();
}

// The heads of the step's only row; k and v are of the workgroup that has its cell among others, or
// that is nearest to it.
void turn(StepRow row, uint mine, uint s_first, uint n_splits)
{
    const gm_vk_turn t = Turn(p.turn).v;
    const uint split_of = max(row.pos / GM_VK_SPLIT, s_first) - s_first;
    const bool stores = mine == min(split_of, n_splits - 1);
    if (stores) {
        head_read(G, t.k, gl_WorkGroupID.x * p.head_dim, p.head_dim);
        head_read(G + 1, t.v, gl_WorkGroupID.x * p.head_dim, p.head_dim);
    }
    heads_turn(t, stores ? G + 1 : G, G, p.head_dim, row.pos);
    if (stores) {
        head_store(G, cells(row, row.pos, 0), row.pos % GM_VK_PAGE, p.head_dim);
        head_store(G + 1, cells(row, row.pos, 1), row.pos % GM_VK_PAGE, p.head_dim);
        memoryBarrierBuffer();
        barrier();
        memoryBarrierBuffer();
    }
}

void main()
{
    const uint i = gl_WorkGroupID.z;
    if (i >= rows_in_step(p.head, p.flags)) return;
    const StepRow row = Rows(p.rows).v[i];
    const uint s_first = row.first[p.class_of] / GM_VK_SPLIT;
    const uint n_splits = row.last[p.class_of] / GM_VK_SPLIT - s_first + 1;
    const uint mine = gl_WorkGroupID.y;
    if (mine >= n_splits) return;

    for (uint g = 0; g < G; g++)
        head_read(g, p.q, ((i * p.n_kv_head + gl_WorkGroupID.x) * G + g) * p.head_dim, p.head_dim);
    if (TURN == 1) turn(row, mine, s_first, n_splits);
    fold_begin();
    if (WALK == 1) {
        for (uint s = 0; s < n_splits; s++) {
            split(row, s_first + s);
            fold();
        }
    } else {
        split(row, s_first + mine);
        if (n_splits == 1) {
            fold();
        } else {
            part_save(part_at(i, mine));
            const uint counter = i * p.n_kv_head + gl_WorkGroupID.x;
            if (!is_last(p.arrived + 4 * counter, n_splits)) return;
            for (uint s = 0; s < n_splits; s++) {
                part_restore(part_at(i, s));
                fold();
            }
        }
    }
    put(i);
}
