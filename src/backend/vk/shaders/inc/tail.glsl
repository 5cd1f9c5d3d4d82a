/* SPDX-License-Identifier: MIT */
// What the last workgroup of a product does with the few rows that all have written: the norms that
// stand before the next product, which then needs no kernel between. Rows are read again in each
// pass instead of being kept: registers are the product's.

#include "inc/last.glsl"

// y [n_rows, n_cols] is what the product has written.
void tail(gm_vk_norms norms, uint64_t arrived, uint64_t y, uint n_cols, uint n_rows)
{
    if (!is_last(arrived, gl_NumWorkGroups.x)) return;
    [[dont_unroll]] for (uint row = 0; row < n_rows; row++)
        norm_row(norms, y, n_cols, row, row);
}
