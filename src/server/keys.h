/* SPDX-License-Identifier: MIT */
#ifndef GM_SERVER_KEYS_H
#define GM_SERVER_KEYS_H

/* Who may ask. Keys come from an option, from a file (a key a line; empty lines and
 * those that begin with # are passed over), or both; the file may be read again
 * while the server runs. Any thread. */

#include <pthread.h>
#include <stdbool.h>

#include "base/strbuf.h"

typedef struct gm_keys {
    pthread_rwlock_t lock;
    bool made;
    const char *option, *path;
    gm_strbuf text; /* the file; keys are its lines */
} gm_keys;

gm_status gm_keys_init(gm_keys *k, const char *option, const char *path, gm_err *err);
/* Fails where there is no file; on failure the keys are those before. */
gm_status gm_keys_reload(gm_keys *k, gm_err *err);
void gm_keys_deinit(gm_keys *k);

/* Whether the value of an Authorization header, or NULL, lets its sender in, and if not, why. */
typedef enum gm_admission { GM_ADMITTED, GM_NO_KEY, GM_UNKNOWN_KEY } gm_admission;
gm_admission gm_keys_admit(gm_keys *k, const char *authorization);

/* The whole of a small file. */
gm_status gm_keys_read_file(const char *path, gm_strbuf *out, gm_err *err);

#endif
