/* SPDX-License-Identifier: MIT */
// Heads after their projection, in shared memory: a norm each, rotation by the row's position, and
// the store of K and V in the cache. rope.comp and attention's own beginning share this, and the
// order of a head's sum follows from its length alone, so that both give the same bits. A head has
// DIM floats here: its length, padded.
#include "inc/groups.glsl"

shared float heads[HEADS * DIM];
shared float head_up[HEADS]; // factors of the norms

// Pairs of values that a lane turns.
const uint PAIRS = (HEADS * DIM / 2 + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;

// Reads the head that begins at float `from` as head h.
void head_read(uint h, uint64_t src, uint from, uint len)
{
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < DIM; i += gl_WorkGroupSize.x)
        heads[h * DIM + i] = i < len ? F1(src).v[from + i] : 0;
}

// Norms and turns heads [0, n) of len values each; those from n_q on are k's. Angles are exact: a
// turn is 2^64 parts, and the position times the parts of one step wraps.
void heads_turn(gm_vk_turn t, uint n, uint n_q, uint len, uint pos)
{
    // What is not the heads' own is asked for before anything is waited for.
    const uint half_len = len / 2, n_pairs = n * half_len;
    vec2 w[PAIRS], cs[PAIRS];
    [[unroll]] for (uint k = 0; k < PAIRS; k++) {
        const uint j = min(gl_LocalInvocationIndex + k * gl_WorkGroupSize.x, n_pairs - 1);
        const uint i = j % half_len;
        const uint64_t weight = j / half_len < n_q ? t.q_norm : t.k_norm;
        w[k] = vec2(F1(weight).v[i], F1(weight).v[i + half_len]) + t.offset;
        cs[k] = gm_cos_sin(uint((A1(t.turns).v[i] * uint64_t(pos)) >> 32));
    }
    barrier();
    [[dont_unroll]] for (uint h = group_of(); h < n; h += groups()) {
        precise float sum = 0;
        for (uint i = lane_of(); i < len; i += 8)
            sum = sum + heads[h * DIM + i] * heads[h * DIM + i];
        sum = group_sum(sum);
        if (lane_of() == 0) head_up[h] = 1.0 / sqrt(sum / float(len) + t.eps);
    }
    barrier();
    [[unroll]] for (uint k = 0; k < PAIRS; k++) {
        const uint j = gl_LocalInvocationIndex + k * gl_WorkGroupSize.x;
        if (j >= n_pairs) break;
        const uint h = j / half_len, at = h * DIM + j % half_len;
        precise const float a = heads[at] * head_up[h] * w[k].x;
        precise const float b = heads[at + half_len] * head_up[h] * w[k].y;
        precise const float x = a * cs[k].x - b * cs[k].y;
        precise const float y = b * cs[k].x + a * cs[k].y;
        heads[at] = x;
        heads[at + half_len] = y;
    }
    barrier();
}

void store_f32(uint first, uint64_t base, uint cell, uint units)
{
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < units * 8; i += gl_WorkGroupSize.x)
        CF1(base).v[cell * units * 8 + i] = heads[first + i];
}

void store_f16(uint first, uint64_t base, uint cell, uint units)
{
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < units * 4; i += gl_WorkGroupSize.x)
        CU1(base).v[cell * units * 4 + i] =
            gm_half(heads[first + 2 * i]) | gm_half(heads[first + 2 * i + 1]) << 16;
}

void store_q8(uint first, uint64_t base, uint cell, uint units)
{
    const uint n_words = units * 2; // of four values; eight words are a block
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < n_words; i += gl_WorkGroupSize.x) {
        uint m = 0;
        [[dont_unroll]] for (uint j = 0; j < 32; j++)
            m = magnitude(m, heads[first + i / 8 * 32 + j]);
        const vec2 scale = quantise_scales(uintBitsToFloat(m));
        const uint at = first + 4 * i;
        const vec4 x = vec4(heads[at], heads[at + 1], heads[at + 2], heads[at + 3]);
        CU1(base).v[cell * n_words + i] = quantise_word(quantise_round(x, scale.y));
        if (i % 8 == 0) {
            const float rounded = unpackHalf2x16(gm_half(scale.x)).x;
            CF1(base + units * GM_VK_PAGE * 8).v[cell * n_words / 8 + i / 8] = rounded;
        }
    }
}

// Head h becomes a cell of the 32 that begin at base.
void head_store(uint h, uint64_t base, uint cell, uint len)
{
    const uint units = cell_units(len);
    if (KV == KV_F32) store_f32(h * DIM, base, cell, units);
    else if (KV == KV_F16) store_f16(h * DIM, base, cell, units);
    else store_q8(h * DIM, base, cell, units);
}
