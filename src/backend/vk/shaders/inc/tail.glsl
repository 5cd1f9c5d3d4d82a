/* SPDX-License-Identifier: MIT */
// Who does the norms that stand between a product and the next, where a step has few rows: then
// there is no kernel between. The product's last workgroup does them once all others have written;
// or, where kernels flow, workgroups behind the product's, which are there before and wait
// (inc/flow.glsl).

#include "inc/norm_part.glsl"
#include "inc/behind.glsl"

void tail(uint n_rows)
{
    if (!is_last(p.arrived, gl_NumWorkGroups.x)) return;
    [[dont_unroll]] for (uint row = 0; row < n_rows; row++)
        norm_row(p.norms, p.dst[0], p.n_rows[0], row, row);
}

// Whether this is such a workgroup. Each has a part of the step's only row to write.
bool norms_beside()
{
    if (FLOW == 0 || AFTER != GM_VK_AFTER_NORM || gl_WorkGroupID.x < p.wg_end[0])
        return false;
    norm_part(p.norms, p.dst[0], p.n_rows[0], gl_WorkGroupID.x - p.wg_end[0], p.flow,
              p.flow.done + GM_VK_FLOW_INNER, p.wg_end[0]);
    return true;
}
