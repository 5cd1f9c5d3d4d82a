/* SPDX-License-Identifier: MIT */
/* Blocks of 256 values; their layouts are drawn in unpack256.c. */

#include "quant/pack.h"

#include <string.h>

#include "base/fp16.h"

/* Eight 6-bit scales and minima in twelve bytes; those of sub-block s are at 16-group 2s. */
static void put_six_bit_scales(const gm_qints *in, uint8_t *a)
{
    for (int s = 0; s < 4; s++) {
        const int high_sc = in->sc[2 * (s + 4)], high_m = in->m[2 * (s + 4)];
        a[s] = (uint8_t)(in->sc[2 * s] | (high_sc >> 4) << 6);
        a[s + 4] = (uint8_t)(in->m[2 * s] | (high_m >> 4) << 6);
        a[s + 8] = (uint8_t)((high_sc & 15) | (high_m & 15) << 4);
    }
}

static void put_chunked_nibbles(const int8_t *q, uint8_t *qs)
{
    for (int c = 0; c < 4; c++) {
        for (int l = 0; l < 32; l++)
            qs[32 * c + l] = (uint8_t)((q[64 * c + l] & 15) | (q[64 * c + 32 + l] & 15) << 4);
    }
}

/* The two low bits of each value plus zero. */
static void put_halved_pairs(const int8_t *q, int zero, uint8_t *qs)
{
    for (int half = 0; half < 2; half++) {
        for (int l = 0; l < 32; l++) {
            int byte = 0;
            for (int k = 0; k < 4; k++)
                byte |= ((q[128 * half + 32 * k + l] + zero) & 3) << (2 * k);
            qs[32 * half + l] = (uint8_t)byte;
        }
    }
}

/* Bit `bit` of value 32 s + l, plus zero, in bit s of high[l]. */
static void put_high_bits(const int8_t *q, int zero, int bit, uint8_t *high)
{
    for (int l = 0; l < 32; l++) {
        int byte = 0;
        for (int s = 0; s < 8; s++)
            byte |= ((q[32 * s + l] + zero) >> bit & 1) << s;
        high[l] = (uint8_t)byte;
    }
}

void gm_q2_k_pack(const gm_qints *in, uint8_t *block)
{
    for (int g = 0; g < 16; g++)
        block[g] = (uint8_t)(in->sc[g] | in->m[g] << 4);
    put_halved_pairs(in->q, 0, block + 16);
    gm_write_f16(block + 80, in->d);
    gm_write_f16(block + 82, in->dmin);
}

void gm_q3_k_pack(const gm_qints *in, uint8_t *block)
{
    uint8_t *const a = block + 96;
    put_high_bits(in->q, 4, 2, block);
    put_halved_pairs(in->q, 4, block + 32);
    memset(a, 0, 12);
    for (int g = 0; g < 16; g++) {
        const int sc = in->sc[g] + 32;
        a[g % 8] = (uint8_t)(a[g % 8] | (sc & 15) << (g < 8 ? 0 : 4));
        a[8 + g % 4] = (uint8_t)(a[8 + g % 4] | (sc >> 4) << (2 * (g / 4)));
    }
    gm_write_f16(block + 108, in->d);
}

void gm_q4_k_pack(const gm_qints *in, uint8_t *block)
{
    gm_write_f16(block, in->d);
    gm_write_f16(block + 2, in->dmin);
    put_six_bit_scales(in, block + 4);
    put_chunked_nibbles(in->q, block + 16);
}

void gm_q5_k_pack(const gm_qints *in, uint8_t *block)
{
    gm_write_f16(block, in->d);
    gm_write_f16(block + 2, in->dmin);
    put_six_bit_scales(in, block + 4);
    put_high_bits(in->q, 0, 4, block + 16);
    put_chunked_nibbles(in->q, block + 48);
}

void gm_q6_k_pack(const gm_qints *in, uint8_t *block)
{
    for (int half = 0; half < 2; half++) {
        const int8_t *const q = in->q + 128 * half;
        for (int l = 0; l < 32; l++) {
            int high = 0;
            for (int k = 0; k < 4; k++)
                high |= ((q[32 * k + l] + 32) >> 4 & 3) << (2 * k);
            block[128 + 32 * half + l] = (uint8_t)high;
        }
        for (int l = 0; l < 64; l++)
            block[64 * half + l] = (uint8_t)((q[l] & 15) | (q[l + 64] & 15) << 4);
    }
    for (int g = 0; g < 16; g++)
        block[192 + g] = (uint8_t)in->sc[g];
    gm_write_f16(block + 208, in->d);
}

void gm_iq4_xs_pack(const gm_qints *in, uint8_t *block)
{
    int8_t index[GM_QBLOCK_MAX];
    uint16_t scales_h = 0;
    gm_iq4_index(in->q, GM_QBLOCK_MAX, index);
    memset(block + 4, 0, 4);
    for (int s = 0; s < 8; s++) {
        const int sc = in->sc[2 * s] + 32;
        block[4 + s / 2] = (uint8_t)(block[4 + s / 2] | (sc & 15) << (4 * (s % 2)));
        scales_h = (uint16_t)(scales_h | (sc >> 4) << (2 * s));
        for (int j = 0; j < 16; j++)
            block[8 + 16 * s + j] = (uint8_t)(index[32 * s + j] | index[32 * s + 16 + j] << 4);
    }
    gm_write_f16(block, in->d);
    memcpy(block + 2, &scales_h, sizeof scales_h);
}
