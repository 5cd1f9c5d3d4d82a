/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <inttypes.h>
#include <string.h>

#include "output.h"
#include "session.h"

typedef struct devices_opts {
    gm_general_args general;
} devices_opts;

static const gm_arggroup groups[] = {
    {"Output", gm_general_rows, offsetof(devices_opts, general)},
    {0},
};

static void print_device(const gm_device_info *d)
{
    char bytes[16], free[16];
    gm_out_printf("%" PRIu32 "  %s (%s)\n   driver    %s\n", d->index, d->name, d->kind, d->driver);
    if (d->why_not[0]) {
        gm_out_printf("   not used  %s\n", d->why_not);
        return;
    }
    gm_out_printf("   auto      %s\n", strcmp(d->kind, "cpu") == 0
                                           ? "passes it over: it is the processor"
                                           : "takes it for a model that fits, if none is better");
    gm_out_printf("   features  %s\n   memory    ", d->features);
    for (uint32_t i = 0; i < d->n_heaps; i++) {
        const gm_device_heap *const h = &d->heaps[i];
        gm_out_printf("%sheap %" PRIu32 ": %s, %s free%s%s\n", i ? "             " : "", i,
                      gm_size_text(h->bytes, bytes), gm_size_text(h->free, free),
                      h->local ? ", the device's own" : "", h->mapped ? ", mapped" : "");
    }
    gm_out_printf("             at most %s in one piece\n   kernels   ",
                  gm_size_text(d->max_alloc, bytes));
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        const gm_device_kernel *const k = &d->kernels[i];
        gm_out_printf("%s%-42s %-13s %s\n", i ? "             " : "", k->op, k->kernel, k->why);
    }
}

/* What has the loader and drivers that the sentence misses, where it misses them. */
static void print_none(const char *sentence)
{
    gm_out_printf("none: %s\n", sentence);
    if (strstr(sentence, "loader"))
        gm_out_printf("Debian and Ubuntu have them in libvulkan1 (the loader) and "
                      "mesa-vulkan-drivers; NVIDIA's driver has its own\n");
}

static json_t *json_text(const char *text)
{
    return gm_outjson_text(text, strlen(text));
}

static json_t *device_json(const gm_device_info *d)
{
    json_t *const heaps = gm_need(json_array()), *const kernels = gm_need(json_array());
    for (uint32_t i = 0; i < d->n_heaps; i++) {
        const gm_device_heap *const h = &d->heaps[i];
        gm_outjson_append(heaps, json_pack("{s:I, s:I, s:b, s:b}", "bytes", (json_int_t)h->bytes,
                                           "free", (json_int_t)h->free, "local", (int)h->local,
                                           "mapped", (int)h->mapped));
    }
    for (uint32_t i = 0; i < d->n_kernels; i++) {
        const gm_device_kernel *const k = &d->kernels[i];
        gm_outjson_append(
            kernels, json_pack("{s:s, s:s, s:s}", "op", k->op, "kernel", k->kernel, "why", k->why));
    }
    return gm_need(json_pack(
        "{s:I, s:o, s:s, s:o, s:b, s:o, s:o, s:I, s:o, s:o}", "index", (json_int_t)d->index, "name",
        json_text(d->name), "kind", d->kind, "driver", json_text(d->driver), "usable",
        d->why_not[0] == 0, "why_not", json_text(d->why_not), "features", json_text(d->features),
        "max_alloc", (json_int_t)d->max_alloc, "heaps", heaps, "kernels", kernels));
}

static int run(const gm_command *self, const void *opts, const gm_words *words)
{
    const devices_opts *const o = opts;
    gm_err err = {0};
    gm_device_info d = {.size = sizeof d};
    if (words->n)
        return gm_args_refuse(self, "there is a word, %.80s; expected options only", words->at[0]);
    json_t *const all = gm_need(json_array());
    gm_status status = gm_device_describe("vulkan", 0, &d, &err);
    for (uint32_t i = 1; status == GM_OK; i++) {
        if (o->general.json)
            gm_outjson_append(all, device_json(&d));
        else
            print_device(&d);
        status = gm_device_describe("vulkan", i, &d, &err);
    }
    /* Past the last is the end; that there is none at all is worth a sentence. */
    const bool none = status != GM_E_ARG;
    if (o->general.json)
        gm_out_json(json_pack("{s:O, s:o}", "devices", all, "note",
                              none ? json_text(err.msg) : gm_need(json_null())));
    json_decref(all);
    if (none && !o->general.json) print_none(err.msg);
    return GM_EXIT_OK;
}

const gm_command gm_cmd_devices = {
    .name = "devices",
    .summary = "list the GPUs that --backend vulkan can use, and how",
    .about =
        "Every Vulkan device of this machine, with its memory and the kernel that each op would\n"
        "run there. Its number or a part of its name goes behind --device; a device that cannot\n"
        "be used is shown with the reason. A device of the kind cpu is this processor in a GPU's\n"
        "clothes (Mesa's llvmpipe): right, but slower than --backend cpu.",
    .examples = "gemmule devices\n"
                "gemmule run --backend vulkan --device 0 \"Hello\"",
    .groups = groups,
    .opts_size = sizeof(devices_opts),
    .run = run,
};
