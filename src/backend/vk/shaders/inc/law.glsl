/* SPDX-License-Identifier: MIT */
// The arithmetic of the draw, shared with C.
#define GM_LAW
#define GM_LAW_F32       precise float
#define GM_LAW_ARG       float
#define GM_LAW_U32       uint
#define GM_LAW_BITS(f)   floatBitsToUint(f)
#define GM_LAW_FLOAT(u)  uintBitsToFloat(u)
#define GM_LAW_TO_F32(x) float(x)
#define GM_LAW_TO_U32(x) uint(x)
#define GM_LAW_TO_I32(x) int(x)
#define GM_LAW_FLOOR(f)  floor(f)
#include "plan/draw_law.h"
