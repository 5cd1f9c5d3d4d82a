/* SPDX-License-Identifier: MIT */
#ifndef GM_TOOLBOX_SYNTH_H
#define GM_TOOLBOX_SYNTH_H

/* The parts of a synthetic model, in the order gm_synth_write uses them:
 *
 *     shape     synth_shape.c    name -> numbers; numbers and types -> a list of tensors
 *     vocab     synth_vocab.c    pieces, scores, kinds
 *     meta      synth_meta.c     both of them -> the file's keys
 *     weights   quant/noise.c    any part of any tensor's bytes, from a counter
 *     file      modelwrite.c     all of it -> disk, whole or not at all
 *
 * docs/SYNTH.md defines every byte. Arrays come from the arena that is given. */

#include "base/arena.h"
#include "file/meta.h"
#include "gemmule_tools.h"
#include "quant/noise.h"
#include "quant/tensor.h"

/* ---- shape --------------------------------------------------------------------------------- */

typedef struct gm_synth_shape {
    const char *name; /* as users write it: "1b" */
    uint32_t n_layer, n_embd, n_ffn, n_head, n_kv_head, head_dim;
    uint32_t window, n_ctx;
    uint32_t rope_factor; /* of global layers                                       */
    uint32_t n_merged;    /* pieces of several characters                           */
    uint32_t n_char;      /* pieces of one character                                */
    bool has_tail;        /* the pieces after those: tabs, images, the last unused  */
} gm_synth_shape;

/* The shape of that name in any case, or a sentence with every name. */
gm_status gm_synth_shape_find(const gm_synth_shape **out, const char *name, gm_err *err);

/* The type of that name in any case, or a sentence with every name. */
gm_status gm_synth_type_find(const gm_qtype_info **out, const char *name, gm_err *err);

/* What stands for `type` in rows of cols values: itself, or where cols is no multiple of its 256
 * values the type that converters fall back on. A row that fits neither is refused. */
gm_status gm_synth_type_fit(const gm_qtype_info **out, const gm_qtype_info *type, uint64_t cols,
                            gm_err *err);

typedef struct gm_synth_list {
    gm_tensor *tensors; /* in file order; no data */
    gm_noise_law *laws;
    uint32_t n;
} gm_synth_list;

/* Every tensor of the model. */
gm_status gm_synth_list_make(gm_synth_list *list, const gm_synth_shape *shape,
                             const gm_qtype_info *type, const gm_qtype_info *head_type,
                             gm_arena *arena, gm_err *err);

/* ---- vocabulary ---------------------------------------------------------------------------- */

typedef struct gm_synth_vocab {
    gm_str *pieces;
    float *scores;
    int32_t *kinds; /* GGUF's numbers */
    uint32_t n;
} gm_synth_vocab;

uint32_t gm_synth_vocab_len(const gm_synth_shape *shape);
gm_status gm_synth_vocab_make(gm_synth_vocab *v, const gm_synth_shape *shape, gm_arena *arena,
                              gm_err *err);

/* ---- metadata ------------------------------------------------------------------------------ */

/* The file's keys. The vocabulary and the shape must outlive them. */
gm_status gm_synth_meta_make(gm_meta *meta, const gm_synth_shape *shape, const gm_synth_vocab *v,
                             const gm_qtype_info *type, uint64_t seed, gm_arena *arena,
                             gm_err *err);

/* ---- weights ------------------------------------------------------------------------------- */

/* What the index-th tensor of the file is filled with. */
gm_noise gm_synth_noise(const gm_synth_list *list, uint32_t index, uint64_t seed);

#endif
