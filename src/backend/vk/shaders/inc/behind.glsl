/* SPDX-License-Identifier: MIT */
// Norms of several rows behind a product, in its own dispatch: a row has a workgroup, with a higher
// number than the product's, which waits until the last of those calls it. In which order a device
// starts workgroups is not known, so nobody waits for long: who was not called leaves, and the
// product's last one does that row itself; who begins late has been called already. inc/norms.glsl
// comes before this.
#include "inc/last.glsl"

#define BEHIND_LOOKS 16384 // at a row's word, some milliseconds of a GPU

const uint NORM_ONCE = NORM_TURNS > 4 ? NORM_TURNS : 4; // turns for which a lane asks at once

shared uint behind_rows[GM_VK_BEHIND_ROWS / 32]; // a bit for each row that is to be done here

bool is_behind()
{
    return AFTER == GM_VK_AFTER_NORMS && gl_WorkGroupID.x >= p.wg_end[0];
}

uint64_t word_of(uint row)
{
    return p.arrived + 4 * (1 + row);
}

void behind_take(uint row)
{
    WU1(word_of(row)).v[0] = 0;
    atomicOr(behind_rows[row / 32], 1 << row % 32);
}

// Waits to be called for a row.
void behind_wait(uint row)
{
    if (gl_LocalInvocationIndex != 0) return;
    for (uint i = 0; i < BEHIND_LOOKS && VU1(word_of(row)).v[0] == 0; i++) {}
    if (atomicCompSwap(CU1(word_of(row)).v[0], 0, GM_VK_LEFT) == GM_VK_CALLED) behind_take(row);
}

// Calls those who wait for the n rows, and takes the rows of those who left.
void behind_call(uint n)
{
    for (uint i = gl_LocalInvocationIndex; i < n; i += gl_WorkGroupSize.x)
        if (atomicCompSwap(CU1(word_of(i)).v[0], 0, GM_VK_CALLED) == GM_VK_LEFT) behind_take(i);
}

// A row in passes over memory: a product may have few lanes, and has few registers left.
void norm_walk(gm_vk_norms n, uint64_t y, uint n_cols, uint row)
{
    const uint cols = group_of() < NORM_GROUPS ? n_cols : 0; // of which the lane has some
    const uint turns = (n_cols / GM_VK_BLOCK + NORM_GROUPS - 1) / NORM_GROUPS;
    vec4 v[NORM_ONCE], x[NORM_ONCE], w[NORM_ONCE];
    float sums[NORM_SUMS / 2];
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    [[dont_unroll]] for (uint first = 0; first < turns; first += NORM_ONCE) {
        [[unroll]] for (uint k = 0; k < NORM_ONCE; k++)
            v[k] = norm_load(y, cols, row, norm_place(first + k));
        [[unroll]] for (uint k = 0; k < NORM_ONCE; k++)
            sums[k % NORM_TURNS] = norm_square(sums[k % NORM_TURNS], v[k]);
    }
    const float up = norm_factor(sums, n_cols, n.eps1);
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    [[dont_unroll]] for (uint first = 0; first < turns; first += NORM_ONCE) {
        [[unroll]] for (uint k = 0; k < NORM_ONCE; k++) {
            const uint at = norm_place(first + k);
            v[k] = norm_load(y, cols, row, at);
            x[k] = norm_load(n.x, cols, row, at);
            w[k] = norm_load(n.w1, cols, 0, at);
        }
        [[unroll]] for (uint k = 0; k < NORM_ONCE; k++) {
            v[k] = norm_added(x[k], norm_scaled(v[k], up, w[k], n.offset1));
            norm_store(n.dst, cols, row, norm_place(first + k), v[k]);
            sums[k % NORM_TURNS] = norm_square(sums[k % NORM_TURNS], v[k]);
        }
    }
    if (n.w2 == 0) return;
    const float up2 = norm_factor(sums, n_cols, n.eps2);
    [[dont_unroll]] for (uint first = 0; first < turns; first += NORM_ONCE) {
        [[unroll]] for (uint k = 0; k < NORM_ONCE; k++) {
            v[k] = norm_load(n.dst, cols, row, norm_place(first + k));
            w[k] = norm_load(n.w2, cols, 0, norm_place(first + k));
        }
        // Rounding is long code, so it is there once: values move up to the first place.
        [[dont_unroll]] for (uint k = 0; k < NORM_ONCE; k++) {
            const vec4 h = norm_scaled(v[0], up2, w[0], n.offset2);
            norm_put(n, n_cols, row, norm_place(first + k), h, cols != 0);
            [[unroll]] for (uint j = 1; j < NORM_ONCE; j++) {
                v[j - 1] = v[j];
                w[j - 1] = w[j];
            }
        }
    }
}

// Where every workgroup of the dispatch ends up: those of the product once they have written.
void norms_behind(uint n)
{
    if (AFTER != GM_VK_AFTER_NORMS) return;
    const uint row = (gl_WorkGroupID.x - p.wg_end[0]) * gl_NumWorkGroups.y + gl_WorkGroupID.y;
    if (is_behind() ? row >= n : !is_last(p.arrived, p.wg_end[0] * gl_NumWorkGroups.y)) return;
    if (gl_LocalInvocationIndex < GM_VK_BEHIND_ROWS / 32) behind_rows[gl_LocalInvocationIndex] = 0;
    barrier();
    if (is_behind()) behind_wait(row);
    else behind_call(n);
    barrier();
    memoryBarrierBuffer();
    [[dont_unroll]] for (uint i = 0; i < n; i++)
        if ((behind_rows[i / 32] >> i % 32 & 1) != 0) norm_walk(p.norms, p.dst[0], p.n_rows[0], i);
}
