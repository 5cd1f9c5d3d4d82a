/* SPDX-License-Identifier: MIT */
/* Files a device and driver, of pipelines and of what was found out by trying. There is one of each, so that the folder does not grow: a new driver or build replaces
 * what the old one left, which is of no use to it. It is written when the device is closed, if the
 * driver compiled what it had not in its cache. Two that close at once write the same; the last
 * stays. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/vk/vk.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/strbuf.h"

#define PIPELINES "pipelines"

/* Everything that a compiled pipeline depends on. */
static uint64_t key_of(const gm_vk_dev *d)
{
    const VkPhysicalDeviceProperties *const p = &d->props;
    const uint32_t numbers[] = {p->vendorID, p->deviceID, p->driverVersion, d->driver_id};
    uint64_t key = gm_hash(p->pipelineCacheUUID, sizeof p->pipelineCacheUUID, 0);
    key = gm_hash(numbers, sizeof numbers, key);
    key = gm_hash(d->driver, strlen(d->driver), key);
    for (uint32_t i = 0; i < gm_vk_n_shaders; i++) {
        const gm_vk_shader *const s = &gm_vk_shaders[i];
        key = gm_hash(s->name, strlen(s->name), key);
        key = gm_hash(s->words, s->n_words * sizeof *s->words, key);
    }
    return key;
}

static bool path_of(const gm_backend *be, const char *ending, gm_strbuf *path)
{
    if (!be->kept.dir) return false;
    gm_strbuf_printf(path, "%s/%s.%s", be->kept.dir, be->kept.id, ending);
    return gm_strbuf_status(path, NULL) == GM_OK;
}

void gm_vk_kept_read(gm_backend *be, const char *ending, gm_keptfile *file)
{
    gm_strbuf path = {0};
    if (path_of(be, ending, &path)) {
        const char *const wrong = gm_keptfile_open(file, path.p, be->kept.key);
        if (wrong)
            gm_note_tell(&be->kept.note, "%.300s %s: %s", path.p,
                         unlink(path.p) == 0 ? "was dropped" : "is not used", wrong);
    }
    gm_strbuf_deinit(&path);
}

gm_status gm_vk_kept_open(gm_backend *be, const gm_backend_cfg *cfg, gm_err *err)
{
    const VkPhysicalDeviceProperties *const p = &be->dev.props;
    gm_keptfile file = {0};
    be->kept = (gm_vk_kept){.dir = cfg->dir, .note = cfg->note, .key = key_of(&be->dev)};
    snprintf(be->kept.id, sizeof be->kept.id, "vulkan-%04x-%04x-%u", p->vendorID, p->deviceID,
             (unsigned)be->dev.driver_id);
    gm_vk_kept_read(be, PIPELINES, &file);
    if (file.data) be->kept.before = gm_hash(file.data, file.size, 0);
    const gm_status status = gm_vk_pipes_init(&be->pipes, &be->dev, file.data, file.size, err);
    gm_keptfile_close(&file);
    return status;
}

static gm_status failed(const gm_backend *be, const char *path, const char *what, int os,
                        gm_err *err)
{
    if (os == 0) return GM_OK;
    if (!err) gm_note_tell(&be->kept.note, "%.300s was not %s: %s", path, what, strerror(os));
    return gm_fail(err, GM_E_IO, os, "%.300s was not %s: %s", path, what, strerror(os));
}

gm_status gm_vk_kept_write(gm_backend *be, const char *ending, const void *bytes, size_t size,
                           gm_err *err)
{
    gm_strbuf path = {0};
    gm_status status = GM_OK;
    if (path_of(be, ending, &path)) {
        mkdir(be->kept.dir, 0700); /* a failure shows when the file is written */
        const int os = gm_keptfile_write(path.p, be->kept.key, bytes, size);
        status = failed(be, path.p, "written", os, err);
    }
    gm_strbuf_deinit(&path);
    return status;
}

gm_status gm_vk_kept_remove(gm_backend *be, const char *ending, gm_err *err)
{
    gm_strbuf path = {0};
    gm_status status = GM_OK;
    if (path_of(be, ending, &path) && unlink(path.p) != 0 && errno != ENOENT && errno != ENOTDIR)
        status = failed(be, path.p, "removed", errno, err);
    gm_strbuf_deinit(&path);
    return status;
}

/* Drivers that do not tell what they found in the cache are judged by what it has become. */
void gm_vk_kept_save(gm_backend *be)
{
    void *bytes = NULL;
    size_t size = 0;
    if (!be->kept.dir || !be->pipes.is_new) return;
    if (gm_vk_pipes_save(&be->pipes, &bytes, &size, NULL) != GM_OK) return;
    if (gm_hash(bytes, size, 0) != be->kept.before)
        gm_vk_kept_write(be, PIPELINES, bytes, size, NULL);
    gm_mem_free(bytes);
}
