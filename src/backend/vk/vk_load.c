/* SPDX-License-Identifier: MIT */
/* The weights' way to the device. Tensors are put into few large buffers, because drivers limit both
 * the number of allocations and the size of one. Every core lays rows out, straight into the device's
 * memory where it is mapped, else into one half of a staging buffer while the device copies the
 * other. */

#include <string.h>

#include "backend/vk/vk.h"
#include "base/mem.h"

#define BUFFER_SIZE (1ull << 30) /* of weights, where the device gives that much at once */
#define STAGE_SIZE  (32ull << 20)
#define ALIGN       256

gm_status gm_vk_size_of(const gm_backend *be, const gm_tensors *t, uint64_t *bytes, gm_err *err)
{
    (void)be;
    *bytes = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        gm_vk_planes p;
        GM_TRY(gm_vk_planes_of(&t->at[i], &p, err));
        *bytes += (p.size + ALIGN - 1) / ALIGN * ALIGN;
    }
    return GM_OK;
}

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct place {
    size_t buf;
    uint64_t off;
} place;

/* Puts tensor after tensor into buffers of up to BUFFER_SIZE; sizes[] is what each then holds. */
static gm_status find_places(const gm_wset *w, place *at, uint64_t *sizes, size_t *n, gm_err *err)
{
    const uint64_t max = w->be->dev.max_alloc < BUFFER_SIZE ? w->be->dev.max_alloc : BUFFER_SIZE;
    *n = 0;
    for (uint32_t i = 0; i < w->tensors.n; i++) {
        gm_vk_planes p;
        GM_TRY(gm_vk_planes_of(&w->tensors.at[i], &p, err));
        const uint64_t size = (p.size + ALIGN - 1) / ALIGN * ALIGN;
        if (*n == 0 || sizes[*n - 1] + size > max) sizes[(*n)++] = 0;
        at[i] = (place){*n - 1, sizes[*n - 1]};
        sizes[*n - 1] += size;
    }
    return GM_OK;
}

static gm_status alloc_bufs(gm_wset *w, place *at, gm_err *err)
{
    uint64_t *sizes = NULL;
    size_t n = 0;
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_mem_alloc(&sizes, w->tensors.n, sizeof *sizes, "weights", err));
    GM_TRY_DONE(find_places(w, at, sizes, &n, err));
    GM_TRY_DONE(gm_mem_alloc(&w->bufs, n, sizeof *w->bufs, "weights", err));
    for (; w->n_bufs < n; w->n_bufs++) {
        GM_TRY_DONE(gm_vk_buf_alloc(&w->be->dev, &w->bufs[w->n_bufs], sizes[w->n_bufs], GM_VK_LOCAL,
                                    "the weights", err));
    }
    for (uint32_t i = 0; i < w->tensors.n; i++)
        w->addr[i] = w->bufs[at[i].buf].addr + at[i].off;
done:
    gm_mem_free(sizes);
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct loader {
    gm_wset *w;
    gm_vk_buf stage;
    VkCommandBuffer cmd[2];
    uint64_t value[2]; /* of the timeline, after which a half is free */
    uint32_t half;
    const gm_progress *progress;
    uint64_t done, total; /* bytes of the files */
} loader;

/* A run of rows that the workers share. */
typedef struct pack_job {
    const gm_tensor *t;
    uint64_t first, n;
    uint8_t *to[GM_VK_PLANES];
    const gm_vk_planes *planes;
    gm_tasks tasks;
} pack_job;

#define TASK_ROWS 16u /* a band of vk_layout.c */

static void pack_some(void *ctx, uint32_t index)
{
    pack_job *const j = ctx;
    (void)index;
    const uint32_t n_tasks = (uint32_t)((j->n + TASK_ROWS - 1) / TASK_ROWS);
    for (uint32_t task; gm_tasks_take(&j->tasks, n_tasks, 1, &task);) {
        const uint64_t first = (uint64_t)task * TASK_ROWS;
        const uint64_t n = j->n - first < TASK_ROWS ? j->n - first : TASK_ROWS;
        uint8_t *to[GM_VK_PLANES];
        for (int i = 0; i < GM_VK_PLANES; i++)
            to[i] = j->to[i] + first * j->planes->row_size[i];
        gm_vk_pack_rows(j->t, j->first + first, n, to);
    }
}

/* Lays rows out in a half of the staging buffer and has the device fetch them. */
static gm_status send_rows(loader *l, pack_job *job, const place *at, gm_err *err)
{
    gm_vk_dev *const d = &l->w->be->dev;
    gm_vk_copy copies[GM_VK_PLANES];
    uint64_t off = l->half * STAGE_SIZE;
    /* The last band is sent whole, except of weights that have none and nothing behind them. */
    const uint64_t padded =
        job->planes->n > 1 ? (job->n + TASK_ROWS - 1) / TASK_ROWS * TASK_ROWS : job->n;
    GM_TRY(gm_vk_wait(d, l->value[l->half], err));
    for (uint32_t i = 0; i < GM_VK_PLANES; i++) {
        const uint64_t row = job->planes->row_size[i];
        job->to[i] = l->stage.map + off;
        copies[i] = (gm_vk_copy){&l->stage, &l->w->bufs[at->buf], off,
                                 at->off + job->planes->off[i] + job->first * row, padded * row};
        off += (padded * row + 15) / 16 * 16;
    }
    gm_workers_run(l->w->be->workers, pack_some, job);
    GM_TRY(gm_vk_record_copies(d, l->cmd[l->half], copies, job->planes->n, err));
    GM_TRY(gm_vk_submit(d, l->cmd[l->half], &l->value[l->half], err));
    l->half ^= 1;
    return GM_OK;
}

static gm_status load_tensor(loader *l, uint32_t index, const place *at, gm_err *err)
{
    const gm_tensor *const t = &l->w->tensors.at[index];
    const uint64_t rows = gm_tensor_rows(t);
    uint8_t *const map = l->w->bufs[at->buf].map;
    gm_vk_planes p;
    GM_TRY(gm_vk_planes_of(t, &p, err));
    uint64_t row_size = 0;
    for (uint32_t i = 0; i < p.n; i++)
        row_size += p.row_size[i];
    const uint64_t run = (STAGE_SIZE - 64) / (row_size ? row_size : 1) / TASK_ROWS * TASK_ROWS;
    if (run == 0)
        return gm_fail(err, GM_E_TOOBIG, 0, "vulkan: a row of tensor %s is too long", t->name);
    for (uint64_t first = 0; first < rows; first += run) {
        pack_job job = {.t = t, .first = first, .planes = &p};
        job.n = rows - first < run ? rows - first : run;
        for (uint32_t i = 0; i < GM_VK_PLANES && map; i++)
            job.to[i] = map + at->off + p.off[i] + first * p.row_size[i];
        if (map)
            gm_workers_run(l->w->be->workers, pack_some, &job);
        else
            GM_TRY(send_rows(l, &job, at, err));
        l->done += job.n * gm_tensor_row_size(t);
        if (l->progress && l->progress->tell &&
            !l->progress->tell(l->progress->ctx, l->done, l->total))
            return gm_fail(err, GM_E_CANCEL, 0, "loading the weights was cancelled");
    }
    return GM_OK;
}

static gm_status load_all(loader *l, const place *at, gm_err *err)
{
    gm_vk_dev *const d = &l->w->be->dev;
    gm_status status = GM_OK;
    bool mapped = true;
    for (size_t i = 0; i < l->w->n_bufs; i++)
        mapped = mapped && l->w->bufs[i].map;
    if (!mapped) {
        GM_TRY_DONE(gm_vk_buf_alloc(d, &l->stage, 2 * STAGE_SIZE, GM_VK_STAGING, "staging", err));
        for (int i = 0; i < 2; i++)
            GM_TRY_DONE(gm_vk_record_alloc(d, &l->cmd[i], err));
    }
    for (uint32_t i = 0; i < l->w->tensors.n; i++)
        GM_TRY_DONE(load_tensor(l, i, &at[i], err));
    d->count.bytes_up += l->done;
    GM_TRY_DONE(gm_vk_wait(d, d->n_submits, err));
done:
    if (status != GM_OK) gm_vk_wait(d, d->n_submits, NULL); /* staging may still be read */
    gm_vk_record_free(d, l->cmd[0]);
    gm_vk_record_free(d, l->cmd[1]);
    gm_vk_buf_free(d, &l->stage);
    return status;
}

gm_status gm_vk_load(gm_backend *be, const gm_tensors *t, const gm_progress *progress,
                     gm_wset **out, gm_err *err)
{
    *out = NULL;
    gm_wset *w = NULL;
    place *at = NULL;
    loader l = {.progress = progress};
    gm_status status = GM_OK;
    GM_TRY_DONE(gm_mem_alloc(&w, 1, sizeof *w, "weights", err));
    w->be = be;
    w->tensors = *t;
    l.w = w;
    GM_TRY_DONE(gm_mem_alloc(&at, t->n, sizeof *at, "weights", err));
    GM_TRY_DONE(gm_mem_alloc(&w->addr, t->n, sizeof *w->addr, "weights", err));
    for (uint32_t i = 0; i < t->n; i++)
        l.total += t->at[i].size;
    GM_TRY_DONE(alloc_bufs(w, at, err));
    GM_TRY_DONE(load_all(&l, at, err));
    *out = w;
done:
    gm_mem_free(at);
    if (status != GM_OK) gm_vk_unload(w);
    return status;
}

void gm_vk_unload(gm_wset *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->n_bufs; i++)
        gm_vk_buf_free(&w->be->dev, &w->bufs[i]);
    gm_mem_free(w->bufs);
    gm_mem_free(w->addr);
    gm_mem_free(w);
}
