/* SPDX-License-Identifier: MIT */
// Norms of a row whose values are all in registers: the workgroup has lanes enough for that, and a
// power of two of them.
#include "inc/norms.glsl"

layout(constant_id = ID_ROUNDS) const uint ROUNDS = 1; // of four values a lane that a row takes

float norm_factor_of(vec4 v[ROUNDS], uint n_cols, float eps)
{
    float sums[NORM_SUMS / 2];
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    [[unroll]] for (uint k = 0; k < ROUNDS; k++)
        sums[k % NORM_TURNS] = norm_square(sums[k % NORM_TURNS], v[k]);
    return norm_factor(sums, n_cols, eps);
}

// What the norms of a row need beside y.
struct NormArgs {
    vec4 x[ROUNDS], w1[ROUNDS], w2[ROUNDS];
};

// Row i of what is written: y in v becomes x + norm(y), if there is such a norm. Of its rounds only
// the one that is mine is written, or all where that is ROUNDS, and nothing without `stores`.
void norm_first(gm_vk_norms n, uint n_cols, uint i, inout vec4 v[ROUNDS], vec4 x[ROUNDS],
                vec4 w1[ROUNDS], uint mine, bool stores)
{
    if (n.w1 == 0) return;
    const float up = norm_factor_of(v, n_cols, n.eps1);
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        v[k] = norm_added(x[k], norm_scaled(v[k], up, w1[k], n.offset1));
        if (stores && n.dst != 0 && (mine == ROUNDS || mine == k))
            norm_store(n.dst, n_cols, i, norm_place(k), v[k]);
    }
}

// The norm of that. v and a are used up: a compiler would keep a copy of what is not.
void norm_second(gm_vk_norms n, uint n_cols, uint i, inout vec4 v[ROUNDS], inout NormArgs a)
{
    if (n.w2 == 0) return;
    const float up = norm_factor_of(v, n_cols, n.eps2);
    // Rounding is long code, so it is there once: values move up to the first place.
    [[dont_unroll]] for (uint k = 0; k < ROUNDS; k++) {
        norm_put(n, n_cols, i, norm_place(k), norm_scaled(v[0], up, a.w2[0], n.offset2), true);
        [[unroll]] for (uint j = 1; j < ROUNDS; j++) {
            v[j - 1] = v[j];
            a.w2[j - 1] = a.w2[j];
        }
    }
}

// Row `from` of x and y becomes row i of what is written. Everything is asked for at once: there is
// one wait for memory, not one before each sum.
void norm_row(gm_vk_norms n, uint64_t y, uint n_cols, uint from, uint i)
{
    NormArgs a;
    vec4 v[ROUNDS];
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        v[k] = norm_load(n.w1 != 0 ? y : n.x, n_cols, from, norm_place(k));
        if (n.w1 != 0) {
            a.x[k] = norm_load(n.x, n_cols, from, norm_place(k));
            a.w1[k] = norm_load(n.w1, n_cols, 0, norm_place(k));
        }
        if (n.w2 != 0) a.w2[k] = norm_load(n.w2, n_cols, 0, norm_place(k));
    }
    norm_first(n, n_cols, i, v, a.x, a.w1, ROUNDS, true);
    norm_second(n, n_cols, i, v, a);
}
