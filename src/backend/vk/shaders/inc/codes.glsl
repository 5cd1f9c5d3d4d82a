/* SPDX-License-Identifier: MIT */
// What a block is once it was read (inc/weights.glsl): its codes as bytes, its scales and minima.

// The block once it is there, its scale out of the two in a word; one that is not wanted counts 0.
Raw raw_cut(Raw raw, uint shift, bool wanted)
{
#if SCALE_BYTES == 2
    raw.scale = raw.scale >> shift; // a float16, whose readers do not mind what is above it
#if SUPER_BYTES > 0
    raw.scale = raw.scale & 0xffffu;
#endif
#endif
#if SUPER_BYTES > 0
    raw.super = wanted ? raw.super : 0;
#else
    raw.scale = wanted ? raw.scale : 0;
#endif
    return raw;
}

#if TYPE == IQ4_NL || TYPE == IQ4_XS
// The values that codes 0 to 15 stand for, four to a word.
const uint iq4[4] = uint[4](0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);

uint iq4_word(uint codes)
{
    uint w = 0;
    for (int i = 0; i < 32; i += 8) {
        const uint c = codes >> i & 15;
        w |= (iq4[c >> 2] >> (8 * (c & 3)) & 255) << i;
    }
    return w;
}
#endif

// Codes of four bits and no more: the upper one of a byte, left where it is, is 16 times as much.
#define NIBBLES (TYPE == Q4_0 || TYPE == Q4_1 || TYPE == Q4_K)

// The 32 codes as bytes, those of the upper 16 so.
void block_nibbles(Raw r, out uint w[8])
{
    [[unroll]] for (int j = 0; j < 4; j++) {
        w[j] = r.code[j] & 0x0f0f0f0fu;
        w[j + 4] = r.code[j] & 0xf0f0f0f0u;
    }
}

// The 32 codes as bytes, value v in byte v % 4 of word v / 4.
void block_codes(Raw r, out uint w[8])
{
    [[unroll]] for (int j = 0; j < 4; j++) {
#if CODE_BYTES == 32
        w[j] = r.code[j];
        w[j + 4] = r.code2[j];
#elif CODE_BYTES == 16
        w[j] = r.code[j] & 0x0f0f0f0fu;
        w[j + 4] = r.code[j] >> 4 & 0x0f0f0f0fu;
#else
        w[j] = r.code.x >> 2 * j & 0x03030303u;
        w[j + 4] = r.code.y >> 2 * j & 0x03030303u;
#endif
#if TYPE == Q3_K
        w[j] |= (r.high.x >> j & 0x01010101u) << 2;
        w[j + 4] |= (r.high.x >> (j + 4) & 0x01010101u) << 2;
#elif HIGH_BYTES == 4
        w[j] |= (r.high.x >> j & 0x01010101u) << 4;
        w[j + 4] |= (r.high.x >> (j + 4) & 0x01010101u) << 4;
#elif HIGH_BYTES == 8
        w[j] |= (r.high.x >> 2 * j & 0x03030303u) << 4;
        w[j + 4] |= (r.high.y >> 2 * j & 0x03030303u) << 4;
#endif
#if TYPE == IQ4_NL || TYPE == IQ4_XS
        w[j] = iq4_word(w[j]);
        w[j + 4] = iq4_word(w[j + 4]);
#endif
    }
}

// Integer scales and minima of the block's two groups of 16.
ivec2 block_sc(Raw r)
{
#if TYPE == Q4_K || TYPE == Q5_K
    return ivec2(r.scale & 255);
#elif TYPE == Q2_K
    return ivec2(r.scale & 15, r.scale >> 8 & 15);
#elif SUPER_BYTES > 0
    return ivec2(bitfieldExtract(int(r.scale), 0, 8), bitfieldExtract(int(r.scale), 8, 8));
#else
    return ivec2(1);
#endif
}

ivec2 block_min(Raw r)
{
#if TYPE == Q4_K || TYPE == Q5_K
    return ivec2(r.scale >> 8);
#elif TYPE == Q2_K
    return ivec2(r.scale >> 4 & 15, r.scale >> 12 & 15);
#elif SCALE_BYTES == 4
    return ivec2(1);
#else
    return ivec2(0);
#endif
}

// d and dmin.
vec2 block_d(Raw r)
{
#if SUPER_BYTES > 0
    return unpackHalf2x16(r.super);
#elif SCALE_BYTES == 4
    const vec2 d = unpackHalf2x16(r.scale);
    return vec2(d.x, -d.y);
#else
    return vec2(unpackHalf2x16(r.scale).x, 0);
#endif
}
