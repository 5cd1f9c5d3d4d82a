/* SPDX-License-Identifier: MIT */
// What the last workgroup of a product does with the few rows that all have written: the norms that
// stand before the next product, which then needs no kernel between. Rows are read again in each
// pass instead of being kept: registers are the product's.

#include "inc/last.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Norms
{
    gm_vk_norms v;
};

// y [n_rows, n_cols] is what the product has written.
void tail(uint64_t norms, uint64_t arrived, uint64_t y, uint n_cols, uint n_rows)
{
    if (!is_last(arrived, gl_NumWorkGroups.x)) return;
    [[dont_unroll]] for (uint row = 0; row < n_rows; row++)
        norm_row(Norms(norms).v, y, n_cols, row, row);
}
