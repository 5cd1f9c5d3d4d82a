/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_GENERIC_GENERIC_H
#define GM_BACKEND_CPU_GENERIC_GENERIC_H

/* The portable rung: every kernel in plain C. */

#include "backend/cpu/kernels.h"

void gm_kernels_panel_c(gm_kernels *k);
void gm_kernels_vec_c(gm_kernels *k);

#endif
