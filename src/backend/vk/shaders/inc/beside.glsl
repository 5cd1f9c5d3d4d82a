/* SPDX-License-Identifier: MIT */
// Norms behind a product, where kernels wait for each other: workgroups of its own dispatch, which
// are there before and wait (inc/flow.glsl).
#include "inc/norm_part.glsl"

// Whether this is such a workgroup. Each has a part of the step's only row to write.
bool norms_beside()
{
    if (FLOW == 0 || AFTER != GM_VK_AFTER_NORM || gl_WorkGroupID.x < p.wg_end[0])
        return false;
    norm_part(p.norms, p.dst[0], p.n_rows[0], gl_WorkGroupID.x - p.wg_end[0], p.flow,
              p.flow.done + GM_VK_FLOW_INNER, p.wg_end[0]);
    return true;
}
