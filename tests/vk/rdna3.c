/* SPDX-License-Identifier: MIT */
/* What RADV's compiler makes of every shader, one line a variant, for tests/rdna3/run.
 *
 *     scripts/vulkan-env phoenix build/release/tests/rdna3/rdna3 [-a] [PREFIX]
 *
 * A variant is a module with one legal value for each of its spec constants; all combinations
 * are compiled. Of products those are compiled that vk_shape.c chooses. PREFIX takes only modules whose names begin so; -a prints the assembly too. The
 * null device compiles as the real driver does, and cannot run anything.
 *
 * Statistics come from VK_KHR_pipeline_executable_properties, instruction counts from the
 * assembly that it hands out. A loop is the text between a label and the last branch back to it;
 * the counts of `loop` are of the lines that lie in the most loops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "fixtures/vk/gpu.h"

typedef struct counts {
    uint32_t loads, loads_b128, dot4, wmma;
    struct {
        uint32_t narrow; /* loads of less than 4 bytes                 */
        uint32_t drains; /* waits until all loads are back            */
        uint32_t dot4, valu, vopd;
    } loop;
} counts;

static uint64_t statistic(const VkPipelineExecutableStatisticKHR *all, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(all[i].name, name) == 0) return all[i].value.u64;
    }
    fprintf(stderr, "rdna3: the driver has no statistic \"%s\"; Mesa 25 has\n", name);
    exit(1);
}

/* The number of the block that a line names ("BB3:", "s_branch BB3"), or -1. */
static long block_named(const char *line)
{
    const char *const bb = strstr(line, "BB");
    return bb != NULL ? strtol(bb + 2, NULL, 10) : -1;
}

/* Adds 1 to depth of every line of the loop that starts at lines[at], if one does. */
static void mark_loop(char **lines, size_t n, size_t at, uint32_t *depth)
{
    if (strncmp(lines[at], "BB", 2) != 0) return;
    size_t end = at;
    for (size_t i = at; i < n; i++) {
        if (strstr(lines[i], "branch") != NULL && block_named(lines[i]) == block_named(lines[at])) {
            end = i;
        }
    }
    for (size_t i = at; i < end; i++)
        depth[i]++;
}

static bool has(const char *line, const char *word)
{
    return strstr(line, word) != NULL;
}

static void count_line(counts *c, const char *line, bool in_loop)
{
    const bool load = has(line, "global_load") || has(line, "\tbuffer_load");
    const bool narrow = has(line, "_u8") || has(line, "_i8") || has(line, "_u16") ||
                        has(line, "_i16") || has(line, "_d16");
    /* The disassembler does not know some instructions on halves of a register. */
    const bool valu = strncmp(line, "\tv_", 3) == 0 || strncmp(line, "(invalid", 8) == 0;
    c->loads += load;
    c->loads_b128 += load && has(line, "_b128");
    c->dot4 += has(line, "v_dot4");
    c->wmma += has(line, "v_wmma");
    if (!in_loop) return;
    c->loop.narrow += load && narrow;
    c->loop.drains += has(line, "vmcnt(0)");
    c->loop.dot4 += has(line, "v_dot4");
    c->loop.valu += valu;
    c->loop.vopd += has(line, "v_dual_");
}

/* Cuts the text into lines, in place. */
static counts count(char *assembly)
{
    size_t n = 0, cap = 1;
    for (const char *p = assembly; *p != '\0'; p++)
        cap += *p == '\n';
    char **const lines = calloc(cap, sizeof *lines);
    uint32_t *const depth = calloc(cap, sizeof *depth);
    counts c = {0};
    if (lines == NULL || depth == NULL) exit(1);
    for (char *rest = assembly, *line; n < cap && (line = strsep(&rest, "\n")) != NULL;) {
        lines[n++] = line;
    }
    for (size_t i = 0; i < n; i++)
        mark_loop(lines, n, i, depth);
    uint32_t most = 1;
    for (size_t i = 0; i < n; i++)
        most = depth[i] > most ? depth[i] : most;
    for (size_t i = 0; i < n; i++)
        count_line(&c, lines[i], depth[i] == most);
    free(lines);
    free(depth);
    return c;
}

/* The assembly of a pipeline's one executable, to be freed, NULL when there is none. */
static char *assembly_of(gpu *g, const VkPipelineExecutableInfoKHR *which)
{
    VkPipelineExecutableInternalRepresentationKHR forms[16];
    uint32_t n = 16;
    for (uint32_t i = 0; i < n; i++) {
        forms[i] = (VkPipelineExecutableInternalRepresentationKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR,
        };
    }
    g->vk.vkGetPipelineExecutableInternalRepresentationsKHR(g->device, which, &n, forms);
    for (uint32_t i = 0; i < n; i++)
        forms[i].pData = calloc(forms[i].dataSize + 1, 1);
    g->vk.vkGetPipelineExecutableInternalRepresentationsKHR(g->device, which, &n, forms);
    char *found = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (found == NULL && strcmp(forms[i].name, "Assembly") == 0) {
            found = forms[i].pData;
        } else {
            free(forms[i].pData);
        }
    }
    return found;
}

static void print_head(void)
{
    printf("variant\twave\tvgprs\tspills\tscratch\twaves\tlds\tcode\tloads\tb128\tdot4\twmma\t"
           "narrow\tdrains\tldot4\tvalu\tvopd\tlatency\tcycles\n");
}

/* Prints the figures of a pipeline that was made to be looked into. */
static void print_figures(gpu *g, VkPipeline p, bool with_assembly)
{
    const VkPipelineInfoKHR of = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = p};
    const VkPipelineExecutableInfoKHR which = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
        .pipeline = p,
    };
    VkPipelineExecutablePropertiesKHR exe = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR,
    };
    VkPipelineExecutableStatisticKHR st[64];
    uint32_t n = 64, one = 1;
    for (uint32_t i = 0; i < n; i++) {
        st[i] = (VkPipelineExecutableStatisticKHR){
            .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR,
        };
    }
    g->vk.vkGetPipelineExecutablePropertiesKHR(g->device, &of, &one, &exe);
    g->vk.vkGetPipelineExecutableStatisticsKHR(g->device, &which, &n, st);
    char *const assembly = assembly_of(g, &which);
    if (assembly == NULL) {
        fprintf(stderr, "rdna3: the driver hands out no assembly\n");
        exit(1);
    }
    if (with_assembly) fprintf(stderr, "%s\n", assembly);
    const counts c = count(assembly);
    free(assembly);
    /* The driver counts subgroups as if each were a wave of 32. */
    const uint64_t waves = statistic(st, n, "Subgroups per SIMD") * 32 / exe.subgroupSize;
    const uint64_t figures[] = {
        exe.subgroupSize,
        statistic(st, n, "VGPRs"),
        statistic(st, n, "Spilled VGPRs") + statistic(st, n, "Spilled SGPRs"),
        statistic(st, n, "Scratch size"),
        waves,
        statistic(st, n, "LDS size"),
        statistic(st, n, "Code size"),
        c.loads,
        c.loads_b128,
        c.dot4,
        c.wmma,
        c.loop.narrow,
        c.loop.drains,
        c.loop.dot4,
        c.loop.valu,
        c.loop.vopd,
        statistic(st, n, "Latency"),
        statistic(st, n, "Inverse Throughput"),
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        printf("\t%llu", (unsigned long long)figures[i]);
    }
    printf("\n");
}

static void print_variant(gpu *g, const gm_vk_shader *s, const uint32_t *values, bool with_assembly)
{
    printf("%s", s->name);
    for (uint32_t i = 0; i < s->n_spec; i++)
        printf(" %s=%u", s->spec[i].name, values[i]);
    const VkPipeline p =
        gpu_pipeline(g, s, values,
                     VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                         VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR);
    if (p == VK_NULL_HANDLE) {
        printf("\trefused\n");
        return;
    }
    print_figures(g, p, with_assembly);
    g->vk.vkDestroyPipeline(g->device, p, NULL);
}

/* The values of the i-th combination; false past the last. */
static bool combination(const gm_vk_shader *s, uint32_t i, uint32_t *values)
{
    for (uint32_t k = 0; k < s->n_spec; k++) {
        values[k] = s->spec[k].legal[i % s->spec[k].n_legal];
        i /= s->spec[k].n_legal;
    }
    return i == 0;
}

/* What lowering asks for: columns, planes, blocks of a row (27B's down matrix, or 168 of those that read
 * norms, which they then have in front), what follows. */
static const gm_vk_product products[] = {
    {.columns = 1, 1, 672},
    {.columns = 2, 1, 672},
    {.columns = 4, 1, 672},
    {.columns = 8, 1, 672},
    {.columns = 16, 1, 672},
    {.columns = 32, 1, 672},
    {.columns = 2, 2, 672},
    {.columns = 4, 2, 672},
    {.columns = 8, 2, 672},
    {.columns = 16, 2, 672},
    {.columns = 32, 2, 672},
    {.columns = 1, 1, 672, .after = GM_VK_AFTER_GELU},
    {.columns = 2, 1, 672, .after = GM_VK_AFTER_GELU},
    {.columns = 4, 1, 672, .after = GM_VK_AFTER_GELU},
    {.columns = 8, 1, 672, .after = GM_VK_AFTER_GELU},
    {.columns = 16, 1, 672, .after = GM_VK_AFTER_GELU},
    {.columns = 1, 1, 672, .flows = true},
    {.columns = 2, 2, 168, .flows = true},
    {.columns = 1, 1, 168, .after = GM_VK_AFTER_GELU, .flows = true},
    {.columns = 2, 2, 128, .after = GM_VK_AFTER_NORM, .flows = true},
    {.columns = 1, 1, 168, .after = GM_VK_AFTER_GELU},
    {.columns = 2, 1, 168, .after = GM_VK_AFTER_GELU},
    {.columns = 4, 1, 168, .after = GM_VK_AFTER_GELU},
    {.columns = 8, 1, 168, .after = GM_VK_AFTER_GELU},
    {.columns = 16, 1, 168, .after = GM_VK_AFTER_GELU},
    {.columns = 32, 1, 168, .after = GM_VK_AFTER_GELU},
    {.columns = 2, 2, 168},
    {.columns = 4, 2, 168},
    {.columns = 8, 2, 168},
    {.columns = 16, 2, 168},
    {.columns = 32, 2, 168},
};

/* What makes lowering ask for a pipeline on a Radeon 780M: the results of its matrices lie column by
 * column. */
static gm_vk_tuning tuning_for(const gm_vk_shader *s)
{
    const bool mma = strcmp(s->pipeline, "matmul_mma") == 0;
    const bool tiles = mma || strcmp(s->pipeline, "matmul_tile") == 0;
    const bool fragments = strcmp(s->pipeline, "matmul_fragment") == 0;
    return (gm_vk_tuning){.subgroup = 32,
                          .max_shared = 65536,
                          .words_under_way = 20,
                          .front_turns = 4,
                          .matrix_depth = mma ? 16 : 0,
                          .row_bits = 7,
                          .tile_from = tiles ? 5 : UINT32_MAX,
                          .fragments = fragments,
                          .half_from = strcmp(s->pipeline, "matmul_half") == 0 ? 1 : UINT32_MAX};
}

/* The values of the i-th variant; false past the last. Lowering asks for no such one where *made is
 * false. */
static bool variant(const gm_vk_shader *s, uint32_t i, uint32_t *values, bool *made)
{
    *made = true;
    if (strncmp(s->name, "matmul", 6) != 0) return combination(s, i, values);
    if (i == sizeof products / sizeof *products) return false;
    const gm_vk_tuning tuning = tuning_for(s);
    gm_vk_product p = products[i];
    gm_vk_cut cut;
    p.words = gm_vk_block_words((gm_qtype)s->type);
    p.two_scales = gm_vk_two_scales((gm_qtype)s->type);
    p.n_rows = 5376;
    p.fragments = tuning.fragments;
    if (p.flows && strcmp(s->pipeline, "matmul") != 0) p.flows = false;
    if (!p.words) p.n_blocks = 0;
    gm_vk_cut_product(&tuning, &p, &cut);
    if (products[i].n_blocks == 168 && !products[i].flows)
        cut.spec[GM_VK_MM_FRONT] = gm_vk_front_turns(&tuning, 5376, cut.spec[GM_VK_MM_LANES]);
    memcpy(values, cut.spec, sizeof cut.spec);
    *made = strcmp(cut.pipeline, s->pipeline) == 0;
    return true;
}

/* Whether the device has subgroups of the size asked for. */
static bool fits(const gpu *g, const gm_vk_shader *s, const uint32_t *values)
{
    for (uint32_t k = 0; k < s->n_spec; k++) {
        const bool sized = strcmp(s->spec[k].name, "SUBGROUP") == 0 && values[k] != 0;
        if (sized && (values[k] < g->subgroup_min || values[k] > g->subgroup_max)) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    const bool with_assembly = argc > 1 && strcmp(argv[1], "-a") == 0;
    const char *const prefix = argc > 1 + with_assembly ? argv[1 + with_assembly] : "";
    gpu g;
    const char *const why = gpu_open(&g);
    if (why != NULL || !g.statistics) {
        fprintf(stderr, "rdna3: %s\n", why != NULL ? why : "the driver gives no statistics");
        return 1;
    }
    fprintf(stderr, "%s, %s\n", g.name, g.driver);
    print_head();
    for (uint32_t i = 0; i < gm_vk_n_shaders; i++) {
        const gm_vk_shader *const s = &gm_vk_shaders[i];
        uint32_t values[GPU_SPEC_MAX > GM_VK_SPECS ? GPU_SPEC_MAX : GM_VK_SPECS];
        if (strncmp(s->name, prefix, strlen(prefix)) != 0) continue;
        bool made;
        for (uint32_t v = 0; variant(s, v, values, &made); v++) {
            if (made && fits(&g, s, values)) print_variant(&g, s, values, with_assembly);
        }
    }
    gpu_close(&g);
    return 0;
}
