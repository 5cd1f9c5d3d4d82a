/* SPDX-License-Identifier: MIT */
/* The arithmetic of the draw, written once for C and GLSL.
 *
 * No include guard: the including file defines the words below first, because the
 * two languages spell them differently (draw.c shows how C does it).
 *
 *     GM_LAW                 before a function: `static inline` in C, nothing in GLSL
 *     GM_LAW_F32, GM_LAW_U32 the types; GM_LAW_F32 is `precise float` in GLSL
 *     GM_LAW_ARG             a float that is an argument, which GLSL does not want precise
 *     GM_LAW_BITS(f), GM_LAW_FLOAT(u)    the bits of a float and back
 *     GM_LAW_TO_F32(x), GM_LAW_TO_U32(x), GM_LAW_TO_I32(x)    conversions
 *     GM_LAW_FLOOR(f)        floor
 *
 * Only operations that every device rounds alike are used: add, subtract, multiply,
 * floor, conversions and integer arithmetic. No division, no library logarithm, no
 * contraction. So the same row and the same seed give the same token everywhere. */

/* Scatters 32 bits; a bijection, so two ids never share their noise for the same key. */
GM_LAW GM_LAW_U32 gm_law_scatter(GM_LAW_U32 x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

/* The noise's key of 64 bits, from a half of the seed each and the token's position. */
GM_LAW GM_LAW_U32 gm_law_key0(GM_LAW_U32 seed_lo, GM_LAW_U32 pos)
{
    return gm_law_scatter(seed_lo + gm_law_scatter(pos));
}

GM_LAW GM_LAW_U32 gm_law_key1(GM_LAW_U32 seed_hi, GM_LAW_U32 pos)
{
    return gm_law_scatter(seed_hi ^ gm_law_scatter(pos + 0x9e3779b9u));
}

/* Natural logarithm of a positive normal x, to about 1e-7: exponent and mantissa taken apart, then
 * a polynomial fitted at Chebyshev nodes on [sqrt(1/2), sqrt(2)). */
GM_LAW GM_LAW_F32 gm_law_log(GM_LAW_ARG x)
{
    const GM_LAW_U32 bits = GM_LAW_BITS(x) - 0x3f3504f3u;
    const GM_LAW_F32 e = GM_LAW_TO_F32(GM_LAW_TO_I32(bits) >> 23);
    const GM_LAW_F32 z = GM_LAW_FLOAT((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    GM_LAW_F32 p = 0.0853331313f;
    p = p * z - 0.142692581f;
    p = p * z + 0.149774015f;
    p = p * z - 0.165779933f;
    p = p * z + 0.199559331f;
    p = p * z - 0.25001353f;
    p = p * z + 0.333341926f;
    p = p * z - 0.49999997f;
    p = p * z + 1.0f;
    return e * 0.693147182f + p * z;
}

/* exp(x) for x <= 0 as a whole number of 2^-24ths, so that sums do not depend on their order. */
GM_LAW GM_LAW_U32 gm_law_weight(GM_LAW_ARG x)
{
    const GM_LAW_F32 t = x * 1.44269502f;
    if (!(t > -25.0f)) return 0u;
    const GM_LAW_F32 whole = GM_LAW_FLOOR(t);
    const GM_LAW_F32 z = t - whole;
    GM_LAW_F32 p = 0.000218657849f;
    p = p * z + 0.00123913318f;
    p = p * z + 0.00968418643f;
    p = p * z + 0.0554806292f;
    p = p * z + 0.240230456f;
    p = p * z + 0.693146944f;
    p = p * z + 1.0f;
    return GM_LAW_TO_U32(p * 16777216.0f) >> GM_LAW_TO_U32(-whole);
}

/* Gumbel noise of one token id under a key of 64 bits: -log(E), E exponentially distributed.
 * E = -log(1 - u) for u uniform in (0, 1) in steps of 2^-32; near 0, where the large noise comes
 * from, its series keeps all of u's bits. */
GM_LAW GM_LAW_F32 gm_law_noise(GM_LAW_U32 key0, GM_LAW_U32 key1, GM_LAW_U32 id)
{
    const GM_LAW_U32 k = gm_law_scatter(gm_law_scatter(id ^ key0) ^ key1);
    const GM_LAW_F32 u = (GM_LAW_TO_F32(k) + 0.5f) * 2.32830644e-10f;
    GM_LAW_F32 e;
    if (k < 0x01000000u) {
        e = u + u * u * 0.5f + u * u * u * 0.333333343f;
    } else {
        e = -gm_law_log((GM_LAW_TO_F32(~k) + 0.5f) * 2.32830644e-10f);
    }
    return -gm_law_log(e);
}
