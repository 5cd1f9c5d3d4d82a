/* SPDX-License-Identifier: MIT */
// Norms of the only row, where kernels wait for each other: a workgroup has all of it for the sums
// and writes the round that is its own.
#include "inc/norm_row.glsl"
#include "inc/flow.glsl"

// As norm_load, of words that may not be there yet.
vec4 norm_look(uint64_t base, uint n_cols, uint i)
{
    if (NORM_WHOLE == 1) return i < n_cols ? VF4(base).v[i / 4] : vec4(0);
    vec4 x = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (i + j < n_cols) x[j] = VF1(base).v[i + j];
    return x;
}

// y and x as far as they are there; true if some of them are not.
bool norm_misses(gm_vk_norms n, uint64_t y, uint n_cols, out vec4 v[ROUNDS], out vec4 x[ROUNDS])
{
    bool misses = false;
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        v[k] = norm_look(y, n_cols, norm_place(k));
        x[k] = norm_look(n.x, n_cols, norm_place(k));
    }
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        misses = misses || is_unwritten(floatBitsToUint(v[k])) ||
                 is_unwritten(floatBitsToUint(x[k]));
    }
    return misses;
}

// Round `mine` of the row, once n_before have counted themselves at `before`, if that is not 0.
void norm_part(gm_vk_norms n, uint64_t y, uint n_cols, uint mine, gm_vk_flow f, uint64_t before,
               uint n_before)
{
    vec4 v[ROUNDS], x[ROUNDS], w1[ROUNDS], w2 = vec4(0);
    [[dont_unroll]] for (bool again = flow_rehearses(f), last = !again; again || last;) {
        uint looks = 0;
        bool misses;
        [[unroll]] for (uint k = 0; k < ROUNDS; k++)
            w1[k] = norm_load(n.w1, n_cols, 0, norm_place(k));
        if (n.w2 != 0) w2 = norm_load(n.w2, n_cols, 0, norm_place(mine));
        if (last && before != 0) flow_until(f, before, n_before);
        do {
            misses = norm_misses(n, y, n_cols, v, x) && last;
        } while (flow_again(f, misses, looks));
        norm_first(n, n_cols, 0, v, x, w1, mine, last);
        if (last) flow_count(f.done);
        if (n.w2 != 0) {
            const float up = norm_factor_of(v, n_cols, n.eps2);
            vec4 h = v[0];
            [[unroll]] for (uint k = 1; k < ROUNDS; k++)
                h = mine == k ? v[k] : h;
            norm_put(n, n_cols, 0, norm_place(mine), norm_scaled(h, up, w2, n.offset2), last);
        }
        last = again;
        again = false;
    }
}
