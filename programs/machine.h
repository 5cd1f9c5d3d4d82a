/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_MACHINE_H
#define GM_PROGRAMS_MACHINE_H

/* What the system says of the machine that we run on. */

#include <stdint.h>

/* What the CPU calls itself. */
void gm_machine_name(char name[80]);
/* Processors that may be used, at least 1. */
uint32_t gm_machine_processors(void);
/* Bytes of the largest cache that one core has; 0: not known. */
uint64_t gm_machine_cache(void);

#endif
