/* SPDX-License-Identifier: MIT */
// Splits of attention that several workgroups leave in memory, and the last of a row folds.

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

// Splits that are folded at once: a lane has one head's maximum and sum of one of them.
const uint SAVED = GM_VK_ATTEND_LANES / G;
#define AT_ONCE 16 // values of a lane that are on their way
shared float saved_max[SAVED * G], saved_whole[SAVED * G], saved_part[SAVED * G];
shared float saved_sum[SAVED * G];

// Factors for each of n saved splits: of what is there before it, and of itself; the latter is
// below 0 if nothing of it is seen. Answers the maximum up to the lane's split.
float fold_factors(uint from, uint n)
{
    const uint k = gl_LocalInvocationIndex, e = k % G;
    const bool mine = k < n * G;
    const uint at = from + k / G * G * (DIM + 2) + e;
    const float most = mine ? CF1(p.parts).v[at] : 0, sum = mine ? CF1(p.parts).v[at + G] : 0;
    if (mine) saved_max[k] = most;
    barrier();
    float before = whole_max[e];
    for (uint j = e; j < k && mine; j += G)
        before = max(before, saved_max[j]);
    const float m = max(before, most), up = gm_exp(most - m);
    if (mine) {
        precise const float scaled = sum * up;
        saved_whole[k] = gm_exp(before - m);
        saved_part[k] = sum == 0 ? -1 : up;
        saved_sum[k] = scaled;
    }
    barrier();
    return m;
}

// Asks for value d of saved splits from the k-th of the n on.
void fold_ask(out float x[AT_ONCE], uint from, uint k, uint n, uint d)
{
    [[unroll]] for (uint j = 0; j < AT_ONCE; j++)
        x[j] = CF1(p.parts).v[from + min(k + j, n - 1) * G * (DIM + 2) + 2 * G + d];
}

// Adds the n splits that were saved for row i in `part`, in order. Factors come first, from the
// maxima alone, so that a lane may have many splits' values on their way.
void fold_saved(uint i, uint n)
{
    if (gl_LocalInvocationIndex < G) {
        whole_max[gl_LocalInvocationIndex] = NEGATIVE_INF;
        whole_sum[gl_LocalInvocationIndex] = 0;
    }
    for (uint d = gl_LocalInvocationIndex; d < G * DIM; d += gl_WorkGroupSize.x)
        part[d] = 0;
    barrier();
    [[dont_unroll]] for (uint first = 0; first < n; first += SAVED) {
        const uint here = min(SAVED, n - first), from = part_at(i, first);
        float x[AT_ONCE]; // a lane's first values are on their way while factors are found
        fold_ask(x, from, 0, here, min(gl_LocalInvocationIndex, G * DIM - 1));
        bool asked = true;
        const float m = fold_factors(from, here);
        for (uint d = gl_LocalInvocationIndex; d < G * DIM; d += gl_WorkGroupSize.x) {
            const uint e = d / DIM;
            float sum = part[d], all = whole_sum[e];
            [[dont_unroll]] for (uint k = 0; k < here; k += AT_ONCE) {
                if (!asked) fold_ask(x, from, k, here, d);
                asked = false;
                [[unroll]] for (uint j = 0; j < AT_ONCE; j++) {
                    const uint s = (k + j) * G + e;
                    if (k + j >= here || saved_part[s] < 0) continue;
                    precise const float next = sum * saved_whole[s] + x[j] * saved_part[s];
                    precise const float more = all * saved_whole[s] + saved_sum[s];
                    sum = next;
                    all = more;
                }
            }
            part[d] = sum;
            if (d % DIM == 0) part_sum[e] = all;
        }
        barrier();
        const uint k = gl_LocalInvocationIndex;
        if (k < here * G && k / G == here - 1) {
            whole_max[k % G] = m;
            whole_sum[k % G] = part_sum[k % G];
        }
        barrier();
    }
}
