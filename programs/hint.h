/* SPDX-License-Identifier: MIT */
#ifndef GM_PROGRAMS_HINT_H
#define GM_PROGRAMS_HINT_H

/* What a user may have meant by a name that there is not. */

#include <stddef.h>

/* The one of names[0..n) that other programs call so, else the one that is spelled nearly so, else
 * NULL. A name may have leading dashes or a slash, as have those that it is compared with. */
const char *gm_hint_find(const char *name, const char *const *names, size_t n);

#endif
