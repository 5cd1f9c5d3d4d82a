/* SPDX-License-Identifier: MIT */
/* Formats with blocks of 256 values: float scales for the block, and integer
 * scales (and minima) for groups of 16 or 32 values. Where a format's own group
 * is 32, both of its 16-groups get the same numbers. */

#include "quant/unpack.h"

#include "base/fp16.h"

/* Puts one scale and minimum on 16-groups 2s and 2s+1: the 32 values of sub-block s. */
static void set_pair(gm_qints *out, int s, int sc, int m)
{
    out->sc[2 * s] = out->sc[2 * s + 1] = (int16_t)sc;
    out->m[2 * s] = out->m[2 * s + 1] = (int16_t)m;
}

/* scales[12] of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima. The first four of each
 * lie in the low bits of bytes 0-3 and 4-7; the others have their low four bits in bytes 8-11 and
 * their high two in the spare bits of the first eight. */
static void six_bit_scales(const uint8_t *a, gm_qints *out)
{
    for (int s = 0; s < 4; s++)
        set_pair(out, s, a[s] & 63, a[s + 4] & 63);
    for (int s = 4; s < 8; s++) {
        set_pair(out, s, (a[s + 4] & 15) | (a[s - 4] >> 6) << 4,
                 (a[s + 4] >> 4) | (a[s] >> 6) << 4);
    }
}

/* qs[128]: four chunks of 64 values, low nibbles first, then high nibbles of the same 32 bytes. */
static void chunked_nibbles(const uint8_t *qs, gm_qints *out)
{
    for (int c = 0; c < 4; c++) {
        for (int l = 0; l < 32; l++) {
            out->q[64 * c + l] = (int8_t)(qs[32 * c + l] & 15);
            out->q[64 * c + 32 + l] = (int8_t)(qs[32 * c + l] >> 4);
        }
    }
}

/* qs[64]: two halves of 128 values; byte l of a half holds values l, l+32, l+64, l+96. */
static void halved_pairs(const uint8_t *qs, gm_qints *out)
{
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, shift = i % 128 / 32, l = i % 32;
        out->q[i] = (int8_t)((qs[32 * half + l] >> (2 * shift)) & 3);
    }
}

/* scales[16] (low nibble scale, high nibble minimum) | qs[64] | d f16 | dmin f16 */
void gm_q2_k_unpack(const uint8_t *block, gm_qints *out)
{
    out->d = gm_read_f16(block + 80);
    out->dmin = gm_read_f16(block + 82);
    for (int g = 0; g < 16; g++) {
        out->sc[g] = block[g] & 15;
        out->m[g] = block[g] >> 4;
    }
    halved_pairs(block + 16, out);
}

/* hmask[32] | qs[64] | scales[12] | d f16. A value is its two low bits, less 4 where its bit of
 * hmask is clear. Scales are 6 bits less 32: low four bits in bytes 0-7, high two in bytes 8-11. */
void gm_q3_k_unpack(const uint8_t *block, gm_qints *out)
{
    const uint8_t *const hmask = block, *const a = block + 96;
    out->d = gm_read_f16(block + 108);
    out->dmin = 0;
    for (int g = 0; g < 16; g++) {
        const int low = g < 8 ? a[g] & 15 : a[g - 8] >> 4;
        const int high = (a[8 + g % 4] >> (2 * (g / 4))) & 3;
        out->sc[g] = (int16_t)((low | high << 4) - 32);
        out->m[g] = 0;
    }
    halved_pairs(block + 32, out);
    for (int i = 0; i < 256; i++) {
        if (!((hmask[i % 32] >> (i / 32)) & 1)) out->q[i] = (int8_t)(out->q[i] - 4);
    }
}

/* d f16 | dmin f16 | scales[12] | qs[128] */
void gm_q4_k_unpack(const uint8_t *block, gm_qints *out)
{
    out->d = gm_read_f16(block);
    out->dmin = gm_read_f16(block + 2);
    six_bit_scales(block + 4, out);
    chunked_nibbles(block + 16, out);
}

/* d f16 | dmin f16 | scales[12] | qh[32] | qs[128]; bit s of qh[l] is the fifth bit of value
 * 32 s + l */
void gm_q5_k_unpack(const uint8_t *block, gm_qints *out)
{
    const uint8_t *const qh = block + 16;
    out->d = gm_read_f16(block);
    out->dmin = gm_read_f16(block + 2);
    six_bit_scales(block + 4, out);
    chunked_nibbles(block + 48, out);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(out->q[i] | ((qh[i % 32] >> (i / 32)) & 1) << 4);
}

/* ql[128] | qh[64] | scales i8[16] | d f16. In each half of 128 values, value 32 k + l has its low
 * four bits in a nibble of ql[l + 32 (k % 2)] (low for k < 2) and its high two in bits 2k of
 * qh[l]. */
void gm_q6_k_unpack(const uint8_t *block, gm_qints *out)
{
    out->d = gm_read_f16(block + 208);
    out->dmin = 0;
    for (int g = 0; g < 16; g++) {
        out->sc[g] = (int8_t)block[192 + g];
        out->m[g] = 0;
    }
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, k = i % 128 / 32, l = i % 32;
        const int low = (block[64 * half + l + 32 * (k % 2)] >> (k < 2 ? 0 : 4)) & 15;
        const int high = (block[128 + 32 * half + l] >> (2 * k)) & 3;
        out->q[i] = (int8_t)((low | high << 4) - 32);
    }
}

/* d f16 | scales_h u16 | scales_l[4] | qs[128]; sub-block s has its own 16 bytes, low nibbles
 * first, and a 6-bit scale less 32 */
void gm_iq4_xs_unpack(const uint8_t *block, gm_qints *out)
{
    const uint16_t scales_h = gm_read_u16(block + 2);
    out->d = gm_read_f16(block);
    out->dmin = 0;
    for (int s = 0; s < 8; s++) {
        const int low = (block[4 + s / 2] >> (4 * (s % 2))) & 15;
        set_pair(out, s, (low | ((scales_h >> (2 * s)) & 3) << 4) - 32, 0);
        for (int j = 0; j < 16; j++) {
            out->q[32 * s + j] = gm_iq4_values[block[8 + 16 * s + j] & 15];
            out->q[32 * s + 16 + j] = gm_iq4_values[block[8 + 16 * s + j] >> 4];
        }
    }
}
