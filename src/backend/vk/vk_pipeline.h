/* SPDX-License-Identifier: MIT */
#ifndef GM_BACKEND_VK_PIPELINE_H
#define GM_BACKEND_VK_PIPELINE_H

/* Pipelines: entries of the shader table with values for their spec constants. Lowering asks for
 * what it wants and gets a number; compiling happens once for all that is new, on every core, with a
 * cache that may come from a file and go back to it. One thread calls. */

#include "backend/backend.h"
#include "backend/vk/vk_device.h"
#include "backend/vk/vk_shaders.h"
#include "base/strbuf.h"
#include "base/workers.h"

#define GM_VK_SPECS 13

typedef struct gm_vk_pipe {
    const gm_vk_shader *shader;
    uint32_t spec[GM_VK_SPECS];
    VkPipeline pipeline; /* once compiled */
    bool asked;          /* for, since gm_vk_pipes_list_asked */
} gm_vk_pipe;

typedef struct gm_vk_pipes {
    gm_vk_dev *dev;
    VkPipelineLayout layout; /* of all: push constants and nothing else */
    VkPipelineCache cache;
    gm_vk_pipe *at;
    size_t n, cap, n_compiled;
    bool is_new;     /* something was compiled that the cache may not have had */
    bool exact;      /* shaders that the manifest calls inexact are refused    */
    gm_progress ask; /* between pipelines that are compiled, of how many there are; all-zero: no */
} gm_vk_pipes;

/* cached (size bytes) is what gm_vk_pipes_save gave once, or NULL; a driver that has no use for it
 * begins anew. */
gm_status gm_vk_pipes_init(gm_vk_pipes *p, gm_vk_dev *d, const void *cached, size_t size,
                           gm_err *err);
void gm_vk_pipes_deinit(gm_vk_pipes *p);

/* The number of a pipeline; type is a gm_qtype or GM_VK_NO_TYPE, spec has a value for each of the
 * shader's constants, in the manifest's order. */
gm_status gm_vk_pipes_want(gm_vk_pipes *p, const char *pipeline, int32_t type, const uint32_t *spec,
                           uint32_t *out, gm_err *err);
/* Where one fails, or it is cancelled, all numbers since the last compiling are void. */
gm_status gm_vk_pipes_compile(gm_vk_pipes *p, gm_workers *workers, gm_err *err);

/* Appends the names and constants of the pipelines that were asked for since the last call. */
void gm_vk_pipes_list_asked(gm_vk_pipes *p, gm_strbuf *out);

/* The driver's cache as bytes, to be freed with gm_mem_free. */
gm_status gm_vk_pipes_save(gm_vk_pipes *p, void **bytes, size_t *size, gm_err *err);

#endif
