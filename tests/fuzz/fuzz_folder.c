/* SPDX-License-Identifier: MIT */
/* A Hugging Face folder of two shards in which one file is the input: the index of the shards or a
 * chat template. The first byte says which. The other files are small and valid. */
#include <unistd.h>

#include "file/hf.h"
#include "fuzz/fuzz.h"

static const char INDEX[] = "model.safetensors.index.json";
static const char INDEX_TEXT[] =
    "{\"weight_map\":{\"norm.weight\":\"a\",\"lm_head.weight\":\"b\",\"v.x\":\"b\"}}";
static const char CONFIG[] = "{\"model_type\":\"gemma3_text\",\"tie_word_embeddings\":false}";
static const char TOKENIZER[] =
    "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
    "\"content\":\"\xE2\x96\x81\"},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3},\"merges\":[[\"a\",\"b\"]]}}";
static const char *const INPUTS[] = {INDEX, "chat_template.json", "chat_template.jinja"};

static char folder[64];

static const char *path(const char *name)
{
    static char buf[160];
    snprintf(buf, sizeof buf, "%s/%s", folder, name);
    return buf;
}

static void put(const char *name, const void *bytes, size_t size)
{
    FILE *const out = fopen(path(name), "wb");
    FUZZ_CHECK(out && fwrite(bytes, 1, size, out) == size);
    FUZZ_CHECK(fclose(out) == 0);
}

/* A safetensors file with one tensor of one value. */
static void put_shard(const char *name, const char *tensor)
{
    char bytes[128] = {0};
    const int n =
        snprintf(bytes + 8, sizeof bytes - 12,
                 "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    bytes[0] = (char)n;
    put(name, bytes, 8 + (size_t)n + 4);
}

static void folder_remove(void)
{
    static const char *const NAMES[] = {"config.json", "tokenizer.json", "a", "b"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        unlink(path(NAMES[i]));
    for (size_t i = 0; i < sizeof INPUTS / sizeof INPUTS[0]; i++)
        unlink(path(INPUTS[i]));
    rmdir(folder);
}

static void folder_make(void)
{
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/fuzz.XXXXXX", tmp ? tmp : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    atexit(folder_remove);
    put("config.json", CONFIG, sizeof CONFIG - 1);
    put("tokenizer.json", TOKENIZER, sizeof TOKENIZER - 1);
    put(INDEX, INDEX_TEXT, sizeof INDEX_TEXT - 1);
    put_shard("a", "norm.weight");
    put_shard("b", "lm_head.weight");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    if (!folder[0]) folder_make();
    const char *const input = INPUTS[data[0] % 3];
    put(input, data + 1, size - 1);
    gm_err err = {0};
    gm_tensorfile *f = NULL;
    if (fuzz_ok(gm_tensorfile_open(&f, folder, &err), &err)) FUZZ_CHECK(f->n_tensors <= 2);
    gm_tensorfile_close(f);
    if (input == INDEX)
        put(INDEX, INDEX_TEXT, sizeof INDEX_TEXT - 1);
    else
        unlink(path(input));
    return 0;
}
