/* SPDX-License-Identifier: MIT */
/* Blocks of 32 values; their layouts are drawn in unpack32.c. */

#include "quant/pack.h"

#include <string.h>

#include "base/fp16.h"
#include "quant/unpack.h"

/* The low four bits of each value plus zero, values 0 to 15 in the low nibbles. */
static void put_nibbles(const int8_t *q, int zero, uint8_t *qs)
{
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)(((q[j] + zero) & 15) | ((q[j + 16] + zero) & 15) << 4);
}

static void put_fifth_bits(const int8_t *q, int zero, uint8_t *high)
{
    uint32_t bits = 0;
    for (int j = 0; j < 32; j++)
        bits |= (uint32_t)((q[j] + zero) >> 4 & 1) << j;
    memcpy(high, &bits, sizeof bits);
}

void gm_q4_0_pack(const gm_qints *in, uint8_t *block)
{
    gm_write_f16(block, in->d);
    put_nibbles(in->q, 8, block + 2);
}

void gm_q4_1_pack(const gm_qints *in, uint8_t *block)
{
    gm_write_f16(block, in->d);
    gm_write_f16(block + 2, -in->dmin);
    put_nibbles(in->q, 0, block + 4);
}

void gm_q5_0_pack(const gm_qints *in, uint8_t *block)
{
    gm_write_f16(block, in->d);
    put_fifth_bits(in->q, 16, block + 2);
    put_nibbles(in->q, 16, block + 6);
}

void gm_q5_1_pack(const gm_qints *in, uint8_t *block)
{
    gm_write_f16(block, in->d);
    gm_write_f16(block + 2, -in->dmin);
    put_fifth_bits(in->q, 0, block + 4);
    put_nibbles(in->q, 0, block + 8);
}

void gm_q8_0_pack(const gm_qints *in, uint8_t *block)
{
    gm_write_f16(block, in->d);
    memcpy(block + 2, in->q, 32);
}

void gm_iq4_index(const int8_t *values, int n, int8_t *index)
{
    for (int j = 0; j < n; j++) {
        int k = 0;
        for (int i = 1; i < 16; i++)
            k += values[j] >= gm_iq4_values[i];
        index[j] = (int8_t)k;
    }
}

void gm_iq4_nl_pack(const gm_qints *in, uint8_t *block)
{
    int8_t index[32];
    gm_iq4_index(in->q, 32, index);
    gm_write_f16(block, in->d);
    put_nibbles(index, 0, block + 2);
}
