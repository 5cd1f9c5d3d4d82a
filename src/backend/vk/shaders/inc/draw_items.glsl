/* SPDX-License-Identifier: MIT */
// The tokens of a row as the draw sees them: logits after penalties, biases and mask (steps 1 to 3
// of plan/draw.h), from the row or from a list of the few that are left, and their order.

#define NEGATIVE_INF uintBitsToFloat(0xff800000u)
#define LIST         1024
#define TOP_P_OFF    (1u << 20)
#define SUBGROUPS    128 // at most: 1024 lanes, and no device has fewer than 8 in a subgroup

shared uint n_of[256], low_of[256], high_of[256];
shared uint digit_found, best_id, n_listed;
shared uint64_t above_found;
shared uint list_id[LIST];
shared float list_value[LIST];
shared uint reduce_uint[SUBGROUPS];

gm_vk_slot slot;
uint row_first;      // of the logits and adjusted logits
uint64_t mask;       // words, or 0
bool plain;          // nothing changes the logits before they are compared
bool scored;         // the draw is by score, and needs no look at the whole row before
uvec2 noise_key;
bool listed = false; // whether tokens come from the list
uint n_items;

uint wg_max_uint(uint x)
{
    x = subgroupMax(x);
    barrier();
    if (subgroupElect()) reduce_uint[gl_SubgroupID] = x;
    barrier();
    uint m = 0;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
        m = max(m, reduce_uint[i]);
    return subgroupMax(m);
}

uint wg_sum_uint(uint x)
{
    x = subgroupAdd(x);
    barrier();
    if (subgroupElect()) reduce_uint[gl_SubgroupID] = x;
    barrier();
    uint sum = 0;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
        sum += reduce_uint[i];
    return subgroupAdd(sum);
}

// Steps 1 and 2 for tokens of [from, end): penalties and biases, kept in p.adjusted, which the
// workgroup that finishes the row reads too.
void adjust(uint slot_index, uint from, uint end)
{
    for (uint i = from + gl_LocalInvocationIndex; i < end; i += gl_WorkGroupSize.x) {
        precise float l = F1(p.logits).v[row_first + i];
        if (slot.penalised != 0) {
            const uint c = U1(p.count_table).v[slot_index * p.n_vocab + i];
            if (c != 0) l = l * (l > 0 ? slot.inv_repeat : slot.repeat);
            if (c >> 16 != 0) l = l - slot.frequency * float(c >> 16) - slot.presence;
        }
        CF1(p.adjusted).v[row_first + i] = l;
    }
    memoryBarrierBuffer();
    barrier();
    // The first bias of a token adds the later ones too, so that they are added in order.
    const uint first = slot_index * p.max_bias;
    for (uint i = gl_LocalInvocationIndex; i < slot.n_bias; i += gl_WorkGroupSize.x) {
        const uint id = U2(p.bias_table).v[first + i].x;
        bool again = id < from || id >= end; // or another workgroup's
        for (uint j = 0; j < i; j++)
            again = again || U2(p.bias_table).v[first + j].x == id;
        if (again) continue;
        precise float l = CF1(p.adjusted).v[row_first + id];
        for (uint j = i; j < slot.n_bias; j++) {
            const uvec2 b = U2(p.bias_table).v[first + j];
            if (b.x == id) l = l + uintBitsToFloat(b.y);
        }
        CF1(p.adjusted).v[row_first + id] = l;
    }
    memoryBarrierBuffer();
    barrier();
}

// Item i: a token and its logit after step 3.
float item(uint i, out uint id)
{
    id = listed ? list_id[i] : i;
    if (listed) return list_value[i];
    float l;
    if (plain) l = F1(p.logits).v[row_first + i];
    else l = CF1(p.adjusted).v[row_first + i];
    const bool kept = mask == 0 || (U1(mask).v[i >> 5] >> (i & 31) & 1) != 0;
    return !kept || isnan(l) ? NEGATIVE_INF : l == 0 ? 0 : l;
}

// Larger logits have larger keys.
uint key_of(float l)
{
    const uint u = floatBitsToUint(l);
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

float key_value(uint k)
{
    return uintBitsToFloat((k & 0x80000000u) != 0 ? k & 0x7fffffffu : ~k);
}

// The key of a logit with its noise (step 9).
uint score_key(float l, uint id)
{
    precise const float score = l * slot.inv_temp + gm_law_noise(noise_key.x, noise_key.y, id);
    return key_of(score == 0 ? 0 : score);
}

// The best by (key, then lowest id); an invocation brings its own best.
uint best_of(uint key, uint id)
{
    const uint m = wg_max_uint(key);
    return ~wg_max_uint(key == m ? ~id : 0);
}
