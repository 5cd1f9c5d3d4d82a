/* SPDX-License-Identifier: MIT */
#include "hint.h"

#include <string.h>

/* Options, commands and commands of a chat as llama.cpp, Ollama and converters spell them. Those of
 * ours that the place does not have are passed over. */
static const struct {
    const char *theirs, *ours;
} known[] = {
    {"-n", "--max-tokens"},
    {"--n-predict", "--max-tokens"},
    {"--num-predict", "--max-tokens"},
    {"--predict", "--max-tokens"},
    {"-c", "--ctx"},
    {"--ctx-size", "--ctx"},
    {"--num-ctx", "--ctx"},
    {"--context", "--ctx"},
    {"-t", "--threads"},
    {"--num-thread", "--threads"},
    {"--temperature", "--temp"},
    {"-s", "--seed"},
    {"-sys", "--system"},
    {"--system-prompt", "--system"},
    {"-ctk", "--kv-type"},
    {"--cache-type-k", "--kv-type"},
    {"-ngl", "--backend"},
    {"--gpu-layers", "--backend"},
    {"--n-gpu-layers", "--backend"},
    {"-dev", "--device"},
    {"-np", "--parallel"},
    {"-a", "--model-name"},
    {"--alias", "--model-name"},
    {"-r", "--stop"},
    {"--reverse-prompt", "--stop"},
    {"-p", "PROMPT"},
    {"--prompt", "PROMPT"},
    {"-p", "TEXT"},
    {"--outtype", "--type"},
    {"--quantize", "--type"},
    {"-q", "--type"},
    {"--imatrix", "--calibrate"},
    {"version", "--version"},
    {"generate", "run"},
    {"complete", "run"},
    {"server", "serve"},
    {"quantize", "convert"},
    {"perplexity", "compare"},
    {"show", "inspect"},
    {"ps", "top"},
    {"/clear", "/reset"},
    {"/new", "/reset"},
    {"/set", "/system"},
};

#define LONGEST 32

static size_t smallest(size_t a, size_t b, size_t c)
{
    const size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Letters to put in, leave out, change, or swap with their neighbour, to make b of a. Both are
 * shorter than LONGEST. */
static size_t distance(const char *a, const char *b)
{
    size_t d[LONGEST][LONGEST];
    const size_t n = strlen(a), m = strlen(b);
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = 0; k <= m; k++) {
            d[i][k] = i + k;
            if (i == 0 || k == 0) continue;
            d[i][k] = smallest(d[i - 1][k] + 1, d[i][k - 1] + 1,
                               d[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = smallest(d[i][k], d[i - 2][k - 2] + 1, d[i][k]);
        }
    }
    return d[n][m];
}

const char *gm_hint_find(const char *name, const char *const *names, size_t n)
{
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strcmp(known[k].theirs, name) != 0) continue;
        for (size_t i = 0; i < n; i++) {
            if (strcmp(names[i], known[k].ours) == 0) return names[i];
        }
    }
    if (strlen(name) >= LONGEST) return NULL;
    const char *nearest = NULL;
    const size_t n_letters = strlen(name) - strspn(name, "-/");
    size_t least = n_letters / 3 + 1; /* one slip for three letters, at most */
    for (size_t i = 0; i < n; i++) {
        const size_t far = strlen(names[i]) < LONGEST ? distance(name, names[i]) : LONGEST;
        if (far >= least) continue;
        least = far;
        nearest = names[i];
    }
    return nearest;
}
