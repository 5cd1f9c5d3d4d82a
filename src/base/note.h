/* SPDX-License-Identifier: MIT */
#ifndef GM_BASE_NOTE_H
#define GM_BASE_NOTE_H

/* Somebody who is told what did not work and does not matter: gm_engine_opts.note. All-zero: nobody
 * listens. */

typedef struct gm_note {
    void (*tell)(void *ctx, const char *text);
    void *ctx;
} gm_note;

void gm_note_tell(const gm_note *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
