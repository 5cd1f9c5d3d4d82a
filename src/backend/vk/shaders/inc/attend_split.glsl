/* SPDX-License-Identifier: MIT */
// One split of attention for the E heads of q in shared memory, G to a row: a maximum, a sum and a
// vector for each.

#define KEYS 4 // cells that a lane has on their way at once

shared float weight[E * GM_VK_SPLIT];
shared float piece[GM_VK_SPLIT * 8];
shared float part[E * DIM], part_max[E], part_sum[E]; // of one split
shared uint row_first[T], row_last[T]; // what each row sees

// Neighbouring rows of a slot that see cells [first, last] together; [begin, end) of the T.
struct Run {
    uint slot, begin, end;
    uint first, last;
};

// The part of a split that some row of a run sees: cells [lo, hi] of it.
struct Part {
    uint slot, base, lo, hi;
};

uint64_t cells(uint slot, uint pos, uint which)
{
    const Cells c = Cells(p.tables, p.table_len, p.layer_off, p.class_of, p.n_kv_head);
    return cells_of(c, slot, pos, which, gl_WorkGroupID.x, p.head_dim);
}

bool sees(Run run, uint row, uint pos)
{
    return row >= run.begin && row < run.end && pos >= row_first[row] && pos <= row_last[row];
}

// Scores of a part's cells: eight lanes a cell.
void scores(Run run, Part s)
{
    const uint lane = lane_of(), n_groups = groups(), units = DIM / 8;
    [[dont_unroll]] for (uint k = s.lo + group_of(); k <= s.hi; k += n_groups * KEYS) {
        float dots[KEYS * E];
        [[unroll]] for (uint i = 0; i < KEYS * E; i++)
            dots[i] = 0;
        [[dont_unroll]] for (uint u = lane; u < units; u += 8) {
            float x[KEYS][8];
            [[unroll]] for (uint i = 0; i < KEYS; i++) {
                const uint pos = s.base + min(k + i * n_groups, s.hi);
                cell_load(cells(s.slot, pos, 0), pos % GM_VK_PAGE, u, units, x[i]);
            }
            [[unroll]] for (uint i = 0; i < KEYS; i++) {
                [[unroll]] for (uint e = 0; e < E; e++) {
                    [[unroll]] for (uint j = 0; j < 8; j++)
                        dots[i * E + e] += heads[e * DIM + u * 8 + j] * x[i][j];
                }
            }
        }
        [[unroll]] for (uint i = 0; i < KEYS; i++) {
            const uint at = k + i * n_groups;
            [[unroll]] for (uint e = 0; e < E; e++) {
                const float d = group_sum(dots[i * E + e]);
                if (lane == 0 && at <= s.hi)
                    weight[e * GM_VK_SPLIT + at] =
                        sees(run, e / G, s.base + at) ? d * p.scale : NEGATIVE_INF;
            }
        }
    }
    barrier();
}

// Scores become weights: a subgroup a head, in turn, so that heads need no barrier among them. A
// head that sees nothing has the sum 0.
void soften(Part s)
{
    const uint begin = s.lo - s.lo % gl_SubgroupSize + gl_SubgroupInvocationID;
    [[dont_unroll]] for (uint e = gl_SubgroupID; e < E; e += gl_NumSubgroups) {
        float m = NEGATIVE_INF, sum = 0;
        [[dont_unroll]] for (uint t = begin; t <= s.hi; t += gl_SubgroupSize)
            if (t >= s.lo) m = max(m, weight[e * GM_VK_SPLIT + t]);
        m = subgroupMax(m);
        [[dont_unroll]] for (uint t = begin; t <= s.hi; t += gl_SubgroupSize) {
            if (t < s.lo) continue;
            const float w = m == NEGATIVE_INF ? 0 : gm_exp(weight[e * GM_VK_SPLIT + t] - m);
            weight[e * GM_VK_SPLIT + t] = w;
            sum += w;
        }
        sum = subgroupAdd(sum);
        if (subgroupElect()) {
            part_max[e] = m;
            part_sum[e] = sum;
        }
    }
    barrier();
}

// Weighted sums of V. An invocation has one unit of eight values and every n_sets-th cell.
void mix(Part s)
{
    const uint units = DIM / 8, n_sets = gl_WorkGroupSize.x / units;
    const uint unit = gl_LocalInvocationIndex % units, set = gl_LocalInvocationIndex / units;
    float sums[E * 8];
    [[unroll]] for (uint i = 0; i < E * 8; i++)
        sums[i] = 0;
    const uint begin = set < n_sets ? s.lo - s.lo % n_sets + set : s.hi + 1;
    [[dont_unroll]] for (uint k = begin; k <= s.hi; k += n_sets * KEYS) {
        float x[KEYS][8];
        [[unroll]] for (uint i = 0; i < KEYS; i++) {
            const uint pos = s.base + clamp(k + i * n_sets, s.lo, s.hi);
            cell_load(cells(s.slot, pos, 1), pos % GM_VK_PAGE, unit, units, x[i]);
        }
        [[unroll]] for (uint i = 0; i < KEYS; i++) {
            const uint at = k + i * n_sets;
            if (at < s.lo || at > s.hi) continue;
            [[unroll]] for (uint e = 0; e < E; e++) {
                const float w = weight[e * GM_VK_SPLIT + at];
                if (w == 0) continue; // not even a NaN that only another row sees
                [[unroll]] for (uint j = 0; j < 8; j++)
                    sums[e * 8 + j] += w * x[i][j];
            }
        }
    }
    [[unroll]] for (uint e = 0; e < E; e++) {
        barrier();
        if (set < n_sets) {
            [[unroll]] for (uint j = 0; j < 8; j++)
                piece[set * DIM + unit * 8 + j] = sums[e * 8 + j];
        }
        barrier();
        [[dont_unroll]] for (uint d = gl_LocalInvocationIndex; d < DIM; d += gl_WorkGroupSize.x) {
            float sum = piece[d];
            [[dont_unroll]] for (uint i = 1; i < n_sets; i++)
                sum += piece[i * DIM + d];
            part[e * DIM + d] = sum;
        }
    }
    barrier();
}

void split(Run run, uint s)
{
    const uint base = s * GM_VK_SPLIT;
    const uint lo = max(run.first, base) - base;
    const uint hi = min(run.last - base, GM_VK_SPLIT - 1);
    const Part part_of = Part(run.slot, base, lo, hi);
    scores(run, part_of);
    soften(part_of);
    mix(part_of);
}
