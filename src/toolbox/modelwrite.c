/* SPDX-License-Identifier: MIT */
/* The file has no name until it is whole, so that what has the name is always a
 * model, and whatever ends the work, a kill too, leaves nothing behind. File systems
 * that know no files without a name get one under another name first. The file's room
 * is reserved first: a full disk is told before the work, not after. Where a file system cannot reserve, the write
 * that no longer fits fails, and what was written goes.
 *
 * Tensors are cut into slices of a quarter of a megabyte, small enough to be made in the
 * cache and written from there. Workers take the next slice, make it in a buffer
 * of their own and write it to its place; while one waits for the disk the others
 * compute, and the file grows from its beginning to its end. Worker 0 is the
 * caller's thread and alone tells of progress. Threads that cannot be started are
 * done without. */

#include "toolbox/modelwrite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/workers.h"

#define SLICE (1 << 18)

/* Where a tensor lies in the file and among the slices. */
typedef struct place {
    uint64_t off, size;
    uint64_t slice_size;
    uint64_t first, n; /* slices */
} place;

typedef struct worker {
    uint8_t *buf; /* the largest slice, and behind it the scratch */
    gm_status status;
    gm_err err;
} worker;

typedef struct work {
    const gm_modelwrite *job;
    int fd;
    place *places;
    worker *workers;
    uint64_t n_slices, size; /* of all tensors */
    uint64_t slice_max;      /* bytes of the largest slice, rounded up for alignment */
    atomic_uint_least64_t next, done;
    atomic_bool stop;
} work;

static gm_status io_fail(const char *path, const char *what, int os, gm_err *err)
{
    return gm_fail(err, GM_E_IO, os, "%s: cannot be %s: %s", path, what, strerror(os));
}

/* ---- slices -------------------------------------------------------------------------------- */

static gm_status write_at(const work *w, const uint8_t *p, size_t size, uint64_t off, gm_err *err)
{
    while (size > 0) {
        const ssize_t n = pwrite(w->fd, p, size, (off_t)off);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return io_fail(w->job->path, "written", n < 0 ? errno : EIO, err);
        p += n;
        size -= (size_t)n;
        off += (uint64_t)n;
    }
    return GM_OK;
}

static gm_status tell(const work *w, uint64_t done, gm_err *err)
{
    const gm_modelwrite *const job = w->job;
    if (!job->progress || job->progress(job->progress_ctx, done, w->size) == 0) return GM_OK;
    return gm_fail(err, GM_E_CANCEL, 0, "%s: was cancelled", job->path);
}

/* Takes slice after slice until there are none, somebody stops or something fails. Slices come in
 * rising order, so the search for their tensor goes on where it stood. */
static void work_off(void *ctx, uint32_t index)
{
    work *const w = ctx;
    worker *const me = &w->workers[index];
    const place *p = w->places;
    while (me->status == GM_OK && !w->stop) {
        const uint64_t slice = atomic_fetch_add(&w->next, 1);
        if (slice >= w->n_slices) return;
        while (slice >= p->first + p->n)
            p++;
        const uint64_t off = (slice - p->first) * p->slice_size, rest = p->size - off;
        const gm_slice s = {
            .tensor = (uint32_t)(p - w->places),
            .off = off,
            .size = (size_t)(rest < p->slice_size ? rest : p->slice_size),
            .out = me->buf,
            .scratch = me->buf + w->slice_max,
        };
        me->status = w->job->fill(w->job->ctx, &s, &me->err);
        if (me->status == GM_OK) me->status = write_at(w, me->buf, s.size, p->off + off, &me->err);
        const uint64_t done = atomic_fetch_add(&w->done, s.size) + s.size;
        if (index == 0 && me->status == GM_OK) me->status = tell(w, done, &me->err);
    }
    w->stop = true;
}

/* What worker 0 met comes first, and a cancel is met by no other. */
static gm_status workers_status(const work *w, uint32_t n, gm_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (w->workers[i].status == GM_OK) continue;
        if (err) *err = w->workers[i].err;
        return w->workers[i].status;
    }
    return tell(w, w->size, err);
}

static gm_status write_slices(work *w, gm_err *err)
{
    gm_workers *crew = NULL;
    uint8_t *bufs = NULL;
    gm_status status = gm_workers_open(&crew, w->job->n_threads, NULL);
    if (status != GM_OK) GM_TRY(gm_workers_open(&crew, 1, err));
    const uint32_t n = gm_workers_n(crew);
    uint64_t size = 0;
    (void)gm_size_align(w->slice_max + w->job->scratch_size, 64, &size);
    GM_TRY_DONE(gm_mem_alloc(&w->workers, n, sizeof *w->workers, "workers", err));
    GM_TRY_DONE(gm_mem_alloc_aligned(&bufs, n, size, "slices of weights", err));
    for (uint32_t i = 0; i < n; i++)
        w->workers[i].buf = bufs + i * size;
    gm_workers_run(crew, work_off, w);
    status = workers_status(w, n, err);
done:
    gm_workers_close(crew);
    gm_mem_free(bufs);
    gm_mem_free(w->workers);
    return status;
}

/* Lays the tensors out from off on, and answers where the file ends. */
static uint64_t lay_out(work *w, uint64_t off)
{
    const gm_modelwrite *const job = w->job;
    for (uint32_t i = 0; i < job->n; i++) {
        const uint64_t size = job->tensors[i].size, unit = job->units[i];
        const uint64_t slice_size = unit > SLICE ? unit : SLICE / unit * unit;
        w->places[i] = (place){
            .off = off,
            .size = size,
            .slice_size = slice_size,
            .first = w->n_slices,
            .n = (size + slice_size - 1) / slice_size,
        };
        w->n_slices += w->places[i].n;
        w->size += size;
        if (slice_size > w->slice_max) w->slice_max = slice_size;
        off += size + gm_gguf_pad(size);
    }
    (void)gm_size_align(w->slice_max, 64, &w->slice_max);
    return off;
}

uint64_t gm_modelwrite_size(const gm_modelwrite *job)
{
    uint64_t size = gm_gguf_header_size(job->meta, &(gm_tensors){.at = job->tensors, .n = job->n});
    for (uint32_t i = 0; i < job->n; i++)
        size += job->tensors[i].size + gm_gguf_pad(job->tensors[i].size);
    return size;
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Only by fallocate itself: where it is not supported, posix_fallocate would write the whole file
 * once before it is written. */
static gm_status reserve(const work *w, uint64_t size, gm_err *err)
{
    /* Asked first: a reservation that fails may have taken what was left. */
    struct statvfs fs;
    if (fstatvfs(w->fd, &fs) != 0) return io_fail(w->job->path, "written", errno, err);
    int os = EINTR;
    while (os == EINTR)
        os = fallocate(w->fd, 0, 0, (off_t)size) == 0 ? 0 : errno;
    if (os == EOPNOTSUPP) os = ftruncate(w->fd, (off_t)size) == 0 ? 0 : errno;
    if (os == 0) return GM_OK;
    if (os != ENOSPC) return io_fail(w->job->path, "written", os, err);
    return gm_fail(err, GM_E_IO, os,
                   "%s: the disk is too full: the model needs %" PRIu64 " bytes, %" PRIu64
                   " are free",
                   w->job->path, size, (uint64_t)fs.f_bavail * fs.f_frsize);
}

static gm_status write_whole(FILE *out, const gm_modelwrite *job, place *places, gm_err *err)
{
    work w = {.job = job, .fd = fileno(out), .places = places};
    const gm_tensors tensors = {.at = job->tensors, .n = job->n};
    GM_TRY(gm_gguf_write_header(out, job->meta, &tensors, job->path, err));
    if (fflush(out) != 0) return io_fail(job->path, "written", errno, err);
    const off_t start = ftello(out);
    if (start < 0) return io_fail(job->path, "written", errno, err);
    GM_TRY(reserve(&w, lay_out(&w, (uint64_t)start), err));
    return write_slices(&w, err);
}

gm_status gm_modelwrite_check(const char *path, bool force, gm_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? GM_OK : io_fail(path, "written", errno, err);
    if (S_ISDIR(st.st_mode)) return io_fail(path, "written", EISDIR, err);
    if (!S_ISREG(st.st_mode))
        return gm_fail(err, GM_E_IO, 0, "%s: is not a regular file, expected one", path);
    if (force) return GM_OK;
    return gm_fail(err, GM_E_IO, EEXIST, "%s: is there already, and is replaced only by force",
                   path);
}

/* A new file in the folder of `part`: without a name where such a file can be given one later, which
 * takes /proc, or else under that one. */
#define OPEN_FILES "/proc/self/fd"
static int open_part(char *part, bool *named)
{
    char *const slash = strrchr(part, '/'), *const name = slash ? slash + 1 : part;
    const char first = *name;
    int fd = -1;
    if (strlen(name) > NAME_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    *name = '\0';
    if (access(OPEN_FILES, X_OK) == 0)
        fd = open(slash ? part : ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    *name = first;
    *named = fd < 0;
    if (*named) fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd;
}

static gm_status name_part(int fd, const gm_modelwrite *job, const char *part, gm_err *err)
{
    char self[sizeof OPEN_FILES + 16];
    snprintf(self, sizeof self, OPEN_FILES "/%d", fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, part, AT_SYMLINK_FOLLOW) == 0) return GM_OK;
    return io_fail(job->path, "named", errno, err);
}

/* Gives the finished file its name. Without force a name that was taken meanwhile stays as it is. */
static gm_status give_name(const gm_modelwrite *job, const char *part, gm_err *err)
{
    if (job->force)
        return rename(part, job->path) == 0 ? GM_OK : io_fail(job->path, "named", errno, err);
    if (link(part, job->path) != 0) return io_fail(job->path, "named", errno, err);
    unlink(part);
    return GM_OK;
}

/* Writes without a name, or as `part`, which is gone after any failure. */
static gm_status write_part(const gm_modelwrite *job, char *part, place *places, gm_err *err)
{
    bool named = false;
    const int fd = open_part(part, &named);
    if (fd < 0) return io_fail(job->path, "made", errno, err);
    FILE *const out = fdopen(fd, "wb");
    gm_status status = GM_OK;
    if (!out) {
        status = io_fail(job->path, "opened", errno, err);
        close(fd);
    } else {
        status = write_whole(out, job, places, err);
        if (status == GM_OK && !named) {
            status = name_part(fd, job, part, err);
            named = status == GM_OK;
        }
        if (fclose(out) != 0 && status == GM_OK) status = io_fail(job->path, "written", errno, err);
    }
    if (status == GM_OK) status = give_name(job, part, err);
    if (status != GM_OK && named) unlink(part);
    return status;
}

gm_status gm_modelwrite_run(const gm_modelwrite *job, gm_err *err)
{
    gm_strbuf part = {0};
    place *places = NULL;
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_modelwrite_check(job->path, job->force, err));
    GM_TRY_DONE(gm_mem_alloc(&places, job->n, sizeof *places, "places of tensors", err));
    gm_strbuf_printf(&part, "%s.%ld.part", job->path, (long)getpid());
    GM_TRY_DONE(gm_strbuf_status(&part, err));
    status = write_part(job, part.p, places, err);
done:
    gm_mem_free(places);
    gm_strbuf_deinit(&part);
    return status;
}
