/* SPDX-License-Identifier: MIT */
// Activations as int8, by the law of quant/dot.h: dx = max / 127, x8 = round(x * (127 / max)). A
// device's own division may be two units off, so the two quotients are rounded by hand.

// Finite a > 0 by finite b > 0, correctly rounded.
float divide(float a, float b)
{
    uint ma = floatBitsToUint(a) & 0x7fffffu, mb = floatBitsToUint(b) & 0x7fffffu;
    int ea = int(floatBitsToUint(a) >> 23), eb = int(floatBitsToUint(b) >> 23);
    if (ea == 0) {
        const int up = 23 - findMSB(ma);
        ma <<= up;
        ea = 1 - up;
    } else {
        ma |= 0x800000u;
    }
    if (eb == 0) {
        const int up = 23 - findMSB(mb);
        mb <<= up;
        eb = 1 - up;
    } else {
        mb |= 0x800000u;
    }
    int e = ea - eb + 127;
    if (ma < mb) {
        ma <<= 1;
        e--;
    }
    // Three digits of eight bits. The float quotient of each is off by one at most.
    const float inverse = 1.0 / float(mb);
    uint q = 1, rest = ma - mb;
    [[unroll]] for (int i = 0; i < 3; i++) {
        rest <<= 8;
        uint digit = uint(float(rest) * inverse);
        if (digit * mb > rest) digit--;
        if (rest - digit * mb >= mb) digit++;
        q = (q << 8) + digit;
        rest -= digit * mb;
    }
    // 25 bits, of which one is for rounding; more of them below the normal numbers.
    const int cut = e > 0 ? 1 : 2 - e;
    if (cut > 26) return 0.0;
    const uint half_unit = 1u << (cut - 1), below = q & (2 * half_unit - 1);
    uint m = q >> cut;
    if (below > half_unit || (below == half_unit && (rest != 0 || (m & 1) != 0))) m++;
    if (e >= 255) return uintBitsToFloat(0x7f800000u);
    return uintBitsToFloat(e > 0 ? (uint(e) << 23) + m - 0x800000u : m);
}

// The upper half of a float's digits: products of two such halves have no rounding.
float upper(float x)
{
    return uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u);
}

// a - b * q, exactly, where q is about a / b. No fma: a device may round between its two steps.
float remainder(float a, float b, float q)
{
    const float bu = upper(b), qu = upper(q);
    precise const float bl = b - bu, ql = q - qu;
    precise const float rest = (((a - bu * qu) - bu * ql) - bl * qu) - bl * ql;
    return rest;
}

// q, which is a times about 1 / b, as the correctly rounded a / b.
float rounded(float q, float a, float b, float inverse)
{
    precise const float r = q + remainder(a, b, q) * inverse;
    return r;
}

// m / 127 and 127 / m, correctly rounded, where neither is near the ends of float32. A device's
// 1 / m, which may be off by four units, is first made exact enough for that.
vec2 quotients(float m)
{
    const float y = 1.0 / m;
    precise const float inverse = y + remainder(1.0, m, y) * y;
    precise const vec2 q = vec2(m, inverse) * vec2(1.0 / 127.0, 127.0);
    return vec2(rounded(q.x, m, 127.0, 1.0 / 127.0), rounded(q.y, 127.0, m, inverse));
}

// The two factors of a block whose largest magnitude is m: x to dx, y to 127 / m (0 where the block
// is all zeros or has no finite maximum).
vec2 quantise_scales(float m)
{
    if (m > 1e-24 && m < 1e24) return quotients(m);
    if (!(m > 0) || isinf(m)) return vec2(m == 0 ? 0 : uintBitsToFloat(0x7fc00000u), 0);
    vec2 scales = vec2(m, 127.0);
    [[dont_unroll]] for (uint i = 0; i < 2; i++) // once in the code
        scales = vec2(scales.y, divide(scales.x, i == 0 ? 127.0 : m));
    return vec2(scales.x, isinf(scales.y) ? 0 : scales.y);
}

// Four values as integers, by addition: floats of this size have no digits behind the point, and
// their last bits are the integer's. A device adds many times faster than it converts.
#define INTEGERS 12582912.0 // 1.5 * 2^23

vec4 quantise_round(vec4 x, float up)
{
    precise const vec4 scaled = x * up;
    precise const vec4 shifted = (up == 0 ? vec4(0) : scaled) + INTEGERS;
    return shifted;
}

// As bytes of a word.
uint quantise_word(vec4 shifted)
{
    const uvec4 q = floatBitsToUint(shifted);
    return (q.x & 255) | (q.y & 255) << 8 | (q.z & 255) << 16 | q.w << 24;
}

vec4 word_values(uint w)
{
    return vec4(bitfieldExtract(int(w), 0, 8), bitfieldExtract(int(w), 8, 8),
                bitfieldExtract(int(w), 16, 8), bitfieldExtract(int(w), 24, 8));
}

// The larger magnitude, as bits: those of NaN are above all others, so that it is seen.
uint magnitude(uint m, float x)
{
    return max(m, floatBitsToUint(x) & 0x7fffffffu);
}

// Eight neighbouring lanes hold a block of 32, four values each; all eight must be here, for its
// largest magnitude as for what follows.
float block_largest(vec4 x)
{
    uint m = magnitude(magnitude(magnitude(magnitude(0, x.x), x.y), x.z), x.w);
    [[unroll]] for (uint i = 1; i < 8; i <<= 1)
        m = max(m, subgroupShuffleXor(m, i));
    return uintBitsToFloat(m);
}

// Writes the block's codes and meta {dx, two sums of 16}, and answers what they leave of x.
vec4 block_write(vec4 x, vec2 scale, uint64_t q, uint64_t meta, uint block, bool inside)
{
    const uint lane = gl_SubgroupInvocationID & 7;
    const vec4 shifted = quantise_round(x, scale.y);
    const uvec4 bits = floatBitsToUint(shifted);
    uint sum = bits.x + bits.y + bits.z + bits.w - 4 * floatBitsToUint(INTEGERS);
    sum += subgroupShuffleXor(sum, 1);
    sum += subgroupShuffleXor(sum, 2);
    const uint other = subgroupShuffleXor(sum, 4);
    if (inside) {
        hand_on(q, block * 8 + lane, quantise_word(shifted));
        if (lane == 0)
            hand_on(meta, block, uvec2(floatBitsToUint(scale.x), (sum & 0xffff) | other << 16));
    }
    precise const vec4 rest = x - scale.x * (shifted - INTEGERS);
    return rest;
}

// The block as float16 instead, where matmul_fragment reads it: eight rows of four blocks lie
// together, as [unit of eight values][row][block]. A unit is in the order in which weights are
// unpacked: of values 4 j to 4 j + 3 and of those 16 behind the first and third, then the others.
void columns_put(vec4 x, uint64_t to, uint row, uint b, uint n_blocks, bool inside)
{
    const uint lane = gl_SubgroupInvocationID & 7;
    const uvec2 pairs = gm_halves(x.xzyw * GM_VK_HALF_X);
    const uint other = subgroupShuffleXor(lane < 4 ? pairs.y : pairs.x, 4);
    const uint chunk = row / GM_VK_COLUMNS * (n_blocks / 4) + b / 4;
    const uint unit = (chunk * 4 + (lane & 3)) * 32 + row % GM_VK_COLUMNS * 4 + b % 4;
    if (inside)
        WU2(to).v[unit * 2 + lane / 4] = lane < 4 ? uvec2(pairs.x, other) : uvec2(other, pairs.y);
}

// Block b of a row: as int8 to q and meta, and where plane is not 0 what is left of it once more,
// that many blocks behind; without meta as float16 to q. Rounding is once in the code: a kernel
// that runs for microseconds waits for each instruction to be fetched.
void round_lanes(vec4 x, uint64_t q, uint64_t meta, uint row, uint b, uint n_blocks, uint plane,
                 bool inside)
{
    if (meta == 0) {
        columns_put(x, q, row, b, n_blocks, inside);
        return;
    }
    const uint n = plane != 0 ? 2 : 1, block = row * n_blocks + b;
    [[dont_unroll]] for (uint i = 0; i < n; i++)
        x = block_write(x, quantise_scales(block_largest(x)), q, meta, block + i * plane, inside);
}
