/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_CPU_VEC_H
#define GM_BACKEND_CPU_VEC_H

/* The compiler's vectors that vec_tmpl.h is written in. */

#include <stdbool.h>
#include <stdint.h>

typedef float vf __attribute__((vector_size(64)));
typedef float vf8 __attribute__((vector_size(32)));
typedef float vf4 __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef int8_t vi8 __attribute__((vector_size(16)));
typedef uint16_t vu16 __attribute__((vector_size(32)));

#endif
