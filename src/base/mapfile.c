/* SPDX-License-Identifier: MIT */
#include "base/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps the whole of an open file. */
static gm_status map_fd(gm_mapfile *m, int fd, const char *path, gm_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return gm_fail(err, GM_E_IO, errno, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) {
        return gm_fail(err, GM_E_IO, 0, "%s: is %s, expected a file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    }
    m->dev = (uint64_t)st.st_dev;
    m->ino = (uint64_t)st.st_ino;
    if (st.st_size == 0) return GM_OK;
    void *const p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        return gm_fail(err, GM_E_IO, errno, "%s: %lld bytes cannot be mapped: %s", path,
                       (long long)st.st_size, strerror(errno));
    }
    m->data = p;
    m->size = (size_t)st.st_size;
    return GM_OK;
}

gm_status gm_mapfile_open(gm_mapfile *m, const char *path, gm_err *err)
{
    *m = (gm_mapfile){0};
    /* O_NONBLOCK: a named pipe is refused below instead of waiting for a writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return gm_fail(err, GM_E_IO, errno, "%s: cannot be opened: %s", path, strerror(errno));
    }
    const gm_status status = map_fd(m, fd, path, err);
    close(fd);
    return status;
}

void gm_mapfile_fetch(const uint8_t *from, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)from / page * page, end = (uintptr_t)from + size;
    /* Linux before 5.14 has no such advice: then reading finds the pages one by one. */
    madvise((void *)first, end - first, MADV_POPULATE_READ);
}

void gm_mapfile_forget(const uint8_t *from, size_t size)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)from + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)from + size) / page * page;
    if (first < end) madvise((void *)first, end - first, MADV_DONTNEED);
}

void gm_mapfile_close(gm_mapfile *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    *m = (gm_mapfile){0};
}
