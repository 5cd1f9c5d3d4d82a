/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_SHADERS_H
#define GM_BACKEND_VK_SHADERS_H

/* The compiled shaders, in one table that the build makes from shaders/manifest.txt.
 *
 * A row of the manifest is a pipeline; each of its types makes one entry here. A pipeline is
 * created from an entry by giving every spec constant one of its legal values; the constant's
 * id is its place in `spec`. A constant named SUBGROUP is also the subgroup size to require,
 * and 0 there means the device's own. */

#include <stdbool.h>
#include <stdint.h>

/* What a shader needs beyond what every device we use has (docs/VULKAN.md lists that). A word of
 * the manifest's `needs` is one of these in small letters. */
typedef enum gm_vk_needs {
    GM_VK_NEEDS_INT_DOT8 = 1 << 0,      /* packed 8-bit dot products, accelerated           */
    GM_VK_NEEDS_F16 = 1 << 1,           /* arithmetic in float16                             */
    GM_VK_NEEDS_COOPMAT_F16 = 1 << 2,   /* subgroup matrices 16x16x16, float16 to float32    */
    GM_VK_NEEDS_COOPMAT_I8 = 1 << 3,    /* subgroup matrices of signed bytes to int32        */
    GM_VK_NEEDS_COOPMAT_F16X8 = 1 << 4, /* as COOPMAT_F16, 16x8x16                          */
} gm_vk_needs;

#define GM_VK_NO_TYPE (-1)

typedef struct gm_vk_spec {
    const char *name;
    uint32_t value; /* the default */
    uint32_t n_legal;
    const uint32_t *legal;
} gm_vk_spec;

typedef struct gm_vk_shader {
    const char *name;     /* "matmul.q4_0", unique; where there is no type, the pipeline's */
    const char *pipeline; /* the manifest's first column */
    int32_t type;         /* gm_qtype, or GM_VK_NO_TYPE */
    uint32_t needs;       /* gm_vk_needs, or-ed */
    bool exact;           /* gives the bits that the op's numerics ask for */
    uint32_t n_spec;
    const gm_vk_spec *spec;
    uint32_t n_words;
    const uint32_t *words; /* SPIR-V 1.6 with the entry point "main" */
} gm_vk_shader;

extern const gm_vk_shader gm_vk_shaders[];
extern const uint32_t gm_vk_n_shaders;

#endif
