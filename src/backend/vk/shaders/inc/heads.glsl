/* SPDX-License-Identifier: MIT */
// Heads after their projection, in shared memory: a norm each, rotation by the row's position, and
// the store of K and V in the cache. rope.comp and attention's own beginning share this, and the
// order of a head's sum follows from its length alone, so that both give the same bits. A head has
// DIM floats here: its length, padded with zeros.
#include "inc/groups.glsl"

shared vec4 heads[HEADS * DIM / 4];
shared float head_up[HEADS]; // factors of the norms
#define HEAD(i) heads[(i) / 4][(i) % 4] // as floats

// Pairs of values that a lane turns: two of a head, half of it apart, and what they are turned by:
// parts of a turn for each position, and then cosine and sine.
const uint PAIRS = (HEADS * DIM / 2 + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
vec2 pair[PAIRS], pair_weight[PAIRS], pair_angle[PAIRS];
uint64_t pair_turn[PAIRS];

// Where head h begins; the kernel says so.
uint64_t head_from(uint h);

uint pair_at(uint k)
{
    return gl_LocalInvocationIndex + k * gl_WorkGroupSize.x;
}

// Reads head h as it is.
void head_read(uint h, uint len)
{
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < DIM; i += gl_WorkGroupSize.x)
        HEAD(h * DIM + i) = i < len ? F1(head_from(h)).v[i] : 0;
}

// Asks for what norms and turns heads of len values each; those from n_q on are no q's.
void heads_ask_turns(gm_vk_turn t, uint n_q, uint len)
{
    [[unroll]] for (uint k = 0; k < PAIRS; k++) {
        const uint i = min(pair_at(k) % (DIM / 2), len / 2 - 1);
        const uint64_t weight = pair_at(k) / (DIM / 2) < n_q ? t.q_norm : t.k_norm;
        pair_weight[k] = vec2(F1(weight).v[i], F1(weight).v[i + len / 2]);
        pair_turn[k] = A1(t.turns).v[i];
    }
}

// Asks for the heads.
void heads_ask(uint len)
{
    [[unroll]] for (uint k = 0; k < PAIRS; k++) {
        const uint64_t from = head_from(min(pair_at(k) / (DIM / 2), HEADS - 1));
        const uint i = min(pair_at(k) % (DIM / 2), len / 2 - 1);
        pair[k] = FLOW == 1 ? vec2(VF1(from).v[i], VF1(from).v[i + len / 2])
                            : vec2(F1(from).v[i], F1(from).v[i + len / 2]);
    }
}

// By how much a row at pos is turned. Angles are exact: a turn is 2^64 parts, and the position
// times the parts of one step wraps.
void heads_angles(uint pos)
{
    [[unroll]] for (uint k = 0; k < PAIRS; k++)
        pair_angle[k] = gm_cos_sin(uint((pair_turn[k] * uint64_t(pos)) >> 32));
}

// Whether some of what came is not there yet.
bool heads_miss()
{
    bool misses = false;
    [[unroll]] for (uint k = 0; k < PAIRS; k++)
        misses = misses || is_unwritten(floatBitsToUint(pair[k]));
    return misses;
}

void pair_put(uint k, uint len)
{
    const uint h = pair_at(k) / (DIM / 2), i = pair_at(k) % (DIM / 2);
    if (h >= HEADS) return;
    const bool inside = i < len / 2;
    HEAD(h * DIM + (inside ? i : 2 * i)) = inside ? pair[k].x : 0;
    HEAD(h * DIM + (inside ? i + len / 2 : 2 * i + 1)) = inside ? pair[k].y : 0;
}

// What came of that, to shared memory.
void heads_put(uint len)
{
    [[unroll]] for (uint k = 0; k < PAIRS; k++)
        pair_put(k, len);
}

// Norms and turns heads [0, n), which all lanes have put.
void heads_turn(gm_vk_turn t, uint n, uint len)
{
    [[dont_unroll]] for (uint h = group_of(); h < n; h += groups()) {
        precise float sum = 0;
        const uint first = h * (DIM / 4) + lane_of() / 4, at = lane_of() % 4;
        [[unroll]] for (uint i = 0; i < DIM / 4; i += 2) // behind the head's end are zeros
            sum = sum + heads[first + i][at] * heads[first + i][at];
        sum = group_sum(sum);
        if (lane_of() == 0) head_up[h] = 1.0 / sqrt(sum / float(len) + t.eps);
    }
    barrier();
    [[unroll]] for (uint k = 0; k < PAIRS; k++) {
        const uint h = pair_at(k) / (DIM / 2);
        if (h >= n) break;
        const vec2 w = pair_weight[k] + t.offset;
        const vec2 cs = pair_angle[k];
        precise const float a = pair[k].x * head_up[h] * w.x;
        precise const float b = pair[k].y * head_up[h] * w.y;
        precise const float x = a * cs.x - b * cs.y;
        precise const float y = b * cs.x + a * cs.y;
        pair[k] = vec2(x, y);
        pair_put(k, len);
    }
    barrier();
}

// Words of a cell's values, which has so many units; as q8_0 its scales are behind them.
uint cell_words(uint units)
{
    return KV == KV_F32 ? units * 8 : KV == KV_F16 ? units * 4 : units * 2;
}

// The two factors of a block of a cell, as quantise_scales has them. Both ways to store a cell come
// here and the scale becomes float16, so the device's own quotients will do: exact ones are long
// code, which the row's attention would wait for.
vec2 cell_scales(float m)
{
    return m > 0 && !isinf(m) ? vec2(m / 127.0, 127.0 / m) : vec2(m, 0);
}

// Word i of head h as a cell, and as q8_0 the scale of its block, of which eight neighbouring lanes
// have the eight words: all of them must be here.
uint head_word(uint h, uint i, out uint scale)
{
    const uint first = h * DIM;
    scale = 0;
    if (KV == KV_F32) return floatBitsToUint(HEAD(first + i));
    if (KV == KV_F16)
        return gm_half(HEAD(first + 2 * i)) | gm_half(HEAD(first + 2 * i + 1)) << 16;
    const vec4 x = heads[first / 4 + i];
    const vec2 scales = cell_scales(block_largest(x));
    scale = floatBitsToUint(unpackHalf2x16(gm_half(scales.x)).x);
    return quantise_word(quantise_round(x, scales.y));
}

// Where word i of a cell of the 32 lies, in words from their beginning, and scale i.
uint word_at(uint cell, uint i, uint units)
{
    return cell * cell_words(units) + i;
}

uint scale_at(uint cell, uint i, uint units)
{
    return GM_VK_PAGE * cell_words(units) + cell * units / 4 + i;
}
