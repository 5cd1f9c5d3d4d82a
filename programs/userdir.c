/* SPDX-License-Identifier: MIT */
#include "userdir.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "output.h"

char *gm_userdir_path(const char *variable, const char *home_folder, const char *rest)
{
    const char *const named = getenv(variable);
    const char *const home = getenv("HOME");
    const bool has_named = named && named[0] == '/';
    if (!has_named && !(home && home[0])) return NULL;
    const char *const parts[] = {has_named ? named : home, has_named ? "" : home_folder, rest};
    gm_bytes path = {0};
    for (size_t i = 0; i < 3; i++)
        gm_bytes_put(&path, parts[i], strlen(parts[i]));
    gm_bytes_put(&path, "", 1);
    return path.p;
}

void gm_userdir_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

const char *gm_userdir_cache(void)
{
    static char *path;
    if (path) return path;
    path = gm_userdir_path("XDG_CACHE_HOME", "/.cache", "/gemmule");
    if (path) gm_userdir_make(path);
    return path;
}
