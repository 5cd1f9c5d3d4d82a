/* SPDX-License-Identifier: MIT */
// Weights as float16, a pair to a word. What float16 can do of unpacking is done in pairs: a code
// with 0x6400 above it is 1024 + code, one in the next four bits with 0x5400 above it 64 + code.
// The pairs that this gives are the order of values in a unit of eight (columns_put).

struct HalfScale {
    f16vec2 d, m; // of the block's two pieces
};

HalfScale half_scale(Raw r)
{
    const vec2 d = block_scales(r) * GM_VK_HALF_W, m = block_mins(r) * GM_VK_HALF_W;
    return HalfScale(f16vec2(d), f16vec2(m));
}

uint half_scaled(f16vec2 codes, HalfScale s, uint piece)
{
#if HAS_MIN
    return packFloat2x16(fma(codes, f16vec2(s.d[piece]), f16vec2(-s.m[piece])));
#else
    return packFloat2x16(codes * f16vec2(s.d[piece]));
#endif
}

// Values 4 j to 4 j + 3 and 4 j + 16 to 4 j + 19 of a block.
#if CODE_BYTES == 16 && HIGH_BYTES == 0 && TYPE != IQ4_NL && TYPE != IQ4_XS
uvec2 half_nibbles(uint codes, HalfScale s)
{
    const f16vec2 low = unpackFloat2x16((codes & 0x000f000fu) | 0x64006400u);
    const f16vec2 high = unpackFloat2x16((codes & 0x00f000f0u) | 0x54005400u);
    return uvec2(half_scaled(low - f16vec2(1024.0 + ZERO), s, 0),
                 half_scaled(high - f16vec2(64.0 + ZERO), s, PIECES - 1));
}

uvec4 half_weights(Raw r, HalfScale s, uint j)
{
    return uvec4(half_nibbles(r.code[j], s), half_nibbles(r.code[j] >> 8, s));
}
#else
#if TYPE == Q8_0 || TYPE == IQ4_NL || TYPE == IQ4_XS
#define HALF_ABOVE 0x64806480u // codes are signed: the bit of their sign is turned
#define HALF_BELOW 1152.0
#else
#define HALF_ABOVE 0x64006400u
#define HALF_BELOW (1024.0 + ZERO)
#endif

// The first and third bytes of a word.
uint half_bytes(uint bytes, HalfScale s, uint piece)
{
    const f16vec2 codes = unpackFloat2x16((bytes & 0x00ff00ffu) ^ HALF_ABOVE);
    return half_scaled(codes - f16vec2(HALF_BELOW), s, piece);
}

uvec4 half_weights(Raw r, HalfScale s, uint j)
{
    uint w[8];
    block_codes(r, w);
    return uvec4(half_bytes(w[j], s, 0), half_bytes(w[j + 4], s, PIECES - 1),
                 half_bytes(w[j] >> 8, s, 0), half_bytes(w[j + 4] >> 8, s, PIECES - 1));
}
#endif
