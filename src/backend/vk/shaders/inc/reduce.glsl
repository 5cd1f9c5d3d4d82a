/* SPDX-License-Identifier: MIT */
// Sums and maxima over a workgroup of any subgroup size; every invocation gets the result. The
// order follows from the sizes of workgroup and subgroup alone.

shared float reduce_shared[64];

float wg_sum(float x)
{
    x = subgroupAdd(x);
    barrier();
    if (subgroupElect()) reduce_shared[gl_SubgroupID] = x;
    barrier();
    float sum = reduce_shared[0];
    for (uint i = 1; i < gl_NumSubgroups; i++)
        sum += reduce_shared[i];
    return sum;
}

float wg_max(float x)
{
    x = subgroupMax(x);
    barrier();
    if (subgroupElect()) reduce_shared[gl_SubgroupID] = x;
    barrier();
    float m = reduce_shared[0];
    for (uint i = 1; i < gl_NumSubgroups; i++)
        m = max(m, reduce_shared[i]);
    return m;
}
