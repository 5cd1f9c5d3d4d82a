/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_BACKENDS_H
#define GM_BACKEND_BACKENDS_H

/* The backends that exist, each defined in its own folder; backend.c lists them. */

#include "backend/backend.h"

extern const gm_backend_ops gm_backend_cpu;
extern const gm_backend_ops gm_backend_ref;
extern const gm_backend_ops gm_backend_ref_int8;
extern const gm_backend_ops gm_backend_vulkan;

#endif
