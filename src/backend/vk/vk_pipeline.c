/* SPDX-License-Identifier: MIT */
#include "backend/vk/vk_pipeline.h"

#include <string.h>

#include "base/mem.h"

gm_status gm_vk_pipes_init(gm_vk_pipes *p, gm_vk_dev *d, const void *cached, size_t size,
                           gm_err *err)
{
    p->dev = d;
    const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, GM_VK_PUSH};
    const VkPipelineLayoutCreateInfo layout = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &push,
    };
    VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                       .initialDataSize = size,
                                       .pInitialData = cached};
    GM_TRY(gm_vk_check(d->vk.vkCreatePipelineLayout(d->device, &layout, NULL, &p->layout),
                       "the pipeline layout", err));
    if (size && d->vk.vkCreatePipelineCache(d->device, &cache, NULL, &p->cache) == VK_SUCCESS)
        return GM_OK;
    cache.initialDataSize = 0;
    return gm_vk_check(d->vk.vkCreatePipelineCache(d->device, &cache, NULL, &p->cache),
                       "the pipeline cache", err);
}

void gm_vk_pipes_deinit(gm_vk_pipes *p)
{
    gm_vk_dev *const d = p->dev;
    if (!d || !d->device) return;
    for (size_t i = 0; i < p->n; i++)
        d->vk.vkDestroyPipeline(d->device, p->at[i].pipeline, NULL);
    d->vk.vkDestroyPipelineCache(d->device, p->cache, NULL);
    d->vk.vkDestroyPipelineLayout(d->device, p->layout, NULL);
    gm_mem_free(p->at);
    *p = (gm_vk_pipes){0};
}

static const gm_vk_shader *find_shader(const char *pipeline, int32_t type)
{
    for (uint32_t i = 0; i < gm_vk_n_shaders; i++) {
        const gm_vk_shader *const s = &gm_vk_shaders[i];
        if (s->type == type && strcmp(s->pipeline, pipeline) == 0) return s;
    }
    return NULL;
}

gm_status gm_vk_pipes_want(gm_vk_pipes *p, const char *pipeline, int32_t type, const uint32_t *spec,
                           uint32_t *out, gm_err *err)
{
    const gm_vk_shader *const s = find_shader(pipeline, type);
    *out = 0;
    if (!s || s->n_spec > GM_VK_SPECS)
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: there is no kernel %s of type %d", pipeline,
                       type);
    if (p->exact && !s->exact)
        return gm_fail(err, GM_E_UNSUP, 0, "vulkan: %s changes bits, expected an exact kernel",
                       s->name);
    for (size_t i = 0; i < p->n; i++) {
        if (p->at[i].shader != s || memcmp(p->at[i].spec, spec, s->n_spec * sizeof *spec)) continue;
        p->at[i].asked = true;
        *out = (uint32_t)i;
        return GM_OK;
    }
    GM_TRY(gm_mem_grow(&p->at, &p->cap, p->n + 1, sizeof *p->at, "pipelines", err));
    p->at[p->n] = (gm_vk_pipe){.shader = s, .asked = true};
    memcpy(p->at[p->n].spec, spec, s->n_spec * sizeof *spec);
    *out = (uint32_t)p->n++;
    return GM_OK;
}

void gm_vk_pipes_list_asked(gm_vk_pipes *p, gm_strbuf *out)
{
    for (size_t i = 0; i < p->n; i++) {
        gm_vk_pipe *const pipe = &p->at[i];
        if (!pipe->asked) continue;
        pipe->asked = false;
        gm_strbuf_printf(out, "%s%s", out->len ? " " : "", pipe->shader->name);
        for (uint32_t k = 0; k < pipe->shader->n_spec; k++)
            gm_strbuf_printf(out, "%c%u", k ? ',' : ':', pipe->spec[k]);
    }
}

/* *hit tells whether the driver says that it had it in the cache. */
static VkResult compile(gm_vk_pipes *p, gm_vk_pipe *pipe, bool *hit)
{
    enum {
        HIT = VK_PIPELINE_CREATION_FEEDBACK_VALID_BIT |
              VK_PIPELINE_CREATION_FEEDBACK_APPLICATION_PIPELINE_CACHE_HIT_BIT,
    };
    gm_vk_dev *const d = p->dev;
    const gm_vk_shader *const s = pipe->shader;
    VkSpecializationMapEntry entries[GM_VK_SPECS];
    for (uint32_t i = 0; i < s->n_spec; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * 4, 4};
    const VkSpecializationInfo spec = {s->n_spec, entries, sizeof pipe->spec, pipe->spec};
    const VkShaderModuleCreateInfo module = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                             .codeSize = s->n_words * 4ull,
                                             .pCode = s->words};
    VkPipelineCreationFeedback whole = {0}, stage = {0};
    const VkPipelineCreationFeedbackCreateInfo feedback = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO,
        .pPipelineCreationFeedback = &whole,
        .pipelineStageCreationFeedbackCount = 1,
        .pPipelineStageCreationFeedbacks = &stage,
    };
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
    for (uint32_t i = 0; i < s->n_spec && d->subgroup_min != d->subgroup_max; i++) {
        if (strcmp(s->spec[i].name, "SUBGROUP") == 0) size.requiredSubgroupSize = pipe->spec[i];
    }
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .pNext = &feedback,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = size.requiredSubgroupSize ? &size : NULL,
                  .flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .pName = "main",
                  .pSpecializationInfo = &spec},
        .layout = p->layout,
    };
    VkResult r = d->vk.vkCreateShaderModule(d->device, &module, NULL, &info.stage.module);
    if (r != VK_SUCCESS) return r;
    r = d->vk.vkCreateComputePipelines(d->device, p->cache, 1, &info, NULL, &pipe->pipeline);
    d->vk.vkDestroyShaderModule(d->device, info.stage.module, NULL);
    *hit = r == VK_SUCCESS && (whole.flags & HIT) == HIT;
    return r;
}

typedef struct compile_job {
    gm_vk_pipes *p;
    gm_tasks tasks;
    atomic_int failed; /* the first VkResult that was none of success */
    atomic_uint which;
    atomic_uint n_hits;
    atomic_uint n_done;
    atomic_bool cancelled;
} compile_job;

/* Worker 0 is the thread that asked for them. */
static bool goes_on(compile_job *j, uint32_t index, uint32_t n)
{
    const gm_progress *const ask = &j->p->ask;
    if (index == 0 && ask->tell && !ask->tell(ask->ctx, atomic_load(&j->n_done), n))
        atomic_store(&j->cancelled, true);
    return !atomic_load(&j->cancelled);
}

static void compile_some(void *ctx, uint32_t index)
{
    compile_job *const j = ctx;
    const uint32_t n = (uint32_t)(j->p->n - j->p->n_compiled);
    for (uint32_t i; goes_on(j, index, n) && gm_tasks_take(&j->tasks, n, 1, &i);) {
        bool hit = false;
        const VkResult r = compile(j->p, &j->p->at[j->p->n_compiled + i], &hit);
        int none = VK_SUCCESS;
        atomic_fetch_add(&j->n_done, 1);
        if (hit) atomic_fetch_add(&j->n_hits, 1);
        if (r != VK_SUCCESS && atomic_compare_exchange_strong(&j->failed, &none, (int)r))
            atomic_store(&j->which, (unsigned)(j->p->n_compiled + i));
    }
}

/* What was asked for since the last compiling, so that nobody meets one that failed again. */
static void forget_new(gm_vk_pipes *p)
{
    while (p->n > p->n_compiled)
        p->dev->vk.vkDestroyPipeline(p->dev->device, p->at[--p->n].pipeline, NULL);
}

gm_status gm_vk_pipes_compile(gm_vk_pipes *p, gm_workers *workers, gm_err *err)
{
    compile_job j = {.p = p};
    if (p->n == p->n_compiled) return GM_OK;
    gm_workers_run(workers, compile_some, &j);
    const unsigned n = (unsigned)(p->n - p->n_compiled), n_hits = atomic_load(&j.n_hits);
    const VkResult r = (VkResult)atomic_load(&j.failed);
    p->is_new = p->is_new || n_hits < atomic_load(&j.n_done); /* also where it goes no further */
    if (r != VK_SUCCESS) {
        const gm_vk_shader *const s = p->at[atomic_load(&j.which)].shader;
        forget_new(p);
        return gm_vk_check(r, s->name, err);
    }
    if (atomic_load(&j.cancelled)) {
        forget_new(p);
        return gm_fail(err, GM_E_CANCEL, 0, "compiling kernels was cancelled");
    }
    p->dev->count.pipelines += n;
    p->dev->count.cached += n_hits;
    p->n_compiled = p->n;
    return GM_OK;
}

gm_status gm_vk_pipes_save(gm_vk_pipes *p, void **bytes, size_t *size, gm_err *err)
{
    static const char what[] = "the pipeline cache";
    gm_vk_dev *const d = p->dev;
    *bytes = NULL;
    *size = 0;
    GM_TRY(gm_vk_check(d->vk.vkGetPipelineCacheData(d->device, p->cache, size, NULL), what, err));
    GM_TRY(gm_mem_alloc(bytes, *size, 1, what, err));
    const VkResult r = d->vk.vkGetPipelineCacheData(d->device, p->cache, size, *bytes);
    if (r == VK_SUCCESS) return GM_OK;
    gm_mem_free(*bytes);
    *bytes = NULL;
    return gm_vk_check(r, what, err);
}
