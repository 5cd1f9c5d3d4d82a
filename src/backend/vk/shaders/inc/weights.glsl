/* SPDX-License-Identifier: MIT */
// Blocks of 32 quantised weights from the device's layout (docs/VULKAN.md): planes, one behind the
// other. Sixteen rows are a band; in a band lie eight blocks of each of its rows, then the next
// eight: sixteen groups of eight lanes read one stretch of memory from its beginning to its end.
// Rows are padded to whole bands, blocks of a row to whole eights. In each plane a block has
//
//   codes   4 bits: 16 bytes, byte j has value j low and value j + 16 high; 2 bits: 8 bytes, value
//           v in bits 2 (v / 4 % 4) of byte v % 4 of word v / 16; 8 bits: 32 bytes
//   high    1 bit: word, value v in bit v / 4 of byte v % 4; 2 bits: as above
//   scales  16 bits a block: d, or two bytes of integer scales and minima; 32 bits: d and -min
//   supers  for each 8 blocks: d and dmin (0 where a format has none)
//
// TYPE is the type's number in GGUF files.

#define Q4_0   2
#define Q4_1   3
#define Q5_0   6
#define Q5_1   7
#define Q8_0   8
#define Q2_K   10
#define Q3_K   11
#define Q4_K   12
#define Q5_K   13
#define Q6_K   14
#define IQ4_NL 20
#define IQ4_XS 23

#if TYPE == Q8_0
#define CODE_BYTES 32
#elif TYPE == Q2_K || TYPE == Q3_K
#define CODE_BYTES 8
#else
#define CODE_BYTES 16
#endif

#if TYPE == Q5_0 || TYPE == Q5_1 || TYPE == Q5_K || TYPE == Q3_K
#define HIGH_BYTES 4
#elif TYPE == Q6_K
#define HIGH_BYTES 8
#else
#define HIGH_BYTES 0
#endif

#if TYPE == Q4_1 || TYPE == Q5_1
#define SCALE_BYTES 4
#else
#define SCALE_BYTES 2
#endif

#if TYPE >= Q2_K && TYPE <= Q6_K || TYPE == IQ4_XS
#define SUPER_BYTES 4
#else
#define SUPER_BYTES 0
#endif

#define HAS_MIN (TYPE == Q4_1 || TYPE == Q5_1 || TYPE == Q2_K || TYPE == Q4_K || TYPE == Q5_K)
// Whether the two groups of 16 in a block have scales of their own.
#define TWO_SCALES (TYPE == Q2_K || TYPE == Q3_K || TYPE == Q6_K)

#if TYPE == Q4_0
#define ZERO 8
#elif TYPE == Q5_0
#define ZERO 16
#elif TYPE == Q3_K
#define ZERO 4
#elif TYPE == Q6_K
#define ZERO 32
#else
#define ZERO 0
#endif

// A block as it was read: nothing is computed on it before every load of the round is on its way.
struct Raw {
    uvec4 code;
#if CODE_BYTES == 32
    uvec4 code2;
#endif
#if HIGH_BYTES > 0
    uvec2 high;
#endif
    uint scale;
#if SUPER_BYTES > 0
    uint super;
#endif
};

struct Planes {
    uint64_t code, high, scale, super;
};

uint64_t align16(uint64_t n)
{
    return (n + 15ul) & ~15ul;
}

#define BAND 16

Planes planes(uint64_t base, uint n_rows, uint n_blocks)
{
    const uint64_t n = uint64_t((n_rows + BAND - 1) / BAND * BAND) * ((n_blocks + 7) / 8 * 8);
    Planes p;
    p.code = base;
    p.high = p.code + align16(n * CODE_BYTES);
    p.scale = p.high + align16(n * HIGH_BYTES);
    p.super = p.scale + align16(n * SCALE_BYTES);
    return p;
}

// The planes from a band's first row on, so many rounds behind the first band's.
Planes planes_from(Planes p, uint rounds)
{
    p.code += uint64_t(rounds) * (8 * BAND * CODE_BYTES);
    p.high += uint64_t(rounds) * (8 * BAND * HIGH_BYTES);
    p.scale += uint64_t(rounds) * (8 * BAND * SCALE_BYTES);
    p.super += uint64_t(rounds) * (BAND * SUPER_BYTES);
    return p;
}

// Where a lane reads in each plane: bytes from where a round begins. Lanes go on by eight blocks
// of a row, a round, at a time, which are BAND times as many in memory; so halves of a word stay on
// their side, and a round is an offset that all lanes have in common.
struct Cursor {
    uint code, scale, shift;
#if HIGH_BYTES > 0
    uint high;
#endif
#if SUPER_BYTES > 0
    uint super;
#endif
};

Cursor cursor_at(uint n_blocks, uint row, uint b)
{
    const uint eight = (row / BAND * ((n_blocks + 7) / 8) + b / 8) * BAND + row % BAND;
    const uint block = eight * 8 + b % 8;
    Cursor c;
    c.code = block * CODE_BYTES;
    c.scale = (SCALE_BYTES == 4 ? block : block >> 1) * 4;
    c.shift = SCALE_BYTES == 4 ? 0 : (block & 1) * 16;
#if HIGH_BYTES > 0
    c.high = block * HIGH_BYTES;
#endif
#if SUPER_BYTES > 0
    c.super = eight * 4;
#endif
    return c;
}

// A cursor that is an even number of blocks further in the same eight.
Cursor cursor_on(Cursor c, uint blocks)
{
    c.code += blocks * CODE_BYTES;
    c.scale += SCALE_BYTES == 4 ? blocks * 4 : blocks * 2;
#if HIGH_BYTES > 0
    c.high += blocks * HIGH_BYTES;
#endif
    return c;
}

// The planes from where a lane reads on, and the cursor that is left: addresses are then the lane's
// own, a round costs one addition each, and they take registers.
Planes planes_of_lane(Planes p, Cursor c)
{
    p.code += c.code;
    p.scale += c.scale;
#if HIGH_BYTES > 0
    p.high += c.high;
#endif
#if SUPER_BYTES > 0
    p.super += c.super;
#endif
    return p;
}

Cursor cursor_of_lane(Cursor c)
{
    c.code = c.scale = 0;
#if HIGH_BYTES > 0
    c.high = 0;
#endif
#if SUPER_BYTES > 0
    c.super = 0;
#endif
    return c;
}

// Where a lane's word lies: what all lanes share comes first, so that it is added once.
uint64_t place(uint64_t plane, uint round, uint bytes, uint lane)
{
    return plane + uint64_t(round * bytes) + uint64_t(lane);
}

// The block of that round in the row that is r further in the band.
Raw cursor_load(Planes p, Cursor c, uint round, uint r)
{
    const uint64_t code = place(p.code, round, 8 * BAND * CODE_BYTES, c.code);
    const uint64_t scale = place(p.scale, round, 8 * BAND * SCALE_BYTES, c.scale);
    Raw raw;
#if CODE_BYTES == 32
    raw.code = U4(code).v[r * 16];
    raw.code2 = U4(code).v[r * 16 + 1];
#elif CODE_BYTES == 16
    raw.code = U4(code).v[r * 8];
#else
    raw.code = uvec4(U2(code).v[r * 8], 0, 0);
#endif
#if HIGH_BYTES == 4
    raw.high = uvec2(U1(place(p.high, round, 8 * BAND * HIGH_BYTES, c.high)).v[r * 8], 0);
#elif HIGH_BYTES == 8
    raw.high = U2(place(p.high, round, 8 * BAND * HIGH_BYTES, c.high)).v[r * 8];
#endif
    raw.scale = U1(scale).v[r * 2 * SCALE_BYTES];
#if SUPER_BYTES > 0
    raw.super = U1(place(p.super, round, 4 * BAND, c.super)).v[r];
#endif
    return raw;
}

#include "inc/codes.glsl"
