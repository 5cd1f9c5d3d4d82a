#version 460
/* SPDX-License-Identifier: MIT */
// The law of the draw (plan/draw.h). Each output has several workgroups, which have a part of its
// tokens each: they do steps 1 to 3 and find the best token and the sum of exponentials. A greedy
// draw needs no more, nor does one without cuts and min-p, whose best is by score; what is left is
// the last workgroup's.
//
// The cuts keep a beginning of the tokens in order of their logit. That order is never made: a cut
// is a key (the logit as an ordered integer) and a number of tokens that have just this key, found
// digit by digit from histograms of counts or of integer weights, which no order of summation
// changes. Once few tokens are left they are listed in shared memory, and the row is read no more.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/maths.glsl"
#include "inc/law.glsl"
#include "inc/last.glsl"

layout(push_constant, std430) uniform Push { gm_vk_draw_params p; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Slots { gm_vk_slot v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Answers { gm_vk_answer v[]; };

#include "inc/draw_items.glsl"
#include "inc/draw_cut.glsl"
#include "inc/draw_part.glsl"

// The key by which a part has its best token: the logit's, or the score's where that decides.
uint part_key(float l, uint id)
{
    if (l == NEGATIVE_INF) return 0;
    return scored ? score_key(l, id) : key_of(l);
}

// Tokens of [from, end). Logits are read four at a time; the sum follows the largest one so far.
Part scan(uint from, uint end)
{
    Part x = nothing();
    for (uint i = from + gl_LocalInvocationIndex * 4; i < end; i += gl_WorkGroupSize.x * 4) {
        vec4 l;
        if (p.n_vocab % 4 == 0) {
            l = F4(p.logits).v[(row_first + i) / 4];
        } else {
            for (uint j = 0; j < 4; j++)
                l[j] = i + j < end ? F1(p.logits).v[row_first + i + j] : NEGATIVE_INF;
        }
        const float m = max(max(max(l.x, l.y), max(l.z, l.w)), x.most);
        if (m > NEGATIVE_INF) {
            const vec4 e = exp(l - m);
            x.sum = x.sum * exp(x.most - m) + e.x + e.y + e.z + e.w;
            x.most = m;
        }
        for (uint j = 0; j < 4 && i + j < end; j++) {
            uint at = i + j;
            const bool here = plain && mask == 0 && !isnan(l[j]);
            const uint k = part_key(!here ? item(i + j, at) : l[j] == 0 ? 0 : l[j], at);
            if (k > x.key) {
                x.key = k;
                x.id = at;
            }
        }
    }
    return joined_in_workgroup(x);
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

// Steps 4 to 9.
uint draw(Part row)
{
    if (row.key == 0) return lowest_allowed();
    if (scored || slot.inv_temp == 0) return row.id;

    const float first = key_value(row.key);
    uvec2 edge = uvec2(0, 0);
    uint id_last = 0xffffffffu;
    if (cuts()) {
        edge = cut(first);
        if (edge.y != 0 && count_at(edge.x, 0xffffffffu) > edge.y)
            id_last = id_of_nth(edge.x, edge.y);
    }
    uint key = 0, id = row.id;
    for (uint i = gl_LocalInvocationIndex; i < n_items; i += gl_WorkGroupSize.x) {
        uint at;
        const float l = item(i, at);
        const uint k = key_of(l);
        precise const float fall = (l - first) * slot.inv_temp;
        const bool stays = at == row.id || (fall >= slot.log_min_p && k >= edge.x &&
                                            (k > edge.x || (edge.y != 0 && at <= id_last)));
        if (!stays || l == NEGATIVE_INF) continue;
        const uint s = score_key(l, at);
        if (s < key || (s == key && at > id)) continue;
        key = s;
        id = at;
    }
    return best_of(key, id);
}

void main()
{
    const uint i = gl_WorkGroupID.y;
    if (i >= Head(p.head).v.n_outs) return;
    const StepOut o = Outs(p.outs).v[i];
    if ((o.want & 1) == 0) return;
    const StepRow row = Rows(p.rows).v[o.row];
    slot = Slots(p.slots).v[row.slot];
    row_first = i * p.n_vocab;
    mask = o.mask == 0xffffffffu ? 0 : p.masks + uint64_t(o.mask) * p.mask_words * 4;
    n_items = p.n_vocab;
    plain = slot.penalised == 0 && slot.n_bias == 0;
    scored = slot.inv_temp != 0 && !cuts() && slot.log_min_p == NEGATIVE_INF;
    const uint pos = row.pos + 1;
    noise_key = uvec2(gm_law_key0(slot.seed_lo, pos), gm_law_key1(slot.seed_hi, pos));

    const uint from = gl_WorkGroupID.x * GM_VK_DRAW_PART;
    const uint end = min(from + GM_VK_DRAW_PART, p.n_vocab);
    if (!plain) adjust(row.slot, from, end);
    Part found = scan(from, end);
    if (!finishes(i, found)) return;
    const uint token = draw(found);
    if (gl_LocalInvocationIndex != 0) return;
    Slots(p.slots).v[row.slot].last = int(token);
    const uint at = row.slot * p.n_vocab + token, c = WU1(p.count_table).v[at];
    if (c >> 16 < 0xffff) WU1(p.count_table).v[at] = c + 0x10000;
    const float logit = F1(p.logits).v[row_first + token];
    Answers(p.answers).v[i].token = int(token);
    Answers(p.answers).v[i].logprob = logit - found.most - log(found.sum);
}
