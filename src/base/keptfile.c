/* SPDX-License-Identifier: MIT */
#include "base/keptfile.h"

#include <errno.h>

#include "base/hash.h"
#include "base/outfile.h"

#define VERSION 1u

static const char MAGIC[8] = "gmkept";

typedef struct head {
    char magic[8];
    uint32_t version, zero;
    uint64_t key, size;
    uint64_t hash; /* of the head with this field 0, and of the bytes */
} head;

static uint64_t hash_of(head h, const void *data, size_t size)
{
    h.hash = 0;
    return gm_hash(data, size, gm_hash(&h, sizeof h, 0));
}

static const char *check(const gm_mapfile *map, uint64_t key)
{
    head h;
    if (map->size < sizeof h) return "it is cut short";
    memcpy(&h, map->data, sizeof h);
    const size_t size = map->size - sizeof h;
    if (memcmp(h.magic, MAGIC, sizeof MAGIC) != 0) return "it is none of gemmule's";
    if (h.version != VERSION) return "it is of another version";
    if (h.size != size) return h.size > size ? "it is cut short" : "it is too long";
    if (h.hash != hash_of(h, map->data + sizeof h, size)) return "its checksum is wrong";
    return h.key == key ? NULL : "it is of another device, driver or build";
}

const char *gm_keptfile_open(gm_keptfile *f, const char *path, uint64_t key)
{
    gm_err err = {0};
    *f = (gm_keptfile){0};
    if (gm_mapfile_open(&f->map, path, &err) != GM_OK)
        return err.os == ENOENT || err.os == ENOTDIR ? NULL : "it cannot be read";
    const char *const wrong = check(&f->map, key);
    if (wrong) {
        gm_keptfile_close(f);
        return wrong;
    }
    f->data = f->map.data + sizeof(head);
    f->size = f->map.size - sizeof(head);
    return NULL;
}

void gm_keptfile_close(gm_keptfile *f)
{
    gm_mapfile_close(&f->map);
    *f = (gm_keptfile){0};
}

int gm_keptfile_write(const char *path, uint64_t key, const void *data, size_t size)
{
    head h = {.version = VERSION, .key = key, .size = size};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    h.hash = hash_of(h, data, size);
    const gm_str parts[] = {{(const char *)&h, sizeof h}, {data, size}};
    return gm_outfile_replace(path, parts, 2);
}
