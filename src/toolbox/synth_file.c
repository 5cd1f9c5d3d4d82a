/* SPDX-License-Identifier: MIT */
/* The file is written beside its name and renamed once it is whole, so that what
 * has the name is always a model. Its room is reserved first: a full disk is
 * told before the work, not after.
 *
 * Tensors are cut into slices of about a megabyte, small enough to be made in the
 * cache and written from there. The calling thread and its helpers each take the
 * next slice, make it in a buffer of their own and write it to its place; while
 * one waits for the disk the others compute. The calling thread alone tells of
 * progress. A helper that cannot be started is done without. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "file/gguf.h"
#include "toolbox/synth.h"

enum { SLICE = 1 << 20, MAX_WORKERS = 8 };

/* Where a tensor lies in the file and among the slices. */
typedef struct place {
    gm_synth_stream stream;
    uint64_t off, size;
    uint64_t slice_size;
    uint64_t first, n; /* slices */
} place;

typedef struct work {
    const gm_synth_job *job;
    int fd;
    place *places;
    uint64_t n_slices, size; /* of all tensors */
    atomic_uint_least64_t next, done;
    atomic_bool stop;
} work;

typedef struct worker {
    work *work;
    uint8_t *buf; /* SLICE bytes */
    pthread_t thread;
    gm_status status;
    gm_err err;
} worker;

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
    const gm_synth_job *const job = w->job;
    if (!job->progress || job->progress(job->progress_ctx, done, w->size) == 0) return GM_OK;
    return gm_fail(err, GM_E_CANCEL, 0, "%s: was cancelled", job->path);
}

/* Takes slice after slice until there are none, somebody stops or the disk fails. Slices come in
 * rising order, so the search for their tensor goes on where it stood. */
static void work_off(worker *me, bool tells)
{
    work *const w = me->work;
    const place *p = w->places;
    while (me->status == GM_OK && !w->stop) {
        const uint64_t slice = atomic_fetch_add(&w->next, 1);
        if (slice >= w->n_slices) return;
        while (slice >= p->first + p->n)
            p++;
        const uint64_t off = (slice - p->first) * p->slice_size;
        const uint64_t rest = p->size - off;
        const size_t size = (size_t)(rest < p->slice_size ? rest : p->slice_size);
        gm_synth_fill(&p->stream, off, size, me->buf);
        me->status = write_at(w, me->buf, size, p->off + off, &me->err);
        const uint64_t done = atomic_fetch_add(&w->done, size) + size;
        if (tells && me->status == GM_OK) me->status = tell(w, done, &me->err);
    }
    w->stop = true;
}

static void *worker_run(void *arg)
{
    work_off(arg, false);
    return NULL;
}

static gm_status write_slices(work *w, gm_err *err)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = online < 1 ? 1 : online > MAX_WORKERS ? MAX_WORKERS : (int)online;
    worker workers[MAX_WORKERS] = {0};
    uint8_t *bufs = NULL;
    GM_TRY(gm_mem_alloc(&bufs, (size_t)n, SLICE, "slices of weights", err));
    int started = 1;
    for (int i = 0; i < n; i++)
        workers[i] = (worker){.work = w, .buf = bufs + (size_t)i * SLICE};
    while (started < n &&
           pthread_create(&workers[started].thread, NULL, worker_run, &workers[started]) == 0)
        started++;
    work_off(&workers[0], true);
    for (int i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    gm_mem_free(bufs);
    for (int i = 0; i < started; i++) {
        if (workers[i].status == GM_OK) continue;
        if (err) *err = workers[i].err;
        return workers[i].status;
    }
    return tell(w, w->size, err);
}

/* Lays the tensors out from off on, and answers where the file ends. */
static uint64_t lay_out(work *w, uint64_t off)
{
    const gm_synth_list *const list = w->job->list;
    for (uint32_t i = 0; i < list->n; i++) {
        /* A slice begins with a block and with a word. */
        const uint64_t unit = 8 * (uint64_t)list->tensors[i].type->block_size;
        const uint64_t size = list->tensors[i].size, slice_size = SLICE / unit * unit;
        w->places[i] = (place){
            .stream = gm_synth_stream_make(list, i, w->job->seed),
            .off = off,
            .size = size,
            .slice_size = slice_size,
            .first = w->n_slices,
            .n = (size + slice_size - 1) / slice_size,
        };
        w->n_slices += w->places[i].n;
        w->size += size;
        off += size + gm_gguf_pad(size);
    }
    return off;
}

/* ---- the file ------------------------------------------------------------------------------ */

static gm_status reserve(const work *w, uint64_t size, gm_err *err)
{
    /* Asked first: a reservation that fails may have taken what was left. */
    struct statvfs fs;
    if (fstatvfs(w->fd, &fs) != 0) return io_fail(w->job->path, "written", errno, err);
    int os = EINTR;
    while (os == EINTR)
        os = posix_fallocate(w->fd, 0, (off_t)size);
    if (os == 0) return GM_OK;
    if (os != ENOSPC) return io_fail(w->job->path, "written", os, err);
    return gm_fail(err, GM_E_IO, os,
                   "%s: the disk is too full: the model needs %" PRIu64 " bytes, %" PRIu64
                   " are free",
                   w->job->path, size, (uint64_t)fs.f_bavail * fs.f_frsize);
}

static gm_status write_whole(FILE *out, const gm_synth_job *job, place *places, gm_err *err)
{
    work w = {.job = job, .fd = fileno(out), .places = places};
    const gm_tensors tensors = {.at = job->list->tensors, .n = job->list->n};
    GM_TRY(gm_gguf_write_header(out, job->meta, &tensors, job->path, err));
    if (fflush(out) != 0) return io_fail(job->path, "written", errno, err);
    const off_t start = ftello(out);
    if (start < 0) return io_fail(job->path, "written", errno, err);
    GM_TRY(reserve(&w, lay_out(&w, (uint64_t)start), err));
    return write_slices(&w, err);
}

/* Refuses a name that is taken, or that no file may take. */
static gm_status check_target(const gm_synth_job *job, gm_err *err)
{
    struct stat st;
    if (lstat(job->path, &st) != 0)
        return errno == ENOENT ? GM_OK : io_fail(job->path, "written", errno, err);
    if (S_ISDIR(st.st_mode)) return io_fail(job->path, "written", EISDIR, err);
    if (!S_ISREG(st.st_mode))
        return gm_fail(err, GM_E_IO, 0, "%s: is not a regular file, expected one", job->path);
    if (job->force) return GM_OK;
    return gm_fail(err, GM_E_IO, EEXIST, "%s: is there already, and is replaced only by force",
                   job->path);
}

/* Gives the finished file its name. Without force a name that was taken meanwhile stays as it is. */
static gm_status give_name(const gm_synth_job *job, const char *part, gm_err *err)
{
    if (job->force)
        return rename(part, job->path) == 0 ? GM_OK : io_fail(job->path, "named", errno, err);
    if (link(part, job->path) != 0) return io_fail(job->path, "named", errno, err);
    unlink(part);
    return GM_OK;
}

/* Writes under the name `part` first; `part` is gone after any failure. */
static gm_status write_part(const gm_synth_job *job, const char *part, place *places, gm_err *err)
{
    const int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return io_fail(job->path, "made", errno, err);
    FILE *const out = fdopen(fd, "wb");
    gm_status status = GM_OK;
    if (!out) {
        status = io_fail(job->path, "opened", errno, err);
        close(fd);
    } else {
        status = write_whole(out, job, places, err);
        if (fclose(out) != 0 && status == GM_OK) status = io_fail(job->path, "written", errno, err);
    }
    if (status == GM_OK) status = give_name(job, part, err);
    if (status != GM_OK) unlink(part);
    return status;
}

gm_status gm_synth_file_write(const gm_synth_job *job, gm_err *err)
{
    gm_strbuf part = {0};
    place *places = NULL;
    gm_status status = GM_OK;
    GM_TRY_DONE(check_target(job, err));
    GM_TRY_DONE(gm_mem_alloc(&places, job->list->n, sizeof *places, "places of tensors", err));
    gm_strbuf_printf(&part, "%s.%ld.part", job->path, (long)getpid());
    GM_TRY_DONE(gm_strbuf_status(&part, err));
    status = write_part(job, part.p, places, err);
done:
    gm_mem_free(places);
    gm_strbuf_deinit(&part);
    return status;
}
