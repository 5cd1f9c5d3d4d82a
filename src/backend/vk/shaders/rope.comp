#version 460
/* SPDX-License-Identifier: MIT */
// Heads after their projection: a norm each, rotation by the row's position, and the store of K and
// V in the cache. Workgroups [head, row]: first the heads of q, then of k, then of v. Two values
// that are rotated together belong to one lane.
#extension GL_GOOGLE_include_directive : require
#include "inc/base.glsl"
#include "inc/reduce.glsl"
#include "inc/maths.glsl"
#include "inc/quantise.glsl"
#include "inc/cells.glsl"

layout(constant_id = ID_TILE) const uint TILE = 64; // floats: head_dim, padded

layout(push_constant, std430) uniform Push { gm_vk_rope p; };

shared float head[TILE];

// Angles are exact: a turn is 2^64 parts, and the position times the parts of one step wraps.
void norm_rope(uint64_t weight, float eps, float offset, uint pos)
{
    const uint half_dim = p.head_dim / 2;
    float sum = 0;
    for (uint i = gl_LocalInvocationIndex; i < p.head_dim; i += gl_WorkGroupSize.x)
        sum += head[i] * head[i];
    const float up = 1.0 / sqrt(wg_sum(sum) / float(p.head_dim) + eps);
    for (uint i = gl_LocalInvocationIndex; i < half_dim; i += gl_WorkGroupSize.x) {
        const float a = head[i] * up * (F1(weight).v[i] + offset);
        const float b = head[i + half_dim] * up * (F1(weight).v[i + half_dim] + offset);
        const vec2 cs = gm_cos_sin(uint((A1(p.turns).v[i] * uint64_t(pos)) >> 32));
        head[i] = a * cs.x - b * cs.y;
        head[i + half_dim] = b * cs.x + a * cs.y;
    }
    barrier();
}

void store_f32(uint64_t base, uint cell, uint units)
{
    for (uint i = gl_LocalInvocationIndex; i < units * 8; i += gl_WorkGroupSize.x)
        WF1(base).v[cell * units * 8 + i] = head[i];
}

void store_f16(uint64_t base, uint cell, uint units)
{
    for (uint i = gl_LocalInvocationIndex; i < units * 4; i += gl_WorkGroupSize.x)
        WU1(base).v[cell * units * 4 + i] =
            gm_half(head[2 * i]) | gm_half(head[2 * i + 1]) << 16;
}

void store_q8(uint64_t base, uint cell, uint units)
{
    const uint n_words = units * 2; // of four values; eight words are a block
    for (uint i = gl_LocalInvocationIndex; i < n_words; i += gl_WorkGroupSize.x) {
        float m = 0;
        for (uint j = 0; j < 32; j++)
            m = magnitude(m, head[i / 8 * 32 + j]);
        const vec2 scale = quantise_scales(m);
        const vec4 x = vec4(head[4 * i], head[4 * i + 1], head[4 * i + 2], head[4 * i + 3]);
        WU1(base).v[cell * n_words + i] = quantise_word(x, scale.y);
        if (i % 8 == 0) {
            const float rounded = unpackHalf2x16(gm_half(scale.x)).x;
            WF1(base + units * GM_VK_PAGE * 8).v[cell * n_words / 8 + i / 8] = rounded;
        }
    }
}

void store(uint slot, uint pos, uint which, uint kv_head)
{
    const uint class_of = p.flags >> 8 & 1;
    const uint64_t page =
        A1(p.tables).v[(slot * 2 + class_of) * p.table_len + pos / GM_VK_PAGE];
    const uint64_t base = page + uint64_t(p.layer_off) * 16 +
                          (which * p.n_kv_head + kv_head) * head_size(p.head_dim);
    const uint units = cell_units(p.head_dim), cell = pos % GM_VK_PAGE;
    if (KV == KV_F32) store_f32(base, cell, units);
    else if (KV == KV_F16) store_f16(base, cell, units);
    else store_q8(base, cell, units);
}

void main()
{
    const uint row = gl_WorkGroupID.y, n_q = p.n_head, n_kv = p.n_kv_head;
    if (row >= rows_in_step(p.head, p.flags)) return;
    uint h = gl_WorkGroupID.x;
    const uint which = h < n_q ? 0 : h < n_q + n_kv ? 1 : 2;
    h -= which == 0 ? 0 : which == 1 ? n_q : n_q + n_kv;
    const uint n_heads = which == 0 ? n_q : n_kv;
    const uint from = (row * n_heads + h) * p.head_dim;
    const uint64_t src = which == 0 ? p.q : which == 1 ? p.k : p.v;
    const StepRow step_row = Rows(p.rows).v[row];

    for (uint i = gl_LocalInvocationIndex; i < TILE; i += gl_WorkGroupSize.x)
        head[i] = i < p.head_dim ? F1(src).v[from + i] : 0;
    barrier();
    if (which < 2 && (p.flags & GM_VK_ROPE_NORM) != 0) {
        if (which == 0) norm_rope(p.q_norm, p.eps, p.offset, step_row.pos);
        else norm_rope(p.k_norm, p.eps, p.offset, step_row.pos);
    }
    const uint64_t dst = which == 0 ? p.q_out : which == 1 ? p.k_out : 0;
    if (dst != 0) {
        for (uint i = gl_LocalInvocationIndex; i < p.head_dim; i += gl_WorkGroupSize.x)
            WF1(dst).v[from + i] = head[i];
    }
    if (which > 0 && (p.flags & GM_VK_ROPE_STORE) != 0)
        store(step_row.slot, step_row.pos, which - 1, h);
}
