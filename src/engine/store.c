/* SPDX-License-Identifier: MIT */
#include "engine/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/outfile.h"
#include "engine/place.h"

#define SUFFIX     ".gmkv"
#define SLICE      32           /* pages copied at one turn: a millisecond or two          */
#define BEHIND_MAX (256u << 20) /* bytes that may wait to be written before copying goes on */
/* Bytes of own files for one of the KV cache: what beginnings have in common is in each one's file. */
#define DISK_SHARE 2

/* A segment to be appended; or, without bytes, a file that was used or is to be removed. */
struct gm_store_job {
    gm_store_job *next;
    uint64_t name;    /* of the file                  */
    uint64_t offset;  /* where its bytes end till then */
    uint8_t *segment; /* a gm_store_head and the rest  */
    gm_store_layout at;
    bool used;
};

static void path_of(const gm_store *s, uint64_t name, char *out, size_t size)
{
    snprintf(out, size, "%s/%016" PRIx64 SUFFIX, s->dir, name);
}

static const gm_store_head *head_of(const gm_store_job *j)
{
    return (const gm_store_head *)(const void *)j->segment;
}

static const gm_store_page *index_of(const uint8_t *segment, const gm_store_layout *at)
{
    return (const gm_store_page *)(const void *)(segment + at->index);
}

static void job_free(gm_store_job *j)
{
    if (j) gm_mem_free(j->segment);
    gm_mem_free(j);
}

/* ---- the writer's thread ------------------------------------------------------------------- */

/* Appends a segment, or leaves the file as it was. It is not as long as it should be where the
 * segment before this one could not be written; where it cannot be opened, there is none to go on
 * with. */
static int append(gm_store_job *j, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC | (j->offset ? 0 : O_CREAT | O_EXCL), 0600);
    if (fd < 0) {
        j->offset = 0;
        return errno;
    }
    const bool follows = lseek(fd, 0, SEEK_END) == (off_t)j->offset;
    int os = follows ? gm_outfile_write(fd, j->segment, j->at.size) : ESTALE;
    if (os == 0 && fdatasync(fd) != 0) os = errno;
    if (os && follows && ftruncate(fd, (off_t)j->offset) != 0) os = errno;
    if (close(fd) != 0 && os == 0) os = errno;
    if (os && j->offset == 0) unlink(path);
    return os;
}

/* True when that is all; a failed one is for the engine's thread to look at. */
static bool do_job(gm_store *s, gm_store_job *j)
{
    char path[4200];
    path_of(s, j->name, path, sizeof path);
    if (!j->segment) {
        if (j->used)
            utimensat(AT_FDCWD, path, NULL, 0); /* what is forgotten of this is an order */
        else
            unlink(path);
        return true;
    }
    gm_store_seal(j->segment, &j->at);
    const int os = append(j, path);
    if (os && !s->complained)
        gm_note_tell(&s->note,
                     "the cache in %.300s cannot be written, and is kept in memory only: %s",
                     s->dir, strerror(os));
    s->complained = os != 0;
    return os == 0;
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
        const bool done = do_job(s, j);
        pthread_mutex_lock(&s->lock);
        s->waiting -= j->at.size;
        if (done) {
            job_free(j);
        } else {
            j->next = s->failed;
            s->failed = j;
        }
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

/* As files' times are. */
static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A name that no other file has. */
static uint64_t name_for(const gm_store *s, const gm_beginning *b)
{
    const int64_t now = now_ns();
    const uint64_t hash = gm_hash(&now, sizeof now, s->head.whose);
    return gm_hash(b->ids, b->n * sizeof *b->ids, hash) | 1;
}

static bool is_new(const gm_beginning *b, uint32_t class, uint32_t i)
{
    return b->table.page[class][i] != GM_NO_PAGE && !(b->filed.pages[i] & 1u << class);
}

/* A segment in memory for what is new of a beginning, with its ids and index, and room for its
 * pages; NULL where nothing is, or memory runs out. */
static gm_store_job *job_begin(const gm_store *s, const gm_beginning *b)
{
    uint32_t n[GM_CLASSES] = {0};
    gm_store_head head = s->head;
    head.first = b->filed.n;
    head.n_ids = b->n;
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = 0; i < s->table_len; i++)
            n[c] += is_new(b, c, i);
        head.n_pages += n[c];
    }
    gm_store_job *j = NULL;
    if (head.n_pages == 0 || gm_mem_alloc(&j, 1, sizeof *j, "a cache file", NULL) != GM_OK)
        return NULL;
    j->name = b->filed.name ? b->filed.name : name_for(s, b);
    j->offset = b->filed.size;
    j->at = gm_store_layout_of(&head, n);
    if (j->at.size == 0 ||
        gm_mem_alloc_aligned(&j->segment, j->at.size, 1, "a cache file", NULL) != GM_OK) {
        job_free(j);
        return NULL;
    }
    memcpy(j->segment, &head, sizeof head);
    memcpy(j->segment + j->at.ids, b->ids + head.first, (b->n - head.first) * sizeof *b->ids);
    gm_store_page *to = (gm_store_page *)(void *)(j->segment + j->at.index);
    for (uint32_t c = 0; c < GM_CLASSES; c++) {
        for (uint32_t i = 0; i < s->table_len; i++) {
            if (is_new(b, c, i)) *to++ = (gm_store_page){.class = c, .index = i};
        }
    }
    return j;
}

/* Where the bytes of page i of the index are. */
static uint8_t *page_at(const gm_store *s, const gm_store_job *j, uint32_t i)
{
    const gm_store_page *const index = index_of(j->segment, &j->at);
    uint64_t off = j->at.pages;
    for (uint32_t k = 0; k < i; k++)
        off += s->head.page_size[index[k].class];
    return j->segment + off;
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

/* Files end where their first failed segment would have begun. Which of their pages are older than
 * that is not known any more, so the next segment has them all. */
static void look_at_failed(gm_store *s, gm_beginning *kept)
{
    pthread_mutex_lock(&s->lock);
    gm_store_job *failed = s->failed;
    s->failed = NULL;
    pthread_mutex_unlock(&s->lock);
    for (gm_store_job *j = failed; j; j = failed) {
        for (gm_beginning *k = kept; k; k = k->next) {
            gm_filed *const f = &k->filed;
            if (f->name != j->name || f->size <= j->offset) continue;
            s->total -= f->size - j->offset;
            *f = (gm_filed){.pages = f->pages, .used_ns = f->used_ns};
            if (j->offset)
                *f = (gm_filed){j->name, j->offset, head_of(j)->first, f->pages, f->used_ns};
            memset(f->pages, 0, s->table_len);
        }
        failed = j->next;
        job_free(j);
    }
}

/* The writer's thread is to do something to a file; false for lack of memory. */
static bool put_order(gm_store *s, uint64_t name, bool used)
{
    gm_store_job *j = NULL;
    const bool guarded = gm_guard_set(false); /* a file is no token: it may allocate */
    const gm_status status = gm_mem_alloc(&j, 1, sizeof *j, "a cache file", NULL);
    gm_guard_set(guarded);
    if (status != GM_OK) return false;
    j->name = name;
    j->used = used;
    job_put(s, j);
    return true;
}

static void remove_file(gm_store *s, gm_filed *f)
{
    if (!f->name || !put_order(s, f->name, false)) return;
    s->total -= f->size;
    *f = (gm_filed){.pages = f->pages};
    memset(f->pages, 0, s->table_len);
}

/* Makes room for so many bytes of b's, by files that were unused for longer; false where that is not
 * enough. Beginnings before b were used before it, and so were those that are not in memory. */
static bool make_room(gm_store *s, gm_beginning *kept, const gm_beginning *b, uint64_t size)
{
    while (s->total + size > s->most) {
        gm_beginning *k = kept;
        while (k != b && !k->filed.name)
            k = k->next;
        gm_store_found *const o = s->n_others ? &s->others[s->n_others - 1] : NULL;
        if (k == b && !o) return false;
        if (k != b && (!o || k->filed.used_ns < o->used_ns)) {
            remove_file(s, &k->filed);
            if (k->filed.name) return false;
        } else {
            if (!put_order(s, o->name, false)) return false;
            s->total -= o->size;
            s->n_others--;
        }
    }
    return true;
}

static bool begin_copying(gm_store *s, gm_beginning *kept)
{
    look_at_failed(s, kept);
    gm_beginning *b = kept;
    while (b && b->saved)
        b = b->next;
    if (!b) return false;
    pthread_mutex_lock(&s->lock);
    const bool behind = !s->finishing && s->waiting > BEHIND_MAX;
    pthread_mutex_unlock(&s->lock);
    if (behind) return false;
    b->saved = true; /* or not: it is tried once */
    const bool guarded = gm_guard_set(false);
    s->job = job_begin(s, b);
    gm_guard_set(guarded);
    if (s->job && !make_room(s, kept, b, s->job->at.size)) stop_copying(s);
    s->now = s->job ? b : NULL;
    return true;
}

/* All of a segment is there: it is handed on, and counts as written. */
static void end_copying(gm_store *s)
{
    gm_filed *const f = &s->now->filed;
    const gm_store_page *const index = index_of(s->job->segment, &s->job->at);
    for (uint32_t i = 0; i < s->next; i++)
        f->pages[index[i].index] |= (uint8_t)(1u << index[i].class);
    *f = (gm_filed){s->job->name, s->job->offset + s->job->at.size, head_of(s->job)->n_ids,
                    f->pages, now_ns()};
    s->total += s->job->at.size;
    job_put(s, s->job);
    s->job = NULL;
    stop_copying(s);
}

bool gm_store_feed(gm_store *s, gm_place *p, gm_beginning *kept)
{
    if (!s->dir || (!s->now && !begin_copying(s, kept))) return false;
    if (!s->now) return true;
    const gm_store_page *const index = index_of(s->job->segment, &s->job->at);
    const uint32_t n_pages = head_of(s->job)->n_pages;
    gm_page_move moves[SLICE];
    uint32_t n = 0;
    uint8_t *host = page_at(s, s->job, s->next);
    for (; n < SLICE && s->next < n_pages; n++, s->next++) {
        const gm_store_page *const at = &index[s->next];
        moves[n] = (gm_page_move){at->class, s->now->table.page[at->class][at->index], true, host};
        host += s->head.page_size[at->class];
    }
    if (copy(p, moves, n) != GM_OK)
        stop_copying(s);
    else if (s->next == n_pages)
        end_copying(s);
    return true;
}

void gm_store_finish(gm_store *s, gm_place *p, gm_beginning *kept)
{
    s->finishing = true;
    while (gm_store_feed(s, p, kept))
        continue;
}

/* Where both have a file, that of fewer tokens goes: what can be lost by that before the other is
 * written is a place to go on from, and no token. */
void gm_store_take_over(gm_store *s, gm_beginning *by, gm_beginning *covered)
{
    gm_filed *const from = &covered->filed, *const to = &by->filed;
    if (!s->dir || from->n <= to->n) return;
    memcpy(to->pages, from->pages, s->table_len);
    const uint32_t last = from->n / GM_PAGE_LEN;
    if (from->n % GM_PAGE_LEN && from->n < by->n) to->pages[last] = 0; /* it was not full then */
    const gm_filed other = *to;
    *to = (gm_filed){from->name, from->size, from->n, to->pages, from->used_ns};
    from->name = other.name;
    from->size = other.size;
}

void gm_store_use(gm_store *s, gm_beginning *b)
{
    if (!s->dir || !b->filed.name || !put_order(s, b->filed.name, true)) return;
    b->filed.used_ns = now_ns();
}

void gm_store_leave(gm_store *s, gm_beginning *b)
{
    gm_filed *const f = &b->filed;
    if (!s->dir) return;
    if (s->now == b) stop_copying(s);
    const bool guarded = gm_guard_set(false);
    const gm_status status = f->name ? gm_mem_grow(&s->others, &s->cap_others, s->n_others + 1,
                                                   sizeof *s->others, "cache files", NULL)
                                     : GM_E_ARG;
    gm_guard_set(guarded);
    if (status != GM_OK) return;
    size_t at = s->n_others++;
    for (; at > 0 && s->others[at - 1].used_ns < f->used_ns; at--)
        s->others[at] = s->others[at - 1];
    s->others[at] = (gm_store_found){f->name, f->size, f->used_ns};
    f->name = 0;
}

void gm_store_remove(gm_store *s, gm_beginning *b)
{
    if (!s->dir) return;
    if (s->now == b) stop_copying(s);
    remove_file(s, &b->filed);
}

/* ---- reading -------------------------------------------------------------------------------- */

static const char NO_ROOM[] = "more than memory has room for";

/* The tokens and pages of a segment; a page that another one had before takes its place. False
 * where the pool has no more. */
static bool load_segment(const gm_store *s, gm_place *p, const uint8_t *segment,
                         const gm_store_layout *at, gm_beginning *b)
{
    const gm_store_head *const h = (const gm_store_head *)(const void *)segment;
    const gm_store_page *const index = index_of(segment, at);
    const uint8_t *bytes = segment + at->pages;
    memcpy(b->ids + h->first, segment + at->ids, (h->n_ids - h->first) * sizeof *b->ids);
    for (uint32_t i = 0; i < h->n_pages; i++) {
        const uint32_t c = index[i].class, k = index[i].index;
        uint32_t page = b->table.page[c][k];
        if (page == GM_NO_PAGE && p->pool.n_free[c] == 0) return false;
        if (page == GM_NO_PAGE) page = gm_kvpool_put(&p->pool, &b->table, c, k);
        const gm_page_move move = {c, page, false, (uint8_t *)(uintptr_t)bytes};
        if (copy(p, &move, 1) != GM_OK) return false;
        b->filed.pages[k] |= (uint8_t)(1u << c);
        bytes += s->head.page_size[c];
    }
    b->n = b->filed.n = h->n_ids;
    b->filed.size += at->size;
    return true;
}

/* A beginning from a file, up to where something is wrong with it; NULL where that is at once, or
 * it stays on disk for others. */
static gm_beginning *load_file(const gm_store *s, gm_place *p, const gm_mapfile *map,
                               const char **wrong, const char **stays)
{
    gm_beginning *b = NULL;
    gm_store_head expected = s->head;
    bool ok = gm_beginning_open(&b, &p->pool, s->table_len * GM_PAGE_LEN, NULL) == GM_OK;
    while (ok && b->filed.size < map->size) {
        const uint8_t *const segment = map->data + b->filed.size;
        gm_store_layout at = {0};
        bool others = false;
        expected.first = b->n;
        *wrong = gm_store_check(segment, map->size - b->filed.size, &expected, s->table_len, &at,
                                &others);
        if (others) {
            *stays = *wrong;
            *wrong = NULL;
        }
        if (*wrong) break;
        ok = !others && load_segment(s, p, segment, &at, b);
    }
    if (!ok && !*stays) *stays = NO_ROOM;
    if (ok && b->n) {
        b->saved = true;
        return b;
    }
    if (b) gm_kvpool_release(&p->pool, &b->table);
    gm_beginning_free(b);
    return NULL;
}

static int newer_first(const void *a, const void *b)
{
    const gm_store_found *const x = a, *const y = b;
    return (x->used_ns < y->used_ns) - (x->used_ns > y->used_ns);
}

/* Whether a file is called as ours are. */
static bool read_name(const char *text, uint64_t *name)
{
    char *end = NULL;
    *name = strtoull(text, &end, 16);
    return end == text + 16 && strcmp(end, SUFFIX) == 0 && *name != 0;
}

static size_t list_files(gm_store *s)
{
    size_t n = 0;
    DIR *const dir = opendir(s->dir);
    const struct dirent *entry = NULL;
    while (dir && (entry = readdir(dir))) {
        gm_store_found f = {0};
        struct stat st;
        if (!read_name(entry->d_name, &f.name) || fstatat(dirfd(dir), entry->d_name, &st, 0) != 0 ||
            gm_mem_grow(&s->others, &s->cap_others, n + 1, sizeof *s->others, "cache files",
                        NULL) != GM_OK)
            continue;
        f.used_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        f.size = (uint64_t)st.st_size;
        s->others[n++] = f;
    }
    if (dir) closedir(dir);
    if (n) qsort(s->others, n, sizeof *s->others, newer_first);
    return n;
}

/* Reads a file, and cuts off or removes what is wrong. */
static gm_beginning *take_file(gm_store *s, gm_place *p, const gm_store_found *f,
                               const char **stays)
{
    char path[4200];
    gm_mapfile map = {0};
    gm_beginning *b = NULL;
    const char *wrong = NULL;
    path_of(s, f->name, path, sizeof path);
    if (gm_mapfile_open(&map, path, NULL) == GM_OK)
        b = load_file(s, p, &map, &wrong, stays);
    else
        wrong = "it cannot be read";
    gm_mapfile_close(&map);
    if (b) {
        b->filed.name = f->name;
        b->filed.used_ns = f->used_ns;
    }
    if (!wrong) return b;
    gm_note_tell(&s->note, "%s%.300s was dropped: %s", b ? "the end of " : "", path, wrong);
    if ((b ? truncate(path, (off_t)b->filed.size) : unlink(path)) != 0)
        gm_note_tell(&s->note, "%.300s stays: %s", path, strerror(errno));
    return b;
}

/* How many files stay on disk for a reason. */
typedef struct left {
    const char *why;
    size_t n;
} left;

static void count_left(left *l, const char *why)
{
    while (l->why && strcmp(l->why, why) != 0)
        l++;
    l->why = why;
    l->n++;
}

void gm_store_load(gm_store *s, gm_place *p, gm_store_add *add, void *ctx)
{
    gm_beginning *oldest = NULL; /* last in, first out: the newest file is read first */
    left lefts[4] = {{0}};       /* as many reasons as there are, and an end */
    if (!s->dir) return;
    const size_t n = list_files(s);
    for (size_t i = 0; i < n; i++) {
        const char *stays = NULL;
        gm_beginning *const b = take_file(s, p, &s->others[i], &stays);
        if (stays) {
            count_left(lefts, stays);
            if (stays == gm_store_foreign) continue;
            s->total += s->others[i].size;
            s->others[s->n_others++] = s->others[i];
        } else if (b) {
            s->total += b->filed.size;
            b->next = oldest;
            oldest = b;
        }
    }
    for (const left *l = lefts; l->why; l++)
        gm_note_tell(&s->note, "%zu of %zu cache files in %.300s stay unread: they are %s", l->n, n,
                     s->dir, l->why);
    for (gm_beginning *b = oldest, *next = NULL; b; b = next) {
        next = b->next;
        add(ctx, b);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* A disk that is full or cannot be written may be right tomorrow, and is told of when it is written
 * to; a folder that is none, or another's, was named by mistake. */
gm_status gm_store_make_folder(const char *path, gm_err *err)
{
    struct stat st;
    if (!path) return GM_OK;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return gm_fail(err, GM_E_IO, errno, "%s: the cache folder cannot be made: %s", path,
                       strerror(errno));
    if (stat(path, &st) != 0)
        return gm_fail(err, GM_E_IO, errno, "%s: the cache folder cannot be found: %s", path,
                       strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return gm_fail(err, GM_E_IO, 0, "%s: this is a file, expected a folder for the cache",
                       path);
    if (access(path, R_OK | W_OK | X_OK) != 0 && errno == EACCES)
        return gm_fail(err, GM_E_IO, errno, "%s: the cache folder cannot be used: %s", path,
                       strerror(errno));
    return GM_OK;
}

gm_status gm_store_open(gm_store *s, gm_place *p, const gm_engine_opts *opts, gm_err *err)
{
    const gm_runner *const r = &p->runner;
    if (!opts->cache_dir) return GM_OK;
    s->dir = opts->cache_dir;
    s->note = (gm_note){opts->note, opts->note_ctx};
    s->table_len = p->pool.table_len;
    s->most = DISK_SHARE * p->kv_size;
    uint64_t whose = gm_store_model_hash(p->model);
    whose = gm_hash(r->ops->name, strlen(r->ops->name), whose);
    whose = gm_hash(&p->kv_type, sizeof p->kv_type, whose);
    if (p->cfg.be.exact) whose = gm_hash("exact", 5, whose); /* other bits than without */
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
        look_at_failed(s, NULL);
        pthread_cond_destroy(&s->wake);
        pthread_mutex_destroy(&s->lock);
    }
    job_free(s->job);
    gm_mem_free(s->others);
    *s = (gm_store){0};
}
