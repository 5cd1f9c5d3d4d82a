/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_X86_X86_H
#define GM_BACKEND_CPU_X86_X86_H

/* The x86-64 rungs. A file's last word names the instruction set it is compiled
 * for; each fills its part of the kernel table. */

#include <string.h>

#include "backend/cpu/kernels.h"

void gm_kernels_unpack_avx2(gm_kernels *k);
void gm_kernels_mul_avx2(gm_kernels *k);
void gm_kernels_vec_avx2(gm_kernels *k);
void gm_kernels_unpack_avx512(gm_kernels *k);
void gm_kernels_mul_avx512(gm_kernels *k);
void gm_kernels_vec_avx512(gm_kernels *k);

#endif
