/* SPDX-License-Identifier: MIT */
// Work that several workgroups share and the last of them finishes: nobody waits for anybody, so
// it is right whatever the order in which a device runs them.

shared uint n_arrived;

// True in the last of n workgroups that come here with this counter, which is 0 before and after:
// what the others wrote to coherent memory is seen by it.
bool is_last(uint64_t counter, uint n)
{
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationIndex == 0) {
        n_arrived = atomicAdd(CU1(counter).v[0], 1) + 1;
        if (n_arrived == n) CU1(counter).v[0] = 0;
    }
    barrier();
    memoryBarrierBuffer();
    return n_arrived == n;
}
