/* SPDX-License-Identifier: MIT */
/* replay FILE|FOLDER ...    gives each file, or each file of a folder, to the fuzz target that this
 * program was linked with. An input that breaks something ends the process, as when fuzzing. Fails
 * where there is nothing to replay. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "fuzz/fuzz.h"

static size_t n_inputs;

static bool refuse(const char *path, const char *why)
{
    fprintf(stderr, "%s: %s\n", path, why);
    return false;
}

/* The bytes go into a block of exactly their size. */
static bool replay_file(const char *path, size_t size)
{
    FILE *const in = fopen(path, "rb");
    uint8_t *const bytes = malloc(size ? size : 1);
    const bool ok = in && bytes && fread(bytes, 1, size, in) == size;
    if (in) fclose(in);
    if (ok) {
        /* Not flushed by a crash, so standard error: the last line names the input. */
        fprintf(stderr, "%s\n", path);
        uint8_t *const exact = size ? bytes : NULL;
        LLVMFuzzerTestOneInput(exact, size);
        n_inputs++;
    }
    free(bytes);
    return ok || refuse(path, "cannot be read");
}

static bool replay(const char *path);

static bool replay_folder(const char *path)
{
    bool ok = true;
    const size_t before = n_inputs;
    DIR *const dir = opendir(path);
    if (!dir) return refuse(path, strerror(errno));
    for (const struct dirent *e = readdir(dir); e && ok; e = readdir(dir)) {
        char file[4096];
        if (e->d_name[0] == '.') continue;
        const int n = snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        ok = n > 0 && (size_t)n < sizeof file ? replay(file) : refuse(path, "its name is too long");
    }
    closedir(dir);
    return ok && (n_inputs > before || refuse(path, "has no inputs"));
}

static bool replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return refuse(path, strerror(errno));
    return S_ISDIR(st.st_mode) ? replay_folder(path) : replay_file(path, (size_t)st.st_size);
}

int main(int argc, char **argv)
{
    bool ok = argc > 1 || refuse(argv[0], "expected the files or folders to replay");
    for (int i = 1; i < argc && ok; i++)
        ok = replay(argv[i]);
    printf("%zu inputs replayed\n", n_inputs);
    return ok ? 0 : 1;
}
