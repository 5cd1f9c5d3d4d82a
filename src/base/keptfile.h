/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_KEPTFILE_H
#define GM_BASE_KEPTFILE_H

/* A file that spares work done before, and may go at any time: a head with magic, version, a key,
 * the length and a hash of all, then the bytes. The key says what they hold for; with any other they
 * are of no use. A file that is cut short, or differs in any bit, is found out before anything of it
 * is used. */

#include "base/mapfile.h"

/* All-zero is a closed one. */
typedef struct gm_keptfile {
    gm_mapfile map;
    const uint8_t *data; /* the bytes, until close; NULL where there is no file, or none to use */
    size_t size;
} gm_keptfile;

/* Opens the file; answers what is wrong with it, in words that follow its name, or NULL: there is
 * nothing wrong, or no file. */
const char *gm_keptfile_open(gm_keptfile *f, const char *path, uint64_t key);
void gm_keptfile_close(gm_keptfile *f);

/* Replaces the file, in a folder that is there; answers 0, or errno, and leaves it as it was. */
int gm_keptfile_write(const char *path, uint64_t key, const void *data, size_t size);

#endif
