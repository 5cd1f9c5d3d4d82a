/* SPDX-License-Identifier: MIT */
#ifndef GM_FILE_GGUF_H
#define GM_FILE_GGUF_H

/* GGUF, versions 2 and 3, little-endian. gguf_read.c parses one file, gguf_split.c opens a model,
 * which may be several, and gguf_write.c writes. */

#include <stdio.h>

#include "file/tensorfile.h"

#define GM_GGUF_ALIGNMENT 32

/* True when the bytes begin like a GGUF file. */
bool gm_gguf_is(const uint8_t *data, size_t size);

/* Parses one GGUF file that lies in memory and appends its metadata and tensors to f; `name` is
 * used in sentences. The memory must outlive f. Nothing in it is trusted: every count, offset and
 * length is checked before use, tensors may not overlap or leave the file. Where f already has
 * parts, this must be the next one of the same split model, and its metadata is checked and not
 * kept. After a failure f is only good for closing. This is the fuzz target's entry. */
gm_status gm_gguf_parse(gm_tensorfile *f, const uint8_t *data, size_t size, const char *name,
                        gm_err *err);

/* Opens path and, where its metadata says it is the first of several, the other parts. */
gm_status gm_gguf_open(gm_tensorfile *f, const char *path, gm_err *err);

/* For gguf_read.c: refuses a file whose metadata does not make it the next part of f. */
gm_status gm_gguf_split_check(const gm_tensorfile *f, const gm_meta *meta, gm_err *err);

/* Writes a GGUF v3 header: metadata, tensor table (offsets computed in order, each aligned) and
 * padding, so that the caller then writes each tensor's bytes followed by gm_gguf_pad of its size.
 * Tensor data pointers are not read. GM_E_IO has errno in err->os; what `out` still buffers is
 * the caller's to flush. */
gm_status gm_gguf_write_header(FILE *out, const gm_meta *meta, const gm_tensors *tensors,
                               const char *name, gm_err *err);

/* Bytes of that header. */
uint64_t gm_gguf_header_size(const gm_meta *meta, const gm_tensors *tensors);

/* The number that files have for "mostly of this type"; of a K mix, its small variant. */
uint32_t gm_gguf_file_type(gm_qtype type);

/* Bytes of padding after a tensor of that size. */
size_t gm_gguf_pad(uint64_t size);

#endif
