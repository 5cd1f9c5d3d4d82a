/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_SHAPE_H
#define GM_BACKEND_VK_SHAPE_H

/* Which kernel a product gets: what is computed (gm_vk_product), what suits the device
 * (gm_vk_tuning), and what follows from both (gm_vk_cut). */

#include "backend/vk/vk_pipeline.h"
#include "backend/vk/vk_tune.h"
#include "plan/op.h"

/* What suits a device, among kernels that give the same bits but for half_from. */
typedef struct gm_vk_tuning {
    uint32_t subgroup;           /* lanes of a subgroup, where a kernel asks for it              */
    uint32_t max_shared;         /* bytes of shared memory that a workgroup may have             */
    uint32_t words_under_way;    /* that a lane of a product of few columns has asked for        */
    uint32_t matrix_depth;       /* of cooperative matrices of bytes, 0: there are none          */
    uint32_t row_bits, col_bits; /* how their results lie in lanes: inc/mma.glsl                 */
    uint32_t tile_from;          /* columns from which products go by tiles                      */
    uint32_t half_from;          /* rows from which products are of float16: other bits          */
    bool fragments;              /* products of any number of rows are: other bits               */
    bool fragment_mma;           /* ... by cooperative matrices, as lanes hold them              */
    uint32_t split_wgs;          /* of attention of a single row, that share its splits, at most */
    uint32_t half_tiles;         /* workgroups of these that fill the device, 0: any number does */
    uint32_t norm_units;         /* workgroups that share norms in front of a product, about     */
    bool one_front;              /* of a layer's two norms only one is in front of its product   */
    uint32_t front_turns;        /* ... of which a lane asks for so many values at once, at most */
} gm_vk_tuning;

/* The constants of matmul and matmul_float, in the manifest's order: */
enum {
    GM_VK_MM_LANES,
    GM_VK_MM_ROWS,
    GM_VK_MM_COLS,
    GM_VK_MM_ROUNDS,
    GM_VK_MM_AFTER,
    GM_VK_MM_FRONT, /* these two are at the same place in all that know norms in front */
    GM_VK_MM_TILE,
    GM_VK_MM_PLANES,
    GM_VK_MM_COL_GROUPS,
    GM_VK_MM_NORM,
    GM_VK_MM_BLOCKS,
    GM_VK_MM_FLOW,
    GM_VK_MM_EVEN,
};
typedef struct gm_vk_product {
    uint32_t columns;  /* of activations, each plane one          */
    uint32_t planes;   /* 1, or 2 where rows are rounded twice    */
    uint32_t n_blocks; /* of a row of weights; 0 for plain floats */
    uint32_t words;    /* of a block: gm_vk_block_words           */
    bool two_scales;   /* in a block: gm_vk_two_scales            */
    uint32_t after;    /* GM_VK_AFTER_* or 0                      */
    gm_qtype type;     /* of the weights                          */
    uint32_t n_rows;   /* of (the first of) them                  */
    bool fragments;    /* the input is columns of float16         */
    bool flows;        /* of one row, and waits for the one before */
} gm_vk_product;
typedef struct gm_vk_cut {
    const char *pipeline;
    uint32_t spec[GM_VK_SPECS]; /* in the manifest's order */
    uint32_t rows, columns;     /* of weights, and of the input, that a workgroup takes */
    bool halves;                /* it wants the input as halves.comp makes it             */
} gm_vk_cut;
/* For how many of a lane's values of a row of norms it asks at once, in fours, in front of a product. */
uint32_t gm_vk_front_turns(const gm_vk_tuning *t, uint32_t n_cols, uint32_t lanes);
void gm_vk_cut_product(const gm_vk_tuning *t, const gm_vk_product *p, gm_vk_cut *out);
/* The i-th of GM_VK_TRIES ways, all of which have the same bits; the first is the usual one. False
 * where there is none of that number. Some may be the same. */
#define GM_VK_TRIES 34
bool gm_vk_cut_try(const gm_vk_tuning *t, const gm_vk_product *p, uint32_t i, gm_vk_cut *out);
/* "q4_0 21504x5376, gate and up, 8 rows"; "matmul:512,1,4": a kernel and its constants. */
void gm_vk_product_name(const gm_vk_product *p, char name[GM_VK_NAME]);
void gm_vk_cut_name(const gm_vk_cut *cut, char name[GM_VK_NAME]);
/* What has such a name; false where nothing has. A step's outputs need not be a power of two, which the
 * name has: from 17 on, and an engine has so many, the ways are the same. */
bool gm_vk_product_parse(const char *name, gm_vk_product *out);
bool gm_vk_cut_find(const gm_vk_tuning *t, const gm_vk_product *p, const char *name,
                    gm_vk_cut *out);
/* How many workgroups share the blocks of each tile of float16, of which there are so many. */
uint32_t gm_vk_half_parts(const gm_vk_tuning *t, uint32_t tiles, uint32_t n_blocks);
/* Rows of an input as float16, and its bytes. */
uint32_t gm_vk_half_rows(uint32_t rows);
uint64_t gm_vk_half_size(uint32_t rows, uint32_t cols);
/* Whether attention of that many rows is by cooperative matrices. */
bool gm_vk_attends_by_halves(const gm_vk_tuning *t, const gm_attn *a, uint32_t rows);

/* vk_fragment.c: the i-th way of a product whose input is columns of float16, as gm_vk_cut_try's. */
bool gm_vk_cut_fragments(const gm_vk_tuning *t, const gm_vk_product *p, uint32_t i, gm_vk_cut *out);
/* Bytes of such an input. */
uint64_t gm_vk_columns_size(uint32_t rows, uint32_t cols);

#endif
