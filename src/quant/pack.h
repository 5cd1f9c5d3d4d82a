/* SPDX-License-Identifier: MIT */
#ifndef GM_QUANT_PACK_H
#define GM_QUANT_PACK_H

/* The way back from unpack.h: one function a format, each putting a block
 * together from its integers and floats. What unpack takes apart pack puts
 * together again, to the last bit, where d and dmin are values of an f16 and the
 * integers are in the format's range. pack32.c and pack256.c. */

#include "quant/qtype.h"

void gm_q4_0_pack(const gm_qints *in, uint8_t *block);
void gm_q4_1_pack(const gm_qints *in, uint8_t *block);
void gm_q5_0_pack(const gm_qints *in, uint8_t *block);
void gm_q5_1_pack(const gm_qints *in, uint8_t *block);
void gm_q8_0_pack(const gm_qints *in, uint8_t *block);
void gm_iq4_nl_pack(const gm_qints *in, uint8_t *block);

void gm_q2_k_pack(const gm_qints *in, uint8_t *block);
void gm_q3_k_pack(const gm_qints *in, uint8_t *block);
void gm_q4_k_pack(const gm_qints *in, uint8_t *block);
void gm_q5_k_pack(const gm_qints *in, uint8_t *block);
void gm_q6_k_pack(const gm_qints *in, uint8_t *block);
void gm_iq4_xs_pack(const gm_qints *in, uint8_t *block);

/* n values of gm_iq4_values as their indices. */
void gm_iq4_index(const int8_t *values, int n, int8_t *index);

#endif
