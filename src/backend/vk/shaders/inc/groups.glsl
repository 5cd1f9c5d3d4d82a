/* SPDX-License-Identifier: MIT */
// Eight neighbouring lanes are a group, whatever a subgroup's size is: what they compute together
// has the same bits on every device and in a workgroup of any size.

uint lane_of()
{
    return gl_SubgroupInvocationID & 7;
}

uint group_of()
{
    return gl_SubgroupID * (gl_SubgroupSize >> 3) + (gl_SubgroupInvocationID >> 3);
}

// Of all lanes of the workgroup, those of a group side by side.
uint lane_in_all()
{
    return group_of() * 8 + lane_of();
}

uint groups()
{
    return gl_WorkGroupSize.x >> 3;
}

// The sum over a group, in halves; every lane of it must be here.
float group_sum(float x)
{
    precise float sum = x + subgroupShuffleXor(x, 4);
    sum = sum + subgroupShuffleXor(sum, 2);
    sum = sum + subgroupShuffleXor(sum, 1);
    return sum;
}
