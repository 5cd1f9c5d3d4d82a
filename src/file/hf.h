/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_HF_H
#define GM_FILE_HF_H

/* Hugging Face folders: config.json, model.safetensors or its shards, and the
 * tokenizer. Each parser takes memory and appends to the tensorfile in GGUF's
 * words; hf_folder.c finds the files. `name` is the file's name for sentences.
 * The bytes given must outlive f only where said. */

#include "file/tensorfile.h"

/* Opens the folder at path. */
gm_status gm_hf_open(gm_tensorfile *f, const char *path, gm_err *err);

/* config.json -> gemma3.* keys, in both dialects (rope_theta and rope_scaling of transformers 4,
 * rope_parameters and layer_types of 5; flat or under text_config). */
gm_status gm_hf_config_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                             gm_err *err);

/* generation_config.json -> gemmule.sampling.{temperature,top_k,top_p} where the file has them. */
gm_status gm_hf_generation_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                 const char *name, gm_err *err);

/* One safetensors file -> tensors, renamed as in GGUF. data must outlive f. */
gm_status gm_safetensors_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                               gm_err *err);

/* tokenizer.model (SentencePiece's protobuf) -> tokenizer.ggml.* keys. data must outlive f. */
gm_status gm_sp_model_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                            gm_err *err);

/* tokenizer.json -> tokenizer.ggml.* keys. */
gm_status gm_hf_tokenizer_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                const char *name, gm_err *err);

#endif
