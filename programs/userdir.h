/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_USERDIR_H
#define GM_PROGRAMS_USERDIR_H

/* The user's own folders, as the XDG base directory standard has them. */

/* The path of `rest` ("/gemmule/history") in the folder that the environment's variable names, or
 * else in that one of the home folder ("/.local/state"); from malloc. NULL where neither is known.
 * The standard says that a variable with a relative path does not count. */
char *gm_userdir_path(const char *variable, const char *home_folder, const char *rest);

/* Makes the folders that lead to a path; a failure shows when something there is opened. */
void gm_userdir_make(char *path);

/* Where gemmule keeps what it can find out again: $XDG_CACHE_HOME/gemmule or ~/.cache/gemmule,
 * without a slash behind. The folders before it are made. NULL where the environment names none. */
const char *gm_userdir_cache(void);

#endif
