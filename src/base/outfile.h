/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_OUTFILE_H
#define GM_BASE_OUTFILE_H

/* Files of our own that are written in one go. These answer 0, or errno. */

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Writes all of it, however many pieces the system takes it in. */
int gm_outfile_write(int fd, const void *p, uint64_t n);

/* Makes a file of the parts one after the other, for the user's eyes only, in the place of one that
 * is there. Readers see the old one or the new one, and after any failure the old one; its folder
 * must be there. */
int gm_outfile_replace(const char *path, const gm_str *parts, size_t n_parts);

#endif
