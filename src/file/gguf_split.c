/* SPDX-License-Identifier: MIT */
#include "file/gguf.h"

#include <inttypes.h>

#include "base/mem.h"
#include "base/strbuf.h"

/* A model may come in several GGUF files, each with its own header and a share of the tensors:
 *
 *     <prefix>-00001-of-00003.gguf    split.no 0, split.count 3, split.tensors.count of all parts
 *     <prefix>-00002-of-00003.gguf    split.no 1, split.count 3
 *     <prefix>-00003-of-00003.gguf    split.no 2, split.count 3
 *
 * The keys of the first part are the model's, so that is the one to open; the others are found by
 * their names and must say the same of themselves. Each part is parsed into the same
 * gm_tensorfile, and only the whole is held against split.tensors.count. */

#define SPLIT_COUNT_MAX 65535

/* Where a file stands in a split model; a whole one is part 0 of 1. */
typedef struct split {
    uint32_t no, count;
} split;

static gm_status split_read(const gm_meta *m, split *s, gm_err *err)
{
    *s = (split){0, 1};
    GM_TRY(gm_meta_u32(m, "split.no", &s->no, NULL, err));
    GM_TRY(gm_meta_u32(m, "split.count", &s->count, NULL, err));
    if (s->count == 0) s->count = 1; /* what llama.cpp writes when it merges the parts */
    if (s->count > SPLIT_COUNT_MAX) {
        return gm_fail(err, GM_E_FORMAT, 0, "%s: key split.count is %" PRIu32 ", expected 0 to %d",
                       m->file, s->count, SPLIT_COUNT_MAX);
    }
    if (s->no >= s->count) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: key split.no is %" PRIu32 ", expected less than split.count, %" PRIu32,
                       m->file, s->no, s->count);
    }
    return GM_OK;
}

/* Appends the path of part `no`, given the path of part s.no; false, and nothing appended, when
 * that one is not named as parts are. */
static bool split_path(gm_strbuf *out, const char *path, split s, uint32_t no)
{
    char suffix[48];
    snprintf(suffix, sizeof suffix, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", s.no + 1, s.count);
    const gm_str whole = gm_str_c(path);
    const gm_str end = gm_str_c(suffix);
    if (!gm_str_ends(whole, end)) return false;
    gm_strbuf_put(out, (gm_str){whole.p, whole.len - end.len});
    gm_strbuf_printf(out, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", no + 1, s.count);
    return true;
}

static gm_status refuse_later_part(const char *path, split s, gm_err *err)
{
    gm_strbuf first = {0};
    const bool named = split_path(&first, path, s, 0) && first.p;
    const gm_status status =
        gm_fail(err, GM_E_FORMAT, 0,
                "%s: is part %" PRIu32 " of %" PRIu32 " of a split model, expected the first%s%s",
                path, s.no + 1, s.count, named ? ", " : " part", named ? first.p : "");
    gm_strbuf_deinit(&first);
    return status;
}

gm_status gm_gguf_split_check(const gm_tensorfile *f, const gm_meta *meta, gm_err *err)
{
    split s;
    split wanted;
    GM_TRY(split_read(meta, &s, err));
    if (f->n_parts == 0) return s.no == 0 ? GM_OK : refuse_later_part(meta->file, s, err);
    GM_TRY(split_read(&f->meta, &wanted, err));
    wanted.no = f->n_parts;
    if (s.no == wanted.no && s.count == wanted.count) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0,
                   "%s: says it is part %" PRIu32 " of %" PRIu32 ", expected part %" PRIu32
                   " of %" PRIu32,
                   meta->file, s.no + 1, s.count, wanted.no + 1, wanted.count);
}

static gm_status part_open(gm_tensorfile *f, const char *path, gm_err *err)
{
    gm_mapfile view;
    GM_TRY(gm_tensorfile_map(f, path, &view, err));
    return gm_gguf_parse(f, view.data, view.size, path, err);
}

/* Opens part `no`, given the path of the first. */
static gm_status later_part_open(gm_tensorfile *f, const char *path, split s, uint32_t no,
                                 gm_err *err)
{
    gm_strbuf part = {0};
    if (!split_path(&part, path, s, no)) {
        return gm_fail(err, GM_E_FORMAT, 0,
                       "%s: is part 1 of %" PRIu32
                       ", expected a name that ends in -00001-of-%05" PRIu32 ".gguf",
                       path, s.count, s.count);
    }
    gm_status status = gm_strbuf_status(&part, err);
    if (status == GM_OK) status = part_open(f, part.p, err);
    gm_strbuf_deinit(&part);
    return status;
}

static gm_status check_total(const gm_tensorfile *f, gm_err *err)
{
    uint32_t wanted = 0;
    bool found = false;
    const uint64_t n = (uint64_t)f->n_tensors + f->n_skipped;
    GM_TRY(gm_meta_u32(&f->meta, "split.tensors.count", &wanted, &found, err));
    if (!found || wanted == n) return GM_OK;
    return gm_fail(err, GM_E_FORMAT, 0,
                   "%s: its %" PRIu32 " parts have %" PRIu64 " tensors, expected %" PRIu32
                   " by key split.tensors.count",
                   f->meta.file, f->n_parts, n, wanted);
}

static gm_status check_names(const gm_tensorfile *f, gm_err *err)
{
    gm_str *names = NULL;
    GM_TRY(gm_mem_alloc(&names, f->n_tensors, sizeof *names, "a list of names", err));
    for (uint32_t i = 0; i < f->n_tensors; i++)
        names[i] = gm_str_c(f->tensors[i].name);
    gm_status status = GM_OK;
    const gm_str *const twin = gm_names_find_twin(names, f->n_tensors);
    if (twin) {
        status = gm_fail(err, GM_E_FORMAT, 0, "%s: tensor %.*s is in two parts, expected in one",
                         f->meta.file, GM_STR_ARG(*twin));
    }
    gm_mem_free(names);
    return status;
}

gm_status gm_gguf_open(gm_tensorfile *f, const char *path, gm_err *err)
{
    split s;
    GM_TRY(part_open(f, path, err));
    GM_TRY(split_read(&f->meta, &s, err));
    if (s.count == 1) return GM_OK;
    for (uint32_t no = 1; no < s.count; no++)
        GM_TRY(later_part_open(f, path, s, no, err));
    GM_TRY(check_names(f, err));
    return check_total(f, err);
}
