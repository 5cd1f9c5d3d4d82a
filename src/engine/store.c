/* SPDX-License-Identifier: MIT */
#include "engine/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/mem.h"
#include "engine/place.h"

#define SUFFIX     ".gmkv"
#define SLICE      32           /* pages copied at one turn: a millisecond or two          */
#define BEHIND_MAX (256u << 20) /* bytes that may wait to be written before copying goes on */

/* A file to be written, or, without bytes, to be removed. */
struct gm_store_job {
    gm_store_job *next;
    uint64_t name;
    uint8_t *file;
    gm_store_layout at;
};

static void note(gm_store *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(gm_store *s, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (!s->note) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    s->note(s->note_ctx, text);
}

static void path_of(const gm_store *s, uint64_t name, const char *suffix, char *out, size_t size)
{
    snprintf(out, size, "%s/%016" PRIx64 "%s", s->dir, name, suffix);
}

static void job_free(gm_store_job *j)
{
    if (j) gm_mem_free(j->file);
    gm_mem_free(j);
}

/* ---- the writer's thread ------------------------------------------------------------------- */

static int write_all(int fd, const uint8_t *p, uint64_t n)
{
    while (n) {
        const ssize_t done = write(fd, p, n < 1u << 30 ? n : 1u << 30);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        p += done;
        n -= (uint64_t)done;
    }
    return 0;
}

static int write_file(const gm_store *s, const gm_store_job *j)
{
    char path[4200], temp[4200];
    path_of(s, j->name, SUFFIX, path, sizeof path);
    path_of(s, j->name, ".tmp", temp, sizeof temp);
    const int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int os = write_all(fd, j->file, j->at.size);
    if (os == 0 && fdatasync(fd) != 0) os = errno;
    if (close(fd) != 0 && os == 0) os = errno;
    if (os == 0 && rename(temp, path) != 0) os = errno;
    if (os) unlink(temp);
    return os;
}

static void do_job(gm_store *s, gm_store_job *j)
{
    char path[4200];
    if (!j->file) {
        path_of(s, j->name, SUFFIX, path, sizeof path);
        unlink(path);
        return;
    }
    gm_store_seal(j->file, &j->at);
    const int os = write_file(s, j);
    if (os && !s->failed)
        note(s, "the cache in %.300s cannot be written, and is kept in memory only: %s", s->dir,
             strerror(os));
    s->failed = os != 0;
}

static void *store_main(void *arg)
{
    gm_store *const s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->jobs && !s->stopping)
            pthread_cond_wait(&s->wake, &s->lock);
        gm_store_job *const j = s->jobs;
        if (!j) break;
        s->jobs = j->next;
        pthread_mutex_unlock(&s->lock);
        do_job(s, j);
        pthread_mutex_lock(&s->lock);
        s->waiting -= j->at.size;
        job_free(j);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void job_put(gm_store *s, gm_store_job *j)
{
    pthread_mutex_lock(&s->lock);
    gm_store_job **last = &s->jobs;
    while (*last)
        last = &(*last)->next;
    *last = j;
    s->waiting += j->at.size;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the engine's thread ------------------------------------------------------------------- */

static uint64_t name_of(const gm_store *s, const gm_beginning *b)
{
    return gm_store_hash(b->ids, b->n * sizeof *b->ids, s->head.whose);
}

/* A file in memory for a beginning, with its ids and index, and room for its pages. */
static gm_store_job *job_begin(const gm_store *s, const gm_beginning *b, uint32_t table_len)
{
    uint32_t n[GM_CLASSES] = {0};
    gm_store_head head = s->head;
    head.n_ids = b->n;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = 0; i < table_len; i++)
            n[c] += b->table.page[c][i] != GM_NO_PAGE;
        head.n_pages += n[c];
    }
    gm_store_job *j = NULL;
    if (gm_mem_alloc(&j, 1, sizeof *j, "a cache file", NULL) != GM_OK) return NULL;
    j->name = name_of(s, b);
    j->at = gm_store_layout_of(&head, n);
    if (j->at.size == 0 ||
        gm_mem_alloc_aligned(&j->file, j->at.size, 1, "a cache file", NULL) != GM_OK) {
        job_free(j);
        return NULL;
    }
    memcpy(j->file, &head, sizeof head);
    memcpy(j->file + j->at.ids, b->ids, b->n * sizeof *b->ids);
    gm_store_page *to = (gm_store_page *)(void *)(j->file + j->at.index);
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = 0; i < table_len; i++) {
            if (b->table.page[c][i] != GM_NO_PAGE) *to++ = (gm_store_page){.class = c, .index = i};
        }
    }
    return j;
}

/* Where the bytes of page i of the index are. */
static uint8_t *page_at(const gm_store *s, uint8_t *file, const gm_store_layout *at, uint32_t i)
{
    const gm_store_page *const index = (const gm_store_page *)(const void *)(file + at->index);
    uint64_t off = at->pages;
    for (uint32_t k = 0; k < i; k++)
        off += s->head.page_size[index[k].class];
    return file + off;
}

static gm_status copy(gm_place *p, const gm_page_move *moves, uint32_t n)
{
    gm_ticket t = 0;
    gm_result r = {0};
    const gm_status status = p->runner.ops->kv_copy(p->runner.kv, moves, n, &t, NULL);
    return status == GM_OK && t ? p->runner.ops->wait(p->runner.be, t, &r, NULL) : status;
}

static void stop_copying(gm_store *s)
{
    job_free(s->job);
    s->job = NULL;
    s->now = NULL;
    s->next = 0;
}

static bool begin_copying(gm_store *s, const gm_place *p, gm_beginning *kept)
{
    while (kept && kept->saved)
        kept = kept->next;
    if (!kept) return false;
    pthread_mutex_lock(&s->lock);
    const bool behind = !s->finishing && s->waiting > BEHIND_MAX;
    pthread_mutex_unlock(&s->lock);
    if (behind) return false;
    kept->saved = true; /* or not: it is tried once */
    s->now = kept;
    s->next = 0;
    const bool guarded = gm_guard_set(false); /* a file is no token: it may allocate */
    s->job = job_begin(s, kept, p->pool.table_len);
    gm_guard_set(guarded);
    if (!s->job) stop_copying(s);
    return s->job != NULL;
}

bool gm_store_feed(gm_store *s, gm_place *p, gm_beginning *kept)
{
    if (!s->dir || (!s->now && !begin_copying(s, p, kept))) return false;
    const gm_store_page *const index =
        (const gm_store_page *)(const void *)(s->job->file + s->job->at.index);
    const uint32_t n_pages = ((const gm_store_head *)(const void *)s->job->file)->n_pages;
    gm_page_move moves[SLICE];
    uint32_t n = 0;
    uint8_t *host = page_at(s, s->job->file, &s->job->at, s->next);
    for (; n < SLICE && s->next < n_pages; n++, s->next++) {
        const gm_store_page *const at = &index[s->next];
        moves[n] = (gm_page_move){at->class, s->now->table.page[at->class][at->index], true, host};
        host += s->head.page_size[at->class];
    }
    if (n && copy(p, moves, n) != GM_OK) {
        stop_copying(s);
    } else if (s->next == n_pages) {
        job_put(s, s->job);
        s->job = NULL;
        stop_copying(s);
    }
    return true;
}

void gm_store_finish(gm_store *s, gm_place *p, gm_beginning *kept)
{
    s->finishing = true;
    while (gm_store_feed(s, p, kept))
        continue;
}

void gm_store_remove(gm_store *s, const gm_beginning *b)
{
    if (!s->dir) return;
    if (s->now == b) {
        stop_copying(s);
        return;
    }
    gm_store_job *j = NULL;
    if (!b->saved) return;
    const bool guarded = gm_guard_set(false);
    const gm_status status = gm_mem_alloc(&j, 1, sizeof *j, "a cache file", NULL);
    gm_guard_set(guarded);
    if (status != GM_OK) return;
    j->name = name_of(s, b);
    job_put(s, j);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The pages of a file into the pool; false when there are too few, or one is not as it was. */
static const char *load_pages(gm_store *s, gm_place *p, const uint8_t *file,
                              const gm_store_layout *at, gm_beginning *b)
{
    const gm_store_head *const h = (const gm_store_head *)(const void *)file;
    const gm_store_page *const index = (const gm_store_page *)(const void *)(file + at->index);
    const uint8_t *page = file + at->pages;
    for (uint32_t i = 0; i < h->n_pages; i++) {
        const uint64_t size = s->head.page_size[index[i].class];
        if (gm_store_hash(page, size, 0) != index[i].hash) return "its checksum is wrong";
        const gm_page_move move = {
            index[i].class, gm_kvpool_put(&p->pool, &b->table, index[i].class, index[i].index),
            false, (uint8_t *)(uintptr_t)page};
        if (copy(p, &move, 1) != GM_OK) return "its pages cannot be copied";
        page += size;
    }
    return NULL;
}

static bool has_pages(const gm_place *p, const uint8_t *file, const gm_store_layout *at)
{
    const gm_store_head *const h = (const gm_store_head *)(const void *)file;
    const gm_store_page *const index = (const gm_store_page *)(const void *)(file + at->index);
    uint32_t n[GM_CLASSES] = {0};
    for (uint32_t i = 0; i < h->n_pages; i++)
        n[index[i].class]++;
    for (int c = 0; c < GM_CLASSES; c++) {
        if (n[c] > p->pool.n_free[c]) return false;
    }
    return true;
}

/* A beginning from a file; NULL with *wrong saying why, or with neither where it has no room. */
static gm_beginning *load_file(gm_store *s, gm_place *p, const gm_mapfile *map, const char **wrong)
{
    gm_store_layout at = {0};
    gm_beginning *b = NULL;
    *wrong = gm_store_check(map->data, map->size, &s->head, p->pool.table_len, &at);
    if (*wrong || !has_pages(p, map->data, &at)) return NULL;
    const gm_store_head *const h = (const gm_store_head *)(const void *)map->data;
    if (gm_mem_alloc(&b, 1, sizeof *b, "token ids", NULL) != GM_OK) return NULL;
    if (gm_arena_alloc(&b->arena, &b->ids, h->n_ids, sizeof *b->ids, "token ids", NULL) == GM_OK &&
        gm_kvtable_init(&b->table, &p->pool, &b->arena, NULL) == GM_OK) {
        memcpy(b->ids, map->data + at.ids, h->n_ids * sizeof *b->ids);
        b->n = h->n_ids;
        b->saved = true;
        *wrong = load_pages(s, p, map->data, &at, b);
        if (!*wrong) return b;
        gm_kvpool_release(&p->pool, &b->table);
    }
    gm_beginning_free(b);
    return NULL;
}

/* A file of the folder, and when it was written. */
typedef struct found {
    char name[64];
    int64_t time_ns;
} found;

static int newer_first(const void *a, const void *b)
{
    const found *const x = a, *const y = b;
    return (x->time_ns < y->time_ns) - (x->time_ns > y->time_ns);
}

/* The files of the folder; those that were never finished go. */
static size_t list_files(const gm_store *s, found **out)
{
    size_t n = 0, cap = 0;
    DIR *const dir = opendir(s->dir);
    const struct dirent *entry = NULL;
    while (dir && (entry = readdir(dir))) {
        const gm_str name = gm_str_c(entry->d_name);
        struct stat st;
        if (gm_str_ends(name, GM_STR(".tmp"))) unlinkat(dirfd(dir), entry->d_name, 0);
        if (!gm_str_ends(name, GM_STR(SUFFIX)) || name.len >= sizeof(*out)->name ||
            fstatat(dirfd(dir), entry->d_name, &st, 0) != 0 ||
            gm_mem_grow(out, &cap, n + 1, sizeof **out, "cache files", NULL) != GM_OK)
            continue;
        found *const f = &(*out)[n++];
        memcpy(f->name, name.p, name.len + 1);
        f->time_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
    if (dir) closedir(dir);
    if (n) qsort(*out, n, sizeof **out, newer_first);
    return n;
}

void gm_store_load(gm_store *s, gm_place *p, gm_store_add *add, void *ctx)
{
    found *files = NULL;
    gm_beginning *oldest = NULL; /* last in, first out: the newest file is read first */
    if (!s->dir) return;
    const size_t n = list_files(s, &files);
    for (size_t i = 0; i < n; i++) {
        char path[4200];
        gm_mapfile map = {0};
        gm_err err = {0};
        const char *wrong = NULL;
        snprintf(path, sizeof path, "%s/%s", s->dir, files[i].name);
        gm_beginning *b = NULL;
        if (gm_mapfile_open(&map, path, &err) == GM_OK)
            b = load_file(s, p, &map, &wrong);
        else
            wrong = "it cannot be read";
        gm_mapfile_close(&map);
        if (wrong) note(s, "%.300s was dropped: %s", path, wrong);
        if (!b && unlink(path) != 0 && wrong) note(s, "%.300s stays: %s", path, strerror(errno));
        if (!b) continue;
        b->next = oldest;
        oldest = b;
    }
    gm_mem_free(files);
    for (gm_beginning *b = oldest, *next = NULL; b; b = next) {
        next = b->next;
        add(ctx, b);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

gm_status gm_store_open(gm_store *s, gm_place *p, const gm_engine_opts *opts, gm_err *err)
{
    const gm_runner *const r = &p->runner;
    if (!opts->cache_dir) return GM_OK;
    s->dir = opts->cache_dir;
    s->note = opts->note;
    s->note_ctx = opts->note_ctx;
    if (mkdir(s->dir, 0700) != 0 && errno != EEXIST)
        note(s, "the folder %.300s cannot be made: %s", s->dir, strerror(errno));
    uint64_t whose = gm_store_model_hash(p->model);
    whose = gm_store_hash(r->ops->name, strlen(r->ops->name), whose);
    whose = gm_store_hash(&p->kv_type, sizeof p->kv_type, whose);
    s->head = (gm_store_head){.version = GM_STORE_VERSION, .page_len = GM_PAGE_LEN, .whose = whose};
    for (uint32_t c = 0; c < GM_CLASSES; c++)
        s->head.page_size[c] = r->ops->kv_page_size(r->kv, c);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    const int os = pthread_create(&s->thread, NULL, store_main, s);
    if (os) return gm_fail(err, GM_E_IO, os, "cache: a thread cannot be started");
    s->has_thread = true;
    return GM_OK;
}

void gm_store_close(gm_store *s)
{
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->stopping = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->wake);
        pthread_mutex_destroy(&s->lock);
    }
    job_free(s->job);
    *s = (gm_store){0};
}
