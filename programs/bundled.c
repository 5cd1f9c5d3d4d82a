/* SPDX-License-Identifier: MIT */
#include "bundled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

#define MODEL "gemmule-mini.gguf"

/* Where it may be, seen from the program's own folder. `make install` keeps bin/ and share/ beside
 * each other whatever the prefix, so an installed tree can be moved as a whole. */
static const char *const folders[] = {
    "../share/gemmule", /* installed: PREFIX/bin */
    "../../models",     /* built: build/CONFIG   */
};

char *gm_bundled_find(void)
{
    char *const program = realpath("/proc/self/exe", NULL);
    char *const end = program ? strrchr(program, '/') : NULL;
    char *found = NULL;
    if (end) *end = '\0';
    for (size_t i = 0; end && !found && i < sizeof folders / sizeof folders[0]; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s/" MODEL, program, folders[i]) < 0) gm_need(NULL);
        found = realpath(path, NULL);
        free(path);
    }
    if (!found) {
        gm_say_failed("the model that comes with gemmule, " MODEL ", is neither in %s nor in %s, "
                      "seen from %s; name one yourself (-m MODEL; inspect: FILE)",
                      folders[0], folders[1], end ? program : "the program's folder");
    }
    free(program);
    return found;
}
