/* SPDX-License-Identifier: MIT */
// Norms of rows: v = x + norm(y), then h = norm(v). norm.comp and workgroups of a product share the
// arithmetic, so that a row has the same bits from all: block b of 32 values belongs to running sum
// b % 64, and the sums are folded in one order. A group has one block at a time, four values a
// lane; of a workgroup's groups as many take part as divide the sums.
// Where kernels wait, rows pass from workgroup to workgroup here, hence coherent memory.
#include "inc/groups.glsl"

#define NORM_SUMS 64
const uint NORM_LANES = gl_WorkGroupSize.x;
const uint NORM_GROUPS = NORM_LANES >= 512 ? 64 : NORM_LANES >= 256 ? 32 : NORM_LANES >= 128 ? 16
                         : NORM_LANES >= 64 ? 8 : 4;
const uint NORM_TURNS = NORM_SUMS / NORM_GROUPS; // of a group until all sums had one

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

// The first of a lane's four values in turn t.
uint norm_place(uint t)
{
    return (t * NORM_GROUPS + group_of()) * GM_VK_BLOCK + lane_of() * 4;
}

float norm_square(float sum, vec4 v)
{
    precise const float s = v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
    precise const float r = sum + s;
    return r;
}

// 1 / sqrt(mean(v^2) + eps) from the sums of squares of each turn that a sum has.
float norm_factor(float sums[NORM_SUMS / 2], uint n_cols, float eps)
{
    barrier(); // the sums before these have been read
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++) {
        const float sum = group_sum(sums[t]);
        if (lane_of() == 0 && group_of() < NORM_GROUPS)
            norm_sums[t * NORM_GROUPS + group_of()] = sum;
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

// Four values of the second norm's row i, from `at` on, to wherever they are wanted.
void norm_put(gm_vk_norms n, uint n_cols, uint i, uint at, vec4 h, bool stores)
{
    if (stores && n.h != 0) norm_store(n.h, n_cols, i, at, h);
    if (n.q != 0)
        round_lanes(h, n.q, n.meta, i, at / GM_VK_BLOCK, n_cols / GM_VK_BLOCK, n.plane,
                    stores && at < n_cols);
}
