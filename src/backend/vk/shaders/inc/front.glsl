/* SPDX-License-Identifier: MIT */
// Norms in front of the product that reads them, in its dispatch: its first workgroups have parts
// of rows to norm, all of them ask for their weights, and wait until the rows are there. In which
// order a device starts workgroups is not known, so nobody waits for long: who has looked too often
// norms all rows itself, and whoever does the same writes the same. inc/norms.glsl comes before
// this.

// Turns of a row for which a lane asks at once; 0: there are no norms.
layout(constant_id = ID_FRONT) const uint FRONT = 0;
const uint FRONT_ONCE = FRONT > 0 ? FRONT : 1;

// Words of the product's input. What others write meanwhile is not readonly memory, which a
// compiler may read before it waits.
uvec4 input4(uint64_t from, uint i)
{
    return FRONT == 0 ? U4(from).v[i] : WU4(from).v[i];
}

uvec2 input2(uint64_t from, uint i)
{
    return FRONT == 0 ? U2(from).v[i] : WU2(from).v[i];
}

float input1(uint64_t from, uint i)
{
    return FRONT == 0 ? F1(from).v[i] : WF1(from).v[i];
}

// Block b of a row, as the product wants it.
void front_round(vec4 x, uint row, uint b, bool inside)
{
#ifdef FRONT_COLUMNS
    columns_put(x, p.norms.q, row, b, p.n_cols / GM_VK_BLOCK, inside);
#else
    if (p.norms.q != 0)
        round_lanes(x, p.norms.q, p.norms.meta, row, b, p.n_cols / GM_VK_BLOCK, p.norms.plane,
                    inside);
#endif
}

shared uint front_late; // whether somebody has waited too long

// Four values of turn t of what begins there. Nobody writes it meanwhile.
vec4 front_load(uint64_t from, uint t)
{
    const uint i = norm_place(t);
    return group_of() < NORM_GROUPS && i < p.n_cols ? F4(from).v[i / 4] : vec4(0);
}

// x + norm(y), of a row whose values are so many bytes behind the first one's.
vec4 front_add(uint64_t row, uint t, vec4 y, float up)
{
    const vec4 w = front_load(p.norms.w1, t), x = front_load(p.norms.x + row, t);
    return norm_added(x, norm_scaled(y, up, w, p.norms.offset1));
}

// The factor of one of a row's norms. There is one branch for all that a lane asks for at once: a
// branch for each value would wait for each.
float front_factor(uint64_t row, uint turns, bool second, float up)
{
    float sums[NORM_SUMS / 2];
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    [[dont_unroll]] for (uint first = 0; first < turns; first += FRONT_ONCE) {
        vec4 v[FRONT_ONCE];
        [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
            v[k] = front_load(p.earlier + row, first + k);
        if (second) {
            [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
                v[k] = front_add(row, first + k, v[k], up);
        }
        [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
            sums[k % NORM_TURNS] = norm_square(sums[k % NORM_TURNS], v[k]);
    }
    return norm_factor(sums, p.n_cols, second ? p.norms.eps2 : p.norms.eps1);
}

// Norms part `part` of row i. The sums are of the whole row, which is read several times: products
// may have no registers for it. Whatever may be in the code once is, because a kernel that runs for
// microseconds waits for each instruction to be fetched.
void front_norm(uint i, uint part)
{
    const uint turns = (p.n_cols / GM_VK_BLOCK + NORM_GROUPS - 1) / NORM_GROUPS;
    const uint each = (turns + p.n_parts - 1) / p.n_parts, end = min((part + 1) * each, turns);
    const uint64_t row = uint64_t(i) * p.n_cols * 4;
    float up[2] = float[2](0, 0);
    if (part * each >= turns) return;
    [[dont_unroll]] for (uint k = 0; k < 2; k++)
        up[k] = front_factor(row, turns, k == 1, up[0]);
    [[dont_unroll]] for (uint t = part * each; t < end; t++) {
        const vec4 v = front_add(row, t, front_load(p.earlier + row, t), up[0]);
        const vec4 h = norm_scaled(v, up[1], front_load(p.norms.w2, t), p.norms.offset2);
        const uint at = norm_place(t);
        const bool stores = group_of() < NORM_GROUPS && at < p.n_cols;
        if (stores) WF4(p.norms.dst + row).v[at / 4] = v;
        if (stores && p.norms.h != 0) WF4(p.norms.h + row).v[at / 4] = h;
        front_round(h, i, at / GM_VK_BLOCK, stores);
    }
}

// The parts of n rows that are this workgroup's; or all, if it was late.
void front_norms(uint n, bool late)
{
    if (FRONT == 0 || (!late && col_tile() != 0)) return;
    const uint parts = n * p.n_parts, step = late ? 1 : gl_NumWorkGroups.x >> p.side;
    [[dont_unroll]] for (uint k = late ? 0 : gl_WorkGroupID.x >> p.side; k < parts; k += step) {
        front_norm(k / p.n_parts, k % p.n_parts);
        memoryBarrierBuffer();
        barrier();
        if (gl_LocalInvocationIndex == 0)
            atomicOr(CU1(p.arrived).v[k / p.n_parts], 1 << k % p.n_parts);
    }
}

// Waits for n rows. True if it was in vain: front_norms is to be called once more. One subgroup
// looks; the others need not wait until what they have asked for is there.
bool front_waits(uint n)
{
    if (FRONT == 0) return false;
    if (gl_SubgroupID == 0) {
        const uint all = (2 << p.n_parts - 1) - 1;
        uint late = 0;
        [[dont_unroll]] for (uint row = gl_SubgroupInvocationID; row < n; row += gl_SubgroupSize) {
            bool misses = VU1(p.arrived).v[row] != all;
            [[dont_unroll]] for (uint i = 0; i < p.flow.patience && misses; i++)
                misses = VU1(p.arrived).v[row] != all;
            late |= uint(misses);
        }
        late = subgroupMax(late);
        if (gl_SubgroupInvocationID == 0) front_late = late;
        memoryBarrierBuffer();
    }
    barrier();
    groupMemoryBarrier();
    return front_late != 0;
}
