/* SPDX-License-Identifier: MIT */
// Norms in front of the product that reads them, in its dispatch: its first workgroups have parts of
// rows to norm, all of them ask for their weights, and wait until the rows are there. In which order a
// device starts workgroups is not known, so nobody waits for long: who has looked too often norms
// what is missing itself, and two who do the same write the same. inc/norms.glsl comes before this.

layout(constant_id = ID_FRONT) const uint FRONT = 0;

// Words of the product's input. What others write meanwhile is not readonly memory, which a compiler
// may read before it waits.
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

const uint FRONT_ONCE = NORM_TURNS > 4 ? NORM_TURNS : 4; // turns for which a lane asks at once

shared uint front_missing[GM_VK_FRONT_ROWS / 32]; // a bit for each row

// As norm_load, of turn t, if that is before `end`.
vec4 front_load(uint64_t base, uint n_cols, uint row, uint t, uint end)
{
    return norm_load(base, t < end && group_of() < NORM_GROUPS ? n_cols : 0, row, norm_place(t));
}

// x + norm(y) of the turns from `first` on.
void front_add(out vec4 v[FRONT_ONCE], uint n_cols, uint row, uint first, uint end, float up)
{
    vec4 x[FRONT_ONCE], w[FRONT_ONCE];
    [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++) {
        v[k] = front_load(p.earlier, n_cols, row, first + k, end);
        x[k] = front_load(p.norms.x, n_cols, row, first + k, end);
        w[k] = front_load(p.norms.w1, n_cols, 0, first + k, end);
    }
    [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
        v[k] = norm_added(x[k], norm_scaled(v[k], up, w[k], p.norms.offset1));
}

// Part `part` of a row. Its sums are of the whole row, in passes over memory: a product may have few
// lanes, and has few registers left.
void front_norm(uint row, uint part)
{
    const uint n_cols = p.n_cols;
    const uint turns = (n_cols / GM_VK_BLOCK + NORM_GROUPS - 1) / NORM_GROUPS;
    const uint each = (turns + p.n_parts - 1) / p.n_parts;
    const uint mine = part * each, end = min(mine + each, turns);
    vec4 v[FRONT_ONCE], w[FRONT_ONCE];
    float sums[NORM_SUMS / 2];
    if (mine >= turns) return;
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    [[dont_unroll]] for (uint first = 0; first < turns; first += FRONT_ONCE) {
        [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
            v[k] = front_load(p.earlier, n_cols, row, first + k, turns);
        [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
            sums[k % NORM_TURNS] = norm_square(sums[k % NORM_TURNS], v[k]);
    }
    const float up1 = norm_factor(sums, n_cols, p.norms.eps1);
    [[unroll]] for (uint t = 0; t < NORM_TURNS; t++)
        sums[t] = 0;
    [[dont_unroll]] for (uint first = 0; first < turns; first += FRONT_ONCE) {
        front_add(v, n_cols, row, first, turns, up1);
        [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
            sums[k % NORM_TURNS] = norm_square(sums[k % NORM_TURNS], v[k]);
    }
    const float up2 = norm_factor(sums, n_cols, p.norms.eps2);
    [[dont_unroll]] for (uint first = mine; first < end; first += FRONT_ONCE) {
        front_add(v, n_cols, row, first, end, up1);
        [[unroll]] for (uint k = 0; k < FRONT_ONCE; k++)
            w[k] = front_load(p.norms.w2, n_cols, 0, first + k, end);
        // Rounding is long code, so it is there once: values move up to the first place.
        [[dont_unroll]] for (uint k = 0; k < FRONT_ONCE && first + k < end; k++) {
            const uint at = norm_place(first + k);
            const bool stores = group_of() < NORM_GROUPS;
            norm_store(p.norms.dst, stores ? n_cols : 0, row, at, v[0]);
            norm_put(p.norms, n_cols, row, at, norm_scaled(v[0], up2, w[0], p.norms.offset2),
                     stores);
            [[unroll]] for (uint j = 1; j < FRONT_ONCE; j++) {
                v[j - 1] = v[j];
                w[j - 1] = w[j];
            }
        }
    }
}

// The parts of n rows that are this workgroup's; or, late, all of rows that are missing.
void front_norms(uint n, bool late)
{
    if (FRONT == 0 || (!late && col_tile() != 0)) return;
    const uint units = n * p.n_parts, step = late ? 1 : gl_NumWorkGroups.x >> p.side;
    [[dont_unroll]] for (uint unit = late ? 0 : gl_WorkGroupID.x >> p.side; unit < units;
                         unit += step) {
        const uint row = unit / p.n_parts, part = unit % p.n_parts;
        if (late && (front_missing[row / 32] >> row % 32 & 1) == 0) continue;
        front_norm(row, part);
        memoryBarrierBuffer();
        barrier();
        if (gl_LocalInvocationIndex == 0) atomicOr(CU1(p.arrived).v[row], 1 << part);
    }
}

// Waits for n rows. True if it was in vain for some: front_norms is to be called once more.
bool front_misses(uint n)
{
    if (FRONT == 0) return false;
    const uint lane = gl_LocalInvocationIndex, all = (2 << p.n_parts - 1) - 1;
    barrier();
    if (lane < GM_VK_FRONT_ROWS / 32) front_missing[lane] = 0;
    barrier();
    [[dont_unroll]] for (uint row = lane; row < n; row += gl_WorkGroupSize.x) {
        bool misses = VU1(p.arrived).v[row] != all;
        [[dont_unroll]] for (uint i = 0; i < p.flow.patience && misses; i++)
            misses = VU1(p.arrived).v[row] != all;
        if (misses) atomicOr(front_missing[row / 32], 1 << row % 32);
    }
    barrier();
    memoryBarrierBuffer();
    return (front_missing[0] | front_missing[1]) != 0;
}
