/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_HF_H
#define GM_FILE_HF_H

/* Hugging Face folders: config.json, model.safetensors or its shards, and the
 * tokenizer. Each parser takes memory and appends to the tensorfile in GGUF's
 * words, so that nothing behind it knows where a model came from; hf_folder.c
 * finds the files. `name` is the file's name for sentences. The bytes given must
 * outlive f only where said. Nothing in them is trusted, so each parser is also a
 * fuzz target's entry: f may be all zero. After a failure f holds part of the
 * file and is good for closing only.
 *
 *     config.json              hf_config.c      generation_config.json   hf_config.c
 *     *.safetensors            safetensors.c    tokenizer_config.json    hf_vocab.c
 *     tokenizer.model          sp_model.c       tokenizer.json           hf_tokenizer.c
 *
 * One key beside those of tensorfile.h: gemmule.tied_embeddings (bool), whether
 * the output matrix is the embedding whatever else is stored. */

#include "file/tensorfile.h"

/* Opens the folder at path. */
gm_status gm_hf_open(gm_tensorfile *f, const char *path, gm_err *err);

/* config.json -> gemma3.* keys, in both dialects (rope_theta and rope_scaling of transformers 4,
 * rope_parameters and layer_types of 5; flat or under text_config). */
gm_status gm_hf_config_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                             gm_err *err);

/* generation_config.json -> general.sampling.{temp,top_k,top_p} where the file has them. */
gm_status gm_hf_generation_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                 const char *name, gm_err *err);

/* One safetensors file -> tensors, renamed as in GGUF. data must outlive f. Names must be unique
 * over all files parsed into f. */
gm_status gm_safetensors_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                               gm_err *err);

/* tokenizer.model (SentencePiece's protobuf) -> tokenizer.ggml.* keys. data must outlive f. */
gm_status gm_sp_model_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                            gm_err *err);

/* tokenizer.json -> tokenizer.ggml.* keys. A list of merges that no list of scores can stand for is
 * refused. */
gm_status gm_hf_tokenizer_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                const char *name, gm_err *err);

/* tokenizer_config.json -> tokenizer.chat_template, add_bos_token, the ids of bos_token and its like
 * where still unknown, and its added tokens into the vocabulary that one of the two parsers above
 * put into f. */
gm_status gm_hf_tokenizer_config_parse(gm_tensorfile *f, const uint8_t *data, size_t size,
                                       const char *name, gm_err *err);

/* What a Hugging Face tensor is called in GGUF files. */
typedef enum gm_hf_name {
    GM_HF_NAME_TEXT,    /* a tensor of the text model: out has its name     */
    GM_HF_NAME_VISION,  /* of the vision tower or the projector             */
    GM_HF_NAME_IGNORED, /* a table that can be computed (rotary inv_freq)   */
    GM_HF_NAME_UNKNOWN,
} gm_hf_name;
#define GM_HF_NAME_MAX 64
gm_hf_name gm_hf_tensor_name(gm_str hf, char out[GM_HF_NAME_MAX]);

#endif
