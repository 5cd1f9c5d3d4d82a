/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_UNPACK_H
#define GM_QUANT_UNPACK_H

/* One function a format, each taking a block of it apart (see qtype.h). The
 * blocks' byte layouts are drawn above each function in unpack32.c (blocks of
 * 32 values) and unpack256.c (blocks of 256). */

#include "quant/qtype.h"

void gm_q4_0_unpack(const uint8_t *block, gm_qints *out);
void gm_q4_1_unpack(const uint8_t *block, gm_qints *out);
void gm_q5_0_unpack(const uint8_t *block, gm_qints *out);
void gm_q5_1_unpack(const uint8_t *block, gm_qints *out);
void gm_q8_0_unpack(const uint8_t *block, gm_qints *out);
void gm_iq4_nl_unpack(const uint8_t *block, gm_qints *out);

void gm_q2_k_unpack(const uint8_t *block, gm_qints *out);
void gm_q3_k_unpack(const uint8_t *block, gm_qints *out);
void gm_q4_k_unpack(const uint8_t *block, gm_qints *out);
void gm_q5_k_unpack(const uint8_t *block, gm_qints *out);
void gm_q6_k_unpack(const uint8_t *block, gm_qints *out);
void gm_iq4_xs_unpack(const uint8_t *block, gm_qints *out);

/* The 16 values that the 4-bit codes of the IQ4 formats stand for. */
extern const int8_t gm_iq4_values[16];

#endif
