#version 460
/* SPDX-License-Identifier: MIT */
// Attention of rows and one KV head over their visible cells, in splits of 128 by absolute
// position, for all G query heads that share the KV head.
//
// A split gives a maximum, a sum and a vector for each head; splits are folded in order. With few
// rows workgroups share a row's splits, and the one that finishes last folds them (WALK 0); with
// many a workgroup walks the splits of T rows, reading a cell once for all that see it (WALK 1).
// What a row does not see adds nothing, and who adds what follows from a cell's place in its split:
// both compute the same bits.
//
// A step whose rows are of different slots needs no kernel for their heads (TURN 1): every
// workgroup norms and turns q and k while it waits for its cells, and the one whose split has the
// row's own stores k and v.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/cells.glsl"
#include "inc/last.glsl"
#include "inc/flow.glsl"

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

// What is there so far of splits that are walked.
shared float whole[WALK == 1 ? E * DIM : 1], whole_max[E], whole_sum[E];

uint64_t head_from(uint h)
{
    const uint first = gl_WorkGroupID.z * T, kv_head = gl_WorkGroupID.x, len = p.head_dim;
    if (TURN == 1 && h >= G)
        return (h == G ? p.t.k : p.t.v) + 4 * (first * p.n_kv_head + kv_head) * len;
    return p.q + 4 * (((first + h / G) * p.n_kv_head + kv_head) * G + h % G) * len;
}

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

// Row t of the workgroup's, which is that row of the step: `part`, or `whole` of who walks.
void put(uint t, uint row, bool stores)
{
    const uint mine = gl_WorkGroupID.x * G * p.head_dim, n_cols = p.n_kv_head * G * p.head_dim;
    [[dont_unroll]] for (uint i = lane_in_all() * 4; i < G * DIM; i += gl_WorkGroupSize.x * 4) {
        const uint e = t * G + i / DIM, d = i % DIM, at = mine + i / DIM * p.head_dim + d;
        const float sum = WALK == 1 ? whole_sum[e] : part_sum[e];
        vec4 x = vec4(0);
        [[unroll]] for (uint j = 0; j < 4; j++) {
            if (d + j >= p.head_dim) break;
            x[j] = (WALK == 1 ? whole[e * DIM + d + j] : part[e * DIM + d + j]) / sum;
            if (p.dst != 0 && stores) hand_on(p.dst, row * n_cols + at + j, x[j]);
        }
        if (p.dstq != 0)
            round_lanes(x, p.dstq, p.meta, row, at / GM_VK_BLOCK, n_cols / GM_VK_BLOCK, p.plane,
                        stores);
    }
}

#include "inc/attend_fold.glsl"

// Norms and turns the heads of the row, and keeps its own cell, which is among this
// workgroup's; in the cache, too, unless it is only rehearsed.
void turn(uint pos, bool keeps, bool rehearses)
{
    heads_turn(p.t, G + 1, p.head_dim);
    if (!keeps) return;
    const uint units = cell_units(p.head_dim), n = cell_words(units);
    [[dont_unroll]] for (uint k = lane_in_all(); k < 2 * n; k += gl_WorkGroupSize.x) {
        const uint which = k / n, i = k % n, cell = pos % GM_VK_PAGE;
        const uint64_t to = pages[PAGES] + which * values_behind();
        const bool has_scale = HAS_SCALES && lane_of() == 0;
        uint scale;
        const uint word = head_word(G + which, i, scale);
        own[which * OWN + i] = word;
        if (has_scale) own[which * OWN + n + i / 8] = scale;
        if (rehearses) continue;
        WU1(to).v[word_at(cell, i, units)] = word;
        if (has_scale) WU1(to).v[scale_at(cell, i / 8, units)] = scale;
    }
    barrier();
}

// The heads once they are there; or whatever is, to rehearse. Those behind are told when to ask.
void heads_await(bool rehearses)
{
    uint looks = 0;
    if (!rehearses) {
        flow_wait(p.flow);
        do {
            heads_ask(p.head_dim);
        } while (flow_again(p.flow, heads_miss(), looks));
    }
    heads_put(p.head_dim);
    barrier();
    if (!rehearses && gl_WorkGroupID.y == 0) flow_count(p.flow.done + GM_VK_FLOW_INNER);
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

#define FEW 64 // workgroups

// Splits of a row: `mine`, and of each further run of as many as there are workgroups one; all of
// them are folded where this workgroup is the last. All that a row has at once would be more
// workgroups than a device holds, and each has to turn the heads and to be started. What is
// rehearsed has to be the same code, so that everything is called from one place.
void attend_splits(uint i, uint mine)
{
    const uint pos = Rows(p.rows).v[i].pos;
    const Run run = Run(Rows(p.rows).v[i].slot, 0, 1, Rows(p.rows).v[i].first[p.class_of],
                        Rows(p.rows).v[i].last[p.class_of]);
    const uint s_first = run.first / GM_VK_SPLIT, n_splits = run.last / GM_VK_SPLIT - s_first + 1;
    if (mine >= n_splits) return;
    const uint shares = min(gl_NumWorkGroups.y, n_splits);
    // k and v are of the workgroup that has the row's cell among others, or that is nearest to it.
    const uint split_of = min(max(pos / GM_VK_SPLIT, s_first) - s_first, n_splits - 1);
    const bool keeps = mine == split_of % shares;
    // Of many workgroups several share a multiprocessor, and would keep each other from it.
    bool rehearses = gl_NumWorkGroups.x * gl_NumWorkGroups.y <= FEW && flow_rehearses(p.flow);
    bool begins = true;
    uint k = mine;
    [[dont_unroll]] while (true) {
        const Part s = part_of(run, s_first + k);
        if (TURN == 1 && FLOW == 0 && begins) heads_put(p.head_dim);
        fetch_part(s, pos);
        if (TURN == 1 && begins) {
            heads_angles(pos);
            if (FLOW == 1) heads_await(rehearses);
            turn(pos, keeps, rehearses);
        }
        own_cell = keeps ? pos - s.base : GM_VK_SPLIT;
        split(run, s);
        if (n_splits > 1 && !rehearses) {
            begins = false;
            part_save(part_at(i, k));
            k += shares;
            if (k < n_splits) continue;
            const uint counter = i * p.n_kv_head + gl_WorkGroupID.x;
            if (!is_last(p.arrived + 4 * counter, shares)) return;
            fold_saved(i, n_splits);
        }
        if (!rehearses) flow_done(p.flow);
        put(0, i, !rehearses);
        if (!rehearses) return;
        rehearses = false;
    }
}

void main()
{
    const uint i = gl_WorkGroupID.z * T, n_rows = rows_in_step(p.head, p.flags);
    if (i >= n_rows) return;
    const uint n = min(n_rows - i, T);
    if (TURN == 1) heads_ask_turns(p.t, G, p.head_dim);
    if (TURN == 1 && FLOW == 0) heads_ask(p.head_dim);
    [[dont_unroll]] for (uint e = 0; TURN == 0 && e < n * G; e++)
        head_read(e, p.head_dim);
    if (WALK == 0) {
        attend_splits(i, gl_WorkGroupID.y);
        return;
    }
    if (gl_LocalInvocationIndex < n) {
        const uint row = i + gl_LocalInvocationIndex;
        row_first[gl_LocalInvocationIndex] = Rows(p.rows).v[row].first[p.class_of];
        row_last[gl_LocalInvocationIndex] = Rows(p.rows).v[row].last[p.class_of];
    }
    fold_begin();
    for (uint begin = 0; begin < n;) {
        const Run run = run_at(i, begin, n);
        for (uint s = run.first / GM_VK_SPLIT; s <= run.last / GM_VK_SPLIT; s++) {
            fetch_part(part_of(run, s), 0);
            split(run, part_of(run, s));
            fold();
        }
        begin = run.end;
    }
    for (uint t = 0; t < n; t++)
        put(t, i + t, true);
}
