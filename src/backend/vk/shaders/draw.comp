#version 460
// SPDX-License-Identifier: MIT
// The law of the draw (plan/draw.h), a workgroup an output.
//
// The cuts keep a beginning of the tokens in order of their logit. That order is never made: a cut
// is a key (the logit as an ordered integer) and a number of tokens that have just this key, found
// digit by digit from histograms of counts or of integer weights, which no order of summation
// changes. Once few tokens are left they are listed in shared memory, and the row is not read again.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/reduce.glsl"
#include "inc/maths.glsl"
#include "inc/law.glsl"

layout(push_constant, std430) uniform Push { gm_vk_draw_params p; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Slots { gm_vk_slot v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Answers { gm_vk_answer v[]; };

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

uint weight_of(float l, float first)
{
    precise const float x = (l - first) * slot.inv_temp;
    return gm_law_weight(x);
}

bool is_reached(bool weighted, uint64_t sum, uint64_t want)
{
    return weighted ? sum << 20 >= want : sum >= want;
}

// The key at which the sum over larger and equal keys reaches `want`: of counts, or of weights times
// 2^20. Only keys of at least `least` count. The sum over larger keys goes to `above`.
uint descend(bool weighted, uint64_t want, uint least, float first, out uint64_t above)
{
    uint prefix = 0;
    above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        barrier();
        for (uint d = gl_LocalInvocationIndex; d < 256; d += gl_WorkGroupSize.x)
            n_of[d] = low_of[d] = high_of[d] = 0;
        barrier();
        for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
            uint id;
            const float l = item(i, id);
            const uint k = key_of(l);
            if (k < least || (shift < 24 && k >> (shift + 8) != prefix)) continue;
            const uint d = k >> shift & 255;
            atomicAdd(n_of[d], 1);
            if (!weighted) continue;
            const uint w = weight_of(l, first);
            atomicAdd(low_of[d], w & 4095);
            atomicAdd(high_of[d], w >> 12);
        }
        barrier();
        for (uint d = gl_LocalInvocationIndex; d < 256; d += gl_WorkGroupSize.x) {
            uint64_t n = 0, sum = 0;
            for (uint e = 255; e > d; e--) {
                n += n_of[e];
                sum += weighted ? (uint64_t(high_of[e]) << 12) + low_of[e] : n_of[e];
            }
            const uint64_t before = above + sum;
            sum = before + (weighted ? (uint64_t(high_of[d]) << 12) + low_of[d] : n_of[d]);
            const bool is_first = n == 0 && above == 0;
            if (n_of[d] != 0 && is_reached(weighted, sum, want) &&
                (is_first || !is_reached(weighted, before, want))) {
                digit_found = d;
                above_found = before;
            }
        }
        barrier();
        prefix = prefix << 8 | digit_found;
        above = above_found;
    }
    return prefix;
}

uint count_at(uint key, uint id_last)
{
    uint n = 0;
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint id;
        if (key_of(item(i, id)) == key && id <= id_last) n++;
    }
    return uint(wg_sum(float(n))); // exact: below 2^24
}

// The id of the n-th token that has just this key.
uint id_of_nth(uint key, uint n)
{
    uint low = 0, high = p.n_vocab - 1;
    while (low < high) {
        const uint middle = (low + high) / 2;
        if (count_at(key, middle) >= n) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Lists what has a key of at least `least`, if it fits.
void list_from(uint least)
{
    barrier();
    if (gl_LocalInvocationIndex == 0) n_listed = 0;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint id;
        const float l = item(i, id);
        if (key_of(l) < least) continue;
        const uint at = atomicAdd(n_listed, 1);
        if (at < LIST) {
            list_id[at] = id;
            list_value[at] = l;
        }
    }
    barrier();
    if (n_listed > LIST) return;
    n_items = n_listed;
    listed = true;
}

// Weights of everything above the cut (key, ties), and of that many at it.
uint64_t total_weight(uint key, uint ties, float first)
{
    barrier();
    if (gl_LocalInvocationIndex == 0) low_of[0] = high_of[0] = 0;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint id;
        const float l = item(i, id);
        if (key_of(l) <= key) continue;
        const uint w = weight_of(l, first);
        atomicAdd(low_of[0], w & 4095);
        atomicAdd(high_of[0], w >> 12);
    }
    barrier();
    return (uint64_t(high_of[0]) << 12) + low_of[0] +
           (ties == 0 ? 0 : uint64_t(ties) * weight_of(key_value(key), first));
}

// Steps 5 to 7: tokens with a larger key than the answer's x stay, and y of those that have it.
uvec2 cut(float first)
{
    uint key = key_of(NEGATIVE_INF), ties = 0;
    if (slot.top_k != 0 && slot.top_k < p.n_vocab) {
        uint64_t above;
        const uint at = descend(false, slot.top_k, 0, first, above);
        if (at > key) {
            key = at;
            ties = slot.top_k - uint(above);
            list_from(key);
        }
    }
    if (slot.top_p >= TOP_P_OFF) return uvec2(key, ties);
    uint64_t above;
    const uint64_t want = total_weight(key, ties, first) * slot.top_p;
    const uint at = descend(true, want, key + (ties == 0 ? 1 : 0), first, above);
    const uint64_t w = uint64_t(weight_of(key_value(at), first)) << 20;
    uint n = 1;
    if (above << 20 < want && w != 0) n = uint((want - (above << 20) + w - 1) / w);
    return uvec2(at, max(n, 1));
}

// The row's largest key and who has it first, and the logarithm of the sum of the logits' exponentials.
// Logits are read four at a time; the sum follows the largest one so far.
uint scan(out uint top, out float logsum)
{
    uint key = 0, id = 0;
    float most = NEGATIVE_INF, sum = 0;
    for (uint i = gl_LocalInvocationIndex * 4; i < p.n_vocab; i += gl_WorkGroupSize.x * 4) {
        vec4 l;
        if (p.n_vocab % 4 == 0) {
            l = F4(p.logits).v[(row_first + i) / 4];
        } else {
            for (uint j = 0; j < 4; j++)
                l[j] = i + j < p.n_vocab ? F1(p.logits).v[row_first + i + j] : NEGATIVE_INF;
        }
        const float m = max(max(max(l.x, l.y), max(l.z, l.w)), most);
        if (m > NEGATIVE_INF) {
            const vec4 e = exp(l - m);
            sum = sum * exp(most - m) + e.x + e.y + e.z + e.w;
            most = m;
        }
        for (uint j = 0; j < 4 && i + j < p.n_vocab; j++) {
            uint at = i + j;
            const uint k = key_of(plain && mask == 0 && !isnan(l[j]) ? (l[j] == 0 ? 0 : l[j]) : item(i + j, at));
            if (k > key) {
                key = k;
                id = at;
            }
        }
    }
    const float all = wg_max(most);
    sum = wg_sum(most > NEGATIVE_INF ? sum * exp(most - all) : 0);
    logsum = all + log(sum);
    top = wg_max_uint(key);
    return best_of(key, id);
}

// Steps 4 to 9, from the best token on and its key.
uint draw(uint pos, uint top, uint best)
{
    const float first = key_value(top);
    const bool cuts = (slot.top_k != 0 && slot.top_k < p.n_vocab) || slot.top_p < TOP_P_OFF;
    if (slot.inv_temp == 0 || first == NEGATIVE_INF) return best;

    uvec2 edge = uvec2(0, 0);
    uint id_last = 0xffffffffu;
    if (cuts) {
        edge = cut(first);
        if (edge.y != 0 && count_at(edge.x, 0xffffffffu) > edge.y)
            id_last = id_of_nth(edge.x, edge.y);
    }
    const uint key0 = gm_law_key0(slot.seed_lo, pos), key1 = gm_law_key1(slot.seed_hi, pos);
    uint key = 0, id = best;
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint at;
        const float l = item(i, at);
        const uint k = key_of(l);
        precise const float fall = (l - first) * slot.inv_temp;
        const bool stays = at == best || (fall >= slot.log_min_p && k >= edge.x &&
                                          (k > edge.x || (edge.y != 0 && at <= id_last)));
        if (!stays || l == NEGATIVE_INF) continue;
        precise const float score = l * slot.inv_temp + gm_law_noise(key0, key1, at);
        const uint s = key_of(score == 0 ? 0 : score);
        if (s > key || (s == key && at < id)) {
            key = s;
            id = at;
        }
    }
    return best_of(key, id);
}

void main()
{
    const uint i = gl_WorkGroupID.x;
    if (i >= Head(p.head).v.n_outs) return;
    const StepOut o = Outs(p.outs).v[i];
    if ((o.want & 1) == 0) return;
    const StepRow row = Rows(p.rows).v[o.row];
    slot = Slots(p.slots).v[row.slot];
    row_first = i * p.n_vocab;
    mask = o.mask == 0xffffffffu ? 0 : p.masks + uint64_t(o.mask) * p.mask_words * 4;
    n_items = p.n_vocab;

    plain = slot.penalised == 0 && slot.n_bias == 0;
    if (!plain) adjust(row.slot);
    uint top;
    float sum;
    const uint best = scan(top, sum);
    const uint token = draw(row.pos + 1, top, best);
    if (gl_LocalInvocationIndex != 0) return;
    Slots(p.slots).v[row.slot].last = int(token);
    const uint at = row.slot * p.n_vocab + token, c = WU1(p.count_table).v[at];
    if (c >> 16 < 0xffff) WU1(p.count_table).v[at] = c + 0x10000;
    Answers(p.answers).v[i].token = int(token);
    Answers(p.answers).v[i].logprob = F1(p.logits).v[row_first + token] - sum;
}
