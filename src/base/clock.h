/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_CLOCK_H
#define GM_BASE_CLOCK_H

/* Seconds of a clock that only goes forward. */
double gm_clock_s(void);

#endif
