#version 460
/* SPDX-License-Identifier: MIT */
// The law of the draw (plan/draw.h), a workgroup an output.
//
// The cuts keep a beginning of the tokens in order of their logit. That order is never made: a cut
// is a key (the logit as an ordered integer) and a number of tokens that have just this key, found
// digit by digit from histograms of counts or of integer weights, which no order of summation
// changes. Once few tokens are left they are listed in shared memory, and the row is read no more.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/reduce.glsl"
#include "inc/maths.glsl"
#include "inc/law.glsl"

layout(push_constant, std430) uniform Push { gm_vk_draw_params p; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Slots { gm_vk_slot v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Answers { gm_vk_answer v[]; };

#include "inc/draw_items.glsl"
#include "inc/draw_cut.glsl"

// The row's largest key and who has it first, and the logarithm of the sum of the logits'
// exponentials. Logits are read four at a time; the sum follows the largest one so far.
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
            const bool here = plain && mask == 0 && !isnan(l[j]);
            const uint k = key_of(!here ? item(i + j, at) : l[j] == 0 ? 0 : l[j]);
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

// What is drawn where every token is out or has no logit.
uint lowest_allowed()
{
    uint id = mask == 0 ? 0 : 0xffffffffu;
    for (uint i = gl_LocalInvocationIndex; mask != 0 && i < p.mask_words; i += gl_WorkGroupSize.x) {
        const uint bits = U1(mask).v[i];
        if (bits != 0) id = min(id, i * 32 + findLSB(bits));
    }
    id = ~wg_max_uint(~id);
    return id < p.n_vocab ? id : 0;
}

// Steps 4 to 9, from the best token on and its key.
uint draw(uint pos, uint top, uint best)
{
    const float first = key_value(top);
    const bool cuts = (slot.top_k != 0 && slot.top_k < p.n_vocab) || slot.top_p < TOP_P_OFF;
    if (first == NEGATIVE_INF) return lowest_allowed();
    if (slot.inv_temp == 0) return best;

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
        if (s < key || (s == key && at > id)) continue;
        key = s;
        id = at;
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
