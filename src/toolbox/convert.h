/* SPDX-License-Identifier: MIT */
#ifndef GM_TOOLBOX_CONVERT_H
#define GM_TOOLBOX_CONVERT_H

/* The parts of a conversion:
 *
 *     convert_types.c    a name -> which tensor gets which type
 *     convert_meta.c     an open model -> the result's keys, complete and in today's words
 *     convert.c          the whole: gm_convert_open, _describe, _run, _close */

#include "model/model.h"
#include "toolbox/modelwrite.h"

/* One exception of a mix: this part of a layer, in all layers or in those with more bits. */
typedef struct gm_mixrow {
    const char *part; /* "attn_v"; NULL ends the list */
    gm_qtype type;
    bool some; /* only in the first and last eighth of the layers and every third between */
} gm_mixrow;

/* Which tensor gets which type. */
typedef struct gm_mix {
    const char *name, *about;
    uint32_t file_type; /* general.file_type */
    gm_qtype base, head;
    gm_mixrow rows[8];
} gm_mix;

/* The mix of that name in any case, or a sentence with every name; head_type may be NULL. */
gm_status gm_mix_find(gm_mix *out, const char *name, const char *head_type, gm_err *err);

/* The type of a tensor of a model of n_layer layers, and whether that is a fallback, because its
 * rows do not fit the one that the mix has for it. Vectors are f32. */
const gm_qtype_info *gm_mix_type(const gm_mix *mix, const gm_tensor *t, uint32_t n_layer,
                                 bool is_head, bool *fallback);

/* The keys of a GGUF file of model m in this mix; deinit with gm_meta_deinit. Values are views into
 * m and the arena. */
gm_status gm_convert_meta(gm_meta *out, const gm_model *m, const gm_mix *mix, gm_arena *arena,
                          gm_err *err);

/* What the weights of attn_q_norm are multiplied with, because readers of a GGUF file derive the
 * attention scale and no key could tell them another: 1 where they derive the right one. */
float gm_convert_query_ratio(const gm_config *c);

#endif
