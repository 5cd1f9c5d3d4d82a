/* SPDX-License-Identifier: MIT */
#ifndef GEMMULE_TOOLS_H
#define GEMMULE_TOOLS_H

/* For programs that prepare models and look into them. The same rules as in
 * gemmule.h hold: one sentence for a failure, no printing, no exiting. */

#include "gemmule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- looking into a model file --------------------------------------------------------- */

/* A model file opened for reading its metadata and tensor table; it need not be a Gemma 3. */
typedef struct gm_modelfile gm_modelfile;

gm_status gm_modelfile_open(gm_modelfile **out, const char *path, gm_err *err);
void gm_modelfile_close(gm_modelfile *f);

/* "GGUF v3", "Hugging Face safetensors". */
const char *gm_modelfile_format(const gm_modelfile *f);

typedef struct gm_keyinfo {
    uint32_t size;   /* sizeof(gm_keyinfo), filled in by the caller                            */
    const char *key; /* not NUL-terminated: key_len bytes                                      */
    size_t key_len;
    const char *type; /* "u32", "string", "array of f32"                                        */
    uint64_t n;       /* elements of an array, 1 for anything else                              */
    char value[200];  /* as text, safe to show; long strings and arrays end in "..."            */
} gm_keyinfo;
/* The i-th key; GM_E_ARG past the last. */
gm_status gm_modelfile_key(const gm_modelfile *f, size_t i, gm_keyinfo *info);

typedef struct gm_tensorinfo {
    uint32_t size;
    uint32_t n_dims;
    uint64_t shape[4]; /* rightmost contiguous */
    const char *name;
    const char *type;
    uint64_t bytes;
} gm_tensorinfo;
/* The i-th tensor of the text model; GM_E_ARG past the last. */
gm_status gm_modelfile_tensor(const gm_modelfile *f, size_t i, gm_tensorinfo *info);

/* Tensors of a vision tower, which are named and left out: how many, and their bytes. */
uint32_t gm_modelfile_skipped(const gm_modelfile *f, uint64_t *bytes);

/* Memory that a model needs beside its file: bytes of KV cache for n_ctx positions of one request. */
uint64_t gm_model_kv_size(const gm_model *m, uint32_t n_ctx);

/* The model's plan, one line an op, in malloc'ed text that gm_text_free frees. */
gm_status gm_model_plan_text(const gm_model *m, char **text, gm_err *err);
void gm_text_free(char *text);

/* ---- synthetic models ------------------------------------------------------------------ */

/* Told now and then; answers 0 to cancel. */
typedef int (*gm_progress_fn)(void *ctx, uint64_t done, uint64_t total);

typedef struct gm_synth_opts {
    uint32_t size;
    uint32_t force;        /* 1: replace a file that is there                              */
    const char *shape;     /* "tiny", "270m", "1b", "4b", "12b" or "27b"                   */
    const char *type;      /* of the layers' matrices: "q4_0", "bf16" ...                  */
    const char *head_type; /* of the embedding and head; NULL: the same                    */
    uint64_t seed;
    gm_progress_fn progress; /* may be NULL */
    void *progress_ctx;
} gm_synth_opts;
gm_synth_opts gm_synth_opts_default(void);

/* Writes a Gemma 3 model with random weights: the right shapes and metadata, a vocabulary with
 * Gemma's control ids and byte pieces, weights from a counter (docs/SYNTH.md), so the same options
 * give the same bytes on every machine. The file appears under its name only when it is whole. */
gm_status gm_synth_write(const char *path, const gm_synth_opts *opts, gm_err *err);

#ifdef __cplusplus
}
#endif

#endif
