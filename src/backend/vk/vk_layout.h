/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_LAYOUT_H
#define GM_BACKEND_VK_LAYOUT_H

/* Weights as the kernels want them. Any thread. */

#include "base/status.h"
#include "quant/tensor.h"

/* Bytes of a tensor on the device, and rows [first, first + n) of it, where first is a
 * multiple of 16. planes[i] is where row `first` of plane i goes; runs of 16 rows follow each other. */
#define GM_VK_PLANES 4
typedef struct gm_vk_planes {
    uint32_t n;
    uint64_t off[GM_VK_PLANES];      /* from the tensor's beginning */
    uint64_t row_size[GM_VK_PLANES]; /* bytes of a row in the plane */
    uint64_t size;                   /* of all                      */
} gm_vk_planes;
gm_status gm_vk_planes_of(const gm_tensor *t, gm_vk_planes *out, gm_err *err);
void gm_vk_pack_rows(const gm_tensor *t, uint64_t first, uint64_t n,
                     uint8_t *const planes[GM_VK_PLANES]);

/* Words that a lane holds of a block of 32 weights, as it was read; 0 for plain floats. */
uint32_t gm_vk_block_words(gm_qtype type);
/* Whether the halves of a block of 32 have scales of their own. */
bool gm_vk_two_scales(gm_qtype type);

/* vk_pack.c: n blocks of 32 (of a file's block of 256: all eight), from their places in a row of a
 * file to their places in each plane, of which a format may have no more than some. */
typedef struct gm_vk_eight {
    uint8_t *codes, *high, *scales, *super;
} gm_vk_eight;
typedef void gm_vk_pack_eight(const uint8_t *from, uint32_t n, const gm_vk_eight *to);
gm_vk_pack_eight gm_vk_pack_q4_0, gm_vk_pack_q4_1, gm_vk_pack_q8_0, gm_vk_pack_q4_k,
    gm_vk_pack_q5_k, gm_vk_pack_q6_k;

#endif
