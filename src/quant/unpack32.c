/* SPDX-License-Identifier: MIT */
/* Formats with blocks of 32 values: one float scale, sometimes a float minimum,
 * no integer scales. Codes of 4 and 5 bits lie as two halves: byte j's low
 * nibble is value j, its high nibble value j + 16. */

#include "quant/unpack.h"

#include <string.h>

#include "base/fp16.h"

const int8_t gm_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

/* One group scale and minimum for the whole block: value = d * q - dmin * m. */
static void set_block(gm_qints *out, float d, float dmin, int16_t m)
{
    out->d = d;
    out->dmin = dmin;
    out->sc[0] = out->sc[1] = 1;
    out->m[0] = out->m[1] = m;
}

static void nibbles(const uint8_t *qs, gm_qints *out)
{
    for (int j = 0; j < 16; j++) {
        out->q[j] = (int8_t)(qs[j] & 15);
        out->q[j + 16] = (int8_t)(qs[j] >> 4);
    }
}

/* Adds the fifth bits, bit j of high belonging to value j. */
static void fifth_bits(uint32_t high, gm_qints *out)
{
    for (int j = 0; j < 32; j++)
        out->q[j] = (int8_t)(out->q[j] | (int)((high >> j) & 1u) << 4);
}

static void subtract(gm_qints *out, int zero)
{
    for (int j = 0; j < 32; j++)
        out->q[j] = (int8_t)(out->q[j] - zero);
}

/* d f16 | qs[16] */
void gm_q4_0_unpack(const uint8_t *block, gm_qints *out)
{
    set_block(out, gm_read_f16(block), 0, 0);
    nibbles(block + 2, out);
    subtract(out, 8);
}

/* d f16 | min f16 | qs[16] */
void gm_q4_1_unpack(const uint8_t *block, gm_qints *out)
{
    set_block(out, gm_read_f16(block), -gm_read_f16(block + 2), 1);
    nibbles(block + 4, out);
}

/* d f16 | high u32 | qs[16] */
void gm_q5_0_unpack(const uint8_t *block, gm_qints *out)
{
    set_block(out, gm_read_f16(block), 0, 0);
    nibbles(block + 6, out);
    fifth_bits(gm_read_u32(block + 2), out);
    subtract(out, 16);
}

/* d f16 | min f16 | high u32 | qs[16] */
void gm_q5_1_unpack(const uint8_t *block, gm_qints *out)
{
    set_block(out, gm_read_f16(block), -gm_read_f16(block + 2), 1);
    nibbles(block + 8, out);
    fifth_bits(gm_read_u32(block + 4), out);
}

/* d f16 | qs i8[32] */
void gm_q8_0_unpack(const uint8_t *block, gm_qints *out)
{
    set_block(out, gm_read_f16(block), 0, 0);
    memcpy(out->q, block + 2, 32);
}

/* d f16 | qs[16], each code an index into gm_iq4_values */
void gm_iq4_nl_unpack(const uint8_t *block, gm_qints *out)
{
    set_block(out, gm_read_f16(block), 0, 0);
    nibbles(block + 2, out);
    for (int j = 0; j < 32; j++)
        out->q[j] = gm_iq4_values[out->q[j]];
}
