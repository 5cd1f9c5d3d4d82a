/* SPDX-License-Identifier: MIT */
/* Weights from a file's blocks into the device's planes, as vk_layout.c says it, for the formats that
 * models come in. Loading is nothing but this and copies, so it has to go as fast as memory: bytes
 * are moved by words, and fields of a few bits in all bytes of a word at once, which is the same in
 * either order of bytes. */

#include <string.h>

#include "backend/vk/vk.h"

/* ---- blocks of 32, whose codes are in order already ------------------------------------------ */

static inline void copy_blocks(const uint8_t *from, uint32_t n, uint32_t scale, uint32_t codes,
                               const gm_vk_eight *to)
{
    for (uint32_t i = 0; i < n; i++) {
        memcpy(to->scales + i * scale, from + i * (scale + codes), scale);
        memcpy(to->codes + i * codes, from + i * (scale + codes) + scale, codes);
    }
}

/* A whole eight is what there nearly always is: a loop of known length is unrolled. */
#define COPY(name, scale, codes)                                      \
    void name(const uint8_t *from, uint32_t n, const gm_vk_eight *to) \
    {                                                                 \
        if (n == 8)                                                   \
            copy_blocks(from, 8, scale, codes, to);                   \
        else                                                          \
            copy_blocks(from, n, scale, codes, to);                   \
    }
COPY(gm_vk_pack_q4_0, 2, 16)
COPY(gm_vk_pack_q4_1, 4, 16)
COPY(gm_vk_pack_q8_0, 2, 32)

/* ---- blocks of 256 --------------------------------------------------------------------------- */

#define NIBBLES 0x0f0f0f0f0f0f0f0full

/* 32 bytes that have a code of one block low and of another high become those two blocks' 16 bytes
 * each: byte j has value j low, value j + 16 high. */
static inline void split_nibbles(const uint8_t *from, uint8_t *low, uint8_t *high)
{
    uint64_t w[4], a[2], b[2];
    memcpy(w, from, sizeof w);
    for (int i = 0; i < 2; i++) {
        a[i] = (w[i] & NIBBLES) | (w[i + 2] & NIBBLES) << 4;
        b[i] = (w[i] >> 4 & NIBBLES) | (w[i + 2] & ~NIBBLES);
    }
    memcpy(low, a, sizeof a);
    memcpy(high, b, sizeof b);
}

/* Eight scales and minima of six bits each, in twelve bytes, become pairs of bytes. */
static void unpack_scales(const uint8_t *q, uint8_t *out)
{
    for (int i = 0; i < 4; i++) {
        out[2 * i] = q[i] & 63;
        out[2 * i + 1] = q[i + 4] & 63;
        out[2 * i + 8] = (uint8_t)((q[i + 8] & 15) | q[i] >> 6 << 4);
        out[2 * i + 9] = (uint8_t)(q[i + 8] >> 4 | q[i + 4] >> 6 << 4);
    }
}

/* d and dmin, scales[12], codes[128]: 32 bytes are two blocks. */
void gm_vk_pack_q4_k(const uint8_t *from, uint32_t n, const gm_vk_eight *to)
{
    (void)n;
    memcpy(to->super, from, 4);
    unpack_scales(from + 4, to->scales);
    for (int i = 0; i < 4; i++)
        split_nibbles(from + 16 + 32 * i, to->codes + 32 * i, to->codes + 32 * i + 16);
}

/* d and dmin, scales[12], high bits[32], codes[128]. Bit i of the high bytes is block i's; value v has
 * bit v / 4 of byte v % 4. */
void gm_vk_pack_q5_k(const uint8_t *from, uint32_t n, const gm_vk_eight *to)
{
    uint32_t in[8], out[8];
    (void)n;
    memcpy(to->super, from, 4);
    unpack_scales(from + 4, to->scales);
    memcpy(in, from + 16, sizeof in);
    for (int i = 0; i < 8; i++) {
        out[i] = 0;
        for (int k = 0; k < 8; k++)
            out[i] |= (in[k] >> i & 0x01010101u) << k;
    }
    memcpy(to->high, out, sizeof out);
    for (int i = 0; i < 4; i++)
        split_nibbles(from + 48 + 32 * i, to->codes + 32 * i, to->codes + 32 * i + 16);
}

/* low codes[128], high bits[64], scales[16], d. A half has 64 bytes of low codes, of which 32 are
 * blocks 0 and 2 and 32 blocks 1 and 3, and 32 of high bits, two for each of the four. */
void gm_vk_pack_q6_k(const uint8_t *from, uint32_t n, const gm_vk_eight *to)
{
    (void)n;
    for (int half = 0; half < 2; half++) {
        const uint8_t *const low = from + 64 * half;
        uint8_t *const codes = to->codes + 64 * half;
        uint32_t in[8], out[8];
        split_nibbles(low, codes, codes + 32);
        split_nibbles(low + 32, codes + 16, codes + 48);
        memcpy(in, from + 128 + 32 * half, sizeof in);
        for (int i = 0; i < 8; i++) {
            out[i] = 0;
            for (int k = 0; k < 4; k++)
                out[i] |= (in[i % 2 * 4 + k] >> i / 2 * 2 & 0x03030303u) << 2 * k;
        }
        memcpy(to->high + 32 * half, out, sizeof out);
    }
    memcpy(to->scales, from + 192, 16);
    memcpy(to->super, from + 208, 2);
    memset(to->super + 2, 0, 2);
}
