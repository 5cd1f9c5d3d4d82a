/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_BUNDLED_H
#define GM_PROGRAMS_BUNDLED_H

/* The model that comes with gemmule, for commands that were given none. */

/* Its path, to be freed; NULL once it has been said that it is not there. */
char *gm_bundled_find(void);

#endif
