/* SPDX-License-Identifier: MIT */
#include "server/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <strings.h>
#include <unistd.h>

#define FILE_MAX    (1u << 20)
#define PATIENCE_MS 2000

/* A pipe gives what is written to it; one to which nobody writes must not keep a server from being
 * stopped. */
static ssize_t read_some(int fd, char *to, size_t size)
{
    ssize_t n = read(fd, to, size);
    if (n >= 0 || errno != EAGAIN) return n;
    if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, PATIENCE_MS) <= 0) {
        errno = ETIMEDOUT;
        return -1;
    }
    return read(fd, to, size);
}

gm_status gm_keys_read_file(const char *path, gm_strbuf *out, gm_err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return gm_fail(err, GM_E_IO, errno, "%s: %s", path, strerror(errno));
    char chunk[4096];
    ssize_t n = 0;
    while ((n = read_some(fd, chunk, sizeof chunk)) > 0 && out->len <= FILE_MAX)
        gm_strbuf_put(out, (gm_str){chunk, (size_t)n});
    const int os = n < 0 ? errno : 0;
    close(fd);
    if (os) return gm_fail(err, GM_E_IO, os, "%s: %s", path, strerror(os));
    if (out->len > FILE_MAX)
        return gm_fail(err, GM_E_FORMAT, 0, "%s: it has more than %u bytes", path, FILE_MAX);
    return gm_strbuf_status(out, err);
}

/* The next line without its end and the blanks around it; false when there is none. */
static bool next_line(gm_str *rest, gm_str *line)
{
    if (rest->len == 0) return false;
    const char *const end = memchr(rest->p, '\n', rest->len);
    const size_t len = end ? (size_t)(end - rest->p) : rest->len;
    *line = (gm_str){rest->p, len};
    *rest = (gm_str){rest->p + len + (end ? 1 : 0), rest->len - len - (end ? 1 : 0)};
    while (line->len && strchr(" \t\r", line->p[line->len - 1]))
        line->len--;
    while (line->len && strchr(" \t", *line->p))
        *line = (gm_str){line->p + 1, line->len - 1};
    return true;
}

static bool is_key(gm_str line)
{
    return line.len && *line.p != '#';
}

gm_status gm_keys_reload(gm_keys *k, gm_err *err)
{
    if (!k->path)
        return gm_fail(err, GM_E_ARG, 0, "there is no --api-key-file that could be read again");
    gm_strbuf text = {0};
    gm_status status = gm_keys_read_file(k->path, &text, err);
    gm_str rest = gm_strbuf_str(&text), line;
    size_t n = 0;
    while (status == GM_OK && next_line(&rest, &line))
        n += is_key(line);
    if (status == GM_OK && n == 0)
        status = gm_fail(err, GM_E_FORMAT, 0, "%s: it has no key, expected one a line", k->path);
    if (status == GM_OK) {
        pthread_rwlock_wrlock(&k->lock);
        const gm_strbuf before = k->text;
        k->text = text;
        text = before;
        pthread_rwlock_unlock(&k->lock);
    }
    gm_strbuf_deinit(&text);
    return status;
}

gm_status gm_keys_init(gm_keys *k, const char *option, const char *path, gm_err *err)
{
    pthread_rwlock_init(&k->lock, NULL);
    k->made = true;
    k->option = option;
    k->path = path;
    if (option && !*option) return gm_fail(err, GM_E_ARG, 0, "api key: it is empty");
    return path ? gm_keys_reload(k, err) : GM_OK;
}

void gm_keys_deinit(gm_keys *k)
{
    if (!k->made) return;
    gm_strbuf_deinit(&k->text);
    pthread_rwlock_destroy(&k->lock);
    *k = (gm_keys){0};
}

/* Takes the same time for every key of the same length, however much of it is right. */
static unsigned differs(gm_str given, gm_str key)
{
    unsigned diff = given.len != key.len;
    for (size_t i = 0; i < given.len; i++)
        diff |= (unsigned)(unsigned char)given.p[i] ^ (unsigned char)key.p[i % key.len];
    return diff;
}

gm_admission gm_keys_admit(gm_keys *k, const char *authorization)
{
    if (!k->option && !k->path) return GM_ADMITTED;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0) return GM_NO_KEY;
    const gm_str given = gm_str_c(authorization + 7);
    unsigned found = 0; /* every key is compared, whichever fits */
    if (k->option) found |= differs(given, gm_str_c(k->option)) == 0;
    pthread_rwlock_rdlock(&k->lock);
    gm_str rest = gm_strbuf_str(&k->text), line;
    while (next_line(&rest, &line)) {
        if (is_key(line)) found |= differs(given, line) == 0;
    }
    pthread_rwlock_unlock(&k->lock);
    return found ? GM_ADMITTED : GM_UNKNOWN_KEY;
}
