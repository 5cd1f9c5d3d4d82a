#version 460
/* SPDX-License-Identifier: MIT */
// Attention of rows and one KV head over their visible cells, in splits of 128 by absolute
// position, for all G query heads that share the KV head.
//
// A split gives a maximum, a sum and a vector for each head; splits are folded in order. With few
// rows each split is a workgroup, and the one that finishes last folds them all (WALK 0); with many
// rows a workgroup walks the splits of T rows, reading a cell once for all that see it (WALK 1).
// What a row does not see adds nothing, and who adds what follows from a cell's place in its split:
// both compute the same bits.
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
layout(constant_id = ID_WALK) const uint WALK = 0;
layout(constant_id = ID_DIM) const uint DIM = 64; // floats of a head: its length, padded
const uint T = WALK == 1 ? GM_VK_TILE_ROWS(G, DIM) : 1; // rows
const uint E = T * G;                                   // heads of q, row by row
const uint HEADS = E + 2 * TURN;                        // and of k and v
#include "inc/heads.glsl"

#define NEGATIVE_INF uintBitsToFloat(0xff800000u)

layout(push_constant, std430) uniform Push { gm_vk_attend p; };

#include "inc/attend_split.glsl"

shared float whole[E * DIM], whole_max[E], whole_sum[E];

void fold_begin()
{
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < E * DIM; i += gl_WorkGroupSize.x)
        whole[i] = 0;
    if (gl_LocalInvocationIndex < E) {
        whole_max[gl_LocalInvocationIndex] = NEGATIVE_INF;
        whole_sum[gl_LocalInvocationIndex] = 0;
    }
    barrier();
}

// Adds the split in `part` to the whole of heads that see something of it.
void fold()
{
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < E * DIM; i += gl_WorkGroupSize.x) {
        if (part_sum[i / DIM] == 0) continue;
        const float m = max(whole_max[i / DIM], part_max[i / DIM]);
        precise const float sum = whole[i] * gm_exp(whole_max[i / DIM] - m) +
                                  part[i] * gm_exp(part_max[i / DIM] - m);
        whole[i] = sum;
    }
    barrier();
    const uint e = gl_LocalInvocationIndex;
    if (e < E && part_sum[e] != 0) {
        const float m = max(whole_max[e], part_max[e]);
        precise const float sum =
            whole_sum[e] * gm_exp(whole_max[e] - m) + part_sum[e] * gm_exp(part_max[e] - m);
        whole_sum[e] = sum;
        whole_max[e] = m;
    }
    barrier();
}

// Maxima and sums of n saved splits become the factors of head e's whole and of its parts; a part
// in which it sees nothing has a factor below 0.
#define SAVED 8 // splits at once
shared float saved_whole[SAVED * G], saved_part[SAVED * G];

void fold_factors(uint e, uint n)
{
    float most = whole_max[e], all = whole_sum[e];
    [[dont_unroll]] for (uint k = e; k < n * G; k += G) {
        const float part_most = saved_whole[k], part_all = saved_part[k];
        saved_part[k] = -1;
        if (part_all == 0) continue;
        const float m = max(most, part_most);
        saved_whole[k] = gm_exp(most - m);
        saved_part[k] = gm_exp(part_most - m);
        precise const float sum = all * saved_whole[k] + part_all * saved_part[k];
        all = sum;
        most = m;
    }
    whole_max[e] = most;
    whole_sum[e] = all;
}

// Row t of the workgroup's, which is that row of the step.
void put(uint t, uint row)
{
    const uint first = row * p.n_head * p.head_dim + gl_WorkGroupID.x * G * p.head_dim;
    const uint n = G * p.head_dim;
    const uint lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    [[dont_unroll]] for (uint i = lane * 4; i < n; i += gl_WorkGroupSize.x * 4) {
        vec4 x = vec4(0);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            const uint e = t * G + (i + j) / p.head_dim, d = (i + j) % p.head_dim;
            if (i + j >= n) break;
            x[j] = whole[e * DIM + d] / whole_sum[e];
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
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < G * DIM; i += gl_WorkGroupSize.x)
        CF1(p.parts).v[at + 2 * G + i] = part[i];
    if (gl_LocalInvocationIndex < G) {
        CF1(p.parts).v[at + gl_LocalInvocationIndex] = part_max[gl_LocalInvocationIndex];
        CF1(p.parts).v[at + G + gl_LocalInvocationIndex] = part_sum[gl_LocalInvocationIndex];
    }
}

// Adds the n splits that were saved for row i to the whole, in order. Factors come first, from the
// maxima alone, so that a lane may have many splits' values on their way.
void fold_saved(uint i, uint n)
{
    [[dont_unroll]] for (uint first = 0; first < n; first += SAVED) {
        const uint here = min(SAVED, n - first);
        for (uint k = gl_LocalInvocationIndex; k < here * G; k += gl_WorkGroupSize.x) {
            const uint at = part_at(i, first + k / G) + k % G;
            saved_whole[k] = CF1(p.parts).v[at];
            saved_part[k] = CF1(p.parts).v[at + G];
        }
        barrier();
        if (gl_LocalInvocationIndex < G) fold_factors(gl_LocalInvocationIndex, here);
        barrier();
        for (uint d = gl_LocalInvocationIndex; d < G * DIM; d += gl_WorkGroupSize.x) {
            float x[SAVED];
            [[unroll]] for (uint k = 0; k < SAVED; k++)
                x[k] = CF1(p.parts).v[part_at(i, first + min(k, here - 1)) + 2 * G + d];
            float sum = whole[d];
            [[unroll]] for (uint k = 0; k < SAVED; k++) {
                const float up = saved_part[k * G + d / DIM];
                if (k >= here || up < 0) continue;
                precise const float next = sum * saved_whole[k * G + d / DIM] + x[k] * up;
                sum = next;
            }
            whole[d] = sum;
        }
        barrier();
    }
}

// The heads of the step's only row; k and v are of the workgroup that has its cell among others, or
// that is nearest to it.
void turn(StepRow row, Part s, uint mine, uint s_first, uint n_splits)
{
    const gm_vk_turn t = p.t;
    const uint split_of = max(row.pos / GM_VK_SPLIT, s_first) - s_first;
    const bool stores = mine == min(split_of, n_splits - 1);
    if (stores) {
        head_read(G, t.k, gl_WorkGroupID.x * p.head_dim, p.head_dim);
        head_read(G + 1, t.v, gl_WorkGroupID.x * p.head_dim, p.head_dim);
    }
    heads_turn(t, stores ? G + 1 : G, G, p.head_dim, row.pos);
    if (stores) {
        [[dont_unroll]] for (uint i = 0; i < 2; i++)
            head_store(G + i, cells(row.slot, row.pos, i), row.pos % GM_VK_PAGE, p.head_dim);
        memoryBarrierBuffer();
        barrier();
        memoryBarrierBuffer();
        fetch_again(s, row.pos - s.base);
    }
}

// The longest run that begins with row `begin` of the n that the workgroup has.
Run run_at(uint first_row, uint begin, uint n)
{
    Run run = Run(Rows(p.rows).v[first_row + begin].slot, begin, begin + 1, row_first[begin],
                  row_last[begin]);
    while (run.end < n && Rows(p.rows).v[first_row + run.end].slot == run.slot &&
           row_first[run.end] <= run.last + 1 && row_last[run.end] + 1 >= run.first) {
        run.first = min(run.first, row_first[run.end]);
        run.last = max(run.last, row_last[run.end]);
        run.end++;
    }
    return run;
}

// One split of the row, or all of them where this workgroup is the last of its splits; false else.
bool attend_split(uint i, uint mine)
{
    const Run run = run_at(i, 0, 1);
    const uint s_first = run.first / GM_VK_SPLIT, n_splits = run.last / GM_VK_SPLIT - s_first + 1;
    if (mine >= n_splits) return false;
    const Part s = part_of(run, s_first + mine);
    fetch_part(s);
    if (TURN == 1) turn(Rows(p.rows).v[i], s, mine, s_first, n_splits);
    split(run, s);
    if (n_splits == 1) {
        fold();
        return true;
    }
    part_save(part_at(i, mine));
    const uint counter = i * p.n_kv_head + gl_WorkGroupID.x;
    if (!is_last(p.arrived + 4 * counter, n_splits)) return false;
    fold_saved(i, n_splits);
    return true;
}

void main()
{
    const uint i = gl_WorkGroupID.z * T, n_rows = rows_in_step(p.head, p.flags);
    if (i >= n_rows) return;
    const uint n = min(n_rows - i, T);
    [[dont_unroll]] for (uint e = 0; e < n * G; e++) {
        const uint head = ((i + e / G) * p.n_kv_head + gl_WorkGroupID.x) * G + e % G;
        head_read(e, p.q, head * p.head_dim, p.head_dim);
    }
    if (gl_LocalInvocationIndex < n) {
        const StepRow row = Rows(p.rows).v[i + gl_LocalInvocationIndex];
        row_first[gl_LocalInvocationIndex] = row.first[p.class_of];
        row_last[gl_LocalInvocationIndex] = row.last[p.class_of];
    }
    fold_begin();
    if (WALK == 0) {
        if (attend_split(i, gl_WorkGroupID.y)) put(0, i);
        return;
    }
    for (uint begin = 0; begin < n;) {
        const Run run = run_at(i, begin, n);
        for (uint s = run.first / GM_VK_SPLIT; s <= run.last / GM_VK_SPLIT; s++) {
            fetch_part(part_of(run, s));
            split(run, part_of(run, s));
            fold();
        }
        begin = run.end;
    }
    for (uint t = 0; t < n; t++)
        put(t, i + t);
}
