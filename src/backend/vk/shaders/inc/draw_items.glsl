/* SPDX-License-Identifier: MIT */
// The tokens of a row as the draw sees them: logits after penalties, biases and mask (steps 1 to 3
// of plan/draw.h), from the row or from a list of the few that are left, and their order.

#define NEGATIVE_INF uintBitsToFloat(0xff800000u)
#define LIST         1024
#define TOP_P_OFF    (1u << 20)

shared uint n_of[256], low_of[256], high_of[256];
shared uint digit_found, best_id, n_listed;
shared uint64_t above_found;
shared uint list_id[LIST];
shared float list_value[LIST];
shared uint reduce_uint[64];

gm_vk_slot slot;
uint row_first;      // of the logits and adjusted logits
uint64_t mask;       // words, or 0
bool plain;          // nothing changes the logits before they are compared
bool listed = false; // whether tokens come from the list
uint n_items;

uint wg_max_uint(uint x)
{
    x = subgroupMax(x);
    barrier();
    if (subgroupElect()) reduce_uint[gl_SubgroupID] = x;
    barrier();
    uint m = reduce_uint[0];
    for (uint i = 1; i < gl_NumSubgroups; i++)
        m = max(m, reduce_uint[i]);
    return m;
}

// Steps 1 and 2: penalties and biases, kept in p.adjusted.
void adjust(uint slot_index)
{
    for (uint i = gl_LocalInvocationIndex; i < p.n_vocab; i += gl_WorkGroupSize.x) {
        precise float l = F1(p.logits).v[row_first + i];
        if (slot.penalised != 0) {
            const uint c = U1(p.count_table).v[slot_index * p.n_vocab + i];
            if (c != 0) l = l * (l > 0 ? slot.inv_repeat : slot.repeat);
            if (c >> 16 != 0) l = l - slot.frequency * float(c >> 16) - slot.presence;
        }
        WF1(p.adjusted).v[row_first + i] = l;
    }
    memoryBarrierBuffer();
    barrier();
    // The first bias of a token adds the later ones too, so that they are added in order.
    const uint first = slot_index * p.max_bias;
    for (uint i = gl_LocalInvocationIndex; i < slot.n_bias; i += gl_WorkGroupSize.x) {
        const uint id = U2(p.bias_table).v[first + i].x;
        bool again = false;
        for (uint j = 0; j < i; j++)
            again = again || U2(p.bias_table).v[first + j].x == id;
        if (again) continue;
        precise float l = WF1(p.adjusted).v[row_first + id];
        for (uint j = i; j < slot.n_bias; j++) {
            const uvec2 b = U2(p.bias_table).v[first + j];
            if (b.x == id) l = l + uintBitsToFloat(b.y);
        }
        WF1(p.adjusted).v[row_first + id] = l;
    }
    memoryBarrierBuffer();
    barrier();
}

// Item i: a token and its logit after step 3.
float item(uint i, out uint id)
{
    id = listed ? list_id[i] : i;
    if (listed) return list_value[i];
    const float l = F1(plain ? p.logits : p.adjusted).v[row_first + i];
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

// The best by (key, then lowest id); an invocation brings its own best.
uint best_of(uint key, uint id)
{
    const uint m = wg_max_uint(key);
    return ~wg_max_uint(key == m ? ~id : 0);
}

