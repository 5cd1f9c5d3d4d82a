/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_TENSORFILE_H
#define GM_FILE_TENSORFILE_H

/* The one view of model files: metadata and tensors, whatever they came from.
 *
 *     GGUF, one file or several         gguf_read.c
 *     a Hugging Face folder             hf_folder.c: safetensors.c, hf_config.c, and the
 *                                       vocabulary from sp_model.c or hf_tokenizer.c
 *
 * Names and keys are GGUF's ("blk.3.attn_q.weight", "gemma3.block_count"). Two
 * keys of our own carry what GGUF has no word for:
 *
 *     gemmule.norm_offset                   f32: added to every norm weight (1 for Hugging Face
 *                                           weights, which are stored around 0)
 *     gemmule.attention.query_scale_dim     f32: the attention scale is this number ^ -1/2
 *
 * Tensors of the vision tower and the projector are counted and left out.
 * Nothing is copied: tensor data are views into the maps, valid until close. */

#include "base/arena.h"
#include "base/mapfile.h"
#include "base/status.h"
#include "file/meta.h"
#include "quant/tensor.h"

typedef struct gm_tensorfile {
    const char *path;   /* as opened                                         */
    const char *format; /* "GGUF v3", "Hugging Face safetensors"             */
    gm_meta meta;
    gm_tensor *tensors; /* text model, in file order; names unique           */
    uint32_t n_tensors;
    size_t cap_tensors;
    uint32_t n_skipped;    /* vision tensors counted and left out             */
    uint64_t size_skipped; /* their bytes, as far as their types are known    */
    uint32_t n_parts;      /* GGUF files parsed so far; 0 for a folder        */
    gm_mapfile *maps;
    uint32_t n_maps;
    size_t cap_maps;
    gm_arena arena;
} gm_tensorfile;

/* Opens a GGUF file, the first part of a split GGUF, or a Hugging Face folder. On failure *out is
 * NULL and err says in one sentence what is wrong with which file. */
gm_status gm_tensorfile_open(gm_tensorfile **out, const char *path, gm_err *err);

/* Unmaps and frees; NULL is fine. */
void gm_tensorfile_close(gm_tensorfile *f);

/* The tensor of that name, NULL when there is none. */
const gm_tensor *gm_tensorfile_find(const gm_tensorfile *f, const char *name);

/* For the readers of this folder: opens path and keeps the map, of which *view is a copy; appends
 * a tensor, whose name must live as long as f. */
gm_status gm_tensorfile_map(gm_tensorfile *f, const char *path, gm_mapfile *view, gm_err *err);
gm_status gm_tensorfile_add(gm_tensorfile *f, const gm_tensor *t, gm_err *err);

/* Sorts names; the first that is there twice, NULL when each is there once. */
const gm_str *gm_names_find_twin(gm_str *names, size_t n);

/* True for names of the vision tower and the projector, in GGUF's and Hugging Face's spelling. */
bool gm_tensorfile_is_vision(gm_str name);

#endif
