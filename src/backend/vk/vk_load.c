/* SPDX-License-Identifier: MIT */
/* The weights' way to the device. Tensors are put into few large buffers, because drivers limit both
 * the number of allocations and the size of one. Every core lays rows out, straight into the device's
 * memory where it is mapped, else into one part of a staging buffer while the device fetches others.
 *
 * A bus of 50 GB/s takes a part in less than a millisecond, in which workers have to be woken, a copy
 * recorded and submitted: so a part takes rows of as many tensors as it has room for, and there are
 * more than two. A core lays out 4 to 7 GB/s of the usual formats (docs/PERF.md, attempt 50), so it
 * needs eight of them; larger parts would fall out of the processor's cache before they are fetched. */

#include <math.h>
#include <string.h>

#include "backend/vk/vk.h"
#include "base/clock.h"
#include "base/mapfile.h"
#include "base/mem.h"

#define BUFFER_SIZE (1ull << 30) /* of weights, where the device gives that much at once */
#define PARTS       4
#define PART_SIZE   (32ull << 20)
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

#define BAND      16u            /* rows that vk_layout.c puts together */
#define TASK_SIZE (512ull << 10) /* bytes of a file, about              */
#define PIECES    64u            /* tensors of a batch                  */

/* Rows of a tensor, and where they go. */
typedef struct piece {
    const gm_tensor *t;
    uint64_t first, n;
    uint8_t *to[GM_VK_PLANES];
    uint64_t row_size[GM_VK_PLANES];
    uint32_t task_rows, task_end; /* of a task; tasks of this one and those before it */
} piece;

/* What the workers lay out together, and the device then fetches. */
typedef struct batch {
    piece at[PIECES];
    gm_vk_copy copies[PIECES * GM_VK_PLANES];
    uint32_t n, n_copies;
    uint64_t size;      /* bytes laid out     */
    uint64_t file_size; /* bytes of the files */
    gm_tasks tasks;
    bool mapped; /* the files are: pages are asked for many at a time */
} batch;

typedef struct loader {
    gm_wset *w;
    batch *batch;
    gm_vk_buf stage; /* all-zero where the device's memory is mapped */
    VkCommandBuffer cmd[PARTS];
    uint64_t value[PARTS]; /* of the timeline, after which a part is free */
    uint32_t part;
    const gm_progress *progress;
    uint64_t done, total; /* bytes of the files */
} loader;

static void pack_some(void *ctx, uint32_t index)
{
    batch *const b = ctx;
    (void)index;
    for (uint32_t task; gm_tasks_take(&b->tasks, b->at[b->n - 1].task_end, 1, &task);) {
        uint32_t i = 0;
        while (task >= b->at[i].task_end)
            i++;
        const piece *const p = &b->at[i];
        const uint64_t first = (uint64_t)(task - (i ? b->at[i - 1].task_end : 0)) * p->task_rows;
        const uint64_t n = p->n - first < p->task_rows ? p->n - first : p->task_rows;
        const uint64_t row_size = gm_tensor_row_size(p->t);
        uint8_t *to[GM_VK_PLANES];
        for (int k = 0; k < GM_VK_PLANES; k++)
            to[k] = p->to[k] ? p->to[k] + first * p->row_size[k] : NULL;
        if (b->mapped) gm_mapfile_fetch(p->t->data + (p->first + first) * row_size, n * row_size);
        gm_vk_pack_rows(p->t, p->first + first, n, to);
    }
}

/* Lays out what the batch has, and has the device fetch it; the next one goes into the part that has
 * waited longest. */
static gm_status send_batch(loader *l, gm_err *err)
{
    gm_vk_dev *const d = &l->w->be->dev;
    batch *const b = l->batch;
    if (b->n) gm_workers_run(l->w->be->workers, pack_some, b);
    if (b->n_copies) {
        GM_TRY(gm_vk_record_copies(d, l->cmd[l->part], b->copies, b->n_copies, err));
        GM_TRY(gm_vk_submit(d, l->cmd[l->part], &l->value[l->part], err));
        l->part = (l->part + 1) % PARTS;
        GM_TRY(gm_vk_wait(d, l->value[l->part], err));
    }
    l->done += b->file_size;
    b->n = b->n_copies = 0;
    b->size = b->file_size = 0;
    b->tasks = (gm_tasks){0};
    if (l->progress && l->progress->tell && !l->progress->tell(l->progress->ctx, l->done, l->total))
        return gm_fail(err, GM_E_CANCEL, 0, "loading the weights was cancelled");
    return GM_OK;
}

/* Where the rows of a piece go: their place on the device, or one in the stage, from which they are
 * fetched. The last band is sent whole, except of weights that have none and nothing behind them. */
static void find_planes(loader *l, piece *p, const gm_vk_planes *planes, const place *at)
{
    batch *const b = l->batch;
    const gm_vk_buf *const buf = &l->w->bufs[at->buf];
    const uint64_t padded = planes->n > 1 ? (p->n + BAND - 1) / BAND * BAND : p->n;
    for (uint32_t i = 0; i < planes->n; i++) {
        const uint64_t row = planes->row_size[i], size = padded * row;
        const uint64_t to = at->off + planes->off[i] + p->first * row;
        const uint64_t from = l->part * PART_SIZE + b->size;
        p->row_size[i] = row;
        p->to[i] = buf->map ? buf->map + to : l->stage.map + from;
        if (!buf->map && size)
            b->copies[b->n_copies++] = (gm_vk_copy){&l->stage, buf, from, to, size};
        b->size += (size + 15) / 16 * 16;
    }
}

static gm_status load_tensor(loader *l, uint32_t index, const place *at, gm_err *err)
{
    const gm_tensor *const t = &l->w->tensors.at[index];
    const uint64_t rows = gm_tensor_rows(t);
    batch *const b = l->batch;
    gm_vk_planes planes;
    uint64_t row_size = 0;
    GM_TRY(gm_vk_planes_of(t, &planes, err));
    for (uint32_t i = 0; i < planes.n; i++)
        row_size += planes.row_size[i];
    const uint64_t band = row_size * BAND + 16 * GM_VK_PLANES;
    const uint64_t per_task = TASK_SIZE / (gm_tensor_row_size(t) * BAND + 1) + 1;
    if (band > PART_SIZE)
        return gm_fail(err, GM_E_TOOBIG, 0, "vulkan: a row of tensor %s is too long", t->name);
    for (uint64_t first = 0; first < rows;) {
        const uint64_t fit = (PART_SIZE - b->size) / band * BAND;
        if (fit == 0 || b->n == PIECES) {
            GM_TRY(send_batch(l, err));
            continue;
        }
        piece *const p = &b->at[b->n];
        *p = (piece){.t = t,
                     .first = first,
                     .n = rows - first < fit ? rows - first : fit,
                     .task_rows = (uint32_t)per_task * BAND};
        find_planes(l, p, &planes, at);
        p->task_end =
            (b->n ? p[-1].task_end : 0) + (uint32_t)((p->n + p->task_rows - 1) / p->task_rows);
        b->file_size += p->n * gm_tensor_row_size(t);
        b->n++;
        first += p->n;
    }
    return GM_OK;
}

static gm_status load_all(loader *l, const place *at, gm_err *err)
{
    gm_vk_dev *const d = &l->w->be->dev;
    const double start = gm_clock_s();
    gm_status status = GM_OK;
    bool mapped = true;
    for (size_t i = 0; i < l->w->n_bufs; i++)
        mapped = mapped && l->w->bufs[i].map;
    GM_TRY_DONE(gm_mem_alloc(&l->batch, 1, sizeof *l->batch, "weights", err));
    l->batch->mapped = l->w->tensors.mapped;
    if (!mapped) {
        GM_TRY_DONE(
            gm_vk_buf_alloc(d, &l->stage, PARTS * PART_SIZE, GM_VK_STAGING, "staging", err));
        for (int i = 0; i < PARTS; i++)
            GM_TRY_DONE(gm_vk_record_alloc(d, &l->cmd[i], err));
    }
    for (uint32_t i = 0; i < l->w->tensors.n; i++)
        GM_TRY_DONE(load_tensor(l, i, &at[i], err));
    GM_TRY_DONE(send_batch(l, err));
    d->count.bytes_up += l->done;
    GM_TRY_DONE(gm_vk_wait(d, d->n_submits, err));
    l->w->be->load_bytes_s = (double)l->done / fmax(gm_clock_s() - start, 1e-9);
done:
    if (status != GM_OK) gm_vk_wait(d, d->n_submits, NULL); /* staging may still be read */
    for (int i = 0; i < PARTS; i++)
        gm_vk_record_free(d, l->cmd[i]);
    gm_vk_buf_free(d, &l->stage);
    gm_mem_free(l->batch);
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
