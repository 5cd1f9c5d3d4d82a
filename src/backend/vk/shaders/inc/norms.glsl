/* SPDX-License-Identifier: MIT */
// Norms of rows: v = x + norm(y), then h = norm(v). norm.comp and the last workgroup of a product
// share the arithmetic, so that a row has the same bits from both: block b of 32 values belongs to
// running sum b % 64, and the sums are folded in one order. A group has one block at a time, four
// values a lane; one pass over NORM_SPAN values takes every sum once.
// Rows pass from workgroup to workgroup here, hence coherent memory.
#include "inc/groups.glsl"

layout(constant_id = ID_ROUNDS) const uint ROUNDS = 1; // of four values a lane that a row takes

#define NORM_SUMS  64
#define NORM_SPAN  (NORM_SUMS * GM_VK_BLOCK)
#define NORM_TURNS (NORM_SUMS / groups()) // of a workgroup in a pass

shared float norm_sums[NORM_SUMS];

// Rows of whole vec4s (NORM_WHOLE) are read and written as such.
#ifdef ID_WHOLE
layout(constant_id = ID_WHOLE) const uint NORM_WHOLE = 1;
#else
#define NORM_WHOLE 1
#endif

vec4 norm_load(uint64_t base, uint n_cols, uint row, uint i)
{
    if (NORM_WHOLE == 1) return i < n_cols ? CF4(base).v[(row * n_cols + i) / 4] : vec4(0);
    vec4 x = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (i + j < n_cols) x[j] = CF1(base).v[row * n_cols + i + j];
    return x;
}

void norm_store(uint64_t base, uint n_cols, uint row, uint i, vec4 x)
{
    if (NORM_WHOLE == 1) {
        x = vec4(written(x.x), written(x.y), written(x.z), written(x.w));
        if (i < n_cols) CF4(base).v[(row * n_cols + i) / 4] = x;
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (i + j < n_cols) CF1(base).v[row * n_cols + i + j] = written(x[j]);
}

// The first of a lane's four values in turn t of all passes.
uint norm_place(uint t)
{
    return (t * groups() + group_of()) * GM_VK_BLOCK + lane_of() * 4;
}

float norm_square(float sum, vec4 v)
{
    precise const float s = v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    precise const float r = sum + s;
    return r;
}

// 1 / sqrt(mean(v^2) + eps) from the sums of squares of each turn of a pass.
float norm_factor(float sums[NORM_SUMS / 2], uint n_cols, float eps)
{
    barrier(); // the sums before these have been read
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++) {
        const float sum = group_sum(sums[t]);
        if (lane_of() == 0) norm_sums[t * groups() + group_of()] = sum;
    }
    barrier();
    precise float sum = norm_sums[lane_of()];
    [[unroll]] for (uint i = 8; i < NORM_SUMS; i += 8)
        sum = sum + norm_sums[i + lane_of()];
    return 1.0 / sqrt(group_sum(sum) / float(n_cols) + eps);
}

vec4 norm_scaled(vec4 v, float up, vec4 weight, float offset)
{
    precise const vec4 h = v * up * (weight + offset);
    return h;
}
vec4 norm_added(vec4 x, vec4 y)
{
    precise const vec4 v = x + y;
    return v;
}

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

// Four values of the second norm's row i, from `at` on, to wherever they are wanted.
void norm_put(gm_vk_norms n, uint n_cols, uint i, uint at, vec4 h, bool stores)
{
    if (stores && n.h != 0) norm_store(n.h, n_cols, i, at, h);
    if (n.q != 0)
        round_lanes(h, n.q, n.meta, i, at / GM_VK_BLOCK, n_cols / GM_VK_BLOCK, n.plane,
                    stores && at < n_cols);
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
