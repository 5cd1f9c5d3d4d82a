/* SPDX-License-Identifier: MIT */
#include "base/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/strbuf.h"

int gm_outfile_write(int fd, const void *p, uint64_t n)
{
    const uint8_t *at = p;
    while (n) {
        const ssize_t done = write(fd, at, n < 1u << 30 ? n : 1u << 30);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        at += done;
        n -= (uint64_t)done;
    }
    return 0;
}

/* Nobody waits for the disk: what a loss of power leaves of the file is for its reader to check. */
static int write_as(char *part, const char *path, const gm_str *parts, size_t n_parts)
{
    const int fd = mkostemp(part, O_CLOEXEC);
    int os = fd < 0 ? errno : 0;
    if (os) return os;
    for (size_t i = 0; i < n_parts && os == 0; i++)
        os = gm_outfile_write(fd, parts[i].p, parts[i].len);
    if (close(fd) != 0 && os == 0) os = errno;
    if (os == 0 && rename(part, path) != 0) os = errno;
    if (os) unlink(part);
    return os;
}

int gm_outfile_replace(const char *path, const gm_str *parts, size_t n_parts)
{
    gm_strbuf part = {0};
    gm_strbuf_printf(&part, "%s.XXXXXX", path);
    const int os =
        gm_strbuf_status(&part, NULL) == GM_OK ? write_as(part.p, path, parts, n_parts) : ENOMEM;
    gm_strbuf_deinit(&part);
    return os;
}
