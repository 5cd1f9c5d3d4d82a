/* SPDX-License-Identifier: MIT */
// What one look at a row's tokens finds. Each workgroup looks at a part of the row, and the last of
// them makes the row's of what they left.

struct Part {
    uint key, id;    // the best key, 0 where no token may win, and the lowest id that has it
    float most, sum; // the largest logit, and the sum of the exponentials of all less that
};

shared Part part_of[SUBGROUPS];

Part nothing()
{
    return Part(0, 0xffffffffu, NEGATIVE_INF, 0);
}

Part joined(Part a, Part b)
{
    const bool other = b.key > a.key || (b.key == a.key && b.id < a.id);
    const float m = max(a.most, b.most);
    const float sum = a.sum * exp(a.most - m) + b.sum * exp(b.most - m);
    return Part(other ? b.key : a.key, other ? b.id : a.id, m, m > NEGATIVE_INF ? sum : 0);
}

Part joined_in_subgroup(Part x)
{
    const uint key = subgroupMax(x.key);
    const float m = subgroupMax(x.most);
    const float sum = subgroupAdd(x.most > NEGATIVE_INF ? x.sum * exp(x.most - m) : 0);
    return Part(key, subgroupMin(x.key == key ? x.id : 0xffffffffu), m, sum);
}

// What all invocations have, for each of them. The order of the sum follows from the sizes of
// workgroup and subgroup alone.
Part joined_in_workgroup(Part x)
{
    x = joined_in_subgroup(x);
    barrier();
    if (subgroupElect()) part_of[gl_SubgroupID] = x;
    barrier();
    x = nothing();
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
        x = joined(x, part_of[i]);
    return joined_in_subgroup(x);
}

// Leaves the workgroup's part of output i; true in the last workgroup, which gets the row's. Its
// lanes take the parts by number, so it does not matter which workgroup is last.
bool finishes(uint i, inout Part x)
{
    const uint first = i * p.n_parts;
    if (gl_LocalInvocationIndex == 0) {
        CU4(p.parts).v[first + gl_WorkGroupID.x] =
            uvec4(x.key, x.id, floatBitsToUint(x.most), floatBitsToUint(x.sum));
    }
    if (!is_last(p.arrived + i * 4, p.n_parts)) return false;
    x = nothing();
    for (uint k = gl_LocalInvocationIndex; k < p.n_parts; k += gl_WorkGroupSize.x) {
        const uvec4 u = CU4(p.parts).v[first + k];
        x = joined(x, Part(u.x, u.y, uintBitsToFloat(u.z), uintBitsToFloat(u.w)));
    }
    x = joined_in_workgroup(x);
    return true;
}
