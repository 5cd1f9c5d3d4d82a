/* SPDX-License-Identifier: MIT */
/* Weights on their way to their final place. Quantised tensors become tiles (tile.h)
 * in memory of our own, on huge pages; plain floats stay in the file's map.
 *
 * Why a copy at all: the map has pages of 4 KiB, from which these processors read at
 * two thirds of what the memory can do, however it is asked for (docs/PERF.md, attempt
 * 11). It costs no memory in the end, because the map's pages are given back as they are
 * done. It costs time, above all where the system must first find the pages (a virtual
 * machine: a second for 700 MB), and nobody should wait for that before the first
 * token. So load only brings the file into memory, the first step computes from the
 * file's layout, making each tile in L1 as it needs it, and every step after that begins
 * with settling an eighth of the weights, until all are. Bits do not depend on it. */

#include "backend/cpu/cpu.h"
#include "base/mapfile.h"
#include "base/mem.h"

#define RUN_SIZE     ((uint64_t)2 << 20) /* bytes that a worker takes at a time, about */
#define SETTLE_STEPS 8
#define SETTLE_LEAST ((uint64_t)64 << 20) /* and so much at least: a small model at once */

static bool is_quantised(const gm_tensor *t)
{
    return t->type->unpack != NULL;
}

/* Bytes of every tensor's tiles, each beginning on a line of its own. */
gm_status gm_cpu_size_of(const gm_backend *be, const gm_tensors *t, uint64_t *bytes, gm_err *err)
{
    (void)be;
    *bytes = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t size = 0;
        if (!is_quantised(&t->at[i])) continue;
        if (!gm_tiles_size(&t->at[i], &size) || !gm_size_align(size, 64, &size) ||
            !gm_size_add(*bytes, size, bytes)) {
            return gm_fail(err, GM_E_TOOBIG, 0, "tensor %s is too large for this machine",
                           t->at[i].name);
        }
    }
    return GM_OK;
}

/* Reading the file, in runs that workers take. */
typedef struct fetch_job {
    const gm_tensors *from;
    const gm_progress *progress;
    uint64_t total;
    atomic_ullong done;
    atomic_bool cancelled;
    gm_tasks *tasks; /* [n tensors] */
} fetch_job;

static void tell(fetch_job *j)
{
    if (!j->progress || !j->progress->tell) return;
    if (!j->progress->tell(j->progress->ctx, atomic_load(&j->done), j->total))
        atomic_store(&j->cancelled, true);
}

static void fetch_share(void *arg, uint32_t worker)
{
    fetch_job *const j = arg;
    for (uint32_t i = 0; i < j->from->n; i++) {
        const gm_tensor *const t = &j->from->at[i];
        const uint32_t n_runs = (uint32_t)((t->size + RUN_SIZE - 1) / RUN_SIZE);
        uint32_t run = 0;
        while (!atomic_load(&j->cancelled) && gm_tasks_take(&j->tasks[i], n_runs, 1, &run)) {
            const uint64_t at = run * RUN_SIZE;
            const uint64_t size = t->size - at < RUN_SIZE ? t->size - at : RUN_SIZE;
            if (j->from->mapped) gm_mapfile_fetch(t->data + at, size);
            atomic_fetch_add(&j->done, size);
            if (worker == 0) tell(j);
        }
    }
}

static gm_status fetch(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                       gm_err *err)
{
    fetch_job job = {.from = t, .progress = progress};
    for (uint32_t i = 0; i < t->n; i++)
        job.total += t->at[i].size;
    GM_TRY(gm_mem_alloc(&job.tasks, t->n, sizeof *job.tasks, "tasks", err));
    gm_workers_run(be->workers, fetch_share, &job);
    gm_mem_free(job.tasks);
    if (!job.cancelled) tell(&job);
    if (job.cancelled) return gm_fail(err, GM_E_CANCEL, 0, "loading the weights was cancelled");
    return GM_OK;
}

static gm_status load(gm_backend *be, const gm_tensors *t, const gm_progress *progress, gm_wset *w,
                      gm_err *err)
{
    w->tensors = *t;
    GM_TRY(gm_cpu_size_of(be, t, &w->size, err));
    GM_TRY(gm_mem_alloc(&w->tiled, t->n, sizeof *w->tiled, "weights", err));
    GM_TRY(gm_mem_alloc_huge(&w->memory, w->size, "weights", err));
    uint64_t at = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t size = 0;
        if (!is_quantised(&t->at[i]) || !gm_tiles_size(&t->at[i], &size)) continue;
        gm_size_align(size, 64, &size);
        w->tiled[i].tiles = w->memory + at;
        at += size;
    }
    return fetch(be, t, progress, err);
}

gm_status gm_cpu_load(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                      gm_wset **out, gm_err *err)
{
    *out = NULL;
    gm_wset *w = NULL;
    GM_TRY(gm_mem_alloc(&w, 1, sizeof *w, "weights", err));
    const gm_status status = load(be, t, progress, w, err);
    if (status == GM_OK)
        *out = w;
    else
        gm_cpu_unload(w);
    return status;
}

void gm_cpu_unload(gm_wset *w)
{
    if (!w) return;
    gm_mem_free_huge(w->memory, w->size);
    gm_mem_free(w->tiled);
    gm_mem_free(w);
}

/* Making tiles of panels [first, end) of one tensor. */
typedef struct settle_job {
    const gm_tensor *t;
    bool mapped;
    uint8_t *tiles;
    uint32_t first, end, run;
    gm_tasks tasks;
} settle_job;

static void settle_share(void *arg, uint32_t worker)
{
    (void)worker;
    settle_job *const j = arg;
    const uint64_t row_size = gm_tensor_row_size(j->t), rows = gm_tensor_rows(j->t);
    uint32_t at = 0;
    for (uint32_t n; (n = gm_tasks_take(&j->tasks, j->end - j->first, j->run, &at));) {
        const uint64_t p = j->first + at;
        for (uint64_t i = p; i < p + n; i++)
            gm_tiles_make(j->t, i, j->tiles + i * GM_PANEL_ROWS * row_size);
        const uint64_t end = (p + n) * GM_PANEL_ROWS;
        if (j->mapped)
            gm_mapfile_forget(j->t->data + p * GM_PANEL_ROWS * row_size,
                              ((end < rows ? end : rows) - p * GM_PANEL_ROWS) * row_size);
    }
}

/* Settles up to `size` bytes more of tensor i; answers how many. */
static uint64_t settle_tensor(gm_backend *be, gm_wset *w, uint32_t i, uint64_t size)
{
    const gm_tensor *const t = &w->tensors.at[i];
    const uint64_t panel_size = GM_PANEL_ROWS * gm_tensor_row_size(t);
    const uint32_t n_panels = (uint32_t)((gm_tensor_rows(t) + GM_PANEL_ROWS - 1) / GM_PANEL_ROWS);
    const uint32_t first = w->tiled[i].n_panels;
    const uint64_t n = (size + panel_size - 1) / panel_size, run = RUN_SIZE / panel_size;
    settle_job job = {
        .t = t,
        .mapped = w->tensors.mapped,
        .tiles = w->tiled[i].tiles,
        .first = first,
        .end = n < n_panels - first ? first + (uint32_t)n : n_panels,
        .run = run ? (uint32_t)run : 1,
    };
    gm_workers_run(be->workers, settle_share, &job);
    w->tiled[i].n_panels = job.end;
    return (job.end - first) * panel_size;
}

void gm_cpu_settle(gm_backend *be, gm_wset *w)
{
    if (!w->used) {
        w->used = true;
        return;
    }
    const uint64_t share = w->size / SETTLE_STEPS;
    uint64_t left = share > SETTLE_LEAST ? share : SETTLE_LEAST;
    for (; w->settling < w->tensors.n; w->settling++) {
        const gm_tensor *const t = &w->tensors.at[w->settling];
        const gm_tiled *const tiled = &w->tiled[w->settling];
        if (!tiled->tiles) continue;
        if (left == 0) return;
        const uint64_t done = settle_tensor(be, w, w->settling, left);
        left = done < left ? left - done : 0;
        if ((uint64_t)tiled->n_panels * GM_PANEL_ROWS < gm_tensor_rows(t)) return;
    }
}
