/* SPDX-License-Identifier: MIT */
// What the last workgroup of a product does with the few rows that all have written: the norms that
// stand before the next product, which then needs no kernel between. Rows are read again in each
// pass instead of being kept: registers are the product's.

#include "inc/last.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Norms
{
    gm_vk_norms v;
};

// Four values of a row; rows are whole blocks here.
vec4 tail_load(uint64_t base, uint n_cols, uint row, uint i)
{
    return i < n_cols ? CF4(base).v[(row * n_cols + i) / 4] : vec4(0);
}

// dst = x + norm(y) of a row; answers the sums of squares of dst.
void tail_add(gm_vk_norms n, uint64_t y, uint n_cols, uint row, out float sums[NORM_SUMS / 2])
{
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    for (uint k = 0; k * NORM_SPAN < n_cols; k++) {
        [[unroll]] for (uint t = 0; t < NORM_TURNS; t++) {
            const uint i = norm_place(k * NORM_TURNS + t);
            sums[t] = norm_square(sums[t], tail_load(y, n_cols, row, i));
        }
    }
    const float up = norm_factor(sums, n_cols, n.eps1);
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    for (uint k = 0; k * NORM_SPAN < n_cols; k++) {
        [[unroll]] for (uint t = 0; t < NORM_TURNS; t++) {
            const uint i = norm_place(k * NORM_TURNS + t);
            const vec4 w = tail_load(n.w1, n_cols, 0, i);
            const vec4 h = norm_scaled(tail_load(y, n_cols, row, i), up, w, n.offset1);
            const vec4 v = norm_added(tail_load(n.x, n_cols, row, i), h);
            if (i < n_cols) CF4(n.dst).v[(row * n_cols + i) / 4] = v;
            sums[t] = norm_square(sums[t], v);
        }
    }
}

// Rounding is long code, so turns are not unrolled: the next one's loads are under way meanwhile.
void tail_next(gm_vk_norms n, uint n_cols, uint row, float up)
{
    vec4 v = tail_load(n.dst, n_cols, row, norm_place(0));
    vec4 w = tail_load(n.w2, n_cols, 0, norm_place(0));
    [[dont_unroll]] for (uint t = 0; t * groups() * GM_VK_BLOCK < n_cols; t++) {
        const uint i = norm_place(t), after = norm_place(t + 1);
        const vec4 h = norm_scaled(v, up, w, n.offset2);
        v = tail_load(n.dst, n_cols, row, after);
        w = tail_load(n.w2, n_cols, 0, after);
        if (n.h != 0 && i < n_cols) CF4(n.h).v[(row * n_cols + i) / 4] = h;
        if (n.q != 0)
            quantise_lanes(h, n.q, n.meta, (row * n_cols + i) / GM_VK_BLOCK, n.plane, i < n_cols);
    }
}

// y [n_rows, n_cols] is what the product has written.
void tail(uint64_t norms, uint64_t arrived, uint64_t y, uint n_cols, uint n_rows)
{
    if (!is_last(arrived, gl_NumWorkGroups.x)) return;
    const gm_vk_norms n = Norms(norms).v;
    [[dont_unroll]] for (uint row = 0; row < n_rows; row++) {
        float sums[NORM_SUMS / 2];
        tail_add(n, y, n_cols, row, sums);
        if (n.w2 != 0) tail_next(n, n_cols, row, norm_factor(sums, n_cols, n.eps2));
    }
}
