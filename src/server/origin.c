/* SPDX-License-Identifier: MIT */
#include "server/origin.h"

#include <strings.h>

/* Whether a name, with or without a port behind it, is one of this machine. */
static bool is_own(const gm_server *s, const char *name)
{
    const char *const own[] = {"localhost", "127.0.0.1", "[::1]", s->opts.host};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const size_t len = strlen(own[i]);
        if (strncasecmp(name, own[i], len) == 0 && (name[len] == '\0' || name[len] == ':'))
            return true;
    }
    return false;
}

/* Browsers leave the usual port out. */
static bool has_usual_port(const char *origin)
{
    const gm_str o = gm_str_c(origin);
    return (gm_str_starts(o, GM_STR("http://")) && gm_str_ends(o, GM_STR(":80"))) ||
           (gm_str_starts(o, GM_STR("https://")) && gm_str_ends(o, GM_STR(":443")));
}

gm_status gm_origin_check(const char *cors, gm_err *err)
{
    if (!cors || strcmp(cors, "*") == 0) return GM_OK;
    const char *const name = strstr(cors, "://");
    const bool whole = name && name > cors && name[3] && !strpbrk(name + 3, "/, ");
    if (whole && !has_usual_port(cors)) return GM_OK;
    return gm_fail(err, GM_E_ARG, 0,
                   "cors: the origin is %.100s, expected * or one as browsers send it: "
                   "https://chat.example",
                   *cors ? cors : "empty");
}

bool gm_origin_admit(const gm_server *s, const char *host, const char *origin)
{
    const char *const cors = s->opts.cors;
    if (!s->loopback || s->opts.api_key || s->opts.api_key_file) return true;
    if (cors && strcmp(cors, "*") == 0) return true;
    if (host && !is_own(s, host)) return false;
    if (!origin || (cors && strcmp(cors, origin) == 0)) return true;
    const char *const name = strstr(origin, "://");
    return name && is_own(s, name + 3);
}
