/* SPDX-License-Identifier: MIT */
// Kernels that follow each other without a barrier between them. The later one is started while the
// earlier one still runs, asks for what does not depend on it (weights, cells of the cache), and
// waits for its last workgroup. Devices start workgroups in the order in which they were handed
// over, so that whoever is waited for runs or has run; but Vulkan does not promise it, so nobody
// waits for ever: who has waited too long says so, and the host then does without (vk_run.c).
//
// A count only says that it is time to look. Whether a word is there, it says itself (base.glsl),
// so that nobody has to wait until a device has made writes seen in order, and who counts need not
// have written yet.

#define FLOW_SOME 4096 // looks after which it is asked whether another has given up

// Waits until n have counted themselves there: what they write is there, or will be soon.
void flow_until(gm_vk_flow f, uint64_t counter, uint n)
{
    if (gl_LocalInvocationIndex == 0) {
        uint i = 0;
        while (VU1(counter).v[0] < n && i < f.patience) {
            i++;
            if (i % FLOW_SOME == 0 && VU1(f.late).v[0] != 0) i = f.patience;
        }
        if (i == f.patience) VU1(f.late).v[0] = 1;
    }
    barrier();
}

// Whether a lane that misses words is to read them again; `looks` begins at 0.
bool flow_again(gm_vk_flow f, bool misses, inout uint looks)
{
    if (FLOW == 0 || !misses) return false;
    looks++;
    if (looks % FLOW_SOME == 0 && VU1(f.late).v[0] != 0) looks = f.patience;
    if (looks < f.patience) return true;
    VU1(f.late).v[0] = 1;
    return false;
}

// Attention asks for little and waits for it, while those behind would ask for megabytes: they let
// it go first. Nothing depends on that.
void flow_hold(gm_vk_flow f)
{
    if (FLOW == 1 && f.hold != 0) flow_until(f, f.hold, f.n_hold);
}

void flow_wait(gm_vk_flow f)
{
    if (FLOW == 1 && f.before != 0) flow_until(f, f.before, f.n_before);
}

shared uint flow_early;

// Whether there is time to do once, with whatever is there and storing nothing, what is to be done.
// Code that has not run on a multiprocessor for a while is fetched line by line, which takes longer
// than running it; who would wait anyway has it at hand then when it counts.
bool flow_rehearses(gm_vk_flow f)
{
    if (FLOW == 0 || f.before == 0) return false;
    if (gl_LocalInvocationIndex == 0) flow_early = VU1(f.before).v[0] < f.n_before ? 1 : 0;
    barrier();
    return flow_early == 1;
}

// The workgroup counts itself, before it rounds and writes: that takes it about as long as it takes
// the others to be told.
void flow_count(uint64_t counter)
{
    if (gl_LocalInvocationIndex == 0) atomicAdd(CU1(counter).v[0], 1);
}

void flow_done(gm_vk_flow f)
{
    if (FLOW == 1) flow_count(f.done);
}
