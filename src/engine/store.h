/* SPDX-License-Identifier: MIT */
#ifndef GM_ENGINE_STORE_H
#define GM_ENGINE_STORE_H

/* The cache on disk: a file for each beginning that is kept, so that a restart finds
 * them again. A beginning that grows, as a talk does from turn to turn, has its file
 * grow. What memory has no room for, when it is read or later, stays on disk. The files of
 * a model, with one backend and KV type, have at most as many bytes as are allowed: whoever
 * writes makes room, of those unused for longer. Others' files in the folder do not count,
 * and nobody else removes them.
 *
 * The engine's thread copies pages into a segment in memory, a few at each turn; a
 * thread of the store's own appends it to its file. Whatever ends the process leaves
 * whole segments, and perhaps a piece behind them, which the next start cuts off. A
 * disk that is full or cannot be written costs a sentence and nothing else. */

#include "base/note.h"
#include "engine/seq.h"
#include "engine/store_file.h"

struct gm_place;

typedef struct gm_store_job gm_store_job;

/* A file of the folder. */
typedef struct gm_store_found {
    uint64_t name, size;
    int64_t used_ns;
} gm_store_found;

typedef struct gm_store {
    const char *dir; /* NULL: there is none */
    gm_note note;
    gm_store_head head; /* what all segments have in common */
    uint32_t table_len;

    /* engine thread */
    gm_beginning *now;      /* whose pages are being copied, or NULL */
    gm_store_job *job;      /* into this                             */
    uint32_t next;          /* page of its index                     */
    uint64_t most, total;   /* bytes that own files may have, and have       */
    gm_store_found *others; /* [n_others] own, but of no beginning in memory; newest first */
    size_t n_others, cap_others;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    gm_store_job *jobs;   /* oldest first                       */
    gm_store_job *failed; /* whose segments could not be written */
    uint64_t waiting;     /* bytes of jobs                      */
    bool stopping, has_thread, complained, finishing;
    pthread_t thread;
} gm_store;

/* Makes sure that there is a folder and that it may be read and written; NULL is fine. */
gm_status gm_store_make_folder(const char *path, gm_err *err);
/* Starts the store where opts name a folder, which is there. */
gm_status gm_store_open(gm_store *s, struct gm_place *p, const gm_engine_opts *opts, gm_err *err);
/* Writes what is under way and ends. All-zero is fine. */
void gm_store_close(gm_store *s);

/* Reads what is there, newest first, until pages run out; calls add for each, oldest first. */
typedef void gm_store_add(void *ctx, gm_beginning *b);
void gm_store_load(gm_store *s, struct gm_place *p, gm_store_add *add, void *ctx);

/* Copies some pages of a beginning that is not saved yet, oldest first of the list; false when there
 * is nothing to do, or the disk is behind. */
bool gm_store_feed(gm_store *s, struct gm_place *p, gm_beginning *kept);
/* Copies all that is left, before the store is closed. */
void gm_store_finish(gm_store *s, struct gm_place *p, gm_beginning *kept);
/* A beginning is covered by another, whose pages go on in its file, if it has one. */
void gm_store_take_over(gm_store *s, gm_beginning *by, gm_beginning *covered);
/* What a beginning has was used: its file stays for longer. */
void gm_store_use(gm_store *s, gm_beginning *b);
/* A beginning goes, as there is no room for it in memory: its file stays. */
void gm_store_leave(gm_store *s, gm_beginning *b);
/* A beginning goes, and its file with it. */
void gm_store_remove(gm_store *s, gm_beginning *b);

#endif
