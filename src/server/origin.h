/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_ORIGIN_H
#define GM_SERVER_ORIGIN_H

/* Pages of strangers. A page that a browser of this machine shows can ask a server on
 * this machine, also by a name of its own that it lets point here. A server that only
 * this machine can reach, and that asks for no key, therefore answers only to names of
 * this machine, and to pages of this machine. */

#include "server/state.h"

/* Refuses what no browser sends as an origin, and what therefore would let nobody in. NULL passes. */
gm_status gm_origin_check(const char *cors, gm_err *err);

/* Whether a request with these headers, each of which may be NULL, is let in. */
bool gm_origin_admit(const gm_server *s, const char *host, const char *origin);

#endif
