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

/* Brings a part of a map into memory, from the disk if need be, so that reading it waits for
 * nothing. */
void gm_mapfile_fetch(const uint8_t *from, size_t size);

/* Gives the pages that lie wholly within a part of a map back to the system. They may still be
 * read, and are then read from the file again. Only for memory of a map: elsewhere this would
 * erase it. */
void gm_mapfile_forget(const uint8_t *from, size_t size);

/* Unmaps; idempotent. */
void gm_mapfile_close(gm_mapfile *m);

#endif
