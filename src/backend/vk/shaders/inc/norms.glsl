/* SPDX-License-Identifier: MIT */
// Norms of rows: v = x + norm(y), then h = norm(v). norm.comp and the last workgroup of a product
// share the arithmetic, so that a row has the same bits from both: block b of 32 values belongs to
// running sum b % 64, and the sums are folded in one order. A group has one block at a time, four
// values a lane; one pass over NORM_SPAN values takes every sum once.
// Rows pass from workgroup to workgroup here, hence coherent memory.
#include "inc/groups.glsl"

#define NORM_SUMS  64
#define NORM_SPAN  (NORM_SUMS * GM_VK_BLOCK)
#define NORM_TURNS (NORM_SUMS / groups()) // of a workgroup in a pass

shared float norm_sums[NORM_SUMS];

// Rows of whole vec4s are read and written as such.
vec4 norm_load(uint64_t base, uint n_cols, uint row, uint i)
{
    if (n_cols % 4 == 0) return i < n_cols ? CF4(base).v[(row * n_cols + i) / 4] : vec4(0);
    vec4 x = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (i + j < n_cols) x[j] = CF1(base).v[row * n_cols + i + j];
    return x;
}

void norm_store(uint64_t base, uint n_cols, uint row, uint i, vec4 x)
{
    if (n_cols % 4 == 0) {
        if (i < n_cols) CF4(base).v[(row * n_cols + i) / 4] = x;
        return;
    }
    [[unroll]] for (uint j = 0; j < 4; j++)
        if (i + j < n_cols) CF1(base).v[row * n_cols + i + j] = x[j];
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
