/* SPDX-License-Identifier: MIT */
// What the workgroups of a product work on: tiles of columns times rows of one of up to three
// matrices side by side, or of gate and up together.
layout(constant_id = ID_AFTER) const uint AFTER = 0; // GM_VK_AFTER_*
#ifdef ID_PLANES
layout(constant_id = ID_PLANES) const uint PLANES = 1; // rows of int8 that stand for a column
#endif
const uint GLU = AFTER == GM_VK_AFTER_GELU ? 1 : 0;
const uint NM = 1 + GLU;

layout(push_constant, std430) uniform Push { gm_vk_matmul p; };

// The columns that this workgroup works on: neighbours read the same weights, and what is near in
// time is still in the cache.
uint col_tile()
{
    return (gl_WorkGroupID.y << p.side) + (gl_WorkGroupID.x & ((1u << p.side) - 1));
}

// The matrix that it works on, and its first row there; each workgroup has so many.
uint matrix_of(uint rows_each, out uint row_first)
{
    uint wg = gl_WorkGroupID.x >> p.side, m = 0;
    if (GLU == 0 && wg >= p.wg_end[1]) {
        m = 2;
        wg -= p.wg_end[1];
    } else if (GLU == 0 && wg >= p.wg_end[0]) {
        m = 1;
        wg -= p.wg_end[0];
    }
    row_first = wg * rows_each;
    return m;
}
