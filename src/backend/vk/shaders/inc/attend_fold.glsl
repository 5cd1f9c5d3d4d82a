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

// Splits that are folded at once: a lane finds the factors of one head and one of them, of what is
// there before it and of itself, and its scaled sum.
const uint SAVED = GM_VK_ATTEND_LANES / G;
shared float saved_max[SAVED * G];
shared vec4 saved_factors[(SAVED + GM_VK_FOLD_ONCE) * G]; // behind the last such as change nothing

// Those of n saved splits from `from` on. Answers the maximum up to the lane's split.
float fold_factors(uint from, uint n)
{
    const uint k = gl_LocalInvocationIndex, e = k % G, at = from + k / G * G * (DIM + 2) + e;
    const bool mine = k < n * G;
    const float most = mine ? CF1(p.parts).v[at] : 0, sum = mine ? CF1(p.parts).v[at + G] : 0;
    if (mine) saved_max[k] = most;
    barrier();
    float before = whole_max[e];
    [[dont_unroll]] for (uint j = e; j < k && mine; j += G)
        before = max(before, saved_max[j]);
    const float m = max(before, most), up = gm_exp(most - m);
    precise const float scaled = sum * up;
    const vec4 factors = vec4(gm_exp(before - m), up, scaled, 0);
    const vec4 none = vec4(1, 0, 0, 0);
    if (mine) saved_factors[k] = sum == 0 ? none : factors; // nothing of it is seen
    [[dont_unroll]] for (uint j = k; j < GM_VK_FOLD_ONCE * G; j += gl_WorkGroupSize.x)
        saved_factors[n * G + j] = none;
    barrier();
    return m;
}

// Asks for value d of saved splits from `at` on, of all that a lane has on its way; there is memory
// behind the last one.
void fold_ask(out float x[GM_VK_FOLD_ONCE], uint at, uint d)
{
    const uint64_t from = p.parts + 4 * (at + 2 * G + d);
    [[unroll]] for (uint j = 0; j < GM_VK_FOLD_ONCE; j++)
        x[j] = CF1(from).v[j * G * (DIM + 2)];
}

// Adds the n splits that were saved for row i in `part`, in order. A lane's first values are on
// their way while factors are found, which follow from the maxima alone.
void fold_saved(uint i, uint n)
{
    const uint lane = gl_LocalInvocationIndex;
    if (lane < G) {
        whole_max[lane] = NEGATIVE_INF;
        whole_sum[lane] = 0;
    }
    barrier();
    [[dont_unroll]] for (uint first = 0; first < n; first += SAVED) {
        const uint here = min(SAVED, n - first), from = part_at(i, first);
        float m = 0;
        [[dont_unroll]] for (uint d_first = 0; d_first < G * DIM; d_first += gl_WorkGroupSize.x) {
            const uint d = min(d_first + lane, G * DIM - 1), e = d / DIM;
            float sum = first == 0 ? 0 : part[d], all = whole_sum[e];
            [[dont_unroll]] for (uint k = 0; k < here; k += GM_VK_FOLD_ONCE) {
                float x[GM_VK_FOLD_ONCE];
                fold_ask(x, from + k * G * (DIM + 2), d);
                if (d_first == 0 && k == 0) m = fold_factors(from, here);
                [[unroll]] for (uint j = 0; j < GM_VK_FOLD_ONCE; j++) {
                    const vec4 f = saved_factors[(k + j) * G + e];
                    precise const float next = sum * f.x + (k + j < here ? x[j] : 0) * f.y;
                    precise const float more = all * f.x + f.z;
                    sum = next;
                    all = more;
                }
            }
            if (d_first + lane >= G * DIM) break;
            part[d] = sum;
            if (d % DIM == 0) part_sum[e] = all;
        }
        barrier();
        if (lane < here * G && lane / G == here - 1) {
            whole_max[lane % G] = m;
            whole_sum[lane % G] = part_sum[lane % G];
        }
        barrier();
    }
}
