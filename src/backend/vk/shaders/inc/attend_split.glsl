/* SPDX-License-Identifier: MIT */
// One split of attention for the E heads of q in shared memory, G to a row: a maximum, a sum and a
// vector for each. Everything that a split reads is asked for at its beginning: its cells of K, and
// those of V while scores are computed.

// Groups have their scores' cells, sets of UNITS lanes their cells of V, and both see every cell of
// a split by its place in it, so that who adds what depends on nothing else.
#define GROUPS (GM_VK_ATTEND_LANES / 8)
#define KEYS   (GM_VK_SPLIT / GROUPS)
const uint UNITS = DIM / 8, UNITS_EACH = (UNITS + 7) / 8; // of a head, and of a lane of a group
const uint SETS = GM_VK_ATTEND_LANES / UNITS;
const uint CELLS_EACH = (GM_VK_SPLIT + SETS - 1) / SETS;

// What a lane has on its way is registers: ROOM times 16 bytes of K and as many of V.
// Where rows are many, workgroups beside each other hide more than a long reach does.
layout(constant_id = ID_MANY) const uint MANY = 0;
#define MOST      8
#define ROOM      (WALK == 1 || MANY == 1 ? 4 : MOST)
#define RAW       (KV == KV_F32 ? 2 : 1)
#define KEY_RAW   (UNITS_EACH * RAW)
#define FOLD_ROOM (WALK == 1 ? 0 : 512)
const uint KEYS_ONCE = KEY_RAW * 4 <= ROOM ? 4 : KEY_RAW * 2 <= ROOM ? 2 : 1; // cells
const uint VALUES = CELLS_EACH * RAW < ROOM ? CELLS_EACH : ROOM / RAW;
const uint FOLDED = E * DIM > FOLD_ROOM ? 1 : 2; // heads whose sets are folded at once

shared float weight[E * GM_VK_SPLIT];
shared vec4 piece[FOLDED * GM_VK_ATTEND_LANES * 2];
shared float part[E * DIM], part_max[E], part_sum[E]; // of one split
shared uint row_first[T], row_last[T]; // what each row sees
#define PAGES (GM_VK_SPLIT / GM_VK_PAGE)
shared uint64_t pages[PAGES + TURN]; // cells of K of each page of the split, and of the row's own
const uint OWN = DIM + DIM / 32;     // room for the words of a cell
shared uint own[TURN == 1 ? 2 * OWN : 1]; // the row's own cell, of K and then of V

CellRaw k_raw[16], v_raw[MOST]; // a head of 1024 values, the longest, has 16 units in a lane
uint own_cell = GM_VK_SPLIT; // which of the split's the row's own is, if it is among them

// Neighbouring rows of a slot that see cells [first, last] together; [begin, end) of the T.
struct Run {
    uint slot, begin, end;
    uint first, last;
};

// The part of a split that some row of a run sees: cells [lo, hi] of it.
struct Part {
    uint slot, base, lo, hi;
};

uint64_t cells(uint slot, uint pos, uint which)
{
    const Cells c = Cells(p.tables, p.table_len, p.layer_off, p.class_of, p.n_kv_head);
    return cells_of(c, slot, pos, which, gl_WorkGroupID.x, p.head_dim);
}

// A workgroup of a single row has only cells that it sees.
bool sees(Run run, uint row, uint pos)
{
    if (WALK == 0) return true;
    return row >= run.begin && row < run.end && pos >= row_first[row] && pos <= row_last[row];
}

Part part_of(Run run, uint s)
{
    const uint base = s * GM_VK_SPLIT;
    return Part(run.slot, base, max(run.first, base) - base,
                min(run.last - base, GM_VK_SPLIT - 1));
}

// Bytes from a head's cells of K to those of V.
uint values_behind()
{
    return p.n_kv_head * head_size(p.head_dim);
}

uint set_of()
{
    return gl_LocalInvocationIndex / UNITS;
}

void fetch_key(uint i, uint cell)
{
    [[unroll]] for (uint j = 0; j < UNITS_EACH; j++) {
        const uint unit = min(lane_of() + 8 * j, UNITS - 1);
        k_raw[i * UNITS_EACH + j] =
            cell_fetch(pages[cell / GM_VK_PAGE], cell % GM_VK_PAGE, unit, UNITS);
    }
}

void fetch_value(uint i, uint cell)
{
    const uint64_t v = pages[cell / GM_VK_PAGE] + values_behind();
    v_raw[i] = cell_fetch(v, cell % GM_VK_PAGE, gl_LocalInvocationIndex % UNITS, UNITS);
}

// Eight values of the own cell whose words begin there.
CellRaw own_unit(uint from, uint unit)
{
    CellRaw raw = CellRaw(uvec4(0), uvec4(0));
    const uint at = from + unit * (KV == KV_F32 ? 8 : KV == KV_F16 ? 4 : 2);
    raw.a.xy = uvec2(own[at], own[at + 1]);
    if (KV == KV_F32 || KV == KV_F16) raw.a.zw = uvec2(own[at + 2], own[at + 3]);
    else raw.a.z = own[from + UNITS * 2 + unit / 4];
    if (KV == KV_F32) raw.b = uvec4(own[at + 4], own[at + 5], own[at + 6], own[at + 7]);
    return raw;
}

// The group's cells from its first-th on.
void fetch_keys(Part s, uint first)
{
    [[unroll]] for (uint i = 0; i < KEYS_ONCE; i++)
        fetch_key(i, clamp(group_of() + (first + i) * GROUPS, s.lo, s.hi));
}

// The set's cells from turn `first` on.
void fetch_values(Part s, uint first)
{
    [[unroll]] for (uint i = 0; i < VALUES; i++)
        fetch_value(i, clamp(set_of() + (first + i) * SETS, s.lo, s.hi));
}

// The turn of V that has the part's first cells.
uint first_turn(Part s)
{
    return s.lo / SETS / VALUES * VALUES;
}

// pos is that of the row's own cell, if it is to be stored.
void fetch_part(Part s, uint pos)
{
    if (WALK == 1) barrier(); // the part before has been read
    if (gl_LocalInvocationIndex < PAGES + TURN) {
        const uint cell = clamp(gl_LocalInvocationIndex * GM_VK_PAGE, s.lo, s.hi);
        pages[gl_LocalInvocationIndex] =
            cells(s.slot, gl_LocalInvocationIndex < PAGES ? s.base + cell : pos, 0);
    }
    barrier();
    fetch_keys(s, 0);
    fetch_values(s, first_turn(s));
}

// The own cell comes from shared memory, where it was made: nobody waits until it can be read.
void own_keys(uint first)
{
    [[unroll]] for (uint i = 0; i < KEYS_ONCE; i++) {
        if (group_of() + (first + i) * GROUPS != own_cell) continue;
        [[unroll]] for (uint j = 0; j < UNITS_EACH; j++)
            k_raw[i * UNITS_EACH + j] = own_unit(0, min(lane_of() + 8 * j, UNITS - 1));
    }
}

void own_values(uint first)
{
    [[unroll]] for (uint i = 0; i < VALUES; i++)
        if (set_of() + (first + i) * SETS == own_cell)
            v_raw[i] = own_unit(OWN, gl_LocalInvocationIndex % UNITS);
}

// Scores of the i-th cell that is here: eight lanes a cell.
void score(Run run, Part s, uint i, uint cell)
{
    float dots[E];
    [[unroll]] for (uint e = 0; e < E; e++)
        dots[e] = 0;
    [[unroll]] for (uint j = 0; j < UNITS_EACH; j++) {
        const uint unit = lane_of() + 8 * j;
        float x[8];
        cell_values(k_raw[i * UNITS_EACH + j], x);
        if (unit >= UNITS) break;
        [[unroll]] for (uint e = 0; e < E; e++) {
            const uint at = (e * DIM + unit * 8) / 4;
            const vec4 q[2] = vec4[2](heads[at], heads[at + 1]);
            [[unroll]] for (uint k = 0; k < 8; k++)
                dots[e] += q[k / 4][k % 4] * x[k];
        }
    }
    [[unroll]] for (uint e = 0; e < E; e++) {
        const float d = group_sum(dots[e]);
        if (lane_of() == 0 && cell >= s.lo && cell <= s.hi)
            weight[e * GM_VK_SPLIT + cell] =
                sees(run, e / G, s.base + cell) ? d * p.scale : NEGATIVE_INF;
    }
}

void scores(Run run, Part s)
{
    [[dont_unroll]] for (uint first = 0; first < KEYS; first += KEYS_ONCE) {
        if (first * GROUPS > s.hi) break;
        if (first != 0) fetch_keys(s, first);
        if (TURN == 1) own_keys(first);
        [[unroll]] for (uint i = 0; i < KEYS_ONCE; i++) {
            const uint from = (first + i) * GROUPS; // all groups' cells
            if (from <= s.hi && from + GROUPS > s.lo) score(run, s, i, from + group_of());
        }
    }
    barrier();
}

// Scores become weights: a subgroup looks for a head's largest, all lanes have some of the weights,
// and a subgroup adds up a head's, for which nobody waits here. A head that sees nothing has the
// sum 0.
void soften(Part s)
{
    const uint step = gl_SubgroupSize;
    const uint begin = s.lo - s.lo % step + gl_SubgroupInvocationID;
    [[dont_unroll]] for (uint e = gl_SubgroupID; e < E; e += gl_NumSubgroups) {
        float m = NEGATIVE_INF;
        [[dont_unroll]] for (uint t = begin; t <= s.hi; t += step)
            if (t >= s.lo) m = max(m, weight[e * GM_VK_SPLIT + t]);
        m = subgroupMax(m);
        if (subgroupElect()) part_max[e] = m;
    }
    barrier();
    const uint n_weights = E * GM_VK_SPLIT;
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < n_weights; i += gl_WorkGroupSize.x) {
        const float m = part_max[i / GM_VK_SPLIT];
        weight[i] = m == NEGATIVE_INF ? 0 : gm_exp(weight[i] - m);
    }
    barrier();
    [[dont_unroll]] for (uint e = gl_SubgroupID; e < E; e += gl_NumSubgroups) {
        float sum = 0;
        [[dont_unroll]] for (uint t = begin; t <= s.hi; t += step)
            if (t >= s.lo) sum += weight[e * GM_VK_SPLIT + t];
        sum = subgroupAdd(sum);
        if (subgroupElect()) part_sum[e] = sum;
    }
}

// Weighted sums of V: a lane has one unit of eight values and its set's cells. The sets' sums are
// added in their order.
void mix(Part s)
{
    const uint unit = gl_LocalInvocationIndex % UNITS, set = set_of();
    float sums[E * 8];
    [[unroll]] for (uint i = 0; i < E * 8; i++)
        sums[i] = 0;
    [[dont_unroll]] for (uint turn = first_turn(s); turn * SETS <= s.hi; turn += VALUES) {
        if (turn != first_turn(s)) fetch_values(s, turn);
        if (TURN == 1) own_values(turn);
        [[unroll]] for (uint i = 0; i < VALUES; i++) {
            const uint cell = set + (turn + i) * SETS;
            if (cell < s.lo || cell > s.hi) continue;
            float x[8];
            cell_values(v_raw[i], x);
            [[unroll]] for (uint e = 0; e < E; e++) {
                const float w = weight[e * GM_VK_SPLIT + cell];
                if (w == 0) continue; // not even a NaN that only another row sees
                [[unroll]] for (uint j = 0; j < 8; j++)
                    sums[e * 8 + j] += w * x[j];
            }
        }
    }
    [[unroll]] for (uint first = 0; first < E; first += FOLDED) {
        const uint n = min(FOLDED, E - first);
        if (first != 0) barrier();
        if (set < SETS) {
            [[unroll]] for (uint i = 0; i < n * 2; i++) {
                const uint at = first * 8 + i * 4, to = (i / 2 * SETS + set) * UNITS + unit;
                piece[to * 2 + i % 2] = vec4(sums[at], sums[at + 1], sums[at + 2], sums[at + 3]);
            }
        }
        barrier();
        [[dont_unroll]] for (uint d = gl_LocalInvocationIndex; d < n * DIM;
                             d += gl_WorkGroupSize.x) {
            const uint from = d / DIM * (SETS * DIM / 4) + d % DIM / 4, at = d % 4;
            float sum = piece[from][at];
            [[unroll]] for (uint i = 1; i < SETS; i++)
                sum += piece[from + i * (DIM / 4)][at];
            part[first * DIM + d] = sum;
        }
    }
    barrier();
}

// A part whose cells were asked for.
void split(Run run, Part s)
{
    scores(run, s);
    soften(s);
    mix(s);
}
