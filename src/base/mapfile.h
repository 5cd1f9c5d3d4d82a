/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_MAPFILE_H
#define GM_BASE_MAPFILE_H

/* A file as read-only memory. All-zero is a valid closed map.
 *
 * The map is private and the file must not be cut while it is open: another
 * process that truncates it makes reads past the new end fatal (SIGBUS). */

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct gm_mapfile {
    const uint8_t *data; /* NULL for an empty file or a closed map */
    size_t size;
    uint64_t dev, ino; /* which file it is, as stat tells */
} gm_mapfile;

/* Maps the regular file at path; refuses anything else. */
gm_status gm_mapfile_open(gm_mapfile *m, const char *path, gm_err *err);

/* Says of bytes of any map that they are not needed soon, so that a program which reads a large file
 * once does not seem to hold all of it. They can still be read. */
void gm_mapfile_release(const uint8_t *p, size_t size);

/* Unmaps; idempotent. */
void gm_mapfile_close(gm_mapfile *m);

#endif
